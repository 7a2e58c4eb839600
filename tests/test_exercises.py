"""The folded answers under "On your own": taken out of the notebooks as they are printed there, run, and put to the test."""

import contextlib
import io
import math
import re

import nbformat
import pytest
import torch

from grpo_lib.analysis import silent_share
from grpo_lib.config import RECIPES, ROOT
from grpo_lib.loss import group_advantages
from grpo_lib.report import ARTICLE
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


def test_02_1_the_smallest_group_that_teaches_often_enough():
    names, printed = run("02", 1)
    teaches = lambda p, G: 1 - sum(silent_share([p], G))
    for p in (0.003, 0.01, 0.114, 0.5, 0.8):
        for share in (0.1, 0.5, 0.9):
            G = names["group_size"](p, share)
            assert teaches(p, G) >= share > teaches(p, G - 1), f"group_size({p}, {share}) is {G}"
    assert printed == "0.01 69\n0.114 6\n0.5 2\n", f"the text names 69, 6 and 2, the code printed {printed!r}"


def test_02_2_credit_falls_with_the_distance():
    near = run("02", 2)[0]["near"]
    for reply, paid in (("So 722 + 5 = 727.", 1), ("726", 1 / 2), ("It is 729 or 730.", 1 / 4), ("No idea.", 0), ("", 0), ("9" * 5000, 0)):
        assert near(reply, 727) == paid, f"{reply[:20]!r} earned {near(reply, 727)}"
    assert near("Add 722 and 5.", 727) == 1 / 723 and near("Add 5 and 722.", 727) == 1 / 6, "the echoes of the text"


def test_02_3_the_share_of_hopeless_problems_fits_both_numbers():
    names, printed = run("02", 3)
    s, mean = names["s"], ARTICLE["start sampled"]
    hopeless = round(1000 * s)
    rates = [0.0] * hopeless + [mean / (1 - s)] * (1000 - hopeless)
    assert abs(sum(rates) / 1000 - mean) < 1e-3 and abs(silent_share(rates, 8)[0] - ARTICLE["start silent groups"]) < 1e-3, rates[-1]
    assert printed == f"{s:.0%} hopeless, the others {rates[-1]:.0%} right\n" and s > 0.5, printed


def test_03_1_only_the_end_token_leaves_the_mask(tokenizer):
    without_end = run("03", 1)[0]["without_end"]
    for problem in training(50, 7):
        chat = [{"role": "user", "content": problem.prompt}, {"role": "assistant", "content": worked(problem.a, problem.b)}]
        ids, is_reply = tokenizer.conversation(chat)
        mask = without_end(ids, is_reply, tokenizer.end_ids)
        lost = [i for i, (was, now) in enumerate(zip(is_reply, mask)) if was != now]
        assert len(mask) == len(ids) and len(lost) == 1, f"{len(lost)} tokens left the mask, not the end token alone"
        assert ids[lost[0]] in tokenizer.end_ids and mask[lost[0]] == 0, "what left the mask is not the end token"


def test_03_2_repeated_sums_are_counted_once():
    printed, recipe = run("03", 2)[1], RECIPES["mini"]["warm"]
    different = len({tuple(sorted((p.a, p.b))) for p in training(recipe.n, recipe.seed)})
    assert printed == f"{different:,} different sums in {recipe.n:,} examples\n", f"printed {printed!r}"


def test_03_3_measured_rates_overstate_silence():
    names, printed = run("03", 3)
    assert printed == "0.578, not 0.430\n", f"printed {printed!r}"
    for p in (0.01, 0.1, 0.5, 0.9):
        assert names["plug_in"](p) > (1 - p) ** 8, f"at {p} the plug-in must lie above the truth"
    assert names["plug_in"](0.1, n=400) == pytest.approx(0.9 ** 8, rel=0.01), "many samples bring it to the truth"
    assert names["plug_in"](0.0) == 1 and names["plug_in"](1.0) == 0


def test_04_1_leaving_the_reply_out_stretches_by_a_factor():
    leave_one_out = run("04", 1)[0]["leave_one_out"]
    r = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [0.1, 0, 1, 0.4]]).double()
    by_loop = [[row[i] - sum(row[:i] + row[i + 1:]) / 3 for i in range(4)] for row in r.tolist()]
    assert torch.allclose(leave_one_out(r), torch.tensor(by_loop).double(), atol=1e-12), "not the mean of the other replies"
    assert torch.allclose(leave_one_out(r), 4 / 3 * group_advantages(r, std=False)), "the text promises the factor G / (G - 1)"


def test_04_2_dividing_by_the_deviation_favours_the_extremes():
    names, printed = run("04", 2)
    for std in (True, False):
        for c in range(1, 8):
            p = c / 8
            wanted = c * (1 - p) / ((p * (1 - p)) ** 0.5 + 1e-4 if std else 1)
            assert names["push"](c, 8, std) == pytest.approx(wanted, rel=1e-5), f"{c} of 8 right, std {std}"
    tables = [[float(x) for x in line.split()] for line in printed.splitlines()]
    assert [len(row) for row in tables] == [7, 7] and all(max(row) == row[3] for row in tables), f"both peak at 4 of 8: {tables}"
    assert [f"{row[0] / row[3]:.0%}" for row in tables] == ["66%", "44%"], "the shares that the text names"


def test_04_3_k3_spreads_less_than_k1():
    names, printed = run("04", 3)
    p, q = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    k1 = [math.log(a / b) for a, b in zip(p, q)]
    mean = sum(a * k for a, k in zip(p, k1))
    both = (k1, [b / a - 1 + k for a, b, k in zip(p, q, k1)])
    wanted = [math.sqrt(sum(a * (k - mean) ** 2 for a, k in zip(p, ks))) for ks in both]     # one mean: both estimate the same KL
    assert names["spread"](p, q) == pytest.approx(wanted), "standard deviations over the policy"
    assert printed == "k1 {:.3f}, k3 {:.3f}\n".format(*wanted) and wanted[1] < wanted[0] / 5, f"printed {printed!r}"
    assert names["spread"](p, p) == pytest.approx((0, 0), abs=1e-12), "no drift, no spread"
