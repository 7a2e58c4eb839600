"""What a model answers: replies to fixed problems, greedy or sampled, on random streams that training never touches.

A reply becomes one plain row (dict): what was asked, what was said, what each checker pays. Summaries are functions of rows.
"""
import hashlib

import torch

from grpo_lib.analysis import style
from grpo_lib.checker import last_number, rewards
from grpo_lib.sampler import generate


def stream(*key):
    """A fresh CPU generator that is a function of the key alone: ("train", seed, step), ("eval", seed, set, step)..."""
    digest = hashlib.sha256("/".join(map(str, key)).encode("utf-8")).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def rows(asked, texts, samples, numbers, **tags):
    """Replies as plain rows: tags, a, b, template, sample (its number, -1 greedy), reply, length in tokens, ended, and what
    strict, exact and contains pay. `asked` holds the problem of each reply."""
    paid = {kind: rewards(texts, [p.answer for p in asked], kind) for kind in ("strict", "exact", "contains")}
    return [dict(tags, a=p.a, b=p.b, template=p.template, sample=k, reply=text, length=int(n), ended=bool(e),
                 **{kind: int(paid[kind][i]) for kind in paid})
            for i, (p, text, k, n, e) in enumerate(zip(asked, texts, numbers, samples.lengths, samples.ended))]


def replies(model, tokenizer, problems, samples=0, temperature=1.0, max_tokens=128, generator=None, batch=256, progress=None, **tags):
    """For each problem one greedy reply (samples=0) or `samples` sampled ones. -> rows (see `rows`), Samples."""
    G = samples or 1
    asked = [p for p in problems for _ in range(G)]
    prompts = [ids for p in problems for ids in [tokenizer.prompt(p.prompt)] * G]
    s = generate(model, prompts, max_tokens, temperature if samples else 0.0, tokenizer.end_ids, generator, batch, progress)
    texts = [tokenizer.decode_reply(ids) for ids in s.ids()]
    return rows(asked, texts, s, [i % G if samples else -1 for i in range(len(asked))], **tags), s


def summary(rows):
    """Means over rows: strict, exact, contains, last (number), length, ended, worked share; with n."""
    n = len(rows)
    mean = lambda f: sum(map(f, rows)) / n
    return {"n": n, **{k: mean(lambda r: r[k]) for k in ("strict", "exact", "contains", "length", "ended")},
            "last": mean(lambda r: last_number(r["reply"], r["a"] + r["b"])), "worked": mean(lambda r: style(r["reply"]) == "worked")}


def by_problem(rows, kind="strict"):
    """{(a, b): what kind pays each of that problem's replies}, in the order met."""
    paid = {}
    for r in rows:
        paid.setdefault((r["a"], r["b"]), []).append(r[kind])
    return paid
