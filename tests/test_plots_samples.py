"""Figures of notebook 06: drawn whole in the series' style, whichever models are recorded; what they draw is right."""
import math

import numpy as np
import pytest
from style import keeps_the_style, made_in

from grpo_lib import draw, plots_samples

WORDS = {"warm": "start", "grpo": "after GRPO", "mixed": "mixed start", "mixed grpo": "mixed, after"}
KS = (1, 4, 16, 64)
around = lambda values: [(v, v - 0.03, v + 0.03) for v in values]
CURVES = {"warm": (KS, around([0.18, 0.47, 0.78, 0.93])), "grpo": (KS, around([0.7, 0.9, 0.95, 0.96])), "mixed": (KS, around([0.09, 0.27, 0.58, 0.83])), "mixed grpo": (KS, around([0.4, 0.6, 0.8, 0.9]))}
APART = {"grpo": (KS, around([0.52, 0.43, 0.17, 0.03])), "mixed grpo": (KS, around([0.31, 0.33, 0.22, 0.07]))}
BEFORE, AFTER = [0, 0, 3, 20, 64, 5], [10, 0, 40, 60, 64, 0]
PAIRS = {"start again": (7, 6), "GRPO": (12, 0), "mixed GRPO": (20, 3)}
SPLITS = {seed: [{"step": step, "length": 28 + grown + seed, "style": 0.9 * grown, "rest": 0.1 * grown, "padding": 0.0} for step, grown in ((0, 0.0), (25, 14.0), (250, 15.0))] for seed in (1, 2)}
RATES = {"worked": {1: ([0, 25, 250], [0.3, 0.4, 0.7]), 2: ([0, 25, 250], [0.33, 0.41, 0.72])}, "direct": {1: ([0, 25, 250], [0.03, 0.0, math.nan]), 2: ([0, 25, 250], [0.05, math.nan, 0.0])}}
COLUMNS = {f"{d} digits": (d, {"warm": {0: 0.7, 3: 0.3}, "grpo": {3: 0.97, 4: 0.03}}, {"warm": "start", "grpo": "after GRPO"}) for d in (4, 5)}
STEPS, SHARES = [0, 100, 250], {"right, every column right": [0.1, 0.5, 0.7], "right, padded": [0.0, 0.001, 0.0], "wrong: sum": [0.3, 0.3, 0.2], "wrong, no working": [0.6, 0.199, 0.1]}

DRAWN = {
    "pass_at_k": lambda: plots_samples.pass_at_k(CURVES, APART, WORDS, "t"),
    "gained": lambda: plots_samples.gained(BEFORE, AFTER, 64, PAIRS, "t"),
    "length": lambda: plots_samples.length(SPLITS, RATES, "t"),
    "digits": lambda: plots_samples.digits(COLUMNS, "t"),
    "audit": lambda: plots_samples.audit(STEPS, SHARES, "t"),
}
one = lambda found, key: {key: found[key]}
FEWER = {
    "pass_at_k": lambda: plots_samples.pass_at_k({s: CURVES[s] for s in ("warm", "grpo")}, one(APART, "grpo"), WORDS, "t"),
    "gained": lambda: plots_samples.gained([1, 2], [1, 2], 64, {"GRPO": (0, 0)}, "t"),
    "length": lambda: plots_samples.length(one(SPLITS, 1), {style: one(RATES[style], 1) for style in RATES}, "t"),
    "digits": lambda: plots_samples.digits({"4 digits": (4, one(COLUMNS["4 digits"][1], "grpo"), {"grpo": "after GRPO"})}, "t"),
    "audit": lambda: plots_samples.audit(STEPS, {"right, every column right": [0.2, 0.5, 0.7], "wrong: sum": [0.8, 0.5, 0.3]}, "t"),
}
EVERY = [*DRAWN.items(), *((f"{name}, fewer records", call) for name, call in FEWER.items())]


def test_every_figure_is_tested():
    assert made_in(plots_samples) == set(DRAWN) == set(FEWER)


@pytest.mark.parametrize("name, call", EVERY, ids=[name for name, _ in EVERY])
def test_each_figure_keeps_the_style(name, call):
    keeps_the_style(call)


def test_pass_at_k_draws_each_curve_and_each_difference():
    left, right = DRAWN["pass_at_k"]().axes
    assert [list(line.get_ydata()) for line in left.lines] == [[mid for mid, _, _ in triples] for _, triples in CURVES.values()]
    assert [list(line.get_ydata()) for line in right.lines][:2] == [[mid for mid, _, _ in triples] for _, triples in APART.values()]
    assert len(left.collections) == 4 and len(right.collections) == 2, "a band for each"
    assert [line.get_linestyle() for line in left.lines] == ["-", "-", "--", "-"], "the mixed start is dashed"


def test_gained_marks_the_problems_that_one_side_alone_solved():
    left, right = DRAWN["gained"]().axes
    grey, marked = left.lines[:2]
    assert list(zip(marked.get_xdata(), marked.get_ydata())) == [(0, 10), (5, 0)], "0 to 10 is gained, 5 to 0 lost, 0 to 0 neither"
    assert len(grey.get_xdata()) == 4
    assert [bar.get_width() for bar in right.patches] == [7, -6, 12, 0, 20, -3]
    assert [t.get_text() for t in right.get_yticklabels()] == list(PAIRS)


def test_length_draws_the_whole_of_each_seed_and_the_mean_of_the_parts():
    left, right = DRAWN["length"]().axes
    drawn = [list(line.get_ydata()) for line in left.lines]
    assert drawn[:2] == [[0, 14, 15], [0, 14, 15]], "growth, not length"
    assert np.allclose(drawn[2:], [[0, 14, 15], [0, 12.6, 13.5], [0, 1.4, 1.5], [0, 0, 0]]), "whole, style, rest, padding"
    assert len(right.lines) == 4 and right.texts[1].get_text() == "worked"


def test_digits_has_a_bar_for_each_count_and_model():
    four, five = DRAWN["digits"]().axes
    assert [bar.get_height() for bar in four.patches] == [0.7, 0, 0, 0.3, 0, 0, 0, 0, 0, 0.97, 0.03, 0]
    assert [next(iter(set(line.get_xdata()))) for ax in (four, five) for line in ax.lines] == [4, 5], "what is needed"


def test_audit_stacks_in_the_order_of_its_kinds_and_names_what_can_be_seen():
    (ax,) = DRAWN["audit"]().axes
    assert [t.get_text() for t in ax.texts] == ["right, every column right", "wrong: sum", "wrong, no working"], "a layer under 1% has no label"
    assert ax.get_ylim() == (0, 1) and len(ax.collections) == len(SHARES)
