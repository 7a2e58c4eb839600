"""The folded answers under "On your own": taken out of the notebooks as they are printed there, run, and put to the test."""

import contextlib
import io
import re

import nbformat
import pytest

from grpo_lib.config import ROOT
from grpo_lib.task import Problem, direct, heldout, training, worked

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
OWN = re.compile(r"^## On your own\n(.*?)(?=^## |\Z)", re.M | re.S)
FOLDED = re.compile(r"<details>.*?</details>", re.S)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def folded(path):
    """The code of each folded answer in a notebook (list of str), in order; an answer in words alone gives ''."""
    nb = nbformat.read(path, 4)
    text = "\n\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    own = OWN.search(text)
    return ["\n".join(PYTHON.findall(answer)) for answer in FOLDED.findall(own.group(1))] if own else []


def run(number, exercise):
    """(names, printed text) after running one answer of notebook `number` in an empty namespace."""
    (path,) = [path for path in NOTEBOOKS if path.name.startswith(number)]
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(folded(path)[exercise - 1], f"{path.name}, exercise {exercise}", "exec"), names)
    return names, printed.getvalue()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_each_notebook_folds_three_answers(path):
    assert len(folded(path)) == 3, f"{path.name} has {len(folded(path))} folded answers under '## On your own', not 3"


def test_01_1_commas_pass_only_in_their_place():
    comma_strict = run("01", 1)[0]["comma_strict"]
    fine = ("1,323", "1323", "01,323")
    bad = ("13,23", "1,32,3", "1323,", ",1323", "1,3230", "1, 323", "1,324", "1;323")
    for number in fine + bad:
        paid = comma_strict(f"748 + 575 = 1,323. The answer is {number}.", 1323)
        assert paid == float(number in fine), f"{number} earned {paid}"
    assert comma_strict("The answer is 1,234,567.", 1234567) == 1, "two commas, both in place"
    assert comma_strict("The answer is 1,323. Or 1,324.", 1323) == 0, "all else stays strict"


def test_01_2_the_parrot_is_paid_where_a_zero_is_added():
    printed = run("01", 2)[1]
    zeros = sum(0 in problem.pair for problem in heldout(3))
    assert printed == f"{zeros} of 500\n" == "19 of 500\n", f"printed {printed!r}, but {zeros} sums hold a 0"


def test_01_3_only_sound_working_is_paid():
    sound_only = run("01", 3)[0]["sound_only"]
    for problem in training(300, 7):
        pays, good = sound_only(problem), worked(problem.a, problem.b)
        assert pays(good, problem.answer) == 1, good
        assert pays(direct(problem.a, problem.b), problem.answer) == 0, "a direct reply has no working"
        assert pays(good.replace(", write ", ", write 1", 1), problem.answer) == 0, "a wrong digit was written"
    other = Problem(49, 74, 0)
    assert sound_only(other)(worked(48, 75), 123) == 0, "sound working for another sum with the same answer"
    padded = worked(17, 25).replace("The answer is", "0 + 0 = 0, write 0. The answer is")
    assert sound_only(Problem(17, 25, 0))(padded, 42) == 0, "padded working is not sound"
