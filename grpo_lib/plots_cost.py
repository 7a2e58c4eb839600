"""Figures of notebook 07: what the models kept and lost; plain data in, a matplotlib Figure out.

The finding is the title; the notebook passes it in, with numbers it has computed. Intervals are 95% intervals; a model is named by its
source (chat, warm, grpo, mixed, mixed grpo) and drawn in its role's colour, the mixed start hollow. A source without data is left out.
"""
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from grpo_lib import draw

COLOURS = {"chat": draw.ROLES["chat"], "warm": draw.ROLES["warm"], "grpo": draw.ROLES["grpo"], "mixed": draw.ROLES["mixed"], "mixed grpo": draw.ROLES["mixed"]}
HOLLOW = {"mixed"}                                              # two models share the green: start hollow, GRPO filled


@draw.figure
def benchmarks(panels, labels, title):
    """Accuracy per model, a panel a task. panels: [(name, n, chance, blind, {source: (share, low, high)})], blind: what always taking the shortest
    answer gets; labels: {source: words}, in order, top to bottom."""
    fig, axes = draw.new(title, len(panels), sharey=True)
    for ax, (name, n, chance, blind, found) in zip(axes, panels):
        for y, source in enumerate(labels):
            if source in found:
                _across(ax, y, found[source], source)
        ax.axvline(chance, color=draw.INK, linestyle="--", linewidth=1)
        ax.axvline(blind, color=draw.CONTRAST, linestyle=":", linewidth=1.4)
        ends = [v for triple in found.values() for v in triple] + [chance, blind]
        room = max(0.02, 0.15 * (max(ends) - min(ends)))
        ax.set(title=f"{name}\n{n:,} questions", xlim=(min(ends) - room, max(ends) + room))
        _percent(ax)
    fig.supxlabel("picked right (dashed: chance; dotted: always the shortest answer)", fontsize=draw.STYLE["axes.labelsize"])
    _rows(axes, labels)
    return fig


@draw.figure
def chat_loss(rows, labels, guess, title):
    """Left: loss on held-out chats; right: share of replies to chat prompts that are sums. rows: {source: {"loss": triple, "sums": triple}}; guess: the
    loss of a model that gives every token the same chance."""
    fig, axes = draw.new(title, 2, sharey=True)
    for ax, key in zip(axes, ("loss", "sums")):
        for y, source in enumerate(labels):
            if source in rows:
                _across(ax, y, rows[source][key], source)
                draw.note(ax, (f"{rows[source][key][0]:.2f}" if key == "loss" else f"{rows[source][key][0]:.0%}"), rows[source][key][0], y, 0, 7, COLOURS[source])
    left, right = axes
    left.axvline(guess, color=draw.INK, linestyle="--", linewidth=1)
    left.set(xlim=(0, 1.05 * guess), xlabel="nats per token, held-out chats\n(dashed: every token equally likely)")
    right.set(xlim=(-0.08, 1.08), xlabel="chat prompts answered with a sum\n(by the reply's form)")
    _percent(right)
    right.set_xticks([0, 0.5, 1])
    _rows(axes, labels)
    return fig


@draw.figure
def plane(points, arrows, title, words=("held-out chat loss, nats per token (left: the better talker)", "sums right, sampled")):
    """Each model by what it kept and what it can do, an arrow a training. points: {source: ((x, low, high), (y, low, high), label)}; arrows: [(from, to)], drawn
    where both ends are known."""
    fig, (ax,) = draw.new(title)
    reach = max(x for (x, *_), _, _ in points.values())
    for before, after in arrows:
        if before in points and after in points:
            (x0, y0), (x1, y1) = (tuple(triple[0] for triple in points[source][:2]) for source in (before, after))
            ax.annotate("", (x1, y1), (x0, y0), arrowprops=dict(arrowstyle="->", color=COLOURS[after], linewidth=1.4, shrinkA=6, shrinkB=6))
    for source, ((x, x0, x1), (y, y0, y1), label) in points.items():
        ax.errorbar(x, y, [[y - y0], [y1 - y]], [[x - x0], [x1 - x]], color=COLOURS[source], linewidth=1.1, zorder=2)
        _dot(ax, x, y, source, 8)
        side = -1 if x > 0.3 * reach else 1                     # left of the arrows, inside the picture
        draw.note(ax, label, x, y, 14 * side, 4, COLOURS[source], "left" if side > 0 else "right", "bottom")
    top = max(high for _, (_, _, high), _ in points.values())
    ax.set(xlabel=words[0], ylabel=words[1], xlim=(0, 1.12 * reach))
    ax.grid(True, axis="both")
    draw.percent(ax, min(1.05, 1.3 * top + 0.05))
    ax.set_ylim(bottom=-0.05)                                   # a dot at 0 is a whole dot
    return fig


@draw.figure
def mixing(starts, courses, title):
    """Left: sampled accuracy of warm starts by how many sums they read; right: sampled accuracy over GRPO's steps, every seed.

    starts: {"warm" or "mixed": ([sums], [(share, low, high)])}; courses: {"grpo" or "mixed grpo": {seed: (steps, shares)}}."""
    fig, (left, right) = draw.new(title, 2)
    for source, (sums, triples) in starts.items():
        mid, low, high = np.array(triples, dtype=float).T
        left.errorbar(sums, mid, [mid - low, high - mid], color=COLOURS[source], linewidth=1.2, zorder=2)
        for x, y in zip(sums, mid):
            _dot(left, x, y, source, 5.5)
    left.set(xscale="log", xlabel="sums in the warm start (log)", ylabel="right of samples")
    every = [x for sums, _ in starts.values() for x in sums]
    left.set_xlim(min(every) / 1.4, max(every) * 1.6)
    left.set_xticks(shown := [x for x in (1000, 4000, 11000, 33000) if min(every) <= x <= max(every)], [f"{x:,}" for x in shown])
    left.minorticks_off()
    draw.percent(left, 1.25 * max(high for _, triples in starts.values() for *_, high in triples))
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    left.yaxis.set_major_locator(MaxNLocator(5))
    for source, (sums, triples) in starts.items():
        top = max(range(len(sums)), key=lambda i: triples[i][0])
        draw.note(left, {"warm": "sums only", "mixed": "with chats"}[source], sums[top], triples[top][2], 0, 4, COLOURS[source], "right" if source == "warm" else "center")
    labels = []
    for source, seeds in courses.items():
        for steps, shares in seeds.values():
            right.plot(steps, shares, color=COLOURS[source], linewidth=1.1, alpha=0.75)
        steps, shares = max(seeds.values(), key=lambda course: course[0][-1])
        labels.append((steps[-1], np.mean([course[1][-1] for course in seeds.values()]), {"grpo": "from sums", "mixed grpo": "from mixed"}[source], COLOURS[source]))
    last = max(x for x, *_ in labels)
    right.set(xlabel="GRPO step (a line a seed)", ylabel="right of samples", xlim=(0, last))
    draw.percent(right, 1.05)
    draw.ends(right, labels)
    return fig


# ---- shared parts

def _dot(ax, x, y, source, size=6):
    ax.plot([x], [y], "o", color=COLOURS[source], markersize=size, markeredgewidth=1.5, zorder=3, markerfacecolor="white" if source in HOLLOW else COLOURS[source])


def _across(ax, y, triple, source):
    mid, low, high = triple
    ax.plot([low, high], [y, y], color=COLOURS[source], linewidth=2, alpha=0.6, zorder=2)
    _dot(ax, mid, y, source)


def _percent(ax):
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.xaxis.set_major_locator(MaxNLocator(4))


def _rows(axes, labels):
    axes[0].set_yticks(range(len(labels)), list(labels.values()))
    axes[0].set_ylim(len(labels) - 0.4, -0.6)
    for ax in axes:
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
        ax.grid(True, axis="x")
