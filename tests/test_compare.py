"""Comparisons by seed and by problem, against brute force, simulation, scipy and cases made by hand (claims C20-C32)."""

import itertools
import math
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from grpo_lib import compare
from grpo_lib.analysis import holm, paired, pass_at_k, pass_at_k_curve, wilson
from grpo_lib.checker import reward
from grpo_lib.task import columns, direct, worked

VALUES = st.lists(st.floats(-1, 1).map(lambda x: round(x, 3)), min_size=2, max_size=8)


# ---- arms

@settings(max_examples=60, deadline=None)
@given(VALUES, st.sampled_from([0.5, 0.9, 0.95]))
def test_the_interval_and_the_test_are_students(values, level):
    mean, low, high = compare.t_interval(values, level)
    p = compare.paired_t(values)
    if len(set(values)) == 1:
        assert low == mean == high == pytest.approx(values[0]) and math.isnan(p), "no spread, no width, no test"
        return
    other = stats.ttest_1samp(values, 0)
    wanted = other.confidence_interval(level)
    assert (mean, low, high) == pytest.approx((np.mean(values), wanted.low, wanted.high), rel=1e-6, abs=1e-9)
    assert p == pytest.approx(other.pvalue, rel=1e-6)
    assert (p < 1 - level) == (low > 0 or high < 0) or p == pytest.approx(1 - level), "interval and test must agree"


def test_one_seed_has_no_interval():
    mean, low, high = compare.t_interval([0.4])
    assert mean == 0.4 and math.isnan(low) and math.isnan(high) and math.isnan(compare.paired_t([0.4]))


@pytest.mark.parametrize("seeds, alpha", [(2, 0.05), (3, 0.05), (3, 0.0125), (5, 0.05), (8, 0.01)])
def test_a_difference_at_the_noise_floor_is_found_four_times_of_five(seeds, alpha):
    sd, rng = 0.02, np.random.default_rng(seeds)
    floor = compare.noise_floor(sd, seeds, alpha)
    d = rng.normal(floor, sd, size=(40_000, seeds))
    found = np.mean(stats.ttest_1samp(d, 0, axis=1).pvalue < alpha)
    assert found == pytest.approx(0.8, abs=0.008), f"found {found:.3f} of the time"
    assert compare.noise_floor(2 * sd, seeds, alpha) == pytest.approx(2 * floor)
    assert compare.noise_floor(sd, seeds + 1, alpha) < floor < compare.noise_floor(sd, seeds, alpha / 2)
    assert floor < compare.noise_floor(sd, seeds, alpha, power=0.9)


def test_equal_differences_tell_no_spread_and_no_certainty():
    rows = compare.seed_table({"main": {1: .5, 2: .6}, "x": {1: .502, 2: .602}, "y": {1: .5, 2: .6}, "z": {1: .6, 2: .65}})
    _, x, y, z = rows
    for row in (x, y):
        assert all(math.isnan(row[k]) for k in ("p", "holm", "noise_floor", "d_low", "d_high")), f"{row['arm']}: {row}"
    assert x["difference"] == pytest.approx(0.002) and 0 < z["p"] == z["holm"] < 1, "what tells no spread is no comparison either"


def test_the_noise_floor_is_the_noncentral_t_where_scipy_can_compute_it():
    limit, shift = stats.t.ppf(0.975, 3), compare.noise_floor(1.0, 4, 0.05) * 2
    assert stats.nct.sf(limit, 3, shift) + stats.nct.cdf(-limit, 3, shift) == pytest.approx(0.8, abs=1e-6)
    assert compare.noise_floor(0.0, 3, 0.05) == 0.0
    law = stats.chi2(2)
    assert law.cdf(2 * 0.25) == pytest.approx(0.2, abs=0.03), "the docstring: below half the truth one time in five"


ARMS = {"main": {1: 0.70, 2: 0.60, 3: 0.80}, "nokl": {3: 0.81, 1: 0.72, 2: 0.63, 9: 0.1}, "drgrpo": {2: 0.50, 1: 0.75, 3: 0.79},
        "updates4": {1: 0.9}}


def test_arms_meet_in_pairs_of_the_same_seed():
    rows = {row["arm"]: row for row in compare.seed_table(ARMS)}
    assert list(rows) == list(ARMS) and rows["nokl"]["values"] == ARMS["nokl"]
    main, nokl, dr, one = rows.values()
    assert (nokl["n"], nokl["pairs"], nokl["mean"]) == (4, 3, pytest.approx(0.565))
    d = [0.02, 0.03, 0.01]
    assert nokl["difference"] == pytest.approx(0.02) and nokl["sd"] == pytest.approx(0.01)
    assert nokl["p"] == pytest.approx(stats.ttest_rel([0.72, 0.63, 0.81], [0.7, 0.6, 0.8]).pvalue)
    assert (nokl["d_low"], nokl["d_high"]) == pytest.approx(stats.ttest_1samp(d, 0).confidence_interval())
    assert nokl["p"] < 0.1 < stats.ttest_ind([0.72, 0.63, 0.81], [0.7, 0.6, 0.8]).pvalue, "the pairing must have been used"
    assert [nokl["holm"], dr["holm"]] == pytest.approx(holm([nokl["p"], dr["p"]]).tolist()), "a family of the two tests there are"
    assert nokl["noise_floor"] == pytest.approx(compare.noise_floor(0.01, 3, 0.025))
    assert main["mean"] == pytest.approx(0.7) and main["pairs"] == 0 and math.isnan(main["p"]) and math.isnan(main["difference"])
    assert one["difference"] == pytest.approx(0.2) and one["pairs"] == 1
    assert all(math.isnan(one[k]) for k in ("low", "d_low", "d_high", "sd", "p", "holm", "noise_floor")), "one pair has no spread"
    assert len({tuple(row) for row in rows.values()}) == 1, "every row has the same keys in the same order"


def test_a_table_against_another_base_turns_the_sign():
    forth, back = compare.seed_table(ARMS)[1], compare.seed_table(ARMS, base="nokl")[0]
    assert back["difference"] == pytest.approx(-forth["difference"]) and back["p"] == pytest.approx(forth["p"])
    assert compare.seed_table({"main": {1: 0.5}})[0]["mean"] == 0.5, "a table of the base alone"


def test_a_ratio_is_taken_at_shared_seeds_on_logarithms():
    a, b = {1: 2.0, 2: 9.0, 3: 4.0, 7: 1e6}, {2: 3.0, 1: 1.0, 3: 1.0, 8: 5.0}
    found, back = compare.paired_ratio(a, b), compare.paired_ratio(b, a)
    assert found[0] == pytest.approx(stats.gmean([2, 3, 4])), "not the geometric mean of the ratios at seeds 1, 2 and 3"
    span = stats.ttest_1samp(np.log([2, 3, 4]), 0).confidence_interval()
    assert found[1:] == pytest.approx((math.exp(span.low), math.exp(span.high)))
    assert back == pytest.approx((1 / found[0], 1 / found[2], 1 / found[1])), "turned round, the interval turns round"
    ratio, low, high = compare.paired_ratio({1: 3.0}, {1: 2.0})
    assert ratio == pytest.approx(1.5) and math.isnan(low) and math.isnan(high), "one pair has no interval"
    with pytest.raises(ValueError, match="positive"):
        compare.paired_ratio({1: 0.0}, {1: 2.0})
    with pytest.raises(ValueError, match="shares no seed"):
        compare.paired_ratio({1: 1.0}, {2: 2.0})


def test_a_table_is_spelled_with_dashes_where_nothing_can_be_said():
    head, main, nokl, _, one = compare.spell(compare.seed_table(ARMS)).splitlines()
    cells = lambda line: re.split(r"  +", line)
    assert len(cells(head)) == len(cells(nokl)) == 9 and cells(head)[4] == "minus main"
    assert cells(main)[:3] == ["main", "3", "70.0%"] and cells(main)[4:8] == ["-"] * 4, main
    row = compare.seed_table(ARMS)[1]
    assert cells(nokl)[4:8] == ["+2.0%", f"{row['d_low']:+.1%} to {row['d_high']:+.1%}", f"{row['holm']:.3f}", f"{row['noise_floor']:.1%}"]
    assert cells(nokl)[8] == "3: 81.0% 1: 72.0% 2: 63.0% 9: 10.0%", "every seed is named"
    assert cells(one) == ["updates4", "1", "90.0%", "-", "+20.0%", "-", "-", "-", "1: 90.0%"], "a single seed: a dash, no interval"
    two = cells(compare.spell(compare.seed_table({"main": {1: 0.5, 2: 0.5}, "x": {1: 0.4, 2: 0.7}})).splitlines()[2])
    assert (two[3], two[5], two[7]) == ("0.0% to 100.0%", "-100.0% to +100.0%", ">100%"), f"two seeds see nothing: {two}"


# ---- checkpoints and starts

@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_mcnemar_is_the_exact_sign_test_of_what_differs(pairs):
    a, b = zip(*pairs)
    found = compare.mcnemar(a, b)
    x, y = sum(p and not q for p, q in pairs), sum(q and not p for p, q in pairs)
    ways = [math.comb(x + y, k) for k in range(x + y + 1)]
    assert found == {"only_a": x, "only_b": y, "p": pytest.approx(sum(w for w in ways if w <= ways[x]) / 2 ** (x + y))}
    assert compare.mcnemar(b, a)["p"] == pytest.approx(found["p"])


def test_groups_that_taught_are_counted_over_first_steps_and_runs():
    run = lambda problems, wrong, right: SimpleNamespace(config={"problems": problems}, metrics=pd.DataFrame({"all_wrong": wrong, "all_right": right}))
    two = [run(8, [0.5, 0.25, 1.0], [0.125, 0.25, 0.0]), run(4, [0.0, 0.5, 1.0], [0.25, 0.5, 0.0])]
    # of 8 groups 3 and 4 taught, of 4 groups 3 and 0; the third step is left out
    assert compare.teaching(two, 2) == wilson(3 + 4 + 3 + 0, 24)
    assert compare.teaching(two[:1], 9) == wilson(7, 24), "fewer steps than asked for: those there are"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_groups_that_teach_are_counted_among_all_that_could_be_drawn(data):
    n = data.draw(st.integers(1, 9))
    counts, G = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=4)), data.draw(st.integers(1, n))
    mixed = [np.mean([0 < sum(group) < G for group in itertools.combinations([1] * c + [0] * (n - c), G)]) for c in counts]
    found = compare.informative(counts, n, G)
    assert found["share"] == pytest.approx(np.mean(mixed)) and found["low"] <= found["share"] <= found["high"]
    rate = np.mean(counts) / n
    assert found["naive"] == pytest.approx(1 - rate ** G - (1 - rate) ** G)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_the_informative_share_is_unbiased_and_the_naive_one_too_high(p):
    n, G = 20, 8
    mean = sum(stats.binom.pmf(c, n, p) * compare.informative([c], n, G)["share"] for c in range(n + 1))
    assert mean == pytest.approx(1 - p ** G - (1 - p) ** G)
    unlike = compare.informative([0, 0, 0, 10, 20], n, G)
    assert unlike["share"] < 0.25 < 0.9 < unlike["naive"]


def test_gained_and_lost_are_lists_of_problems():
    assert compare.gained_lost([0, 0, 5, 1, 0], [61, 0, 0, 1, 1]) == ([0, 4], [2])
    assert compare.gained_lost(pd.Series([0, 3]), np.array([3, 0])) == ([0], [1])


def test_the_null_is_what_chance_alone_gains():
    """Problems of 1% are missed by 64 samples 53% of the time, so a quarter of them is gained without any learning."""
    rng, rates = np.random.default_rng(1), np.array([0.01] * 100 + [0.5] * 60 + [0.0] * 40)
    truth = sum((1 - p) ** 64 * (1 - (1 - p) ** 64) for p in rates)
    sets = [rng.binomial(64, rates) for _ in range(40)]
    found = [compare.null(a, b) for a, b in zip(sets[::2], sets[1::2])]
    assert np.mean([f[0] for f in found]) == pytest.approx(truth, rel=0.1) and 20 < truth < 30
    assert np.mean([low <= truth <= high for _, low, high in found]) >= 0.8
    gained, lost = compare.gained_lost(*sets[:2])
    assert found[0][0] == pytest.approx((len(gained) + len(lost)) / 2)
    assert compare.null(sets[0], sets[0]) == (0.0, 0.0, 0.0)


COUNTS = st.lists(st.integers(0, 16), min_size=2, max_size=12)


@settings(max_examples=6, deadline=None)
@given(COUNTS)
def test_a_curve_and_its_bands(counts):
    ks = [1, 2, 8, 16]
    found = compare.curve(counts, 16, ks)
    assert [f[0] for f in found] == pytest.approx(pass_at_k_curve(counts, 16, ks).tolist())
    assert all(low <= value <= high for value, low, high in found)
    assert compare.curve_difference(counts, counts, 16, ks) == [(0.0, 0.0, 0.0)] * 4
    easier = [min(16, c + 1) for c in counts]
    for k, (value, low, high) in zip(ks, compare.curve_difference(easier, counts, 16, ks)):
        both = [[pass_at_k(16, c, k) for c in side] for side in (easier, counts)]
        assert (value, low, high) == paired(*both) and high >= value >= low >= 0, "more right samples cannot be worse"


def test_a_paired_band_is_narrower_than_two_bands():
    counts = np.random.default_rng(0).integers(0, 60, size=80)
    (_, low, high), = compare.curve_difference(counts + 4, counts, 64, [4])
    (_, low_a, high_a), = compare.curve(counts, 64, [4])
    assert high - low < 0.4 * (high_a - low_a)


def test_the_slope_is_per_doubling():
    assert compare.slope_per_doubling([1], 4, [1, 2, 4]) == [(0.25,) * 3, (0.5,) * 3]       # pass@k is k / 4
    (value, low, high), = compare.slope_per_doubling([1, 1, 4, 0], 4, [1, 4])
    assert value == pytest.approx(0.75 * 0.5 / 2) and low < value < high
    with pytest.raises(ValueError, match=r"ks is \[2, 2\]"):
        compare.slope_per_doubling([1], 4, [2, 2])


@pytest.mark.parametrize("n", [1, 100, 200])
def test_the_bound_of_none_solved_is_exact(n):
    for level in (0.9, 0.95):
        wanted = stats.binomtest(0, n, alternative="less").proportion_ci(level).high
        assert compare.bound(n, level) == pytest.approx(wanted) and (1 - compare.bound(n, level)) ** n == pytest.approx(1 - level)


# ---- replies

def padded(a, b, extra=1):
    """A worked reply with columns of zeros beyond the longer number, answer without a leading zero; no carry at the end."""
    assert columns(a, b)[-1][5] == 0, "the helper needs a sum without a last carry"
    return worked(a, b).replace(" The answer", " 0 + 0 = 0, write 0." * extra + " The answer")


def frame(replies, step=0):
    """Rows as runs.load gives them; length is counted in characters, so that `len` counts tokens."""
    rows = []
    for i, (a, b, reply) in enumerate(replies):
        paid = {kind: int(reward(reply, a + b, kind)) for kind in ("strict", "exact", "contains")}
        rows.append(dict(step=step, set="3", a=a, b=b, template=0, sample=i, reply=reply, length=len(reply), ended=True, **paid))
    return pd.DataFrame(rows)


ZERO = padded(17, 25).replace("is 42", "is 042")
REPLIES = [(17, 25, worked(17, 25)), (17, 25, padded(17, 25, 2)), (17, 25, ZERO), (17, 25, direct(17, 25)), (4, 3, "Either 7 or 8.")]


def test_replies_are_audited_row_by_row():
    rows = frame(REPLIES, step=3).iloc[::-1]
    found = compare.audited(rows)
    assert found["verdict"].tolist() == ["no-working", "no-working", "padded", "padded", "sound"]
    assert Counter(found["worked_columns"]) == {0: 2, 2: 1, 3: 1, 4: 1} and found["padded_columns"].tolist() == [0, 0, 1, 2, 0]
    assert found["padding"].tolist() == ["", "", " 0 + 0 = 0, write 0.", " 0 + 0 = 0, write 0." * 2, ""]
    assert found["leading_zero"].tolist() == [False, False, True, False, False]
    assert found["style"].tolist() == ["other", "direct"] + ["worked"] * 3 and found["distinct_numbers"].tolist()[:2] == [2, 3]
    assert list(rows.columns) == list(found.columns)[:len(rows.columns)] and list(found.index) == list(rows.index)
    stray = frame([(17, 25, "Not so: 7 + 5 = 12, write 2, carry 1. " + worked(17, 25))])
    assert compare.audited(stray)["padding"].tolist() == [""], "columns outside the working are not padding"


def test_traits_are_means_by_problem():
    found = {name: value for name, (value, low, high) in compare.traits(frame(REPLIES)).items() if low <= value <= high}
    assert found == pytest.approx({"worked": (3 / 4 + 0) / 2, "padded": (2 / 4 + 0) / 2, "leading zero": (1 / 4 + 0) / 2,
                                   "right only with a zero": (1 / 4 + 0) / 2, "paid beyond strict": (-1 / 4 + 1) / 2,
                                   "distinct numbers": (np.mean([7, 8, 8, 3]) + 2) / 2})


def split(before, after, count=len):
    first, last = compare.length_split({50: frame(after), 0: frame(before)}, count)
    assert (first["step"], first["style"], first["padding"], first["rest"]) == (0, 0, 0, 0)
    growth = last["length"] - first["length"]
    assert last["style"] + last["padding"] + last["rest"] == pytest.approx(growth)
    assert last["low"] <= last["length"] <= last["high"] and last["n"] == len(after)
    return last, growth


def test_growth_by_style_alone():
    both = [(17, 25, worked(17, 25)), (17, 25, direct(17, 25))]
    last, growth = split(both, [both[0], both[0]])
    assert last["style"] == pytest.approx(growth) and growth > 0 and last["padding"] == last["rest"] == 0


def test_growth_by_padding_alone_and_the_rest():
    plain = [(17, 25, worked(17, 25)), (6, 3, direct(6, 3))]
    last, growth = split(plain, [(17, 25, padded(17, 25, 2)), plain[1]])
    assert last["padding"] == pytest.approx(growth) == 20.0 and last["style"] == 0 and last["rest"] == pytest.approx(0)
    last, growth = split(plain, [(17, 25, ZERO), plain[1]])
    assert last["padding"] == 10.0 and last["rest"] == pytest.approx(0.5), "the zero in the answer is no padded column"
    last, _ = split(plain, [(17, 25, padded(17, 25)), plain[1]], count=lambda text: 7 * bool(text))
    assert last["padding"] == 3.5, "tokens of the padding are what count says"


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(REPLIES), min_size=1, max_size=6), st.lists(st.sampled_from(REPLIES), min_size=1, max_size=6))
def test_the_parts_of_the_growth_add_up(before, after):
    length = lambda rows: np.mean([len(text) for _, _, text in rows])
    _, last = compare.length_split({0: frame(before), 9: frame(after)}, len)
    parts = last["style"] + last["padding"] + last["rest"]
    assert parts == pytest.approx(length(after) - length(before))


# ---- bad input

@pytest.mark.parametrize("call, says", [
    (lambda: compare.t_interval([]), "no values"), (lambda: compare.t_interval([1.0, math.nan]), "nan"),
    (lambda: compare.t_interval([1.0, 2.0], level=95), "level is 95"), (lambda: compare.paired_t([math.inf, 1]), "inf"),
    (lambda: compare.noise_floor(1, 1, 0.05), "seeds is 1"), (lambda: compare.noise_floor(1, 3, 0), "alpha is 0"),
    (lambda: compare.noise_floor(1, 3, 0.9), "not above alpha"),
    (lambda: compare.seed_table({"nokl": {1: 1.0}}), "no arm 'main'; there are: nokl"),
    (lambda: compare.seed_table({"main": {1: 1.0}, "nokl": {2: 1.0}}), "nokl shares no seed"),
    (lambda: compare.mcnemar([1, 0], [1]), "one order"), (lambda: compare.mcnemar([2], [1]), "from 0 to 1"),
    (lambda: compare.mcnemar([0.5], [1]), "whole number"), (lambda: compare.mcnemar([math.nan], [1]), "whole number"),
    (lambda: compare.gained_lost([], []), "one per problem"), (lambda: compare.null([-1], [1]), "whole number"),
    (lambda: compare.informative([3], 2, 1), "only n = 2"), (lambda: compare.informative([1], 4, 8), "k is 8"),
    (lambda: compare.curve([], 4, [1]), "empty"), (lambda: compare.curve_difference([1], [1, 2], 4, [1]), "1 problems"),
    (lambda: compare.bound(0), "n_problems is 0"), (lambda: compare.bound(5, 1.0), "level is 1.0"),
])
def test_bad_input_gives_one_line(call, says):
    with pytest.raises(ValueError) as error:
        call()
    assert says in str(error.value) and "\n" not in str(error.value), error.value


def test_a_style_that_was_not_there_at_first_grows_by_style():
    rows = lambda reply, length: pd.DataFrame([dict(a=1, b=2, template=0, reply=reply, length=length, strict=1, exact=1, contains=1, set="3", sample=k) for k in range(4)])
    first, later = rows(direct(1, 2), 10), rows(worked(1, 2), 80)
    out = compare.length_split({0: first, 5: later}, count=len)[1]
    assert out["style"] == pytest.approx(70) and out["rest"] == pytest.approx(0), out
