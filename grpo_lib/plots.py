"""Figures of notebooks 01 to 04: one function a figure; plain data in, a matplotlib Figure out (`draw` has the shared parts).

The finding is the title; the notebook passes it in, with numbers it has computed. Rates are shares from 0 to 1 and come
as (estimate, low, high), a 95% interval, which is drawn.
"""
import textwrap

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.ticker import MaxNLocator, NullLocator

from grpo_lib import draw
from grpo_lib.analysis import bootstrap, gain_split, pass_at_k, wilson


# ---- notebooks 01 and 02: checker and starting rates

@draw.figure
def attack_table(df, title):
    """What each checker kind pays for each reply. df: replies as index, kinds as columns, values from 0 to 1."""
    paid = df.to_numpy(dtype=float)
    fig, (ax,) = draw.new(title, height=max(draw.HEIGHT, 0.95 + 0.25 * len(df)))
    ax.imshow(paid > 0, cmap=ListedColormap(["#F0F0F0", draw.LIGHT]), vmin=0, vmax=1, aspect="auto")
    for (i, j), value in np.ndenumerate(paid):
        words = "0" if value == 0 else "pays" if value == 1 else f"pays {value:g}"
        ax.text(j, i, words, ha="center", va="center", fontsize=draw.TICK, fontweight="bold" if value else "normal")
    ax.set_yticks(range(len(df)), [textwrap.shorten(str(name), 46, placeholder=" ...") for name in df.index])
    ax.set_xticks(range(df.shape[1]), df.columns)
    ax.set_yticks(np.arange(len(df) + 1) - 0.5, minor=True)
    ax.set_xticks(np.arange(df.shape[1] + 1) - 0.5, minor=True)
    ax.grid(False)
    ax.grid(True, which="minor", axis="both", color="white", linewidth=2)
    ax.tick_params(which="both", length=0, labeltop=True, labelbottom=False)
    ax.spines[:].set_visible(False)
    return fig


@draw.figure
def rates_bars(models, title, ylabel="share of replies paid"):
    """Pass rates side by side, a panel a checker kind. models: [(label, role or colour, {kind: (rate, low, high)})]."""
    kinds, colours = list(models[0][2]), [draw.ROLES.get(role, role) for _, role, _ in models]
    fig, axes = draw.new(title, len(kinds), sharey=True)
    for ax, kind in zip(axes, kinds):
        draw.bars(ax, range(len(models)), [rates[kind] for *_, rates in models], colours, form="{:.1%}")
        draw.names(ax, [label for label, *_ in models])
        ax.set(title=kind, xlim=(-0.6, len(models) - 0.4))
    draw.percent(axes[0], max(0.01, 1.12 * max(high for *_, rates in models for _, _, high in rates.values())))
    axes[0].set_ylabel(f"{ylabel} (95% interval)")
    return fig


@draw.figure
def silent_groups(counts, n, title, G=8, role="chat"):
    """How many of n samples solve each problem, and which groups of G teach. counts (P,): right samples a problem.

    Shares of groups are unbiased (drawn without replacement, so n >= G); their intervals resample problems."""
    wrong, right = ([1 - pass_at_k(n, c, G) for c in side] for side in (counts, [n - c for c in counts]))
    fig, (left, ax) = draw.new(title, 2, width_ratios=(1.15, 1))
    height = np.bincount(np.asarray(counts, dtype=int), minlength=n + 1)
    left.bar(range(n + 1), height, 0.85, color=draw.ROLES[role])
    for k in (0, n):
        draw.note(left, f"{height[k]}", k, height[k])
    left.set(xlabel=f"right samples of {n}", ylabel=f"problems (of {len(counts)})", ylim=(0, 1.1 * height.max()))
    for axis in (left.xaxis, left.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
    mixed = [1 - a - b for a, b in zip(wrong, right)]
    draw.bars(ax, range(3), [bootstrap(shares) for shares in (wrong, mixed, right)], [draw.PALE, draw.ROLES["grpo"], draw.PALE])
    draw.names(ax, ["all wrong:\nsilent", "mixed:\nteaches", "all right:\nsilent"])
    ax.set_ylabel(f"share of groups of {G} (95% interval)")
    draw.percent(ax, 1.12)
    return fig


@draw.figure
def lengths_hist(lengths, limit, title, role="chat"):
    """Reply lengths in tokens, with the median, the limit, and the share of replies that reach it."""
    lengths = np.asarray(lengths)
    fig, (ax,) = draw.new(title)
    ax.hist(lengths, np.linspace(0, limit, min(limit, 32) + 1), color=draw.ROLES[role], edgecolor="white", linewidth=0.6)
    middle, top = float(np.median(lengths)), ax.get_ylim()[1]
    share, low, high = wilson(int((lengths >= limit).sum()), len(lengths))
    ax.set(xlabel="reply length (tokens)", ylabel=f"replies (of {len(lengths)})", xlim=(0, limit), ylim=(0, 1.18 * top))
    reach = f"limit {limit}: {share:.0%} reach it ({low:.0%} to {high:.0%})"
    for x, y, dash, text in ((middle, 1.11, "--", f"median {middle:.0f}"), (limit, 1.03, "-", reach)):
        ax.axvline(x, color=draw.INK, linewidth=1.1, linestyle=dash, clip_on=False)
        late = x > 0.8 * limit
        draw.note(ax, text, x, y * top, -5 if late else 5, 0, ha="right" if late else "left", va="center")
    return fig


# ---- notebook 03: the warm start

@draw.figure
def examples_curve(ns, rows, title):
    """Accuracy and silent groups against the number of warm-start examples (log2 axis).

    rows: one dict per n: "sampled" and "greedy" accuracy and "silent" share of groups, each (estimate, low, high)."""
    fig, (ax,) = draw.new(title)
    lines = {"silent": ("silent groups", draw.INK, {"linestyle": ":", "marker": "s"}),
             "greedy": ("greedy accuracy", draw.ROLES["warm"], {"linestyle": "--", "marker": "o", "mfc": "white"}),
             "sampled": ("sampled accuracy", draw.ROLES["warm"], {"marker": "o"})}
    ends = [(words, colour, *draw.band(ax, ns, [row[key] for row in rows], colour, **line))
            for key, (words, colour, line) in lines.items()]
    ax.set_xscale("log", base=2)
    ax.xaxis.set_minor_locator(NullLocator())
    near = any(b < 1.4 * a for a, b in zip(ns, ns[1:]))              # labels of near neighbours would touch
    ax.set_xticks(ns, [f"{n:,}" for n in ns], rotation=45 if near or len(ns) > 7 else 0)
    ax.set(xlabel="warm-start examples (log2 scale)", ylabel="share (band: 95% interval)")
    draw.percent(ax, 1.02)
    draw.ends(ax, [(x, y, f"{words} {y:.0%}", colour) for words, colour, x, y in ends])
    return fig


@draw.figure
def style_split(start, end, title):
    """Share and accuracy of each style at start and end, and the gain in two parts (see `analysis.gain_split`).

    start, end: {style: (replies, right)}, one reply per problem."""
    styles = [s for s in ("worked", "direct", "other") if start.get(s, (0,))[0] + end.get(s, (0,))[0]]
    fig, (share, acc, fall) = draw.new(title, 3, width_ratios=(1, 1, 1.25))
    for counts, words, role, shift in ((start, "start", "warm", -0.21), (end, "end", "grpo", 0.21)):
        got, x = [counts.get(s, (0, 0)) for s in styles], np.arange(len(styles)) + shift
        total = sum(n for n, _ in counts.values())
        draw.bars(share, x, [wilson(n, total) for n, _ in got], [draw.ROLES[role]] * len(x), 0.38)
        draw.bars(acc, x, [wilson(right, n) if n else None for n, right in got], [draw.ROLES[role]] * len(x), 0.38)
        share.text(shift, 0.02, words, ha="center", rotation=90, fontsize=draw.TICK,
                   color="white" if words == "end" else draw.INK)
    _waterfall(fall, start, end)
    for ax, words in ((share, "share of replies"), (acc, "accuracy in a style"), (fall, "accuracy of all replies")):
        draw.names(ax, styles if ax is not fall else ["start", "style\nmix", "within\nstyle", "end"])
        ax.set_title(words)
        ax.tick_params(axis="y", labelleft=ax is share)
        draw.percent(ax, 1.1)
    share.set_ylabel("share (95% interval)")
    return fig


def _waterfall(ax, start, end):
    totals = [[sum(part) for part in zip(*counts.values())] for counts in (start, end)]
    rates = [{s: right / n for s, (n, right) in counts.items() if n} for counts in (start, end)]
    shares = [{s: n / total for s, (n, _) in counts.items()} for counts, (total, _) in zip((start, end), totals)]
    split = gain_split(rates[0], shares[0], rates[1], shares[1])
    first, last = (wilson(right, n) for n, right in totals)
    draw.bars(ax, (0, 3), (first, last), (draw.ROLES["warm"], draw.ROLES["grpo"]))
    level = first[0]
    for x, part in enumerate((split["style"], split["column"], 0), 1):
        ax.plot([x - 1, x], [level, level], color=draw.INK, linewidth=0.8, linestyle=":")
        if x < 3:
            ax.bar(x, part, 0.7, bottom=level, color=draw.LIGHT)
            draw.note(ax, f"{part:+.0%}", x, level + max(0, part))
        level += part


# ---- notebook 04: GRPO

@draw.figure
def advantages(r, adv, title):
    """One group: the reward of each reply and the advantage that it gets. r, adv: (G,)."""
    r, adv = np.asarray(r, dtype=float), np.asarray(adv, dtype=float)
    fig, axes = draw.new(title, 2)
    for ax, values, words in zip(axes, (r, adv), ("reward", "advantage")):
        ax.bar(np.arange(1, len(r) + 1), values, 0.75, color=[draw.ROLES["grpo"] if v > 0 else draw.MINUS for v in values])
        ax.axhline(0, color=draw.INK, linewidth=0.8)
        ax.set(xlabel="reply in the group", ylabel=words, xlim=(0.4, len(r) + 0.6))
        ax.xaxis.set_major_locator(MaxNLocator(9, integer=True))
    axes[0].axhline(r.mean(), color=draw.INK, linestyle="--", linewidth=1)
    draw.note(axes[0], f"mean {r.mean():.3g}", len(r) + 0.5, r.mean(), ha="right",
          bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1})
    axes[0].set_ylim(min(0, 1.15 * r.min()), max(1.15, 1.15 * r.max()))
    reach = 1.05 * max(1.0, np.sqrt(len(r) - 1), np.abs(adv).max())      # what a lone right reply can get: one scale for all groups
    axes[1].set_ylim(-reach, reach)
    return fig


@draw.figure
def loss_terms(title, eps=0.2):
    """The clipped objective against the ratio for A = +1 and -1; the KL estimate k3 and its gradient by the gap."""
    fig, (left, ax) = draw.new(title, 2)
    ratio, gap = np.linspace(0, 2, 401), np.linspace(-1.5, 1.5, 301)
    for A, colour, y in ((1, draw.ROLES["grpo"], 0.9), (-1, draw.MINUS, -1.1)):
        left.plot(ratio, ratio * A, color=colour, linewidth=1, linestyle=":")
        left.plot(ratio, np.minimum(ratio * A, np.clip(ratio, 1 - eps, 1 + eps) * A), color=colour)
        draw.note(left, f"A = {A:+d}", 0.35, y, 0, 0, colour, va="center")
    left.axvspan(1 - eps, 1 + eps, color=draw.PALE, zorder=0)
    left.set(xlabel="ratio of new to old probability", ylabel="objective", xlim=(0, 2))
    left.set_title(f"clip (grey: 1 ± {eps:g}; dots: without)")
    for y, words, colour, dy in ((np.exp(gap) - gap - 1, "k3", draw.ROLES["grpo"], 6),
                                 (1 - np.exp(gap), "its gradient", draw.ROLES["mixed"], -8)):
        ax.plot(gap, y, color=colour)
        draw.note(ax, words, gap[200], y[200], -6, dy, colour, "right")
    ax.axhline(0, color=draw.INK, linewidth=0.8)
    ax.set(xlabel="log p(reference) - log p(policy)", ylabel="nats per token")
    ax.set_title("KL term (gradient: by log p(policy))")
    return fig


@draw.figure
def pilots(rows, title):
    """Learning rates beside each other: accuracy after a pilot (its start in orange) and drift in nats per token.

    rows: [(lr, accuracy at the start, accuracy, low, high, kl)]."""
    fig, (left, ax) = draw.new(title, 2)
    draw.bars(left, range(len(rows)), [row[2:5] for row in rows], [draw.ROLES["grpo"]] * len(rows), 0.6)
    for i, row in enumerate(rows):
        left.plot([i - 0.42, i + 0.42], [row[1]] * 2, color=draw.ROLES["warm"], linewidth=2.5)
        ax.bar(i, row[5], 0.6, color=draw.ROLES["grpo"])
        draw.note(ax, f"{row[5]:.3f}", i, row[5])
    draw.note(left, "start", len(rows) - 0.56, rows[-1][1], 3, 0, draw.ROLES["warm"], "left", "center")
    left.set_ylabel("accuracy (95% interval)")
    draw.percent(left, min(1.12, 1.2 * max(max(row[1], row[4]) for row in rows)))
    ax.set(ylabel="KL from the start (nats per token)", ylim=(0, 1.12 * max(row[5] for row in rows) or 1))
    for axis in (left, ax):
        draw.names(axis, [f"{row[0]:.0e}".replace("e-0", "e-") for row in rows])
        axis.set_xlabel("learning rate")
    return fig


@draw.figure
def training_curve(runs, title, contrast=(), ylabel="held-out accuracy"):
    """Accuracy over steps: each seed thin, their mean thick in the interval that one evaluation of n problems has.

    runs, contrast: [(label, steps, rates, n)]. The mean takes the steps that all runs have."""
    fig, (ax,) = draw.new(title)
    around = lambda rates, n: [(rate, *wilson(round(rate * n), n)[1:]) for rate in rates]
    n, curves, blue = min(run[3] for run in runs), [dict(zip(run[1], run[2])) for run in runs], draw.ROLES["grpo"]
    common = sorted(set.intersection(*map(set, curves)))
    mean = [float(np.mean([curve[step] for curve in curves])) for step in common]
    ends = [("mean" if len(runs) > 1 else runs[0][0], blue, *draw.band(ax, common, around(mean, n), blue, linewidth=2.4))]
    for label, steps, rates, _ in runs if len(runs) > 1 else ():
        ax.plot(steps, rates, color=blue, linewidth=0.9, alpha=0.65)
        ends.append((label, blue, steps[-1], rates[-1]))
    for label, steps, rates, size in contrast:
        ends.append((label, draw.CONTRAST, *draw.band(ax, steps, around(rates, size), draw.CONTRAST, linestyle="--")))
    ax.set(xlabel=f"training step (band: 95% interval of one evaluation of {n} sums)", ylabel=ylabel)
    ax.set_xlim(0, max(x for _, _, x, _ in ends))
    draw.percent(ax, 1.0)
    draw.ends(ax, [(x, y, f"{label} {y:.0%}", colour) for label, colour, x, y in ends])
    return fig


PANELS = (("reward", "reward", "mean of a batch"), ("KL from the start", "kl", "nats per token"),
          ("reply length", "length", "tokens"), ("entropy", "entropy", "nats per token"),
          ("worked replies", "worked", "share"), ("silent groups", "silent", "share"))


@draw.figure
def reward_panels(metrics, title, window=9):
    """Six curves of a run: every step a point, a running mean as line. metrics: the columns of metrics.csv."""
    silent = np.asarray(metrics["all_wrong"]) + np.asarray(metrics["all_right"])
    fig, axes = draw.new(title, 3, 2, height=4.2, sharex=True)
    for ax, (name, key, unit) in zip(axes, PANELS):
        values = silent if key == "silent" else np.asarray(metrics[key], dtype=float)
        draw.points(ax, metrics["step"], values, draw.ROLES["grpo"])
        ax.plot(metrics["step"], draw.smooth(values, window), color=draw.ROLES["grpo"])
        ax.set(title=name, ylabel=unit)
        if key in ("reward", "worked", "silent"):
            ax.set_ylim(-0.03, 1.03)
        if np.isnan(values).all():
            ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes)
    axes[4].set_xlabel(f"training step (line: running mean of {window})")
    return fig


@draw.figure
def step_time(metrics, title, window=9):
    """Seconds of each step, sampling and training stacked, with their means. metrics: the columns of metrics.csv."""
    step, low, labels = np.asarray(metrics["step"]), 0.0, []
    parts = np.array([metrics["seconds_sample"], metrics["seconds_train"]], dtype=float)
    whole = parts.sum(0)
    fig, (ax,) = draw.new(title)
    for values, words, colour in zip(parts, ("sampling", "training"), (draw.LIGHT, draw.ROLES["grpo"])):
        line, mean = draw.smooth(values, window), values.mean()
        ax.fill_between(step, low, low + line, color=colour, linewidth=0)
        low = low + line
        words = f"{words}\n{mean:.2f} s, {mean / whole.mean():.0%}"
        labels.append((step[-1], low[-1] - line[-1] / 2, words, colour))
    draw.points(ax, step, whole, draw.INK)
    ax.set(xlabel=f"training step (areas: running mean of {window}; points: whole steps)", ylabel="seconds a step")
    ax.set_ylim(0, 1.05 * whole.max())
    ax.margins(x=0)
    draw.ends(ax, labels)
    return fig
