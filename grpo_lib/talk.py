"""What a model still is as a conversation partner: its loss on held-out chats, its replies to fixed prompts, how many of them end.

None of these prompts and chats is read by any training here. Greedy replies are recorded as text, so that everything said about
them is recomputed from text. Notebook 07.
"""
import gzip
import json
import math
import time
from pathlib import Path

import numpy as np
import torch

from grpo_lib import replay, runs
from grpo_lib.benchmarks import loglikelihoods
from grpo_lib.evaluate import stream
from grpo_lib.model import load
from grpo_lib.prompts import FIXED, unseen_prompts
from grpo_lib.sampler import generate

LIMIT = 512                                                     # tokens of a chat reply, as the article has it
ARITHMETIC = ("What is 348 + 279?", "What is 7 + 5?", "What is 348 - 279?", "What is 12 * 3?", "Which is larger, 348 or 279?",
              "Add 3, 4 and 5.")


def chat_loss(model, tokenizer, chats=None, tokens=4096):
    """{loss, stderr, tokens, n}: nats per assistant token, end tokens included, over n chats (the held-out ones by default).

    SmolLM2 wrote all replay chats itself, so its own loss on them is low; differences from a common start are what counts.
    stderr has the chat as its unit (a ratio of sums, linearised, n - 1); None for one chat."""
    per_chat = [turns(tokenizer, chat, model.cfg.max_position_embeddings) for chat in (replay.held_out() if chats is None else chats)]
    flat = iter(loglikelihoods(model, [pair for pairs in per_chat for pair in pairs], tokens))
    nats = np.array([-sum(next(flat) for _ in pairs) for pairs in per_chat])
    counts = np.array([sum(len(reply) for _, reply in pairs) for pairs in per_chat])
    if not counts.sum():
        raise ValueError(f"{len(per_chat)} chats hold no assistant token: there is no loss to measure")
    n, loss = len(per_chat), nats.sum() / counts.sum()
    error = (nats - loss * counts).std(ddof=1) / math.sqrt(n) / counts.mean() if n > 1 else None
    return {"loss": float(loss), "stderr": None if error is None else float(error), "tokens": int(counts.sum()), "n": n}


def turns(tokenizer, chat, room):
    """(ids before, ids of it) of each assistant turn of a chat, read up to `room` tokens."""
    ids, is_reply = (part[:room] for part in tokenizer.conversation(chat))
    starts = [t for t in range(1, len(ids)) if is_reply[t] and not is_reply[t - 1]]
    stop = lambda t: next((s for s in range(t, len(ids)) if not is_reply[s]), len(ids))
    return [(ids[:t], ids[t:stop(t)]) for t in starts]


def ask(model, tokenizer, prompts, limit=LIMIT, temperature=0.0, seed=1):
    """One reply to each prompt. -> [{prompt, reply, ended}], unpicked."""
    out = generate(model, [tokenizer.prompt(p) for p in prompts], limit, temperature, tokenizer.end_ids, stream("talk", seed))
    return [{"prompt": p, "reply": tokenizer.decode_reply(ids), "length": len(ids), "ended": bool(e)}
            for p, ids, e in zip(prompts, out.ids(), out.ended)]


def talk(init, out, model_name="mini", device=None):
    """Record a model's greedy replies to the fixed prompts, to sums and what only looks like them, and to 100 unseen prompts (end rate),
    with its loss on held-out chats: config.json, scores.json, replies.jsonl.gz, run.json. -> scores."""
    out, source, begun = Path(out), Path(init), time.perf_counter()
    if (out / "run.json").is_file():
        raise ValueError(f"{out} already holds a record: give another --out")
    model, tokenizer = load(init, device)
    rows = [{"kind": kind, **row} for kind, prompts in (("fixed", FIXED), ("arithmetic", ARITHMETIC), ("unseen", unseen_prompts()))
            for row in ask(model, tokenizer, prompts)]
    unseen = [row for row in rows if row["kind"] == "unseen"]
    scores = {"chat_loss": chat_loss(model, tokenizer), "ended": sum(row["ended"] for row in unseen), "n": len(unseen),
              "length": sum(row["length"] for row in unseen) / len(unseen)}
    dump = lambda data: (json.dumps(data, indent=1) + "\n").encode("utf-8")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8")
    config = {"init": (source.parent if source.name == "model" else source).name, "model": model_name, "limit": LIMIT}
    out.mkdir(parents=True, exist_ok=True)
    runs.put_all({out / "config.json": dump(config), out / "scores.json": dump(scores),
                  out / "replies.jsonl.gz": gzip.compress(lines, mtime=0),
                  out / "run.json": dump(runs.provenance(time.perf_counter() - begun, threads=torch.get_num_threads()))})
    return scores
