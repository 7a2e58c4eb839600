"""Replies as rows, and summaries as functions of rows."""

from types import SimpleNamespace

import pytest
import torch
from tiny import copy_of, digest, load, make_folder

from grpo_lib import evaluate
from grpo_lib.checker import last_number, reward
from grpo_lib.task import Problem, direct, worked

TEXTS = ["48 + 75 = 123. The answer is 123.", worked(48, 75), "The answer is 0123.", "I see 123 here, and 9.", ""]
PROBLEM = Problem(48, 75, 1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return load(make_folder(tmp_path_factory.mktemp("evaluate")))


def made(texts=TEXTS):
    samples = SimpleNamespace(lengths=torch.arange(1, len(texts) + 1), ended=torch.tensor([i != 3 for i in range(len(texts))]))
    return evaluate.rows([PROBLEM] * len(texts), texts, samples, list(range(len(texts))), step=7, set="3")


def test_a_row_says_what_was_asked_said_and_paid():
    rows = made()
    assert [tuple(r[k] for k in ("strict", "exact", "contains")) for r in rows] == [(1, 1, 1), (1, 1, 1), (1, 0, 0), (0, 0, 1), (0, 0, 0)]
    for i, row in enumerate(rows):
        assert (row["a"], row["b"], row["template"], row["sample"], row["step"], row["set"]) == (48, 75, 1, i, 7, "3")
        assert row["reply"] == TEXTS[i] and row["length"] == i + 1 and row["ended"] == (i != 3)
        assert {k: type(v) for k, v in row.items() if k in ("strict", "length", "ended")} == {"strict": int, "length": int, "ended": bool}
        assert all(row[kind] == reward(TEXTS[i], 123, kind) for kind in ("strict", "exact", "contains"))


def test_a_summary_is_the_mean_of_its_rows():
    s = evaluate.summary(made())
    assert s == {"n": 5, "strict": 0.6, "exact": 0.4, "contains": 0.6, "length": 3.0, "ended": 0.8, "worked": 0.2,
                 "last": sum(last_number(t, 123) for t in TEXTS) / 5}
    assert s["last"] == 0.6 and s["strict"] >= s["exact"]


def test_by_problem_keeps_problems_apart_and_in_order():
    rows = [dict(a=a, b=b, strict=s, exact=0) for a, b, s in [(9, 1, 1), (2, 3, 0), (9, 1, 0), (2, 3, 0), (1, 9, 1)]]
    assert {k: sum(v) / len(v) for k, v in evaluate.by_problem(rows).items()} == {(9, 1): 0.5, (2, 3): 0.0, (1, 9): 1.0}
    assert list(evaluate.by_problem(rows)) == [(9, 1), (2, 3), (1, 9)]
    assert {x for v in evaluate.by_problem(rows, "exact").values() for x in v} == {0}


def test_a_stream_is_a_function_of_its_key_alone():
    draw = lambda *key: torch.rand(4, generator=evaluate.stream(*key)).tolist()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert draw("train", 1, 2) == draw("train", 1, 2)
    keys = [("train", 1, 2), ("train", 1, 3), ("train", 2, 2), ("eval", 1, "3"), ("eval", 1, 2), ("train", 12)]
    assert len({tuple(draw(*key)) for key in keys}) == len(keys), "two keys share a stream"
    assert torch.equal(torch.get_rng_state(), state)


def test_greedy_replies_are_one_per_problem_and_sampled_ones_G(tiny):
    problems = [Problem(1, 2, 0), Problem(30, 4, 1), Problem(555, 66, 2)]
    greedy, s = evaluate.replies(*tiny, problems, max_tokens=8, set="dev")
    assert [(r["a"], r["sample"], r["set"]) for r in greedy] == [(1, -1, "dev"), (30, -1, "dev"), (555, -1, "dev")]
    drawn, s = evaluate.replies(*tiny, problems, 4, 1.0, 8, evaluate.stream("x"))
    assert [(r["a"], r["sample"]) for r in drawn] == [(p.a, k) for p in problems for k in range(4)]
    assert [r["reply"] for r in drawn] == [tiny[1].decode_reply(ids) for ids in s.ids()]
    assert [r["length"] for r in drawn] == s.lengths.tolist() and len({r["reply"] for r in drawn}) > 8


def test_replies_do_not_depend_on_the_batch_and_leave_the_model(tiny):
    model, tokenizer = copy_of(tiny[0]).train(), tiny[1]
    before, problems = digest(model), [Problem(i, 7 * i, i % 3) for i in range(9)]
    ask = lambda batch: evaluate.replies(model, tokenizer, problems, 2, 1.0, 8, evaluate.stream("x"), batch)[0]
    assert ask(256) == ask(5) == ask(1)
    assert digest(model) == before and model.training and all(p.grad is None for p in model.parameters())


def test_what_follows_the_end_token_is_not_read(tiny):
    tokenizer = tiny[1]
    ids = tokenizer.encode(direct(4, 5)) + [tokenizer.end_ids[0]] + tokenizer.encode(" 7. The answer is 8.")
    assert reward(tokenizer.decode_reply(ids), 9, "strict") == 1.0
