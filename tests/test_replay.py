"""Chats to replay: what is kept, and sampling that can be interrupted."""

import gzip
import json
from types import SimpleNamespace

import pytest
import torch

from grpo_lib import replay, sampler
from grpo_lib.corpus import has_sum
from grpo_lib.prompts import chat_prompts


@pytest.mark.parametrize("text, kept", [
    ("One. Two. Thr", "One. Two."), ("One.", "One."), ("no end", ""), ("", ""), ('He said "go." Then', 'He said "go."'),
    ("Is it 3.5 kg? Yes, it", "Is it 3.5 kg?"), ("Wow! (Really.) And", "Wow! (Really.)"), ("A.b.c", ""), ("One.\nTwo", "One.")])
def test_a_cut_reply_ends_with_its_last_full_sentence(text, kept):
    assert replay.whole_sentences(text) == kept


def test_what_is_kept_and_what_is_not():
    row = replay.keep("Hi there", " Hello to you ", True)
    assert row == {"messages": [{"role": "user", "content": "Hi there"}, {"role": "assistant", "content": "Hello to you"}], "cut": False}
    cut = replay.keep("Hi", "Paris is big. It has", False)
    assert cut["messages"][1]["content"] == "Paris is big." and cut["cut"]
    for prompt, reply, ended in [("Hi", "Yes", True), ("Hi", "", True), ("Hi", "no full sentence here", False), ("Hi", "word " * 500, True),
                                 ("Hi", "Well, 2 + 2 = 4 of course.", True), ("What is 3 + 4?", "I do not know.", True)]:
        assert replay.keep(prompt, reply, ended) is None, (prompt, reply[:40])


CHATS = [[{"role": "user", "content": f"q{i} é"}, {"role": "assistant", "content": f"a{i}\n\u2028b"}] for i in range(3)]


def test_what_is_written_is_read_and_has_the_same_bytes_each_time(tmp_path):
    rows = [{"messages": c, "cut": False} for c in CHATS]
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        replay.write(tmp_path / name, rows)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes(), "the time of writing is in the file"
    assert replay.read(tmp_path / "a.jsonl.gz") == CHATS


def test_errors_name_the_way_out(tmp_path):
    with pytest.raises(FileNotFoundError, match="python -m grpo_lib sample"):
        replay.read(tmp_path / "none.jsonl.gz")


def test_training_never_reads_what_is_held_out():
    every, train, held = replay.read(), replay.training(), replay.held_out()
    assert len(train) + len(held) == len(every) and held == every[::40] and len(held) > 80
    assert not [c for c in held if c in train], "a held-out chat is trained on"


class Words:
    """A tokenizer whose ids are row numbers of a list of texts."""

    end_ids, texts = (0,), ()

    def prompt(self, text):
        return [len(text)]

    def decode_reply(self, ids):
        return self.texts[ids[0]]


def mock(monkeypatch, die_at=None):
    """generate() that answers from the stream it is given, every fifth reply cut, every seventh a sum; may die at a call."""
    calls = []

    def generate(model, prompts, limit, temperature, end_ids, generator, rows):
        calls.append(len(prompts))
        if len(calls) == die_at:
            raise KeyboardInterrupt
        numbers = torch.randint(10 ** 6, (len(prompts),), generator=generator).tolist()
        Words.texts = [f"Number {n} it is. And more" if n % 7 else f"It is 1 + {n}." for n in numbers]
        return SimpleNamespace(ids=lambda: [[i] for i in range(len(prompts))], ended=torch.tensor([n % 5 > 0 for n in numbers]))

    monkeypatch.setattr(sampler, "generate", generate)
    return calls


def test_a_killed_sampling_goes_on_and_gives_the_same_file(tmp_path, monkeypatch):
    straight = mock(monkeypatch)
    kept, asked = replay.sample(None, Words(), tmp_path / "straight.jsonl.gz", n=60, seed=3, rows=16)
    assert kept == 60 and asked == sum(straight) >= 64
    first = mock(monkeypatch, die_at=3)
    with pytest.raises(KeyboardInterrupt):
        replay.sample(None, Words(), tmp_path / "again.jsonl.gz", n=60, seed=3, rows=16)
    assert len(first) == 3 and not (tmp_path / "again.jsonl.gz").exists()
    rest = mock(monkeypatch)
    assert replay.sample(None, Words(), tmp_path / "again.jsonl.gz", n=60, seed=3, rows=16) == (kept, asked)
    assert len(rest) == len(straight) - 2, "batches that were done are drawn again"
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "straight.jsonl.gz").read_bytes()
    rows = [json.loads(x) for x in gzip.decompress((tmp_path / "again.jsonl.gz").read_bytes()).decode("utf-8").splitlines()]
    assert len(rows) == 60 and {r["cut"] for r in rows} == {True, False}
    assert not any(has_sum(m["content"]) for r in rows for m in r["messages"])
    prompts = chat_prompts(asked, 3)
    asked_for = [r["messages"][0]["content"] for r in rows]
    assert len(set(asked_for)) == 60 and asked_for == [p for p in prompts if p in set(asked_for)], "prompts out of order"


def test_batches_of_other_settings_are_not_mixed_in(tmp_path, monkeypatch):
    mock(monkeypatch)
    out = tmp_path / "a.jsonl.gz"
    replay.sample(None, Words(), out, n=60, seed=3, rows=16)
    for change in (dict(seed=4), dict(temperature=1.0), dict(rows=8), dict(max_tokens=9)):
        with pytest.raises(ValueError, match="delete it, or give another --out"):
            replay.sample(None, Words(), out, **{"n": 60, "seed": 3, "rows": 16, **change})
