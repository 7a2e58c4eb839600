"""How fast this library is beside transformers and TRL, and how near to what the machine can do.

    python -m benchmarks.speed [--only generate step limits growth] [--models mini smollm2] ...    from the repository's root

Parts: `generate` (replies against transformers' `generate`), `step` (a whole GRPO step against TRL's), `limits` (matrix
products at the models' own shapes, memory bandwidth), `growth` (seconds against rows, limit, group, model). Rivals take turns
within one process on the same weights, dtype, prompts and settings (`--dtype bfloat16` for `generate`). Every single timing is a row of
data/speed/runs.csv; data/speed/summary.json is a function of those rows (record.py), so parts may be run one by one: a
new timing replaces the old ones of its part, model, weights and size. Reply tokens count up to and including the first end
token. Needs the extra `benchmarks`.
"""
import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm

from benchmarks import record
from benchmarks.work import decode_bytes, executed, flops, needed, shapes
from grpo_lib import draw, runs
from grpo_lib.checker import rewards
from grpo_lib.config import DATA, RECIPES
from grpo_lib.evaluate import stream
from grpo_lib.machine import spread
from grpo_lib.model import find, load
from grpo_lib.sampler import LEAST, generate, lay_out, read, workers
from grpo_lib.sft import adamw
from grpo_lib.task import training_batch
from grpo_lib.train import one_step

START = {"mini": {"chat": "mini", "warm": DATA / "runs" / "mini" / "warm-11000"}, "smollm2": {"chat": "smollm2"}}
LIMIT = {"mini": 128, "smollm2": 64}        # SmolLM2's chat replies to sums seldom end: a longer limit only takes longer
MAIN = RECIPES["mini"]["main"]
STEP = {"mini": MAIN, "smollm2": replace(MAIN, problems=8, lr=1e-5, fused=True)}
MICRO = {"mini": (256, 64, 32), "smollm2": (16, 8)}                 # rows a micro-batch that TRL may choose from
SWEEPS = {"mini": {"rows": (8, 16, 32, 64, 128, 256, 512), "limit": (16, 32, 64, 128),
                   "group": (1, 2, 4, 8, 16, 32, 64, 128, 256), "update": (32, 64, 128, 256, 512)},
          "smollm2": {"rows": (8, 32, 128, 256), "limit": (16, 32, 64), "group": (1, 8, 64), "update": (16, 32, 64)}}


# ---- both sides

def timed(work):
    """(seconds, what work() gave)."""
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def ask(tokenizer, rows, group=8, step=1):
    """Prompts of `rows` replies to training sums, each repeated `group` times, as a GRPO step asks them."""
    problems = training_batch(1, step, -(-rows // group))
    return [ids for p in problems for ids in [tokenizer.prompt(p.prompt)] * group][:rows]


def first_ends(tokens, end_ids):
    """Lengths (B,) of replies (B, T) up to and including the first end token."""
    is_end = torch.isin(tokens, torch.tensor(sorted(end_ids)))
    return torch.where(is_end.any(1), is_end.int().argmax(1) + 1, tokens.shape[1])


def theirs(model, tokenizer, prompts, limit, cache):
    """Replies (lists of ids) of transformers' generate: left padding, plain sampling at temperature 1, cache "dynamic" or "static"."""
    S = max(map(len, prompts))
    ids = torch.tensor([[tokenizer.pad_id] * (S - len(p)) + p for p in prompts])
    seen = torch.tensor([[0] * (S - len(p)) + [1] * len(p) for p in prompts])
    with torch.inference_mode():
        out = model.generate(input_ids=ids, attention_mask=seen, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                             max_new_tokens=limit, eos_token_id=list(tokenizer.end_ids), pad_token_id=tokenizer.pad_id,
                             cache_implementation=cache)
    return [row[:n].tolist() for row, n in zip(out[:, S:], first_ends(out[:, S:], tokenizer.end_ids))]


def needs(model, prompts, replies):
    """What drawing these replies needs, as columns of a row."""
    cfg, size = model.cfg, model.model.embed_tokens.weight.itemsize
    return {"tokens": sum(map(len, replies)), "flops": flops(cfg, *needed(prompts, replies)),
            "bytes": decode_bytes(cfg, prompts, replies, workers(model, len(prompts)), size)}


def measure_generate(name, weights, path, args):
    """Rows of part `generate`: ours and both caches of transformers in turns; after the first its faster one goes on alone."""
    from transformers import AutoModelForCausalLM
    dtype = getattr(torch, args.dtype)
    model, tokenizer = load(path, dtype=dtype)
    rival, limit = AutoModelForCausalLM.from_pretrained(find(path), dtype=dtype).eval(), args.limit or LIMIT[name]
    ours = lambda prompts, limit, k: generate(model, prompts, limit, 1.0, tokenizer.end_ids, stream("speed", k)).ids()
    calls = {"ours": ours, "dynamic": lambda prompts, limit, k: theirs(rival, tokenizer, prompts, limit, "dynamic"),
             "static": lambda prompts, limit, k: theirs(rival, tokenizer, prompts, limit, "static")}
    for call in calls.values():
        call(ask(tokenizer, 8), 4, 0)                                                  # warm-up
    for count in args.rows:
        prompts, seconds = ask(tokenizer, count), {}
        for k in range(args.repeat):
            who = list(calls) if k == 0 else ["ours", min(seconds, key=seconds.get)]
            for setting in who[::-1] if k % 2 else who:
                torch.manual_seed(k)
                spent, replies = timed(lambda: calls[setting](prompts, limit, k))
                if setting != "ours":
                    seconds[setting] = spent / sum(map(len, replies))
                yield {"model": name, "weights": weights, "x": count, "limit": limit, "dtype": args.dtype, "setting": setting, "repeat": k,
                       "who": "ours" if setting == "ours" else "transformers", "seconds": spent,
                       **needs(model, prompts, replies)}


def measure_step(name, weights, path, args):
    """Rows of part `step`: a step of TRL and one of ours in turns, for each micro-batch of TRL's; a warm-up comes first."""
    cfg = STEP[name]
    cfg = replace(cfg, max_tokens=args.limit or cfg.max_tokens, problems=args.problems or cfg.problems)
    common = {"model": name, "weights": weights, "x": cfg.problems * cfg.group, "limit": cfg.max_tokens, "dtype": "float32"}
    for micro in args.micro or MICRO[name]:
        model, tokenizer = load(path)
        ref = load(path)[0].requires_grad_(False).eval()
        optimizer, rows = adamw(model, cfg.lr, fused=cfg.fused), []

        def note(step, seconds, tokens):
            batch, row = one_step(model, ref, tokenizer, optimizer, cfg, step, cfg.checker)
            if step == 1 and args.steps > 1:
                return
            replies = batch.samples.ids()
            micros = lay_out(model.cfg, replies, read(ref, batch.prompts), None, cfg.micro_tokens, torch.get_num_threads())
            passes = 4 if cfg.beta > 0 else 3                 # forward, backward twice that, the reference's forward
            least = passes * flops(model.cfg, *needed(batch.prompts, replies))
            real = passes * flops(model.cfg, *executed(batch.prompts, replies, micros))
            turn, trained = {**common, "repeat": step, "tokens": sum(map(len, replies))}, row["seconds_train"]
            rows.extend([{**turn, "who": "trl", "setting": f"{micro} rows", "seconds": seconds, "tokens": tokens},
                         {**turn, "who": "ours", "setting": "step", "seconds": row["seconds_sample"] + trained},
                         {**turn, "who": "ours", "setting": "train", "seconds": trained, "flops": least, "flops_executed": real}])

        run_trl(find(path), cfg, micro, args.steps, note)
        yield from rows


def run_trl(folder, cfg, micro, steps, note):
    """Train with TRL in cfg's settings, all that costs it time switched off; call note(step, seconds, reply tokens) each step."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    problems = [p for step in range(1, steps + 1) for p in training_batch(cfg.seed, step, cfg.problems)]
    data = Dataset.from_list([{"prompt": [{"role": "user", "content": p.prompt}], "answer": p.answer} for p in problems])
    tokens, B = [0], cfg.problems * cfg.group

    def paid(completions, completion_ids, answer, **_):
        tokens[0] = sum(map(len, completion_ids))
        return rewards([c[0]["content"] for c in completions], answer, cfg.checker)

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.begun = time.perf_counter()

        def on_step_end(self, args, state, control, **_):
            note(state.global_step, time.perf_counter() - self.begun, tokens[0])

    micro = min(micro, B)
    with tempfile.TemporaryDirectory() as out:
        settings = GRPOConfig(
            output_dir=out, max_steps=steps, per_device_train_batch_size=micro, gradient_accumulation_steps=B // micro,
            num_generations=cfg.group, max_completion_length=cfg.max_tokens, temperature=cfg.temperature, beta=cfg.beta,
            epsilon=cfg.eps, loss_type="grpo", num_iterations=1, learning_rate=cfg.lr, lr_scheduler_type="constant",
            weight_decay=0.0, adam_beta2=0.95, max_grad_norm=cfg.clip_norm, seed=cfg.seed, use_cpu=True, bf16=False,
            gradient_checkpointing=False, dataloader_pin_memory=False, shuffle_dataset=False, report_to="none",
            model_init_kwargs={"dtype": "float32"}, logging_strategy="no", save_strategy="no", disable_tqdm=True)
        GRPOTrainer(str(folder), paid, settings, train_dataset=data, callbacks=[Clock()]).train()


# ---- the machine's own limits

def products(M, sides, dtype, training):
    """(work, floating point operations) of the products (M, K) @ (K, N) for (K, N) in sides: one forward, or what a training
    step has of them: two forwards (policy and reference) and the two products of the backward pass."""
    new = lambda *size: torch.randn(*size).to(getattr(torch, dtype))
    tensors = [(new(M, K), new(N, K), new(M, N)) for K, N in sides]

    def work(_=None):
        with torch.inference_mode():                                    # a thread's own switch
            for x, w, g in tensors:
                F.linear(x, w)
                if training:
                    F.linear(x, w), g @ w, g.T @ x
    return work, 2 * M * sum(K * N for K, N in sides) * (4 if training else 1)


def product_times(cfg, M, dtype, training, ways, repeat):
    """Rows of the products of a whole model on M tokens: one block's seconds as often as there are blocks, and the head's.

    threads: all cores inside each product; cores: every core does the whole by itself at once, as the library works. Where bfloat16
    has no units, the blocks' forward alone on 16 tokens: more would take minutes."""
    cores, small = torch.get_num_threads(), dtype == "bfloat16" and not quick_bfloat16()
    M = min(M, 16) if small else M
    parts = [(cfg.num_hidden_layers, *products(M, shapes(cfg), dtype, training and not small))]
    if not small:
        parts.append((1, *products(M, [(cfg.hidden_size, cfg.vocab_size)], dtype, training)))
    for way in ways:
        copies = cores if way == "cores" else 1
        run = {"threads": lambda work: work(), "cores": lambda work: list(spread(work, range(cores)))}[way]
        for k in range(-1, 1 if small else repeat):                      # -1 is a warm-up
            seconds = sum(times * timed(lambda: run(work))[0] for times, work, _ in parts)
            if k >= 0:
                count = copies * sum(times * n for times, _, n in parts)
                yield {"x": M, "dtype": dtype, "setting": f"{dtype} {way}", "repeat": k, "seconds": seconds, "flops": count}


@lru_cache
def quick_bfloat16():
    """Whether products in bfloat16 are no slower than in float32 here: the best of four of each."""
    best = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.randn(256, 512).to(dtype), torch.randn(512, 512).to(dtype)
        best[dtype] = min(timed(lambda: a @ b)[0] for _ in range(4))
    return best[torch.bfloat16] <= best[torch.float32]


def measure_limits(name, _, path, args):
    """Rows of part `limits`: the products at this model's shapes in training and in decoding 256 rows; a copy of memory."""
    cfg, each = load(path)[0].cfg, max(LEAST, -(-256 // torch.get_num_threads()))
    common = {"model": name, "weights": "any", "x": 0, "limit": 0}
    settings = [("train", STEP[name].micro_tokens, ("threads", "cores")), ("decode", each, ("cores",)), ("decode", 256, ("threads",))]
    for what, M, ways in settings:
        for dtype in ("float32", "bfloat16"):
            for row in product_times(cfg, M, dtype, what == "train", ways, args.repeat):
                yield {**common, "who": what, **row}
    source, target = torch.zeros(2 ** 25), torch.zeros(2 ** 25)
    for k in range(2 * args.repeat):
        seconds, _ = timed(lambda: target.copy_(source))
        yield {**common, "who": "copy", "dtype": "float32", "setting": "float32", "repeat": k, "seconds": seconds, "bytes": 8 * len(source)}


def measure_growth(name, weights, path, args):
    """Rows of part `growth`: seconds of generate against rows, reply limit and group size; of the update against rows."""
    model, tokenizer = load(path)
    limit, sweeps = args.limit or LIMIT[name], SWEEPS[name]
    most, common = max(args.rows), {"model": name, "weights": weights, "dtype": "float32"}
    points = [("rows", n, n, limit, 8) for n in sweeps["rows"] if n <= 2 * most]
    points += [("limit", n, most, n, 8) for n in sweeps["limit"]]
    points += [("group", n, most, limit, n) for n in sweeps["group"] if n <= most]
    ref, optimizer = load(path)[0].requires_grad_(False).eval(), adamw(model, 1e-9, fused=STEP[name].fused)
    cfg = replace(STEP[name], max_tokens=limit)
    step = lambda k, P: one_step(model, ref, tokenizer, optimizer, replace(cfg, problems=P), k, cfg.checker)
    step(0, 1)                                                                         # warm-up
    for k in range(args.repeat):
        for what, x, rows, tokens, group in points:
            prompts = ask(tokenizer, rows, group)
            seconds, s = timed(lambda: generate(model, prompts, tokens, 1.0, tokenizer.end_ids, stream("growth", k), rows))
            yield {**common, "x": x, "limit": tokens, "who": "generate", "setting": what, "repeat": k, "seconds": seconds,
                   **needs(model, prompts, s.ids())}
        for n in (n for n in sweeps["update"] if n <= 2 * most):
            batch, row = step(k + 1, max(1, n // 8))
            yield {**common, "x": n, "limit": limit, "who": "update", "setting": "rows", "repeat": k,
                   "seconds": row["seconds_train"], "tokens": int(batch.samples.lengths.sum())}


# ---- the command

MEASURE = {"generate": measure_generate, "step": measure_step, "limits": measure_limits, "growth": measure_growth}


def parser():
    """Flags of the command."""
    p = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__.split("\n\n")[0])
    p.add_argument("--only", nargs="+", choices=(*record.PARTS, "table"), default=record.PARTS,
                   help="parts to run; table: print the record and draw figures/speed.png")
    p.add_argument("--models", nargs="+", choices=tuple(START), default=tuple(START))
    p.add_argument("--weights", nargs="+", choices=("chat", "warm"), default=("chat", "warm"))
    p.add_argument("--rows", nargs="+", type=int, default=(8, 64, 256), help="replies at once; the largest bounds growth")
    p.add_argument("--repeat", type=int, default=3, help="turns of generate, limits and growth")
    p.add_argument("--steps", type=int, default=4, help="turns of a GRPO step; of two or more the first is only a warm-up")
    p.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of both sides of generate")
    p.add_argument("--limit", type=int, help=f"reply tokens ({LIMIT}; for a step {MAIN.max_tokens})")
    p.add_argument("--problems", type=int, help="problems of a GRPO step, 8 replies each")
    p.add_argument("--micro", nargs="+", type=int, help="rows of TRL's micro-batches to try")
    p.add_argument("--smollm2-warm", help="folder of a warm-started SmolLM2")
    p.add_argument("--main-run", help="folder of a main run of mini that had all cores (make run leaves one), for its time and work")
    p.add_argument("--out", type=Path, default=record.OUT)
    return p


def main(argv=None):
    """Run the parts asked for, model by model, recording each as it ends; then print the tables."""
    args = parser().parse_args(argv)
    words = sys.argv[1:] if argv is None else argv
    start = START | ({"smollm2": START["smollm2"] | {"warm": args.smollm2_warm}} if args.smollm2_warm else {})
    jobs = [(part, name) for part in record.PARTS if part in args.only for name in args.models]
    for part, name in tqdm(jobs, desc="speed", unit="part"):
        begun, chosen = time.perf_counter(), [(w, start[name][w]) for w in args.weights if w in start[name]]
        if not chosen:
            raise SystemExit(f"no {' or '.join(args.weights)} weights of {name}: give --smollm2-warm FOLDER, or --weights chat")
        rows = []
        for weights, path in chosen if part == "generate" else chosen[-1:]:             # else the last named: where GRPO starts
            rows += tqdm(MEASURE[part](name, weights, path, args), desc=f"{part} {name} {weights}", unit="timing", leave=False)
        record.write(rows, part, name, time.perf_counter() - begun, words, torch.get_num_threads(), args.out)
    summary = record.read(args.out)
    if args.main_run:
        run = record.main_run(args.main_run)
        summary |= {"main_run": run, "main_run_seconds": run["seconds"]}
        runs.put(args.out / "summary.json", (json.dumps(summary, indent=1) + "\n").encode("utf-8"))
    record.print_table(summary)
    if "table" in args.only:
        print(f"\n{record.overview(summary)}")
        draw.show(record.speed_figure(summary), "speed")


if __name__ == "__main__":
    main()
