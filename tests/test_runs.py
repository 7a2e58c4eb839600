"""Records: written whole or not at all, found in $GRPO_RUNS first, the same bytes each time."""

import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_lib import runs
from grpo_lib.config import ROOT
from grpo_lib.task import Problem

CONFIG = {"seed": 3, "lr": 1e-5, "steps": 2}
METRICS = [{"step": 1, "reward": 0.123456789, "kl": math.nan, "lr": 1e-5}, {"step": 2, "reward": 0.5, "kl": 0.25, "lr": 1e-5}]
EVALS = [{"step": 0, "greedy": {"strict": 0.25, "n": 4}}, {"step": 2, "greedy": {"strict": 0.5, "n": 4}}]
REPLIES = [{"step": 2, "a": 1, "b": 2, "template": 1, "reply": "The answer is\n3. é\u2028x"}, {"step": 2, "a": 30, "b": 4, "template": 0, "reply": ""}]


@pytest.fixture
def places(tmp_path, monkeypatch):
    """(recorded, live): the two folders that runs are looked for in."""
    monkeypatch.setattr(runs, "RECORDED", tmp_path / "recorded")
    monkeypatch.setenv("GRPO_RUNS", str(tmp_path / "live"))
    return tmp_path / "recorded", tmp_path / "live"


def write(folder, metrics=METRICS, **config):
    facts = {"seconds": 90.0, "machine": "2 cores of x", "versions": {"torch": "2.13"}}
    runs.write(folder, {**CONFIG, **config}, metrics, EVALS, REPLIES, facts)


def test_what_is_written_is_read(places, capsys):
    write(places[0] / "mini" / "one")
    run = runs.load("one")
    assert capsys.readouterr().out == "recorded run mini/one: seed 3, 2 steps, 1.5 min on all of 2 cores of x, torch 2.13\n"
    assert run.config == CONFIG and run.evals == EVALS and run.provenance["seconds"] == 90.0
    assert run.metrics["step"].tolist() == [1, 2] and run.metrics["reward"][0] == pytest.approx(0.123456789, rel=1e-5)
    assert math.isnan(run.metrics["kl"][0]) and run.metrics["kl"][1] == 0.25
    assert run.replies.to_dict("records") == REPLIES, "a reply's text is not what was written"
    assert run.problems() == [Problem(1, 2, 1), Problem(30, 4, 0)]
    assert run.problems(run.replies[run.replies["a"] == 30]) == [Problem(30, 4, 0)]
    runs.load("one", quiet=True)
    assert capsys.readouterr().out == ""


def test_a_record_without_training_steps_is_read_too(places):
    write(places[0] / "mini" / "chat", metrics=[])
    run = runs.load("chat", quiet=True)
    assert len(run.metrics) == 0 and "0 steps" in run.source()


def test_the_evaluation_of_a_step(places):
    write(places[0] / "mini" / "one")
    run = runs.load("one", quiet=True)
    assert run.at() == EVALS[1] and run.at(0) == EVALS[0]
    with pytest.raises(KeyError, match=r"one has no evaluation at step 1; it has \[0, 2\]"):
        run.at(1)


def test_live_runs_come_first_and_say_so(places, monkeypatch, capsys):
    recorded, live = places
    write(recorded / "mini" / "one", seed=3)
    write(live / "mini" / "one", seed=4)
    assert runs.load("one").config["seed"] == 4 and capsys.readouterr().out.startswith("live run mini/one: seed 4")
    monkeypatch.delenv("GRPO_RUNS")
    assert runs.load("one").config["seed"] == 3 and capsys.readouterr().out.startswith("recorded run")


def test_a_live_run_that_is_not_finished_does_not_hide_the_recorded_one(places):
    recorded, live = places
    write(recorded / "mini" / "one")
    write(live / "mini" / "one")
    (live / "mini" / "one" / "run.json").unlink()
    assert runs.find("one") == (recorded / "mini" / "one", False)


def test_a_run_that_is_not_there_is_answered_with_those_that_are(places, monkeypatch):
    recorded, live = places
    with pytest.raises(FileNotFoundError, match=r"no run mini/two in \$GRPO_RUNS or data/runs; there are: none"):
        runs.load("two")
    write(recorded / "mini" / "one")
    write(live / "mini" / "mine")
    (recorded / "mini" / "broken").mkdir()
    with pytest.raises(FileNotFoundError, match="there are: mine, one$"):
        runs.load("two")
    monkeypatch.delenv("GRPO_RUNS")
    with pytest.raises(FileNotFoundError, match="no run mini/two in data/runs; there are: one$"):
        runs.load("two")


def test_a_record_has_the_same_bytes_each_time(tmp_path):
    write(tmp_path / "a")
    write(tmp_path / "b")
    write(tmp_path / "b")
    for part in runs.PARTS:
        assert (tmp_path / "a" / part).read_bytes() == (tmp_path / "b" / part).read_bytes(), part
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == sorted(runs.PARTS)
    assert (tmp_path / "a" / "replies.jsonl.gz").read_bytes()[4:8] == bytes(4), "the time of writing is in the file"
    lines = gzip.decompress((tmp_path / "a" / "replies.jsonl.gz").read_bytes()).decode("utf-8").split("\n")
    assert [json.loads(x) for x in lines[:-1]] == REPLIES


class FullDisk:
    """Path.write_bytes that writes half of the n-th file and fails."""

    def __init__(self, n):
        self.left, self.real = n, Path.write_bytes

    def __call__(self, path, data):
        self.left -= 1
        if self.left == 0:
            self.real(path, data[:len(data) // 2])
            raise OSError(28, "No space left on device")
        return self.real(path, data)


@pytest.mark.parametrize("n", range(1, 6))
def test_a_full_disk_leaves_the_whole_record_as_it_was(places, monkeypatch, n):
    folder = places[0] / "mini" / "one"
    write(folder)
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    disk = FullDisk(n)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", lambda path, data: disk(path, data))
        with pytest.raises(OSError, match=f"could not write .*{runs.PARTS[n - 1]}.*No space left.*untouched"):
            write(folder, metrics=METRICS[:1], seed=9)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before, "half a record, or a stray file"
    write(folder, seed=9)
    assert runs.load("one", quiet=True).config["seed"] == 9


@pytest.mark.parametrize("n", range(1, 6))
def test_a_first_record_that_fails_is_no_record(places, monkeypatch, n):
    disk = FullDisk(n)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", lambda path, data: disk(path, data))
        with pytest.raises(OSError, match="could not write"):
            write(places[0] / "mini" / "one")
    with pytest.raises(FileNotFoundError):
        runs.find("one")


def test_put_replaces_a_file_or_leaves_it(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    runs.put(path, b"one")
    runs.put(path, b"two")
    assert path.read_bytes() == b"two"
    def refuse(*args):
        raise OSError(13, "Permission denied")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="could not write .*Permission denied"):
        runs.put(path, b"three")
    assert path.read_bytes() == b"two" and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_provenance_tells_how_and_where_without_paths(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["x", "train", "--init", str(Path("runs").resolve() / "warm"), "--lr", "1e-4"])
    facts = runs.provenance(12.345, seed=5)
    assert facts["command"] == "python -m grpo_lib train --init warm --lr 1e-4" and facts["seconds"] == 12.3 and facts["seed"] == 5
    assert set(facts["versions"]) == {"python", "torch", "tokenizers"} and all(facts["versions"].values())
    assert "core" in facts["machine"] and (facts["commit"] is None or len(facts["commit"]) == 40)


def test_a_machine_without_git_does_not_lose_its_record(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert runs.provenance(1.0)["commit"] is None


def test_records_open_every_text_with_an_encoding(tmp_path):
    """In a process that turns a missing encoding into an error and prints ASCII only."""
    code = f"""
import warnings, pandas
from pathlib import Path
from grpo_lib import runs
warnings.simplefilter("error", EncodingWarning)
runs.RECORDED = Path({str(tmp_path)!r})
reply = {{"a": 1, "b": 2, "template": 0, "reply": "caf\\u00e9"}}
runs.write(runs.RECORDED / "mini" / "e", {{"seed": 1}}, [{{"step": 1}}], [], [reply], runs.provenance(1.0))
print(runs.load("e").replies["reply"][0] == reply["reply"])
"""
    done = subprocess.run([sys.executable, "-X", "warn_default_encoding", "-c", code], cwd=ROOT, capture_output=True,
                          encoding="utf-8", env={**os.environ, "PYTHONIOENCODING": "ascii", "GRPO_RUNS": ""})
    assert done.returncode == 0 and done.stdout.strip().endswith("True"), done.stderr[-800:]


def test_all_seeds_of_an_arm(places, capsys):
    for place, name in ((0, "main-s2"), (0, "main-s10"), (0, "main-s1"), (1, "main-s2"), (0, "main-s1-old"), (0, "domain-s1"), (0, "pilot-s1")):
        write(places[place] / "mini" / name, steps=place)
    found = runs.seeds("main")
    assert [run.name for run in found] == ["main-s1", "main-s2", "main-s10"], "in order of the seed, and no other arm's"
    assert [run.live for run in found] == [False, True, False], "a live run goes before the recorded one"
    assert capsys.readouterr().out == "mini/main: seeds 1 2 10 (live: 2), 2 steps, 2 min a run on 2 cores of x\n"
    with pytest.raises(FileNotFoundError, match="no run mini/nokl-s1"):
        runs.seeds("nokl")
