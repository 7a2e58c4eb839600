"""What training on sums cost elsewhere: the benchmark picks and chat records of two models, compared.

Reads committed records through `measured`, runs no model. A model is named by its source: chat, warm (sums-only start), grpo, mixed (mixed
start), mixed grpo (its GRPO, at step 250). What is not recorded is left out, never guessed. Notebook 07.
"""
import math

import numpy as np

from grpo_lib import compare, measured as m
from grpo_lib.analysis import holm, paired, wilson

LABELS = {"chat": "chat model", "warm": "sums-only start", "grpo": "its GRPO", "mixed": "mixed start", "mixed grpo": "mixed GRPO"}
TASKS = {"hellaswag": "HellaSwag", "arc_easy": "ARC-Easy", "piqa": "PIQA"}
PAIRS = (("chat", "warm"), ("warm", "grpo"), ("chat", "mixed"), ("mixed", "mixed grpo"))            # (before, after): one training each


def recorded(kind, model="mini"):
    """The sources that have a record of this kind ("benchmarks" or "talk"), in the order of LABELS."""
    return [source for source in LABELS if (m.DATA / kind / model / m.SOURCES[source] / "run.json").is_file()]


def accuracy(task, source, model="mini"):
    """(share of questions picked right, low, high); Wilson's interval, the question is the unit."""
    right = list(m.picked(model, task, source).values())
    return wilson(int(sum(right)), len(right))


def compared(pairs=PAIRS, model="mini", level=0.95):
    """A row (dict) per task and (before, after) of which both are recorded: n, difference (after minus before, shares), low, high (paired by question),
    apart (share of questions on which just one is right), p (McNemar, exact), holm (over all rows) and floor: the true difference that a test as strict
    as Holm's first step would find four times in five."""
    have, rows = recorded("benchmarks", model), []
    for task in TASKS:
        for before, after in pairs:
            if before in have and after in have:
                b, a = (m.picked(model, task, source) for source in (before, after))
                a, b = np.array([a[key] for key in b]), np.array(list(b.values()))                  # the same questions in one order
                difference, low, high = paired(a, b, level)
                rows.append({"task": task, "before": before, "after": after, "n": len(a), "difference": difference, "low": low, "high": high,
                             "apart": float(np.mean(a != b)), "p": compare.mcnemar(a, b)["p"], "sd": float(np.std(a - b, ddof=1))})
    for row, p in zip(rows, holm([row["p"] for row in rows]) if rows else []):
        row |= {"holm": float(p), "floor": compare.noise_floor(row.pop("sd"), row["n"], (1 - level) / len(rows))}
    return rows


def loss(source, model="mini"):
    """(nats per token on the held-out chats, low, high); the interval has the chat as its unit."""
    found = m.record("talk", source, model)[0]["chat_loss"]
    return found["loss"], found["loss"] - 1.96 * found["stderr"], found["loss"] + 1.96 * found["stderr"]


def loss_rise(before, after, model="mini"):
    """(rise in nats per token, low, high). The record keeps no loss per chat, so the two errors are added as if the models had read other chats: too wide an
    interval, never too narrow, where the same chats are hard for both."""
    a, b = (m.record("talk", source, model)[0]["chat_loss"] for source in (after, before))
    rise, half = a["loss"] - b["loss"], 1.96 * math.hypot(a["stderr"], b["stderr"])
    return rise, rise - half, rise + half
