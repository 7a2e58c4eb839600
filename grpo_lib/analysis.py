"""What recorded replies say: pass@k, intervals, reply styles and a step-by-step audit of the written working.

Everything is a function of text and counts, so it needs no torch and gives the same numbers on every machine.
Intervals come as (estimate, low, high). Problems, never single samples, are what is resampled; a comparison resamples
the same problems for both sides. Random draws come from a generator of their own, seeded by an argument.

`audit` walks through a worked reply column by column, ones first, and names the first thing that is wrong:
    reading   the two digits are not those of the problem at that column (their order does not matter)
    carry     a carry that came is not added, or the written digit, the carry passed on or the last carry is wrong
    sum       the addends written do not make the sum written
    missing   the columns stop, or stop being columns, before the longer number's digits are used up
    copying   all columns are right, but the final answer is not there or is not the number they spell
"""

import math
import numbers
import re
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from grpo_lib.checker import DIGITS, final_number
from grpo_lib.task import whole_number

OPENING = "Add the digits from right to left."
# at most four digits a number: every match is then short, and any text is read in linear time
COLUMN = re.compile(r"\s?([0-9]{1,4}) \+ ([0-9]{1,4})(?: \+ ([0-9]{1,4}))? = ([0-9]{1,4}), "
                    r"write ([0-9]{1,4})(?:, carry ([0-9]{1,4}))?\.")
LAST_CARRY = re.compile(r"\s?Write the carry ([0-9]{1,4})\.")
ENDING = re.compile(r"\s?The answer is ([0-9]+)\.")
EQUATION = re.compile(r"[0-9]+ \+ [0-9]+ =")


# ---- pass@k and groups

def pass_at_k(n, c, k):
    """The chance that k of n samples, drawn without replacement, hold at least one of the c right ones: the unbiased
    estimate of Chen et al. (2021), from exact integers. ValueError unless 1 <= k <= n and 0 <= c <= n. Notebook 06."""
    n, c, k = whole_number("n", n, 1), whole_number("c", c, 0), whole_number("k", k, 1)
    if c > n or k > n:
        raise ValueError(f"c is {c} and k is {k}, but there are only n = {n} samples: take more samples or a smaller k")
    ways = math.comb(n, k)
    return (ways - math.comb(n - c, k)) / ways


def pass_at_k_curve(counts, n, ks):
    """Mean over problems of pass@k, one value per k (array); counts (P,): right samples out of n for each problem."""
    counts = list(counts)
    if not counts:
        raise ValueError("counts is empty: give one number of right samples per problem")
    return np.array([np.mean([pass_at_k(n, c, k) for c in counts]) for k in ks])


def silent_share(rates, G):
    """(all wrong, all right): the expected share of groups of G replies that teach nothing, from each problem's chance
    (P,) of a right reply. For true chances only: measured rates make it too high; from counts use 1 - pass_at_k(n, c, G)."""
    rates = np.atleast_1d(np.asarray(rates, dtype=float))
    if rates.size == 0 or not np.all((rates >= 0) & (rates <= 1)):
        raise ValueError("rates must hold at least one chance, each from 0 to 1")
    G = whole_number("G", G, 1)
    return float(np.mean((1 - rates) ** G)), float(np.mean(rates ** G))


# ---- intervals

def wilson(c, n, level=0.95):
    """(c/n, low, high): Wilson's score interval for c successes in n independent tries."""
    n, c = whole_number("n", n, 1), whole_number("c", c, 0)
    if c > n:
        raise ValueError(f"c is {c}, more than n = {n}")
    z = NormalDist().inv_cdf((1 + _level(level)) / 2)
    rate, scale = c / n, 1 + z * z / n
    centre = (rate + z * z / (2 * n)) / scale
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / scale
    return rate, (0.0 if c == 0 else centre - half), (1.0 if c == n else centre + half)


def bootstrap(values_by_problem, level=0.95, rounds=2000, seed=0):
    """(mean, low, high) by resampling problems: one value, or one list of values (then averaged), per problem."""
    return _resample(_problem_means("values_by_problem", values_by_problem), level, rounds, seed)


def paired(a, b, level=0.95, rounds=2000, seed=0):
    """(mean of a - b, low, high): a and b hold the same problems in the same order. a against itself is (0, 0, 0)."""
    a, b = _problem_means("a", a), _problem_means("b", b)
    if len(a) != len(b):
        raise ValueError(f"a has {len(a)} problems and b has {len(b)}: compare the same problems in the same order")
    return _resample(a - b, level, rounds, seed)


def holm(pvalues):
    """Holm's adjusted p-values (array, in the order given): reject where one is at most the family's error rate."""
    p = np.asarray(pvalues, dtype=float)
    if p.ndim != 1 or p.size == 0 or not np.all((p >= 0) & (p <= 1)):
        raise ValueError("pvalues must be a list of at least one number, each from 0 to 1")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    return adjusted


# ---- styles

def style(reply):
    """"worked" if the reply opens column addition, "direct" if it opens with an equation, else "other". By shape alone:
    right or wrong, finished or cut does not matter."""
    text = reply.lstrip()
    if text.startswith(OPENING) or COLUMN.match(text):
        return "worked"
    return "direct" if EQUATION.match(text) else "other"


def distinct_numbers(reply):
    """How many different runs of digits a reply holds, compared as text (042 and 42 are two)."""
    return len(set(DIGITS.findall(reply)))


def gain_split(start_accuracy, start_share, end_accuracy, end_share):
    """{"style", "column", "gain"}: how much of an accuracy gain comes from writing other styles (at the start's
    accuracy) and how much from each style getting better (at the end's shares). Arguments: dicts by style; a style
    absent from one counts as 0, so what a style unknown at the start gains is counted under "column"."""
    styles = set(start_share) | set(end_share)
    for name, share in (("start_share", start_share), ("end_share", end_share)):
        if not math.isclose(sum(share.values()), 1, abs_tol=1e-6):
            raise ValueError(f"{name} adds up to {sum(share.values()):.4f}, not 1: give every style's share")
    before = {s: start_accuracy.get(s, 0.0) for s in styles}
    by_style = math.fsum((end_share.get(s, 0.0) - start_share.get(s, 0.0)) * before[s] for s in styles)
    by_column = math.fsum(end_share.get(s, 0.0) * (end_accuracy.get(s, 0.0) - before[s]) for s in styles)
    return {"style": by_style, "column": by_column, "gain": by_style + by_column}


# ---- audit

@dataclass(frozen=True)
class Audit:
    """What the working of one reply is worth: verdict "sound", "padded" (right, but with columns of zeros beyond the
    longer number), "wrong-step" or "no-working"; columns as written, (x, y, carry_in, s, write, carry_out) each."""

    verdict: str
    columns: tuple = ()
    first_error: str | None = None
    leading_zero: bool = False
    worked_columns: int = 0
    padded_columns: int = 0


def audit(reply, problem):
    """Check every step of a reply to a Problem; see the top of this file for the names of errors. Notebook 06."""
    text = reply.strip()
    opened = text.startswith(OPENING)
    columns, position = _read_columns(text, len(OPENING) if opened else 0)
    final = final_number(reply)
    zero = final is not None and len(final) > 1 and final[0] == "0"
    if not columns:
        return Audit("no-working", leading_zero=zero)
    width = len(str(max(problem.a, problem.b)))
    error = _first_error(columns, problem, width) or _closing_error(text, position, columns)
    padded = max(0, len(columns) - width)
    verdict = "wrong-step" if error else "padded" if padded else "sound"
    return Audit(verdict, columns, error, zero, len(columns), padded)


def _read_columns(text, position):
    columns = []
    while match := COLUMN.match(text, position):
        x, y, carry_in, total, write, carry_out = (int(group or 0) for group in match.groups())
        columns.append((x, y, carry_in, total, write, carry_out))
        position = match.end()
    return tuple(columns), position


def _first_error(columns, problem, width):
    a, b, carry = problem.a, problem.b, 0
    for x, y, carry_in, total, write, carry_out in columns:
        (a, digit_a), (b, digit_b) = divmod(a, 10), divmod(b, 10)
        if sorted((x, y)) != sorted((digit_a, digit_b)):
            return "reading"
        if carry_in != carry:
            return "carry"
        if x + y + carry_in != total:
            return "sum"
        if (carry_out, write) != divmod(total, 10):
            return "carry"
        carry = carry_out
    return "missing" if len(columns) < width else None


def _closing_error(text, position, columns):
    """The error in what follows columns that are all right, or None."""
    carry, match = columns[-1][-1], LAST_CARRY.match(text, position)
    if int(match.group(1) if match else 0) != carry:
        return "carry"
    ending = ENDING.fullmatch(text, match.end() if match else position)
    spelled = str(carry) + "".join(str(column[4]) for column in reversed(columns))
    return None if ending and ending.group(1).lstrip("0") == spelled.lstrip("0") else "copying"


# ---- small helpers

def _level(level):
    if isinstance(level, bool) or not isinstance(level, numbers.Real) or not 0 < level < 1:
        raise ValueError(f"level is {ascii(level)[:60]}: give a number between 0 and 1, such as 0.95")
    return float(level)


def _problem_means(name, values):
    rows = [np.atleast_1d(np.asarray(row, dtype=float)) for row in values]
    if not rows or any(row.size == 0 for row in rows):
        raise ValueError(f"{name} is empty or holds a problem without values: give at least one value per problem")
    means = np.array([row.mean() for row in rows])
    if not np.all(np.isfinite(means)):
        raise ValueError(f"{name} holds nan or inf at problem {int(np.argmin(np.isfinite(means)))}: drop or repair it")
    return means


def _resample(values, level, rounds, seed):
    tail, rounds = (1 - _level(level)) / 2, whole_number("rounds", rounds, 1)
    # deviations from the first value: equal values then give exactly that value, with no width from rounding
    rng, base = np.random.default_rng(seed), values[0]
    deviations = values - base
    means = [deviations[rng.integers(len(values), size=len(values))].mean() for _ in range(rounds)]
    low, high = np.quantile(means, [tail, 1 - tail])
    centre = deviations.mean()
    return float(base + centre), float(base + min(low, centre)), float(base + max(high, centre))
