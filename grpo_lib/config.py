"""Configurations: frozen dataclasses, checked when they are made, so that a bad flag stops a run before it starts.

An ablation is `dataclasses.replace(cfg, beta=0.0)`; `differences(a, b)` prints what it changed. Nothing here knows torch.
"""
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "data"
AGGREGATIONS = ("seq-mean", "token-mean", "constant")
CHECKERS = ("strict", "exact", "contains", "random", "partial")


def shown(value):
    """A bad value for a message, short; an integer of thousands of digits cannot be printed and would crash the message."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        return f"{type(value).__name__} too large to print"


def _whole(cfg, *names, low=1):
    for name in names:
        value = getattr(cfg, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} must be a whole number, not {shown(value)}")
        if not low <= value < 2 ** 62:                       # a number this large would crash its own message
            raise ValueError(f"{name} must be at least {low} and below 2**62, not {value if abs(value) < 2 ** 62 else 'so large'}")


def _real(cfg, *names, low=0.0, open_low=False):
    for name in names:
        value = getattr(cfg, name)
        bad = isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max
        if bad or value < low or (open_low and value == low):
            raise ValueError(f"{name} must be a finite number {'above' if open_low else 'of at least'} {low}, not {shown(value)}")


def _choice(cfg, name, allowed):
    if getattr(cfg, name) not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {shown(getattr(cfg, name))}")


@dataclass(frozen=True)
class ModelConfig:
    """A Llama-style decoder: sizes as in Hugging Face's config.json."""
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    head_dim: int
    max_position_embeddings: int = 1024
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True

    def __post_init__(self):
        _whole(self, "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
               "intermediate_size", "head_dim", "max_position_embeddings")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                             f"num_key_value_heads ({self.num_key_value_heads})")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even, since rotary positions turn pairs, not {self.head_dim}")


@dataclass(frozen=True)
class WarmConfig:
    """Supervised warm start: n sums, half direct and half worked, cosine from lr to zero after `warmup` steps.

    chat: rows of replay chats mixed in. share: what part of the loss the sums are to be, by weighing the chats' tokens; 0 leaves
    every trained token at weight 1."""
    n: int = 4000
    chat: int = 0
    share: float = 0.0
    batch: int = 64
    lr: float = 3e-4
    warmup: int = 5
    seed: int = 1
    micro_tokens: int = 1024
    fused: bool = False

    def __post_init__(self):
        _whole(self, "n", "chat", "warmup", "seed", low=0)
        _whole(self, "batch", "micro_tokens")
        _real(self, "lr", open_low=True)
        if self.n + self.chat == 0:
            raise ValueError("n and chat are both 0: there is nothing to train on; give --n 4000")
        _real(self, "share")
        if self.share and not (self.share < 1 and self.n and self.chat):
            raise ValueError(f"share is {self.share}: a share of the loss lies below 1 and needs sums and chats; give --n, --chat, --share 0.07")


@dataclass(frozen=True)
class TrainConfig:
    """One GRPO run; the defaults are the article's, but for the learning rate, which belongs to the model.

    micro_tokens: tokens of one micro-batch with padding, what replies share once; a CPU has one a core in hand; it bounds the memory.
    dtype: what sampling and the reference run in, where the device is fast in bfloat16; the policy is trained in float32."""
    steps: int = 250
    problems: int = 32
    group: int = 8
    lr: float = 1e-5
    beta: float = 0.04
    eps: float = 0.2
    updates: int = 1
    std: bool = True
    agg: str = "seq-mean"
    checker: str = "strict"
    max_tokens: int = 128
    temperature: float = 1.0
    clip_norm: float = 1.0
    seed: int = 1
    eval_every: int = 25
    show_every: int = 25
    ckpt_every: int = 25
    time_cap: float = 0.0
    rows: int = 256
    micro_tokens: int = 1024
    dtype: str = "float32"
    fused: bool = False

    def __post_init__(self):
        _whole(self, "steps", "problems", "group", "updates", "max_tokens", "rows", "micro_tokens")
        _whole(self, "seed", "eval_every", "show_every", "ckpt_every", low=0)
        _real(self, "lr", "temperature", "clip_norm", open_low=True)
        _real(self, "beta", "eps", "time_cap")
        _choice(self, "agg", AGGREGATIONS)
        _choice(self, "checker", CHECKERS)
        _choice(self, "dtype", ("float32", "bfloat16"))
        if self.problems % self.updates:
            raise ValueError(f"updates ({self.updates}) must divide problems ({self.problems}): minibatches hold whole groups")


def differences(a, b):
    """{field: (value in a, value in b)} where two configs of one class differ; notebooks print this."""
    return {f.name: (getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if getattr(a, f.name) != getattr(b, f.name)}


def as_dict(cfg):
    """A config as a plain dict, for config.json."""
    return asdict(cfg)


# What `make run` and the recorded runs use, chosen on dev by pilots (data/LOG.md tells how): a start and the main arm.
RECIPES = {"mini": {"warm": WarmConfig(n=11000, lr=2e-3, warmup=20), "main": TrainConfig(lr=1e-4)}}
