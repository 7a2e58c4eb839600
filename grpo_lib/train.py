"""GRPO: sample groups, reward them, push up what beat its group. One step is `rollout`, then `update`; `train` repeats it.

Problems and random streams of step k are functions of (seed, k), so a resumed run needs no random state and meets the
same bits on as many threads. `old` is scored once a step, before the first update: with one update by the training forward
pass itself. Micro-batches change nothing
but rounding: every sum is divided by the whole minibatch's rows or tokens (`norm`). Shao et al. 2024; notebook 04.
"""
import copy
import hashlib
import math
import shutil
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from grpo_lib import evaluate, runs
from grpo_lib.analysis import style
from grpo_lib.checker import coin, format_credit, rewards
from grpo_lib.config import as_dict, differences
from grpo_lib.loss import binding, group_advantages, grpo_loss
from grpo_lib.machine import gradients, lanes, peak_mib, spread
from grpo_lib.model import load, replacing, save
from grpo_lib.sampler import cut, follow, generate, lay_out, read
from grpo_lib.sft import adamw
from grpo_lib.task import heldout, sampling_set, training_batch
from grpo_lib.tree import grow


@dataclass
class Batch:
    """One step's material: problems (P), prompts and texts (B = P*G), samples, rewards r (P, G), adv (P, G)."""
    problems: list
    prompts: list
    samples: object
    texts: list
    r: torch.Tensor
    adv: torch.Tensor


def make_checker(cfg, start_rate=0.0):
    """The checker a config names: a kind, partial credit, or a coin at the start's pass rate."""
    return {"random": lambda: coin(start_rate, cfg.seed), "partial": format_credit}.get(cfg.checker, lambda: cfg.checker)()


def rollout(model, tokenizer, cfg, step, checker=None):
    """Sample G replies to each of the step's problems and reward their text. -> Batch."""
    problems = training_batch(cfg.seed, step, cfg.problems)
    prompts = [ids for p in problems for ids in [tokenizer.prompt(p.prompt)] * cfg.group]
    samples = generate(model, prompts, cfg.max_tokens, cfg.temperature, tokenizer.end_ids,
                       evaluate.stream("train", cfg.seed, step), cfg.rows)
    texts = [tokenizer.decode_reply(ids) for ids in samples.ids()]
    answers = [p.answer for p in problems for _ in range(cfg.group)]
    r = torch.tensor(rewards(texts, answers, checker or cfg.checker)).view(cfg.problems, cfg.group)
    return Batch(problems, prompts, samples, texts, r, group_advantages(r, cfg.std))


def update(model, ref, optimizer, batch, cfg):
    """All optimizer steps of one batch: `updates` minibatches of whole groups, one pass, `old` fixed. -> metrics.

    Each distinct prompt is read once a minibatch, by policy and reference; micro-batches of replies follow, and their gradients
    go back through the prompts together.

    Rows of groups that agree are left out where beta is 0: their gradient is exactly zero and `norm` still counts them. A
    minibatch of nothing else takes no optimizer step (Adam's momentum alone would move the weights).
    ValueError if loss or gradient is not finite; the weights are then as before that optimizer step."""
    lengths, ids, adv, mask = batch.samples.lengths, batch.samples.ids(), batch.adv.flatten(), batch.samples.mask()
    old = score_all(model, batch.prompts, batch.samples, cfg) if cfg.updates > 1 else None     # the policy moves within the batch: fix `old` first
    with torch.inference_mode():
        home = read(ref, batch.prompts) if cfg.beta > 0 else None
    sums = dict.fromkeys(("loss", "kl", "clipped", "binding", "mismatch", "scored", "states"), 0.0)
    norms, size = [], cfg.problems // cfg.updates * cfg.group
    for first in range(0, len(adv), size):
        part = range(first, first + size)
        rows = [i for i in part if cfg.beta > 0 or adv[i] != 0]
        if not rows:
            norms.append(0.0)
            continue
        norm = int(lengths[list(part)].sum()) if cfg.agg == "token-mean" else size
        prefix, last, where = read(model, [batch.prompts[i] for i in part])
        prefix, last, whole, leaves = cut(prefix, last)
        told = prefix, last, torch.nn.functional.pad(where, (first, 0))             # row i of the batch, as elsewhere
        micros = lay_out(model.cfg, ids, told, rows, cfg.micro_tokens, lanes(model.cos.device))
        for add in gradients(model, lambda micro: micro_loss(model, ref, batch, grow(ids, micro, model.cos.device), old, adv, mask, norm, cfg, told, home), micros, leaves):
            sums = {k: sums[k] + add[k] for k in sums}
        torch.autograd.backward(whole, [leaf.grad for leaf in leaves])
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip_norm).item())
        if not math.isfinite(norms[-1]) or not math.isfinite(sums["loss"]):
            raise ValueError(f"loss {sums['loss']}, gradient norm {norms[-1]}: not finite; lower --lr (now {cfg.lr}); the weights are as before this optimizer step")
        optimizer.step()
    scored = max(1.0, sums["scored"])
    return {"loss": sums["loss"] / cfg.updates, "kl": sums["kl"] / scored if cfg.beta > 0 else math.nan, "clipped": sums["clipped"] / scored,
            "binding": sums["binding"] / scored, "mismatch": sums["mismatch"] / scored, "states": sums["states"], "grad_norm": sum(norms) / len(norms)}


def score_all(model, prompts, samples, cfg):
    """Log-probabilities (B, T) of all samples under model, without gradient, micro-batch by micro-batch."""
    out, ids = torch.zeros_like(samples.logp), samples.ids()
    with torch.inference_mode():
        told = read(model, prompts)

    def work(rows):
        tree = grow(ids, rows, model.cos.device)
        with torch.inference_mode():
            return tree.numbers.cpu(), follow(model, told, tree, cfg.temperature).cpu()

    micros = lay_out(model.cfg, ids, told, None, cfg.micro_tokens, lanes(model.cos.device))
    for rows, lp in spread(work, micros, model.cos.device):
        out[rows, :lp.shape[1]] = lp
    return out


def micro_loss(model, ref, batch, tree, old, adv, mask, norm, cfg, told, home):
    """The loss of one micro-batch, and its sums over reply tokens for the log; told, home: the prompts as policy and reference read them."""
    logp, rows = follow(model, told, tree, cfg.temperature), tree.numbers.cpu()
    T, device = logp.shape[1], logp.device
    m, a, drawn = mask[rows, :T].to(device), adv[rows].to(device), batch.samples.logp[rows, :T].to(device)
    before = logp.detach() if old is None else old[rows, :T].to(device)      # one update: the scoring pass is this pass
    base = None
    if cfg.beta > 0:
        with torch.inference_mode():
            base = follow(ref, home, tree, cfg.temperature)
        base = base.clone()
    loss, kl, clipped = grpo_loss(logp, before, base, a, m, cfg.eps, cfg.beta, cfg.agg, cfg.max_tokens, norm)
    return loss, {"loss": loss.item(), "kl": kl.sum().item(), "clipped": clipped.sum().item(), "scored": m.sum().item(),
                  "binding": binding(logp, before, a, m, cfg.eps).sum().item(), "mismatch": ((before - drawn).abs() * m).sum().item(),
                  "states": tree.states()}


def lean(model, dtype):
    """The model as it is where dtype is its own, else a copy in that dtype, to sample from or to hold as reference."""
    if model.model.embed_tokens.weight.dtype == getattr(torch, dtype):
        return model
    return copy.deepcopy(model).to(getattr(torch, dtype)).requires_grad_(False).eval()


def lean_reference(ref, tokenizer, cfg):
    """ref in cfg.dtype if the KL that its rounding alone feigns (k3 on a first batch, nats a token) is under 1e-4, else ref."""
    small = lean(ref, cfg.dtype)
    if small is not ref:
        batch = rollout(ref, tokenizer, cfg, 0, "strict")       # only its tokens are wanted; the run's own checker keeps its stream
        gap = (score_all(small, batch.prompts, batch.samples, cfg) - score_all(ref, batch.prompts, batch.samples, cfg))[batch.samples.mask().bool()]
        k3 = (torch.exp(gap) - gap - 1).mean().item()
        print(f"reference in {cfg.dtype}: k3 {k3:.1e} by rounding" + ("" if k3 < 1e-4 else ", too much: kept in float32"), file=sys.stderr)
        return small if k3 < 1e-4 else ref
    return ref


def describe(batch):
    """What the sampled batch looks like: reward, exact reward, length, entropy (nats), style and silent groups."""
    s, n = batch.samples, len(batch.texts)
    answers = [p.answer for p in batch.problems for _ in range(n // len(batch.problems))]
    agree = (batch.r == batch.r[:, :1]).all(1)
    return {"reward": batch.r.mean().item(), "exact": sum(rewards(batch.texts, answers, "exact")) / n,
            "length": s.lengths.float().mean().item(), "ended": s.ended.float().mean().item(),
            "entropy": -(s.logp.sum() / s.lengths.sum()).item(),          # mean of -log p over sampled tokens: unbiased
            "worked": sum(style(t) == "worked" for t in batch.texts) / n,
            "all_wrong": (agree & (batch.r[:, 0] < 1)).float().mean().item(), "all_right": (agree & (batch.r[:, 0] >= 1)).float().mean().item()}


def measure(model, ref, tokenizer, cfg, step, samples=4, dev=True):
    """The evaluation at a step: greedy on set 3 and, where wanted, on dev, samples on 200 of set 3, drift from ref. -> summary, reply rows."""
    limit, batch, extra = cfg.max_tokens, cfg.rows, heldout("dev") if dev else []
    greedy, _ = evaluate.replies(model, tokenizer, extra + heldout(3), max_tokens=limit, batch=batch, step=step, set="3")
    dev, greedy = greedy[:len(extra)], greedy[len(extra):]
    drawn, s = evaluate.replies(model, tokenizer, sampling_set(3), samples, cfg.temperature, limit,
                                evaluate.stream("eval", cfg.seed, "3"), batch, step=step, set="3")
    prompts = [tokenizer.prompt(p.prompt) for p in sampling_set(3) for _ in range(samples)]
    gap = (score_all(ref, prompts, s, cfg) - s.logp)[s.mask().bool()]
    parts = ([("dev", dev)] if dev else []) + [("greedy", greedy), ("sampled", drawn)]
    return {"step": step, **{name: evaluate.summary(rows) for name, rows in parts}, "drift": (torch.exp(gap) - gap - 1).mean().item()}, greedy + drawn


class Stopper:
    """Ctrl-C (or SIGTERM) asks for a stop after the step in hand; a second one stops as soon as the pieces in hand are done."""

    def __enter__(self):
        self.asked, self.before = False, {}
        if threading.current_thread() is threading.main_thread():
            for sig in (signal.SIGINT, signal.SIGTERM):
                self.before[sig] = signal.signal(sig, self._ask)
        return self

    def _ask(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *_):
        for sig, handler in self.before.items():
            signal.signal(sig, handler)


def checkpoints(out):
    """[(step, folder)] of whole checkpoints below out, in order of step; half-made ones are not counted."""
    found = [(int(p.name[5:]), p) for p in Path(out, "checkpoints").glob("step-*") if p.name[5:].isdigit() and (p / "trainer.pt").is_file()]
    return sorted(found)


def save_checkpoint(out, model, tokenizer, state):
    """checkpoints/step-N: a Hugging Face folder in full precision and trainer.pt beside it; older ones go once it stands."""
    folder = Path(out, "checkpoints", f"step-{state['step']}")
    with replacing(folder) as tmp:
        save(model, tokenizer, tmp / "model")
        for part in (tmp / "model").iterdir():
            part.rename(tmp / part.name)
        (tmp / "model").rmdir()
        torch.save(state, tmp / "trainer.pt")
    for step, old in checkpoints(out):
        if step != state["step"]:
            shutil.rmtree(old, ignore_errors=True)


def fingerprint(model):
    """A hash of all weights: which model a run began from."""
    parts = hashlib.sha256()
    for p in model.parameters():
        parts.update(p.detach().cpu().contiguous().view(torch.uint8).numpy())
    return parts.hexdigest()


def resume_state(out, cfg):
    """(step, folder, state) to go on from, or None where there is no checkpoint; another config is refused, more steps announced."""
    found = checkpoints(out)
    if not found:
        return None
    step, folder = found[-1]
    try:
        state = torch.load(folder / "trainer.pt", weights_only=True)
    except Exception as err:
        raise ValueError(f"{folder / 'trainer.pt'} cannot be read ({str(err).splitlines()[0][:80]}): delete {folder.name} and start again") from None
    changed = {k: (v, as_dict(cfg)[k]) for k, v in state["config"].items() if as_dict(cfg)[k] != v and k not in ("time_cap", "ckpt_every")}
    if set(changed) - {"steps"}:
        raise ValueError(f"{out} was begun with other settings {changed}: resume with those, or give another --out")
    if changed:
        print(f"steps changed from {changed['steps'][0]} to {changed['steps'][1]}", file=sys.stderr)
    return step, folder, state


def train(init, out, cfg, model_name="mini", resume=False, device=None, eval_samples=4, progress=True):
    """Run GRPO from the model at `init` and record it in `out`. -> the runs.Run-like tuple (evals, log).

    The record is written at the end, a checkpoint holds what is known until then; `model/` in out is the final policy in bfloat16, which the last
    evaluation speaks of. With resume, goes on from the newest checkpoint, bit for bit."""
    out, begun = Path(out), time.perf_counter()
    found, finished = resume_state(out, cfg) if resume else None, (out / "run.json").is_file()
    if resume and finished and not found:
        raise ValueError(f"{out} holds a finished run, nothing is left to resume: give another --out")
    if not resume and (finished or checkpoints(out)):
        raise ValueError(f"{out} already holds a run: add --resume to go on with it, or give another --out")
    model, tokenizer = load(init, device)
    ref, _ = load(init, device)
    start = fingerprint(ref)
    ref = lean_reference(ref.requires_grad_(False).eval(), tokenizer, cfg)
    optimizer = adamw(model, cfg.lr, fused=cfg.fused)
    log, evals, texts, first, spent = [], [], [], 0, 0.0
    if found:
        first, folder, state = found
        if state["start"] != start:
            raise ValueError(f"{out} was begun from another model than {init}: resume with the --init it had, or give another --out")
        model.load_state_dict(load(folder, device)[0].state_dict())
        optimizer.load_state_dict(state["optimizer"])
        log, evals, texts, spent = state["log"], state["evals"], state["texts"], state["seconds"]
    else:
        evaluate_now(model, ref, tokenizer, cfg, 0, eval_samples, evals, texts)
    checker = make_checker(cfg, evals[0]["sampled"]["strict"] if evals else 0.0)
    if found and hasattr(checker, "restore"):
        checker.restore(found[2]["checker"])
    seconds = lambda: spent + time.perf_counter() - begun
    bar = tqdm(total=cfg.steps, initial=first, desc=out.name, unit="step", disable=not progress)
    step = first
    keep = lambda: save_checkpoint(out, model, tokenizer, {
        "step": step, "config": as_dict(cfg), "start": start, "optimizer": optimizer.state_dict(), "log": log, "evals": evals, "texts": texts,
        "seconds": seconds(), "checker": checker.state() if hasattr(checker, "state") else 0})
    with Stopper() as stop:
        while step < cfg.steps and not stop.asked and not (cfg.time_cap and seconds() > cfg.time_cap):
            step += 1
            batch, row = one_step(model, ref, tokenizer, optimizer, cfg, step, checker)
            log.append(row)
            if cfg.show_every and step % cfg.show_every == 0:
                texts += training_rows(batch, step)
            if cfg.eval_every and step % cfg.eval_every == 0 and step < cfg.steps:
                evaluate_now(model, ref, tokenizer, cfg, step, eval_samples, evals, texts, dev=False)     # choices are made at the end
            bar.update()
            bar.set_postfix(reward=f"{row['reward']:.2f}", kl=f"{row['kl']:.3f}", length=f"{row['length']:.0f}",
                            heldout=f"{evals[-1]['greedy']['strict']:.1%}" if evals else "-")
            if cfg.ckpt_every and step % cfg.ckpt_every == 0 and step < cfg.steps:
                keep()
        bar.close()
        if stop.asked and step < cfg.steps:
            keep()
            raise KeyboardInterrupt(f"stopped after step {step}; go on with --resume")
    whole, _ = evaluate.replies(model, tokenizer, heldout(3), max_tokens=cfg.max_tokens, batch=cfg.rows)
    save(model, tokenizer, out / "model", torch.bfloat16)
    model, _ = load(out / "model", device)                       # rounded: the committed file is what the last evaluation is of
    evaluate_now(model, ref, tokenizer, cfg, step, eval_samples, evals, texts)
    evals[-1]["unrounded"] = evaluate.summary(whole)             # greedy on set 3 before the rounding
    runs.write(out, {**as_dict(cfg), "init": Path(init).name, "model": model_name}, log, evals, texts,
               runs.provenance(seconds(), seed=cfg.seed, threads=torch.get_num_threads()))
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    return evals, log


def one_step(model, ref, tokenizer, optimizer, cfg, step, checker):
    """Rollout and update with their times. -> Batch, the row of metrics.csv."""
    t0 = time.perf_counter()
    batch = rollout(lean(model, cfg.dtype), tokenizer, cfg, step, checker)
    t1 = time.perf_counter()
    model.train()
    stats = update(model, ref, optimizer, batch, cfg)
    t2 = time.perf_counter()
    return batch, {"step": step, **describe(batch), **stats, "lr": cfg.lr, "seconds_sample": t1 - t0, "seconds_train": t2 - t1, "peak_mib": peak_mib()}


def training_rows(batch, step):
    """The replies of a training batch as rows for the record, with the reward each was paid."""
    G = batch.r.shape[1]
    asked = [p for p in batch.problems for _ in range(G)]
    rows = evaluate.rows(asked, batch.texts, batch.samples, [i % G for i in range(len(asked))], step=step, set="train")
    return [row | {"reward": r} for row, r in zip(rows, batch.r.flatten().tolist())]


def evaluate_now(model, ref, tokenizer, cfg, step, samples, evals, texts, dev=True):
    """Append the evaluation of this step to evals and its replies to texts; a second one at the same step takes the first's place."""
    result, rows = measure(model, ref, tokenizer, cfg, step, samples, dev)
    evals[:] = [e for e in evals if e["step"] != step]
    texts[:] = [row for row in texts if row["step"] != step or row["set"] == "train"]
    evals.append(result)
    texts += rows
