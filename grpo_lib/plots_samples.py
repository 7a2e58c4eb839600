"""Figures of notebook 06: what many samples of the same sums show; plain data in, a matplotlib Figure out.

The finding is the title; the notebook passes it in, with numbers it has computed. Intervals are 95% intervals by problem. A model is
named by its source (warm, grpo, mixed, mixed grpo) and drawn in its role's colour, mixed starts dashed.
"""
import math

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from grpo_lib import draw

COLOURS = {"chat": draw.ROLES["chat"], "warm": draw.ROLES["warm"], "grpo": draw.ROLES["grpo"], "mixed": draw.ROLES["mixed"], "mixed grpo": draw.ROLES["mixed"]}
VERDICTS = {"right, every column right": draw.ROLES["grpo"], "right, padded": "#9CCBEA", "right, a wrong step or none": draw.LIGHT,     # blue: right; no model's colour for an error
            "wrong: reading": draw.CONTRAST, "wrong: sum": draw.MINUS, "wrong: carry, copying, missing": "#E8A07A", "wrong, no working": "#B9B9B9"}


@draw.figure
def pass_at_k(curves, differences, labels, title):
    """Left: pass@k with bands; right: GRPO minus its start, paired. curves: {source: (ks, [(share, low, high)])}; differences: {source after GRPO:
    (ks, [(difference, low, high)])}; labels: {source: words}."""
    fig, (left, right) = draw.new(title, 2, width_ratios=(1.25, 1))
    written = []
    for source, (ks, triples) in curves.items():
        style = "--" if source == "mixed" else "-"
        written.append((*draw.band(left, ks, triples, COLOURS[source], linestyle=style), labels[source], COLOURS[source]))
    draw.percent(left, 1.05)
    left.set(ylabel="problems solved in k tries")
    ends = []
    for source, (ks, triples) in differences.items():
        ends.append((*draw.band(right, ks, triples, COLOURS[source]), labels[source], COLOURS[source]))
    right.axhline(0, color=draw.INK, linewidth=1)
    right.set(ylabel="GRPO minus its start")
    right.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator([1, 4, 16, 64]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda k, _: f"{k:g}"))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set_xlabel("k, samples a problem (log)")
    draw.ends(left, written)
    if len(ends) > 1:
        draw.ends(right, ends)
    return fig


@draw.figure
def gained(before, after, n, pairs, title):
    """Left: right samples of n before and after, a dot a problem, problems that just one side solved in full colour; right: how many those are, beside the
    null. before, after (P,): counts; pairs: {words: (gained, lost)}, drawn from top to bottom, in grey the one that was not trained ("start again")."""
    fig, (left, right) = draw.new(title, 2, width_ratios=(1, 1.1))
    before, after = np.asarray(before), np.asarray(after)
    one = (before == 0) != (after == 0)
    left.plot(before[~one], after[~one], "o", color=draw.ROLES["chat"], alpha=0.35, markersize=3.5, markeredgewidth=0, clip_on=False)
    left.plot(before[one], after[one], "o", color=draw.ROLES["grpo"], markersize=4.5, markeredgewidth=0, clip_on=False, zorder=3)
    left.plot([0, n], [0, n], color=draw.INK, linewidth=1, linestyle="--")
    left.set(xlabel=f"right of {n}, start", ylabel=f"right of {n}, after GRPO", xlim=(-0.02 * n, n), ylim=(-0.02 * n, n))
    if never := int(((before == 0) & (after == 0)).sum()):
        draw.note(left, f"{never} never solved", 0, 0, 8, 9, ha="left", va="bottom")
    left.xaxis.set_major_locator(FixedLocator([0, n // 4, n // 2, 3 * n // 4, n]))
    left.yaxis.set_major_locator(FixedLocator([0, n // 4, n // 2, 3 * n // 4, n]))
    most = max(1, *(max(pair) for pair in pairs.values()))
    for y, (words, (up, down)) in enumerate(pairs.items()):
        for value, sign, trained in ((up, 1, draw.ROLES["grpo"]), (down, -1, draw.MINUS)):
            colour = draw.ROLES["chat"] if words == "start again" else trained
            right.barh(y, sign * value, 0.6, color=colour)
            draw.note(right, f"{value}", sign * value, y, 4 * sign, 0, colour, "left" if sign > 0 else "right", "center")
    right.axvline(0, color=draw.INK, linewidth=1)
    right.set(xlim=(-1.25 * most, 1.25 * most), ylim=(len(pairs) - 0.5, -0.5), xlabel="lost        problems        gained")
    right.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{abs(x):g}"))
    right.set_yticks(range(len(pairs)), list(pairs))
    right.tick_params(axis="y", length=0)
    right.grid(False, axis="y")
    return fig


@draw.figure
def length(splits, rates, title):
    """Left: growth of a reply since the start in tokens, whole and in parts, the mean over seeds, each seed's whole as a thin line; right: share right of
    worked and direct samples over steps, by seed. splits: {seed: rows of compare.length_split}; rates: {style: {seed: (steps, shares)}}, nan where the style does not occur."""
    fig, (left, right) = draw.new(title, 2)
    rows = list(splits.values())
    steps = [row["step"] for row in rows[0]]
    grown = lambda seed_rows: [row["length"] - seed_rows[0]["length"] for row in seed_rows]
    for seed_rows in rows:
        left.plot(steps, grown(seed_rows), color=draw.INK, linewidth=0.8, alpha=0.4)
    parts = {"whole": np.mean([grown(r) for r in rows], axis=0)} | {part: np.mean([[row[part] for row in r] for r in rows], axis=0) for part in ("style", "rest", "padding")}
    colours = {"whole": draw.INK, "style": draw.ROLES["grpo"], "rest": draw.ROLES["warm"], "padding": draw.CONTRAST}
    for part, values in parts.items():
        left.plot(steps, values, color=colours[part])
    left.set(xlabel="GRPO step", ylabel="tokens more than at the start", xlim=(0, steps[-1]))
    draw.ends(left, [(steps[-1], values[-1], part, colours[part]) for part, values in parts.items()])
    labels = []
    for (style, seeds), colour in zip(rates.items(), (draw.ROLES["grpo"], draw.ROLES["warm"])):
        for x, y in seeds.values():
            right.plot(x, y, color=colour, linewidth=1.1, alpha=0.75, marker="o", markersize=2.5)
        last = [[v for v in y if not math.isnan(v)][-1] for _, y in seeds.values()]
        labels.append((steps[-1], float(np.mean(last)), style, colour))
    right.set(xlabel="GRPO step (a line a seed)", ylabel="right of this style's samples", xlim=(0, steps[-1]))
    draw.percent(right, 1.05)
    draw.ends(right, labels)
    return fig


@draw.figure
def digits(columns, title):
    """How many columns greedy replies work, a panel a set of sums, a bar a model. columns: {words of the set: (digits, {source: {columns: share}}, {source: words})}."""
    fig, axes = draw.new(title, len(columns), sharey=True)
    for ax, (words, (wanted, found, labels)) in zip(axes, columns.items()):
        width = 0.8 / max(1, len(found))
        for i, (source, shares) in enumerate(found.items()):
            x = np.arange(6) + (i - (len(found) - 1) / 2) * width
            ax.bar(x, [shares.get(k, 0.0) for k in range(6)], width, color=COLOURS[source], alpha=0.5 if source == "mixed" else 1)
        ax.axvline(wanted, color=draw.INK, linestyle=":", linewidth=1.2, ymax=0.84)
        draw.note(ax, "needed", wanted, 1.05)
        ax.set(title=words, xlabel="columns worked", xlim=(-0.6, 5.6))
        ax.set_xticks(range(6))
        draw.percent(ax, 1.25)
        ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    axes[0].set_ylabel("share of greedy replies")
    for i, (source, label) in enumerate(next(iter(columns.values()))[2].items()):
        draw.note(axes[0], label, 0.5, 0.98 - 0.11 * i, colour=COLOURS[source], ha="left", va="top")
    return fig


@draw.figure
def audit(steps, shares, title):
    """What samples are made of over steps, stacked. shares: {kind of VERDICTS: [share per step]}; kinds that never reach 1% are drawn without a label."""
    fig, (ax,) = draw.new(title)
    kinds = [kind for kind in VERDICTS if kind in shares]
    ax.stackplot(steps, *(shares[kind] for kind in kinds), colors=[VERDICTS[kind] for kind in kinds], linewidth=0)
    top = np.cumsum([shares[kind][-1] for kind in kinds])
    labels = [(steps[-1], float(end - shares[kind][-1] / 2), kind, VERDICTS[kind]) for kind, end in zip(kinds, top) if max(shares[kind]) >= 0.01]
    ax.set(xlabel="GRPO step", ylabel="share of samples", xlim=(steps[0], steps[-1]))
    draw.percent(ax, 1)
    ax.set_ylim(0, 1)
    draw.ends(ax, labels)
    return fig
