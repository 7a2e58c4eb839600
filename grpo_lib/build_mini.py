"""`mini`, a chat model in the small, built from nothing: tokenizer, pretraining, chat tuning, model card.

It reads encyclopaedia summaries, recipes, dictionary glosses, conversations and number copying, and it never sees a sum
(`corpus.has_sum` filters). About an hour on two cores, in stages that a second call takes up where the first one stopped.
Weights are rounded to bfloat16 before anything is measured, so that the committed file is the model that records speak of.
"""
import json
import math
import random
import time
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer as Pieces, decoders, models, pre_tokenizers, trainers

from grpo_lib import corpus, replay, sft
from grpo_lib.config import DATA, ModelConfig
from grpo_lib.model import Model, load, save
from grpo_lib.prompts import unseen_prompts
from grpo_lib.talk import ask
from grpo_lib.tokenizer import Tokenizer

SPECIAL = ["<|pad|>", "<|begin|>", "<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATE = ("<|begin|>{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
WORDS = ("What is Add Compute The the answer and digits from right to left write carry Write Add + = , . ?").split()
SPLIT = r" ?[0-9]| ?[A-Za-z]+(?:'[a-z]+)?| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"       # a digit is its own piece, a blank may join it
CONFIG = ModelConfig(vocab_size=2048, hidden_size=160, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
                     intermediate_size=432, head_dim=40, max_position_embeddings=1024)
WINDOW = 256


def train_tokenizer(texts, folder):
    """Byte-level BPE of 2,048 pieces; the task's words are made common enough to become whole pieces, as words, never as sums."""
    pieces = Pieces(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    pieces.decoder = decoders.ByteLevel()
    words = [w + " " + " ".join(WORDS) for w in WORDS for _ in range(2000)]
    pieces.train_from_iterator(list(texts) + words, trainers.BpeTrainer(
        vocab_size=CONFIG.vocab_size, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    folder.mkdir(parents=True, exist_ok=True)
    pieces.save(str(folder / "tokenizer.json"))
    dump = lambda name, data: (folder / name).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    dump("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|end|>",
                                   "pad_token": "<|pad|>", "clean_up_tokenization_spaces": False, "chat_template": TEMPLATE,
                                   "model_max_length": CONFIG.max_position_embeddings})
    dump("config.json", {"vocab_size": CONFIG.vocab_size, "eos_token_id": SPECIAL.index("<|end|>"), "pad_token_id": 0})
    return Tokenizer(folder)


def windows(tokenizer, documents, seed):
    """All documents in one shuffled stream, <|begin|> before each, cut into rows of WINDOW tokens, each token a target."""
    order = list(documents)
    random.Random(f"windows/{seed}").shuffle(order)
    stream = []
    for i in range(0, len(order), 1000):
        for enc in tokenizer.pieces.encode_batch(order[i:i + 1000], add_special_tokens=False):
            stream.append(1)
            stream += enc.ids
    flat = torch.tensor(stream, dtype=torch.int32)
    rows = flat[:len(flat) // WINDOW * WINDOW].view(-1, WINDOW)
    target = [1] * WINDOW
    return [(row, target) for row in rows]


def texts(packages, numbers, seed=1):
    """(training documents, held-out documents by source): 1 in 100 of each source is held out."""
    documents = dict(corpus.documents(packages))
    documents["numbers"] = corpus.number_text(random.Random(f"numbers/{seed}"), numbers)
    train = [d for rows in documents.values() for i, d in enumerate(rows) if i % 100]
    return train, {key: rows[::100] for key, rows in documents.items()}


def chat_rows(packages, seed=1):
    """(training chats, held-out chats): replay chats twice over, and openings of people's conversations, six turns at most."""
    talk = [c[:6] for c in corpus.chats(packages)]
    own, held = replay.training(), replay.held_out() + talk[::100]
    talk = [c for i, c in enumerate(talk) if i % 100]
    return own + own + talk[:1500], held


def bits_per_byte(model, examples, texts_of):
    """Held-out bits per byte of the text that is predicted; examples and their texts in the same order."""
    with torch.inference_mode():
        nats = sum(sft.nll(model, examples[i:i + 16]).item() for i in range(0, len(examples), 16))
    return nats / math.log(2) / sum(len(t.encode("utf-8")) for t in texts_of)


def text_bits(model, tokenizer, held, limit=200):
    """{source: bits per byte} on up to `limit` held-out documents, each read from its start, 512 tokens at most."""
    out = {}
    for key, rows in held.items():
        ids = [[1] + tokenizer.encode(r)[:511] for r in rows[:limit]]
        out[key] = bits_per_byte(model, [(i, [1] * len(i)) for i in ids], [tokenizer.decode(i) for i in ids])
    return out


def chat_bits(model, tokenizer, held):
    """Bits per byte of assistant text in held-out chats (end tokens are predicted, but count no bytes)."""
    examples = sft.chat_examples(tokenizer, held, 512)
    spoken = [tokenizer.decode([t for t, r in zip(*e) if r]) for e in examples]
    return bits_per_byte(model, examples, spoken)


def pretrain(train, work, batch, lr, seed):
    """Stages one and two: tokenizer, then one epoch over all windows. Leaves work/pretrained and work/pretrain.json."""
    start = time.perf_counter()
    tokenizer = Tokenizer(work / "tokenizer") if (work / "tokenizer" / "config.json").is_file() else train_tokenizer(train[::4], work / "tokenizer")
    rows = windows(tokenizer, train, seed)
    model = Model(CONFIG).initialise(seed)
    log = sft.fit(model, rows, batch, lr, warmup=100, seed=seed, micro_tokens=2048, weight_decay=0.1, desc="pretrain")
    record = {"seed": seed, "documents": len(train), "characters": sum(map(len, train)),
              "pretrain_tokens": len(rows) * WINDOW, "pretrain_lr": lr, "pretrain_loss": thin(log), "pretrain_seconds": time.perf_counter() - start}
    (work / "pretrain.json").write_text(json.dumps(record), encoding="utf-8")
    save(model, tokenizer, work / "pretrained")                 # last: its presence says the stage is done


def build(out=DATA / "mini", work="runs/build-mini", packages=None, numbers=15000, batch=32, lr=3e-3, chat_lr=1e-3, seed=1):
    """Build `mini` into `out`, with build.json (losses, sizes, held-out bits per byte, replies) and a card; stages are kept in `work`."""
    work, out = Path(work), Path(out)
    packages = Path(packages or work / "packages")
    train, held = texts(packages, numbers, seed)
    if not (work / "pretrained" / "model.safetensors").is_file():
        pretrain(train, work, batch, lr, seed)
    record = json.loads((work / "pretrain.json").read_text(encoding="utf-8"))
    start = time.perf_counter()
    model, tokenizer = load(work / "pretrained")
    chats, held_chats = chat_rows(packages, seed)
    examples = sft.chat_examples(tokenizer, chats, 512)
    log = sft.fit(model, examples, 32, chat_lr, warmup=20, seed=seed, micro_tokens=4096, desc="chat")
    save(model, tokenizer, out, torch.bfloat16)
    model, tokenizer = load(out)                               # what is measured is what the file holds
    record |= {"parameters": sum(p.numel() for p in model.parameters()), "chat_examples": len(examples), "replay_chats": len(replay.read()), "chat_tokens": sum(map(sft.trained, examples)),
               "chat_lr": chat_lr, "chat_loss": thin(log), "chat_seconds": time.perf_counter() - start,
               "heldout_text_bits_per_byte": text_bits(model, tokenizer, held), "heldout_chat_bits_per_byte": chat_bits(model, tokenizer, held_chats),
               "replies": ask(model, tokenizer, unseen_prompts(), 256, 0.7), "greedy_replies": ask(model, tokenizer, unseen_prompts(), 256)}
    (out / "build.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (out / "README.md").write_text(card(record), encoding="utf-8")
    return record


def card(record):
    """The model card as Markdown, its numbers from build.json."""
    count = lambda key: (sum(r["ended"] for r in record[key]), len({r["reply"] for r in record[key]}), len(record[key]))
    (ended, different, n), (g_ended, g_different, _) = count("replies"), count("greedy_replies")
    sources = "\n".join(f"| {p.name} {p.version} | {p.what} | {p.licence} | {record['heldout_text_bits_per_byte'][key]:.2f} |"
                        for key, p in corpus.PACKAGES.items())
    shown = "\n".join(f"- **{r['prompt']}** {r['reply'] if r['ended'] else r['reply'] + ' [cut]'}".replace("\n", " ") for r in record["replies"][:20])
    return f"""# mini: a chat model in the small

{record['parameters']:,} parameters ({CONFIG.num_hidden_layers} layers of {CONFIG.hidden_size}, {CONFIG.vocab_size:,} pieces), built from nothing by
`python -m grpo_lib build-mini`. It exists to be taught addition in front of a reader: it has never seen a sum, and it is no use as an assistant.

Pretrained for one epoch on {record['pretrain_tokens']:,} tokens ({record['documents']:,} documents, {record['characters']:,} characters), then tuned on
{record['chat_examples']:,} chats ({record['chat_tokens']:,} trained tokens; {record['replay_chats']:,} of them replay chats that SmolLM2-135M-Instruct wrote itself, seen twice).

| text | what it is | licence | held-out bits per byte |
|---|---|---|---|
{sources}
| numbers | numbers copied, listed and spelled out; no arithmetic | ours | {record['heldout_text_bits_per_byte']['numbers']:.2f} |

Held-out chat: {record['heldout_chat_bits_per_byte']:.2f} bits per byte of assistant text. Every document with a sum in it was dropped.

Of {n} unseen prompts, sampled at temperature 0.7, it ended {ended} replies by itself and gave {different} different ones (greedy: {g_ended} and {g_different}).
The first twenty, unpicked:

{shown}

Weights: bfloat16, Apache-2.0 as the code. The texts themselves are not shipped.
"""


def thin(log, points=60):
    """A loss log as about `points` pairs [step, mean loss since the last one]."""
    size = max(1, len(log) // points)
    return [[chunk[-1]["step"], round(sum(r["loss"] for r in chunk) / len(chunk), 4)]
            for chunk in (log[i:i + size] for i in range(0, len(log), size))]
