"""Rules that every committed notebook keeps, each with a proof that it can fail; and proofs that strict nbval fails."""

import ast
import json
import re
import subprocess
import sys
import time
import warnings
from statistics import median

import nbformat
import nbformat.v4
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from grpo_lib.config import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"/(home|root|Users|tmp|opt|work|mnt|usr)/|[A-Z]:\\|site-packages|ipykernel_\d+|\b0x[0-9a-f]{6,}")
RAW_REPR = re.compile(r"np\.(float|int|bool)\w*\(|<Figure size|Text\(")
NOT_COMPARED = {"nbval-ignore-output", "nbval-skip"}


def load(path):
    """The notebook as it lies in the file, lines joined: nothing validated, repaired or upgraded on the way."""
    return nbformat.v4.reads(path.read_text(encoding="utf-8"))


def code_cells(nb):
    """(position in the notebook, cell) of each code cell that holds something."""
    return [(i, c) for i, c in enumerate(nb.cells) if c.cell_type == "code" and c.source.strip()]


def joined(text):
    return "".join(text) if isinstance(text, list) else text


def texts(cell, every_type=False):
    """What a cell printed: streams and plain or markdown results; `every_type` adds HTML, SVG, JSON and tracebacks."""
    for out in cell.get("outputs", []):
        if out.output_type == "stream":
            yield joined(out.text)
        elif out.output_type == "error" and every_type:
            yield "\n".join(out.traceback)
        for kind, value in out.get("data", {}).items():
            if kind in ("text/plain", "text/markdown") or every_type and not kind.startswith("image/png"):
                yield joined(value) if isinstance(value, (str, list)) else json.dumps(value)


# Each rule takes a notebook and returns complaints, one line each, that name the cell.

def rule_format_is_valid(nb):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            nbformat.validate(nb)
        except Exception as fault:  # validation errors and warnings alike
            return [f"nbformat: {str(fault).splitlines()[0]}"]
    return []


def rule_ids_are_unique(nb):
    ids = [c.get("id") for c in nb.cells]
    return [f"cell {i}: id {x!r} is missing or used before" for i, x in enumerate(ids) if not x or x in ids[:i]]


def rule_counts_run_from_1(nb):
    # nbval runs a cell without a count but does not compare it
    return [f"cell {i}: execution count {c.execution_count}, not {n}: run the notebook from the top and save it"
            for n, (i, c) in enumerate(code_cells(nb), 1) if c.execution_count != n]


def rule_kernel_is_python3(nb):
    name = nb.metadata.get("kernelspec", {}).get("name")
    return [] if name == "python3" else [f"kernel {name!r}, not 'python3'"]


def rule_nothing_on_stderr(nb):
    return [f"cell {i}: stderr {joined(o.text)[:60]!r}" for i, c in code_cells(nb) for o in c.outputs
            if o.output_type == "stream" and o.name == "stderr"]


def rule_no_errors(nb):
    return [f"cell {i}: {o.ename}, without the tag raises-exception" for i, c in code_cells(nb) for o in c.outputs
            if o.output_type == "error" and "raises-exception" not in c.metadata.get("tags", [])]


def rule_no_machine_paths(nb):
    hits = [(i, MACHINE.search(t)) for i, c in code_cells(nb) for t in texts(c, every_type=True)]
    return [f"cell {i}: {hit.group()!r} in its output" for i, hit in hits if hit]


def rule_no_raw_reprs(nb):
    hits = [(i, RAW_REPR.search(t)) for i, c in code_cells(nb) for t in texts(c)]
    return [f"cell {i}: {hit.group()!r} in its output: print formatted numbers, end plot cells without a value"
            for i, hit in hits if hit]


def rule_no_semicolon_ends(nb):
    return [f"cell {i}: ends with ';', which does not hide output from nbval"
            for i, c in code_cells(nb) if c.source.rstrip().endswith(";")]


def rule_code_is_short(nb):
    lengths = [(i, len(c.source.strip().splitlines())) for i, c in code_cells(nb) if not prose(c)]      # prose is text, in code's clothes
    faults = [f"cell {i}: {n} lines of code, 40 at most" for i, n in lengths if n > 40]
    middle = median(n for _, n in lengths) if lengths else 0
    return faults + ([f"code cells have {middle} lines in the median, 8 at most"] if middle > 8 else [])


def rule_imported_names_stay(nb):
    """What a notebook imports, no cell of it may bind again: a later cell would call the wrong thing."""
    bound = [(i, node) for i, c in code_cells(nb) for node in ast.parse(c.source).body]
    imported = {a.asname or a.name.split(".")[0] for _, node in bound if isinstance(node, (ast.Import, ast.ImportFrom)) for a in node.names}
    taken = [(i, name) for i, node in bound for name in rebound(node)]
    return [f"cell {i}: binds {name} again, which the notebook imports" for i, name in taken if name in imported]


def rebound(node):
    """Names that a statement at the top of a cell binds by other means than an import; what happens inside a function stays there."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    inner = [part for part in ast.walk(node) if isinstance(part, (ast.FunctionDef, ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp))]
    local = {id(part) for scope in inner for part in ast.walk(scope)}
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store) and id(part) not in local]


def rule_has_20_to_50_cells(nb):
    return [] if 20 <= len(nb.cells) <= 50 else [f"{len(nb.cells)} cells, not 20 to 50"]


def rule_prints_numbers(nb):
    compared = [c for _, c in code_cells(nb) if not NOT_COMPARED & set(c.metadata.get("tags", []))
                and not c.source.startswith(("# NBVAL_IGNORE_OUTPUT", "# NBVAL_SKIP"))]
    n = sum(any(re.search(r"\d", t) for t in texts(c)) for c in compared)
    return [] if n >= 8 else [f"{n} compared outputs with digits, at least 8 wanted"]


NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]?\d+)?"


def prose(cell):
    """What a reader reads in a cell as text: its markdown, or the Markdown that its code displays."""
    if cell.cell_type == "markdown":
        return cell.source
    return "\n\n".join(joined(o.data["text/markdown"]) for o in cell.get("outputs", []) if "text/markdown" in o.get("data", {}))


def summary(nb):
    """The prose under the heading '## Summary', up to the next heading; None where there is none."""
    text = "\n\n".join(filter(None, map(prose, nb.cells)))
    found = re.search(r"^## Summary\b.*\n((?:(?!#{1,6} ).*(?:\n|$))*)", text, re.M)
    return found and found.group(1)


def numbers(text, names=True):
    """Numerals of a text, commas dropped.

    With `names`, what is no result is left out: code spans, link targets, list numbers, notebook numbers (04) and the
    digits of names (C01, SmolLM2-135M, pass@8).
    """
    if names:
        text = re.sub(r"`[^`]*`|\]\([^)]*\)|^\s*\d+\.\s", " ", text, flags=re.M)
        word = r"(?<![\d_])[^\W\d_]\w*(?:[-@]\w+)*"
        text = re.sub(word, " ", text)
        text = re.sub(r"(?<![\d.,])0\d(?![\d.,]*\d)", " ", text)
    return {n.replace(",", "") for n in re.findall(rf"(?<![\d.]){NUMBER}", text)}


def rule_summary_numbers_are_printed(nb):
    text = summary(nb)
    if text is None:
        return ["no markdown heading '## Summary'"]
    printed = {n for _, c in code_cells(nb) if not prose(c) for t in texts(c) for n in numbers(t, names=False)}
    return [f"the Summary says {n}, which no cell prints" for n in sorted(numbers(text) - printed)]


RULES = [rule for name, rule in sorted(globals().items()) if name.startswith("rule_")]


def test_notebooks_are_numbered_without_a_gap():
    assert NOTEBOOKS, "no notebook in notebooks/"
    assert [p.name[:2] for p in NOTEBOOKS] == [f"{n:02d}" for n in range(1, len(NOTEBOOKS) + 1)]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__[5:])
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_keeps_the_rule(path, rule):
    faults = rule(load(path))
    assert not faults, "\n".join(f"{path.name}: {fault}" for fault in faults)


def printing(text, source="print(x)", count=None):
    printed = [new_output("stream", name="stdout", text=text)]
    return new_code_cell(source, execution_count=count, outputs=printed)


KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def good_notebook():
    """The smallest notebook that keeps every rule."""
    cells = [printing(f"rate {n}.5% of 1,0{n}0 sums\n", count=n) for n in range(1, 11)]
    cells += [new_markdown_cell("text") for _ in range(9)]
    end = "## Summary\nFrom 1.5% to **2.5%** (C01, notebook 04, `0.123`) of 1,030 with mini-2M.\n## More\n99"
    return new_notebook(cells=cells + [new_markdown_cell(end)], metadata={"kernelspec": dict(KERNEL)})


def broken(change):
    nb = good_notebook()
    change(nb)
    return nb


def set_source(text):
    return lambda nb: nb.cells[0].update(source=text)


def add_output(output, cell=0):
    return lambda nb: nb.cells[cell].outputs.append(output)


def add_result(text):
    return add_output(new_output("execute_result", data={"text/plain": text}, execution_count=1))


BREAKS = {
    "format_is_valid": [lambda nb: nb.cells[0].pop("id"), lambda nb: nb.cells[0].update(cell_type="chart"),
                        lambda nb: nb.cells[1].update(id=nb.cells[0].id)],
    "ids_are_unique": [lambda nb: nb.cells[1].update(id=nb.cells[0].id), lambda nb: nb.cells[3].pop("id")],
    "counts_run_from_1": [lambda nb: nb.cells[0].update(execution_count=None),
                          lambda nb: nb.cells[2].update(execution_count=7)],
    "kernel_is_python3": [lambda nb: nb.metadata.kernelspec.update(name="my-venv"),
                          lambda nb: nb.metadata.pop("kernelspec")],
    "nothing_on_stderr": [add_output(new_output("stream", name="stderr", text="Warning: x"))],
    "no_errors": [add_output(new_output("error", ename="ValueError", evalue="x", traceback=[]))],
    "no_machine_paths": [add_result("saved in /" + "home/me/run"), add_result("<object at 0x7f31a2b4c5d0>"),
                         add_output(new_output("display_data", data={"text/html": "<a href='/" + "tmp/a'>"}))],
    "no_raw_reprs": [add_result("np.float64(0.5)"), add_result("<Figure size 640x480 with 1 Axes>"),
                     add_result("Text(0, 1, 'a')")],
    "no_semicolon_ends": [set_source("plot(x);\n")],
    "code_is_short": [set_source("x = 1\n" * 41), lambda nb: [c.update(source="x = 1\n" * 9) for c in nb.cells[:10]]],
    "imported_names_stay": [lambda nb, again=again: (nb.cells[0].update(source="from grpo_lib import draw"), nb.cells[1].update(source=again))
                            for again in ("def draw():\n    pass", "draw = 1", "for draw in range(3):\n    pass", "if 1:\n    a, draw = 1, 2")],
    "has_20_to_50_cells": [lambda nb: nb.cells.pop(),
                           lambda nb: nb.cells.extend([new_markdown_cell("x") for _ in range(31)])],
    "prints_numbers": [lambda nb: [c.update(outputs=[]) for c in nb.cells[:3]],
                       lambda nb: [c.metadata.update(tags=["nbval-ignore-output"]) for c in nb.cells[:3]]],
    "summary_numbers_are_printed": [lambda nb: nb.cells[-1].update(source="## Summary\nIt rose to 77.4%."),
                                    lambda nb: nb.cells[-1].update(source="## Summary\nOf 2,010 sums."),
                                    lambda nb: nb.cells[-1].update(source="## Summary\nA rate of 2."),
                                    lambda nb: nb.cells[-1].update(source="## The end\n1.5%"),
                                    # a number that only the Summary's own code shows
                                    lambda nb: (nb.cells[-1].update(source="## Summary"), nb.cells.append(new_code_cell(
                                        "say(x)", execution_count=11, outputs=[new_output("display_data", data={
                                            "text/markdown": "It rose to 77.4%.", "text/plain": "It rose to 77.4%."})])))],
}


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.__name__[5:])
def test_each_rule_can_fail(rule, tmp_path):
    nbformat.write(good_notebook(), tmp_path / "good.ipynb")
    assert rule(load(tmp_path / "good.ipynb")) == [], "the good notebook must pass"
    for n, change in enumerate(BREAKS[rule.__name__[5:]]):
        assert rule(broken(change)), f"break {n} of {rule.__name__} went unseen"


def test_an_expected_error_may_stay():
    nb = broken(add_output(new_output("error", ename="ValueError", evalue="x", traceback=[])))
    nb.cells[0].metadata["tags"] = ["raises-exception"]
    assert rule_no_errors(nb) == []


def test_numbers_of_a_summary():
    text = "1. From 0.04 to 77.4%, 1,024 sums, 70-80 of 135, 2.5M, lr 2e-4, _56_, 32x8."
    names = " C01, 04, SmolLM2-135M, pass@8, `9.9`, [x](07_y.ipynb)"
    assert numbers(text + names) == {"0.04", "77.4", "1024", "70", "80", "135", "2.5", "2e-4", "56", "32", "8"}


def nbval(tmp_path, *cells, flags=()):
    """Exit status, report and seconds of strict nbval on a notebook of these (source, printed text) cells."""
    nb = new_notebook(metadata={"kernelspec": dict(KERNEL)})
    nb.cells = [printing(text, source, n) if text else new_code_cell(source, execution_count=n)
                for n, (source, text) in enumerate(cells, 1)]
    nbformat.write(nb, tmp_path / "small.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q", *flags, "small.ipynb"]
    start = time.monotonic()
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", timeout=120)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


@pytest.mark.slow
def test_one_edited_number_turns_strict_nbval_red(tmp_path):
    cells = [("share = 387 / 500", ""), ("print(f'held-out accuracy {share:.1%}')", "held-out accuracy 77.4%\n")]
    status, report, _ = nbval(tmp_path, *cells)
    assert status == 0, f"the honest notebook must pass:\n{report[-2000:]}"
    status, report, _ = nbval(tmp_path, cells[0], (cells[1][0], "held-out accuracy 77.5%\n"))
    assert status == 1 and "1 failed" in report, f"77.4 edited to 77.5 must fail:\n{report[-2000:]}"


@pytest.mark.slow
@pytest.mark.parametrize("source", ["while True: pass", "import os; os._exit(1)"], ids=["endless cell", "dead kernel"])
def test_a_hanging_notebook_fails_in_time(tmp_path, source):
    status, report, seconds = nbval(tmp_path, (source, ""), ("print(1)", "1\n"), flags=["--nbval-cell-timeout=5"])
    assert status == 1 and "failed" in report, f"exit {status}:\n{report[-2000:]}"
    assert seconds < 60, f"nbval needed {seconds:.0f} s to give up"
