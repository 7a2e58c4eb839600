"""pass@k, intervals, styles and the audit against exact values and mutations (fault log, section 9; claims C24-C32)."""

import math
import random
import runpy
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_lib import analysis
from grpo_lib.analysis import (
    audit, bootstrap, distinct_numbers, gain_split, holm, paired, pass_at_k, pass_at_k_curve, silent_share, style,
    wilson,
)
from grpo_lib.checker import reward
from grpo_lib.task import Problem, columns, direct, worked

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
HUGE = 10 ** 5000


def test_reading_a_notebook_does_not_start_torch():
    code = "import sys, grpo_lib.analysis; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, encoding="utf-8",
                          cwd=Path(analysis.__file__).parents[1], check=True)
    assert done.stdout.strip() == "False", "analysis imported torch"


# ---- pass@k

@pytest.mark.parametrize("case", FAULTS["PASS_AT_K"], ids=lambda case: f"n{case['n']}-c{case['c']}-k{case['k']}")
def test_pass_at_k_values(case):
    n, c, k = case["n"], case["c"], case["k"]
    found = pass_at_k(n, c, k)
    assert found == pytest.approx(case["value"], rel=1e-12, abs=1e-15), case["note"]
    assert found == pass_at_k(n, c, k) == pass_at_k(np.int64(n), np.int32(c), np.int64(k)), "numpy integers differ"
    assert pass_at_k(n, c, 1) == c / n, "pass@1 must be the share of right samples, to the last bit"


@pytest.mark.parametrize("case", FAULTS["PASS_AT_K_MEAN"], ids=lambda case: case["id"])
def test_pass_at_k_averages_over_problems(case):
    n, counts = case["pairs"][0][0], [c for _, c in case["pairs"]]
    found = pass_at_k_curve(counts, n, [case["k"]])
    assert found.shape == (1,) and found[0] == pytest.approx(case["value"], rel=1e-12), case["rule"]
    assert pass_at_k_curve(np.array(counts), n, [case["k"]])[0] == found[0]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_pass_at_k_is_the_exact_probability(data):
    n = data.draw(st.integers(1, 200))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    miss = Fraction(1)
    for i in range(k):          # draw k samples one by one, none of them right
        miss *= Fraction(max(n - c - i, 0), n - i)
    assert pass_at_k(n, c, k) == float(1 - miss), "not the exact probability, rounded once"
    if c < n:
        assert pass_at_k(n, c + 1, k) >= pass_at_k(n, c, k), "must not fall with c"
    if k < n:
        assert pass_at_k(n, c, k + 1) >= pass_at_k(n, c, k), "must not fall with k"


@pytest.mark.parametrize("n, c, k", [
    (1, 1, 10), (64, 65, 1), (64, -1, 1), (64, 1, 0), (0, 0, 1), (64, 0.5, 1), (64, 1.0, 1), (64, True, 1), (64, 1, 65),
    ("64", 1, 1), (64, None, 1), (64, float("nan"), 1), (64, HUGE, 1), (HUGE, 1, 1), (64, 1, -HUGE)], ids=range(15))
def test_pass_at_k_refuses_what_makes_no_sense(n, c, k):
    with pytest.raises(ValueError) as error:
        pass_at_k(n, c, k)
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_a_curve_needs_whole_counts():
    for counts in ([], [0.5, 1.0], [True, False], np.array([True]), [1, None]):
        with pytest.raises(ValueError):
            pass_at_k_curve(counts, 4, [1])


@pytest.mark.parametrize("case", FAULTS["SILENT_GROUPS"], ids=lambda case: f"p{case['p']}-G{case['G']}")
def test_silent_groups(case):
    wrong, right = silent_share(case["p"], case["G"])
    assert wrong == pytest.approx(case["all_wrong"], rel=1e-12, abs=1e-15)
    assert wrong + right == pytest.approx(case["all_equal"], rel=1e-12)


def test_problems_of_unlike_difficulty_are_silent_more_often():
    rates = np.random.default_rng(0).beta(0.3, 2, size=500)
    mixed, level = sum(silent_share(rates, 8)), sum(silent_share(rates.mean(), 8))
    assert mixed > level, "the formula for equal problems is a lower bound"
    assert silent_share([0.0, 1.0], 8) == (0.5, 0.5)
    for rates in ([], [1.1], [-0.1], [float("nan")]):
        with pytest.raises(ValueError, match="rates"):
            silent_share(rates, 8)
    with pytest.raises(ValueError, match="G is 0"):
        silent_share([0.5], 0)


# ---- intervals

@pytest.mark.parametrize("case", FAULTS["INTERVALS"], ids=lambda case: f"{case['right']}of{case['n']}")
def test_intervals(case):
    right, n = case["right"], case["n"]
    rate, low, high = wilson(right, n)
    assert (rate, low, high) == pytest.approx((case["p"], *case["wilson"]), abs=1e-9)
    assert 0.0 <= low <= rate <= high <= 1.0
    mean, low, high = bootstrap([1.0] * right + [0.0] * (n - right))
    assert mean == pytest.approx(case["p"]) and low <= mean <= high
    assert (low, high) == pytest.approx(case["bootstrap_percentile_exact"], abs=0.012)
    if right in (0, n):
        assert low == mean == high, "equal values have no width"


def test_bootstrap_rules():
    values = (np.arange(40) % 3 == 0).astype(float)
    np.random.seed(1)
    before = np.random.get_state()[1].tolist()
    assert bootstrap(values) == bootstrap(values), "same seed, same interval"
    assert len({bootstrap(np.arange(40) ** 0.5, seed=seed) for seed in range(3)}) == 3, "seeds must differ"
    assert np.random.get_state()[1].tolist() == before, "the global stream moved"
    (_, low95, high95), (_, low80, high80) = bootstrap(values, 0.95), bootstrap(values, 0.80)
    assert low95 <= low80 < high80 <= high95, "80% must lie inside 95%"
    assert bootstrap([0.1] * 7) == (0.1, 0.1, 0.1), "rounding must not make a width"
    assert bootstrap([0.25]) == (0.25, 0.25, 0.25)
    assert all(type(x) is float for x in bootstrap(values) + paired(values, values) + wilson(np.int64(3), np.int64(9)))


def test_problems_are_resampled_not_samples():
    # 20 problems, each all right or all wrong in 64 samples: the 64 copies add no certainty
    rows = [[float(i < 10)] * 64 for i in range(20)]
    assert bootstrap(rows) == bootstrap([float(i < 10) for i in range(20)])
    _, low, high = bootstrap(rows)
    assert high - low > 0.3, "the interval was made from single samples"
    assert bootstrap([[1, 0], [1], [0, 0, 0]])[0] == pytest.approx(0.5), "each problem counts once"


def test_a_paired_comparison_uses_the_pairs():
    case = FAULTS["INTERVAL_PAIRED"]
    estimate, low, high = paired(case["a"], case["b"])
    assert estimate == pytest.approx(case["diff"]) and low <= estimate <= high
    assert paired(case["b"], case["a"])[0] == pytest.approx(-case["diff"]), "the sign is a minus b"
    _, low, high = paired(case["a"] * 60, case["b"] * 60)     # many copies: nearly normal, and the deviation shows
    spread = (high - low) / (2 * 1.96) * math.sqrt(60)
    assert spread == pytest.approx(case["se_paired"], rel=0.08)
    assert abs(spread - case["wrong_se_unpaired"]) > 0.05, case["rule"]
    for x in (case["a"], [0.1, 0.7, 0.3], np.random.default_rng(0).random((30, 8))):
        assert paired(x, x) == (0.0, 0.0, 0.0), case["rule"]


@pytest.mark.parametrize("call", [
    lambda: bootstrap([]), lambda: bootstrap([[]]), lambda: bootstrap([1.0, float("nan")]),
    lambda: bootstrap([1.0], level=1), lambda: bootstrap([1.0], level=95),
    lambda: bootstrap([1.0], rounds=0), lambda: bootstrap([float("inf")]),
    lambda: paired([1.0], [1.0, 0.0]), lambda: paired([], []), lambda: wilson(1, 0), lambda: wilson(3, 2),
    lambda: wilson(-1, 2), lambda: wilson(0.5, 2), lambda: wilson(1, 2, level=float("nan")), lambda: wilson(HUGE, 3),
    lambda: holm([]), lambda: holm([0.1, float("nan")]), lambda: holm([1.2]),
])
def test_bad_statistics_give_one_line(call):
    with pytest.raises(ValueError) as error:
        call()
    assert "\n" not in str(error.value)


def test_the_wilson_interval_covers():
    rng = np.random.default_rng(4)
    for p in (0.02, 0.3, 0.9):
        hits = [low <= p <= high for _, low, high in (wilson(int(c), 100) for c in rng.binomial(100, p, size=2000))]
        assert 0.92 < np.mean(hits) < 0.985, f"coverage at p = {p} is {np.mean(hits):.3f}"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_agrees_with_stepping_down(pvalues):
    adjusted = holm(pvalues)
    for level in (0.01, 0.05, 0.2, 0.7):
        rejected, order = set(), sorted(range(len(pvalues)), key=pvalues.__getitem__)
        for rank, i in enumerate(order):
            if pvalues[i] * (len(pvalues) - rank) > level:
                break
            rejected.add(i)
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected
    assert np.all(adjusted >= pvalues) and np.all(adjusted <= 1)


def test_holm_on_a_known_family():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


# ---- styles

def test_styles():
    assert style(worked(48, 75)) == style(" " + worked(48, 75)) == "worked"
    assert style(direct(48, 75)) == style("48 + 75 = 12") == "direct"
    assert style("8 + 5 = 13, write 3, carry 1. 4 + 7") == "worked", "columns without the opening"
    for reply in ("", " ", "The answer is 123.", "I think 48 + 75 = 123.", "48 and 75", "Add.", "４ + ５ = ９", "\ud800"):
        assert style(reply) == "other", reply


def test_distinct_numbers():
    assert distinct_numbers("48 + 75 = 123. The answer is 123.") == 3
    assert distinct_numbers("042 42 4 2 42") == 4 and distinct_numbers("none, not even ² or ４") == 0


def test_gain_split_adds_up():
    split = gain_split({"worked": 0.2, "direct": 0.05}, {"worked": 0.6, "direct": 0.4},
                       {"worked": 0.7, "direct": 0.1}, {"worked": 0.98, "direct": 0.02})
    assert split["style"] == pytest.approx(0.38 * 0.2 - 0.38 * 0.05)
    assert split["column"] == pytest.approx(0.98 * 0.5 + 0.02 * 0.05)
    assert split["gain"] == pytest.approx(split["style"] + split["column"]) == pytest.approx(
        (0.98 * 0.7 + 0.02 * 0.1) - (0.6 * 0.2 + 0.4 * 0.05))
    same = gain_split({"worked": 0.2}, {"worked": 1.0}, {"worked": 0.2}, {"worked": 1.0})
    assert same == {"style": 0.0, "column": 0.0, "gain": 0.0}
    new = gain_split({"other": 0.0}, {"other": 1.0}, {"worked": 0.5}, {"worked": 1.0})
    assert new["gain"] == 0.5 and new["column"] == 0.5
    with pytest.raises(ValueError, match="start_share adds up to 0.5"):
        gain_split({}, {"worked": 0.5}, {}, {"worked": 1.0})


# ---- the audit

@pytest.mark.parametrize("case", FAULTS["COLUMN_ADDITION"], ids=lambda case: f"{case['a']}+{case['b']}")
def test_the_teachers_working_is_sound(case):
    found = audit(worked(case["a"], case["b"]), Problem(case["a"], case["b"], 0))
    assert (found.verdict, found.first_error) == ("sound", None)
    assert found.columns == tuple(case["columns"]) and found.worked_columns == len(case["columns"])
    assert found.padded_columns == 0 and not found.leading_zero
    assert audit(direct(case["a"], case["b"]), Problem(case["a"], case["b"], 0)).verdict == "no-working"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 99_999), st.integers(0, 99_999), st.integers(0, 3))
def test_extra_columns_of_zeros_are_padding(a, b, extra):
    """A padded reply written from the rule itself: the last carry goes into the first extra column."""
    rows, carry = columns(a, b), columns(a, b)[-1][5]
    for _ in range(extra):
        rows.append((0, 0, carry, carry, carry, 0))
        carry = 0
    reply = write_reply(rows, "".join(str(row[4]) for row in reversed(rows)), carry)
    found = audit(reply, Problem(a, b, 0))
    assert found.verdict == ("padded" if extra else "sound"), reply
    assert (found.padded_columns, found.worked_columns, found.first_error) == (extra, len(rows), None)
    assert reward(reply, a + b, "strict") == 1.0 and found.leading_zero == (reward(reply, a + b, "exact") == 0.0)


def write_reply(rows, digits, carry):
    lines = [f"{x} + {y}{f' + {c}' if c else ''} = {s}, write {w}{f', carry {o}' if o else ''}."
             for x, y, c, s, w, o in rows]
    last = [f"Write the carry {carry}."] if carry else []
    return " ".join(["Add the digits from right to left.", *lines, *last, f"The answer is {carry or ''}{digits}."])


def test_the_articles_loophole_is_padding_with_a_leading_zero():
    reply = ("Add the digits from right to left. 7 + 5 = 12, write 2, carry 1. 1 + 2 + 1 = 4, write 4. "
             "0 + 0 = 0, write 0. The answer is 042.")
    found = audit(reply, Problem(17, 25, 0))
    assert (found.verdict, found.leading_zero, found.padded_columns, found.worked_columns) == ("padded", True, 1, 3)
    dropped = audit(reply.replace("042", "42"), Problem(17, 25, 0))
    assert (dropped.verdict, dropped.leading_zero) == ("padded", False), "leaving the zero out in the end is no error"


def test_the_articles_four_digit_reply_reads_wrong_digits():
    reply = ("Add the digits from right to left. 4 + 6 = 10, write 0, carry 1. 2 + 7 + 1 = 10, write 0, carry 1. "
             "5 + 5 + 1 = 11, write 1, carry 1. Write the carry 1. The answer is 1100.")
    found = audit(reply, Problem(5243, 5763, 2))
    assert (found.verdict, found.first_error) == ("wrong-step", "reading")
    assert (found.worked_columns, found.padded_columns) == (3, 0)


START = "Add the digits from right to left. "
FIRST = "8 + 5 = 13, write 3, carry 1. "
SECOND = "4 + 7 + 1 = 12, write 2, carry 1. "
LAST = "Write the carry 1. The answer is 123."


@pytest.mark.parametrize("reply, error", [
    (START + FIRST + SECOND + LAST, None),
    (START + "5 + 8 = 13, write 3, carry 1. " + SECOND + LAST, None),
    (FIRST + SECOND + LAST, None),
    (START + "8 + 6 = 14, write 4, carry 1. " + SECOND + LAST, "reading"),
    (START + SECOND.replace(" + 1 = 12, write 2", " = 11, write 1") + FIRST + LAST, "reading"),
    (START + "48 + 75 = 123, write 3, carry 12. " + LAST, "reading"),
    (START + "8 + 5 = 14, write 4, carry 1. " + SECOND + LAST, "sum"),
    (START + FIRST + "4 + 7 + 1 = 13, write 3, carry 1. " + LAST, "sum"),
    (START + "8 + 5 = 13, write 4, carry 1. " + SECOND + LAST, "carry"),
    (START + "8 + 5 = 13, write 3. " + SECOND + LAST, "carry"),
    (START + FIRST + "4 + 7 = 11, write 1, carry 1. " + LAST, "carry"),
    (START + FIRST + "4 + 7 + 2 = 13, write 3, carry 1. " + LAST, "carry"),
    (START + FIRST + "4 + 7 + 1 = 12, write 2, carry 2. " + LAST, "carry"),
    (START + FIRST + SECOND + "The answer is 23.", "carry"),
    (START + FIRST + SECOND + "Write the carry 2. The answer is 223.", "carry"),
    (START + FIRST + SECOND + "Write the carry 1. The answer is 132.", "copying"),
    (START + FIRST + SECOND + "Write the carry 1. The answer is 123", "copying"),
    (START + FIRST + SECOND + "Write the carry 1.", "copying"),
    (START + FIRST + SECOND + LAST + " Or maybe 124.", "copying"),
    (START + FIRST + "Write the carry 1. The answer is 123.", "missing"),
    (START + FIRST + "4 + 7 + 1 = 12, wri", "missing"),
    (START + FIRST + "4 + 7 + 1 = twelve. " + LAST, "missing"),
    (START + FIRST + SECOND + "0 + 0 + 1 = 1, write 1. The answer is 123.", None),
    (START + FIRST + SECOND + "0 + 0 = 0, write 0. The answer is 23.", "carry"),
    (START + FIRST + SECOND + "1 + 0 + 1 = 2, write 2. The answer is 223.", "reading"),
])
def test_the_first_error_has_a_name(reply, error):
    found = audit(reply, Problem(48, 75, 0))
    assert found.first_error == error, reply
    assert (found.verdict == "wrong-step") == (error is not None)


def test_right_by_luck_is_still_a_wrong_step():
    reply = START + "8 + 5 = 12, write 2, carry 1. " + SECOND + LAST
    assert reward(reply, 123, "strict") == 1.0 and audit(reply, Problem(48, 75, 0)).verdict == "wrong-step"


@pytest.mark.parametrize("reply", [
    "", " ", "The answer is 123.", "The answer is 0123.", START, START + "The answer is 123.", direct(48, 75), "\ud800",
    START + "8 + 5 =", "８ + ５ = 13, write 3."])
def test_replies_without_a_column(reply):
    found = audit(reply, Problem(48, 75, 0))
    assert (found.verdict, found.columns, found.first_error, found.worked_columns) == ("no-working", (), None, 0)
    assert found.leading_zero == ("0123" in reply)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 999), st.integers(0, 999), st.data())
def test_any_changed_digit_is_found(a, b, data):
    """One digit of a right reply is altered: only leaving the meaning alone (adding in another order) may pass."""
    text = worked(a, b)
    places = [i for i, letter in enumerate(text) if letter.isdigit()]
    at = data.draw(st.sampled_from(places))
    other = data.draw(st.sampled_from([d for d in "0123456789" if d != text[at]]))
    found = audit(text[:at] + other + text[at + 1:], Problem(a, b, 0))
    assert found.verdict == "wrong-step" and found.first_error is not None, text[:at] + other + text[at + 1:]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 999), st.integers(0, 999), st.data())
def test_a_cut_reply_is_never_sound(a, b, data):
    text = worked(a, b)
    cut = text[:data.draw(st.integers(0, len(text) - 1))]
    assert audit(cut, Problem(a, b, 0)).verdict in ("wrong-step", "no-working"), cut


PIECES = [START, FIRST, SECOND, LAST, "0 + 0 = 0, write 0. ", "9", " + ", " = ", ", write ", ".", " ", "\n", "²",
          "\ud800", "Write the carry 1. ", "The answer is "]
TRICKY = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
ANY_TEXT = st.text(alphabet=st.characters(), max_size=80)


@settings(max_examples=200, deadline=None)
@given(st.one_of(TRICKY, ANY_TEXT), st.sampled_from([(48, 75), (75, 48), (0, 0), (8, 5), (123, 456)]))
def test_any_text_can_be_audited(reply, pair):
    a, b = pair
    found = audit(reply, Problem(a, b, 0))
    assert style(reply) in ("worked", "direct", "other") and distinct_numbers(reply) >= 0
    assert (found.first_error is not None) == (found.verdict == "wrong-step")
    if found.verdict in ("sound", "padded"):
        assert reward(reply, a + b, "strict") == 1.0, "sound working must end in the right answer"


@pytest.mark.parametrize("build", [
    START + "0 + 0 = 0, write 0. " * 50_000, START + "1" * 10 ** 6, "1 + " * 250_000, "9 + 9 = " + "9" * 10 ** 6,
    START + "1 + 1 = 2, write 2" * 50_000, " " * 10 ** 6 + "x", "1" * 10 ** 6 + " + 1 =",
    START + FIRST + SECOND + "Write the carry 1. The answer is " + "1" * 10 ** 6 + "."], ids=range(8))
def test_a_million_characters_are_read_in_time(build):
    started = time.perf_counter()
    audit(build, Problem(48, 75, 0)), style(build), distinct_numbers(build)
    assert time.perf_counter() - started < 2, "linear time on any text"


def test_ten_thousand_teacher_replies_are_sound():
    rng = random.Random(2)
    for _ in range(10_000):
        a, b = rng.randrange(10 ** rng.randint(1, 5)), rng.randrange(10 ** rng.randint(1, 5))
        assert audit(worked(a, b), Problem(a, b, 0)).verdict == "sound", (a, b)
