"""What training cost, on made-up records worked out by hand."""
import gzip
import json
import math

import pytest

from grpo_lib import costs, measured as m
from grpo_lib.analysis import wilson


def record(root, kind, source, picks=(), loss=3.0):
    """A record of three tasks with the same picks (gold is 0), or of a chat loss."""
    folder = root / kind / "tiny" / m.SOURCES[source]
    folder.mkdir(parents=True)
    scores = {task: {"reported": "acc"} for task in costs.TASKS} if kind == "benchmarks" else {"chat_loss": {"loss": loss, "stderr": 0.03}}
    rows = [{"task": task, "id": i, "gold": 0, "acc": pick, "acc_norm": 1} for task in costs.TASKS for i, pick in enumerate(picks)]
    if kind == "benchmarks":
        rows = rows[::-1] if source == "warm" else rows                     # the order of a record must not matter
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / ("picks.jsonl.gz" if kind == "benchmarks" else "replies.jsonl.gz")).write_bytes(gzip.compress(text))
    (folder / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
    (folder / "run.json").write_text("{}", encoding="utf-8")


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(m, "DATA", tmp_path)
    m.record.cache_clear()
    record(tmp_path, "benchmarks", "chat", [0] * 12 + [1] * 8)              # right on 12 of 20
    record(tmp_path, "benchmarks", "warm", [1] * 9 + [0] * 3 + [1] * 8)     # right on 3 of these 12
    record(tmp_path, "talk", "chat", loss=3.0)
    record(tmp_path, "talk", "mixed", loss=2.9)
    yield "tiny"
    m.record.cache_clear()


def test_only_what_is_recorded_is_compared(tiny):
    assert costs.recorded("benchmarks", tiny) == ["chat", "warm"] and costs.recorded("talk", tiny) == ["chat", "mixed"]
    rows = costs.compared(model=tiny)
    assert [(row["task"], row["before"], row["after"]) for row in rows] == [(task, "chat", "warm") for task in costs.TASKS]
    assert costs.compared([("mixed", "mixed grpo")], tiny) == []


def test_questions_are_paired(tiny):
    row = costs.compared(model=tiny)[0]
    assert (row["n"], row["difference"], row["apart"]) == (20, pytest.approx(-9 / 20), 9 / 20)
    assert row["p"] == pytest.approx(2 * 0.5 ** 9) and row["holm"] == pytest.approx(3 * row["p"]), "nine questions fall to one side, three tests"
    assert row["low"] < -9 / 20 < row["high"] < 0 < row["floor"] < 1
    assert costs.compared([("chat", "chat")], tiny)[0]["floor"] == 0, "a model against itself"
    assert costs.accuracy("piqa", "chat", tiny) == wilson(12, 20)


def test_losses(tiny):
    half = 1.96 * 0.03
    assert costs.loss("chat", tiny) == pytest.approx((3.0, 3.0 - half, 3.0 + half))
    assert costs.loss_rise("chat", "mixed", tiny) == pytest.approx((-0.1, -0.1 - half * math.sqrt(2), -0.1 + half * math.sqrt(2)))


def test_the_sources_are_the_records():
    assert set(costs.LABELS) == set(m.SOURCES) - {"null"} and {s for pair in costs.PAIRS for s in pair} == set(costs.LABELS)
    assert {"chat", "warm", "grpo", "mixed"} <= set(costs.recorded("benchmarks")) & set(costs.recorded("talk"))
