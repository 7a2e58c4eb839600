"""The article's claims beside what our records say: one row a quantity and model, a verdict computed from intervals.

`QUANTITIES` lists every number that the article states, as printed there, with the function of the records (`measured`) that is its
counterpart. `python -m grpo_lib report` writes data/report.csv and README's table; notebook 07 shows them. A verdict is
    same             the 95% interval of the difference (the article's sampling error and rounding included) contains 0, and our
                     half-width is smaller than the effect: the article's value against `null`, or `scale` where that is given
    same direction   the effect has the article's sign, and our interval excludes `null` (a level, such as a setting or a start's
                     rate, is no effect: its null is None, and it is the same or it differs)
    differs          anything else that was measured
    not measured     no record, or no figure and no direction in the article
"""
import math
from dataclasses import dataclass
from typing import Callable

import pandas as pd

from grpo_lib import measured as m
from grpo_lib import runs
from grpo_lib.config import DATA, ROOT

REPORT = DATA / "report.csv"
MODELS = ("smollm2", "mini")
MARKS = ("<!-- claims -->", "<!-- end of claims -->")
TEXTS = {
    "C01": "sums of 1 to 3 digits, asked three ways", "C02": "fixed held-out sets", "C03": "strict and contains", "C04": "two reply styles",
    "C05": "the chat model cannot add", "C06": "it talks instead", "C07": "no reward, no gradient", "C08": "an easier curriculum",
    "C09": "three honest fixes", "C10": "a start from 1,000 examples", "C11": "the start", "C12": "styles at the start",
    "C13": "advantages", "C14": "the loss", "C15": "one update a batch", "C16": "pilots over the learning rate", "C17": "the main run",
    "C18": "a noisy curve", "C19": "time and memory", "C20": "ablations tie", "C21": "no KL drifts", "C22": "Dr. GRPO's gradients",
    "C23": "the clip acts with 4 updates", "C24": "contains is not gamed", "C25": "group size", "C26": "pass@k", "C27": "problems gained and lost",
    "C28": "slope per doubling", "C29": "length is style", "C30": "longer numbers", "C31": "leading zeros", "C32": "the audit",
    "C33": "benchmarks", "C34": "forgetting", "C35": "a mixed warm start", "C36": "what mixing costs", "C37": "chat replies that end",
    "C38": "published settings"}


# Where `mini` tells another story: why, and where to see the evidence. A test holds that each claim that differs has its words here.
WHY = {
    "C05": "The numbers in `mini`'s talk have nothing to do with the sum, so its last one is hardly ever right; SmolLM2, which restates the problem, is right that way now and then (notebook 02, replies).",
    "C06": "Another model and another tokenizer: `mini` was tuned on short chats and ends its replies sooner (notebook 02, lengths).",
    "C09": "A chat model that hardly ever writes the closing phrase earns next to nothing for the format; on one-digit sums groups do disagree, but `mini` is paid no more than chance there (notebook 02).",
    "C11": "`mini` needs more examples than the 88M model to reach a start that GRPO can use, so the number was chosen on dev by the sampled rate; the start taken is somewhat stronger than the article's (notebook 03).",
    "C12": "Half the examples are worked, and `mini` samples the styles about evenly; that worked replies are right far more often holds (notebook 03).",
    "C16": "Our fastest pilot is past the best rate: it drifts furthest and gains least, where the article's three still tied (notebook 04).",
    "C17": "The rate was chosen among 5e-5, 1e-4 and 2e-4 for this model, none near the article's was tried; its tokenizer needs fewer tokens for a prompt; the recorded runs took one thread each of a server's processor, beside other work (notebook 04; README, speed).",
    "C18": "Our runs stay high once they are high: at the chosen rate none falls as the article's does between two evaluations. A run at twice the rate did (data/LOG.md).",
    "C19": "On a CPU thread the products of training outweigh sampling, which reads each prompt once for its whole group; the model is forty times smaller (README, speed).",
    "C20": "The article's tie is within the interval of its two runs; our unit is the seed, and a few seeds cannot show a tie that tight. No arm but the coin's is told from main (notebook 05).",
    "C21": "In most pairs no KL drifts further, as in the article, but not in all, and not beyond what seeds do: one recipe's drift differs more between two seeds than the KL term moves it. The interval holds 1 and the article's ratio alike (notebook 05).",
    "C24": "No lists of guesses here either. Our replies end in the closing phrase, so `contains` pays little that `strict` would not; that little grows slightly under `contains` and shrinks under main. Main's replies hold a quarter of a number less than the article's (notebook 05).",
    "C26": "Our start is stronger in every column: at 64 tries it already solves most problems, so GRPO has less to add there (notebook 06).",
    "C27": "The mixed start is stronger than the article's, so fewer problems are left to gain; the gains then have the article's sign, and the losses its size (notebook 06).",
    "C29": "Our sums are shorter in tokens: hardly a reply is padded and the tokenizer knows the task's words whole (notebook 06).",
    "C30": "Greedily, most of our start's replies to four-digit sums work no column, and after GRPO few work a fourth; the few sampled replies that are paid are luck: the closing line adds a digit that no column wrote (notebook 06 shows them).",
    "C31": "The loophole was not found because there was next to nothing to reinforce: a leading zero is a rare slip of `mini`'s start, as the article's mixed start wrote none (notebook 06).",
    "C32": "Hardly any padding, and a stronger end: nearly every right reply has every column right (notebook 06).",
    "C34": "Every reply is a sum here too, but a shorter one: a chat prompt holds no digits, and nearly every reply works a single column (notebook 07).",
    "C35": "`mini` needs three times the sums among chats to reach a usable start, and these runs took one thread each beside other work (data/LOG.md, notebook 07).",
    "C36": "Our mixed start was made until GRPO could use it, so it is stronger than the article's; what GRPO then adds has the article's direction (notebook 07).",
    "C37": "`mini` was tuned on short chats that end, and went on reading them in the mixed start; the article's model seldom ended its own (notebook 07).",
}


@dataclass(frozen=True)
class Quantity:
    """One number of a claim: `article` as printed there (None: not stated), `measure(model)` -> measured.Measured or None."""
    claim: str
    name: str
    article: str | None
    measure: Callable
    n: int | None = None            # problems behind the article's rate, for its sampling error
    error: float = 0.0              # half-width of the article's own 95% interval, where it is no plain rate
    null: float | None = 0.0        # what "no effect" would be; None for a level
    scale: float | None = None      # the effect that a half-width must be under, where null is no yardstick
    sign: int | None = None         # the direction, where the article gives one without a figure

    @property
    def unit(self):
        """How values are printed: "%" or ""."""
        return "%" if self.article and self.article.endswith("%") or self.article is None and "share" in self.name else ""

    @property
    def value(self):
        """The article's number; a percentage as a share."""
        return None if self.article is None else parse(self.article)[0]

    def article_error(self):
        """Half-width of the article's 95% interval: sampling, or as stated, and rounding to the printed digits."""
        value, rounding = parse(self.article)
        return rounding + (1.96 * math.sqrt(value * (1 - value) / self.n) if self.n else self.error)


def parse(text):
    """(value, half a unit of the last printed digit) of a number such as "17.8%", "-10.4%", "64,000" or "2.64"."""
    bare = text.rstrip("%").replace(",", "")
    unit = 10.0 ** -len(bare.partition(".")[2]) / 2
    part = 100 if text.endswith("%") else 1
    return float(bare) / part, (unit if "." in bare or part == 100 or abs(float(bare)) >= 2 else 0.0) / part


def verdict(quantity, found):
    """The verdict of a quantity on what was found (Measured or None)."""
    if found is None or quantity.article is None and quantity.sign is None:
        return "not measured"
    beyond = lambda: found.low > quantity.null if found.value > quantity.null else found.high < quantity.null
    if quantity.article is None:
        return "same direction" if (found.value - quantity.null) * quantity.sign > 0 and beyond() else "differs"
    effect = quantity.value - (quantity.null or 0.0)
    toward = found.high - found.value if quantity.value > found.value else found.value - found.low      # the side that faces the article
    scale = abs(effect) if quantity.scale is None else quantity.scale
    if abs(found.value - quantity.value) <= math.hypot(toward, quantity.article_error()) + 1e-9 and (toward < scale or toward == 0):
        return "same"
    agrees = quantity.null is not None and effect * (found.value - quantity.null) > 0 and beyond()
    return "same direction" if agrees else "differs"


Q = Quantity
SIZES = dict(scale=0.05)             # for a rate that the article has at 0, or a tie: five points would be news
LEVEL = dict(null=None)             # a setting, a start's rate, a length: no effect, so no direction
QUANTITIES = (
    Q("C01", "wordings", "3", m.wordings, **LEVEL), Q("C01", "tokens for each digit of a prompt", "1", m.tokens_per_digit, **LEVEL),
    Q("C02", "held-out sums of up to three digits", "500", m.held_out(3), **LEVEL), Q("C02", "held-out sums of four digits", "200", m.held_out(4), **LEVEL),
    Q("C02", "held-out sums of five digits", "200", m.held_out(5), **LEVEL), Q("C02", "held-out pairs met in training", "0", m.overlap, scale=1),
    Q("C03", "truth table: cells as in the article, of 10", "10", m.truth_table, **LEVEL), Q("C04", "printed examples reproduced, of 2", "2", m.printed_examples, **LEVEL),
    Q("C05", "chat model, greedy: share right, strict", "0%", m.chat_greedy("strict"), n=500, **SIZES),
    Q("C05", "chat model, greedy: share right by last number", "1.6%", m.chat_greedy("last"), n=500, **SIZES, **LEVEL),
    Q("C05", "chat model, sampled: share right, strict", "0%", m.chat_sampled("strict"), n=200, **SIZES),
    Q("C06", "tokens of a chat model's greedy reply", "136", m.chat_length, **LEVEL),
    Q("C07", "largest advantage in a group that is paid nothing", "0", m.silent_advantage, scale=1),
    Q("C08", "one-digit sums, contains: share of samples right", "3%", m.one_digit, n=55, **LEVEL),
    Q("C09", "curriculum: share of informative groups, one-digit sums, contains", None, m.curriculum, sign=1),
    Q("C09", "format credit: share of informative groups", None, m.format_credit, sign=1),
    Q("C10", "1,000 examples: share of samples right", "0.6%", m.warm(1000, "sampled"), n=200, **SIZES, **LEVEL),
    Q("C10", "1,000 examples: share of groups of 8 all wrong", "96.5%", m.warm(1000, "all_wrong"), n=200, **LEVEL),
    Q("C11", "the start's examples", "4,000", m.start_examples, **LEVEL), Q("C11", "the start's optimizer steps", "63", m.start_steps, **LEVEL),
    Q("C11", "the start's seconds of training", "34", m.start_seconds, **LEVEL),
    Q("C11", "start: share right, greedy", "17.8%", m.start("greedy"), n=500, **LEVEL), Q("C11", "start: share right, sampled", "11.4%", m.start("sampled"), n=200, **LEVEL),
    Q("C11", "start: share of groups of 8 all wrong", "64%", m.start("all_wrong"), n=200, **LEVEL),
    Q("C12", "start: share of replies worked", "59%", m.start_worked, n=200, null=0.5), Q("C12", "start: worked right more often than direct", None, m.worked_better, sign=1),
    *(Q("C13", f"advantage of a {who} reply, {c} of 8 right, {'with' if std else 'without'} std", text, m.advantage(c, std, who), scale=1)
      for std, pairs in ((True, ("2.64", "-0.38", "1.29", "-0.77", "0.00")), (False, ("0.88", "-0.12", "0.62", "-0.38", "0.00")))
      for (c, who), text in zip(((1, "right"), (1, "wrong"), (3, "right"), (3, "wrong"), (8, "right")), pairs)),
    Q("C14", "clip range", "0.2", m.setting("eps"), **LEVEL), Q("C14", "weight of the KL term", "0.04", m.setting("beta"), **LEVEL),
    Q("C15", "one update: share of reply tokens clipped", "0%", m.clipped("main", "max"), **SIZES),
    Q("C16", "pilots: accuracy after 40 steps over the start's", "2", m.pilot_ratio, null=1, error=0.3),
    Q("C16", "pilots: largest difference between two", "0%", m.pilot_spread, error=0.08, **SIZES),
    Q("C16", "pilots: drift of the fastest over the slowest", None, m.pilot_drift, null=1, sign=1),
    Q("C17", "tokens of a prompt", "15", m.prompt_tokens, **LEVEL), Q("C17", "replies sampled in training", "64,000", m.replies_sampled, **LEVEL),
    Q("C17", "learning rate", "0.00001", m.setting("lr"), **LEVEL), Q("C17", "minutes of the main run", "20", m.minutes("main"), **LEVEL),
    Q("C17", "end: share right, greedy", "77.4%", m.end("greedy"), n=500), Q("C17", "gain in share right, greedy", "59.6%", m.gain("greedy"), error=0.05),
    Q("C18", "step 175: share right, greedy", "67.4%", m.at("greedy", 175), n=500, **LEVEL), Q("C18", "step 200: share right, greedy", "54.4%", m.at("greedy", 200), n=500, **LEVEL),
    Q("C18", "largest fall in share right between evaluations, greedy", "13.0%", m.largest_fall, error=0.06),
    Q("C19", "generation's share of a step's time", "50%", m.sampling_share, **LEVEL), Q("C19", "peak memory, GiB", "6.1", m.peak_gib, **LEVEL),
    *(Q("C20", f"step 100, share right, greedy: {words} minus main", "0%", m.difference(arm, "greedy"), error=0.062, **SIZES)
      for arm, words in (("nokl", "no KL"), ("drgrpo", "Dr. GRPO"), ("contains", "contains"))),
    Q("C20", "step 100, share right, greedy: 4 updates minus main", None, m.difference("updates4", "greedy"), sign=1),
    Q("C20", "minutes of a 100-step run", "8.5", m.minutes("nokl"), error=0.5, **LEVEL),
    Q("C21", "drift without KL over main's, step 100", "1.47", m.drift_ratio, null=1), Q("C21", "no KL minus main, share right, sampled, step 100", "0%", m.difference("nokl", "sampled"), error=0.062, **SIZES),
    Q("C22", "gradient norm, main over Dr. GRPO", "7", m.gradient_ratio, null=1),
    Q("C23", "4 updates: share of reply tokens clipped", "0.47%", m.clipped("updates4", "mean")),
    Q("C24", "distinct numbers in a reply, contains", "6.9", m.distinct("contains"), **LEVEL), Q("C24", "distinct numbers in a reply, main", "7.1", m.distinct("main"), **LEVEL),
    Q("C24", "contains: reward above strict, least of the evaluations", "2.6%", m.reward_gap(min), **SIZES, **LEVEL),
    Q("C24", "contains: reward above strict, most of the evaluations", "4.0%", m.reward_gap(max), **SIZES, **LEVEL),
    Q("C25", "groups of 16 minus groups of 8, share right, sampled, step 100", None, m.difference("g16", "sampled")),
    Q("C26", "pass@1 of the start", "11.4%", m.passes("warm", 1), n=200, **LEVEL), Q("C26", "pass@1 after GRPO", "59.9%", m.passes("grpo", 1), n=200),
    Q("C26", "pass@64 of the start", "72%", m.passes("warm", 64), n=200, **LEVEL), Q("C26", "pass@64 after GRPO", "94%", m.passes("grpo", 64), n=200),
    Q("C26", "gain in pass@64", "22%", m.pass_gain("warm", "grpo"), error=0.07), Q("C26", "k up to 64 at which the start leads", "0", m.crossings, scale=1),
    Q("C27", "problems gained, of 200", "45", m.gained("warm", "grpo", 0), error=12), Q("C27", "problems lost, of 200", "1", m.gained("warm", "grpo", 1), error=2, scale=5),
    Q("C27", "most right samples of 64 on a gained problem", "61", m.most_gained), Q("C27", "mixed: problems gained, of 200", "49", m.gained("mixed", "mixed grpo", 0), error=12),
    Q("C27", "mixed: problems lost, of 200", "7", m.gained("mixed", "mixed grpo", 1), error=5), Q("C27", "mixed: pass@64 of the start", "57%", m.passes("mixed", 64), n=200, **LEVEL),
    Q("C27", "mixed: pass@64 after GRPO", "78%", m.passes("mixed grpo", 64), n=200),
    Q("C28", "climb of the start's pass@k from 32 to 64", "12%", m.slope, error=0.03),
    Q("C29", "tokens of a reply, start, sampled", "42", m.length(0), **LEVEL), Q("C29", "tokens of a reply, end, sampled", "60", m.length(None), **LEVEL),
    Q("C29", "growth of a sampled reply, tokens", "18", m.growth, error=2),
    Q("C29", "end: share of replies worked, sampled", "98%", m.worked(None), n=200), Q("C29", "share of the style change done by step 25", None, m.early_style, sign=1),
    Q("C29", "tokens of a reply, main, step 100", "54", m.length(100), **LEVEL), Q("C29", "tokens of a reply, Dr. GRPO, step 100", "54", m.length(100, "drgrpo"), **LEVEL),
    *(Q("C30", f"{digits} digits: share of samples right, {words}", "0%", m.long_right(source, digits), n=100, **SIZES)
      for digits in (4, 5) for source, words in (("chat", "chat model"), ("warm", "start"), ("grpo", "after GRPO"))),
    Q("C30", "4 digits, greedy: share of replies with three columns, after GRPO", "100%", m.three_columns("grpo"), n=200, **LEVEL),
    Q("C30", "4 digits, greedy: share of replies with three columns, start", "89%", m.three_columns("warm"), n=200, **LEVEL),
    Q("C31", "end: share of greedy answers with a leading zero", "29.8%", m.leading_zero("main"), n=500),
    Q("C31", "end: share right only with a leading zero, greedy", "28%", m.only_zero("main"), n=500),
    Q("C31", "contains: share of greedy answers with a leading zero", "0%", m.leading_zero("contains"), **SIZES),
    Q("C31", "mixed start: share of greedy replies padded", "0.6%", m.padded("mixed"), n=500, **SIZES),
    Q("C32", "samples audited that are right, of 1,600", "961", m.audit_share("right"), error=110, **LEVEL), Q("C32", "right ones: share with every column right", "62.4%", m.audit_share("sound"), error=0.07, **LEVEL),
    Q("C32", "right ones: share padded", "36.1%", m.audit_share("padded"), error=0.07, **LEVEL), Q("C32", "right ones: share with a wrong step or no working", "1.5%", m.audit_share("unsound"), error=0.01, **SIZES, **LEVEL),
    Q("C33", "ARC-Easy: sums-only start minus chat model", "-10.4%", m.benchmark("arc_easy", "chat", "warm"), error=0.021),
    Q("C33", "PIQA: sums-only start minus chat model", "-3.8%", m.benchmark("piqa", "chat", "warm"), error=0.022),
    *(Q("C33", f"{words}: GRPO minus its start", "0%", m.benchmark(task, "warm", "grpo"), error=0.02, **SIZES)
      for task, words in (("hellaswag", "HellaSwag"), ("arc_easy", "ARC-Easy"), ("piqa", "PIQA"))),
    Q("C34", "sums-only start: share of replies to chat prompts that are sums", "100%", m.sums_said("warm"), n=100),
    Q("C34", "tokens of its replies to chat prompts", "55", m.talk_length("warm"), **LEVEL), Q("C34", "adds when asked to subtract, after GRPO (1: yes)", "1", m.subtracts("grpo")),
    Q("C35", "mixed start: the sums' share of the loss", "7%", m.sum_share, **LEVEL), Q("C35", "ARC-Easy: mixed start minus chat model", "-0.5%", m.benchmark("arc_easy", "chat", "mixed"), error=0.02, **SIZES),
    Q("C35", "minutes of the mixed warm start", "2.6", m.minutes("warm-mixed"), **LEVEL), Q("C35", "minutes of its GRPO, 250 steps", "24.1", m.mixed_minutes, **LEVEL),
    Q("C36", "mixed start: share right, greedy", "9.0%", m.mixed_start("greedy"), n=500, **LEVEL), Q("C36", "mixed start: share right, sampled", "5.4%", m.mixed_start("sampled"), n=200, **LEVEL),
    Q("C36", "mixed start: share of groups of 8 all wrong", "79%", m.mixed_start("all_wrong"), n=200, **LEVEL), Q("C36", "mixed, 250 steps: share right, greedy", "37.4%", m.mixed_end, n=500),
    Q("C36", "mixed: gain of the training reward, last 50 steps over the 50 before", None, m.still_rising, sign=1), Q("C36", "mixed: adds when asked to subtract, after GRPO (1: yes)", "1", m.subtracts("mixed grpo")),
    Q("C37", "chat prompts: share of replies that end, mixed start", "31%", m.talk_ended("mixed"), n=100, **LEVEL), Q("C37", "chat prompts: share of replies that end, after its GRPO", "24%", m.talk_ended("mixed grpo"), n=100, **LEVEL),
    Q("C38", "published settings: a table in notebook 07", None, m.nothing),
)


def rows():
    """The report, computed from the records: DataFrame, one row a quantity and model (see claims' columns in `read`)."""
    out = []
    for q in QUANTITIES:
        for model in MODELS:
            found = q.measure(model)
            cells = dict(value=found.value, low=found.low, high=found.high, n=found.n, seeds=found.seeds) if found else {}
            out.append(dict(id=q.claim, claim=TEXTS[q.claim], quantity=q.name, article=q.value, model=model,
                            **dict.fromkeys(("value", "low", "high", "n", "seeds")) | cells, verdict=verdict(q, found)))
    return pd.DataFrame(out)


def csv(frame):
    """The report as CSV text, numbers at five digits."""
    return frame.to_csv(index=False, float_format="%.5g", lineterminator="\n")


def read(path=REPORT):
    """data/report.csv: id, claim, quantity, article, model, value, low, high, n, seeds, verdict. FileNotFoundError says how to make it."""
    if not path.is_file():
        raise FileNotFoundError(f"no report at {path}: make it with `python -m grpo_lib report`")
    return pd.read_csv(path, dtype={"seeds": str, "n": "Int64"}, encoding="utf-8")


def wide(frame):
    """The report for readers: a row a quantity; article, SmolLM2-135M and mini as text with interval, and mini's verdict."""
    units, out = {(q.claim, q.name): q.unit for q in QUANTITIES}, []
    for (key, name), part in frame.groupby(["id", "quantity"], sort=False):
        by = {row["model"]: row for _, row in part.iterrows()}
        unit, article = units[key, name], next(q.article for q in QUANTITIES if (q.claim, q.name) == (key, name))
        out.append({"claim": key, "quantity": name, "article": article or "", "SmolLM2-135M": shown(by["smollm2"], unit),
                    "mini": shown(by["mini"], unit), "seeds": "" if pd.isna(by["mini"]["seeds"]) else by["mini"]["seeds"],
                    "verdict (mini)": by["mini"]["verdict"]})
    return pd.DataFrame(out)


def shown(row, unit):
    """A value with its interval as text; empty where nothing was measured."""
    if pd.isna(row["value"]):
        return ""
    number = (lambda x: f"{x:.1%}") if unit == "%" else (lambda x: f"{x:.3g}" if abs(x) < 1000 else f"{x:,.0f}")
    exact = row["low"] == row["high"]
    return number(row["value"]) + ("" if exact else f" ({number(row['low'])} to {number(row['high'])})")


def write(path=REPORT, readme=ROOT / "README.md"):
    """Compute the report, write the CSV and put the table into the README between its marks. -> the report as a DataFrame."""
    text, table = readme.read_text(encoding="utf-8"), csv(rows())
    if text.count(MARKS[0]) != 1 or text.count(MARKS[1]) != 1:
        raise ValueError(f"{readme.name} does not hold the marks {' and '.join(MARKS)} once each: put them where the table is to stand")
    runs.put(path, table.encode("utf-8"))
    frame = read(path)
    head, tail = text.split(MARKS[0])[0], text.split(MARKS[1])[1]
    runs.put(readme, f"{head}{MARKS[0]}\n\n{markdown(frame)}\n\n{MARKS[1]}{tail}".encode("utf-8"))
    return frame


def differing(frame, model="mini"):
    """{claim: names of its quantities that differ} for a model, in order."""
    rows = frame[(frame["model"] == model) & (frame["verdict"] == "differs")]
    return {key: list(part["quantity"]) for key, part in rows.groupby("id", sort=True)}


def reasons(frame):
    """Why `mini` differs, claim by claim, as Markdown: the quantities, then the words of WHY."""
    return "\n".join(f"- **{key}, {TEXTS[key]}** ({'; '.join(names)}): {WHY.get(key, 'not explained yet')}" for key, names in differing(frame).items())


def markdown(frame):
    """The wide report as a Markdown table, then where and why `mini` differs, for the README."""
    table = wide(frame)
    lines = ["| " + " | ".join(table.columns) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in table.itertuples(index=False)]
    return "\n".join([*lines, "", "Where `mini` differs, and why:", "", reasons(frame)])
