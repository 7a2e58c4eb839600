"""The sums: law, wording, the teacher's replies, and that nothing held out leaks (fault log, section 12)."""

import hashlib
import json
import os
import random
import re
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_lib import task
from grpo_lib.config import DATA
from grpo_lib.task import (
    TEMPLATES, Problem, build_heldout, columns, demonstrations, direct, distinct, heldout, heldout_pairs, heldout_text,
    sampling_set, training, training_batch, worked,
)

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
RULES = {rule["id"]: rule for rule in FAULTS["DATA_RULES"]}
KEYS = (3, "dev", 4, 5)
HUGE = 10 ** 5000


def type_name(value):
    return type(value).__name__      # a huge int cannot be printed as a test id


def test_the_two_formats_are_the_printed_ones():
    assert direct(48, 75) == "48 + 75 = 123. The answer is 123."
    assert worked(48, 75) == ("Add the digits from right to left. 8 + 5 = 13, write 3, carry 1. "
                              "4 + 7 + 1 = 12, write 2, carry 1. Write the carry 1. The answer is 123.")
    assert worked(0, 0) == "Add the digits from right to left. 0 + 0 = 0, write 0. The answer is 0."


def test_the_three_wordings():
    prompts = [Problem(347, 582, i).prompt for i in range(3)]
    assert prompts == ["What is 347 + 582?", "Add 347 and 582.", "Compute 347 + 582."]
    assert {(Problem(347, 582, i).answer, Problem(347, 582, i).pair) for i in range(3)} == {(929, (347, 582))}
    assert Problem(582, 347, 0).pair == (347, 582), "the order of the numbers must not matter to the pair"


@pytest.mark.parametrize("case", FAULTS["COLUMN_ADDITION"], ids=lambda case: f"{case['a']}+{case['b']}")
def test_column_addition_step_by_step(case):
    assert columns(case["a"], case["b"]) == case["columns"]
    text = worked(case["a"], case["b"])
    assert ("Write the carry 1. " in text) == bool(case["final_carry"])
    assert text.endswith(f" The answer is {case['total']}.")
    assert text.count(", write ") == len(case["columns"]), "one written step per column"


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10 ** 12), st.integers(0, 10 ** 12))
def test_columns_spell_the_sum(a, b):
    rows = columns(a, b)
    spelled = str(rows[-1][5] or "") + "".join(str(row[4]) for row in reversed(rows))
    assert int(spelled) == a + b and len(rows) == len(str(max(a, b)))
    for x, y, carry_in, total, write, carry_out in rows:
        assert x + y + carry_in == total == 10 * carry_out + write
    carries = [row[5] for row in rows]
    assert [row[2] for row in rows] == [0] + carries[:-1], "each carry goes into the next column"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 99_999), st.integers(0, 99_999))
def test_every_sentence_of_a_worked_reply_is_true(a, b):
    steps = re.findall(r"([0-9+ ]+) = ([0-9]+), write ([0-9])(, carry 1)?\.", worked(a, b))
    assert len(steps) == len(str(max(a, b)))
    for addends, total, write, carry in steps:
        assert sum(map(int, addends.split("+"))) == int(total) == int(write) + 10 * bool(carry)
        assert addends.count("+") < 2 or addends.endswith("+ 1"), "only a carry of 1 is a third addend"


def test_numpy_numbers_give_the_same_text():
    small = np.array([99, 120], dtype=np.int8)
    assert worked(*small) == worked(99, 120) and direct(*small) == direct(99, 120), "int8 must not wrap around"
    problem = Problem(np.int64(3), np.int64(4), np.int64(1))
    assert json.dumps([problem.a, problem.b, problem.template]) == "[3, 4, 1]"


@pytest.mark.parametrize("bad", [-1, 1.0, "8", None, True, float("nan"), HUGE, -HUGE, [1]], ids=type_name)
def test_bad_arguments_give_one_line_that_names_them(bad):
    calls = {"a": lambda: Problem(bad, 1, 0), "b": lambda: Problem(1, bad, 0), "template": lambda: Problem(1, 1, bad),
             "n": lambda: training(bad, 0), "seed": lambda: training(1, bad), "step": lambda: training_batch(0, bad, 1)}
    more = [("b", lambda: worked(1, bad)), ("a", lambda: direct(bad, 1)), ("n", lambda: demonstrations(bad, 0)),
            ("n", lambda: distinct(bad, "x"))]
    for name, call in [*calls.items(), *more]:
        if name == "template" and bad is True:
            continue
        with pytest.raises(ValueError, match=f"^{name} is ") as error:
            call()
        assert "\n" not in str(error.value) and len(str(error.value)) < 200
    with pytest.raises(ValueError, match="template is 3: use 0 to 2"):
        Problem(1, 1, 3)
    for call in (lambda: training(0, 0), lambda: training_batch(0, 0, 0)):
        with pytest.raises(ValueError, match="n is 0"):
            call()
    for key in (6, "test", None, [3], HUGE):
        with pytest.raises(ValueError, match="use 3, 'dev', 4 or 5"):
            heldout(key)


def test_heldout_sets_have_their_size_and_no_duplicates():
    for key, size in {3: RULES["DT7"]["size"], "dev": 500, 4: 200, 5: 200}.items():
        problems = heldout(key)
        assert len(problems) == len({problem.pair for problem in problems}) == size, f"duplicates in {key}"
    for key, rule in ((4, RULES["DT3"]), (5, RULES["DT4"])):
        assert all(rule["low"] <= x <= rule["high"] for problem in heldout(key) for x in problem.pair), key
    assert all(0 <= x <= 999 for key in (3, "dev") for problem in heldout(key) for x in problem.pair)


def test_heldout_sets_are_disjoint_and_leave_one_digit_sums_to_train_on():
    assert len(heldout_pairs()) == 1400 == sum(len(heldout(key)) for key in KEYS), "a pair lies in two sets"
    small = sum(pair[1] < 10 for pair in heldout_pairs())
    assert 0 < small <= 25, f"{small} of the 55 one-digit pairs are held out"
    assert {min(map(len, map(str, p.pair))) for p in heldout(3)} == {1, 2, 3}, "every digit count must be tested"
    assert {problem.template for problem in heldout(3)} == {0, 1, 2}


def test_sampling_sets_are_the_first_problems():
    for key, size in {3: 200, "dev": 200, 4: 100, 5: 100}.items():
        assert sampling_set(key) == heldout(key)[:size] and len(sampling_set(key)) == size


def test_the_committed_files_are_what_the_builder_makes():
    for key, problems in build_heldout().items():
        text = (DATA / "heldout" / f"{key}.json").read_text(encoding="utf-8")
        assert text == heldout_text(problems), f"data/heldout/{key}.json was not made by build_heldout"
        assert hashlib.sha256(text.encode("utf-8")).hexdigest() == task.SHA256[key]
        assert heldout(key) == problems


def test_a_changed_or_missing_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "DATA", tmp_path)
    task._load.cache_clear()
    try:
        with pytest.raises(FileNotFoundError, match="3.json is missing"):
            heldout(3)
        (tmp_path / "heldout").mkdir()
        (tmp_path / "heldout" / "3.json").write_text("[\n[1, 2, 0]\n]\n", encoding="utf-8")
        with pytest.raises(ValueError, match="3.json has sha256"):
            heldout(3)
        original = (DATA / "heldout" / "4.json").read_text(encoding="utf-8")
        (tmp_path / "heldout" / "4.json").write_bytes(original.replace("\n", "\r\n").encode("utf-8"))
        assert len(heldout(4)) == 200, "Windows line ends are no change"
    finally:
        task._load.cache_clear()


def test_callers_cannot_change_the_stored_set():
    heldout(3).clear()
    assert len(heldout(3)) == 500


def test_no_training_stream_holds_a_heldout_pair():
    # the sets are compared as numbers, not as text: neither wording nor order makes a problem new
    seen = {p.pair for seed in (0, 1) for p in training(8000, seed)}
    seen |= {problem.pair for problem, _ in demonstrations(4000, 1)}
    seen |= {p.pair for step in range(250) for p in training_batch(1, step, 32)}
    assert not seen & heldout_pairs(), "a held-out sum is trained on"
    assert len([pair for pair in seen if pair[1] < 10]) == 55 - sum(pair[1] < 10 for pair in heldout_pairs())


def test_the_numbers_follow_the_law():
    problems = training(20_000, 5)
    digits = Counter(len(str(x)) for p in problems for x in (p.a, p.b))
    for count in (1, 2, 3):     # also for one digit, where many pairs are held out: only the numbers are drawn again
        assert abs(digits[count] / 40_000 - 1 / 3) < 0.01, f"{count}-digit numbers: {digits[count]} of 40,000"
    shapes = Counter((len(str(p.a)), len(str(p.b))) for p in problems)
    assert all(abs(count / 20_000 - 1 / 9) < 0.01 for count in shapes.values()) and len(shapes) == 9, shapes
    wordings = Counter(p.template for p in problems)
    assert all(abs(wordings[i] / 20_000 - 1 / 3) < 0.02 for i in range(3)), wordings
    for low, high in ((10, 99), (100, 999)):
        values = [x for p in problems for x in (p.a, p.b) if low <= x <= high]
        assert min(values) == low and max(values) == high
        assert abs(np.mean(values) - (low + high) / 2) < (high - low) * 0.02, "uniform within a digit count"
    assert {x for p in problems for x in (p.a, p.b) if x < 10} == set(range(10)), "0 is a one-digit number"


def test_batches_depend_on_seed_and_step_alone():
    random.seed(0)
    first = [training_batch(3, step, 8) for step in range(5)]
    random.seed(1)
    assert [training_batch(3, step, 8) for step in (4, 2, 0)] == [first[4], first[2], first[0]]
    assert len({tuple(batch) for batch in first}) == 5, "steps must differ"
    assert training_batch(4, 0, 8) != first[0], "seeds must differ"
    assert training_batch(3, 0, 4) == first[0][:4] and training(10, 3) == training(50, 3)[:10]
    state = random.getstate()
    training(100, 0), demonstrations(10, 0), build_heldout()
    assert random.getstate() == state, "the global stream moved"


def test_demonstrations_are_half_and_half_and_true():
    pairs = demonstrations(1000, 2)
    styles = [reply == worked(p.a, p.b) for p, reply in pairs]
    assert all(reply in (worked(p.a, p.b), direct(p.a, p.b)) for p, reply in pairs)
    assert sum(styles) == 500 and 150 < sum(styles[:500]) < 350, "half worked, and shuffled"
    assert [p for p, _ in pairs] == training(1000, 2)
    assert sum(reply == worked(p.a, p.b) for p, reply in demonstrations(7, 0)) == 3
    assert demonstrations(0, 0) == [], "a warm start on chats alone has no sums"


def test_distinct_pairs_run_out_with_an_error():
    assert RULES["DT2"]["unordered_pairs"] == RULES["DT6"]["exist"] == 1000 * 1001 // 2
    with pytest.raises(ValueError, match=f"n is {RULES['DT6']['ask']}, but only {RULES['DT6']['exist']}"):
        distinct(RULES["DT6"]["ask"], "all")
    every = distinct(55, "small", digits=(1,))
    assert sorted(p.pair for p in every) == [(x, y) for x in range(10) for y in range(x, 10)], "all 55 can be had"
    with pytest.raises(ValueError, match="only 55"):
        distinct(56, "small", digits=(1,))
    with pytest.raises(ValueError, match="only 52"):
        distinct(53, "small", digits=(1,), avoid=frozenset({(0, 1), (2, 2), (9, 9), (10, 12)}))
    with pytest.raises(ValueError, match="only 12"):
        distinct(13, "small", digits=(1,), small=12)
    with pytest.raises(ValueError, match=f"only {4950 + 900 + 0 + 12 - 4950 + 4095}"):
        distinct(10 ** 6, "small", digits=(1, 2), small=12)    # 90*91/2 + 10*90 + 12


SCRIPT = """
import hashlib
from grpo_lib.task import build_heldout, demonstrations, training, training_batch
sets = (training(200, 1), demonstrations(200, 1), training_batch(1, 7, 32), sorted(build_heldout().items(), key=str))
for data in sets:
    print(hashlib.sha256(repr(data).encode("utf-8")).hexdigest())
"""
HASHES = [      # of the four data sets in SCRIPT; a change here means that recorded runs no longer match
    "383b6f7e47861d660f63cb43cd701028f5eb2667e26e1e5f7ae9e5b40a9151bb",
    "6f7581a8a1d5dd1932055126784328357059f6979df5d05fc51aa6786f72aa00",
    "870d27d57132b36502bcf9bcf6602f631d731659072ec14cb1bacf14cf2ad419",
    "8d03842b7af95e71144663a38951b964d70e3f0a69b258e879a5ea53a8e627be",
]


def test_a_new_process_with_another_hash_seed_gives_the_same_data():
    found = set()
    for seed in ("1", "2", "3"):
        done = subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, text=True,
                              capture_output=True, encoding="utf-8", cwd=Path(task.__file__).parents[1], check=True)
        found.add(done.stdout)
    assert len(found) == 1, "seeded data changed from process to process"
    assert found.pop().split() == HASHES, "the seeded data changed: recorded runs no longer match their seeds"
