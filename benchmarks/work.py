"""The work that replies and training steps need: floating point operations (a product and an addition are two) and bytes.

Pure functions of a ModelConfig and of what was said; tests/test_speed.py holds them against torch's own counter. Only matrix
products and attention are counted, as is usual; norms, rotary positions and softmax are small beside them.
"""
import numpy as np


def shapes(cfg):
    """[(K, N)] of one block's seven matrix products: (tokens, K) @ (K, N)."""
    H, D = cfg.hidden_size, cfg.head_dim
    q, kv, inner = cfg.num_attention_heads * D, cfg.num_key_value_heads * D, cfg.intermediate_size
    return [(H, q), (H, kv), (H, kv), (q, H), (H, inner), (H, inner), (inner, H)]


def flops(cfg, tokens, predicted, pairs):
    """Of one forward pass: tokens through the blocks, logits of `predicted` tokens, attention over pairs of query and key."""
    block = sum(K * N for K, N in shapes(cfg))
    attention = 2 * cfg.num_attention_heads * cfg.head_dim * pairs                # scores and weighted values
    return 2 * (cfg.num_hidden_layers * (block * tokens + attention) + cfg.hidden_size * cfg.vocab_size * predicted)


def beginnings(prompts, replies):
    """{prompt: {distinct beginning of its replies that something follows}}: what must be read, each once, to draw or score them."""
    out = {}
    for prompt, reply in zip(map(tuple, prompts), replies):
        out.setdefault(prompt, set()).update(tuple(reply[:n]) for n in range(1, len(reply)))
    return out


def needed(prompts, replies):
    """(tokens, predicted, pairs) that replies, lists of ids, need to be drawn or scored: what begins alike read once, no padding."""
    read = beginnings(prompts, replies)
    count = sum(map(len, read.values()))
    pairs = sum(len(p) * (len(p) + 1) // 2 + sum(len(p) + len(b) for b in found) for p, found in read.items())
    return sum(map(len, read)) + count, len(read) + count, pairs


def executed(prompts, replies, micros):
    """The same as an update carries it out: the distinct prompts once, then micro-batches (lists of rows of reply numbers), all padded."""
    distinct = {tuple(p) for p in prompts}
    D, S = len(distinct), max(map(len, distinct))
    out = np.array([D * S, 0, D * S * S])
    for rows in micros:
        sizes = [len(set().union(*beginnings([()] * len(row), [replies[i] for i in row]).values())) for row in rows]
        B, N = len(rows), max(sizes)
        out += (B * N, B + sum(sizes), B * N * (S + N))
    return tuple(map(int, out))


def decode_bytes(cfg, prompts, replies, workers, size=4):
    """Memory that decoding must read: all weights at each step of each worker, and the keys and values seen by each distinct beginning."""
    weights = cfg.num_hidden_layers * sum(K * N for K, N in shapes(cfg)) + cfg.hidden_size * cfg.vocab_size
    keys = sum(len(p) + len(b) for p, found in beginnings(prompts, replies).items() for b in found)
    steps = sum(max(len(replies[i]) for i in part) for part in np.array_split(np.arange(len(replies)), workers))
    return size * (weights * steps + 2 * cfg.num_hidden_layers * cfg.num_key_value_heads * cfg.head_dim * keys)


def run_flops(cfg, config, metrics, evals, prompt=12):
    """Of a whole recorded GRPO run: every step drawn once and passed four times (policy forward, backward as two, reference; three
    without a reference), every evaluation drawn, its samples scored by the reference. A step's `states` tell what its replies
    share; an evaluation's samples are counted as if they shared nothing. prompt: mean tokens of a prompt."""
    def once(states, roots, groups, n):
        read = states - roots
        return flops(cfg, read + groups * prompt, states, read * (prompt + n / 2) + groups * prompt ** 2 / 2)

    rows, total = config["problems"] * config["group"], 0
    for row in metrics:
        told = (row["states"], config["problems"]) if "states" in row else (rows * row["length"], rows)
        total += (5 if config["beta"] > 0 else 4) * once(*told, config["problems"], row["length"])
    for e in evals:
        for part, times in (("dev", 1), ("greedy", 1), ("sampled", 2)):
            if part in e:
                n, length = e[part]["n"], e[part]["length"]
                total += times * once(n * length, n, n, length)
    return total
