"""Measured quantities on made-up records, each worked out by hand."""
import pandas as pd
import pytest

from grpo_lib import compare, measured as m, runs
from grpo_lib.task import direct, worked


def replies(step, texts, sample=0, key="3"):
    rows = []
    for i, text in enumerate(texts):
        good = int(text.endswith(f"The answer is {10 + i + 5}."))
        rows.append(dict(step=step, set=key, a=10 + i, b=5, template=0, sample=sample, reply=text, length=20 + 10 * good, ended=True,
                         strict=good, exact=good, contains=good))
    return rows


def record(folder, name, ends, start=("no", "no", "no", "no"), **config):
    """A run whose greedy and sampled replies at step 0 are `start`, and at 100 and 250 `ends`."""
    rows = [row for step, texts in ((0, start), (100, ends), (250, ends)) for sample in (-1, 0) for row in replies(step, texts, sample)]
    metrics = [dict(step=s, grad_norm=config.pop("norm", 1.0), clipped=0.01 * s, seconds_sample=1.0, seconds_train=3.0, peak_mib=512.0) for s in (1, 2)]
    evals = [dict(step=s, drift=0.1 * (s > 0), greedy=dict(strict=0.0, n=4), sampled=dict(strict=0.25 * (s > 0), contains=0.5 * (s > 0), worked=s / 250, n=4)) for s in (0, 25, 100, 250)]
    runs.write(folder / "tiny" / name, {"seed": int(name[-1]), "steps": 250, **config}, metrics, evals, rows,
               {"seconds": 120.0, "machine": "x", "versions": {"torch": "2"}})


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RECORDED", tmp_path)
    monkeypatch.delenv("GRPO_RUNS", raising=False)
    right = [worked(10 + i, 5) for i in range(4)]
    record(tmp_path, "main-s1", [*right[:2], "no", "no"])
    record(tmp_path, "main-s2", [*right[:3], "no"])
    record(tmp_path, "nokl-s2", [*right[:3], direct(13, 5)])
    for cache in (m.load, m.arm, m.right_counts, m.audit_rows, m.record):
        cache.cache_clear()
    yield "tiny"
    for cache in (m.load, m.arm, m.right_counts, m.audit_rows, m.record):
        cache.cache_clear()


def test_several_seeds_are_the_unit(tiny):
    found = m.end("greedy")(tiny)
    assert (found.value, found.seeds, found.n) == (0.625, "1 2", 4)
    assert (found.low, found.high) == (0.0, 1.0), "Student's interval of two seeds, cut to shares"
    assert found.value == pytest.approx(compare.t_interval([0.5, 0.75])[0])
    assert m.gain("sampled") and m.gain("greedy")(tiny).value == 0.625


def test_arms_meet_at_the_seeds_they_share(tiny):
    found = m.difference("nokl", "sampled")(tiny)
    assert (found.value, found.seeds, found.n) == (0.25, "2", 4) and found.low <= 0 <= found.high
    assert m.difference("g16", "sampled")(tiny) is None, "an arm without a record is not measured"
    assert m.drift_ratio(tiny).value == pytest.approx(1.0) and m.drift_ratio(tiny).seeds == "2"


def test_logs(tiny):
    assert m.clipped("main", "max")(tiny).value == pytest.approx(0.02) and m.clipped("main", "mean")(tiny).value == pytest.approx(0.015)
    assert m.minutes("main")(tiny).value == 2.0 and m.sampling_share(tiny).value == 0.25 and m.peak_gib(tiny).value == 0.5
    assert m.early_style(tiny).value == pytest.approx(0.1)


def test_replies(tiny):
    assert m.worked(None)(tiny).value == 0.625 and m.length(None)(tiny).value == pytest.approx(26.25) and m.growth(tiny).value == pytest.approx(6.25)
    assert m.distinct("nokl")(tiny).n == 4 and m.only_zero("main")(tiny).value == 0 and m.leading_zero("main")(tiny).value == 0


def test_nothing_right_is_bounded_by_the_problems():
    rows = pd.DataFrame(replies(0, ["no"] * 20) + replies(0, ["no"] * 20, 1))
    assert m.mean(rows, rows["strict"]) == (0.0, 0.0, pytest.approx(compare.bound(20)), 40)


def test_models_without_records_are_not_measured():
    assert m.end("greedy")("nobody") is None and m.benchmark("piqa", "chat", "warm")("nobody") is None and m.start_worked("nobody") is None
    assert m.advantage(1, True, "right")("smollm2") is None, "what no model is needed for stands in mini's row alone"


def test_pass_at_k_and_gains(tiny, tmp_path):
    for name, right in (("samples-" + m.START, [0, 1, 2, 0]), ("samples-main-s1", [1, 1, 0, 0])):
        rows = [row for k in range(64) for row in replies(0, [worked(10 + i, 5) if k < c else "no" for i, c in enumerate(right)], k)]
        runs.write(tmp_path / "tiny" / name, {"seed": 1}, [], [{"step": 0}], rows, {"seconds": 1.0, "machine": "x", "versions": {"torch": "2"}})
    assert m.passes("warm", 64)(tiny).value == 0.5 and m.passes("warm", 1)(tiny).value == pytest.approx(3 / 256)
    assert m.gained("warm", "grpo", 0)(tiny).value == 1 and m.gained("warm", "grpo", 1)(tiny).value == 1 and m.most_gained(tiny).value == 1
    assert m.crossings(tiny).value > 0 and m.pass_gain("warm", "grpo")(tiny).value == 0
    assert m.audit_share("sound")(tiny).value == 1.0 and m.audit_share("right")(tiny).value == 2
    assert m.slope(tiny).value == pytest.approx(0.5 - m.passes("warm", 32)(tiny).value)
