"""Figures of notebook 05: drawn whole in the series' style, whatever seeds there are; what they draw is right."""
import math
import warnings

import matplotlib
import numpy as np
import pytest
from style import dots, keeps_the_style, made_in

from grpo_lib import draw, plots_arms
from grpo_lib.compare import seed_table, t_interval

LABELS = {"main": "main", "nokl": "no KL", "one": "one seed", "random": "coin pays"}
ARMS = {"main": {1: 0.48, 2: 0.50, 3: 0.46}, "nokl": {1: 0.50, 2: 0.49, 3: 0.47}, "one": {1: 0.55}, "random": {1: 0.1, 2: 0.15, 3: 0.05}}
NAN = (0.5, math.nan, math.nan)
LOGS = {"main": ([0.03, 0.05, 0.02], (0.03, 0.01, 0.09)), "one": ([0.2], (0.2, math.nan, math.nan))}
SHARES = {"main": ([0.0, 0.0, 0.0], (0.0, 0.0, 0.0)), "random": ([0.005, 0.008], (0.0065, 0.0, 0.02))}
CURVES = {"main": {1: ([0, 25, 50], [0.02, 0.01, 0.0]), 2: ([0, 25, 50], [0.01, 0.01, 0.02])}, "contains": {1: ([0, 25], [0.02, 0.03])}}
TEACH = {G: {"share": s, "low": s - 0.03, "high": s + 0.03, "naive": s + 0.1} for G, s in ((2, 0.25), (4, 0.45), (8, 0.64))}


def arms(values=ARMS, reach=0.16):
    return plots_arms.seeds_by_arm(seed_table(values), LABELS, "t", 0.16, "right of samples", reach)


DRAWN = {
    "seeds_by_arm": arms,
    "side_effects": lambda: plots_arms.side_effects([("drift", "nats", "log", LOGS), ("clipped", "share", "share", SHARES)], LABELS, "t"),
    "gaming": lambda: plots_arms.gaming([("gap", "share", True, CURVES, (0.026, 0.04)), ("numbers", "n", False, CURVES, (6.9, 7.1))], "t"),
    "groups": lambda: plots_arms.groups(TEACH, {8: [0.6, 0.7]}, {8: ([0.48, 0.5], (0.49, 0.4, 0.58)), 2: ([0.5], NAN)}, "t"),
}


def texts(fig):
    return [t.get_text() for t in fig.findobj(matplotlib.text.Text) if t.get_text()]


def test_every_figure_is_tested():
    assert made_in(plots_arms) == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_each_figure_keeps_the_style(name):
    keeps_the_style(DRAWN[name])


def test_every_seed_is_a_dot_and_differences_are_paired():
    left, right = arms().axes
    assert sorted(x for x, _ in dots(left)) == pytest.approx(sorted(v for by_seed in ARMS.values() for v in by_seed.values()))
    by_row = {row: [x for x, y in dots(right) if abs(y - row) < 0.4] for row in range(4)}
    assert by_row[0] == [] and by_row[1] == pytest.approx([0.02, -0.01, 0.01]) and by_row[2] == pytest.approx([0.07]), by_row
    assert by_row[3] == [] and any("-38%" in text for text in texts(arms())), "an arm beyond reach is written at the edge"
    assert len(dots(arms(reach=0.5).axes[1])) == 7, "with more reach it is drawn"


def test_intervals_and_floors_are_the_tables():
    rows = {row["arm"]: row for row in seed_table(ARMS)}
    left, right = arms().axes
    spans = [line.get_xdata() for line in left.lines if line.get_marker() != "o" and len(line.get_xdata()) == 2]
    for arm in ("main", "nokl", "random"):
        wanted = t_interval(list(ARMS[arm].values()))[1:]
        assert any(np.allclose(span, wanted) for span in spans), f"{arm}: no bar from {wanted[0]:.3f} to {wanted[1]:.3f}"
    widths = [patch.get_width() / 2 for patch in right.patches]
    assert widths == pytest.approx([rows["nokl"]["noise_floor"], 0.0, rows["random"]["noise_floor"]]), "no floor for a single seed"


def test_one_seed_in_every_arm_is_drawn_without_an_interval():
    single = {arm: {1: by_seed[1]} for arm, by_seed in ARMS.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        left, right = arms(single).axes
    assert len(dots(left)) == 4 and len(dots(right)) == 2
    assert not [line for line in left.lines if line.get_marker() != "o" and line.get_linestyle() == "-"], "a bar without an interval"
    assert len(dots(arms({"main": ARMS["main"]}).axes[0])) == 3, "main alone"


def test_an_arm_that_was_not_recorded_leaves_its_row_empty():
    drift, clipped = DRAWN["side_effects"]().axes
    assert {round(y) for _, y in dots(drift)} == {0, 2} and {round(y) for _, y in dots(clipped)} == {0, 3}
    assert [t.get_text() for t in drift.get_yticklabels()] == list(LABELS.values())
    assert drift.get_xscale() == "log" and clipped.get_xscale() == "linear"


def test_the_mean_of_two_seeds_is_thick_and_one_arm_is_enough():
    gap = DRAWN["gaming"]().axes[0]
    (mean,) = [line for line in gap.lines if line.get_linewidth() > 2 and len(line.get_xdata()) == 3]
    assert mean.get_ydata() == pytest.approx([0.015, 0.01, 0.01])
    alone = {"main": CURVES["main"]}
    assert "main" in texts(plots_arms.gaming([("gap", "share", True, alone, (0.026, 0.04))], "t"))


def test_groups_shows_expectation_and_records():
    left, right = DRAWN["groups"]().axes
    assert left.get_xscale() == right.get_xscale() == "log"
    assert [y for _, y in dots(left)] == [0.6, 0.7] and sorted(y for _, y in dots(right)) == [0.48, 0.5, 0.5]
    lines = [list(line.get_ydata()) for line in left.lines if line.get_marker() != "o"]
    assert [0.25, 0.45, 0.64] in lines and pytest.approx([0.35, 0.55, 0.74]) in lines
