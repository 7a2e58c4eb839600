"""The decoder against transformers, its cache and padding, and folders that must be refused (fault log, 4, 8, 13)."""

import json
import os
import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import grpo_lib.model
from grpo_lib.model import Cache, Normed, Prefix, Rotated, find, load, normed, read_config, replacing, rotated, save

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def ids(*shape, seed=0, low=6, high=320):
    """Random ids."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def close(a, b, tol=1e-4):
    return torch.allclose(a, b, rtol=tol, atol=tol)


def edit(folder, name, **changes):
    """Change keys of a JSON file; None removes one."""
    data = json.loads((folder / name).read_text(encoding="utf-8")) | changes
    (folder / name).write_text(json.dumps({k: v for k, v in data.items() if v is not None}), encoding="utf-8")


@pytest.fixture
def folder(tiny, tokenizer, tmp_path):
    """A saved tiny model."""
    save(tiny, tokenizer, tmp_path / "model")
    return tmp_path / "model"


# ---- the same function as transformers'

SHAPES = {
    "grouped, tied": {},
    "grouped, untied": {"tie_word_embeddings": False},
    "one key head": {"num_key_value_heads": 1},
    "all key heads, untied": {"num_key_value_heads": 4, "tie_word_embeddings": False},
    "wide heads, other theta and eps": {"head_dim": 12, "rope_theta": 500.0, "rms_norm_eps": 1e-2},
}


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES)
def test_a_saved_folder_opens_in_transformers_with_equal_logits(changes, make_model, tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM

    model, tokens = make_model(**changes), ids(3, 40)
    save(model, tokenizer, tmp_path / "m")
    assert {p.name for p in (tmp_path / "m").iterdir()} == FILES
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32).eval()
    with torch.no_grad():
        ours, other = model(tokens), theirs(tokens).logits
    assert ours.std() > 0.5, "logits too flat for the comparison to mean much"
    assert close(ours, other), f"largest difference {(ours - other).abs().max():.2e}"
    assert list(theirs.generation_config.eos_token_id) == list(tokenizer.end_ids) == [4, 5]
    assert theirs.generation_config.pad_token_id == tokenizer.pad_id == 0


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_that_transformers_wrote_is_read_with_equal_logits(tied, tokenizer, tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=320,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=48,
            max_position_embeddings=64,
            tie_word_embeddings=tied,
            initializer_range=0.3,
            eos_token_id=4,
            pad_token_id=0,
        )
    ).eval()
    theirs.save_pretrained(tmp_path / "m")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "m" / name).write_bytes((tokenizer.folder / name).read_bytes())
    model, _ = load(tmp_path / "m")
    with torch.no_grad():
        assert close(model(ids(2, 20)), theirs(ids(2, 20)).logits, 1e-5)


@pytest.mark.parametrize(
    "changes", [{}, {"num_key_value_heads": 4, "tie_word_embeddings": False}], ids=["grouped, tied", "plain, untied"]
)
def test_gradients_are_transformers_gradients(changes, make_model, tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM

    model, tokens = make_model(**changes), ids(2, 12)
    save(model, tokenizer, tmp_path / "m")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32)
    model(tokens).logsumexp(-1).mean().backward()
    theirs(tokens).logits.logsumexp(-1).mean().backward()
    other = dict(theirs.named_parameters())
    for name, p in model.named_parameters():
        assert close(p.grad, other[name].grad, 1e-4), f"gradient of {name} differs"


# ---- saving and loading


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": False, "num_key_value_heads": 4}], ids=["tied", "untied"]
)
def test_saving_and_loading_gives_equal_logits(changes, make_model, tokenizer, tmp_path):
    model, tokens = make_model(**changes), ids(2, 30)
    save(model, tokenizer, str(tmp_path / "m"))
    again, tok = load(str(tmp_path / "m"))
    assert torch.equal(again(tokens), model(tokens)), "logits changed on the way through the file"
    assert again.cfg == model.cfg and tok.end_ids == tokenizer.end_ids and tok.encode("42") == tokenizer.encode("42")
    assert all(p.requires_grad and p.dtype == torch.float32 for p in again.parameters())


def test_bfloat16_files_hold_the_rounded_weights_and_load_as_float32(tiny, tokenizer, tmp_path):
    save(tiny, tokenizer, tmp_path / "m", torch.bfloat16)
    assert {v.dtype for v in load_file(tmp_path / "m" / "model.safetensors").values()} == {torch.bfloat16}
    again, _ = load(tmp_path / "m")
    for (name, a), b in zip(again.named_parameters(), tiny.parameters()):
        assert a.dtype == torch.float32 and torch.equal(a, b.bfloat16().float()), name
    half, _ = load(tmp_path / "m", dtype=torch.bfloat16)
    assert half(ids(1, 5)).dtype == torch.float32 and next(half.parameters()).dtype == torch.bfloat16


def test_two_loads_share_nothing_with_each_other_or_the_file(folder):
    policy, ref = load(folder)[0], load(folder)[0]
    before, content = ref(ids(1, 9)), (folder / "model.safetensors").read_bytes()
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(1.0)
    assert torch.equal(ref(ids(1, 9)), before), "training the policy moved the reference"
    assert (folder / "model.safetensors").read_bytes() == content
    assert not {p.data_ptr() for p in policy.parameters()} & {p.data_ptr() for p in ref.parameters()}


def test_saving_over_the_folder_one_was_loaded_from_works_twice(folder):
    model, tokenizer = load(folder)
    for value in (0.5, 0.25):
        with torch.no_grad():
            model.model.norm.weight.fill_(value)
        save(model, tokenizer, folder)
        assert (load(folder)[0].model.norm.weight == value).all()
    assert {p.name for p in folder.iterdir()} == FILES and [p.name for p in folder.parent.iterdir()] == ["model"]


class Broken(Exception):
    """Something that is not an OSError."""


@pytest.mark.parametrize(
    "error, raised",
    [
        (OSError(28, "No space left on device"), OSError),
        (Broken("half-way"), Broken),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["disk full", "other", "ctrl-c"],
)
def test_a_save_that_fails_half_way_leaves_the_old_folder(error, raised, folder, tiny, tokenizer, monkeypatch):
    before = {p.name: p.read_bytes() for p in folder.iterdir()}

    def fail(state, path, **_):
        Path(path).write_bytes(b"half a file")
        raise error

    monkeypatch.setattr(grpo_lib.model, "save_file", fail)
    with torch.no_grad():
        tiny.model.norm.weight.fill_(7.0)
    with pytest.raises(raised) as err:
        save(tiny, tokenizer, folder)
    assert "\n" not in str(err.value)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert [p.name for p in folder.parent.iterdir()] == ["model"], "a stray temporary folder was left behind"
    load(folder)


def test_the_late_files_may_fail_too(folder, tiny, tokenizer, monkeypatch):
    before = (folder / "config.json").read_bytes()
    monkeypatch.setattr(
        grpo_lib.model.shutil, "copyfile", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="untouched"):
        save(tiny, tokenizer, folder)
    assert (folder / "config.json").read_bytes() == before and [p.name for p in folder.parent.iterdir()] == ["model"]


def test_replacing_makes_parents_and_takes_the_old_place_whole(tmp_path):
    target = tmp_path / "a" / "b"
    for name in ("one", "two"):
        with replacing(target) as tmp:
            (tmp / name).write_text(name, encoding="utf-8")
        assert [p.name for p in target.iterdir()] == [name], "files of the old folder were mixed with the new ones"
    assert os.listdir(tmp_path / "a") == ["b"]


# ---- folders that are refused


def refused(folder, *words, kind=ValueError):
    """Loading raises `kind` in one line that holds these words."""
    with pytest.raises(kind) as err:
        load(folder)
    message = str(err.value)
    assert "\n" not in message and len(message) < 500, message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


CONFIGS = {
    "qwen": ({"model_type": "qwen2"}, "model_type='qwen2'"),
    "gelu": ({"hidden_act": "gelu"}, "hidden_act"),
    "biases": ({"attention_bias": True}, "attention_bias"),
    "scaled rope": (
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0}},
        "rope_type='llama3'",
    ),
    "scaled rope, old style": (
        {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}},
        "rope_type='linear'",
    ),
    "no width": ({"hidden_size": None}, "hidden_size"),
    "no heads": ({"num_attention_heads": None}, "num_attention_heads"),
    "no vocabulary": ({"vocab_size": None}, "vocab_size"),
    "odd heads": ({"num_key_value_heads": 3}, "num_key_value_heads"),
    "width as text": ({"hidden_size": "32"}, "hidden_size"),
    "another vocabulary": ({"vocab_size": 400}, "embed_tokens", "(320, 32)", "(400, 32)"),
    "a smaller vocabulary than the tokenizer": ({"vocab_size": 100}, "pieces", "100"),
    "another width": ({"hidden_size": 64}, "(320, 32)", "(320, 64)"),
    "another depth": ({"num_hidden_layers": 3}, "layers.2", "missing"),
    "untied": ({"tie_word_embeddings": False}, "lm_head", "missing"),
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_does_not_fit_is_refused_in_one_line(changes, folder):
    edit(folder, "config.json", **changes[0])
    refused(folder, *changes[1:])


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_a_missing_file_is_named(name, folder):
    (folder / name).unlink()
    refused(folder, name, kind=FileNotFoundError)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"]
)
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_a_truncated_file_is_named(name, keep, folder):
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: int(len(content) * keep)])
    refused(folder, name)


@pytest.mark.parametrize("template", [None, "", [{"name": "default", "template": "x"}]], ids=["none", "empty", "list"])
def test_a_folder_without_a_chat_template_is_refused(template, folder):
    edit(folder, "tokenizer_config.json", chat_template=template)
    refused(folder, "chat_template")


def test_a_folder_that_names_no_end_is_refused(folder):
    edit(folder, "config.json", eos_token_id=None)
    edit(folder, "generation_config.json", eos_token_id=None)
    refused(folder, "eos_token_id")


def test_tensors_that_are_missing_misshapen_or_too_many_are_named(folder):
    path = folder / "model.safetensors"
    state = load_file(path)
    name = "model.layers.1.self_attn.k_proj.weight"
    save_file({k: v for k, v in state.items() if k != name}, path)
    refused(folder, name, "missing")
    save_file(state | {name: torch.zeros(8, 32)}, path)
    refused(folder, name, "(8, 32)", "(16, 32)")
    save_file(state | {"model.layers.0.self_attn.q_proj.bias": torch.zeros(32)}, path)
    refused(folder, "q_proj.bias")


def test_a_redundant_head_beside_tied_embeddings_is_ignored(folder, tiny):
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"lm_head.weight": torch.zeros(320, 32)}, path)
    assert torch.equal(load(folder)[0](ids(1, 5)), tiny(ids(1, 5)))


def test_a_path_that_is_no_folder_is_refused_with_the_way_out(tmp_path):
    refused(tmp_path / "nowhere", "nowhere", "mini", kind=FileNotFoundError)


def test_a_runs_folder_stands_for_its_model(folder):
    assert find(folder.parent) == folder and find(folder) == folder


def test_config_is_read_back_as_written(make_model, tokenizer, tmp_path):
    model = make_model(rope_theta=12345.0, head_dim=10, tie_word_embeddings=False, rms_norm_eps=3e-6)
    save(model, tokenizer, tmp_path / "m")
    assert read_config(tmp_path / "m") == model.cfg
    edit(tmp_path / "m", "config.json", rope_parameters=None, head_dim=None, num_key_value_heads=None)
    old = read_config(tmp_path / "m")
    assert (old.rope_theta, old.head_dim, old.num_key_value_heads) == (
        12345.0,
        8,
        4,
    ), "defaults of older config.json files"


# ---- cache


def cached(model, tokens, sizes, valid=None):
    """States when tokens are fed in pieces of these sizes through one cache."""
    cache = Cache(model.cfg, len(tokens), tokens.shape[1], "cpu", torch.float32)
    out, at = [], 0
    for size in sizes:
        part = slice(at, at + size)
        out.append(model.hidden(tokens[:, part], None if valid is None else valid[:, part], cache))
        at += size
    assert at == tokens.shape[1] == cache.length
    return torch.cat(out, 1)


@pytest.mark.parametrize("kv", [1, 2, 4])
@pytest.mark.parametrize("sizes", [[16], [1] * 16, [3] * 5 + [1], [7, 9], [1, 15], [10] + [1] * 6], ids=str)
def test_a_prefill_in_pieces_is_one_pass(sizes, kv, make_model):
    model, tokens = make_model(num_key_value_heads=kv), ids(3, 16)
    with torch.no_grad():
        assert close(cached(model, tokens, sizes), model.hidden(tokens)), "states with the cache differ from one pass"


@pytest.mark.parametrize("prompt", [1, 12])
def test_cached_equals_uncached_at_steps_1_2_and_50(prompt, tiny):
    tokens = ids(2, prompt + 50)
    with torch.no_grad():
        whole, pieces = tiny(tokens), tiny.head(cached(tiny, tokens, [prompt] + [1] * 50))
    for step in (1, 2, 50):
        assert close(pieces[:, prompt - 1 + step], whole[:, prompt - 1 + step]), f"logits differ at step {step}"


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows_go_on_through_the_cache_as_they_would_alone(side, tiny):
    rows, more = [ids(n, seed=n) for n in (1, 5, 12)], ids(3, 6, seed=9)
    tokens, valid = pad(rows, side)
    everything, known = torch.cat([tokens, more], 1), torch.cat([valid, torch.ones(3, 6, dtype=torch.bool)], 1)
    with torch.no_grad():
        together = cached(tiny, everything, [12] + [1] * 6, known)[:, 12:]
        pieces = cached(tiny, everything, [12, 6], known)[:, 12:]
        for i, row in enumerate(rows):
            alone = tiny.hidden(torch.cat([row, more[i]])[None])[0, -6:]
            assert close(together[i], alone), f"row of {len(row)} tokens, padded on the {side}, one token at a time"
            assert close(pieces[i], alone), f"row of {len(row)} tokens, padded on the {side}, six tokens at once"


@pytest.mark.parametrize("parents", ["023", "3", "12", "0", "0123", "123", "001", "333", "0011223", "13333", "22"])
def test_rows_that_branch_in_the_cache_keep_their_own_past(parents, tiny):
    tokens, parents = ids(4, 10), torch.tensor([int(c) for c in parents])
    with torch.no_grad():
        cache = Cache(tiny.cfg, 7, 12, "cpu", torch.float32)
        cache.rows = 4
        tiny.hidden(tokens, None, cache)
        place = cache.branch(parents)
        assert sorted(place.tolist()) == [*range(len(parents))], "two children in one place"
        stay = {int(p) for p in parents if p < len(parents)}
        assert all((place[parents == p] == p).any() for p in stay), "a row was moved that could have stayed"
        order = parents[place.argsort()]
        more = ids(len(order), 2, seed=3)
        got = tiny.hidden(more, None, cache)
        assert close(got, tiny.hidden(torch.cat([tokens[order], more], 1))[:, 10:])


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["shared", "begun"])
def test_replies_behind_shared_prompts_are_whole_rows(side, kind, tiny):
    rows, where = [ids(n, seed=n) for n in (1, 5, 12)], torch.tensor([2, 0, 0, 1, 2])
    (prompts, valid), more = pad(rows, side), ids(5, 6, seed=9)
    with torch.no_grad():
        prefix = Prefix(valid)
        last = tiny.hidden(prompts, valid, prefix)
        behind = prefix.share(where) if kind == "shared" else Cache(tiny.cfg, 5, 18, "cpu", torch.float32).begin(prefix, where)
        got = tiny.hidden(more, None, behind)
        for i, w in enumerate(where.tolist()):
            alone = tiny.hidden(torch.cat([rows[w], more[i]])[None])[0]
            assert close(last[w][valid[w]], alone[: len(rows[w])]) and close(got[i], alone[len(rows[w]):]), f"row {i}"


def test_the_gradient_reaches_a_shared_prompt_once_for_each_of_its_replies(make_model):
    rows, where, more, grads = [ids(n, seed=n) for n in (3, 7)], [1, 0, 1], ids(3, 5, seed=9), []
    for shared in (True, False):
        model = make_model()
        if shared:
            tokens, valid = pad(rows, "left")
            prefix = Prefix(valid)
            model.hidden(tokens, valid, prefix)
            model.hidden(more, None, prefix.share(torch.tensor(where))).sin().sum().backward()
        else:
            sum(model.hidden(torch.cat([rows[w], m])[None])[0, len(rows[w]):].sin().sum() for w, m in zip(where, more)).backward()
        grads.append([p.grad for p in model.parameters()])
    for (name, _), a, b in zip(model.named_parameters(), *grads):
        assert torch.allclose(a, b, atol=2e-4, rtol=1e-3), f"gradient of {name} differs from whole rows'"


# ---- operations with their own gradient

def both_ways(work, plain, *leaves):
    """Values and gradients of work and of plain, which autograd takes apart, under the same random push."""
    out = []
    for f in (work, plain):
        own = [leaf.detach().clone().requires_grad_() for leaf in leaves]
        y = f(*own)
        push = torch.randn(y.shape, generator=torch.Generator().manual_seed(5), dtype=y.dtype)
        out.append([y.detach(), *torch.autograd.grad((y * push).sum(), own)])
    return zip(*out)


@pytest.mark.parametrize("shape", [(7, 12), (3, 5, 12), (2, 1, 12)])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_the_norm_and_its_gradient_are_those_of_the_formula(shape, scale):
    g = torch.Generator().manual_seed(1)
    x, weight = scale * torch.randn(shape, generator=g, dtype=torch.float64), torch.randn(12, generator=g, dtype=torch.float64)
    work = lambda x, w: Normed.apply(x, w, 1e-5)
    plain = lambda x, w: x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w
    for name, a, b in zip(("value", "gradient by x", "gradient by the weight"), *zip(*both_ways(work, plain, x, weight))):
        assert torch.allclose(a, b, rtol=1e-9, atol=1e-12 * float(b.abs().max())), f"{name}: off by {(a - b).abs().max():.1e}"
    with torch.no_grad():
        assert torch.equal(normed(x, weight, 1e-5)[0], work(x, weight)), "with and without gradient differ"


@pytest.mark.parametrize("strided", [False, True])
def test_the_rotation_and_its_gradient_are_those_of_the_formula(strided):
    g = torch.Generator().manual_seed(2)
    x = torch.randn(2, 5, 3, 8, generator=g, dtype=torch.float64)
    angle = torch.randn(2, 1, 5, 4, generator=g, dtype=torch.float64)
    cos, sin = angle.cos(), angle.sin()
    turn = (lambda x: x.transpose(1, 2)) if strided else (lambda x: x.transpose(1, 2).contiguous())

    def plain(x):
        a, b = turn(x).chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    for name, a, b in zip(("value", "gradient"), *zip(*both_ways(lambda x: Rotated.apply(turn(x), cos, sin), plain, x))):
        assert torch.allclose(a, b, atol=1e-12), f"{name}: off by {(a - b).abs().max():.1e}"
    assert torch.allclose(rotated(rotated(x.transpose(1, 2), cos, sin), cos, sin, way=-1), x.transpose(1, 2)), "back is not where it began"


# ---- padding


def pad(rows, side, filler=0):
    """Rows of ids as one rectangle. -> tokens, valid."""
    S = max(map(len, rows))
    tokens, valid = torch.full((len(rows), S), filler), torch.zeros(len(rows), S, dtype=torch.bool)
    for i, row in enumerate(rows):
        part = slice(S - len(row), S) if side == "left" else slice(0, len(row))
        tokens[i, part], valid[i, part] = row, True
    return tokens, valid


LENGTHS = (1, 7, 40)


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_row_in_a_batch_is_the_row_alone_with_any_filler(side, tiny):
    rows = [ids(n, seed=n) for n in LENGTHS]
    with torch.no_grad():
        base = None
        for filler in (0, 4, 77, 319):
            tokens, valid = pad(rows, side, filler)
            out = tiny(tokens, valid)
            assert torch.isfinite(out).all(), "padding gave a nan"
            if base is not None:
                assert torch.equal(out[valid], base), f"logits of real tokens moved when the padding id became {filler}"
            base = out[valid]
            for i, row in enumerate(rows):
                assert close(
                    out[i, valid[i]], tiny(row[None])[0]
                ), f"row {i}, padded on the {side}, differs from the row alone"


def test_left_and_right_padding_agree(tiny):
    rows = [ids(n, seed=n) for n in LENGTHS]
    (left, on_left), (right, on_right) = pad(rows, "left"), pad(rows, "right")
    with torch.no_grad():
        assert close(tiny(left, on_left)[on_left], tiny(right, on_right)[on_right])
        mixed, on = torch.stack([left[0], right[1], left[2]]), torch.stack([on_left[0], on_right[1], on_left[2]])
        assert close(tiny(mixed, on)[on], tiny(left, on_left)[on_left]), "a left and a right padded row in one batch"


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("tied", [True, False])
def test_nan_in_the_padding_embedding_reaches_nothing(side, tied, make_model):
    rows, grads, states = [ids(n, seed=n) for n in LENGTHS], [], []
    tokens, valid = pad(rows, side)
    for spoil in (False, True):
        model = make_model(tie_word_embeddings=tied)
        if spoil:
            model.model.embed_tokens.weight.data[0] = torch.nan
        h = model.hidden(tokens, valid)
        h[valid].sin().sum().backward()
        states.append(h.detach()[valid])
        grads.append([p.grad for n, p in model.named_parameters() if n != "lm_head.weight"])
    assert torch.isfinite(states[1]).all() and torch.equal(*states)
    for a, b in zip(*grads):
        assert torch.isfinite(b).all() and torch.equal(a, b), "the padding's nan reached a gradient"
    assert (grads[1][0][0] == 0).all(), "the padding id was trained"


def test_a_row_of_nothing_but_padding_gives_no_nan(tiny):
    tokens, valid = ids(2, 6), torch.tensor([[True] * 6, [False] * 6])
    out = tiny.hidden(tokens, valid)
    out[0].sum().backward()
    assert torch.isfinite(out).all() and all(
        torch.isfinite(p.grad).all() for p in tiny.parameters() if p.grad is not None
    )


@pytest.mark.parametrize("case", FAULTS["POSITIONS"], ids=lambda case: str(case["attention"]))
def test_positions_count_real_tokens(case, tiny):
    valid = torch.tensor([case["attention"]], dtype=torch.bool)
    cache = Cache(tiny.cfg, 1, 8, "cpu", torch.float32)
    positions, _ = tiny._where(ids(1, 5), valid, cache, torch.float32)
    assert [p for p, real in zip(positions[0].tolist(), case["attention"]) if real] == [
        p for p in case["positions"] if p is not None
    ]
    assert tiny._where(ids(1, 1), None, cache, torch.float32)[0].item() == case["next_position"]


def test_a_hole_in_a_row_is_not_seen_whatever_the_neighbours(tiny):
    tokens = ids(2, 6)
    valid = torch.tensor([[1, 1, 0, 1, 0, 1], [0, 0, 1, 1, 1, 1]]).bool()
    with torch.no_grad():
        alone, together = tiny.hidden(tokens[:1], valid[:1]), tiny.hidden(tokens, valid)
        packed = tiny.hidden(tokens[:1, valid[0]])
    assert close(alone[0, valid[0]], packed[0]) and close(together[0, valid[0]], packed[0]), "a hole was read"


def test_later_tokens_never_change_earlier_logits(tiny):
    a, b = ids(1, 20), ids(1, 20)
    b[0, 12:] = ids(8, seed=4)
    with torch.no_grad():
        assert torch.equal(tiny(a)[:, :12], tiny(b)[:, :12]) and not close(tiny(a)[:, 12:], tiny(b)[:, 12:])


# ---- bounds and repeatability


def test_all_positions_fit_and_one_more_raises_at_once(tiny):
    tiny.hidden(ids(1, 96))
    with pytest.raises(ValueError, match="97 tokens .* 96 positions"):
        tiny.hidden(ids(1, 97))
    cache = Cache(tiny.cfg, 1, 97, "cpu", torch.float32)
    tiny.hidden(ids(1, 95), None, cache)
    tiny.hidden(ids(1, 1), None, cache)
    with pytest.raises(ValueError, match="97 tokens"):
        tiny.hidden(ids(1, 1), None, cache)


def test_initialising_is_a_function_of_the_seed_alone(tiny):
    one, two, other = (grpo_lib.model.Model(replace(tiny.cfg)).initialise(seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    assert not torch.equal(one.model.embed_tokens.weight, other.model.embed_tokens.weight)
