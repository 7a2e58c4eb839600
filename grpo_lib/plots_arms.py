"""Figures of notebook 05: arms beside each other, every seed a dot; plain data in, a matplotlib Figure out.

The finding is the title; the notebook passes it in, with numbers it has computed. Intervals are 95% intervals over seeds
unless a docstring says otherwise; where one seed alone is there (nan), a dot stands without one.
"""
import math

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter, PercentFormatter

from grpo_lib import draw

MAIN, OTHER = draw.ROLES["grpo"], draw.CONTRAST


@draw.figure
def seeds_by_arm(rows, labels, title, start, xlabel, reach, base="main"):
    """Arms on rows: left each seed's value with mean and interval, right each seed's difference from the base.

    rows: as compare.seed_table gives them, shares; labels: {arm: words}; start: the start's value, a line; reach: how far
    the right panel goes, an arm beyond is written at its edge. Grey: the noise floor on both sides of 0."""
    fig, (left, ax) = draw.new(title, 2, sharey=True, width_ratios=(1, 1.1))
    against = next(row["values"] for row in rows if row["arm"] == base)
    for y, row in enumerate(rows):
        colour = MAIN if row["arm"] == base else OTHER
        _row(left, y, list(row["values"].values()), (row["mean"], row["low"], row["high"]), colour)
        if row["arm"] == base:
            continue
        apart = [value - against[seed] for seed, value in row["values"].items() if seed in against]
        floor = 0.0 if math.isnan(row["noise_floor"]) else row["noise_floor"]
        ax.barh(y, 2 * floor, 0.8, left=-floor, color=draw.PALE, zorder=0)
        if abs(row["difference"]) > reach:
            sign, side = math.copysign(1, row["difference"]), "right" if row["difference"] > 0 else "left"
            words = f"{row['difference']:+.0%} →" if sign > 0 else f"← {row['difference']:+.0%}"
            draw.note(ax, words, sign * reach, y, 0, 0, colour, side, "center")
        else:
            _row(ax, y, apart, (row["difference"], row["d_low"], row["d_high"]), colour)
    _arms(left, [labels[row["arm"]] for row in rows])
    left.axvline(start, color=draw.ROLES["warm"], linestyle="--", linewidth=1.2)
    values = [v for row in rows for v in row["values"].values()]
    left.set(xlim=(min(start, *values) - 0.04, max(start, *values) + 0.04), xlabel=f"{xlabel}\n(dashed: the start)")
    ax.axvline(0, color=draw.INK, linewidth=0.8)
    ax.set(xlim=(-1.05 * reach, 1.05 * reach), xlabel=f"minus {labels[base]}, same seed\n(grey: under the noise floor)")
    for axis in (left, ax):
        axis.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axis.xaxis.set_major_locator(MaxNLocator(5))
    return fig


@draw.figure
def side_effects(panels, labels, title, base="main"):
    """What else an arm changed: a panel a quantity, arms on rows, every seed a dot, mean and interval a bar.

    panels: [(name, unit, "log" or "share", {arm: (values, (mean, low, high))})]; labels: {arm: words}, in order."""
    fig, axes = draw.new(title, len(panels), sharey=True)
    for ax, (name, unit, kind, found) in zip(axes, panels):
        for y, arm in enumerate(labels):
            if arm in found:
                _row(ax, y, *found[arm], MAIN if arm == base else OTHER)
        values = np.concatenate([found[arm][0] for arm in found])
        if kind == "log":
            _log(ax, values)
        else:
            top = max(values.max(), 0.01)
            ax.set_xlim(-0.08 * top, 1.15 * top)
            ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.3g}%"))
            ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.set(title=name, xlabel=unit)
    _arms(axes[0], list(labels.values()))
    return fig


@draw.figure
def gaming(panels, title):
    """Two arms over the steps: each seed thin, their mean thick; what the article printed as a grey band.

    panels: [(name, ylabel, percent?, {words: {seed: (steps, values)}}, (low, high) of the article)]; the first arm is main."""
    fig, axes = draw.new(title, len(panels))
    for ax, (name, ylabel, percent, arms, article) in zip(axes, panels):
        ax.axhspan(*article, color=draw.PALE, zorder=0)
        labels = [(0, np.mean(article), "article", draw.INK)]
        for (words, seeds), colour in zip(arms.items(), (MAIN, OTHER)):
            for steps, values in seeds.values():
                ax.plot(steps, values, color=colour, linewidth=0.9, alpha=0.6)
            common = sorted(set.intersection(*(set(steps) for steps, _ in seeds.values())))
            mean = [np.mean([dict(zip(*curve))[step] for curve in seeds.values()]) for step in common]
            ax.plot(common, mean, color=colour, linewidth=2.2)
            labels.append((common[-1], mean[-1], words, colour))
        top = max(line.get_ydata().max() for line in ax.lines)
        ax.set(title=name, xlabel="training step", ylabel=ylabel)
        ax.set_ylim(0, 1.15 * max(top, article[1]))
        if percent:
            ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        last = max(x for x, *_ in labels)
        draw.ends(ax, [(last, *label[1:]) for label in labels])
        ax.set_xlim(0, last)
    return fig


@draw.figure
def groups(expected, measured, outcome, title):
    """By group size G: the share of groups that teach, and the outcome where a run is recorded.

    expected: {G: {"share", "low", "high", "naive"}}, interval by problem; measured: {G: [share of each seed's first steps]};
    outcome: {G: ([each seed's share right], (mean, low, high))}."""
    fig, (left, ax) = draw.new(title, 2)
    sizes = list(expected)
    naive = [expected[G]["naive"] for G in sizes]
    left.plot(sizes, naive, color=draw.INK, linestyle=":", linewidth=1.4)
    draw.note(left, "from the mean rate", sizes[-1], naive[-1], 0, 4, ha="right")
    draw.band(left, sizes, [[expected[G][k] for k in ("share", "low", "high")] for G in sizes], draw.ROLES["warm"])
    draw.note(left, "by problem", sizes[len(sizes) // 2], expected[sizes[len(sizes) // 2]]["low"], 8, -14, draw.ROLES["warm"], "left")
    for axis, found in ((left, measured), (ax, {G: values for G, (values, _) in outcome.items()})):
        for G, values in found.items():
            axis.plot([G] * len(values), values, "o", color=MAIN, markersize=5, markeredgecolor="white", zorder=3)
    for G, (_, (mean, low, high)) in outcome.items():
        _bar(ax, mean, low, high, G, MAIN, upright=True)
    left.set(ylabel="share of groups that teach", xlabel="replies in a group\n(dots: first step of each run)")
    ax.set(ylabel="right of samples, step 100", xlabel="replies in a group\n(dots: seeds)")
    for axis in (left, ax):
        axis.set_xscale("log", base=2)
        axis.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
        axis.set_xticks(sizes, [str(G) for G in sizes])
    draw.percent(left, 1.12)
    draw.percent(ax, min(1.0, 1.35 * max(v for values, _ in outcome.values() for v in values)))
    return fig


# ---- shared parts

def _row(ax, y, values, triple, colour):
    """The seeds of an arm as dots below each other, their mean and interval as a bar through them."""
    shift = np.linspace(-0.22, 0.22, len(values)) if len(values) > 1 else [0.0]
    ax.plot(values, y + np.asarray(shift), "o", color=colour, markersize=4.5, markeredgecolor="white", zorder=3)
    if len(values) > 1:
        _bar(ax, *triple, y, colour)


def _bar(ax, mean, low, high, at, colour, upright=False):
    if math.isnan(low):
        return
    error = dict(color=colour, linewidth=2, alpha=0.55, zorder=1)
    ends, across = ([low, high], [at, at]), ([mean, mean], [at / 1.12, at * 1.12] if upright else [at - 0.36, at + 0.36])
    for one, other in (ends, across):
        ax.plot(*((other, one) if upright else (one, other)), **error)


def _arms(ax, words):
    ax.set_yticks(range(len(words)), words)
    ax.set_ylim(len(words) - 0.4, -0.6)
    for axis in ax.figure.axes:
        axis.tick_params(axis="y", length=0)
        axis.grid(False, axis="y")
        axis.grid(True, axis="x")


def _log(ax, values):
    ax.set_xscale("log")
    low, high = values.min(), values.max()
    ax.set_xlim(low / 1.6, high * 1.6)
    ticks = [base * 10.0 ** power for power in range(-5, 3) for base in (1, 2, 5)]
    ticks = [tick for tick in ticks if low / 1.6 < tick < high * 1.6]
    ax.set_xticks(ticks[::max(1, math.ceil(len(ticks) / 3))])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
