"""A Llama-style decoder in plain PyTorch: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Parameter names are Hugging Face's, so a saved folder opens in transformers with equal logits. `hidden` gives the last
layer's states and `head` turns the wanted ones into logits: training never computes logits of prompt tokens. Padding is
told by `valid` alone; which id stands there, and on which side, never matters. The model does not know sampling or losses.
"""
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from grpo_lib.config import DATA, ModelConfig
from grpo_lib.machine import keep_memory
from grpo_lib.tokenizer import Tokenizer, read_json


class RMSNorm(nn.Module):
    """x / rms(x) * weight, the mean square taken in float32 at least."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return Normed.apply(x, self.weight, self.eps) if torch.is_grad_enabled() else normed(x, self.weight, self.eps)[0]


def normed(x, weight, eps):
    """(x / rms(x) * weight, 1 / rms(x)): one pass for the squares, two for the product."""
    n = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))
    r = (n * n).div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * r).to(x.dtype).mul_(weight), r


class Normed(torch.autograd.Function):
    """`normed` with its gradient in fewer passes over the memory than autograd takes (benchmarks/README.md)."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """y, with what its gradient needs."""
        y, r = normed(x, weight, eps)
        ctx.save_for_backward(x, weight, r)
        return y

    @staticmethod
    def backward(ctx, g):
        """Gradients by x and by the weight."""
        x, weight, r = ctx.saved_tensors
        unit = x * r                                           # y = unit * weight
        both = g * unit
        along = (both @ weight)[..., None] / x.shape[-1]       # what the gradient has along x, which the norm takes out
        return (g * weight).addcmul_(unit, along, value=-1).mul_(r), both.flatten(0, -2).sum(0), None


def rotate(x, cos, sin):
    """Rotary embedding of x (B, H, S, D) by angles cos, sin (B, 1, S, D/2), halves paired as in Llama."""
    return Rotated.apply(x, cos, sin) if torch.is_grad_enabled() else rotated(x, cos, sin)


def rotated(x, cos, sin, way=1):
    """x turned by the angle, or back (way -1)."""
    out = torch.empty_like(x)
    (a, b), (left, right) = x.chunk(2, -1), out.chunk(2, -1)
    torch.mul(a, cos, out=left).addcmul_(b, sin, value=-way)
    torch.mul(b, cos, out=right).addcmul_(a, sin, value=way)
    return out


class Rotated(torch.autograd.Function):
    """`rotated`, whose gradient is turned back by the same angle."""

    @staticmethod
    def forward(ctx, x, cos, sin):
        """x turned."""
        ctx.save_for_backward(cos, sin)
        return rotated(x, cos, sin)

    @staticmethod
    def backward(ctx, g):
        """Gradient by x; the angles have none."""
        return rotated(g, *ctx.saved_tensors, way=-1), None, None


class Attention(nn.Module):
    """Causal self-attention; `num_key_value_heads` key heads each serve a group of query heads."""

    def __init__(self, cfg):
        super().__init__()
        self.heads, self.kv, self.dim = cfg.num_attention_heads, cfg.num_key_value_heads, cfg.head_dim
        self.q_proj = nn.Linear(cfg.hidden_size, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(cfg.hidden_size, self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(cfg.hidden_size, self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, cfg.hidden_size, bias=False)

    def forward(self, x, cos, sin, mask, cache, layer):
        B, S, _ = x.shape
        split = lambda t, n: t.view(B, S, n, self.dim).transpose(1, 2)          # (B, n, S, D)
        q, k = rotate(split(self.q_proj(x), self.heads), cos, sin), rotate(split(self.k_proj(x), self.kv), cos, sin)
        v = split(self.v_proj(x), self.kv)
        if cache is not None:
            k, v = cache.put(layer, k, v)
        if S == 1 and mask is not None:       # one query a row: the heads of a group become the queries of one key head
            y = F.scaled_dot_product_attention(q.reshape(B, self.kv, self.heads // self.kv, self.dim), k, v, attn_mask=mask)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.kv != self.heads)
        return self.o_proj(y.reshape(B, self.heads, S, self.dim).transpose(1, 2).reshape(B, S, -1))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, cfg):
        super().__init__()
        self.gate_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.up_proj = nn.Linear(cfg.hidden_size, cfg.intermediate_size, bias=False)
        self.down_proj = nn.Linear(cfg.intermediate_size, cfg.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, cfg):
        super().__init__()
        self.input_layernorm, self.self_attn = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps), Attention(cfg)
        self.post_attention_layernorm, self.mlp = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps), MLP(cfg)

    def forward(self, x, cos, sin, mask, cache, layer):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, mask, cache, layer)
        return x + self.mlp(self.post_attention_layernorm(x))


class Prefix:
    """What the prompts leave for their replies: keys and values of every layer, with their gradient. Each prompt is read once.

    Pass it as `cache` with the prompts (D, S) to fill it; after `share(where)` row i of later tokens follows prompt where[i]."""

    def __init__(self, valid):
        self.kv, self.valid, self.length, self.where, self.until = [], valid, 0, None, None

    def share(self, where, until=None):
        """For later tokens in len(where) rows, the i-th behind prompt where[i]; several may share one reading, side by side.

        until (B, S): the place among the S tokens before which each is still seen; None: to the end (tree.py)."""
        shared = Prefix(self.valid)
        shared.kv, shared.where, shared.until, shared.length = self.kv, where, until, self.valid.shape[1]
        return shared

    def extend(self, valid):
        """Room for the next tokens, valid (B, S). -> (B, keys) bool, which of all keys are real; (S,) the new ones among them."""
        new = torch.arange(self.length, self.length + valid.shape[1], device=valid.device)
        return (valid if self.where is None else torch.cat([self.valid[self.where], valid], 1)), new

    def put(self, layer, k, v):
        """Keys and values that these tokens see, their own last, (B, kv, keys, D)."""
        if self.where is None:
            self.kv.append((k, v))
            return k, v
        # index_select, not []: its gradient is added in one fixed order on a CPU
        return tuple(torch.cat([past.index_select(0, self.where), new], 2) for past, new in zip(self.kv[layer], (k, v)))


class Cache:
    """Keys and values of replies in the making, preallocated once for up to `rows` rows and `room` tokens, written in place.

    Nothing is zeroed or copied beyond `length`. Replies that are alike so far share a row until they part (`branch`)."""

    def __init__(self, cfg, rows, room, device, dtype):
        new = lambda: [torch.empty(rows, cfg.num_key_value_heads, room, cfg.head_dim, device=device, dtype=dtype)
                       for _ in range(cfg.num_hidden_layers)]        # a block a layer: small enough to be reused by the allocator
        self.k, self.v = new(), new()
        self.valid = torch.zeros(rows, room, dtype=torch.bool, device=device)
        self.rows, self.length, self.until = rows, 0, None

    def begin(self, prefix, where):
        """Start row i behind prompt where[i] of a filled Prefix."""
        self.rows, self.length = len(where), prefix.valid.shape[1]
        self.valid[:self.rows, :self.length] = prefix.valid[where]
        for mine, past in zip(self.k + self.v, [k for k, _ in prefix.kv] + [v for _, v in prefix.kv]):
            mine[:self.rows, :, :self.length] = past[where]
        return self

    def extend(self, valid):
        """Room for the next tokens, valid (rows, S). -> (rows, keys) bool, which of all keys are real; (S,) the new ones among them."""
        past, self.length = self.length, self.length + valid.shape[1]
        self.valid[:self.rows, past:self.length] = valid
        return self.valid[:self.rows, :self.length], torch.arange(past, self.length, device=valid.device)

    def put(self, layer, k, v):
        """Store the newest S keys and values of a layer; returns all of it up to now, (rows, kv, length, D)."""
        n, end, start = self.rows, self.length, self.length - k.shape[2]
        self.k[layer][:n, :, start:end], self.v[layer][:n, :, start:end] = k, v
        return self.k[layer][:n, :, :end], self.v[layer][:n, :, :end]

    def branch(self, parents):
        """The rows go on as children of rows parents (n,), sorted; a row may have several children or none. -> (n,) where each child stands.

        A first child keeps its parent's place where that lies below n; all others are copied into the places left."""
        n = len(parents)
        place, stays = parents.clone(), parents < n
        stays[1:] &= parents[1:] != parents[:-1]
        free = torch.ones(n, dtype=torch.bool, device=parents.device).index_fill_(0, parents[stays], False)
        place[~stays] = to = free.nonzero()[:, 0]
        if len(to):
            come = parents[~stays]
            for part in self.k + self.v:
                part[to, :, :self.length] = part[come, :, :self.length]
            self.valid[to] = self.valid[come]
        self.rows = n
        return place


class StaticCache(Cache):
    """A Cache of fixed shapes for one token a step: every key is seen and the mask alone tells which count, and the place to write
    is a tensor. So a step is the same kernels on the same addresses each time, which is what a CUDA graph can record."""

    def begin(self, prefix, where):
        """Start row i behind prompt where[i]; what is not written yet is zero, for 0 * nan would be nan."""
        super().begin(prefix, where)
        for part in self.k + self.v:
            part[:, :, self.length:] = 0
        self.at, self.length = torch.tensor([self.length], device=self.valid.device), 0
        return self

    def extend(self, valid):
        """As Cache.extend for S = 1; `at` moves when the step is over (`advance`)."""
        self.valid.index_copy_(1, self.at, valid)
        return self.valid, self.at

    def put(self, layer, k, v):
        """Write one token's key and value; returns the whole room."""
        return self.k[layer].index_copy_(2, self.at, k), self.v[layer].index_copy_(2, self.at, v)

    def advance(self):
        """The next token goes one place on."""
        self.at += 1


class Model(nn.Module):
    """The decoder. `model(tokens)` gives logits (B, S, V) in float32."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(cfg.vocab_size, cfg.hidden_size)
        self.model.layers = nn.ModuleList(Block(cfg) for _ in range(cfg.num_hidden_layers))
        self.model.norm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        if not cfg.tie_word_embeddings:
            self.lm_head = nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False)
        angles = torch.outer(torch.arange(cfg.max_position_embeddings).float(),
                             cfg.rope_theta ** (-torch.arange(0, cfg.head_dim, 2).float() / cfg.head_dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def initialise(self, seed):
        """Fresh weights: normal(0, 0.02), the two projections into the residual stream smaller with depth."""
        gen = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if p.dim() > 1:
                    deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                    p.normal_(0, 0.02 / (2 * self.cfg.num_hidden_layers) ** 0.5 if deep else 0.02, generator=gen)
        return self

    def hidden(self, tokens, valid=None, cache=None):
        """States after the last norm, (B, S, width). tokens (B, S) int64; valid (B, S) bool, None where all are real.

        With a cache (a Cache or a Prefix) the S tokens follow what it holds. Rows whose first token is real are padded on the
        right, where the causal mask alone hides the padding. Raises ValueError past `max_position_embeddings`."""
        B, S = tokens.shape
        past = 0 if cache is None else cache.length
        if past + S > self.cfg.max_position_embeddings:
            raise ValueError(f"{past + S} tokens do not fit the model's {self.cfg.max_position_embeddings} positions")
        x = self.model.embed_tokens(tokens)
        if valid is not None:
            x = x.masked_fill(~valid[..., None], 0.0)              # 0 * nan would be nan: padding is emptied, not just hidden
        positions, mask = self._where(tokens, valid, cache, x.dtype)
        cos, sin = self.cos[positions][:, None].to(x.dtype), self.sin[positions][:, None].to(x.dtype)
        for layer, block in enumerate(self.model.layers):
            x = block(x, cos, sin, mask, cache, layer)
        return self.model.norm(x)

    def _where(self, tokens, valid, cache, dtype):
        """Positions (B or 1, S) counted over real tokens, and what is added to the scores (B, 1, S, keys), None for plain causal."""
        S, device = tokens.shape[1], tokens.device
        if cache is None and (valid is None or bool(valid[:, 0].all() & (valid[:, 1:] <= valid[:, :-1]).all())):     # no hole
            return torch.arange(S, device=device)[None], None
        valid = torch.ones_like(tokens, dtype=torch.bool) if valid is None else valid
        known, query = (valid, torch.arange(S, device=device)) if cache is None else cache.extend(valid)
        keys = torch.arange(known.shape[1], device=device)
        seen = known[:, None, :] & (keys <= query[:, None])
        if cache is not None and cache.until is not None:          # a tree: a token is seen by what follows it alone
            seen[:, :, cache.length:] &= (query - cache.length)[:, None] < cache.until[:, None]
        positions = (seen.sum(-1) - 1).clamp(min=0)
        seen = seen | (keys == query[:, None])                     # padding sees itself: a row of no keys would be nan
        return positions, torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf)[:, None]

    def head(self, x):
        """Logits (..., V) in float32 of states (..., width)."""
        weight = self.model.embed_tokens.weight if self.cfg.tie_word_embeddings else self.lm_head.weight
        return F.linear(x, weight).float()

    def forward(self, tokens, valid=None, cache=None):
        return self.head(self.hidden(tokens, valid, cache))


def read_config(folder):
    """ModelConfig of a folder's config.json; what this decoder cannot do is refused in one line."""
    path = Path(folder) / "config.json"
    raw = read_json(path)
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    odd = [f"{key}={raw[key]!r}" for key, plain in (("model_type", "llama"), ("hidden_act", "silu"), ("attention_bias", False),
                                                   ("mlp_bias", False), ("attention_dropout", 0.0)) if raw.get(key, plain) != plain]
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        odd.append(f"rope_type={rope.get('rope_type', rope.get('type'))!r}")
    if odd:
        raise ValueError(f"{path}: {', '.join(odd)} is not a plain Llama decoder, which is all this library runs")
    missing = [key for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
                               "max_position_embeddings", "rms_norm_eps") if key not in raw]
    if missing:
        raise ValueError(f"{path} has no {', '.join(missing)}")
    heads = raw["num_attention_heads"]
    return ModelConfig(vocab_size=raw["vocab_size"], hidden_size=raw["hidden_size"], num_hidden_layers=raw["num_hidden_layers"],
                       num_attention_heads=heads, num_key_value_heads=raw.get("num_key_value_heads", heads),
                       intermediate_size=raw["intermediate_size"], head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
                       max_position_embeddings=raw["max_position_embeddings"],
                       rope_theta=float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))),
                       rms_norm_eps=raw["rms_norm_eps"], tie_word_embeddings=raw.get("tie_word_embeddings", False))


def find(path_or_name):
    """The model folder behind a path, a run's folder (its model/), or one of the names `mini`, `smollm2`."""
    if str(path_or_name) == "mini":
        return DATA / "mini"
    if str(path_or_name) == "smollm2":
        from grpo_lib.hub import smollm2_folder                    # only who asks for it needs its packages
        return smollm2_folder()
    folder = Path(path_or_name)
    if not folder.is_dir():
        raise FileNotFoundError(f"no model at {path_or_name}: give a folder with config.json and model.safetensors, or mini, or smollm2")
    return folder / "model" if (folder / "model" / "config.json").is_file() else folder


def load(path_or_name, device=None, dtype=None):
    """(model, tokenizer) from a folder or a name; float32 on the CPU unless told. Weights of other names or shapes are refused."""
    keep_memory()
    folder = find(path_or_name)
    tokenizer, cfg = Tokenizer(folder), read_config(folder)
    path = folder / "model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} has no model.safetensors")
    try:
        state = load_file(path)
    except Exception as err:
        raise ValueError(f"{path} cannot be read as safetensors ({str(err)[:80]}); fetch or build it again") from None
    if cfg.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    with torch.device("meta"):
        model = Model(cfg)
    wanted, got = {k: v.shape for k, v in model.state_dict().items()}, {k: v.shape for k, v in state.items()}
    wrong = [f"{k} is {tuple(got[k]) if k in got else 'missing'}, config.json needs {tuple(wanted[k]) if k in wanted else 'none'}"
             for k in sorted(wanted.keys() | got.keys()) if wanted.get(k) != got.get(k)]
    if wrong:
        raise ValueError(f"{path} does not fit {folder / 'config.json'}: {wrong[0]}" + (f" (and {len(wrong) - 1} more)" if wrong[1:] else ""))
    model = Model(cfg)
    model.load_state_dict({k: v.to(dtype or torch.float32) for k, v in state.items()}, assign=True)
    return model.to(device or "cpu").requires_grad_(True), tokenizer


def hf_config(cfg, tokenizer):
    """config.json as transformers reads it."""
    rest = asdict(cfg)
    theta = rest.pop("rope_theta")
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", **rest, "rope_theta": theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": theta}, "attention_bias": False, "mlp_bias": False,
            "eos_token_id": list(tokenizer.end_ids), "pad_token_id": tokenizer.pad_id}


def save(model, tokenizer, path, dtype=None):
    """Write a folder that transformers opens; atomically: an interrupted save leaves what stood there before."""
    with replacing(path) as tmp:
        state = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in model.state_dict().items()}
        save_file(state, tmp / "model.safetensors", metadata={"format": "pt"})
        dump = lambda name, data: (tmp / name).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        dump("config.json", hf_config(model.cfg, tokenizer))
        dump("generation_config.json", {"eos_token_id": list(tokenizer.end_ids), "pad_token_id": tokenizer.pad_id})
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
            if (tokenizer.folder / name).is_file():
                shutil.copyfile(tokenizer.folder / name, tmp / name)


class replacing:
    """`with replacing(path) as tmp:` fill a temporary folder; it takes path's place only when all went well."""

    def __init__(self, path):
        self.path = Path(path)

    def __enter__(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.tmp = Path(tempfile.mkdtemp(prefix=".tmp-", dir=self.path.parent))
        return self.tmp

    def __exit__(self, kind, err, trace):
        if kind is not None:
            shutil.rmtree(self.tmp, ignore_errors=True)
            if isinstance(err, OSError):
                raise OSError(f"could not write {self.path} ({err.strerror or err}); what stood there before is untouched") from None
            return
        os.chmod(self.tmp, 0o755)
        old = self.path.with_name(f".old-{self.path.name}")
        shutil.rmtree(old, ignore_errors=True)
        if self.path.exists():
            os.replace(self.path, old)
        os.replace(self.tmp, self.path)
        shutil.rmtree(old, ignore_errors=True)
