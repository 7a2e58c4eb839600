"""The checker: text and the right answer in, a reward out. It knows nothing of models, tokens or end tokens.

    strict    the stripped reply ends with "The answer is N." and N equals the answer as a number: 042 passes for 42
    exact     the same, and N is written as the answer is: 042 fails for 42
    contains  the answer stands somewhere in the reply as a whole run of digits (a sign or comma beside it is not seen)
    callable  any (reply, answer) -> finite float, such as `last_number`, `format_credit(0.1)` or `coin(0.1, seed)`

Digits are ASCII 0-9 only. Nothing here calls int() on a reply: Python refuses numbers of more than 4,300 digits, so
digits are compared as text. Time is linear in the reply. The text must already end before the first end token.
"""

import math
import numbers
import random
import re

DIGITS = re.compile("[0-9]+")
PHRASE = "The answer is "
LARGEST_BITS = 10_000       # an answer beyond this (about 3,000 digits) could not be printed in full


def final_number(reply):
    """The digits of a closing "The answer is <digits>." as written (str); None if the reply ends in another way."""
    text = reply.strip()
    head = text[:-1].rstrip("0123456789")
    digits = text[len(head):-1]
    return digits if digits and text.endswith(".") and head.endswith(PHRASE) else None


def same_number(digits, answer):
    """Whether a run of digits (or None) and the int answer are the same number, leading zeros ignored."""
    return digits is not None and digits.lstrip("0") == str(answer).lstrip("0")


def strict(reply, answer):
    """1.0 if the reply ends with the phrase and a number equal to the answer (leading zeros pass), else 0.0."""
    return float(same_number(final_number(reply), answer))


def exact(reply, answer):
    """1.0 if the reply ends with the phrase and the answer's own digits (no leading zeros), else 0.0."""
    return float(final_number(reply) == str(answer))


def contains(reply, answer):
    """1.0 if some maximal run of ASCII digits in the reply is the answer's own digits, else 0.0. Easily gamed."""
    wanted = str(answer)
    return float(any(run.group() == wanted for run in DIGITS.finditer(reply)))


def last_number(reply, answer):
    """1.0 if the last run of digits in the reply equals the answer as a number, else 0.0: the lenient metric."""
    runs = DIGITS.findall(reply)
    return float(bool(runs) and same_number(runs[-1], answer))


KINDS = {"strict": strict, "exact": exact, "contains": contains}


def format_credit(credit=0.1):
    """A checker that pays 1.0 where strict does, `credit` for the right format with a wrong number, else 0.0."""
    if isinstance(credit, bool) or not isinstance(credit, numbers.Real) or not 0 <= credit < 1:
        raise ValueError(f"credit is {_show(credit)}: give a number from 0 up to, not including, 1")

    def partial_credit(reply, answer):
        return strict(reply, answer) or (float(credit) if final_number(reply) is not None else 0.0)

    return partial_credit


class Coin:
    """A random control: pays 1.0 with probability p whatever the reply says, from a stream of its own.

    `state()` is the number of draws so far; `restore(state)` continues the same stream after it.
    """

    def __init__(self, p, seed):
        if isinstance(p, bool) or not isinstance(p, numbers.Real) or not 0 <= p <= 1:
            raise ValueError(f"p is {_show(p)}: give a probability from 0 to 1")
        self.p, self.seed = float(p), seed
        self.restore(0)

    def __call__(self, reply, answer):
        self.draws += 1
        return float(self.stream.random() < self.p)

    def state(self):
        """The draws made so far, an int."""
        return self.draws

    def restore(self, state):
        """Start again from the seed and skip `state` draws."""
        if isinstance(state, bool) or not isinstance(state, numbers.Integral) or state < 0:
            raise ValueError(f"state is {_show(state)}: give the number of draws that state() returned")
        self.stream, self.draws = random.Random(f"coin {self.seed}"), int(state)
        for _ in range(self.draws):
            self.stream.random()


def coin(p, seed):
    """A checker that ignores the reply and pays 1.0 with probability p; see `Coin` for resuming it."""
    return Coin(p, seed)


def reward(reply, answer, kind="strict"):
    """The reward (float) of one reply (str) to a problem whose answer is an int >= 0. ValueError on any other input.

    Built in notebook 01.
    """
    return rewards([reply], [answer], kind)[0]


def rewards(replies, answers, kind="strict"):
    """The rewards (list of float, in order) of replies to answers, one answer per reply; errors name the row."""
    grade = _grader(kind)
    if isinstance(replies, str):
        raise ValueError("replies is one str: give a list of replies, or use reward(reply, answer, kind)")
    replies, answers = list(replies), list(answers)
    if len(replies) != len(answers):
        raise ValueError(f"{len(replies)} replies for {len(answers)} answers: give one answer per reply")
    return [_one(row, reply, answer, grade) for row, (reply, answer) in enumerate(zip(replies, answers))]


def _one(row, reply, answer, grade):
    if not isinstance(reply, str):
        raise ValueError(f"row {row}: the reply is {type(reply).__name__}, not str: decode it first")
    value = grade(reply, _answer(row, answer))
    if not isinstance(value, numbers.Real):
        raise ValueError(f"row {row}: the checker returned {type(value).__name__}, not a number")
    try:
        value = float(value)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"row {row}: the checker returned {value}: a reward must be finite")
    return value


def _grader(kind):
    if callable(kind):
        return kind
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    raise ValueError(f"unknown checker kind {_show(kind)}: use {', '.join(KINDS)} or a callable giving a float")


def _answer(row, answer):
    # bool is an int to Python; numpy integers are Integral, numpy and torch booleans are not
    if isinstance(answer, bool) or not isinstance(answer, numbers.Integral):
        raise ValueError(f"row {row}: the answer is {_show(answer)} ({type(answer).__name__}): give an int >= 0")
    if answer < 0 or int(answer).bit_length() > LARGEST_BITS:
        raise ValueError(f"row {row}: the answer is {_show(answer)}: give an int from 0 up to {LARGEST_BITS} bits")
    return int(answer)


def _show(value):
    """One short ASCII line for an error message; a huge int cannot be printed, so its size is named instead."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"an int of {value.bit_length()} bits"
    text = ascii(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
