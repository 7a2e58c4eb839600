"""Report rows are functions of a run's replies: recomputed here by hand on a small made-up run."""
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from grpo_lib import report
from grpo_lib.config import ROOT
from grpo_lib.runs import Run, load
from grpo_lib.task import direct, worked


def made_up():
    rows = []
    for step, right in ((0, 1), (50, 3)):
        for i in range(4):
            reply = worked(10 + i, 5) if i < right else direct(1, 1)
            good = int(i < right)
            for sample in (-1, 0, 1):
                rows.append(dict(step=step, set="3", a=10 + i, b=5, template=0, sample=sample, reply=reply, length=40 + 10 * good, ended=True,
                                 strict=good, exact=good, contains=good))
    return Run("x", "mini", {"seed": 1}, pd.DataFrame(), [], pd.DataFrame(rows), {}, Path("."), False)


def test_rows_are_the_counts_of_the_replies():
    rows = {r["quantity"]: r for r in report.rows(made_up())}
    assert rows["start greedy"]["value"] == 0.25 and rows["end greedy"]["value"] == 0.75 and rows["gain greedy"]["value"] == 0.5
    assert rows["start greedy"]["n"] == 4 and rows["end sampled"]["n"] == 8 and rows["end sampled"]["value"] == 0.75
    assert rows["reply tokens start"]["value"] == 42.5 and rows["reply tokens end"]["value"] == 47.5
    assert rows["end worked"]["value"] == 0.75
    for r in rows.values():
        assert r["low"] <= r["value"] <= r["high"], r


def test_by_style_and_split_add_up_to_the_gain():
    run = made_up()
    before, after = (report.by_style(report.sampled(run, s)) for s in (0, 50))
    assert before == {"direct": (0.75, 0.0), "worked": (0.25, 1.0)}
    split = report.split_gain(before, after)
    assert split["style"] + split["column"] == pytest.approx(0.5) and split["style"] == pytest.approx(0.5)


def test_the_table_has_a_line_for_each_row():
    rows = report.rows(made_up())
    lines = report.table(rows).splitlines()
    assert len(lines) == len(rows) + 1 and "17.8%" in report.table(rows)


def test_the_readme_shows_the_report_of_the_recorded_main_run():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split("<!-- report -->")[1].split("<!-- end -->")[0]
    wanted = report.table(report.rows(load("main-s1", quiet=True)))
    assert [line.strip() for line in wanted.splitlines()] == [line.strip() for line in shown.strip().splitlines()], \
        "README's report is not what the record says; it must read:\n" + wanted


def test_the_readme_key_numbers_are_printed_by_their_notebooks():
    rows = re.findall(r"^\| \[.*?\]\((notebooks/\S+\.ipynb)\) \|[^|]*\|([^|]*)\|", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == len(list((ROOT / "notebooks").glob("*.ipynb"))), "each notebook has its row"
    for path, key in rows:
        cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
        said = "".join("".join(o.get("text", [])) for c in cells for o in c.get("outputs", []))
        lost = [n for n in re.findall(r"\d[\d,]*(?:\.\d+)?%?", key) if n not in said]
        assert not lost, f"README says {lost} of {path}, which prints no such number"
