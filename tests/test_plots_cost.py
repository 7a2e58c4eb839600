"""Figures of notebook 07: drawn whole in the series' style, whichever models are recorded; what they draw is right."""

import pytest
from style import dots, keeps_the_style, made_in

from grpo_lib import draw, plots_cost

LABELS = {"chat": "chat model", "warm": "sums-only start", "grpo": "its GRPO", "mixed": "mixed start", "mixed grpo": "mixed GRPO"}
SHARES = {"chat": (0.28, 0.26, 0.30), "warm": (0.25, 0.23, 0.27), "grpo": (0.24, 0.22, 0.26), "mixed": (0.29, 0.27, 0.31), "mixed grpo": (0.27, 0.25, 0.29)}
PANELS = [("ARC-Easy", 2376, 0.25, 0.245, SHARES), ("PIQA", 1838, 0.5, 0.534, {s: tuple(v + 0.25 for v in t) for s, t in SHARES.items()})]
LOSS = {"chat": (2.9, 2.8, 3.0), "warm": (6.5, 6.4, 6.6), "grpo": (6.7, 6.6, 6.8), "mixed": (2.8, 2.7, 2.9), "mixed grpo": (3.0, 2.9, 3.1)}
CHAT = {s: {"loss": t, "sums": (1.0, 0.96, 1.0) if s in ("warm", "grpo") else (0.0, 0.0, 0.04)} for s, t in LOSS.items()}
RIGHT = {"chat": (0.0, 0.0, 0.01), "warm": (0.17, 0.15, 0.2), "grpo": (0.7, 0.66, 0.74), "mixed": (0.08, 0.07, 0.1), "mixed grpo": (0.4, 0.36, 0.44)}
POINTS = {s: (LOSS[s], RIGHT[s], LABELS[s]) for s in LABELS}
ARROWS = (("chat", "warm"), ("warm", "grpo"), ("chat", "mixed"), ("mixed", "mixed grpo"))
STARTS = {"warm": ([1000, 4000, 11000], [(0.0, 0.0, 0.0), (0.01, 0.0, 0.02), (0.17, 0.15, 0.2)]), "mixed": ([11000, 33000], [(0.01, 0.0, 0.02), (0.08, 0.07, 0.1)])}
COURSES = {"grpo": {1: ([0, 125, 250], [0.15, 0.5, 0.7]), 2: ([0, 125, 250], [0.17, 0.5, 0.66])}, "mixed grpo": {1: ([0, 250, 500], [0.08, 0.4, 0.5])}}

without = lambda found, source="mixed grpo": {s: v for s, v in found.items() if s != source}
DRAWN = {
    "benchmarks": lambda: plots_cost.benchmarks(PANELS, LABELS, "t"),
    "chat_loss": lambda: plots_cost.chat_loss(CHAT, LABELS, 7.62, "t"),
    "plane": lambda: plots_cost.plane(POINTS, ARROWS, "t"),
    "mixing": lambda: plots_cost.mixing(STARTS, COURSES, "t"),
}
FEWER = {
    "benchmarks": lambda: plots_cost.benchmarks([(*panel[:4], without(panel[4])) for panel in PANELS], without(LABELS), "t"),
    "chat_loss": lambda: plots_cost.chat_loss(without(CHAT), without(LABELS), 7.62, "t"),
    "plane": lambda: plots_cost.plane(without(POINTS), ARROWS, "t"),
    "mixing": lambda: plots_cost.mixing(STARTS, without(COURSES), "t"),
}
EVERY = [*DRAWN.items(), *((f"{name}, without the mixed GRPO", call) for name, call in FEWER.items())]


def test_every_figure_is_tested():
    assert made_in(plots_cost) == set(DRAWN) == set(FEWER)


@pytest.mark.parametrize("name, call", EVERY, ids=[name for name, _ in EVERY])
def test_each_figure_keeps_the_style(name, call):
    keeps_the_style(call)


def test_benchmarks_draw_intervals_chance_and_the_blind_rule():
    arc, piqa = DRAWN["benchmarks"]().axes
    assert dots(arc) == [(SHARES[s][0], y) for y, s in enumerate(LABELS)]
    spans = [list(line.get_xdata()) for line in arc.lines if line.get_marker() != "o" and line.get_linestyle() == "-"]
    assert spans == [list(SHARES[s][1:]) for s in LABELS]
    assert [line.get_xdata()[0] for line in piqa.lines if line.get_linestyle() in ("--", ":")] == [0.5, 0.534]
    assert [t.get_text() for t in arc.get_yticklabels()] == list(LABELS.values()) and arc.yaxis_inverted()


def test_a_model_that_was_not_recorded_has_no_dot_and_no_arrow():
    assert len(dots(FEWER["benchmarks"]().axes[0])) == 4 and len(dots(FEWER["chat_loss"]().axes[0])) == 4
    arrows = lambda fig: sum(text.arrow_patch is not None for text in fig.axes[0].texts)
    assert arrows(DRAWN["plane"]()) == 4 and arrows(FEWER["plane"]()) == 3
    assert len(dots(FEWER["plane"]().axes[0])) == 4


def test_the_plane_is_loss_against_sums_and_the_mixed_start_is_hollow():
    fig = DRAWN["plane"]()
    found = {(line.get_xdata()[0], line.get_ydata()[0]): line.get_markerfacecolor() for line in fig.axes[0].lines if line.get_marker() == "o"}
    assert set(found) == {(LOSS[s][0], RIGHT[s][0]) for s in LABELS}
    assert {point: colour for point, colour in found.items() if colour == "white"} == {(LOSS["mixed"][0], RIGHT["mixed"][0]): "white"}
    (start, end) = [(text.xyann, text.xy) for text in fig.axes[0].texts if text.arrow_patch is not None][1]
    assert start == (LOSS["warm"][0], RIGHT["warm"][0]) and end == (LOSS["grpo"][0], RIGHT["grpo"][0])


def test_mixing_draws_every_start_and_every_seed():
    left, right = DRAWN["mixing"]().axes
    assert sorted(dots(left)) == sorted((n, t[0]) for sums, triples in STARTS.values() for n, t in zip(sums, triples))
    assert [list(line.get_ydata()) for line in right.lines] == [[0.15, 0.5, 0.7], [0.17, 0.5, 0.66], [0.08, 0.4, 0.5]]
    assert right.get_xlim() == (0, 500) and left.get_xscale() == "log"
    assert FEWER["mixing"]().axes[1].get_xlim() == (0, 250)
