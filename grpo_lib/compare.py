"""Comparisons of arms, starts and checkpoints: seeds as the unit for arms, problems as the unit for pass@k and replies.

A claim about an arm needs runs that differ by seed: two replies or two checkpoints of one run say nothing about the
next run. So an arm's interval is a t-interval over seeds, and arms meet in pairs of the same seed. Two named
checkpoints meet on the same problems (`mcnemar`), which says that these weights differ and nothing about their
recipes. Functions of numbers and of recorded rows (DataFrames, as runs.Run.replies); no torch. Notebooks 05 and 06.
"""
import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binomtest, chi2, norm, t

from grpo_lib.analysis import (
    COLUMN, audit, bootstrap, distinct_numbers, gain_split, holm, paired, pass_at_k, silent_share, style, wilson,
)
from grpo_lib.report import by_problem
from grpo_lib.task import Problem, whole_number

POWER = 0.8                 # of the test whose smallest findable difference `noise_floor` gives


# ---- arms: the seed is the unit

def t_interval(values, level=0.95):
    """(mean, low, high): Student's interval over seeds; low and high are nan for a single value."""
    values, tail = _finite(values), (1 + _inside("level", level)) / 2
    mean, df = float(values.mean()), len(values) - 1
    half = float(t.ppf(tail, df)) * _sd(values) / math.sqrt(df + 1) if df else math.nan
    return mean, mean - half, mean + half


def paired_t(differences):
    """Two-sided p of the t test that differences (S,), one a seed, have mean 0; nan where they tell no spread: a single one,
    or all equal, as rates of few problems may well be."""
    d = _finite(differences)
    if len(d) < 2:
        return math.nan
    se = _sd(d) / math.sqrt(len(d))
    return float(2 * t.sf(abs(d.mean()) / se, len(d) - 1)) if se > 0 else math.nan


def noise_floor(sd, seeds, alpha, power=POWER):
    """The mean difference that a two-sided paired t test at alpha finds with this power, where differences have spread
    sd. The spread of a few seeds is itself rough: from three it comes out below half the truth one time in five."""
    df, alpha, power = whole_number("seeds", seeds, 2) - 1, _inside("alpha", alpha), _inside("power", power)
    if power <= alpha:
        raise ValueError(f"power is {power}, not above alpha {alpha}: ask for more power")
    # scipy's noncentral t gives nan for few seeds, so average over the sample spread: equally likely values of its law
    limit = np.sqrt(chi2.ppf((np.arange(20_000) + 0.5) / 20_000, df) / df) * t.ppf(1 - alpha / 2, df)
    excess = lambda shift: np.mean(norm.sf(limit - shift) + norm.cdf(-limit - shift)) - power
    return float(brentq(excess, 0.0, limit[-1] + 10) * sd / math.sqrt(df + 1))


def seed_table(values_by_arm, base="main", level=0.95):
    """A row (dict) per arm of {arm: {seed: value}}: values, n, mean, low, high; against base, over the seeds that both
    have (pairs): difference, d_low, d_high, sd, p, holm (p adjusted over all comparisons) and noise_floor at the level
    that Holm asks of the smallest p. nan for the base itself and where the pairs tell no spread. For ratios give
    logarithms."""
    if base not in values_by_arm:
        raise ValueError(f"no arm {base!r}; there are: {', '.join(map(str, values_by_arm)) or 'none'}")
    rows = [_row(arm, values, {} if arm == base else _differences(arm, values, values_by_arm[base]), level)
            for arm, values in values_by_arm.items()]
    tested = [row for row in rows if not math.isnan(row["p"])]
    for row, p in zip(tested, holm([row["p"] for row in tested]) if tested else []):
        row["holm"], row["noise_floor"] = float(p), noise_floor(row["sd"], row["pairs"], (1 - level) / len(tested))
    return rows


def _differences(arm, values, base):
    if not set(values) & set(base):
        raise ValueError(f"{arm} shares no seed with the base arm: a paired comparison needs the same seeds")
    return {seed: values[seed] - base[seed] for seed in values if seed in base}


def _row(arm, values, differences, level):
    d = list(differences.values())
    row = {"arm": arm, "values": dict(values), "n": len(values)}
    row |= zip(("mean", "low", "high"), t_interval(list(values.values()), level))
    row["pairs"] = len(d)
    row |= dict.fromkeys(("difference", "d_low", "d_high", "sd", "p", "holm", "noise_floor"), math.nan)
    if d:
        row |= {"difference": float(np.mean(d)), "p": paired_t(d), "sd": _sd(_finite(d)) if len(d) > 1 else math.nan}
        if not math.isnan(row["p"]):
            row |= zip(("difference", "d_low", "d_high"), t_interval(d, level))
    return row


def paired_ratio(values, base, level=0.95):
    """(ratio, low, high) of two arms {seed: positive value}: the geometric mean of the ratios at shared seeds, Student's
    interval on logarithms; low and high are nan for a single pair. Notebook 05."""
    if min(*values.values(), *base.values()) <= 0:
        raise ValueError("a value is 0 or negative: a ratio needs positive values on both sides")
    logs = _differences("the arm", *({seed: math.log(v) for seed, v in side.items()} for side in (values, base)))
    return tuple(map(math.exp, t_interval(list(logs.values()), level)))


def spell(rows, base="main"):
    """seed_table's rows of shares as aligned text, a line an arm; "-" where seeds are too few for an interval or a test.
    Student knows no bounds: intervals are cut at 0 and 100% (differences at -100%), as a share is."""
    dash = lambda v, form: "-" if math.isnan(v) else form.format(v)
    span = lambda low, high, least, form: "-" if math.isnan(low) else " to ".join(map(form.format, (max(low, least), min(high, 1.0))))
    lines = [("arm", "seeds", "mean", "95% over seeds", f"minus {base}", "95%", "Holm p", "noise floor", "each seed")]
    for r in rows:
        lines.append((r["arm"], str(r["n"]), dash(r["mean"], "{:.1%}"), span(r["low"], r["high"], 0.0, "{:.1%}"),
                      dash(r["difference"], "{:+.1%}"), span(r["d_low"], r["d_high"], -1.0, "{:+.1%}"), "<0.001" if r["holm"] < 0.0005 else dash(r["holm"], "{:.3f}"),
                      ">100%" if r["noise_floor"] > 1 else dash(r["noise_floor"], "{:.1%}"),
                      " ".join(f"{seed}: {v:.1%}" for seed, v in r["values"].items())))
    wide = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(word.ljust(w) for word, w in zip(line, wide)).rstrip() for line in lines)


# ---- checkpoints and starts: the problem is the unit

def mcnemar(a, b):
    """{"only_a", "only_b", "p"}: problems that just one of two checkpoints solves, and the exact two-sided p that
    these fall to either side alike. a, b (P,): 0 or 1, the same problems in the same order."""
    a, b = _pair(a, b, 1)
    only_a, only_b = int(np.sum(a > b)), int(np.sum(b > a))
    p = binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    return {"only_a": only_a, "only_b": only_b, "p": float(p)}


def informative(counts, n, G):
    """{"share", "low", "high", "naive"}: the expected share of groups of G that teach (neither all wrong nor all
    right), from counts (P,) of right samples out of n, unbiased: G of the n drawn without replacement, so n >= G.
    Interval by problem. naive: as if every problem had the mean rate; too high where problems differ."""
    teach = [pass_at_k(n, c, G) + pass_at_k(n, n - c, G) - 1 for c in counts]
    return dict(zip(("share", "low", "high"), bootstrap(teach)), naive=1 - sum(silent_share(np.mean(counts) / n, G)))


def teaching(runs, first):
    """(share, low, high) of the groups that taught in the first steps of these runs (runs.Run), the group as the unit."""
    silent = [(run.config["problems"], run.metrics[["all_wrong", "all_right"]].head(first).sum(axis=1)) for run in runs]
    groups = sum(problems * len(shares) for problems, shares in silent)
    return wilson(groups - round(sum(problems * float(shares.sum()) for problems, shares in silent)), groups)


def gained_lost(before, after):
    """(gained, lost): indices of problems never solved before and at least once after, and the other way. before, after
    (P,): counts of right samples, equally many samples on both sides."""
    before, after = _pair(before, after)
    return np.flatnonzero((before == 0) & (after > 0)).tolist(), np.flatnonzero((before > 0) & (after == 0)).tolist()


def null(counts_a, counts_b, level=0.95):
    """(problems, low, high): how many problems chance alone shows as gained, and as many as lost: half of those that
    just one of two independent sets of samples of one model solved. Interval by problem."""
    a, b = _pair(counts_a, counts_b)
    return tuple(len(a) * x for x in bootstrap(((a > 0) != (b > 0)) / 2, level))


def curve(counts, n, ks, level=0.95):
    """[(pass@k, low, high) per k] of counts (P,) of right samples out of n; pointwise intervals by problem."""
    return [bootstrap(values, level) for values in _passes(counts, n, ks)]


def curve_difference(counts_a, counts_b, n, ks, level=0.95):
    """[(pass@k of a minus b, low, high) per k], n samples each; pointwise intervals by problem, the same for both
    sides."""
    return [paired(a, b, level) for a, b in zip(_passes(counts_a, n, ks), _passes(counts_b, n, ks))]


def slope_per_doubling(counts, n, ks, level=0.95):
    """[(climb of pass@k per doubling of k, low, high)] from each k in ks to the next, larger one; intervals by
    problem."""
    if any(small >= large for small, large in zip(ks, ks[1:])):
        raise ValueError(f"ks is {list(ks)[:20]}: give numbers that grow, such as 1, 2, 4")
    values, doublings = _passes(counts, n, ks), np.diff(np.log2(ks))
    return [tuple(x / d for x in paired(b, a, level)) for a, b, d in zip(values, values[1:], doublings.tolist())]


def bound(n_problems, level=0.95):
    """Upper bound on the share of problems that could be solved when none of n drawn problems was: one-sided, exact."""
    return 1 - (1 - _inside("level", level)) ** (1 / whole_number("n_problems", n_problems, 1))


# ---- what replies are made of

def audited(rows):
    """The rows with style, distinct_numbers, what analysis.audit says (verdict, first_error, worked_columns,
    padded_columns, leading_zero) and the text of the padded columns (padding).
    Counter(audited(rows)["worked_columns"]) and the like."""
    found = [audit(text, Problem(*p)) for text, *p in zip(rows["reply"], rows["a"], rows["b"], rows["template"])]
    names = ("verdict", "first_error", "worked_columns", "padded_columns", "leading_zero")
    return rows.assign(**{name: [getattr(f, name) for f in found] for name in names},
                       padding=[_padding(reply, f) for reply, f in zip(rows["reply"], found)],
                       style=rows["reply"].map(style), distinct_numbers=rows["reply"].map(distinct_numbers))


def traits(rows, level=0.95):
    """{name: (mean, low, high)} over the replies of one step, by problem: worked, padded, leading zero (shares), right
    only with a zero (strict minus exact), paid beyond strict (contains minus strict), distinct numbers (a count per
    reply)."""
    rows = audited(rows)
    values = {"worked": rows["style"] == "worked", "padded": rows["padded_columns"] > 0,
              "leading zero": rows["leading_zero"], "right only with a zero": rows["strict"] - rows["exact"],
              "paid beyond strict": rows["contains"] - rows["strict"], "distinct numbers": rows["distinct_numbers"]}
    return {name: bootstrap(by_problem(rows.assign(value=value), "value"), level) for name, value in values.items()}


def length_split(rows_by_step, count, level=0.95):
    """A row per step of {step: rows}: mean length in tokens (length, low, high; by problem) and its growth since the
    first step in parts that add up: style (other styles at the first step's lengths), padding (columns beyond the
    longer number), rest (within a style: carries, left-out columns, cut replies). count(text): tokens of a text, 0 for
    ""."""
    out, first = [], None
    for step, rows in sorted(rows_by_step.items()):
        rows = audited(rows)
        padding = rows["padding"].map(count)
        bare = (rows["length"] - padding).groupby(rows["style"]).mean().to_dict()
        share = rows["style"].value_counts(normalize=True).to_dict()
        first = first or (bare, share, padding.mean())
        at_first = bare | first[0]                             # a style that is new: at its own length
        split = gain_split(at_first, first[1], bare, share)
        length = dict(zip(("length", "low", "high"), bootstrap(by_problem(rows, "length"), level)))
        out.append({"step": step, "n": len(rows), **length, "style": split["style"],
                    "padding": float(padding.mean() - first[2]), "rest": split["column"]})
    return out


# ---- small helpers

def _padding(reply, found):
    written = [match.group() for match in COLUMN.finditer(reply)][:found.worked_columns]
    return "".join(written[found.worked_columns - found.padded_columns:])


def _passes(counts, n, ks):
    return [[pass_at_k(n, c, k) for c in counts] for k in ks]                   # (K, P)


def _finite(values):
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
        raise ValueError("no values, or nan or inf among them: give one finite number per seed")
    return values


def _sd(values):
    return float(np.std(values - values[0], ddof=1))        # from the first on: equal values have no spread


def _inside(name, value):
    if isinstance(value, bool) or not 0 < value < 1:
        raise ValueError(f"{name} is {value!r:.60}: give a number between 0 and 1")
    return float(value)


def _pair(a, b, most=math.inf):
    """Two arrays of whole numbers from 0 to most, for the same problems."""
    a, b = (np.asarray(side, dtype=float) for side in (a, b))
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(f"got values of shape {a.shape} and {b.shape}: give one per problem, in one order")
    both = np.concatenate([a, b])
    if not np.all((both >= 0) & (both <= most) & (both == np.floor(both))):
        raise ValueError(f"there is a value that is no whole number from 0 to {most}: give counts of right replies")
    return a, b
