"""The work that replies and training steps need: floating point operations (a product and an addition are two) and bytes.

Pure functions of a ModelConfig and of lengths; tests/test_speed.py holds them against torch's own counter. Only matrix
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


def needed(prompts, lengths):
    """(tokens, predicted, pairs) that replies need, to be drawn or scored: each distinct prompt read once, no padding."""
    distinct = {tuple(p) for p in prompts}
    tokens = sum(map(len, distinct)) + sum(n - 1 for n in lengths)
    pairs = sum(len(p) * (len(p) + 1) // 2 for p in distinct)
    pairs += sum((n - 1) * len(p) + n * (n - 1) // 2 for p, n in zip(prompts, lengths))
    return tokens, len(distinct) + sum(n - 1 for n in lengths), pairs


def executed(prompts, lengths, micros):
    """The same as an update carries it out: the distinct prompts once, then micro-batches (lists of rows) of replies, all padded."""
    distinct = {tuple(p) for p in prompts}
    D, S = len(distinct), max(map(len, distinct))
    out = np.array([D * S, 0, D * S * S])
    for rows in micros:
        T, B = max(lengths[i] for i in rows) - 1, len(rows)
        out += (B * T, sum(lengths[i] for i in rows), B * T * (S + T))
    return tuple(map(int, out))


def decode_bytes(cfg, prompts, lengths, workers, size=4):
    """Memory that decoding must read: all weights at each step of each worker, and the keys and values seen so far."""
    weights = cfg.num_hidden_layers * sum(K * N for K, N in shapes(cfg)) + cfg.hidden_size * cfg.vocab_size
    keys = sum((n - 1) * len(p) + n * (n - 1) // 2 for p, n in zip(prompts, lengths))
    steps = sum(max(lengths[i] for i in part) for part in np.array_split(np.arange(len(lengths)), workers))
    return size * (weights * steps + 2 * cfg.num_hidden_layers * cfg.num_key_value_heads * cfg.head_dim * keys)


def run_flops(cfg, config, metrics, evals, prompt=12):
    """Of a whole recorded GRPO run: every step drawn once and passed four times (policy forward, backward as two, reference; three
    without a reference), every evaluation drawn, its samples scored by the reference. From mean lengths, so a little low: attention
    grows with their squares. prompt: mean tokens of a prompt."""
    def once(rows, groups, n):
        return flops(cfg, rows * (n - 1) + groups * prompt, rows * n, rows * ((n - 1) * prompt + n * n / 2) + groups * prompt ** 2 / 2)

    rows = config["problems"] * config["group"]
    total = sum((5 if config["beta"] > 0 else 4) * once(rows, config["problems"], row["length"]) for row in metrics)
    for e in evals:
        for part, times in (("dev", 1), ("greedy", 1), ("sampled", 2)):
            total += times * once(e[part]["n"], e[part]["n"], e[part]["length"]) if part in e else 0
    return total
