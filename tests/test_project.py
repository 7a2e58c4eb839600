"""The repository's own rules, read from its files: import order, docstrings, encodings, dependencies, README, leaks."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from grpo_lib.config import ROOT

MODULES = sorted((ROOT / "grpo_lib").glob("*.py"))
SOURCES = MODULES + sorted((ROOT / "tests").glob("*.py")) + sorted((ROOT / "benchmarks").rglob("*.py"))

# A module imports only from layers above its own line. A new module must be placed here before it may exist.
LAYERS = [
    {"config"},
    {"checker", "tokenizer", "task", "corpus", "prompts", "hub"},
    {"runs"},
    {"analysis", "loss", "machine", "tree"},
    {"model"},
    {"sampler"},
    {"replay"},
    {"evaluate", "sft", "benchmarks"},
    {"talk"},
    {"build_mini", "train", "warmstart", "report"},
    {"compare"},
    {"measured"},
    {"claims", "costs"},
    {"draw"},
    {"plots", "plots_arms", "plots_cost", "plots_samples"},
    {"widgets"},
    {"__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
# not even inside a function
TORCH_FREE = {"config", "checker", "tokenizer", "task", "runs", "corpus", "prompts", "analysis", "report", "compare"}
LAZY_TORCH = {"hub"}  # only inside a function
DISTRIBUTION = {"IPython": "ipython", "PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn"}


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"), filename=path.name)


def imported(tree):
    """Every absolute module named by an import, as (dotted name, line, inside a function?)."""
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lazy = {id(n) for f in functions for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = "grpo_lib" if node.level else node.module
            inner = f"grpo_lib.{node.module}" if node.level and node.module else node.module
            names = [f"grpo_lib.{a.name}" for a in node.names] if inner in (None, "grpo_lib") else [inner or package]
        else:
            continue
        for name in names:
            yield name, node.lineno, id(node) in lazy


def order_faults(name, tree):
    """What breaks the one-way import order in the module `name`."""
    if name == "__init__":
        return [f"__init__.py:{line} imports {what}: it should import nothing" for what, line, _ in imported(tree)]
    if name not in RANK:
        return [f"{name}.py is in no layer: place it in LAYERS in this file"]
    faults = []
    for what, line, lazy in imported(tree):
        top, _, rest = what.partition(".")
        if top == "torch" and (name in TORCH_FREE or name in LAZY_TORCH and not lazy):
            faults.append(f"{name}.py:{line} imports torch, which this module must not need")
        inner = rest.split(".")[0]
        if top == "grpo_lib" and (RANK.get(inner, 99) >= RANK[name] or name == "loss" and inner != "config"):
            faults.append(f"{name}.py:{line} imports {inner}, which is not above it in the import order")
    return faults


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_imports_run_one_way(path):
    assert not order_faults(path.stem, parse(path))


def test_the_order_rule_sees_each_kind_of_import():
    bad = {
        "analysis": ["import torch", "from torch import nn", "def f():\n    import torch", "from grpo_lib import model",
                     "from .loss import x", "import grpo_lib.plots"],
        "loss": ["from grpo_lib.task import x"],
        "hub": ["import torch"],
        "__init__": ["import numpy"],
        "nowhere": [""],
    }
    for name, sources in bad.items():
        for source in sources:
            assert order_faults(name, ast.parse(source)), f"{name}: {source!r} passed"
    assert not order_faults("hub", ast.parse("def f():\n    import torch"))
    assert not order_faults("train", ast.parse("from grpo_lib.loss import x\nfrom grpo_lib import task\nimport torch"))


@pytest.mark.parametrize("module", sorted(TORCH_FREE | LAZY_TORCH))
def test_torch_stays_out_even_transitively(module):
    code = f"import sys, grpo_lib.{module}; sys.exit('torch came in' if 'torch' in sys.modules else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, f"import grpo_lib.{module}: {done.stderr[-500:]}"


def undocumented(tree):
    """Public functions, classes and methods without a docstring, and the module itself."""
    scopes = [tree] + [n for n in tree.body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]
    nodes = [n for s in scopes for n in s.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    named = [(n.name, n.lineno) for n in nodes if not n.name.startswith("_") and not ast.get_docstring(n)]
    # torch calls forward(); the class says what it does
    named = [(name, line) for name, line in named if name != "forward"]
    return named if ast.get_docstring(tree) else [("module", 1)] + named


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_public_names_have_docstrings(path):
    assert not undocumented(parse(path)), f"{path.name}: no docstring (name, line)"


def test_the_docstring_rule_sees_functions_classes_and_methods():
    source = '"""m"""\ndef f(): pass\nclass A:\n  "a"\n  def g(self): pass\n  def _h(self): pass\ndef _i(): pass'
    tree = ast.parse(source)
    assert undocumented(tree) == [("f", 2), ("g", 5)]
    assert undocumented(ast.parse("x = 1")) == [("module", 1)]


ARCHIVES = {"gzip", "bz2", "lzma"}  # binary unless the mode says "t"
NOT_TEXT = {"os", "tarfile", "Image", "zipfile", "webbrowser", "wave"}
MODE_LETTERS = set("rwaxbt+U")


def text_call(call):
    """Does this call open or move text (so that it must say which encoding)?"""
    f = call.func
    name = f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""
    owner = f.value.id if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name) else ""
    if name in ("read_text", "write_text"):
        return True
    if name in ("NamedTemporaryFile", "TemporaryFile"):
        first, default = 0, "w+b"
    elif name in ("open", "fdopen") and owner not in NOT_TEXT - ({"os"} if name == "fdopen" else set()):
        method = isinstance(f, ast.Attribute) and owner not in ARCHIVES | {"io", "os", "codecs"}
        first, default = (0 if method else 1), ("rb" if owner in ARCHIVES else "r")
    else:
        return False
    given = [k.value for k in call.keywords if k.arg == "mode"] or call.args[first:first + 1]
    if given and not isinstance(given[0], ast.Constant):
        return first == 1  # an unknown mode of open(); for a method it is a member's name (zip, tar), read as bytes
    mode = str(given[0].value) if given else default
    if not set(mode) <= MODE_LETTERS:
        return False  # archive.open("member.json") reads bytes
    return "t" in mode if owner in ARCHIVES else "b" not in mode


def without_encoding(tree):
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and text_call(n)]
    return [c.lineno for c in calls if not any(k.arg in ("encoding", None) for k in c.keywords)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_files_are_opened_with_an_encoding(path):
    assert not without_encoding(parse(path)), f'{path.name}: lines that need encoding="utf-8"'


def test_the_encoding_rule_tells_text_from_bytes():
    bad = ["open(p)", "open(p, 'w')", "p.open()", "p.open('a')", "p.read_text()", "p.write_text(s)",
           "gzip.open(p, 'rt')", "open(p, mode)", "io.open(p)", "os.fdopen(f, 'w')", "tempfile.NamedTemporaryFile('w')"]
    good = ["open(p, 'rb')", "open(p, encoding='utf-8')", "p.open('wb')", "gzip.open(p)",
            "gzip.open(p, 'wt', encoding='utf-8')", "tarfile.open(p)", "archive.open('a.json')", "archive.open(name)",
            "p.read_bytes()", "open(p, mode='wb')"]
    assert [s for s in bad if not without_encoding(ast.parse(s))] == []
    assert [s for s in good if without_encoding(ast.parse(s))] == []


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements):
    return {re.match(r"[\w.-]+", r).group().lower().replace("_", "-") for r in requirements}


def undeclared(path, tree, core, extras):
    """Third-party imports outside pyproject.toml: a module's top needs the core list, a lazy one any list."""
    for what, line, lazy in imported(tree):
        top = what.split(".")[0]
        if top in sys.stdlib_module_names or top == "grpo_lib":
            continue
        allowed = set(core)
        for extra, declared in extras.items():
            if lazy or path.stem == "widgets" and extra == "notebooks":
                allowed |= declared
        if DISTRIBUTION.get(top, top).lower().replace("_", "-") not in allowed:
            missing = "no list" if lazy else "not the core list"
            yield f"{path.name}:{line} imports {top}: {missing} in pyproject.toml names it"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.stem)
def test_third_party_imports_are_declared(path):
    core, extras = names(project()["dependencies"]), project()["optional-dependencies"]
    assert not list(undeclared(path, parse(path), core, {e: names(r) for e, r in extras.items()}))


def test_the_dependency_rule_tells_core_from_extra():
    def faults(source):
        return list(undeclared(Path("x.py"), ast.parse(source), {"numpy"}, {"real": {"huggingface-hub"}}))

    assert faults("import requests") and faults("import huggingface_hub")
    assert not faults("import json, numpy.random") and not faults("def f():\n    import huggingface_hub")


def banned(tree):
    """Shell calls and silenced warnings."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in ("os.system", "os.popen") or name.endswith(("filterwarnings", "simplefilter")):
            yield node.lineno, name
        if any(k.arg == "shell" and ast.unparse(k.value) != "False" for k in node.keywords):
            yield node.lineno, "shell=True"


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parent.name != "tests"], ids=lambda p: p.name)
def test_no_shell_and_no_silenced_warning(path):
    assert not list(banned(parse(path))), f"{path.name}: (line, call)"


def test_the_ban_sees_each_call():
    for source in ["os.system(x)", "run(x, shell=True)", "warnings.filterwarnings('ignore')", "simplefilter('ignore')"]:
        assert list(banned(ast.parse(source))), source
    assert not list(banned(ast.parse("subprocess.run([x], shell=False)")))


def test_conda_environment_installs_this_package():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    pip_part = re.search(r"- pip:\n((?:\s+- .*\n?)+)", text)
    assert pip_part, "environment.yml has no pip part"
    lines = [line.strip(" -'\"") for line in pip_part.group(1).splitlines()]
    assert len(lines) == 1 and lines[0].startswith("."), f"only pyproject.toml lists packages; environment.yml: {lines}"
    extras = set(re.search(r"\[(.*)\]", lines[0]).group(1).split(","))
    assert extras == {"notebooks", "test", "real"}, extras
    assert extras <= set(project()["optional-dependencies"]), "environment.yml names an extra that pyproject.toml lacks"
    assert re.search(r"python=3\.1[1-9]", text), "python 3.11 or newer"


def test_the_makefile_installs_and_tests_what_pyproject_says():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    pin = re.search(r"torch==\S+", text).group()
    assert pin in project()["dependencies"], f"the Makefile pins {pin}, pyproject.toml another torch"
    assert "'.[notebooks,test,real]'" in text
    flags = re.search(r"NBVAL := (.*)", text).group(1).split()
    assert flags[:2] == ["--nbval", "--nbval-current-env"] and any("cell-timeout" in f for f in flags), flags
    assert "--nbval-lax" not in text, "strict nbval compares every output"


def test_readme_links_exist_and_the_two_commands_are_in_it():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in ("make run", "make test"):
        shown = re.search(rf"^\s*(\$ )?{command}\b", text, re.M) or f"`{command}`" in text
        assert shown, f"README.md does not show: {command}"
    links = re.findall(r"\]\(([^)\s]+)[^)]*\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    local = [link.split("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert not [link for link in local if not (ROOT / link).exists()], "README.md links to files that do not exist"


# Written in pieces, so that this file does not match itself.
PATHS = ["/" + "opt/", "/" + r"root\b", "/" + "home/[a-z]", "/" + "Users/", "/" + "work/"]
HOSTS = [r"pypi\." + "org", "python" + "hosted", r"download\.py" + "torch"]
LEAKS = re.compile("|".join(PATHS + HOSTS))
TEXT_FILES = {".py", ".md", ".toml", ".yml", ".json", ".csv", ".cfg", ".ipynb", ".jsonl", ""}


def committed_text():
    """Small text files of the repository, without what git ignores (environments, live runs, caches)."""
    tops = ["grpo_lib", "tests", "notebooks", "data", "benchmarks", ".ci"]
    files = [f for top in tops for f in (ROOT / top).rglob("*")] + list(ROOT.glob("*"))
    hidden = {"__pycache__", ".ipynb_checkpoints", "out"}
    return [f for f in files if f.is_file() and f.suffix in TEXT_FILES and not hidden & set(f.relative_to(ROOT).parts)]


def test_no_machine_path_or_package_host_is_committed():
    found = []
    for path in committed_text():
        hit = LEAKS.search(path.read_text(encoding="utf-8", errors="replace"))
        if hit:
            found.append(f"{path.relative_to(ROOT)}: {hit.group()}")
    assert not found, "machine paths or package hosts in committed files"
    assert LEAKS.search("see /" + "home/me/x") and LEAKS.search("https://py" + "pi.org/simple")
