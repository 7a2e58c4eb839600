"""Masked supervised training: cross entropy on reply tokens only, normalised by the trained tokens of the whole step.

One function, `fit`, serves the warm start, the chat tuning and the pretraining of `mini` (there every token is a target).
An example is (ids, is_reply): the token at t is predicted from t-1 and trained where is_reply[t] is 1, or with the weight that
stands there. Splitting a batch into micro-batches changes nothing but rounding. Built in notebook 03.
"""
import math
import random
import time
from itertools import cycle, islice

import torch
from tqdm import tqdm

from grpo_lib import replay
from grpo_lib.loss import token_logprobs
from grpo_lib.machine import gradients, lanes
from grpo_lib.sampler import micro_batches
from grpo_lib.task import demonstrations


def lr_at(step, steps, lr, warmup):
    """Learning rate of step 0..steps-1: linear up over `warmup` steps, then cosine to zero at the end."""
    if step < warmup:
        return lr * (step + 1) / warmup
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warmup + 1) / max(1, steps - warmup)))


def trained(example):
    """Number of tokens of an example that are targets; the first token of a row is predicted from nothing."""
    return sum(map(bool, example[1][1:]))


def weight(example):
    """What an example counts in a loss: the weights of its trained tokens added up, 1 each unless `warm_examples` weighs them."""
    return float(sum(example[1][1:]))


def nll(model, examples):
    """Summed negative log-likelihood in nats of the trained tokens of a few examples, each times its weight, with gradient; 0 where
    there are none."""
    S = max(len(ids) for ids, _ in examples)
    tokens, target = torch.zeros(len(examples), S, dtype=torch.long), torch.zeros(len(examples), S)
    valid = torch.zeros(len(examples), S, dtype=torch.bool)
    for i, (ids, is_reply) in enumerate(examples):
        n = len(ids)
        tokens[i, :n], valid[i, :n], target[i, :n] = torch.as_tensor(ids), True, torch.as_tensor(is_reply)
    target[:, 0] = 0
    row, t = target.nonzero(as_tuple=True)
    device = model.cos.device
    states = model.hidden(tokens.to(device), valid.to(device))[row.to(device), (t - 1).to(device)]
    logp = token_logprobs(model.head(states)[:, None], tokens[row, t].to(device)[:, None])[:, 0]
    return -(logp * target[row, t].to(device)).sum()


def step(model, optimizer, examples, micro_tokens, clip_norm=1.0):
    """One optimizer step on a batch. -> (loss in nats per trained token, weighted; trained tokens; gradient norm).

    A batch without a trained token changes nothing. ValueError if the loss is not finite: weights are left as they were."""
    count, total_weight = sum(map(trained, examples)), sum(map(weight, examples))
    if count == 0:
        return 0.0, 0, 0.0

    def loss_of(rows):
        loss = nll(model, [examples[i] for i in rows]) / total_weight
        return loss, loss.item()

    total = sum(gradients(model, loss_of, micro_batches([len(ids) for ids, _ in examples], micro_tokens, lanes(model.cos.device))))
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm).item()
    if not math.isfinite(total) or not math.isfinite(norm):
        raise ValueError(f"loss {total}, gradient norm {norm}: not finite; the weights are as before this step, lower the lr")
    optimizer.step()
    return total, count, norm


def adamw(model, lr, weight_decay=0.0, fused=False):
    """AdamW, betas (0.9, 0.95); decay only on matrices. `fused` takes one kernel for the whole update."""
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": weight_decay},
              {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), fused=fused)


def fit(model, examples, batch, lr, warmup=5, seed=1, micro_tokens=8192, fused=False, weight_decay=0.0, desc="sft"):
    """One shuffled pass over examples in ceil(n / batch) steps. -> list of {step, loss, tokens, norm, lr, seconds}.

    The order is drawn from (seed) alone; the model's global random state is not used."""
    order = list(range(len(examples)))
    random.Random(f"fit/{seed}").shuffle(order)
    steps, log = math.ceil(len(order) / batch), []
    optimizer = adamw(model, lr, weight_decay, fused)
    model.train()
    for k in (bar := tqdm(range(steps), desc=desc, unit="step", mininterval=1.0)):
        start, now = time.perf_counter(), lr_at(k, steps, lr, warmup)
        for group in optimizer.param_groups:
            group["lr"] = now
        rows = [examples[i] for i in order[k * batch:(k + 1) * batch]]
        loss, tokens, norm = step(model, optimizer, rows, micro_tokens)
        log.append(dict(step=k + 1, loss=loss, tokens=tokens, norm=norm, lr=now, seconds=time.perf_counter() - start))
        bar.set_postfix(loss=f"{loss:.3f}", lr=f"{now:.1e}")
    return log


def sum_examples(tokenizer, n, seed):
    """n warm-start examples (ids, is_reply): training sums with a direct or a worked reply, half each."""
    chat = lambda p, reply: [{"role": "user", "content": p.prompt}, {"role": "assistant", "content": reply}]
    return [tokenizer.conversation(chat(p, reply)) for p, reply in demonstrations(n, seed)]


def chat_examples(tokenizer, chats, longest):
    """Conversations as examples of at most `longest` tokens; one that loses all its trained tokens is dropped."""
    rows = [tokenizer.conversation(c) for c in chats]
    rows = [(ids[:longest], is_reply[:longest]) for ids, is_reply in rows]
    return [r for r in rows if trained(r) > 0]


def warm_examples(tokenizer, cfg, longest=512):
    """The examples of a warm start: cfg.n sums and cfg.chat replay chats, from the first again where the file has fewer. With
    cfg.share every chat token weighs what makes the sums that share of the loss. -> examples, the sums' share of the weight."""
    sums = sum_examples(tokenizer, cfg.n, cfg.seed) if cfg.n else []
    chats = chat_examples(tokenizer, islice(cycle(replay.training()), cfg.chat), longest) if cfg.chat else []
    of = lambda rows: math.fsum(map(weight, rows))
    if cfg.share:
        scale = of(sums) * (1 - cfg.share) / (cfg.share * of(chats))
        chats = [(ids, [scale * m for m in is_reply]) for ids, is_reply in chats]
    return sums + chats, of(sums) / max(1, of(sums) + of(chats))
