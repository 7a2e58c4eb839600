"""The folded answers of notebook 07, taken out as they are printed there, run, and put to the test."""

import math

import pytest
from test_exercises import run

from grpo_lib import benchmarks, costs, measured as m
from grpo_lib.compare import noise_floor


def test_07_1_so_many_questions_see_the_difference():
    names, printed = run("07", 1)
    assert printed == "16483 4121 4710\n", f"the text names 16,483, 4,121 and 4,710, the code printed {printed!r}"
    for difference, apart in ((0.01, 0.21), (0.02, 0.21), (0.05, 0.3)):
        n = names["questions_needed"](difference, apart)
        assert noise_floor(math.sqrt(apart), n, 0.05) == pytest.approx(difference, rel=0.005), "the library's floor at so many questions"
    assert names["questions_needed"](0.01, 0.21, alpha=0.05 / 12) > 16483 and names["questions_needed"](0.01, 0.21, power=0.5) < 16483


def test_07_2_rules_that_read_nothing():
    names, printed = run("07", 2)
    items = [{"choices": ["aaa", "b", "cc"], "gold": 1}, {"choices": ["a", "bb"], "gold": 1}, {"choices": ["a", "a"], "gold": 0}]
    blind, rules = names["blind"], names["RULES"]
    assert [blind(items, rules[name]) for name in ("shortest", "longest", "first")] == [2 / 3, 2 / 3, 1 / 3], "equal lengths go to the first"
    lines = dict(line.split(" ", 1) for line in printed.splitlines())
    assert set(lines) == set(benchmarks.TASKS) and lines["piqa"].startswith("shortest 53.4%"), "the text says 53.4%"
    assert abs(costs.accuracy("piqa", "chat")[0] - blind(benchmarks.questions("piqa"), rules["shortest"])) < 0.005, "what the chat model gets"


def test_07_3_the_price_of_a_sum(monkeypatch):
    monkeypatch.delenv("GRPO_RUNS", raising=False)
    m.load.cache_clear()
    names, printed = run("07", 3)
    prices = dict(line.rsplit(" ", 1) for line in printed.splitlines())
    assert prices == {"chat warm": "+2.08", "warm grpo": "+0.04", "chat mixed": "-0.20"}, f"the text has other prices than {prices}"
    rise, gain = costs.loss_rise("chat", "warm")[0], m.start("sampled")("mini").value
    assert names["price"]("chat", "warm") == pytest.approx(rise / (10 * gain)), "the chat model is right in no sample"
