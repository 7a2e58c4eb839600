"""The record of a run on disk, written once and read by every notebook: no torch, no model.

A folder <runs>/<model>/<name>/ holds config.json, metrics.csv (a row per step), evals.json (a list of summaries),
replies.jsonl.gz (reply texts with problem, step, reward) and run.json (command, versions, machine, seconds, seed).
`load` looks in $GRPO_RUNS first, then in data/runs, and says which.
"""
import csv
import gzip
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from grpo_lib.config import DATA, ROOT
from grpo_lib.task import Problem

RECORDED = DATA / "runs"
PARTS = ("config.json", "metrics.csv", "evals.json", "replies.jsonl.gz", "run.json")


@dataclass(frozen=True)
class Run:
    """One run: config (dict), metrics (DataFrame), evals (list of dict), replies (DataFrame), provenance (dict), folder."""
    name: str
    model: str
    config: dict
    metrics: object
    evals: list
    replies: object
    provenance: dict
    folder: Path
    live: bool

    def source(self):
        """One line: where these numbers come from. Notebooks print it under each recorded figure."""
        p = self.provenance
        return (f"{'live' if self.live else 'recorded'} run {self.model}/{self.name}: seed {self.config.get('seed')}, "
                f"{len(self.metrics)} steps, {p['seconds'] / 60:.1f} min on {p.get('threads', 'all')} of {p['machine']}, torch {p['versions']['torch']}")

    def at(self, step=None):
        """The evaluation at a step; the last one by default. KeyError names the steps there are."""
        if step is None:
            return self.evals[-1]
        for row in self.evals:
            if row["step"] == step:
                return row
        raise KeyError(f"{self.name} has no evaluation at step {step}; it has {[r['step'] for r in self.evals]}")

    def problems(self, replies=None):
        """The Problem of each row of `replies` (all by default), in order."""
        rows = self.replies if replies is None else replies
        return [Problem(a, b, t) for a, b, t in zip(rows["a"], rows["b"], rows["template"])]


def find(name, model="mini"):
    """(folder, live) of a run; FileNotFoundError names the places searched."""
    live = os.environ.get("GRPO_RUNS")
    places = ([(Path(live) / model / name, True)] if live else []) + [(RECORDED / model / name, False)]
    for folder, is_live in places:
        if (folder / "run.json").is_file():
            return folder, is_live
    known = sorted({p.parent.name for folder, _ in places for p in folder.parent.glob("*/run.json")})
    raise FileNotFoundError(f"no run {model}/{name} in {'$GRPO_RUNS or ' if live else ''}data/runs; there are: {', '.join(known) or 'none'}")


def load(name, model="mini", quiet=False):
    """A Run from $GRPO_RUNS, else from data/runs; prints which one unless quiet."""
    import pandas as pd
    folder, live = find(name, model)
    read = lambda part: json.loads((folder / part).read_text(encoding="utf-8"))
    text = gzip.decompress((folder / "replies.jsonl.gz").read_bytes()).decode("utf-8")
    replies = pd.DataFrame([json.loads(line) for line in text.split("\n") if line])     # splitlines would also cut at U+2028
    table = folder / "metrics.csv"                               # empty where nothing was trained
    metrics = pd.read_csv(table, encoding="utf-8") if table.stat().st_size else pd.DataFrame()
    run = Run(name, model, read("config.json"), metrics, read("evals.json"), replies, read("run.json"), folder, live)
    if not quiet:
        print(run.source())
    return run


def seeds(arm, model="mini", quiet=False):
    """All runs <arm>-s<k> of an arm, by seed, each as `load` finds it; prints one line for all. FileNotFoundError where there is none."""
    places = [Path(os.environ["GRPO_RUNS"])] if os.environ.get("GRPO_RUNS") else []
    names = {p.parent.name for place in [*places, RECORDED] for p in (place / model).glob(f"{arm}-s*/run.json")}
    numbers = sorted(int(name.rpartition("-s")[2]) for name in names if re.fullmatch(rf"{re.escape(arm)}-s\d+", name))
    if not numbers:
        find(f"{arm}-s1", model)
    found = [load(f"{arm}-s{k}", model, quiet=True) for k in numbers]
    if not quiet:
        minutes, live = [run.provenance["seconds"] / 60 for run in found], [str(k) for k, run in zip(numbers, found) if run.live]
        machines = dict.fromkeys(run.provenance["machine"].replace("1 cores", "1 core") for run in found)    # as some early records say
        took = " to ".join(dict.fromkeys(f"{m:.0f}" for m in (min(minutes), max(minutes))))
        print(f"{model}/{arm}: seed{'s' * (len(found) > 1)} {' '.join(map(str, numbers))}{f' (live: {chr(32).join(live)})' if live else ''}, "
              f"{len(found[0].metrics)} steps, {took} min a run on {' or '.join(machines)}")
    return found


def write(folder, config, metrics, evals, replies, provenance):
    """Write the five parts into folder, run.json last: its presence says the record is whole. OSError leaves what stood there."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    table = io.StringIO()
    if metrics:
        out = csv.DictWriter(table, list(metrics[0]), lineterminator="\n")
        out.writeheader()
        out.writerows([{k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} for row in metrics])
    dump = lambda data: (json.dumps(data, indent=1) + "\n").encode("utf-8")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in replies)
    parts = (dump(config), table.getvalue().encode("utf-8"), dump(evals), gzip.compress(lines.encode("utf-8"), mtime=0), dump(provenance))
    put_all({folder / name: data for name, data in zip(PARTS, parts)})


def put(path, data):
    """Replace a file by these bytes, or leave it as it was."""
    put_all({Path(path): data})


def put_all(files):
    """Replace files by {path: bytes}, in order, once all bytes are on the disk: a full disk leaves every file as it was."""
    hidden = lambda path: path.with_name(f".tmp-{path.name}")
    try:
        for path, data in files.items():
            hidden(path).write_bytes(data)
        for path in files:
            os.replace(hidden(path), path)
    except OSError as err:
        for waiting in map(hidden, files):
            waiting.unlink(missing_ok=True)
        raise OSError(f"could not write {path} ({err.strerror or err}); what stood there before is untouched") from None


def machine():
    """The processor and its cores, in words."""
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file():
        lines = [l.split(":", 1)[1].strip() for l in cpu.read_text(encoding="utf-8").splitlines() if l.startswith("model name")]
        name = lines[0] if lines else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} core{'s' * (cores != 1)} of {name}"


def provenance(seconds, **more):
    """What a record says of its making: command, versions, machine, commit, seconds."""
    version = lambda name: next((d.version for d in metadata.distributions(name=name)), None)
    words = [Path(w).name if Path(w).is_absolute() else w for w in sys.argv[1:]]
    git = shutil.which("git")                                    # a machine without git must not lose its record
    commit = subprocess.run([git, "rev-parse", "--verify", "HEAD"], cwd=ROOT, capture_output=True).stdout.decode().strip() if git else ""
    return {"command": " ".join(["python -m grpo_lib", *words]), "machine": machine(), "seconds": round(seconds, 1),
            "commit": commit or None,
            "versions": {"python": platform.python_version(), "torch": version("torch"), "tokenizers": version("tokenizers")}, **more}
