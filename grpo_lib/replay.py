"""Chats to replay: conversations that SmolLM2 wrote itself, so that a warm start on sums need not forget how to chat.

smol-smoltalk, which SmolLM2 was tuned on, cannot be had offline; these are its own replies to prompts of ours, self-generated
data and nothing better. A reply that was cut by the limit is kept up to its last full sentence and marked `cut`.
"""
import gzip
import json
import re
from pathlib import Path

from tqdm import tqdm

from grpo_lib.config import DATA
from grpo_lib.corpus import has_sum
from grpo_lib.prompts import chat_prompts

REPLAY = DATA / "chat" / "replay.jsonl.gz"
HELD_OUT = 40      # every 40th conversation is kept from training
SENTENCE = re.compile(r"[.!?][\"')]?(?=\s|$)")


def whole_sentences(text):
    """The text up to the end of its last full sentence; empty where it has none."""
    ends = [m.end() for m in SENTENCE.finditer(text)]
    return text[:ends[-1]] if ends else ""


def keep(prompt, reply, ended):
    """The row to store, or None: no sums, at least two words, whole sentences."""
    reply = reply.strip() if ended else whole_sentences(reply).strip()
    if len(reply.split()) < 2 or len(reply) > 2000 or has_sum(prompt + "\n" + reply):
        return None
    return {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}], "cut": not ended}


def sample(model, tokenizer, out, n=4000, seed=1, temperature=0.7, max_tokens=128, rows=256):
    """Write n conversations to out (.jsonl.gz), sampled batch by batch; a killed call goes on where it stopped.

    Batch i draws from stream (seed, i), so the file does not depend on interruptions. -> number kept of number asked.
    ValueError if the batches beside out were drawn with other settings."""
    import torch

    from grpo_lib.sampler import generate
    out = Path(out)
    parts = out.with_suffix(".parts")
    parts.mkdir(parents=True, exist_ok=True)
    note, settings = parts / "settings.json", json.dumps(dict(seed=seed, temperature=temperature, max_tokens=max_tokens, rows=rows))
    if note.is_file() and note.read_text(encoding="utf-8") != settings:
        raise ValueError(f"{parts} holds batches of {note.read_text(encoding='utf-8')}, not {settings}: delete it, or give another --out")
    note.write_text(settings, encoding="utf-8")
    prompts, kept, asked = chat_prompts(int(n * 1.12) + rows, seed), [], 0
    bar = tqdm(total=n, desc="chats", unit="chat")
    for i in range(0, len(prompts), rows):
        part = parts / f"{i:06d}.json"
        if not part.is_file():
            batch = prompts[i:i + rows]
            s = generate(model, [tokenizer.prompt(p) for p in batch], max_tokens, temperature, tokenizer.end_ids,
                         torch.Generator().manual_seed(seed * 1_000_003 + i), rows)
            texts = [tokenizer.decode_reply(ids) for ids in s.ids()]
            done = [keep(p, t, bool(e)) for p, t, e in zip(batch, texts, s.ended)]
            tmp = part.with_suffix(".tmp")
            tmp.write_text(json.dumps(done), encoding="utf-8")
            tmp.replace(part)
        rows_kept = [r for r in json.loads(part.read_text(encoding="utf-8")) if r]
        kept, asked = kept + rows_kept, asked + len(prompts[i:i + rows])
        bar.update(len(rows_kept))
        if len(kept) >= n:
            break
    bar.close()
    write(out, kept[:n])
    return len(kept[:n]), asked


def write(path, rows):
    """Rows as gzipped JSON lines, byte for byte the same each time."""
    text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)
    Path(path).write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def read(path=REPLAY):
    """All conversations (lists of {"role", "content"}) of a replay file; FileNotFoundError says how to make it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no chats at {path}: make them with `python -m grpo_lib sample --model smollm2 --out {path}`")
    return [json.loads(line)["messages"] for line in gzip.decompress(path.read_bytes()).decode("utf-8").split("\n") if line]


def training():
    """The conversations that training may read: every 40th of the file is held out, for all models (`held_out`)."""
    return [row for i, row in enumerate(read()) if i % HELD_OUT]


def held_out():
    """Every 40th conversation (numbers 0, 40, 80, ...), which no training reads, `mini`'s chat tuning included."""
    return read()[::HELD_OUT]
