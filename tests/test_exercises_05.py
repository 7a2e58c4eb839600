"""The folded answers of notebook 05, taken out as they are printed there, run, and put to the test."""

import pytest
import torch
from test_exercises import run

from grpo_lib.analysis import silent_share
from grpo_lib.compare import noise_floor


def test_05_1_the_fewest_seeds_that_see_a_difference():
    names, printed = run("05", 1)
    for difference, sd in ((0.05, 0.02), (0.02, 0.02), (0.03, 0.01), (0.5, 0.02)):
        seeds = names["needed"](difference, sd)
        assert noise_floor(sd, seeds, 0.05) <= difference, f"{seeds} seeds do not see {difference}"
        assert seeds == 2 or noise_floor(sd, seeds - 1, 0.05) > difference, f"{seeds - 1} seeds would do for {difference}"
    assert names["needed"](0.02, 0.02, alpha=0.01) > names["needed"](0.02, 0.02), "a stricter test needs more seeds"
    assert printed == "4 10 34\n", f"the text names four, ten and 34, the code printed {printed!r}"


def test_05_2_k1_in_the_reward_pulls_as_the_kl_does():
    in_reward = run("05", 2)[0]["in_reward"]
    g = torch.Generator().manual_seed(3)
    for V in (2, 5, 30):
        x, ref = torch.randn(2, V, generator=g, dtype=torch.float64)
        x, ref = x.requires_grad_(), ref.log_softmax(-1)
        logp = x.log_softmax(-1)
        kl, other = (logp.exp() * (logp - ref)).sum(), (ref.exp() * (ref - logp)).sum()
        found = in_reward(x.detach(), ref)
        assert torch.allclose(found, torch.autograd.grad(kl, x, retain_graph=True)[0], atol=1e-12), "not KL(policy || ref)"
        assert not torch.allclose(found, torch.autograd.grad(other, x)[0], atol=1e-6), "KL(ref || policy) is another force"
    assert torch.allclose(in_reward(x.detach(), logp.detach()), torch.zeros(30, dtype=torch.float64)), "no drift, no pull"


def test_05_3_most_groups_and_the_largest_share_are_not_at_one_size():
    names, printed = run("05", 3)
    rates = [0.02] * 6 + [0.4] * 4
    by_hand = {G: 256 // G * (1 - sum(silent_share(rates, G))) for G in (2, 4, 8, 16, 32)}
    for G, groups in by_hand.items():
        assert names["teaching"](G) == pytest.approx(groups) and names["teaching"](G, 512) == pytest.approx(2 * groups)
    assert max(by_hand, key=by_hand.get) == 2 and max(by_hand, key=lambda G: by_hand[G] * G) == 32, "the text says 2 and 32"
    lines = [line.split() for line in printed.splitlines()]
    assert [(int(G), share) for G, _, _, share in lines] == [(G, f"{n * G / 256:.0%}") for G, n in by_hand.items()], printed
