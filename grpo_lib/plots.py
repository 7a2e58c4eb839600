"""Every figure of the series: one look, one function a figure; plain data in, a matplotlib Figure out.

The finding is the title; the notebook passes it in, with numbers it has computed. Rates are shares from 0 to 1 and come
as (estimate, low, high), a 95% interval, which is drawn. Lines are labelled at their ends. Figures are never registered
with pyplot, so none stays open; `show` saves and displays one.
"""
import base64
import io
import os
import sys
import textwrap
from functools import wraps
from pathlib import Path

import matplotlib.style
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from grpo_lib.analysis import bootstrap, gain_split, pass_at_k, wilson
from grpo_lib.config import ROOT

WIDTH, HEIGHT, DPI = 6.0, 3.2, 150                                      # inches, inches, dots per inch
ROLES = {"chat": "#7F7F7F", "warm": "#E69F00", "grpo": "#0072B2", "mixed": "#009E73"}   # Okabe and Ito's, and a grey
CONTRAST, MINUS, LIGHT, PALE, INK = "#CC79A7", "#D55E00", "#56B4E9", "#E4E4E4", "#333333"
STYLE = {"font.size": 9, "axes.titlesize": 9, "axes.labelsize": 9, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
         "figure.titlesize": 10, "figure.titleweight": "bold", "axes.spines.top": False, "axes.spines.right": False,
         "axes.grid": True, "axes.grid.axis": "y", "grid.color": PALE, "axes.axisbelow": True, "axes.edgecolor": INK,
         "lines.linewidth": 1.8, "lines.markersize": 4.5, "text.color": INK, "axes.labelcolor": INK}
TICK = STYLE["xtick.labelsize"]


def figure(draw):
    """Decorator: run `draw` in the series' style, whatever the caller's rcParams are."""
    @wraps(draw)
    def styled(*args, **kwargs):
        with matplotlib.style.context(["default", STYLE]):
            return draw(*args, **kwargs)
    return styled


@figure
def png(fig):
    """The figure as PNG bytes: the same bytes each time on the same matplotlib."""
    out = io.BytesIO()
    fig.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def show(fig, stem):
    """Save figures/<stem>.png (below $GRPO_RUNS where that is set), display it once in a notebook, close it. -> None.

    Only a picture is displayed, no text that nbval would compare: print the numbers a figure shows."""
    if not stem or Path(stem).name != stem:
        raise ValueError(f"stem is {stem!r}: give a plain file name such as '04_training_curve'")
    folder, data = Path(os.environ.get("GRPO_RUNS") or ROOT) / "figures", png(fig)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.png").write_bytes(data)
    if in_notebook():
        from IPython.display import display
        picture = base64.b64encode(data).decode("ascii")
        display({"image/png": picture}, metadata={"image/png": {"width": round(110 * WIDTH)}}, raw=True)
    plt.close(fig)


def in_notebook():
    """Whether IPython or a notebook's kernel is running this code."""
    return "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None


# ---- shared parts

def _new(title, cols=1, rows=1, height=HEIGHT, **more):
    fig = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    fig.suptitle(textwrap.fill(title, 72), x=0.012, ha="left")
    return fig, fig.subplots(rows, cols, squeeze=False, **more).ravel()


def _note(ax, text, x, y, dx=0, dy=3, colour=INK, ha="center", va="baseline", **more):
    dark = tuple(0.72 * part for part in to_rgb(colour))                # orange text would be too pale on white
    ax.annotate(text, (x, y), (dx, dy), textcoords="offset points", ha=ha, va=va, color=dark, fontsize=TICK,
                annotation_clip=False, **more)


def _percent(ax, top):
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set_ylim(0, top)
    if top > 1:
        ax.yaxis.set_major_locator(FixedLocator(np.linspace(0, 1, 6)))


def _band(ax, x, triples, colour, **line):
    mid, low, high = np.array(triples, dtype=float).T
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, mid, color=colour, **line)
    return x[-1], mid[-1]


def _ends(ax, labels):
    """Write (x, y, text, colour) beside the ends of lines, moved apart where they would overlap."""
    low, high = ax.get_ylim()
    labels = sorted(labels, key=lambda label: label[1])
    at, gap = [label[1] for label in labels], 0.08 * (high - low)
    for _ in range(200):
        for i in range(1, len(at)):
            push = max(0.0, gap - (at[i] - at[i - 1])) / 2
            at[i - 1], at[i] = at[i - 1] - push, at[i] + push
        at[0], at[-1] = max(at[0], low), min(at[-1], high)
    for y, (x, _, text, colour) in zip(at, labels):
        _note(ax, text, x, y, 7, 0, colour, "left", "center")


def _bars(ax, x, triples, colours, width=0.7, form="{:.0%}"):
    """Bars with intervals and their values above; "none" where a triple is None: nothing was there to measure."""
    for at, triple, colour in zip(x, triples, colours):
        mid, low, high = triple or (0.0, 0.0, 0.0)
        ax.bar(at, mid, width, color=colour)
        if triple:
            ax.errorbar(at, mid, [[mid - low], [high - mid]], color=INK, capsize=3, linewidth=1.1)
        _note(ax, form.format(mid) if triple else "none", at, max(mid, high))


def _names(ax, names):
    ax.set_xticks(range(len(names)), names)
    ax.tick_params(axis="x", length=0)


def smooth(values, window=9):
    """Running mean over `window` neighbours (fewer at the ends), nan left out; nan where there is nothing else."""
    values, half = np.asarray(values, dtype=float), window // 2
    near = [values[max(0, i - half):i + half + 1] for i in range(len(values))]
    return np.array([np.nan if np.isnan(part).all() else np.nanmean(part) for part in near])


def _points(ax, x, values, colour):
    ax.plot(x, values, ".", color=colour, alpha=0.3, markersize=3.5, markeredgewidth=0)


# ---- notebooks 01 and 02: checker and starting rates

@figure
def attack_table(df, title):
    """What each checker kind pays for each reply. df: replies as index, kinds as columns, values from 0 to 1."""
    paid = df.to_numpy(dtype=float)
    fig, (ax,) = _new(title, height=max(HEIGHT, 0.95 + 0.25 * len(df)))
    ax.imshow(paid > 0, cmap=ListedColormap(["#F0F0F0", LIGHT]), vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(paid):
        words = "0" if value == 0 else "pays" if value == 1 else f"pays {value:g}"
        ax.text(j, i, words, ha="center", va="center", fontsize=TICK, fontweight="bold" if value else "normal")
    ax.set_yticks(range(len(df)), [textwrap.shorten(str(name), 46, placeholder=" ...") for name in df.index])
    ax.set_xticks(range(df.shape[1]), df.columns)
    ax.set_yticks(np.arange(len(df) + 1) - 0.5, minor=True)
    ax.set_xticks(np.arange(df.shape[1] + 1) - 0.5, minor=True)
    ax.grid(False)
    ax.grid(True, which="minor", axis="both", color="white", linewidth=2)
    ax.tick_params(which="both", length=0, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
    return fig


@figure
def rates_bars(models, title, ylabel="share of replies paid"):
    """Pass rates side by side, a panel a checker kind. models: [(label, role or colour, {kind: (rate, low, high)})]."""
    kinds, colours = list(models[0][2]), [ROLES.get(role, role) for _, role, _ in models]
    fig, axes = _new(title, len(kinds), sharey=True)
    for ax, kind in zip(axes, kinds):
        _bars(ax, range(len(models)), [rates[kind] for *_, rates in models], colours, form="{:.1%}")
        _names(ax, [label for label, *_ in models])
        ax.set(title=kind, xlim=(-0.6, len(models) - 0.4))
    _percent(axes[0], max(0.01, 1.12 * max(high for *_, rates in models for _, _, high in rates.values())))
    axes[0].set_ylabel(f"{ylabel} (95% interval)")
    return fig


@figure
def silent_groups(counts, n, title, G=8, role="chat"):
    """How many of n samples solve each problem, and which groups of G teach. counts (P,): right samples a problem.

    Shares of groups are unbiased (drawn without replacement, so n >= G); their intervals resample problems."""
    wrong, right = ([1 - pass_at_k(n, c, G) for c in side] for side in (counts, [n - c for c in counts]))
    fig, (left, ax) = _new(title, 2, width_ratios=(1.15, 1))
    height = np.bincount(np.asarray(counts, dtype=int), minlength=n + 1)
    left.bar(range(n + 1), height, 0.85, color=ROLES[role])
    for k in (0, n):
        _note(left, f"{height[k]}", k, height[k])
    left.set(xlabel=f"right samples of {n}", ylabel=f"problems (of {len(counts)})", ylim=(0, 1.1 * height.max()))
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
    mixed = [1 - a - b for a, b in zip(wrong, right)]
    _bars(ax, range(3), [bootstrap(shares) for shares in (wrong, mixed, right)], [PALE, ROLES["grpo"], PALE])
    _names(ax, ["all wrong:\nsilent", "mixed:\nteaches", "all right:\nsilent"])
    ax.set_ylabel(f"share of groups of {G} (95% interval)")
    _percent(ax, 1.12)
    return fig


@figure
def lengths_hist(lengths, limit, title, role="chat"):
    """Reply lengths in tokens, with the median, the limit, and the share of replies that reach it."""
    lengths = np.asarray(lengths)
    fig, (ax,) = _new(title)
    ax.hist(lengths, np.linspace(0, limit, min(limit, 32) + 1), color=ROLES[role], edgecolor="white", linewidth=0.6)
    middle, top = float(np.median(lengths)), ax.get_ylim()[1]
    share, low, high = wilson(int((lengths >= limit).sum()), len(lengths))
    ax.set(xlabel="reply length (tokens)", ylabel=f"replies (of {len(lengths)})", xlim=(0, limit), ylim=(0, 1.18 * top))
    reach = f"limit {limit}: {share:.0%} reach it ({low:.0%} to {high:.0%})"
    for x, y, dash, text in ((middle, 1.11, "--", f"median {middle:.0f}"), (limit, 1.03, "-", reach)):
        ax.axvline(x, color=INK, linewidth=1.1, linestyle=dash, clip_on=False)
        late = x > 0.8 * limit
        _note(ax, text, x, y * top, -5 if late else 5, 0, ha="right" if late else "left", va="center")
    return fig


# ---- notebook 03: the warm start

@figure
def examples_curve(ns, rows, title):
    """Accuracy and silent groups against the number of warm-start examples (log2 axis).

    rows: one dict per n: "sampled" and "greedy" accuracy and "silent" share of groups, each (estimate, low, high)."""
    fig, (ax,) = _new(title)
    lines = {"silent": ("silent groups", INK, {"linestyle": ":", "marker": "s"}),
             "greedy": ("greedy accuracy", ROLES["warm"], {"linestyle": "--", "marker": "o", "mfc": "white"}),
             "sampled": ("sampled accuracy", ROLES["warm"], {"marker": "o"})}
    ends = [(words, colour, *_band(ax, ns, [row[key] for row in rows], colour, **line))
            for key, (words, colour, line) in lines.items()]
    ax.set_xscale("log", base=2)
    ax.xaxis.set_minor_locator(NullLocator())
    near = any(b < 1.4 * a for a, b in zip(ns, ns[1:]))              # labels of near neighbours would touch
    ax.set_xticks(ns, [f"{n:,}" for n in ns], rotation=45 if near or len(ns) > 7 else 0)
    ax.set(xlabel="warm-start examples (log2 scale)", ylabel="share (band: 95% interval)")
    _percent(ax, 1.02)
    _ends(ax, [(x, y, f"{words} {y:.0%}", colour) for words, colour, x, y in ends])
    return fig


@figure
def style_split(start, end, title):
    """Share and accuracy of each style at start and end, and the gain in two parts (see `analysis.gain_split`).

    start, end: {style: (replies, right)}, one reply per problem."""
    styles = [s for s in ("worked", "direct", "other") if start.get(s, (0,))[0] + end.get(s, (0,))[0]]
    fig, (share, acc, fall) = _new(title, 3, width_ratios=(1, 1, 1.25))
    for counts, words, role, shift in ((start, "start", "warm", -0.21), (end, "end", "grpo", 0.21)):
        got, x = [counts.get(s, (0, 0)) for s in styles], np.arange(len(styles)) + shift
        total = sum(n for n, _ in counts.values())
        _bars(share, x, [wilson(n, total) for n, _ in got], [ROLES[role]] * len(x), 0.38)
        _bars(acc, x, [wilson(right, n) if n else None for n, right in got], [ROLES[role]] * len(x), 0.38)
        share.text(shift, 0.02, words, ha="center", rotation=90, fontsize=TICK,
                   color="white" if words == "end" else INK)
    _waterfall(fall, start, end)
    for ax, words in ((share, "share of replies"), (acc, "accuracy in a style"), (fall, "accuracy of all replies")):
        _names(ax, styles if ax is not fall else ["start", "style\nmix", "within\nstyle", "end"])
        ax.set_title(words)
        ax.tick_params(axis="y", labelleft=ax is share)
        _percent(ax, 1.1)
    share.set_ylabel("share (95% interval)")
    return fig


def _waterfall(ax, start, end):
    totals = [[sum(part) for part in zip(*counts.values())] for counts in (start, end)]
    rates = [{s: right / n for s, (n, right) in counts.items() if n} for counts in (start, end)]
    shares = [{s: n / total for s, (n, _) in counts.items()} for counts, (total, _) in zip((start, end), totals)]
    split = gain_split(rates[0], shares[0], rates[1], shares[1])
    first, last = (wilson(right, n) for n, right in totals)
    _bars(ax, (0, 3), (first, last), (ROLES["warm"], ROLES["grpo"]))
    level = first[0]
    for x, part in enumerate((split["style"], split["column"], 0), 1):
        ax.plot([x - 1, x], [level, level], color=INK, linewidth=0.8, linestyle=":")
        if x < 3:
            ax.bar(x, part, 0.7, bottom=level, color=LIGHT)
            _note(ax, f"{part:+.0%}", x, level + max(0, part))
        level += part


# ---- notebook 04: GRPO

@figure
def advantages(r, adv, title):
    """One group: the reward of each reply and the advantage that it gets. r, adv: (G,)."""
    r, adv = np.asarray(r, dtype=float), np.asarray(adv, dtype=float)
    fig, axes = _new(title, 2)
    for ax, values, words in zip(axes, (r, adv), ("reward", "advantage")):
        ax.bar(np.arange(1, len(r) + 1), values, 0.75, color=[ROLES["grpo"] if v > 0 else MINUS for v in values])
        ax.axhline(0, color=INK, linewidth=0.8)
        ax.set(xlabel="reply in the group", ylabel=words, xlim=(0.4, len(r) + 0.6))
        ax.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes[0].axhline(r.mean(), color=INK, linestyle="--", linewidth=1)
    _note(axes[0], f"mean {r.mean():.3g}", len(r) + 0.5, r.mean(), ha="right",
          bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1})
    axes[0].set_ylim(min(0, 1.15 * r.min()), max(1.15, 1.15 * r.max()))
    reach = 1.05 * max(1.0, np.sqrt(len(r) - 1), np.abs(adv).max())      # what a lone right reply can get: one scale for all groups
    axes[1].set_ylim(-reach, reach)
    return fig


@figure
def loss_terms(title, eps=0.2):
    """The clipped objective against the ratio for A = +1 and -1; the KL estimate k3 and its gradient by the gap."""
    fig, (left, ax) = _new(title, 2)
    ratio, gap = np.linspace(0, 2, 401), np.linspace(-1.5, 1.5, 301)
    for A, colour, y in ((1, ROLES["grpo"], 0.9), (-1, MINUS, -1.1)):
        left.plot(ratio, ratio * A, color=colour, linewidth=1, linestyle=":")
        left.plot(ratio, np.minimum(ratio * A, np.clip(ratio, 1 - eps, 1 + eps) * A), color=colour)
        _note(left, f"A = {A:+d}", 0.35, y, 0, 0, colour, va="center")
    left.axvspan(1 - eps, 1 + eps, color=PALE, zorder=0)
    left.set(xlabel="ratio of new to old probability", ylabel="objective", xlim=(0, 2))
    left.set_title(f"clip (grey: 1 ± {eps:g}; dots: without)")
    for y, words, colour, dy in ((np.exp(gap) - gap - 1, "k3", ROLES["grpo"], 6),
                                 (1 - np.exp(gap), "its gradient", ROLES["mixed"], -8)):
        ax.plot(gap, y, color=colour)
        _note(ax, words, gap[200], y[200], -6, dy, colour, "right")
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.set(xlabel="log p(reference) - log p(policy)", ylabel="nats per token")
    ax.set_title("KL term (gradient: by log p(policy))")
    return fig


@figure
def pilots(rows, title):
    """Learning rates beside each other: accuracy after a pilot (its start in orange) and drift in nats per token.

    rows: [(lr, accuracy at the start, accuracy, low, high, kl)]."""
    fig, (left, ax) = _new(title, 2)
    _bars(left, range(len(rows)), [row[2:5] for row in rows], [ROLES["grpo"]] * len(rows), 0.6)
    for i, row in enumerate(rows):
        left.plot([i - 0.42, i + 0.42], [row[1]] * 2, color=ROLES["warm"], linewidth=2.5)
        ax.bar(i, row[5], 0.6, color=ROLES["grpo"])
        _note(ax, f"{row[5]:.3f}", i, row[5])
    _note(left, "start", len(rows) - 0.56, rows[-1][1], 3, 0, ROLES["warm"], "left", "center")
    left.set_ylabel("accuracy (95% interval)")
    _percent(left, min(1.12, 1.2 * max(max(row[1], row[4]) for row in rows)))
    ax.set(ylabel="KL from the start (nats per token)", ylim=(0, 1.12 * max(row[5] for row in rows) or 1))
    for axis in (left, ax):
        _names(axis, [f"{row[0]:.0e}".replace("e-0", "e-") for row in rows])
        axis.set_xlabel("learning rate")
    return fig


@figure
def training_curve(runs, title, contrast=(), ylabel="held-out accuracy"):
    """Accuracy over steps: each seed thin, their mean thick in the interval that one evaluation of n problems has.

    runs, contrast: [(label, steps, rates, n)]. The mean takes the steps that all runs have."""
    fig, (ax,) = _new(title)
    around = lambda rates, n: [(rate, *wilson(round(rate * n), n)[1:]) for rate in rates]
    n, curves, blue = min(run[3] for run in runs), [dict(zip(run[1], run[2])) for run in runs], ROLES["grpo"]
    common = sorted(set.intersection(*map(set, curves)))
    mean = [float(np.mean([curve[step] for curve in curves])) for step in common]
    ends = [("mean" if len(runs) > 1 else runs[0][0], blue, *_band(ax, common, around(mean, n), blue, linewidth=2.4))]
    for label, steps, rates, _ in runs if len(runs) > 1 else ():
        ax.plot(steps, rates, color=blue, linewidth=0.9, alpha=0.65)
        ends.append((label, blue, steps[-1], rates[-1]))
    for label, steps, rates, size in contrast:
        ends.append((label, CONTRAST, *_band(ax, steps, around(rates, size), CONTRAST, linestyle="--")))
    ax.set(xlabel=f"training step (band: 95% interval of one evaluation of {n} sums)", ylabel=ylabel)
    ax.set_xlim(0, max(x for _, _, x, _ in ends))
    _percent(ax, 1.0)
    _ends(ax, [(x, y, f"{label} {y:.0%}", colour) for label, colour, x, y in ends])
    return fig


PANELS = (("reward", "reward", "mean of a batch"), ("KL from the start", "kl", "nats per token"),
          ("reply length", "length", "tokens"), ("entropy", "entropy", "nats per token"),
          ("worked replies", "worked", "share"), ("silent groups", "silent", "share"))


@figure
def reward_panels(metrics, title, window=9):
    """Six curves of a run: every step a point, a running mean as line. metrics: the columns of metrics.csv."""
    silent = np.asarray(metrics["all_wrong"]) + np.asarray(metrics["all_right"])
    fig, axes = _new(title, 3, 2, height=4.2, sharex=True)
    for ax, (name, key, unit) in zip(axes, PANELS):
        values = silent if key == "silent" else np.asarray(metrics[key], dtype=float)
        _points(ax, metrics["step"], values, ROLES["grpo"])
        ax.plot(metrics["step"], smooth(values, window), color=ROLES["grpo"])
        ax.set(title=name, ylabel=unit)
        if key in ("reward", "worked", "silent"):
            ax.set_ylim(-0.03, 1.03)
        if np.isnan(values).all():
            ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)
    axes[4].set_xlabel(f"training step (line: running mean of {window})")
    return fig


@figure
def step_time(metrics, title, window=9):
    """Seconds of each step, sampling and training stacked, with their means. metrics: the columns of metrics.csv."""
    step, low, labels = np.asarray(metrics["step"]), 0.0, []
    parts = np.array([metrics["seconds_sample"], metrics["seconds_train"]], dtype=float)
    whole = parts.sum(0)
    fig, (ax,) = _new(title)
    for values, words, colour in zip(parts, ("sampling", "training"), (LIGHT, ROLES["grpo"])):
        line, mean = smooth(values, window), values.mean()
        ax.fill_between(step, low, low + line, color=colour, linewidth=0)
        low = low + line
        words = f"{words}\n{mean:.2f} s, {mean / whole.mean():.0%}"
        labels.append((step[-1], low[-1] - line[-1] / 2, words, colour))
    _points(ax, step, whole, INK)
    ax.set(xlabel=f"training step (areas: running mean of {window}; points: whole steps)", ylabel="seconds a step")
    ax.set_ylim(0, 1.05 * whole.max())
    ax.margins(x=0)
    _ends(ax, labels)
    return fig
