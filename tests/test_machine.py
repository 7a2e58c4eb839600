"""Threads change nothing but the time: order, gradients, errors, settings (fault log: results must not depend on ranks)."""

import threading
import time

import pytest
import torch

from grpo_lib import machine
from grpo_lib.sampler import score


@pytest.fixture(params=[1, 2, 3, 5])
def threads(request, monkeypatch):
    """This many cores, as torch tells it."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_parts(threads):
    def work(i):
        time.sleep(0.002 * (7 - i))
        return i, threading.get_ident()

    out = list(machine.spread(work, range(7)))
    assert [i for i, _ in out] == list(range(7))
    assert len({t for _, t in out}) == min(threads, 7), "not as many threads as cores"
    assert torch.get_num_threads() == threads, "the number of threads was changed for good"


def test_each_thread_takes_its_share_of_the_cores(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    try:
        seen = list(machine.spread(lambda _: (time.sleep(0.01), torch.get_num_threads())[1], range(3)))
        assert seen == [2, 2, 2], "three tasks on six cores have two each"
    finally:
        torch.set_num_threads(before)


def test_an_error_reaches_the_caller_and_stops_what_has_not_begun(threads):
    begun = []

    def work(i):
        begun.append(i)
        time.sleep(0.01)
        if i == 0:
            raise ValueError("part 0")

    with pytest.raises(ValueError, match="part 0"):
        list(machine.spread(work, range(40)))
    assert len(begun) < 40 and torch.get_num_threads() == threads


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_gradients_are_those_of_the_whole_sum(count, threads):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1), torch.nn.Linear(3, 3)).double()
    model[3].requires_grad_(False)
    unused = torch.nn.Parameter(torch.zeros(2, dtype=torch.double))
    model.register_parameter("unused", unused)
    parts = list(torch.randn(count, 3, 4, dtype=torch.double))
    loss_of = lambda x: ((model[:3](x) ** 2).sum(), float(x[0, 0]))
    whole = sum(loss_of(x)[0] for x in parts)
    used = [p for p in model[:3].parameters()]
    wanted = torch.autograd.grad(whole, used)
    for _ in range(2):                                          # the second call must not add to the first's
        notes = machine.gradients(model, loss_of, parts)
    assert notes == [float(x[0, 0]) for x in parts], "notes are out of order"
    for p, w in zip(used, wanted):
        assert torch.allclose(p.grad, w, atol=1e-12), f"{count} parts on {threads} threads"
    assert (unused.grad == 0).all() and model[3].weight.grad is None, "a frozen parameter was given a gradient"


def test_no_more_pieces_at_once_than_asked_for():
    before, now, most = torch.get_num_threads(), [0], [0]
    torch.set_num_threads(6)

    def work(i):
        now[0] += 1
        most[0] = max(most[0], now[0])
        time.sleep(0.01)
        now[0] -= 1

    try:
        list(machine.spread(work, range(12), most=2))
    finally:
        torch.set_num_threads(before)
    assert most[0] == 2, f"{most[0]} pieces ran at once"


def test_a_prompt_shared_by_many_replies_has_the_same_gradient_every_time(make_model):
    """One piece on several threads: the sum over a prompt's replies must not depend on which thread comes first."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        model, tokens, lengths, seen = make_model(), torch.randint(6, 300, (64, 30)), torch.full((64,), 30), []
        prompts = [list(range(6, 40))] * 64
        for _ in range(6):
            machine.gradients(model, lambda _: (score(model, prompts, tokens, lengths).sum(), None), [0])
            seen.append([p.grad.clone() for p in model.parameters()])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in seen[1:] for a, b in zip(seen[0], other)), "timing changed the sum"


def test_gradients_are_the_same_bits_every_time(threads, tiny):
    rows = torch.arange(1, 61).view(6, 10)
    loss_of = lambda part: (tiny(part[None]).logsumexp(-1).sum(), None)
    seen = []
    for _ in range(3):
        machine.gradients(tiny, loss_of, list(rows))
        seen.append([p.grad.clone() for p in tiny.parameters()])
    assert all(torch.equal(a, b) for other in seen[1:] for a, b in zip(seen[0], other)), "timing changed the sum"


def test_keeping_memory_harms_nothing():
    machine.keep_memory()
    machine.keep_memory()
    assert float(torch.ones(3000, 3000).sum()) == 9e6 and machine.peak_mib() > 30
