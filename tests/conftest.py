"""Shared fixtures: a tiny tokenizer folder, a tiny random decoder, and a stand-in whose logits follow a script."""

import json
import os
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
import torch
from tokenizers import Tokenizer as Pieces
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import nn

from grpo_lib.config import ModelConfig
from grpo_lib.model import Model
from grpo_lib.tokenizer import Tokenizer

# CI judges a change, so its cases are fixed; at a developer's desk hypothesis goes on looking for new ones.
hypothesis.settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

SPECIAL = ["<|pad|>", "<|begin|>", "<|user|>", "<|assistant|>", "<|end|>", "<|stop|>"]
TEMPLATE = (
    "<|begin|>{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONFIG = ModelConfig(
    vocab_size=320,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=48,
    head_dim=8,
    max_position_embeddings=96,
)


def write_json(path, data):
    """Write data as JSON."""
    Path(path).write_text(json.dumps(data), encoding="utf-8")


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    """A folder with a byte-level tokenizer (4, 2 and 42 are three pieces), a chat template, two end ids and a pad id."""
    folder = tmp_path_factory.mktemp("tokenizer")
    pieces = Pieces(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    pieces.train_from_iterator(
        ["The answer is 42. What is 42?"] * 50 + ["Add the digits from right to left, write 7."] * 20,
        trainers.BpeTrainer(
            vocab_size=CONFIG.vocab_size,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    pieces.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|begin|>",
            "eos_token": "<|end|>",
            "pad_token": "<|pad|>",
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    )
    write_json(folder / "config.json", {"vocab_size": CONFIG.vocab_size, "eos_token_id": 4, "pad_token_id": 0})
    write_json(folder / "generation_config.json", {"eos_token_id": [4, 5]})
    return folder


@pytest.fixture(scope="session")
def tokenizer(tokenizer_folder):
    """The tokenizer of that folder; end ids 4 and 5, pad 0."""
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="session")
def make_model():
    """make_model(seed=0, **changes): a float32 decoder of width 32 with weights large enough for lively logits."""

    def make(seed=0, **changes):
        model = Model(replace(CONFIG, **changes)).initialise(seed)
        gen = torch.Generator().manual_seed(seed + 1)
        with torch.no_grad():
            for p in model.parameters():
                if p.dim() > 1:
                    p.mul_(12)
                else:
                    p.add_(0.3 * torch.randn(p.shape, generator=gen))
        return model.eval()

    return make


@pytest.fixture
def tiny(make_model):
    """One such decoder, fresh for each test: 2 layers, 4 query heads on 2 key heads, 96 positions, 320 pieces, tied."""
    return make_model()


class Scripted(nn.Module):
    """A stand-in for the decoder: logits after a token are its row of a table (V, V). `calls` counts passes."""

    def __init__(self, table, positions=64):
        super().__init__()
        V = len(table)
        self.cfg = replace(CONFIG, vocab_size=V, max_position_embeddings=positions)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(V, 1)
        self.register_buffer("cos", torch.zeros(1))
        self.table, self.calls = nn.Parameter(torch.as_tensor(table, dtype=torch.float32)), 0

    def hidden(self, tokens, valid=None, cache=None):
        """One-hot rows (B, S, V) stand for states."""
        self.calls += 1
        return torch.nn.functional.one_hot(tokens, len(self.table)).float()

    def head(self, x):
        """Logits: the table's row."""
        return self.table[x.argmax(-1)]


@pytest.fixture(scope="session")
def scripted():
    """scripted(table, positions=64): the stand-in for a table of logits (V, V)."""
    return Scripted


@pytest.fixture(scope="session")
def follow():
    """follow(V, {token: next token}): a table that makes each named successor certain; the others are uniform."""

    def table(V, steps):
        out = torch.zeros(V, V)
        for token, after in steps.items():
            out[token] = -torch.inf
            out[token, after] = 0.0
        return out

    return table
