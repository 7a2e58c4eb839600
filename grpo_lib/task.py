"""The task: sums of two numbers, the prompts, the two reply styles, and problems drawn by one law.

The law: each number's digit count is uniform on {1, 2, 3}, then the number is uniform among those with that many digits
(0 counts as one digit); the wording is uniform. Four fixed sets lie in data/heldout, disjoint as unordered number pairs
from each other and from everything `training` and `training_batch` can return. Draws use random.Random(text).random()
alone: Python promises that stream on every platform and version, and no set depends on another set's draws.

Nothing here knows a tokenizer or a chat template: text only.
"""

import hashlib
import json
import numbers
import random
from dataclasses import dataclass
from functools import lru_cache

from grpo_lib.config import DATA

TEMPLATES = ("What is {a} + {b}?", "Add {a} and {b}.", "Compute {a} + {b}.")
SIZES = {3: 500, "dev": 500, 4: 200, 5: 200}        # also the order in which the sets are built
SAMPLED = {3: 200, "dev": 200, 4: 100, 5: 100}      # how many problems of each set serve sampling
SMALL_PAIRS = 12            # one-digit pairs that set 3 and dev may take each: 24 of the 55 that exist
SHA256 = {
    3: "59f16a0b4a06e8a052aaf8865d41192d420bce3e27330490df387f2b87034b94",
    "dev": "41919a0b1ca965e4dbc1439a088b3c52b5c037a65fe0d238ff45dbe89c41d5e7",
    4: "4876efe4b80b9461d286446c6f944d9915a8cb76a9e044ff4c558e76e0470cf7",
    5: "c36fcfeab5b28e096a6227533fed4de127588112e62cb67794f78db62a87d72e",
}


@dataclass(frozen=True)
class Problem:
    """One sum, a + b, asked in wording `template` (an index into TEMPLATES)."""

    a: int
    b: int
    template: int

    def __post_init__(self):
        for name in ("a", "b", "template"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 0))    # numpy integers become int
        if self.template >= len(TEMPLATES):
            raise ValueError(f"template is {self.template}: use 0 to {len(TEMPLATES) - 1}")

    @property
    def prompt(self):
        """The question as text, without chat template."""
        return TEMPLATES[self.template].format(a=self.a, b=self.b)

    @property
    def answer(self):
        """a + b."""
        return self.a + self.b

    @property
    def pair(self):
        """(smaller, larger): what makes two problems the same sum."""
        return min(self.a, self.b), max(self.a, self.b)


def direct(a, b):
    """The direct reply: the sum as an equation, then the final phrase."""
    total = whole_number("a", a, 0) + whole_number("b", b, 0)
    return f"{a} + {b} = {total}. The answer is {total}."


def columns(a, b):
    """Column addition, ones first: one (x, y, carry_in, s, write, carry_out) per digit of the longer number."""
    a, b, carry, rows = whole_number("a", a, 0), whole_number("b", b, 0), 0, []
    for _ in range(len(str(max(a, b)))):
        (a, x), (b, y) = divmod(a, 10), divmod(b, 10)
        total = x + y + carry
        rows.append((x, y, carry, total, total % 10, total // 10))
        carry = total // 10
    return rows


def worked(a, b):
    """The worked reply: every column with its carry, then the final phrase."""
    a, b = whole_number("a", a, 0), whole_number("b", b, 0)
    rows = columns(a, b)
    lines = ["Add the digits from right to left."] + [_column_text(*row) for row in rows]
    if rows[-1][-1]:
        lines.append("Write the carry 1.")
    return " ".join(lines + [f"The answer is {a + b}."])


def _column_text(x, y, carry_in, total, write, carry_out):
    addends = [x, y, 1] if carry_in else [x, y]
    ending = ", carry 1." if carry_out else "."
    return f"{' + '.join(map(str, addends))} = {total}, write {write}{ending}"


def heldout(key):
    """The committed set 3 or "dev" (500 problems each), 4 or 5 (200 each). ValueError if the file changed."""
    if not isinstance(key, (int, str)) or key not in SIZES:
        shown = ascii(key)[:60] if not isinstance(key, int) or abs(key) < 10 ** 60 else "a huge int"
        raise ValueError(f"unknown held-out set {shown}: use 3, 'dev', 4 or 5")
    return list(_load(key))


def sampling_set(key):
    """The first problems of a held-out set, those that are sampled from: 200 of 3 and "dev", 100 of 4 and 5."""
    return heldout(key)[:SAMPLED[key]]


def training(n, seed):
    """n training problems, drawn independently by the law. Where a pair is held out, the two numbers are drawn again
    with the same digit counts, so these stay uniform. A longer list starts with the shorter one."""
    return _draw(random.Random(f"training {whole_number('seed', seed, 0)}"), whole_number("n", n, 1))


def training_batch(seed, step, n):
    """The n problems of GRPO step `step`, a function of seed and step alone, so that resuming needs no state."""
    name = f"grpo {whole_number('seed', seed, 0)} step {whole_number('step', step, 0)}"
    return _draw(random.Random(name), whole_number("n", n, 1))


def demonstrations(n, seed):
    """n (Problem, reply) pairs for the warm start: half direct, half worked (an odd one out is direct), shuffled."""
    problems = training(n, seed) if whole_number("n", n, 0) else []
    rng = random.Random(f"styles {seed}")
    order = sorted(range(n), key=[rng.random() for _ in range(n)].__getitem__)
    write = dict(zip(order, [worked] * (n // 2) + [direct] * (n - n // 2)))
    return [(problem, write[i](problem.a, problem.b)) for i, problem in enumerate(problems)]


def distinct(n, name, digits=(1, 2, 3), avoid=frozenset(), small=55):
    """n problems of n different unordered pairs, drawn by the law with these digit counts, none in `avoid` and at most
    `small` of two one-digit numbers; `name` (str) seeds the stream. ValueError if fewer such pairs exist."""
    exist = _count(digits, avoid, small)
    if whole_number("n", n, 1) > exist:
        raise ValueError(f"n is {n}, but only {exist} different pairs exist: ask for fewer")
    rng, taken, problems = random.Random(name), set(avoid), []
    while len(problems) < n:
        problem = _problem(rng, _counts(rng, digits))
        if problem.pair in taken or (problem.pair[1] < 10 and small == 0):
            continue
        small -= problem.pair[1] < 10
        taken.add(problem.pair)
        problems.append(problem)
    return problems


def build_heldout():
    """The four held-out sets from nothing: {key: list of Problem}. The committed files are `heldout_text` of these."""
    sets, taken = {}, set()
    for key, size in SIZES.items():
        digits = (key,) if key in (4, 5) else (1, 2, 3)
        sets[key] = distinct(size, f"held-out {key}", digits, frozenset(taken), SMALL_PAIRS)
        taken |= {problem.pair for problem in sets[key]}
    return sets


def heldout_text(problems):
    """The text of a held-out file: a JSON list of [a, b, template], one row a line."""
    rows = ",\n".join(json.dumps([problem.a, problem.b, problem.template]) for problem in problems)
    return f"[\n{rows}\n]\n"


@lru_cache(maxsize=None)
def _load(key):
    path = DATA / "heldout" / f"{key}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: restore it with git checkout")
    text = path.read_text(encoding="utf-8")         # line ends become \n here, so the hash holds on every platform
    found = hashlib.sha256(text.encode("utf-8")).hexdigest()
    if found != SHA256[key]:
        raise ValueError(f"{path} has sha256 {found[:12]}..., not {SHA256[key][:12]}...: restore it with git checkout")
    return tuple(Problem(*row) for row in json.loads(text))


@lru_cache(maxsize=None)
def heldout_pairs():
    """All held-out unordered pairs (frozenset of (smaller, larger)): what no training text may contain as a sum."""
    return frozenset(problem.pair for key in SIZES for problem in _load(key))


def _draw(rng, n):
    banned, problems = heldout_pairs(), []
    for _ in range(n):
        counts = _counts(rng, (1, 2, 3))
        while (problem := _problem(rng, counts)).pair in banned:
            pass
        problems.append(problem)
    return problems


def _counts(rng, digits):
    return digits[_below(rng, len(digits))], digits[_below(rng, len(digits))]


def _problem(rng, counts):
    a, b = (low + _below(rng, high - low) for low, high in map(_range, counts))
    return Problem(a, b, _below(rng, len(TEMPLATES)))


def _below(rng, n):
    return int(rng.random() * n)


def _range(digits):
    return (0 if digits == 1 else 10 ** (digits - 1)), 10 ** digits


def _count(digits, avoid, small):
    """How many unordered pairs `distinct` can return."""
    ranges = [_range(count) for count in digits]
    numbers_ = sum(high - low for low, high in ranges)
    inside = [pair for pair in avoid if all(any(low <= x < high for low, high in ranges) for x in pair)]
    free = numbers_ * (numbers_ + 1) // 2 - len(inside)
    if 1 in digits:
        free_small = 55 - sum(pair[1] < 10 for pair in inside)
        free -= max(0, free_small - small)
    return free


def whole_number(name, value, least):
    """The value as an int >= least, or a ValueError naming the argument (a huge int is not printed: Python refuses)."""
    fine = isinstance(value, numbers.Integral) and not isinstance(value, bool) and least <= value < 10 ** 1000
    if not fine:
        shown = ascii(value)[:60] if not isinstance(value, int) or abs(value) < 10 ** 60 else "a huge int"
        raise ValueError(f"{name} is {shown}: give a whole number of at least {least}")
    return int(value)
