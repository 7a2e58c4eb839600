"""Widgets: the pure functions at both ends of every control, the controls themselves, and what strict nbval sees."""
import json
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

pytest.importorskip("ipywidgets")
from grpo_lib import widgets
from grpo_lib.config import ROOT

def row(where, step, a, k):
    """One recorded reply; sample -1 (greedy) and 0 are right, and training paid everything 0.5."""
    paid = {"reward": 0.5} if where == "train" else {}
    return {"step": step, "set": where, "a": a, "b": 5, "template": 0, "sample": k, "length": 9, "ended": True,
            "strict": int(k <= 0), "exact": 0, "contains": 0, "reply": f"<b>The answer is {a + 5 + k}.</b>", **paid}


PLACES = (("3", 0), ("3", 25), ("train", 20))
ROWS = [row(where, step, a, k) for where, step in PLACES for a in (1, 2, 3) for k in (-1, 0, 1)]
REPLIES = pd.DataFrame(ROWS)
RUN = SimpleNamespace(name="main-s1", replies=REPLIES)


def shown(monkeypatch, call, *args, **kwargs):
    """The widget that a call displays, and the text that it prints."""
    got = {}
    monkeypatch.setattr(widgets, "display_with_fallback", lambda widget, text: got.update(widget=widget, text=text))
    assert call(*args, **kwargs) is None
    return got["widget"], got["text"]


def every(widget):
    """A widget and all below it."""
    return [widget] + [w for child in getattr(widget, "children", ()) for w in every(child)]


def named(widget, description):
    return next(w for w in every(widget) if getattr(w, "description", None) == description)


def content(widget):
    return next(w.value for w in every(widget) if type(w).__name__ in ("HTML", "Image"))


# ---- checker playground

@pytest.mark.parametrize("reply, answer, pays", [
    ("The answer is 42.", 42, "111"), ("The answer is 042.", 42, "100"), ("It is 42", 42, "001"), ("", 0, "000"),
    ("The answer is 1000000.", 10 ** 6, "111"), ("<script>" * 50, 42, "000")])
def test_verdicts(reply, answer, pays):
    assert "".join(widgets.verdicts(reply, answer)["pays"]) == pays


def test_playground_follows_its_controls(monkeypatch):
    widget, text = shown(monkeypatch, widgets.playground)
    assert "strict    1" in text and "exact     0" in text
    named(widget, "reply").value = "<b>7</b>"
    for answer in (0, 10 ** 6):
        named(widget, "answer").value = answer
    assert "numbers: 7" in content(widget) and "<b>" not in content(widget)
    named(widget, "reply").value = "<i>The answer is 1000000."
    assert "the closing number 1000000" in content(widget)


# ---- advantage explorer

@pytest.mark.parametrize("G", [2, 8])
@pytest.mark.parametrize("std", [True, False])
def test_advantage_figure_at_both_ends(G, std):
    before = plt.get_fignums()
    for right in (0, 1, G):
        fig = widgets.advantage_figure(right, G, std)
        assert isinstance(fig, Figure) and ("silent" in fig.get_suptitle()) == (right in (0, G))
    assert plt.get_fignums() == before


def test_advantage_table_has_the_known_values():
    table = widgets.advantage_table(4).set_index("right of 4")
    assert table.loc[2].tolist() == ["+1.00", "-1.00", "+0.50", "-0.50"]
    assert table.loc[1].tolist() == ["+1.73", "-0.58", "+0.75", "-0.25"]
    assert table.loc[0].tolist() == ["-", "+0.00", "-", "+0.00"], "nobody is right: silent"
    assert table.loc[4].tolist() == ["+0.00", "-", "+0.00", "-"], "nobody is wrong: silent"


@pytest.mark.parametrize("right", [-1, 9])
def test_group_refuses_more_than_all(right):
    with pytest.raises(ValueError, match="from 0 to G = 8"):
        widgets.group(right, 8)


def test_explorer_follows_its_controls(monkeypatch):
    widget, text = shown(monkeypatch, widgets.advantage_explorer)
    assert len(text.splitlines()) == 10, "a heading and 0 to 8 right"
    pictures = {bytes(content(widget))}
    for right, std in ((0, True), (8, True), (4, True), (4, False)):
        named(widget, "right").value, named(widget, "divide by std").value = right, std
        pictures.add(bytes(content(widget)))
    assert len(pictures) == 5 and all(p.startswith(b"\x89PNG") for p in pictures)


# ---- reply browser

def test_reply_page_filters():
    page = lambda **more: widgets.reply_page(REPLIES, "3", 25, **more)
    assert page()["who"].tolist() == ["greedy", "sample 0", "sample 1"]
    assert page(paid="paid")["who"].tolist() == ["greedy", "sample 0"]
    assert page(paid="unpaid")["who"].tolist() == ["sample 1"]
    assert page(problem=2)["problem"].unique().tolist() == ["3 + 5 = 8"]
    assert widgets.reply_page(REPLIES, "train", 20)["reward"].tolist() == ["0.5"] * 3, "the reward that training paid"
    start = REPLIES.drop(columns="reward")
    assert len(widgets.reply_page(start, "3", 0)) == 3, "a run without training rows has no reward"


@pytest.mark.parametrize("place", [("3", 7, 0), ("3", 0, 3), ("3", 0, -1), ("9", 0, 0)])
def test_reply_page_names_what_is_missing(place):
    with pytest.raises(ValueError, match="no problem"):
        widgets.reply_page(REPLIES, *place)


def test_browser_follows_its_controls(monkeypatch):
    widget, text = shown(monkeypatch, widgets.reply_browser, RUN)
    assert text.startswith("set 3, step 25, problem 0") and "The answer is 6." in text
    assert "&lt;b&gt;" in content(widget), "a reply is text, not HTML"
    for problem in (0, 2):
        named(widget, "problem").value = problem
        assert f"{problem + 1} + 5" in content(widget)
    for step in (0, 25):
        named(widget, "step").value = step
    named(widget, "set").value = "train"
    assert named(widget, "step").options == (20,) and "0.5" in content(widget)
    next(w for w in every(widget) if type(w).__name__ == "ToggleButtons").value = "unpaid"
    assert "<td" not in content(widget), "every reply was paid"
    with pytest.raises(ValueError, match="holds no replies of set '4'"):
        widgets.reply_browser(RUN, set="4")


# ---- one prompt, every model

TALK = {"chat model": [{"prompt": "Hi!", "reply": "<b>Hey!</b>", "length": 3, "ended": True}, {"prompt": "2 - 1?", "reply": "no", "length": 1, "ended": False}],
        "start": [{"prompt": "2 - 1?", "reply": "2 + 1 = 3. The answer is 3.", "length": 16, "ended": True}]}


def test_the_talk_browser_shows_each_model_at_the_chosen_prompt(monkeypatch):
    tree, text = shown(monkeypatch, widgets.talk_browser, TALK, "2 - 1?")
    box, out = tree.children
    assert box.options == ("Hi!", "2 - 1?") and "2 + 1 = 3." in out.value and text.splitlines()[0] == "2 - 1?" and len(text.splitlines()) == 4
    box.value = "Hi!"
    assert "&lt;b&gt;Hey!&lt;/b&gt;" in out.value and "<b>" not in out.value and "2 + 1" not in out.value, "replies are text, and a model that was not asked is left out"
    assert list(widgets.talk_page(TALK, "2 - 1?")["ended"]) == ["no", "yes"]
    with pytest.raises(ValueError, match="no record holds the prompt 'Why"):
        widgets.talk_browser(TALK, "Why?")


# ---- what a notebook stores

def test_outside_a_notebook_only_the_text_is_printed(capsys):
    widgets.advantage_explorer(2, 1)
    assert capsys.readouterr().out == widgets.as_text(widgets.advantage_table(2)) + "\n"


@pytest.mark.slow
def test_strict_nbval_compares_the_text_and_not_the_ids(tmp_path):
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nb = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    sources = ["from grpo_lib import draw, plots, widgets", "widgets.playground()", "draw.show(plots.loss_terms('t'), 'x')"]
    nb.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    path = tmp_path / "w.ipynb"
    nbformat.write(nb, path)
    code = ("import sys, nbformat; from nbclient import NotebookClient; nb = nbformat.read(sys.argv[1], 4); "
            "NotebookClient(nb, kernel_name='python3').execute(); nbformat.write(nb, sys.argv[1])")
    run = lambda *command: subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True,
                                          encoding="utf-8", timeout=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_RUNS", str(tmp_path))
        patch.setenv("PYTHONPATH", str(ROOT))                       # this checkout, wherever pytest was started
        made = run("-c", code, "w.ipynb")
        assert made.returncode == 0, made.stderr[-2000:]
        outputs = [out for cell in nbformat.read(path, 4).cells for out in cell.outputs]
        assert not any(out.get("name") == "stderr" for out in outputs), "something was written on stderr"
        plain = [out.data["text/plain"] for out in outputs if "text/plain" in out.get("data", {})]
        assert len(plain) == 1 and plain[0].endswith(widgets.LABEL) and "the closing number 042" in plain[0], f"the text beside the view: {plain}"
        assert sum("image/png" in out.get("data", {}) for out in outputs) == 1, "a figure is displayed once"
        edited = path.read_text(encoding="utf-8").replace("the closing number 042", "the closing number 043", 1)
        (tmp_path / "edited.ipynb").write_text(edited, encoding="utf-8")
        report = run("-m", "pytest", "--nbval", "--nbval-current-env", "-v", "w.ipynb", "edited.ipynb").stdout
        assert "1 failed, 5 passed" in report, f"only the edited number may fail:\n{report[-3000:]}"
        assert "FAILED edited.ipynb::Cell 1" in report, report[-3000:]
        assert (tmp_path / "figures" / "x.png").is_file()
    assert "model_id" in json.dumps(outputs), "the live view is there"
