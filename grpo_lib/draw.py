"""The look of the series and the parts that its figures share: bands, bars, labels at the ends of lines, and `show`.

Lines are labelled at their ends. Figures are never registered with pyplot, so none stays open; `show` saves and displays one.
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
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, PercentFormatter

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

def new(title, cols=1, rows=1, height=HEIGHT, **more):
    """A figure with the finding as its title and `cols` x `rows` axes. -> fig, axes (flat array)."""
    fig = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    fig.suptitle(textwrap.fill(title, 72), x=0.012, ha="left")
    return fig, fig.subplots(rows, cols, squeeze=False, **more).ravel()


def note(ax, text, x, y, dx=0, dy=3, colour=INK, ha="center", va="baseline", **more):
    """Text beside a point, in a darkened `colour`, shifted by (dx, dy) points."""
    dark = tuple(0.72 * part for part in to_rgb(colour))                # orange text would be too pale on white
    ax.annotate(text, (x, y), (dx, dy), textcoords="offset points", ha=ha, va=va, color=dark, fontsize=TICK,
                annotation_clip=False, **more)


def percent(ax, top):
    """The y axis as percent from 0 to `top`."""
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set_ylim(0, top)
    if top > 1:
        ax.yaxis.set_major_locator(FixedLocator(np.linspace(0, 1, 6)))


def band(ax, x, triples, colour, **line):
    """A line through (estimate, low, high) triples with its interval as a band. -> where it ends, (x, y)."""
    mid, low, high = np.array(triples, dtype=float).T
    ax.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    ax.plot(x, mid, color=colour, **line)
    return x[-1], mid[-1]


def ends(ax, labels):
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
        note(ax, text, x, y, 7, 0, colour, "left", "center")


def bars(ax, x, triples, colours, width=0.7, form="{:.0%}"):
    """Bars with intervals and their values above; "none" where a triple is None: nothing was there to measure."""
    for at, triple, colour in zip(x, triples, colours):
        mid, low, high = triple or (0.0, 0.0, 0.0)
        ax.bar(at, mid, width, color=colour)
        if triple:
            ax.errorbar(at, mid, [[mid - low], [high - mid]], color=INK, capsize=3, linewidth=1.1)
        note(ax, form.format(mid) if triple else "none", at, max(mid, high))


def names(ax, names):
    """Words instead of numbers at x = 0, 1, 2, ..."""
    ax.set_xticks(range(len(names)), names)
    ax.tick_params(axis="x", length=0)


def smooth(values, window=9):
    """Running mean over `window` neighbours (fewer at the ends), nan left out; nan where there is nothing else."""
    values, half = np.asarray(values, dtype=float), window // 2
    near = [values[max(0, i - half):i + half + 1] for i in range(len(values))]
    return np.array([np.nan if np.isnan(part).all() else np.nanmean(part) for part in near])


def points(ax, x, values, colour):
    """Single values as faint points."""
    ax.plot(x, values, ".", color=colour, alpha=0.3, markersize=3.5, markeredgewidth=0)
