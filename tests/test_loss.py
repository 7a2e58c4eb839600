"""The mathematics of GRPO against tables made with plain numpy, enumeration and autograd (fault log, 2, 3, 6, 7)."""

import itertools
import math
import runpy
import warnings
from pathlib import Path

import pytest
import torch

from grpo_lib.config import AGGREGATIONS, ModelConfig, TrainConfig, WarmConfig
from grpo_lib.loss import binding, group_advantages, grpo_loss, token_logprobs

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
LOSS = {case["id"]: case for case in FAULTS["LOSS"]}
HUGE = 10**5000


def tensors(case, dtype=torch.float64):
    """logp (with gradient), old, ref, adv, mask of a row of the table."""
    logp, old, ref, adv, mask = (torch.tensor(case[key], dtype=dtype) for key in ("logp", "old", "ref", "adv", "mask"))
    return logp.requires_grad_(), old, ref, adv, mask


def run(case, agg, dtype=torch.float64, **changes):
    """(loss, gradient, kl, clipped) of a row of the table."""
    logp, old, ref, adv, mask = tensors(case, dtype)
    given = {
        "logp": logp,
        "old": old,
        "ref": ref,
        "adv": adv,
        "mask": mask,
        "eps": case["eps"],
        "beta": case["beta"],
        "agg": agg,
        "max_tokens": case["max_tokens"],
    } | changes
    loss, kl, clipped = grpo_loss(**given)
    loss.backward()
    return loss.detach(), logp.grad, kl, clipped


def near(a, b, tol=1e-12):
    return torch.allclose(
        torch.as_tensor(a, dtype=torch.float64), torch.as_tensor(b, dtype=torch.float64), rtol=tol, atol=tol
    )


# ---- advantages


@pytest.mark.parametrize("case", FAULTS["ADVANTAGES"], ids=lambda case: case["what"])
@pytest.mark.parametrize("kind", ["list", "float32", "float64"])
def test_advantages_of_one_group(case, kind):
    r = [case["rewards"]] if kind == "list" else torch.tensor([case["rewards"]], dtype=getattr(torch, kind))
    tol = 1e-5 if kind == "float32" else 1e-12
    assert near(group_advantages(r)[0], case["population_eps1e4"], tol), "population deviation plus 1e-4"
    assert near(group_advantages(r, std=False)[0], case["centred"], tol)
    assert near(group_advantages(r, eps=0.0)[0].nan_to_num(0.0), case["population"], tol)
    if case["all_equal"]:
        assert (group_advantages(r) == 0).all() and (
            group_advantages(r, std=False) == 0
        ).all(), "a group that agrees gets exactly 0"


def test_advantages_are_taken_over_each_prompts_own_row():
    layout = FAULTS["ADVANTAGE_LAYOUT"]
    rewards = torch.tensor(layout["rewards_prompt_major"], dtype=torch.float64)
    adv = group_advantages(rewards, std=False)
    assert near(adv, layout["centred"])
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(group_advantages(rewards[:, order]), group_advantages(rewards)[:, order])
    other = rewards.clone()
    other[1] = torch.tensor([0.0, 1.0, 0.0, 0.0])
    assert torch.equal(
        group_advantages(other)[[0, 2]], group_advantages(rewards)[[0, 2]]
    ), "another row's rewards leaked"
    assert (group_advantages([[1, 1, 1, 1], [0, 0, 0, 0]]) == 0).all(), "a mean over the batch would give +1 and -1"


def test_a_group_that_agrees_on_a_number_with_a_long_binary_form_gets_exactly_zero():
    for value in (0.1, 1 / 3, 1e6 + 0.1):
        assert (group_advantages(torch.full((2, 7), value)) == 0).all()


def test_a_group_of_one_prints_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert group_advantages([[1.0], [0.0]]).tolist() == [[0.0], [0.0]]
        assert group_advantages([[1.0], [0.0]], std=False).tolist() == [[0.0], [0.0]]


def test_advantages_carry_no_graph_and_take_whole_numbers_and_bools():
    adv = group_advantages(torch.tensor([[1.0, 0.0]], requires_grad=True))
    assert adv.grad_fn is None and not adv.requires_grad
    assert near(group_advantages(torch.tensor([[1, 0]])), group_advantages(torch.tensor([[True, False]])))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_is_named_with_its_place(bad):
    with pytest.raises(ValueError, match=r"prompt 1, reply 2"):
        group_advantages([[0.0, 1.0, 0.0], [0.0, 1.0, bad]])


@pytest.mark.parametrize("shape", [(4,), (2, 4, 1), (), (0, 4), (2, 0)])
def test_rewards_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        group_advantages(torch.ones(shape))


# ---- log-probabilities


def test_logprobs_are_the_log_softmax_at_the_tokens_for_every_temperature():
    gen = torch.Generator().manual_seed(0)
    logits, tokens = torch.randn(3, 5, 11, generator=gen) * 4, torch.randint(0, 11, (3, 5), generator=gen)
    for T in (0.3, 1.0, 2.5):
        whole = torch.log_softmax(logits.double() / T, -1)
        got = token_logprobs(logits, tokens, T)
        assert got.shape == (3, 5) and got.dtype == torch.float32
        assert near(got, whole.gather(-1, tokens[..., None])[..., 0], 1e-5)
        total = sum(token_logprobs(logits, torch.full((3, 5), v), T).exp() for v in range(11))
        assert near(
            total, torch.ones(3, 5), 1e-5
        ), f"probabilities at T={T} do not add up to 1: temperature belongs before the softmax"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_logits_are_upcast_first(dtype):
    gen = torch.Generator().manual_seed(1)
    logits = (torch.randn(2, 4, 8192, generator=gen) * 3).to(dtype)
    tokens = torch.randint(0, 8192, (2, 4), generator=gen)
    assert near(token_logprobs(logits, tokens), token_logprobs(logits.float(), tokens), 1e-6)
    assert token_logprobs(logits, tokens).dtype == torch.float32


def test_logprobs_at_minus_infinity_and_large_logits_stay_right():
    logits = torch.tensor([[[-torch.inf, 1000.0, 1000.0]]])
    assert token_logprobs(logits, torch.tensor([[0]])).item() == -math.inf
    assert math.isclose(token_logprobs(logits, torch.tensor([[1]])).item(), -math.log(2), abs_tol=1e-4)


# ---- the loss against its table


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("name", LOSS)
def test_loss_gradient_kl_and_clip_count(name, agg):
    case = LOSS[name]
    for dtype, tol in ((torch.float64, 1e-9), (torch.float32, 2e-5)):
        loss, grad, kl, clipped = run(case, agg, dtype)
        assert near(loss, case["loss"][agg], tol), f"loss {loss.item()} for {case['what']}"
        assert near(grad, case["grad"][agg], tol), f"gradient {grad.tolist()} for {case['what']}"
        assert int(clipped.sum()) == case["outside_range"]
        if case["beta"] > 0:
            assert near(kl, case["kl"], tol)
        assert not kl.requires_grad and kl.shape == clipped.shape == grad.shape
        logp, old, _, adv, mask = tensors(case, dtype)
        assert int(binding(logp, old, adv, mask, case["eps"]).sum()) == case["clip_binding"]


def test_the_clip_acts_on_tokens_not_on_replies():
    case = LOSS["LS05"]
    loss = run(case, "seq-mean")[0].item()
    assert abs(loss - case["wrong_reply_level_loss"]) > 0.1, "the ratio was formed over the whole reply"


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf, 1e30])
def test_what_stands_in_the_padding_does_not_matter(agg, junk):
    case = LOSS["LS06"]
    logp, old, ref, adv, mask = tensors(case)
    loss, grad, kl, clipped = run(case, agg)
    spoil = lambda x: x.detach().masked_fill(mask == 0, junk)
    dirty = spoil(logp).requires_grad_()
    loss2, kl2, clipped2 = grpo_loss(
        dirty, spoil(old), spoil(ref), adv, mask, case["eps"], case["beta"], agg, case["max_tokens"]
    )
    loss2.backward()
    assert (
        torch.equal(loss2.detach(), loss)
        and torch.equal(dirty.grad, grad)
        and torch.equal(kl2, kl)
        and torch.equal(clipped2, clipped)
    )
    assert int(binding(dirty, spoil(old), adv, mask, case["eps"]).sum()) == case["clip_binding"]


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("ref", [None, math.nan])
def test_without_beta_the_reference_is_not_needed(agg, ref):
    case = LOSS["LS02"]
    ref = ref if ref is None else torch.full((2, 2), ref)
    loss, grad, kl, _ = run(case, agg, ref=ref)
    assert near(loss, case["loss"][agg]) and near(grad, case["grad"][agg]) and (kl == 0).all()


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [100.0, -100.0, 5000.0])
@pytest.mark.parametrize("adv", [1.0, -1.0, 0.0])
def test_a_huge_log_ratio_stays_finite(agg, dtype, gap, adv):
    logp = torch.tensor([[gap, -0.5]], dtype=dtype, requires_grad=True)
    zero = torch.zeros(1, 2, dtype=dtype)
    for beta in (0.0, 0.04):
        logp.grad = None
        loss, kl, clipped = grpo_loss(logp, zero, zero, torch.tensor([adv]), torch.ones(1, 2), beta=beta, agg=agg)
        loss.backward()
        assert torch.isfinite(loss) and torch.isfinite(kl).all(), f"loss {loss.item()}"
        assert torch.isfinite(logp.grad).all(), f"gradient {logp.grad.tolist()}"
        assert clipped[0, 0], "a ratio that far outside must count as clipped"
        if adv == 0 and beta == 0:
            assert loss == 0 and (logp.grad == 0).all(), "without an advantage there is nothing to learn"


# ---- KL


@pytest.mark.parametrize("case", FAULTS["KL"], ids=lambda case: str(case["policy"]))
def test_k3_averages_to_the_kl_of_policy_to_reference(case):
    policy, ref = (torch.tensor(case[key], dtype=torch.float64) for key in ("policy", "reference"))
    logp = policy.log()[:, None].requires_grad_()  # one row per token of the vocabulary, one token a row
    n = len(policy)
    loss, kl, _ = grpo_loss(
        logp, logp.detach(), ref.log()[:, None], torch.zeros(n), torch.ones(n, 1), beta=1.0, agg="token-mean", norm=1
    )
    loss.backward()
    assert near(kl[:, 0], case["k3"]) and (kl >= -1e-15).all()
    mean = (policy * kl[:, 0]).sum()
    assert near(mean, case["kl_policy_to_ref"])
    assert near(logp.grad[:, 0], 1 - ref / policy), "d k3 / d logp is 1 - exp(ref - logp)"
    if abs(case["wrong_mean_k3_swapped"] - case["kl_policy_to_ref"]) > 1e-9:
        assert not near(mean, case["wrong_mean_k3_swapped"], 1e-6), "policy and reference are swapped"


def test_beta_pulls_a_policy_that_moved_away_back_to_the_reference():
    gen = torch.Generator().manual_seed(3)
    ref = torch.randn(6, generator=gen).log_softmax(-1)
    logits = (ref + torch.randn(6, generator=gen)).requires_grad_()
    kl = lambda: (logits.softmax(-1) * (logits.log_softmax(-1) - ref)).sum().item()
    start = kl()
    for _ in range(20):
        drawn = torch.multinomial(logits.detach().softmax(-1), 512, replacement=True, generator=gen)
        logp = logits.log_softmax(-1)[drawn][:, None]
        loss = grpo_loss(logp, logp.detach(), ref[drawn][:, None], torch.zeros(512), torch.ones(512, 1), beta=0.1)[0]
        (step,) = torch.autograd.grad(loss, logits)
        logits.data -= 5.0 * step
    assert kl() < 0.5 * start, f"KL went from {start:.4f} to {kl():.4f}: the penalty has the wrong sign"


# ---- adding up


def batch(seed=5, B=6, T=7):
    """A random off-policy batch: logp, old, ref (B, T), adv (B,), mask with lengths 0 to T."""
    gen = torch.Generator().manual_seed(seed)
    logp, old, ref = (-torch.rand(B, T, generator=gen, dtype=torch.float64) * 3 for _ in range(3))
    lengths = torch.tensor([T, 1, 4, 0, 2, 5])[:B]
    return (
        logp,
        old,
        ref,
        torch.randn(B, generator=gen, dtype=torch.float64),
        (torch.arange(T) < lengths[:, None]).double(),
    )


@pytest.mark.parametrize("agg", AGGREGATIONS)
def test_any_split_into_micro_batches_gives_the_same_loss_and_gradient(agg):
    logp, old, ref, adv, mask = batch()
    B = len(adv)
    norm = int(mask.sum()) if agg == "token-mean" else B
    whole = logp.clone().requires_grad_()
    loss = grpo_loss(whole, old, ref, adv, mask, agg=agg)[0]
    loss.backward()
    for cuts in itertools.product([0, 1], repeat=B - 1):
        bounds = [0] + [i + 1 for i, c in enumerate(cuts) if c] + [B]
        part, total = logp.clone().requires_grad_(), 0.0
        for a, b in zip(bounds, bounds[1:]):
            piece = grpo_loss(part[a:b], old[a:b], ref[a:b], adv[a:b], mask[a:b], agg=agg, norm=norm)[0]
            piece.backward()
            total += piece.item()
        assert near(part.grad, whole.grad), f"gradient differs for the split {bounds} under {agg}"
        assert near(total, loss.detach()), f"the reported loss differs for the split {bounds} under {agg}"


def test_masking_a_reply_is_deleting_its_row_under_token_mean():
    logp, old, ref, adv, mask = batch()
    mask[2] = 0
    keep = torch.tensor([0, 1, 3, 4, 5])
    cut = grpo_loss(logp[keep], old[keep], ref[keep], adv[keep], mask[keep], agg="token-mean")[0]
    assert near(
        grpo_loss(logp, old, ref, adv, mask, agg="token-mean")[0], cut
    ), "left-out tokens still count in the denominator"


@pytest.mark.parametrize("agg", AGGREGATIONS)
def test_an_empty_batch_steps_nowhere_and_an_empty_part_changes_nothing(agg):
    weight = torch.tensor([0.3, -0.2], requires_grad=True)
    optimizer = torch.optim.SGD([weight], 1.0)
    loss = grpo_loss(
        (weight * 2)[None], torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1), torch.zeros(1, 2), agg=agg
    )[0]
    loss.backward()
    optimizer.step()
    assert loss == 0 and torch.equal(weight, torch.tensor([0.3, -0.2])) and (weight.grad == 0).all()


def test_weights_per_token_differ_between_the_three_means_as_stated():
    case = LOSS["LS12"]
    grads = {agg: run(case, agg)[1] for agg in AGGREGATIONS}
    assert near(
        grads["seq-mean"][0, 0] * 10, grads["seq-mean"][1, 0]
    ), "per reply, a token of the long reply weighs a tenth"
    for agg in ("token-mean", "constant"):
        assert near(grads[agg][0, 0], grads[agg][1, 0]), f"{agg} weighs all tokens alike"


def test_no_gradient_flows_into_old_ref_or_advantages_metrics():
    logp, old, ref, adv, mask = tensors(LOSS["LS06"])
    _, kl, clipped = grpo_loss(logp, old, ref, adv, mask)
    assert kl.grad_fn is None and clipped.dtype == torch.bool


# ---- bad input


@pytest.mark.parametrize(
    "bad",
    [
        {"agg": "mean"},
        {"agg": None},
        {"agg": HUGE},
        {"eps": -0.1},
        {"eps": -HUGE},
        {"eps": math.nan},
        {"beta": -1},
        {"beta": math.nan},
        {"max_tokens": 0},
        {"max_tokens": -3},
        {"beta": 0.1, "ref": None},
    ],
    ids=lambda bad: ",".join(bad),
)
def test_bad_arguments_are_refused_by_name(bad):
    given = {
        "logp": torch.zeros(1, 2),
        "old": torch.zeros(1, 2),
        "ref": torch.zeros(1, 2),
        "adv": torch.ones(1),
        "mask": torch.ones(1, 2),
    }
    with pytest.raises(ValueError, match=next(iter(bad))) as err:
        grpo_loss(**given | bad)
    assert "\n" not in str(err.value)


@pytest.mark.parametrize(
    "bad", [HUGE, -HUGE, math.nan, math.inf, "8", None, True, -1, [1]], ids=lambda bad: type(bad).__name__
)
@pytest.mark.parametrize(
    "make, field",
    [
        (TrainConfig, "lr"),
        (TrainConfig, "beta"),
        (TrainConfig, "eps"),
        (TrainConfig, "group"),
        (TrainConfig, "temperature"),
        (TrainConfig, "problems"),
        (TrainConfig, "agg"),
        (TrainConfig, "checker"),
        (WarmConfig, "lr"),
        (WarmConfig, "n"),
    ],
    ids=lambda v: v if isinstance(v, str) else v.__name__,
)
def test_bad_settings_are_refused_by_name_in_one_line(make, field, bad):
    with pytest.raises(ValueError, match=f"^{field} must be") as err:
        make(**{field: bad})
    assert "\n" not in str(err.value) and len(str(err.value)) < 200


def test_settings_that_do_not_fit_each_other_are_refused():
    with pytest.raises(ValueError, match="updates"):
        TrainConfig(problems=32, updates=3)
    with pytest.raises(ValueError, match="num_key_value_heads"):
        ModelConfig(64, 32, 2, 4, 3, 48, 8)
    with pytest.raises(ValueError, match="head_dim"):
        ModelConfig(64, 32, 2, 4, 2, 48, 7)
    with pytest.raises(ValueError, match="nothing to train"):
        WarmConfig(n=0, chat=0)


def test_a_token_that_is_none_is_refused_and_not_passed_over():
    logits = torch.zeros(1, 2, 5)
    for bad in (-100, -1, 5):
        with pytest.raises(IndexError):
            token_logprobs(logits, torch.tensor([[1, bad]]))
