"""The warm start as a run: train on n sums (and chats), save the start, measure it, record it. Notebook 03 reads the records.

Also the measurements of any model as it is: `measure`, which gives the starting rates of notebook 02, and `samples`,
the many samples per problem of notebook 06, with up to five digits.
"""
import time
from pathlib import Path

import torch
from tqdm import tqdm

from grpo_lib import evaluate, runs, sft
from grpo_lib.analysis import pass_at_k
from grpo_lib.config import as_dict
from grpo_lib.model import load, save
from grpo_lib.task import Problem, heldout, sampling_set, whole_number, worked

ONE_DIGIT = tuple(Problem(a, b, (a + b) % 3) for a in range(10) for b in range(a, 10))      # the easiest curriculum: 55 sums


def with_silence(rows, group=8):
    """Summary of sampled rows, with the share of groups of `group` that would be all wrong or all right: unbiased, from each
    problem's own count (all wrong is one minus pass@group)."""
    counts = [(len(v), sum(v)) for v in evaluate.by_problem(rows).values()]
    mean = lambda f: sum(f(n, c) for n, c in counts) / len(counts)
    return evaluate.summary(rows) | {"all_wrong": mean(lambda n, c: 1 - pass_at_k(n, c, group)),
                                     "all_right": mean(lambda n, c: 1 - pass_at_k(n, n - c, group))}


def measure(model, tokenizer, samples=8, max_tokens=128, seed=1, easy=False, step=0, progress=None, batch=256):
    """Greedy on dev and set 3, `samples` on 200 problems of each; if `easy` the one-digit sums take dev's place. -> summary, rows.

    Replies on dev are for choosing and are not kept; the rows of set 3 are."""
    ask = lambda problems, name, n, **tags: evaluate.replies(model, tokenizer, problems, n, 1.0, max_tokens,
                                                             evaluate.stream("start", seed, name), batch, progress, step=step, **tags)[0]
    out, rows = {"step": step}, []
    for key, problems, n in (("greedy", heldout(3), 0), ("sampled", sampling_set(3), samples)):
        found = ask(problems, key, n, set="3")
        rows += found
        out[key] = with_silence(found) if n else evaluate.summary(found)
    if easy:
        found = ask(ONE_DIGIT, "one-digit", samples, set="1")
        rows, out["one_digit"] = rows + found, with_silence(found)
    else:
        out["dev"] = evaluate.summary(ask(heldout("dev"), "dev-greedy", 0))
        out["dev_sampled"] = with_silence(ask(sampling_set("dev"), "dev", samples))
    return out, rows


def warmstart(init, out, cfg, model_name="mini", device=None):
    """Train cfg's examples in one pass from `init`, round to bfloat16, save in out/model, measure and record. -> evaluation."""
    out, begun = Path(out), time.perf_counter()
    if (out / "run.json").is_file():
        raise ValueError(f"{out} already holds a run: give another --out")
    model, tokenizer = load(init, device)
    examples, share = sft.warm_examples(tokenizer, cfg)
    log = sft.fit(model, examples, cfg.batch, cfg.lr, cfg.warmup, cfg.seed, cfg.micro_tokens, cfg.fused, desc=out.name)
    trained = time.perf_counter() - begun
    save(model, tokenizer, out / "model", torch.bfloat16)
    model, _ = load(out / "model", device)
    result, rows = measure(model, tokenizer, seed=cfg.seed, step=len(log))
    runs.write(out, {**as_dict(cfg), "init": Path(init).name, "model": model_name, "sum_share": share}, log, [result], rows,
               runs.provenance(time.perf_counter() - begun, seed=cfg.seed, train_seconds=round(trained, 1), threads=torch.get_num_threads()))
    return result


def rates(init, out, model_name, samples=16, max_tokens=512, seed=1, device=None, batch=256):
    """Measure a chat model before any training on sums (claims C05-C08) and record it. -> evaluation."""
    out, begun = Path(out), time.perf_counter()
    model, tokenizer = load(init, device)
    count = len(heldout(3)) + samples * (len(sampling_set(3)) + len(ONE_DIGIT))
    with tqdm(total=count, desc="replies", unit="reply") as bar:
        result, rows = measure(model, tokenizer, samples, max_tokens, seed, easy=True, progress=bar.update, batch=batch)
    runs.write(out, {"init": Path(init).name, "model": model_name, "samples": samples, "max_tokens": max_tokens, "seed": seed}, [], [result],
               rows, runs.provenance(time.perf_counter() - begun, seed=seed, threads=torch.get_num_threads()))
    return result


def reply_limit(tokenizer, key):
    """Most tokens of a reply to held-out set `key`: 128 up to three digits; beyond, five worked columns and 16 more."""
    return 128 if key == 3 else len(tokenizer.encode(worked(99_999, 99_999))) + 16


def samples(init, out, model_name, count=64, sets=(3, 4, 5), seed=1, max_tokens=None, batch=256, device=None):
    """Greedy replies to whole held-out sets and `count` sampled ones to each problem of their sampling sets, recorded
    after every set, so that the sets which a record names are whole. max_tokens replaces `reply_limit`, for models
    that talk. -> evaluation: greedy and sampled of set 3, and the same two below "4" and "5"."""
    out, source, begun = Path(out), Path(init), time.perf_counter()
    count, sets = whole_number("samples", count, 8), sorted(sets)
    if (out / "run.json").is_file():
        raise ValueError(f"{out} already holds a record: give another --out")
    if sets not in ([3], [4], [5], [3, 4], [3, 5], [4, 5], [3, 4, 5]):
        raise ValueError(f"sets is {sets[:20]}: give some of 3, 4 and 5, each once")
    model, tokenizer = load(init, device)
    result, rows, limits = {"step": 0}, [], {}
    config = {"init": (source.parent if source.name == "model" else source).name, "model": model_name, "samples": count,
              "seed": seed, "max_tokens": limits}
    total = sum(len(heldout(key)) + count * len(sampling_set(key)) for key in sets)
    with tqdm(total=total, desc="replies", unit="reply") as bar:
        for key in sets:
            limit = reply_limit(tokenizer, key) if max_tokens is None else max_tokens
            ask = lambda problems, n: evaluate.replies(
                model, tokenizer, problems, n, 1.0, limit, evaluate.stream("samples", seed, key), batch, bar.update,
                step=0, set=str(key))[0]
            greedy, drawn = ask(heldout(key), 0), ask(sampling_set(key), count)
            summaries = {"greedy": evaluate.summary(greedy), "sampled": with_silence(drawn)}
            result |= summaries if key == 3 else {str(key): summaries}
            rows, limits[str(key)] = rows + greedy + drawn, limit
            runs.write(out, config, [], [result], rows,
                       runs.provenance(time.perf_counter() - begun, seed=seed, threads=torch.get_num_threads()))
    return result
