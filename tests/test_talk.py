"""talk: chat loss against a loop without batches, records that follow from their reply texts, refusals in one line."""
import gzip
import json
import math
import statistics

import pytest
import torch
from tiny import load, make_folder, slow_logp

from grpo_lib import __main__ as cli
from grpo_lib import sft, talk
from grpo_lib.prompts import FIXED, chat_prompts, unseen_prompts
from grpo_lib.task import heldout, sampling_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("talk"))


@pytest.fixture(scope="module")
def pair(folder):
    return load(folder)


@pytest.fixture
def tiny(pair):
    return pair[0]


@pytest.fixture
def tokenizer(pair):
    return pair[1]


def chat(*turns):
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant") * len(turns), turns)]


def test_chat_loss_is_the_training_loss_on_the_same_tokens(tiny, tokenizer):
    chats = [chat("What is 42?", "The answer is 42."), chat("Add", "7", "and", "write 7."), chat("42?", "from right to left")]
    examples = sft.chat_examples(tokenizer, chats, tiny.cfg.max_position_embeddings)
    count = sum(map(sft.trained, examples))
    with torch.no_grad():
        each = [sft.nll(tiny, [e]).item() for e in examples]
    found = talk.chat_loss(tiny, tokenizer, chats)
    assert (found["tokens"], found["n"]) == (count, 3)
    assert found["loss"] == pytest.approx(sum(each) / count, rel=1e-5)
    rest = [nats - found["loss"] * sft.trained(e) for nats, e in zip(each, examples)]
    assert found["stderr"] == pytest.approx(statistics.stdev(rest) / math.sqrt(3) / (count / 3), rel=1e-4)
    assert talk.chat_loss(tiny, tokenizer, chats[:1])["stderr"] is None
    with pytest.raises(ValueError, match="hold no assistant token"):
        talk.chat_loss(tiny, tokenizer, [chat("alone")])


def test_first_turn_of_a_chat_against_the_slow_oracle(tiny, tokenizer):
    ((ids, reply),) = talk.turns(tokenizer, chat("What is 42?", "The answer"), 96)
    assert ids == tokenizer.prompt("What is 42?") and reply[-1] in tokenizer.end_ids
    with torch.no_grad():
        wanted = -slow_logp(tiny, ids, reply).mean().item()
    assert talk.chat_loss(tiny, tokenizer, [chat("What is 42?", "The answer")])["loss"] == pytest.approx(wanted, rel=1e-5)


def test_the_record_follows_from_its_replies(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(talk, "LIMIT", 12)
    monkeypatch.setattr(talk, "unseen_prompts", lambda: unseen_prompts()[:5])
    monkeypatch.setattr(talk.replay, "held_out", lambda: [chat("What is 42?", "The answer is 42.")])
    words = ["talk", "--model", "tiny", "--init", str(folder), "--out", str(tmp_path / "out")]
    found = lambda: json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    monkeypatch.setattr(talk, "ask", lambda m, t, prompts, real=talk.ask: real(m, t, prompts, 12))
    assert cli.main(words) == 0 and "chat loss" in capsys.readouterr().out
    rows = [json.loads(line) for line in gzip.decompress((tmp_path / "out" / "replies.jsonl.gz").read_bytes()).decode("utf-8").splitlines()]
    assert [r["prompt"] for r in rows] == [*FIXED, *talk.ARITHMETIC, *unseen_prompts()[:5]]
    unseen = [r for r in rows if r["kind"] == "unseen"]
    assert found()["ended"] == sum(r["ended"] for r in unseen) and found()["n"] == 5
    assert found()["length"] == pytest.approx(statistics.mean(r["length"] for r in unseen))
    model, tokenizer = load(folder)
    for row in rows[:3]:
        ids, slow = tokenizer.prompt(row["prompt"]), []
        while len(slow) < 12 and (not slow or slow[-1] not in tokenizer.end_ids):
            slow.append(int(model(torch.tensor([ids + slow]))[0, -1].argmax()))
        assert row["length"] == len(slow) and row["reply"] == tokenizer.decode_reply(slow), f"{row['prompt']}: not the greedy reply"
    assert cli.main(words) == 2 and "already holds a record" in capsys.readouterr().err


def test_no_prompt_of_the_record_is_trained_on():
    trained = set(chat_prompts()) | {c[0]["content"] for c in talk.replay.training()}
    sums = {p.prompt for key in (3, 4, 5, "dev") for p in [*heldout(key), *sampling_set(key)]}
    for prompt in (*FIXED, *talk.ARITHMETIC, *unseen_prompts()):
        assert prompt not in trained and prompt not in sums, f"{prompt!r} is trained on or is one of the held-out sums"


def test_a_missing_model_is_one_line(tmp_path, capsys):
    assert cli.main(["talk", "--init", "nowhere", "--out", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err.strip()
    assert "no model at nowhere" in err and len(err.splitlines()) == 1 and not (tmp_path / "out").exists()
