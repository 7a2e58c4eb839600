"""Replies from a model, with the log-probability of every token, and the scorer that must agree with it.

What is scored is exactly what is drawn: softmax(logits / temperature) in float32, no top-k, no top-p. Every reply draws
from its own stream: its uniforms are row i of one (B, T) draw made up front, and a token is where its uniform falls in the
cumulative distribution. So the rows per batch, the neighbours, finished rows and ranks cannot change a reply (beyond the
rounding of a matrix product). The sampler knows ids only; text and rewards are somebody else's.
"""
from dataclasses import dataclass

import torch

from grpo_lib.config import shown
from grpo_lib.loss import picked
from grpo_lib.machine import lanes, spread
from grpo_lib.model import Cache, Prefix, StaticCache
from grpo_lib.tree import bundles, grow

LEAST, WORK = 32, 2 ** 29      # what a core must get at least to take part: replies, and replies times parameters (benchmarks/README.md)


@dataclass
class Samples:
    """B replies of up to T tokens: tokens, logp (B, T); lengths (B,) with the end token; ended (B,) bool."""
    tokens: torch.Tensor
    logp: torch.Tensor
    lengths: torch.Tensor
    ended: torch.Tensor

    def mask(self):
        """(B, T) float: 1 on each sampled token, the end token included, made from positions."""
        return reply_mask(self.lengths, self.tokens.shape[1])

    def ids(self):
        """The replies as lists of ids without padding."""
        return [row[:n].tolist() for row, n in zip(self.tokens, self.lengths.tolist())]


def reply_mask(lengths, T):
    """(B, T) float32: 1 at positions below each row's length."""
    return (torch.arange(T, device=lengths.device)[None] < lengths[:, None]).float()


def generate(model, prompts, max_new_tokens, temperature=1.0, end_ids=(), generator=None, rows=256, progress=None):
    """Samples for prompts (lists of ids, one per reply; repeat a prompt G times for a group of G).

    temperature 0 is greedy (ties: lowest id). `generator` is a CPU torch.Generator; None draws a fresh one. `rows` replies
    run at once, on a CPU shared among its cores where there is work for them; `progress(n)` is told of each n finished replies. ValueError for an empty prompt or one that leaves no
    room for `max_new_tokens`. Built in notebook 04."""
    _check(model, prompts, max_new_tokens, temperature, rows)
    generator = generator or torch.Generator().manual_seed(torch.Generator().seed())
    B, device = len(prompts), model.cos.device
    uniforms = torch.rand(B, max_new_tokens, generator=generator) if temperature > 0 else None
    ends = torch.tensor(sorted(end_ids), dtype=torch.long, device=device)
    at_once = -(-min(rows, B) // workers(model, min(rows, B)))
    parts = [slice(start, min(start + at_once, B)) for start in range(0, B, at_once)]

    def work(part):
        with torch.inference_mode():
            u = None if uniforms is None else uniforms[part].to(device)
            return (_graphed if device.type == "cuda" else _batch)(model, prompts[part], max_new_tokens, temperature, ends, u)

    tokens, logp = torch.zeros(B, max_new_tokens, dtype=torch.long), torch.zeros(B, max_new_tokens)
    lengths, ended = torch.zeros(B, dtype=torch.long), torch.zeros(B, dtype=torch.bool)
    training = model.training
    model.eval()
    try:
        for part, out in zip(parts, spread(work, parts, device, most=max(1, rows // at_once))):
            for whole, piece in zip((tokens, logp, lengths, ended), out):     # made outside inference mode: autograd may use it
                whole[part] = piece.cpu()
            if progress:
                progress(part.stop - part.start)
    finally:
        model.train(training)
    if not torch.isfinite(logp).all():
        raise ValueError("the log-probabilities of the replies are not finite: the model's weights or logits are nan or inf")
    T = max(1, int(lengths.max()))
    return Samples(tokens[:, :T].clone(), logp[:, :T].clone(), lengths, ended)


def workers(model, count):
    """Among how many cores `count` replies are shared: below a certain work Python's lock, one for all, costs more than a core gives."""
    least = max(LEAST, WORK // max(1, sum(p.numel() for p in model.parameters())))
    return max(1, min(lanes(model.cos.device), count // least))


def _check(model, prompts, max_new_tokens, temperature, rows):
    for name, value in (("max_new_tokens", max_new_tokens), ("rows", rows)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2 ** 31:
            raise ValueError(f"{name} must be a whole number of at least 1, not {shown(value)}")
    number = isinstance(temperature, (int, float)) and not isinstance(temperature, bool)
    if not number or not (temperature == 0 or 1e-6 <= temperature <= 1e6):
        raise ValueError(f"temperature must be 0 (greedy) or between 1e-6 and 1e6, not {shown(temperature)}")
    if len(prompts) == 0:
        raise ValueError("prompts is empty: there is nothing to reply to")
    room = model.cfg.max_position_embeddings
    if max_new_tokens >= room:
        raise ValueError(f"max_new_tokens is {max_new_tokens}, the model has {room} positions and a prompt needs one at least")
    for i, p in enumerate(prompts):
        if not 1 <= len(p) <= room - max_new_tokens:
            raise ValueError(f"prompt {i} has {len(p)} tokens; with max_new_tokens={max_new_tokens} it must have 1 to "
                             f"{room - max_new_tokens} to fit the model's {room} positions")


def _batch(model, prompts, limit, temperature, ends, u):
    """One batch of rows to the end: each distinct prompt is read once, replies are one row until they part, finished ones leave."""
    device, R = model.cos.device, len(prompts)
    prefix, last, row = read(model, prompts)                   # row: the row of the cache that each live reply is in
    logits = model.head(last)
    cache = Cache(model.cfg, R, prefix.valid.shape[1] + limit, device, last.dtype).begin(prefix, torch.arange(len(last), device=device))
    tokens = torch.zeros(R, limit, dtype=torch.long, device=device)
    logp = torch.zeros(R, limit, device=device)
    lengths = torch.full((R,), limit, device=device)
    ended = torch.zeros(R, dtype=torch.bool, device=device)
    alive = torch.arange(R, device=device)
    for t in range(limit):
        token, lp = draw(logits, temperature, None if u is None else u[alive, t], row)
        tokens[alive, t], logp[alive, t] = token, lp
        done = torch.isin(token, ends)
        lengths[alive[done]], ended[alive[done]] = t + 1, True
        if t + 1 == limit or done.all():
            break
        alive, token, row = alive[~done], token[~done], row[~done]
        pairs, child = torch.unique(row * model.cfg.vocab_size + token, return_inverse=True)     # who was alike and still is
        place = cache.branch(pairs // model.cfg.vocab_size)
        row = place[child]
        token = torch.empty_like(place).index_copy_(0, place, pairs % model.cfg.vocab_size)
        logits = model.head(model.hidden(token[:, None], None, cache)[:, 0])
    return tokens, logp, lengths, ended


def _graphed(model, prompts, limit, temperature, ends, u, every=16):
    """What `_batch` gives, by steps of fixed shapes: all rows stay to the end, and on a GPU one step is recorded as a CUDA graph and
    replayed. Whether all are done is asked every `every` steps, for asking makes the GPU wait. What follows an end is thrown away."""
    device, R = model.cos.device, len(prompts)
    prefix, last, where = read(model, prompts)
    logits = model.head(last)[where]
    cache = StaticCache(model.cfg, R, prefix.valid.shape[1] + limit, device, last.dtype).begin(prefix, where)
    tokens, logp = torch.zeros(R, limit, dtype=torch.long, device=device), torch.zeros(R, limit, device=device)
    done, t = torch.zeros(R, dtype=torch.bool, device=device), torch.zeros(1, dtype=torch.long, device=device)

    def step():
        token, lp = draw(logits, temperature, None if u is None else u.index_select(1, t)[:, 0])
        tokens.index_copy_(1, t, token[:, None])
        logp.index_copy_(1, t, lp[:, None])
        done.logical_or_((token[:, None] == ends).any(1))
        logits.copy_(model.head(model.hidden(token[:, None], None, cache)[:, 0]))
        cache.advance()
        t.add_(1)

    advance = step
    for k in range(limit):
        advance()
        if k == 0 and limit > 1 and device.type == "cuda":                   # the first step was a real one, and readied the libraries
            torch.cuda.synchronize(device)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            advance = graph.replay
        if k % every == every - 1 and bool(done.all()):
            break
    is_end = (tokens[..., None] == ends).any(-1)
    is_end[:, k + 1:] = False
    ended = is_end.any(1)
    lengths = torch.where(ended, is_end.int().argmax(1) + 1, limit)
    on = reply_mask(lengths, limit).bool()
    return tokens * on, logp.masked_fill(~on, 0.0), lengths, ended


def read(model, prompts):
    """Read each distinct prompt once. -> Prefix, states behind the prompts (D, width), which of the D each prompt is (B,).

    They are padded on the left, so that all replies begin at one place."""
    index, device = {}, model.cos.device
    where = torch.tensor([index.setdefault(tuple(p), len(index)) for p in prompts], device=device)
    S = max(map(len, index))
    tokens = torch.zeros(len(index), S, dtype=torch.long)
    valid = torch.zeros(len(index), S, dtype=torch.bool)
    for i, p in enumerate(index):
        tokens[i, S - len(p):], valid[i, S - len(p):] = torch.tensor(p), True
    prefix = Prefix(valid.to(device))
    return prefix, model.hidden(tokens.to(device), prefix.valid, prefix)[:, -1], where


def draw(logits, temperature, u, row=None):
    """(token, logp) of each draw: where u falls in the cumulative softmax(logits / T); greedy where T is 0.

    logits (M, V), u (B,) in [0, 1), row (B,): which logits each draw is from, None for its own. A token of probability 0 is never
    drawn: the cumulative sum does not move there. Greedy reports the log-probability at temperature 1."""
    p = torch.softmax(logits.float() / (temperature or 1), -1)
    row = torch.arange(len(p), device=p.device) if row is None else row
    if temperature == 0:
        token = logits.argmax(-1)[row]
    else:
        total = p.cumsum(-1, dtype=torch.float32)[row]
        target = torch.minimum(u * total[:, -1], torch.nextafter(total[:, -1], torch.zeros_like(u)))
        token = torch.searchsorted(total, target[:, None], right=True)[:, 0].clamp(max=p.shape[-1] - 1)    # nan is past the end
    return token, p[row, token].log()


def score(model, prompts, tokens, lengths, temperature=1.0):
    """Log-probabilities (B, T) of reply tokens under the model as it is, with gradient; 0 where a row has no token.

    prompts: lists of ids; tokens (B, T); lengths (B,). What is alike is read once: each distinct prompt, and the beginnings of its replies."""
    told, ids = read(model, prompts), [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist())]
    tree = grow(ids, *lay_out(model.cfg, ids, told), model.cos.device)
    logp = follow(model, told, tree, temperature)[tree.numbers.argsort()]
    return torch.nn.functional.pad(logp, (0, tokens.shape[1] - logp.shape[1]))


def lay_out(cfg, ids, told, numbers=None, limit=None, lanes=1):
    """Micro-batches of the replies `numbers` (default all), each a list of rows for `grow`; limit: states a micro-batch, None for one."""
    (prefix, _, where), numbers = told, range(len(ids)) if numbers is None else numbers
    found = bundles(ids, where.tolist(), numbers, prefix.valid.shape[1], cfg)
    sizes = [n for _, n in found]
    return [[found[j][0] for j in micro] for micro in micro_batches(sizes, limit or len(sizes) * max(sizes), lanes)]


def follow(model, told, tree, temperature=1.0):
    """score's second half: told is what `read` gave, the replies of `tree` follow it. -> (R, T). Micro-batches may share one reading.

    Logits are computed where a reply token is predicted, nowhere else, and once for what replies have in common."""
    prefix, last, where = told
    where = where[tree.first]
    states = last.index_select(0, where)
    if tree.valid.any():
        later = model.hidden(tree.tokens, tree.valid, prefix.share(where, tree.until))
        states = torch.cat([states, later[tree.valid]])
    logp = picked(model.head(states), tree.state, tree.token, temperature)
    return torch.cat([logp, logp.new_zeros(1)]).index_select(0, tree.edge.flatten()).view(tree.edge.shape)


def cut(prefix, last):
    """(prefix, last, whole, leaves): a reading cut off from its graph. `leaves` collect the gradient of all that follows it; then
    `torch.autograd.backward(whole, [leaf.grad for leaf in leaves])` sends it through the prompts, once for all micro-batches."""
    whole = [last, *(tensor for pair in prefix.kv for tensor in pair)]
    leaves = [tensor.detach().requires_grad_() for tensor in whole]
    bare = Prefix(prefix.valid)
    bare.kv = list(zip(leaves[1::2], leaves[2::2]))
    return bare, leaves[0], whole, leaves


def micro_batches(lengths, limit, lanes=1):
    """Lists of row numbers, longest rows first, each list of at most `limit` tokens with padding (one row at least).

    With several lanes a smaller limit is taken where it makes their number a multiple of `lanes`: then all finish together."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))

    def cut(limit):
        batches = []
        for i in order:
            if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > limit:
                batches.append([])
            batches[-1].append(i)
        return batches

    tries = [cut(limit * share // 20) for share in range(20, 8, -1)] if lanes > 1 else [cut(limit)]
    return next((batches for batches in tries if len(batches) % lanes == 0), tries[0])
