"""A two-layer random model with a tokenizer of its own, and plain slow oracles: shared by the tests of training."""

import hashlib
import json

import torch
from tokenizers import Tokenizer as Pieces
from tokenizers import decoders, models, pre_tokenizers, trainers

from grpo_lib.build_mini import SPECIAL, TEMPLATE
from grpo_lib.config import ModelConfig
from grpo_lib.model import Model, load, save
from grpo_lib.task import demonstrations
from grpo_lib.tokenizer import Tokenizer


def make_tokenizer(folder, size=96):
    """A BPE of `size` pieces of the task's own text. Digits may merge: what is sampled is often not what encode gives."""
    pieces = Pieces(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pieces.decoder = decoders.ByteLevel()
    texts = [text for problem, reply in demonstrations(60, 7) for text in (problem.prompt, reply)]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False)
    pieces.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    pieces.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "chat_template": TEMPLATE}
    config = {"vocab_size": size, "eos_token_id": SPECIAL.index("<|end|>"), "pad_token_id": 0}
    for name, data in (("tokenizer_config.json", settings), ("config.json", config)):
        (folder / name).write_text(json.dumps(data), encoding="utf-8")
    return Tokenizer(folder)


def make_folder(folder, seed=0, size=96, scale=5.0):
    """A model folder below `folder`; `scale` makes the random weights opinionated, so that tokens differ in probability."""
    tokenizer = make_tokenizer(folder / "tokenizer", size)
    cfg = ModelConfig(vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                      intermediate_size=64, head_dim=16, max_position_embeddings=256)
    model = Model(cfg).initialise(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(scale)
    save(model, tokenizer, folder / "start")
    return folder / "start"


def copy_of(model, noise=0.0, seed=5):
    """Another model with the same weights, plus normal noise."""
    other = Model(model.cfg)
    other.load_state_dict(model.state_dict())
    if noise:
        gen = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in other.parameters():
                p.add_(torch.randn(p.shape, generator=gen) * noise)
    return other


def weights(model):
    """All parameters in one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def digest(model):
    """A hash of every parameter's bytes."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()


def slow_logp(model, prompt, reply, temperature=1.0):
    """Log-probabilities of one reply's tokens: one row, no cache, no padding, the whole softmax."""
    if not reply:
        return torch.zeros(0)
    logits = model(torch.tensor([list(prompt) + list(reply)]))[0]
    table = torch.log_softmax(logits / temperature, -1)
    return torch.stack([table[len(prompt) - 1 + t, token] for t, token in enumerate(reply)])


def by_length(reply, answer):
    """A checker that a random model can please and displease: even replies are paid."""
    return float(len(reply) % 2 == 0)
