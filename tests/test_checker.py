"""The checker against tables of replies and against what has gone wrong in other checkers (fault log, section 1)."""

import pickle
import random
import re
import runpy
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_lib.checker import coin, contains, exact, format_credit, last_number, reward, rewards, strict
from grpo_lib.task import direct, worked

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
KINDS = ("strict", "exact", "contains")
HUGE = 10 ** 5000


def type_name(value):
    return type(value).__name__      # a huge int cannot be printed as a test id


def one_line(error):
    message = str(error.value)
    assert message and "\n" not in message and len(message) < 300, f"not one clear line: {message!r}"
    return message


@pytest.mark.parametrize("case", FAULTS["CHECKER"], ids=lambda case: case["id"])
def test_every_row_of_the_table(case):
    found = {kind: reward(case["reply"], case["answer"], kind) for kind in KINDS}
    assert found == {kind: case[kind] for kind in KINDS}, case["why"]
    assert all(type(value) is float for value in found.values()), "a reward must be a plain float"


def test_the_whole_table_in_one_call_keeps_its_order():
    replies, answers = [c["reply"] for c in FAULTS["CHECKER"]], [c["answer"] for c in FAULTS["CHECKER"]]
    for kind in KINDS:
        assert rewards(replies, answers, kind) == [c[kind] for c in FAULTS["CHECKER"]], kind
        assert rewards(replies, np.array(answers), kind) == rewards(replies, answers, kind), "numpy integers differ"
    assert rewards([], [], "strict") == []


@pytest.mark.parametrize("case", FAULTS["CHECKER_TIME"], ids=lambda case: case["id"])
@pytest.mark.parametrize("kind", [*KINDS, last_number], ids=[*KINDS, "last_number"])
def test_a_million_characters_take_less_than_the_limit(case, kind):
    text = eval(case["build"])
    started = time.perf_counter()
    reward(text, case["answer"], kind)
    assert time.perf_counter() - started < case["seconds"], "a long reply must not stall the checker"


@pytest.mark.parametrize("build", ["The answer is ", "1 ", "The answer is 1.", " .", "0", "4 2,", "answer 11 is "])
def test_time_grows_linearly(build):
    def best(length):
        text, times = (build * length)[:length], []
        for _ in range(3):
            started = time.perf_counter()
            for kind in KINDS:
                reward(text, 1, kind)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best(10 ** 6) < 40 * max(best(10 ** 5), 1e-4), "ten times the text must take about ten times as long"


def test_look_alike_digits_never_count_nor_crash():
    for text in ("４２", "٤٢", "4²", "४२", "𝟒𝟐", "④②"):
        for kind in (*KINDS, last_number):
            assert reward(f"The answer is {text}.", 42, kind) == 0.0, f"{text!r} is not ASCII 42"
    assert reward("４42 or 4٢", 42, "contains") == 1.0, "only ASCII digits make a run, so the full-width 4 ends it"


@pytest.mark.parametrize("reply", ["", " \n\t", ".", "The answer is .", "The answer is", "The answer is ", "\x00"])
def test_empty_replies_earn_nothing_for_any_answer(reply):
    for kind in (*KINDS, last_number):
        assert rewards([reply] * 1000, range(1000), kind) == [0.0] * 1000, f"{reply!r} was paid by {kind}"


def test_listing_guesses_pays_only_under_contains():
    reply = "The answer is 41. The answer is 42. The answer is 43."
    assert [reward(reply, 42, kind) for kind in KINDS] == [0.0, 0.0, 1.0]
    assert reward("The total is 72, altogether.", 72, "contains") == 1.0, "a comma behind the number hides nothing"


def test_no_window_hides_a_late_answer_and_only_the_end_counts():
    sentence = "The answer is 42."
    assert reward("step. " * 2000 + sentence, 42, "strict") == 1.0, "10,000 characters of working came before"
    assert reward(sentence + " more words" * 40, 42, "strict") == 0.0, "the sentence is not final"


BAD_ANSWERS = [None, "", "abc", "42", True, False, np.True_, 42.0, float("nan"), -1, -HUGE, HUGE, [42]]


@pytest.mark.parametrize("answer", BAD_ANSWERS, ids=type_name)
@pytest.mark.parametrize("kind", [*KINDS, last_number], ids=[*KINDS, "last_number"])
def test_a_bad_answer_raises_and_never_pays(answer, kind):
    with pytest.raises(ValueError, match="row 0: the answer is") as error:
        reward("The answer is 42.", answer, kind)
    one_line(error)


def test_huge_numbers_in_a_reply_are_compared_as_text():
    nines = "9" * 6000
    assert [reward(f"The answer is {nines}.", 9, kind) for kind in KINDS] == [0.0, 0.0, 0.0]
    padded = f"The answer is {'0' * 6000}42."
    assert [reward(padded, 42, kind) for kind in KINDS] == [1.0, 0.0, 0.0], "leading zeros, many of them"
    big = 10 ** 2000 + 7
    assert [reward(f"The answer is {big}.", big, kind) for kind in KINDS] == [1.0, 1.0, 1.0]


def test_errors_name_the_row_and_the_way_out():
    with pytest.raises(ValueError, match="row 1: the reply is int") as error:
        rewards(["a", 3], [1, 2], "strict")
    one_line(error)
    with pytest.raises(ValueError, match="row 2: the answer is -5"):
        rewards(["a", "b", "c"], [1, 2, -5], "strict")
    with pytest.raises(ValueError, match="2 replies for 1 answers"):
        rewards(["a", "b"], [1], "strict")
    with pytest.raises(ValueError, match="list of replies"):
        rewards("abc", [1, 2, 3], "strict")
    for kind in ("strikt", "", None, 3, ["strict"], HUGE, "x" * 10 ** 5):
        with pytest.raises(ValueError, match="strict, exact, contains") as error:
            reward("a", 1, kind)
        one_line(error)


BAD_REWARDS = [float("nan"), float("inf"), -float("inf"), None, "1.0", 1j, [1.0], HUGE, np.float32("nan")]


@pytest.mark.parametrize("value", BAD_REWARDS, ids=type_name)
def test_a_callable_must_return_a_finite_number(value):
    with pytest.raises(ValueError, match="row 1: the checker returned") as error:
        rewards(["a", "b"], [1, 2], lambda reply, answer: value if answer == 2 else 0.5)
    one_line(error)


def test_a_callable_may_return_any_finite_number():
    for value in (0, 1, True, -0.5, np.float32(0.25), np.int64(3)):
        found = reward("a", 1, lambda reply, answer: value)
        assert found == value and type(found) is float


def test_right_earns_more_than_wrong_for_every_kind():
    rng = random.Random(0)
    kinds = [*KINDS, last_number, format_credit(0.1), format_credit(0.99), format_credit(0)]
    for _ in range(1000):
        a, b = rng.randrange(1000), rng.randrange(1000)
        wrong = a + b + rng.choice((-1, 1, 10, 100)) if a + b else 3
        for kind in kinds:
            good = reward(f"The answer is {a + b}.", a + b, kind)
            bad = reward(f"The answer is {wrong}.", a + b, kind)
            assert good == 1.0 > bad, f"{a} + {b}: {good} for right, {bad} for wrong under {kind}"


def test_format_credit_pays_between():
    kind = format_credit(0.25)
    replies = ["The answer is 42.", "The answer is 042.", "The answer is 41.", "42", "", "The answer is 41"]
    assert rewards(replies, [42] * 6, kind) == [1.0, 1.0, 0.25, 0.0, 0.0, 0.0]
    for credit in (1, 1.5, -0.1, float("nan"), "0.1", None, True, HUGE):
        with pytest.raises(ValueError, match="credit is") as error:
            format_credit(credit)
        one_line(error)


def test_coin_pays_at_its_rate_whatever_the_reply_says():
    flips = rewards(["The answer is 42."] * 20_000, [42] * 20_000, coin(0.114, 7))
    assert set(flips) == {0.0, 1.0}
    assert abs(np.mean(flips) - 0.114) < 0.01, "20,000 flips lie within four standard errors"
    assert flips == rewards([""] * 20_000, [1] * 20_000, coin(0.114, 7)), "the reply moved the coin"
    assert flips != rewards([""] * 20_000, [1] * 20_000, coin(0.114, 8)), "another seed, another stream"
    assert rewards(["a"] * 100, [1] * 100, coin(0, 1)) == [0.0] * 100
    assert rewards(["a"] * 100, [1] * 100, coin(1, 1)) == [1.0] * 100


def test_coin_resumes_where_it_stopped_and_leaves_other_streams_alone():
    random.seed(3), np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist()
    straight, first = coin(0.5, "run"), coin(0.5, "run")
    whole = [straight("a", 1) for _ in range(300)]
    start = [first("a", 1) for _ in range(120)]
    saved = pickle.loads(pickle.dumps(first.state()))
    second = coin(0.5, "run")
    second.restore(saved)
    assert start + [second("a", 1) for _ in range(180)] == whole, "a resumed coin must continue the same stream"
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before, "the global streams moved"


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), "0.5", None, True, HUGE], ids=type_name)
def test_coin_refuses_what_is_no_probability(p):
    with pytest.raises(ValueError, match="p is") as error:
        coin(p, 0)
    one_line(error)
    with pytest.raises(ValueError, match="state is"):
        coin(0.5, 0).restore(-1)


def test_last_number_is_lenient():
    replies = ["so 40 and 42", "42 or 43", "it is 042!", "none", "-42", "4.2", "1,042"]
    assert rewards(replies, [42] * 7, last_number) == [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]


def test_the_teacher_is_always_right():
    rng = random.Random(1)
    for _ in range(10_000):
        a, b = rng.randrange(10 ** rng.randint(1, 5)), rng.randrange(10 ** rng.randint(1, 5))
        for reply in (worked(a, b), direct(a, b)):
            assert reward(reply, a + b, "strict") == reward(reply, a + b, "exact") == 1.0, reply


ANY_TEXT = st.text(alphabet=st.characters(), max_size=60)        # surrogates included
PIECES = ["The answer is ", "42", "042", ".", " ", "\n", "1", "0", "the", "²", "４", "\ud800", "-", ","]
TRICKY = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@settings(max_examples=200, deadline=None)
@given(st.one_of(ANY_TEXT, TRICKY), st.integers(0, 2000) | st.sampled_from([42, 0, 1]))
def test_kinds_agree_with_a_plain_rule_and_with_each_other(reply, answer):
    closing = re.search(r"The answer is ([0-9]{1,4000})\.\Z", reply.strip())
    found = strict(reply, answer), exact(reply, answer), contains(reply, answer), last_number(reply, answer)
    assert found[0] == float(bool(closing) and int(closing[1]) == answer), "strict is not its definition"
    assert found[1] == float(bool(closing) and closing[1] == str(answer)), "exact is not its definition"
    assert found[2] == float(str(answer) in re.split("[^0-9]", reply)), "contains is not its definition"
    assert found[0] >= found[1] and found[2] >= found[1], "exact is the hardest of the three"
    assert found[3] >= found[0], "the last number is never harder than strict"


@settings(max_examples=100, deadline=None)
@given(ANY_TEXT, st.integers(0, 10 ** 30), st.sampled_from(["", " ", "\n", "\r\n", "\t "]), st.integers(0, 5))
def test_a_right_closing_sentence_passes_after_any_text(before, answer, after, zeros):
    reply = f"{before}The answer is {'0' * zeros}{answer}.{after}"
    assert strict(reply, answer) == 1.0
    assert exact(reply, answer) == float(zeros == 0)
    assert strict(reply, answer + 1) == 0.0
