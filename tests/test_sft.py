"""Supervised training: what is a target, how a step is normalised, the schedule (fault log, sections 3 and 7)."""

import math
import random
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import copy_of, digest, load, make_folder, slow_logp, weights

from grpo_lib import replay, sft
from grpo_lib.config import WarmConfig
from grpo_lib.task import demonstrations

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
SPLITS = (1, 4, 8, 10 ** 6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return load(make_folder(tmp_path_factory.mktemp("sft")))


class TableModel(torch.nn.Module):
    """Pays exactly the listed nll for token 1 at row b (named by the row's first id), position t; `w` gives a gradient."""

    def __init__(self, token_nll):
        super().__init__()
        self.table, self.w = torch.tensor(token_nll), torch.nn.Parameter(torch.ones(()))
        self.cos = torch.zeros(1)

    def hidden(self, tokens, valid=None):
        width = tokens.shape[1]
        return self.table[tokens[:, 0]][:, :width, None]

    def head(self, states):
        nll = states[..., 0]
        return torch.stack([torch.log1p(-torch.exp(-nll)), -nll], -1) * self.w


def table_case(case):
    pad = [row + [9.0] for row in case["token_nll"]]          # the last position predicts nothing that is there
    examples = [([i] + [1] * len(mask), [0] + mask) for i, mask in enumerate(case["mask"])]
    return TableModel(pad), examples


@pytest.mark.parametrize("case", FAULTS["SFT_LOSS"], ids=lambda c: c["id"])
@pytest.mark.parametrize("micro_tokens", SPLITS)
def test_the_loss_is_the_mean_over_all_trained_tokens_of_the_step(case, micro_tokens):
    model, examples = table_case(case)
    loss, count, norm = sft.step(model, torch.optim.SGD(model.parameters(), lr=0.0), examples, micro_tokens, clip_norm=1e9)
    assert count == case["trained_tokens"]
    assert loss == pytest.approx(case["loss"], abs=1e-6), case["rule"]
    for wrong in ("wrong_mean_of_row_means", "wrong_over_all_positions"):
        assert wrong not in case or abs(loss - case[wrong]) > 0.1, f"this is {wrong}"
    assert math.isfinite(norm) and model.w.item() == 1.0


@pytest.mark.parametrize("case", FAULTS["SFT_LOSS"], ids=lambda c: c["id"])
def test_the_gradient_is_the_same_for_every_split(case):
    gradients = []
    for micro_tokens in SPLITS:
        model, examples = table_case(case)
        sft.step(model, torch.optim.SGD(model.parameters(), lr=0.0), examples, micro_tokens, clip_norm=1e9)
        gradients.append(0.0 if model.w.grad is None else model.w.grad.item())
    assert gradients == pytest.approx([gradients[0]] * len(SPLITS), abs=1e-6), "a split divides by something else"


@pytest.mark.parametrize("case", FAULTS["SFT_TARGETS"], ids=lambda c: c["id"])
def test_targets_and_where_they_are_predicted_from(case, monkeypatch):
    seen = {"targets": [], "from": []}

    def head(states):
        seen["from"] += states.flatten().tolist()
        return torch.zeros(*states.shape[:-1], 30)

    def logprobs(logits, tokens):
        seen["targets"] += tokens.flatten().tolist()
        return logits.sum(-1)

    model = SimpleNamespace(cos=torch.zeros(1), hidden=lambda tokens, valid: tokens[..., None], head=head)
    monkeypatch.setattr(sft, "token_logprobs", logprobs)
    assert float(sft.nll(model, [(case["tokens"], case["is_reply"])])) == 0.0
    assert seen["targets"] == case["trained_targets"], case["rule"]
    assert seen["from"] == case["predicted_from"], case["rule"]
    assert sft.trained((case["tokens"], case["is_reply"])) == len(case["trained_targets"])


def test_the_first_token_of_a_row_is_never_a_target():
    assert sft.trained(([5, 6, 7], [1, 1, 1])) == 2


def test_nll_equals_one_row_at_a_time_without_padding(tiny):
    model, tokenizer = tiny
    examples = sft.sum_examples(tokenizer, 6, 3)
    slow = 0.0
    for ids, is_reply in examples:
        start = is_reply.index(1)
        slow -= slow_logp(model, ids[:start], ids[start:]).sum().item()
    assert sft.nll(model, examples).item() == pytest.approx(slow, rel=1e-5)


def test_micro_batches_change_only_rounding_on_a_real_model(tiny):
    model, tokenizer = tiny
    examples = sft.sum_examples(tokenizer, 9, 3) + [([1, 2, 3], [0, 0, 0])]
    results = []
    for micro_tokens in (10 ** 6, 200, 1):
        other = copy_of(model)
        loss, count, norm = sft.step(other, torch.optim.SGD(other.parameters(), lr=0.1), examples, micro_tokens, clip_norm=1e9)
        results.append((loss, count, norm, weights(other)))
    for loss, count, norm, w in results[1:]:
        assert loss == pytest.approx(results[0][0], rel=1e-5), "the logged loss depends on the split"
        assert count == results[0][1] and norm == pytest.approx(results[0][2], rel=1e-4), "the gradient depends on the split"
        assert torch.allclose(w, results[0][3], atol=1e-6)


def test_an_empty_row_adds_nothing(tiny):
    model, tokenizer = tiny
    examples, empty = sft.sum_examples(tokenizer, 4, 3), ([1, 2, 20, 21, 22], [0] * 5)
    assert sft.nll(model, examples + [empty]).item() == pytest.approx(sft.nll(model, examples).item(), rel=1e-6)
    loss = sft.nll(model, [empty])
    loss.backward()
    assert loss.item() == 0.0
    assert all(p.grad is None or bool((p.grad == 0).all()) for p in model.parameters()), "an empty batch moved a gradient"
    model.zero_grad(set_to_none=True)


def test_a_step_without_targets_changes_no_weight(tiny):
    model = copy_of(tiny[0])
    optimizer = sft.adamw(model, 0.1, weight_decay=0.1)
    sft.step(model, optimizer, sft.sum_examples(tiny[1], 4, 3), 10 ** 6)       # momentum that could still move weights
    before = digest(model)
    assert sft.step(model, optimizer, [([1, 2, 3], [0, 0, 0])], 10 ** 6) == (0.0, 0, 0.0)
    assert digest(model) == before


@pytest.mark.parametrize("seed", (1, 2))
def test_every_warm_start_example_ends_in_one_trained_end_token(tiny, seed):
    tokenizer = tiny[1]
    for (ids, is_reply), (problem, reply) in zip(sft.sum_examples(tokenizer, 200, seed), demonstrations(200, seed)):
        places = [i for i, r in enumerate(is_reply) if r]
        assert len(places) >= 2 and ids[places[-1]] in tokenizer.end_ids, "the model would never learn to stop"
        assert sum(ids[i] in tokenizer.end_ids for i in places) == 1, "more than one end token is trained"
        assert ids[:places[0]] == tokenizer.prompt(problem.prompt), "training reads another prompt than sampling"
        assert tokenizer.decode_reply([ids[i] for i in places]) == reply, "the trained text is not the teacher's"


def test_the_learning_rate_rises_then_falls_to_zero():
    lrs = [sft.lr_at(k, 100, 2.0, 5) for k in range(100)]
    assert lrs[:5] == pytest.approx([0.4, 0.8, 1.2, 1.6, 2.0])
    assert all(a > b for a, b in zip(lrs[4:], lrs[5:])), "after the warm-up the rate only falls"
    assert lrs[-1] == pytest.approx(0.0, abs=1e-12) and lrs[4 + 48] == pytest.approx(1.0, rel=0.02)
    assert sft.lr_at(0, 3, 1.0, 10) == 0.1 and sft.lr_at(2, 3, 1.0, 10) == pytest.approx(0.3), "shorter than its warm-up"
    assert sft.lr_at(0, 10, 1.0, 0) < 1.0, "no warm-up begins on the cosine"


def test_fit_sees_each_example_once_in_an_order_of_the_seed_alone(tiny, monkeypatch):
    model, tokenizer = tiny
    examples = sft.sum_examples(tokenizer, 21, 3)
    seen = []
    monkeypatch.setattr(sft, "step", lambda m, o, rows, micro: seen.append(list(map(id, rows))) or (0.0, 1, 0.0))
    log = sft.fit(model, examples, 8, 1e-3, warmup=1, seed=4)
    first = sum(seen, [])
    assert sorted(first) == sorted(map(id, examples)) and [len(s) for s in seen] == [8, 8, 5]
    assert [row["lr"] for row in log] == pytest.approx([sft.lr_at(k, 3, 1e-3, 1) for k in range(3)])
    seen.clear()
    random.seed(99), torch.manual_seed(99)
    sft.fit(model, examples, 8, 1e-3, seed=4)
    assert sum(seen, []) == first, "the order depends on more than the seed"
    seen.clear()
    sft.fit(model, examples, 8, 1e-3, seed=5)
    assert sum(seen, []) != first


def test_fit_learns_and_leaves_the_global_random_state_alone(tiny):
    model, examples = copy_of(tiny[0]), sft.sum_examples(tiny[1], 240, 3)
    state, mark = torch.get_rng_state(), random.getstate()
    log = sft.fit(model, examples, 16, 5e-3)
    assert log[-1]["loss"] < 0.7 * log[0]["loss"], f"from {log[0]['loss']:.2f} to {log[-1]['loss']:.2f} nats: nothing was learnt"
    assert [row["step"] for row in log] == list(range(1, 16)) and sum(r["tokens"] for r in log) == sum(map(sft.trained, examples))
    assert torch.equal(torch.get_rng_state(), state) and random.getstate() == mark
    again = copy_of(tiny[0])
    sft.fit(again, examples, 16, 5e-3)
    assert digest(again) == digest(model), "the same call twice gave other weights"


def test_a_loss_that_is_not_finite_raises_and_leaves_the_weights(tiny):
    model = copy_of(tiny[0])
    with torch.no_grad():
        model.model.norm.weight[0] = math.nan
    before, optimizer = digest(model), sft.adamw(model, 1e-3)
    with pytest.raises(ValueError, match="not finite.*lower the lr"):
        sft.step(model, optimizer, sft.sum_examples(tiny[1], 4, 3), 10 ** 6)
    assert digest(model) == before and not optimizer.state


def test_decay_is_on_matrices_only(tiny):
    matrices, vectors = sft.adamw(tiny[0], 1e-3, weight_decay=0.1).param_groups
    assert matrices["weight_decay"] == 0.1 and all(p.dim() == 2 for p in matrices["params"])
    assert vectors["weight_decay"] == 0.0 and all(p.dim() == 1 for p in vectors["params"])


CHAT = [{"role": "user", "content": "Add 3 and 4."}, {"role": "assistant", "content": "The answer is 7."},
        {"role": "user", "content": "What is 10 + 5?"}, {"role": "assistant", "content": "The answer is 15."}]


def test_chats_are_cut_to_length_and_dropped_when_nothing_is_left_to_train(tiny):
    tokenizer = tiny[1]
    [(ids, is_reply)] = sft.chat_examples(tokenizer, [CHAT], 512)
    assert sum(i in tokenizer.end_ids and r for i, r in zip(ids, is_reply)) == 2, "both assistant turns end"
    first = is_reply.index(1)
    [(short, marks)] = sft.chat_examples(tokenizer, [CHAT], first + 2)
    assert short == ids[:first + 2] and sum(marks) == 2
    assert sft.chat_examples(tokenizer, [CHAT], first) == [], "a chat cut before its first reply trains nothing"


def test_warm_examples_mix_sums_and_chats_and_tell_the_share(tiny, monkeypatch):
    monkeypatch.setattr(replay, "training", lambda: [CHAT] * 3)                                 # fewer than asked: from the first again
    tokenizer = tiny[1]
    examples, share = sft.warm_examples(tokenizer, WarmConfig(n=6, chat=4, seed=2))
    sums = sft.sum_examples(tokenizer, 6, 2)
    assert examples[:6] == sums and len(examples) == 10
    assert share == sum(map(sft.trained, sums)) / sum(map(sft.trained, examples))
    assert sft.warm_examples(tokenizer, WarmConfig(n=6, seed=2)) == (sums, 1.0)
    assert sft.warm_examples(tokenizer, WarmConfig(n=0, chat=4))[1] == 0.0


def test_a_share_weighs_the_chats_and_nothing_else(tiny, monkeypatch):
    monkeypatch.setattr(replay, "training", lambda: [CHAT, CHAT[:2]])
    plain, _ = sft.warm_examples(tiny[1], WarmConfig(n=6, chat=4, seed=2))
    weighed, share = sft.warm_examples(tiny[1], WarmConfig(n=6, chat=4, share=0.07, seed=2))
    assert share == pytest.approx(0.07) and weighed[:6] == plain[:6], "sums keep weight 1"
    assert [ids for ids, _ in weighed] == [ids for ids, _ in plain]
    assert list(map(sft.trained, weighed)) == list(map(sft.trained, plain)), "a weight changes how many tokens count as trained"
    scales = {m for _, marks in weighed[6:] for m in marks} - {0}
    assert len(scales) == 1 and scales.pop() > 1


def test_a_weight_of_two_is_the_example_twice(tiny):
    """Loss and gradient of (a twice, b) equal those of a with weight 2 and b with weight 1, cut into micro-batches or not."""
    model, tokenizer = tiny
    (ids, marks), b = sft.sum_examples(tokenizer, 2, 3)
    def grads(examples, micro):
        model.zero_grad(set_to_none=True)
        still = torch.optim.SGD(model.parameters(), lr=0.0)
        loss, _, norm = sft.step(model, still, examples, micro, clip_norm=1e9)
        return [loss, norm] + [p.grad.norm().item() for p in model.parameters()]
    want = grads([(ids, marks), (ids, marks), b], 10_000)
    for micro in (10_000, 1):
        got = grads([(ids, [2 * m for m in marks]), b], micro)
        assert got == pytest.approx(want, rel=1e-4, abs=1e-7), f"micro-batches of {micro} tokens"


@pytest.mark.parametrize("bad", [dict(share=1.0), dict(share=-0.1), dict(share=float("nan")), dict(share=0.5, chat=0), dict(share=0.5, n=0)])
def test_a_share_that_means_nothing_is_refused(bad):
    with pytest.raises(ValueError, match="share"):
        WarmConfig(**{"n": 4, "chat": 4} | bad)
