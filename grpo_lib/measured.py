"""What the committed records say about each quantity of the report: functions of reply texts and logs, none of a model.

Each function returns a `Measured`, or a function (model) -> Measured that `claims.QUANTITIES` holds; None where no record is. Where an
arm has several seeds, the seed is the unit (Student's interval over seeds); with one, the problem is (bootstrap, or Wilson for a rate).
"""
import gzip
import json
import math
from dataclasses import dataclass
from functools import lru_cache, partial, wraps

import numpy as np

from grpo_lib import compare, report, runs
from grpo_lib.analysis import audit, bootstrap, distinct_numbers, paired, pass_at_k, style, wilson
from grpo_lib.checker import format_credit as credit, last_number, rewards
from grpo_lib.config import DATA, RECIPES
from grpo_lib.loss import group_advantages
from grpo_lib.task import TEMPLATES, Problem, direct, heldout, heldout_pairs, worked as worked_reply
from grpo_lib.tokenizer import Tokenizer

START = f"warm-{RECIPES['mini']['warm'].n}"
SOURCES = {"chat": "chat", "warm": START, "grpo": "main-s1", "mixed": "warm-mixed", "mixed grpo": "mixed-s1", "null": f"{START}-null"}   # whose samples, benchmarks and talk
STEP = 100                                                      # where the ablations are compared


@dataclass(frozen=True)
class Measured:
    """A value with its 95% interval (equal ends: exact), what it counts (n) and the seeds it rests on ("1 2 3"; "" for none)."""
    value: float
    low: float
    high: float
    n: int | None = None
    seeds: str = ""


def exact(value, n=None, seeds=""):
    """A value without sampling."""
    return Measured(float(value), float(value), float(value), n, seeds)


def recorded(function):
    """Decorator: None where a record that the function needs does not exist, or where it is `mini`'s alone."""
    @wraps(function)
    def safe(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except FileNotFoundError:
            return None
    return safe


def of(function, **fixed):
    """The function with its settings, as something that takes the model's name and gives None without a record."""
    return recorded(partial(function, **fixed))


@lru_cache(maxsize=64)
def load(name, model):
    """A run, read once."""
    return runs.load(name, model, quiet=True)


@lru_cache(maxsize=16)
def arm(name, model):
    """All recorded seeds of an arm, committed ones only: {seed: Run}."""
    return {run.config["seed"]: run for run in runs.seeds(name, model, quiet=True)}


def over(found, estimate):
    """Measured of {seed: run} by estimate(run) -> (value, low, high, n): over seeds, or the single seed's own interval."""
    each = {seed: estimate(run) for seed, run in found.items()}
    n, seeds = next(iter(each.values()))[3], " ".join(map(str, each))
    triple = compare.t_interval([e[0] for e in each.values()]) if len(each) > 1 else next(iter(each.values()))[:3]
    if all(0 <= e[1] and e[2] <= 1 for e in each.values()):                 # shares: Student knows no bounds
        triple = np.clip(triple, 0, 1)
    return Measured(*map(float, triple), n, seeds)


def rate(rows, kind="strict"):
    """(rate, low, high, n) of greedy rows, one a problem."""
    return *wilson(int(rows[kind].sum()), len(rows)), len(rows)


def mean(rows, values):
    """(mean, low, high, n) of a value per sampled row; problems are resampled. All 0: up to what that many problems allow."""
    problems = report.by_problem(rows.assign(value=values), "value")
    if not any(map(any, problems)):
        return 0.0, 0.0, compare.bound(len(problems)), len(rows)
    return *bootstrap(problems), len(rows)


def part(run, kind, step=None):
    """(value, low, high, n): share right of the greedy or the sampled replies at a step."""
    return rate(report.greedy(run, step)) if kind == "greedy" else mean(report.sampled(run, step), report.sampled(run, step)["strict"])


def silent(rows, group=8):
    """(share of groups all wrong, low, high, n), unbiased, by problem."""
    counts = [(len(v), sum(v)) for v in report.by_problem(rows)]
    return *bootstrap([1 - pass_at_k(n, c, group) for n, c in counts]), len(rows)


# ---- notebooks 01 and 02

def both(function):
    """A quantity of the task alone, the same for every model that reads it."""
    return lambda model: function() if model == "mini" else None


wordings = both(lambda: exact(len(TEMPLATES)))
held_out = lambda key: both(lambda: exact(len(heldout(key))))


@both
def overlap():
    """How many held-out pairs stand among the recorded training problems; n: pairs looked at."""
    drawn = set()
    for name in ("main", "nokl"):
        for run in arm(name, "mini").values():
            rows = run.replies[run.replies["set"] == "train"]
            drawn |= {(min(a, b), max(a, b)) for a, b in zip(rows["a"], rows["b"])}
    return exact(len(drawn & heldout_pairs()), len(drawn))


@both
def truth_table():
    """Cells of the article's truth table (five replies, two checkers) that our checkers give."""
    said = ("{0} + {1} = {2}. The answer is {2}.", "{0} + {1} = {2}.", "The answer is {2}", "The answer is {2}. Or maybe 124.", "The answer is 132.")
    article = {"strict": [1, 0, 0, 0, 0], "contains": [1, 1, 1, 1, 0]}
    replies = [text.format(48, 75, 123) for text in said]
    return exact(sum(a == b for kind in article for a, b in zip(article[kind], rewards(replies, [123] * 5, kind))), 10)


@both
def printed_examples():
    """Both styles of 48 + 75 checked step by step; their exact text is held by tests/test_task.py."""
    sound = audit(worked_reply(48, 75), Problem(48, 75, 0)).verdict == "sound"
    return exact(sound + (direct(48, 75) == "48 + 75 = 123. The answer is 123."), 2)


@recorded
def tokens_per_digit(model):
    """Tokens of a number from 0 to 999 in a prompt, per digit; the interval is the range."""
    if model != "mini":
        return None
    tokenizer = Tokenizer(DATA / "mini")
    pieces = [len(tokenizer.encode(" " + str(n))) / len(str(n)) for n in range(1000)]
    return Measured(float(np.mean(pieces)), min(pieces), max(pieces), len(pieces))


@recorded
def prompt_tokens(model):
    """Tokens of a held-out prompt with its chat template."""
    if model != "mini":
        return None
    tokenizer = Tokenizer(DATA / "mini")
    lengths = [len(tokenizer.prompt(p.prompt)) for p in heldout(3)]
    return Measured(*map(float, bootstrap(lengths)), len(lengths))


def _chat_greedy(model, kind):
    rows = report.greedy(load("chat", model))
    if kind == "last":
        rows = rows.assign(last=[last_number(t, a + b) for t, a, b in zip(rows["reply"], rows["a"], rows["b"])])
    return Measured(*rate(rows, kind))


chat_greedy = lambda kind: of(_chat_greedy, kind=kind)
chat_sampled = lambda kind: of(lambda model: Measured(*mean(rows := report.sampled(load("chat", model)), rows[kind])))


@recorded
def chat_length(model):
    """Tokens of the chat model's greedy reply to a sum."""
    rows = report.greedy(load("chat", model))
    return Measured(*bootstrap(rows["length"]), len(rows))


@both
def silent_advantage():
    """The largest advantage in a group in which nobody is paid."""
    return exact(max(abs(a) for std in (True, False) for a in group_advantages([[0.0] * 8], std)[0].tolist()))


@recorded
def one_digit(model):
    """Share of one-digit sums' samples that contains pays."""
    rows = report.sampled(load("chat", model), key="1")
    return Measured(*mean(rows, rows["contains"]))


def informative(rows, group=8):
    """Measured share of groups whose rewards differ, by problem; `value` is 0 or 1 a reply."""
    values = report.by_problem(rows, "value")
    return Measured(*bootstrap([pass_at_k(len(v), int(sum(v)), group) + pass_at_k(len(v), len(v) - int(sum(v)), group) - 1 for v in values]), len(rows))


@recorded
def curriculum(model):
    """Share of groups of 8 that teach, on one-digit sums under contains."""
    rows = report.sampled(load("chat", model), key="1")
    return informative(rows.assign(value=rows["contains"]))


@recorded
def format_credit(model):
    """Share of groups of 8 in which part of the replies gets credit for the format."""
    rows = report.sampled(load("chat", model))
    paid = rewards(rows["reply"].tolist(), (rows["a"] + rows["b"]).tolist(), credit())
    return informative(rows.assign(value=[int(p > 0) for p in paid]))


# ---- notebook 03

def _warm(model, name, what):
    run = load(name, model)
    if what == "greedy":
        return Measured(*rate(report.greedy(run)), str(run.config["seed"]))
    rows = report.sampled(run)
    return Measured(*(silent(rows) if what == "all_wrong" else mean(rows, rows["strict"])), str(run.config["seed"]))


warm = lambda n, what: of(_warm, name=f"warm-{n}", what=what)
start = lambda what: of(_warm, name=START, what=what)
mixed_start = lambda what: of(_warm, name="warm-mixed", what=what)
_of_start = lambda f: of(lambda model: exact(f(load(START, model))))
start_examples = _of_start(lambda run: run.config["n"])
start_steps = _of_start(lambda run: len(run.metrics))
start_seconds = _of_start(lambda run: run.provenance["train_seconds"])
sum_share = of(lambda model: exact(load("warm-mixed", model).config["sum_share"]))


@recorded
def start_worked(model):
    """Share of the start's samples that are worked."""
    rows = report.sampled(load(START, model))
    return Measured(*mean(rows, rows["reply"].map(style).eq("worked").astype(float)), "1")


@recorded
def worked_better(model):
    """Accuracy of worked minus direct replies; problems resampled, each with both its shares."""
    rows = report.sampled(load(START, model))
    rows = rows.assign(style=rows["reply"].map(style))
    table = np.array([[sum(part[part["style"] == s]["strict"]) for s in ("worked", "direct")] + [sum(part["style"] == s) for s in ("worked", "direct")]
                      for _, part in rows.groupby(["a", "b"], sort=False)], float)                     # (P, 4): right and all, by style
    gap = lambda t: t[0] / t[2] - t[1] / t[3]
    rng = np.random.default_rng(0)
    drawn = [gap(table[rng.integers(len(table), size=len(table))].sum(0)) for _ in range(2000)]
    return Measured(float(gap(table.sum(0))), *map(float, np.quantile(drawn, [0.025, 0.975])), len(rows), "1")


# ---- notebook 04

def advantage(right, std, who):
    """The advantage of a right or wrong reply in a group of 8 with so many right."""
    def value():
        adv = group_advantages([[1.0] * right + [0.0] * (8 - right)], std)[0].tolist()
        return exact(adv[0 if who == "right" else -1])
    return both(value)


setting = lambda name: both(lambda: exact(getattr(RECIPES["mini"]["main"], name)))
replies_sampled = both(lambda: exact(RECIPES["mini"]["main"].steps * RECIPES["mini"]["main"].problems * RECIPES["mini"]["main"].group))


def _logged(model, name, f, n=None):
    return over(arm(name, model), lambda run: (*[f(run)] * 3, len(run.metrics)))


def clipped(name, how):
    """Share of reply tokens outside the clip band over the logged steps of an arm: their mean or the largest."""
    return of(_logged, name=name, f=lambda run: float(getattr(run.metrics["clipped"], how)()))


def minutes(name):
    """Minutes of a recorded run: of every seed of an arm, or of a warm start's training."""
    if name.startswith("warm"):
        return of(lambda model: exact(load(name, model).provenance["train_seconds"] / 60))
    return of(_logged, name=name, f=lambda run: run.provenance["seconds"] / 60)


@recorded
def mixed_minutes(model):
    """Minutes of the mixed arm's first 250 steps, evaluations left out."""
    log = load("mixed-s1", model).metrics.head(250)
    return exact((log["seconds_sample"] + log["seconds_train"]).sum() / 60)


def pilots(model):
    """The recorded pilots, slowest rate first."""
    names = {p.parent.name for p in (runs.RECORDED / model).glob("pilot-*/run.json")}
    if not names:
        raise FileNotFoundError("no pilots")
    return sorted((load(name, model) for name in names), key=lambda run: run.config["lr"])


@recorded
def pilot_ratio(model):
    """Accuracy on dev after the pilots over that of their start; the interval is the pilots' range."""
    found = pilots(model)
    start, end = ([run.at(step)["dev"]["strict"] for run in found] for step in (0, found[0].config["steps"]))
    return Measured(float(np.mean(end) / np.mean(start)), min(end) / np.mean(start), max(end) / np.mean(start), found[0].at(0)["dev"]["n"], "1")


@recorded
def pilot_spread(model):
    """Best minus worst pilot on dev; the interval takes both as independent."""
    found = sorted(run.at()["dev"]["strict"] for run in pilots(model))
    n = pilots(model)[0].at()["dev"]["n"]
    (a, a_low, a_high), (b, b_low, b_high) = (wilson(round(x * n), n) for x in (found[-1], found[0]))
    return Measured(a - b, a - b - math.hypot(a - a_low, b_high - b), a - b + math.hypot(a_high - a, b - b_low), n, "1")


@recorded
def pilot_drift(model):
    """Drift of the fastest pilot over the slowest one's."""
    found = pilots(model)
    value = found[-1].at()["drift"] / found[0].at()["drift"]
    return exact(value, len(found), "1")


end = lambda kind: at(kind, None)
at = lambda kind, step: of(lambda model: over(arm("main", model), lambda run: part(run, kind, step)))


def gain(kind):
    """End minus start, the same problems."""
    def one(run):
        first, last = report.greedy(run, 0), report.greedy(run)
        return *paired(last["strict"].tolist(), first["strict"].tolist()), len(last)
    return of(lambda model: over(arm("main", model), one))


@recorded
def largest_fall(model):
    """The largest fall of greedy accuracy from one evaluation to the next."""
    fall = lambda run: max(0.0, max(a["greedy"]["strict"] - b["greedy"]["strict"] for a, b in zip(run.evals, run.evals[1:])))
    return over(arm("main", model), lambda run: (*[fall(run)] * 3, 500))


@recorded
def sampling_share(model):
    """Sampling's share of the seconds of all steps."""
    share = lambda log: float(log["seconds_sample"].sum() / (log["seconds_sample"] + log["seconds_train"]).sum())
    return over(arm("main", model), lambda run: (*[share(run.metrics)] * 3, len(run.metrics)))


peak_gib = of(_logged, name="main", f=lambda run: float(run.metrics["peak_mib"].max()) / 1024)


# ---- notebook 05

def _difference(model, name, kind):
    other, main = arm(name, model), arm("main", model)
    shared = {seed: (other[seed], main[seed]) for seed in other if seed in main}
    if not shared:
        raise FileNotFoundError(f"{name} shares no seed with main")

    def one(pair):
        pick = report.greedy if kind == "greedy" else report.sampled
        a, b = (report.by_problem(pick(run, STEP)) for run in pair)
        return *paired(a, b), len(pick(pair[0], STEP))
    return over(shared, one)


difference = lambda name, kind: of(_difference, name=name, kind=kind)


def _ratio(model, top, bottom, f):
    """f of one arm over f of another at the seeds both have; a single pair is taken without an interval."""
    a, b = ({seed: f(run) for seed, run in arm(name, model).items()} for name in (top, bottom))
    shared = sorted(set(a) & set(b))
    if not shared:
        raise FileNotFoundError(f"{top} shares no seed with {bottom}")
    triple = compare.paired_ratio(a, b)
    return Measured(*(triple if len(shared) > 1 else triple[:1] * 3), None, " ".join(map(str, shared)))


drift_ratio = of(_ratio, top="nokl", bottom="main", f=lambda run: run.at(STEP)["drift"])
gradient_ratio = of(_ratio, top="main", bottom="drgrpo", f=lambda run: float(run.metrics["grad_norm"].head(STEP).mean()))


def distinct(name):
    """Mean count of different numbers in a sampled reply at step 100."""
    def one(run):
        rows = report.sampled(run, STEP)
        return mean(rows, rows["reply"].map(distinct_numbers).astype(float))
    return of(lambda model: over(arm(name, model), one))


def reward_gap(pick):
    """The contains arm's sampled reward minus its strict accuracy: least or most of the evaluations after the start."""
    gaps = lambda run: [e["sampled"]["contains"] - e["sampled"]["strict"] for e in run.evals if e["step"]]
    return of(lambda model: over(arm("contains", model), lambda run: (*[pick(gaps(run))] * 3, run.at()["sampled"]["n"])))


# ---- notebook 06

@lru_cache(maxsize=8)
def right_counts(source, model):
    """(right samples of each held-out sum, as a tuple of counts; samples a sum) of a source's recorded samples."""
    rows = report.sampled(load(f"samples-{SOURCES[source]}", model), 0)
    values = report.by_problem(rows)
    return tuple(int(sum(v)) for v in values), len(values[0])


def _passes(model, source, k):
    counts, n = right_counts(source, model)
    return Measured(*bootstrap([pass_at_k(n, c, k) for c in counts]), n * len(counts), "1")


passes = lambda source, k: of(_passes, source=source, k=k)


def _pass_gain(model, before, after):
    (a, n), (b, _) = right_counts(before, model), right_counts(after, model)
    return Measured(*paired([pass_at_k(n, c, 64) for c in b], [pass_at_k(n, c, 64) for c in a]), n * len(a), "1")


pass_gain = lambda before, after: of(_pass_gain, before=before, after=after)


@recorded
def crossings(model):
    """At how many k up to 64 the start's pass@k lies above that after GRPO."""
    (a, n), (b, _) = right_counts("warm", model), right_counts("grpo", model)
    curve = lambda counts: np.array([np.mean([pass_at_k(n, c, k) for c in counts]) for k in range(1, 65)])
    return exact(int((curve(a) > curve(b)).sum()), n * len(a), "1")


def _gained(model, before, after, which):
    (a, n), (b, _) = right_counts(before, model), right_counts(after, model)
    hits = compare.gained_lost(a, b)[which]
    value, low, high = wilson(len(hits), len(a))
    return Measured(*(x * len(a) for x in (value, low, high)), n * len(a), "1")


gained = lambda before, after, which: of(_gained, before=before, after=after, which=which)


@recorded
def most_gained(model):
    """Most right samples of 64 on a problem that the start never solved."""
    (a, n), (b, _) = right_counts("warm", model), right_counts("grpo", model)
    return exact(max([b[i] for i in compare.gained_lost(a, b)[0]], default=0), n, "1")


@recorded
def slope(model):
    """Climb of the start's pass@k from k = 32 to 64."""
    counts, n = right_counts("warm", model)
    return Measured(*compare.slope_per_doubling(counts, n, (32, 64))[0], n * len(counts), "1")


def length(step, name="main"):
    """Mean length of sampled replies at a step."""
    def one(run):
        rows = report.sampled(run, step)
        return mean(rows, rows["length"])
    return of(lambda model: over(arm(name, model), one))


@recorded
def growth(model):
    """Mean length of sampled replies, end minus start; the same problems."""
    def one(run):
        a, b = (report.by_problem(report.sampled(run, step), "length") for step in (None, 0))
        return *paired(a, b), run.at()["sampled"]["n"]
    return over(arm("main", model), one)


def worked(step):
    """Share of worked replies among samples at a step."""
    def one(run):
        rows = report.sampled(run, step)
        return mean(rows, rows["reply"].map(style).eq("worked").astype(float))
    return of(lambda model: over(arm("main", model), one))


@recorded
def early_style(model):
    """How much of the change in the share of worked replies is done at the first evaluation, step 25."""
    share = lambda run: (run.at(25)["sampled"]["worked"] - run.at(0)["sampled"]["worked"]) / (run.at()["sampled"]["worked"] - run.at(0)["sampled"]["worked"])
    return over(arm("main", model), lambda run: (*[share(run)] * 3, run.at()["sampled"]["n"]))


def long_replies(model, source, digits):
    """(greedy rows, sampled rows) on the sums of four or five digits; some models have them in a record of their own, samples-...-long."""
    name = f"samples-{SOURCES[source]}"
    for tried in (name, f"{name}-long"):
        run = load(tried, model)
        rows = report.greedy(run, 0, str(digits)), report.sampled(run, 0, str(digits))
        if len(rows[0]):
            break
    return rows


def _long_right(model, source, digits):
    rows = long_replies(model, source, digits)[1]
    if not len(rows):
        return None
    return Measured(*mean(rows, rows["strict"]), "1")


long_right = lambda source, digits: of(_long_right, source=source, digits=digits)


def _three_columns(model, source):
    found = compare.audited(long_replies(model, source, 4)[0])["worked_columns"] == 3
    return Measured(*wilson(int(found.sum()), len(found)), len(found), "1")


three_columns = lambda source: of(_three_columns, source=source)


def _last_greedy(run):
    return compare.audited(report.greedy(run, STEP if run.config.get("steps") == STEP else None))


def leading_zero(name):
    """Share of greedy answers at an arm's end whose final number begins with a zero."""
    return of(lambda model: over(arm(name, model), lambda run: rate(_last_greedy(run), "leading_zero")))


def only_zero(name):
    """Share of greedy replies at an arm's end that strict pays and exact does not."""
    return of(lambda model: over(arm(name, model), lambda run: rate((rows := report.greedy(run)).assign(zero=rows["strict"] - rows["exact"]), "zero")))


def _padded(model, source):
    rows = compare.audited(report.greedy(load(SOURCES[source], model)))
    return Measured(*rate(rows.assign(padded=rows["padded_columns"] > 0), "padded"), "1")


padded = lambda source: of(_padded, source=source)


@lru_cache(maxsize=2)
def audit_rows(model):
    """The first 8 samples of each held-out sum after GRPO, with what compare.audited says of them (DataFrame)."""
    rows = report.sampled(load(f"samples-{SOURCES['grpo']}", model), 0)
    return compare.audited(rows[rows["sample"] < 8])


def _audit(model, what):
    rows = audit_rows(model)
    right = rows[rows["strict"] == 1]
    if what == "right":
        return Measured(*(len(rows) * x for x in mean(rows, rows["strict"])[:3]), len(rows), "1")
    is_so = {"sound": right["verdict"].eq("sound"), "padded": right["verdict"].eq("padded"), "unsound": right["verdict"].isin(["wrong-step", "no-working"])}[what]
    return Measured(*mean(right, is_so.astype(float))[:3], len(right), "1")



audit_share = lambda what: of(_audit, what=what)


# ---- notebook 07

@lru_cache(maxsize=32)
def record(kind, source, model):
    """(scores, rows) of a benchmark ("benchmarks") or chat ("talk") record."""
    folder = DATA / kind / model / SOURCES[source]
    if not (folder / "run.json").is_file():
        raise FileNotFoundError(f"no record {folder}")
    part = "picks.jsonl.gz" if kind == "benchmarks" else "replies.jsonl.gz"
    text = gzip.decompress((folder / part).read_bytes()).decode("utf-8")
    return json.loads((folder / "scores.json").read_text(encoding="utf-8")), [json.loads(line) for line in text.split("\n") if line]


def picked(model, task, source):
    """{id of a question: 1.0 where the model picked right, else 0.0}, by the score that the article reports for the task."""
    scores, rows = record("benchmarks", source, model)
    kind = scores[task]["reported"]
    return {row["id"]: float(row[kind] == row["gold"]) for row in rows if row["task"] == task}


def _benchmark(model, task, before, after):
    a, b = picked(model, task, after), picked(model, task, before)
    return Measured(*paired([a[i] for i in b], list(b.values())), len(b), "1")


benchmark = lambda task, before, after: of(_benchmark, task=task, before=before, after=after)


def unseen(source, model):
    """The rows of a chat record's 100 unseen prompts."""
    return [row for row in record("talk", source, model)[1] if row["kind"] == "unseen"]


def _share_of_talk(model, source, test):
    rows = unseen(source, model)
    return Measured(*wilson(sum(map(test, rows)), len(rows)), len(rows), "1")


sums_said = lambda source: of(_share_of_talk, source=source, test=lambda row: style(row["reply"]) != "other")
talk_ended = lambda source: of(_share_of_talk, source=source, test=lambda row: row["ended"])
talk_length = lambda source: of(lambda model: Measured(*bootstrap([row["length"] for row in unseen(source, model)]), 100, "1"))


def _subtracts(model, source):
    """1 if the reply to a subtraction is a sum of its two numbers, worked or direct, right or not; by its style."""
    asked = [row for row in record("talk", source, model)[1] if " - " in row["prompt"]]
    return exact(np.mean([style(row["reply"]) != "other" for row in asked]), len(asked), "1")


subtracts = lambda source: of(_subtracts, source=source)
mixed_end = of(lambda model: over(arm("mixed", model), lambda run: part(run, "greedy", 250)))


@recorded
def still_rising(model):
    """Reward of steps 201 to 250 minus that of 151 to 200; the interval takes steps as independent."""
    def one(run):
        r = run.metrics["reward"].to_numpy()[150:250]
        a, b = r[50:], r[:50]
        half = 1.96 * math.sqrt(a.var(ddof=1) / 50 + b.var(ddof=1) / 50)
        return float(a.mean() - b.mean()), float(a.mean() - b.mean() - half), float(a.mean() - b.mean() + half), 100
    return over(arm("mixed", model), one)


def nothing(model):
    """No measurement: the claim is about published work."""
    return None
