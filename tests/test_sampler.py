"""The sampler: it draws what is scored, one stream per reply, ends per row, nothing left behind (fault log, 3 to 5)."""

import math
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare

from grpo_lib.model import Prefix, StaticCache, save
from grpo_lib import sampler
from grpo_lib.sampler import _batch, _graphed, draw, generate, micro_batches, reply_mask, score

ENDS = (4, 5)


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def ids(n, seed=0, low=6, high=320):
    """A list of random ids."""
    return torch.randint(low, high, (n,), generator=stream(seed)).tolist()


def same(a, b):
    """Two Samples hold the same replies, and log-probabilities equal up to the rounding of a matrix product."""
    return a.ids() == b.ids() and torch.equal(a.ended, b.ended) and torch.allclose(a.logp, b.logp, atol=1e-4)


def group_of(tiny, prompts, limit=20, T=1.0, seed=0, **changes):
    """Samples with so many end ids that rows leave the batch early and at different steps."""
    return generate(tiny, prompts, limit, T, range(4, 30), stream(seed), **changes)


PROMPTS = [ids(n, seed=n) for n in (1, 5, 9, 17)]
GROUPS = [p for p in PROMPTS for _ in range(3)]


# ---- what is drawn is what is scored


@pytest.mark.parametrize("T", [0.5, 1.0, 2.0])
def test_sampled_logprobs_are_the_scorers(T, tiny):
    s = generate(tiny, GROUPS, 20, T, range(4, 30), stream())
    with torch.no_grad():
        again = score(tiny, GROUPS, s.tokens, s.lengths, T)
    assert torch.allclose(s.logp, again, atol=1e-4), f"largest gap {(s.logp - again).abs().max():.2e}"
    assert (s.logp[s.mask() == 0] == 0).all() and (s.mask().sum(1) == s.lengths).all()
    assert s.logp.shape == s.tokens.shape == s.mask().shape and len(set(s.lengths.tolist())) > 2


def test_scores_equal_a_loop_over_prefixes(tiny):
    prompts, tokens, lengths = [ids(6), ids(2, 1)], torch.tensor([[9, 70, 4, 0], [33, 5, 0, 0]]), torch.tensor([3, 2])
    with torch.no_grad():
        got = score(tiny, prompts, tokens, lengths)
        for i, p in enumerate(prompts):
            for t in range(lengths[i]):
                row = torch.tensor([p + tokens[i, :t].tolist()])
                one = tiny(row)[0, -1].log_softmax(-1)[tokens[i, t]]
                assert torch.isclose(got[i, t], one, atol=1e-4), f"reply token {t} of row {i}: shifted by one?"
        swapped = score(tiny, prompts, tokens[:, [1, 0, 2, 3]], lengths)
    assert not torch.allclose(got, swapped, atol=1e-2), "two tokens changed places and nobody noticed"
    assert got.shape == (2, 4) and (got[1, 2:] == 0).all()


def test_a_prompts_own_tokens_are_not_scored_and_padding_ids_do_not_matter(tiny):
    tokens, lengths = torch.tensor([[9, 70, 4, 0], [33, 5, 0, 0]]), torch.tensor([3, 2])
    other = torch.tensor([[9, 70, 4, 77], [33, 5, 301, 8]])
    with torch.no_grad():
        assert torch.equal(score(tiny, [[7], [8]], tokens, lengths), score(tiny, [[7], [8]], other, lengths))


def test_scoring_carries_a_gradient_even_where_nothing_is_scored(tiny):
    s = score(tiny, [ids(3)], torch.tensor([[9, 4]]), torch.tensor([2]))
    s.sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in tiny.parameters())
    tiny.zero_grad()
    score(tiny, [ids(3)], torch.tensor([[9, 4]]), torch.tensor([0])).sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in tiny.parameters())


def test_samples_may_enter_a_graph(tiny):
    s = group_of(tiny, PROMPTS)
    logp = score(tiny, PROMPTS, s.tokens, s.lengths)
    (logp * s.logp * s.mask()).sum().backward()  # tensors born in inference mode cannot do this
    assert not s.tokens.is_inference() and not s.logp.is_inference() and not s.lengths.is_inference()


# ---- drawing


@pytest.mark.parametrize("T", [0.5, 1.0, 3.0])
def test_draws_follow_softmax_of_logits_over_T(T):
    logits, n = torch.randn(12, generator=stream(1)) * 1.5, 20000
    p = torch.softmax(logits.double() / T, -1)
    token, logp = draw(logits.expand(n, -1), T, torch.rand(n, generator=stream(2)))
    counts = torch.bincount(token, minlength=12).double()
    assert chisquare(counts, p * n).pvalue > 1e-3, f"counts {counts.tolist()} for probabilities {(p * n).tolist()}"
    assert torch.allclose(logp, p.log()[token].float(), atol=1e-5)
    token, _ = draw(logits.expand(n, -1), T, (torch.arange(n) + 0.5) / n)  # an even comb of uniforms: exact to one draw
    assert ((torch.bincount(token, minlength=12) - p * n).abs() <= 1.01).all()


def test_a_model_draws_its_distribution(scripted):
    logits = torch.randn(6, generator=stream(5))
    s = generate(scripted(logits.expand(6, 6)), [[0]] * 3000, 2, 1.0, (), stream(6), rows=700)
    p = logits.double().softmax(-1)
    for t in range(2):
        counts = torch.bincount(s.tokens[:, t], minlength=6)
        assert chisquare(counts, p * 3000).pvalue > 1e-3, f"step {t}: {counts.tolist()}"
    pairs = torch.bincount(s.tokens[:, 0] * 6 + s.tokens[:, 1], minlength=36)
    assert (
        chisquare(pairs, (p[:, None] * p).flatten() * 3000).pvalue > 1e-3
    ), "the two steps of a reply are not independent"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("only", [0, 17, 49])
def test_a_token_of_probability_zero_is_never_drawn(dtype, only):
    logits = torch.full((50,), -torch.inf, dtype=dtype)
    logits[only] = -3.0
    u = torch.rand(20000, generator=stream())
    u[0], u[1] = 0.0, 1 - 2**-24
    token, logp = draw(logits.expand(20000, -1), 1.0, u)
    assert (token == only).all() and (logp == 0).all()


def test_the_ends_of_the_uniform_fall_on_tokens_that_can_be_drawn():
    gen = stream(8)
    for V in (2, 7, 4096):
        logits = torch.randn(64, V, generator=gen) * 5
        logits[:, [0, -1]] = -torch.inf if V > 2 else 0.0
        for u in (0.0, 1 - 2**-24):
            token, logp = draw(logits, 1.0, torch.full((64,), u))
            assert torch.isfinite(logp).all() and (0 <= token).all() and (token < V).all()


def test_temperature_zero_takes_the_lowest_of_the_best():
    for V in (5, 320, 4099):
        logits = torch.zeros(3, V)
        logits[1, V // 2 :] = 1.0
        logits[2, [V - 1, V - 2]] = 9.0
        token, logp = draw(logits, 0, None)
        assert token.tolist() == [0, V // 2, V - 2]
        assert torch.allclose(
            logp, logits.log_softmax(-1).gather(1, token[:, None])[:, 0]
        ), "greedy reports its logp at temperature 1"


def test_a_tiny_temperature_is_greedy_and_finite(tiny):
    greedy, cold = group_of(tiny, PROMPTS, T=0), group_of(tiny, PROMPTS, T=1e-6)
    assert cold.ids() == greedy.ids() and torch.isfinite(cold.logp).all() and (cold.logp.abs() < 1e-3).all()


@pytest.mark.parametrize(
    "T",
    [-1.0, -1e-9, math.nan, math.inf, 1e-40, 10**5000, -(10**5000), None, "1", True],
    ids=lambda T: type(T).__name__,
)
def test_a_bad_temperature_is_refused(T, tiny):
    with pytest.raises(ValueError, match="^temperature must be") as err:
        generate(tiny, PROMPTS, 4, T, ENDS)
    assert "\n" not in str(err.value)


@pytest.mark.parametrize(
    "name, value",
    [(n, v) for n in ("max_new_tokens", "rows") for v in (0, -1, 1.5, "8", None, True, 10**5000)],
    ids=lambda v: v if v in ("max_new_tokens", "rows") else type(v).__name__,
)
def test_bad_sizes_are_refused_by_name(name, value, tiny):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        generate(tiny, PROMPTS, **{"max_new_tokens": 4, "rows": 8} | {name: value})


@pytest.mark.parametrize("T", [0, 1.0])
def test_a_model_that_diverged_is_named_as_such(T, tiny):
    tiny.model.norm.weight.data[3] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        generate(tiny, PROMPTS, 4, T, ENDS)


# ---- greedy against transformers


@pytest.mark.parametrize(
    "changes", [{}, {"tie_word_embeddings": False, "num_key_value_heads": 4}], ids=["tied", "untied"]
)
def test_greedy_is_transformers_greedy(changes, make_model, tokenizer, tmp_path):
    from transformers import AutoModelForCausalLM

    model = make_model(seed=3, **changes)
    save(model, tokenizer, tmp_path / "m")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m", dtype=torch.float32).eval()
    prompts = [ids(n, seed=n + 40) for n in (1, 3, 8, 8, 20)]
    likely = Counter(t for p in prompts for t in generate(model, [p], 30, 0).ids()[0]).most_common(12)[-1][0]
    theirs.generation_config.eos_token_id = [4, 5, likely]  # an end that really comes
    s = generate(model, prompts, 30, 0, (4, 5, likely))
    for p, reply in zip(prompts, s.ids()):
        out = theirs.generate(
            torch.tensor([p]), attention_mask=torch.ones(1, len(p)), do_sample=False, max_new_tokens=30
        )[0, len(p) :]
        assert reply == out.tolist(), f"prompt of {len(p)} tokens"
    assert s.ended.any(), "no reply ended: the comparison missed the end"


# ---- fixed shapes, as a GPU runs them


@pytest.mark.parametrize("T", [0, 0.7, 1.0])
@pytest.mark.parametrize("limit, every", [(20, 16), (20, 1), (7, 3), (1, 16)])
@pytest.mark.parametrize("kv", [1, 2])
def test_steps_of_fixed_shapes_give_the_same_replies(T, limit, every, kv, make_model):
    model = make_model(num_key_value_heads=kv)
    u = torch.rand(len(GROUPS), limit, generator=stream()) if T else None
    common = [x for x, _ in Counter(t for r in group_of(model, GROUPS, T=1.0).ids() for t in r).most_common(9)]
    for ends in ([], [4], common):
        with torch.inference_mode():
            a, b = (f(model, GROUPS, limit, T, torch.tensor(ends, dtype=torch.long), u, *more)
                    for f, more in ((_batch, ()), (_graphed, (every,))))
        assert torch.equal(a[0], b[0]) and torch.equal(a[2], b[2]) and torch.equal(a[3], b[3]), f"other replies with ends {ends}"
        assert torch.allclose(a[1], b[1], atol=1e-4), f"other log-probabilities with ends {ends}"
    assert limit < 7 or len(set(a[2].tolist())) > 1, "rows should end at different steps here"


def test_a_step_of_fixed_shapes_writes_to_the_same_memory_each_time(tiny):
    """What a CUDA graph needs: no tensor that lives from step to step moves."""
    prefix = Prefix(torch.ones(2, 3, dtype=torch.bool))
    with torch.inference_mode():
        tiny.hidden(torch.tensor([ids(3), ids(3, 1)]), prefix.valid, prefix)
        cache = StaticCache(tiny.cfg, 2, 9, "cpu", torch.float32).begin(prefix, torch.tensor([0, 1]))
        places = lambda: [x.data_ptr() for x in (*cache.k, *cache.v, cache.valid, cache.at)]
        before, shapes = places(), set()
        for _ in range(4):
            k, v = cache.put(0, *(torch.ones(2, tiny.cfg.num_key_value_heads, 1, tiny.cfg.head_dim),) * 2)
            shapes.add((k.shape, v.shape))
            tiny.hidden(torch.tensor([[7], [8]]), None, cache)
            cache.advance()
    assert places() == before and len(shapes) == 1 and cache.at.item() == 7


# ---- each reply has its own stream


@pytest.mark.parametrize("T", [0, 1.0])
def test_rows_per_batch_do_not_matter(T, tiny):
    whole = group_of(tiny, GROUPS, T=T)
    assert T == 0 or len(set(whole.lengths.tolist())) > 3, "rows should end at different steps here"
    for rows in (1, 3, 5, 12):
        assert same(group_of(tiny, GROUPS, T=T, rows=rows), whole), f"{rows} rows at once draw other replies"


def test_neighbours_do_not_matter(tiny):
    whole = group_of(tiny, GROUPS)
    others = [ids(30, seed=i) for i in range(len(GROUPS))]
    for keep in (0, 5, 11):
        mixed = [GROUPS[i] if i == keep else others[i] for i in range(len(GROUPS))]
        assert group_of(tiny, mixed).ids()[keep] == whole.ids()[keep], f"reply {keep} depends on what stands beside it"
    assert group_of(tiny, GROUPS[:5]).ids() == whole.ids()[:5], "more rows behind it changed a reply"


@pytest.mark.parametrize("order", [[3, 1, 2], [1, 2, 3], [3, 3, 1], [2, 1, 1]], ids=str)
def test_the_order_in_which_rows_finish_does_not_matter(order, scripted):
    V = 20
    table = torch.full((V, V), -torch.inf)
    for n in (1, 2, 3):  # a reply to prompt [n] says 3n-1 random tokens of its own, then 0
        for step in range(3):
            here = 4 * n + step
            table[here, 4 * n + step + 1 if step < 2 else 0] = 0.0
        table[n, 4 * n + 3 - n : 4 * n + 3] = 0.0
    model = scripted(table)
    prompts = [[n] for n in order]
    s = generate(model, prompts, 8, 1.0, (0,), stream(2))
    alone = [generate(model, [[1]] * i + [p], 8, 1.0, (0,), stream(2)).ids()[i] for i, p in enumerate(prompts)]
    assert s.ids() == alone and s.ended.all()


def test_replies_of_a_group_differ_and_a_seed_repeats_them(tiny):
    one, two = group_of(tiny, [PROMPTS[1]] * 8), group_of(tiny, [PROMPTS[1]] * 8)
    assert len(set(map(tuple, one.ids()))) > 4, "the replies of a group are alike: no signal"
    assert same(one, two) and torch.equal(one.tokens, two.tokens), "the same seed drew another set"
    assert group_of(tiny, [PROMPTS[1]] * 8, seed=1).ids() != one.ids()
    assert (
        generate(tiny, [PROMPTS[1]] * 8, 20, 1.0, ENDS).ids() != generate(tiny, [PROMPTS[1]] * 8, 20, 1.0, ENDS).ids()
    )


def test_one_stream_goes_on_from_call_to_call(tiny):
    gen = stream(3)
    first, second = generate(tiny, PROMPTS, 9, 1.0, ENDS, gen), generate(tiny, PROMPTS, 9, 1.0, ENDS, gen)
    assert first.ids() != second.ids()


def test_calls_leave_nothing_behind(tiny):
    A, B = PROMPTS[:2], [p for p in PROMPTS for _ in range(5)]
    first = group_of(tiny, A)
    group_of(tiny, B, limit=40, seed=7)
    assert torch.equal(group_of(tiny, A).tokens, first.tokens), "the second call saw the first one's cache"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_modes_and_the_global_stream_are_as_before(training, grad, tiny):
    tiny.train(training)
    weights = [p.clone() for p in tiny.parameters()]
    with torch.set_grad_enabled(grad):
        state = torch.get_rng_state()
        generate(tiny, PROMPTS, 6, 1.0, ENDS)
        group_of(tiny, PROMPTS, T=0)
        assert torch.equal(torch.get_rng_state(), state), "the global random stream moved"
        assert torch.is_grad_enabled() == grad and not torch.is_inference_mode_enabled()
    assert tiny.training == training and all(m.training == training for m in tiny.modules())
    assert all(torch.equal(a, b) and b.requires_grad and b.grad is None for a, b in zip(weights, tiny.parameters()))


def test_training_mode_comes_back_after_a_failure_too(tiny):
    tiny.train()
    with pytest.raises(RuntimeError):
        generate(tiny, PROMPTS, 4, 1.0, ENDS, progress=lambda n: (_ for _ in ()).throw(RuntimeError("stop")))
    assert tiny.training


# ---- ends


def test_rows_end_each_at_its_own_step_and_the_loop_stops_with_the_last(scripted, follow):
    V = 32  # from 10: 11, end.  from 20: 21 .. 28, end
    model = scripted(follow(V, {10: 11, 11: 4, **{t: t + 1 for t in range(20, 28)}, 28: 5}))
    s = generate(model, [[7, 10], [20]], 30, 1.0, ENDS, stream())
    assert s.ids() == [[11, 4], [21, 22, 23, 24, 25, 26, 27, 28, 5]]
    assert s.lengths.tolist() == [2, 9] and s.ended.tolist() == [True, True] and s.tokens.shape == (2, 9)
    assert (
        (s.tokens[0, 2:] == 0).all() and (s.logp == 0).all() and s.mask().tolist() == [[1.0] * 2 + [0.0] * 7, [1.0] * 9]
    )
    assert model.calls == 9, f"{model.calls} passes for 9 steps: the loop did not stop with the last row"


def test_every_end_id_ends_a_reply_and_no_other_does(scripted, follow):
    model = scripted(follow(12, {5: 6, 6: 3, 7: 2, 8: 9, 9: 9}))
    s = generate(model, [[5], [7], [8]], 5, 1.0, {2, 3}, stream())
    assert s.ids() == [[6, 3], [2], [9] * 5]
    assert s.ended.tolist() == [True, True, False] and s.lengths.tolist() == [2, 1, 5]


def test_a_reply_cut_at_the_limit_stays_as_it_is(scripted, follow):
    model = scripted(follow(12, {5: 6, 6: 7, 7: 8, 8: 4}))
    s = generate(model, [[5]], 3, 1.0, ENDS, stream())
    assert s.ids() == [[6, 7, 8]] and not s.ended[0] and (s.mask() == 1).all(), "no end token may be invented"
    s = generate(model, [[5]], 4, 1.0, ENDS, stream())
    assert s.ids() == [[6, 7, 8, 4]] and s.ended[0], "the end falls on the last step"


def test_without_end_ids_every_reply_runs_to_the_limit(tiny):
    s = generate(tiny, PROMPTS, 7, 1.0, (), stream())
    assert s.lengths.tolist() == [7] * 4 and not s.ended.any()


def test_padding_that_equals_the_end_or_real_tokens_does_not_confuse(scripted, follow):
    model = scripted(follow(12, {5: 0, 0: 6, 6: 0, 7: 8, 8: 8}))  # 0 fills the rows, and is a real token too
    s = generate(model, [[5], [7]], 4, 1.0, (), stream())
    assert s.ids() == [[0, 6, 0, 6], [8, 8, 8, 8]] and (s.mask() == 1).all()
    s = generate(model, [[5], [7]], 4, 1.0, (0,), stream())  # 0 is the end as well
    assert (
        s.ids() == [[0], [8, 8, 8, 8]] and s.ended.tolist() == [True, False] and s.mask().sum(1).tolist() == [1.0, 4.0]
    )


def test_end_tokens_in_the_prompt_are_not_ends_of_the_reply(scripted, follow):
    model = scripted(follow(12, {4: 6, 6: 6, 10: 4}))
    s = generate(model, [[5, 4, 3, 4], [4, 10]], 3, 1.0, ENDS, stream())
    assert s.ids() == [[6, 6, 6], [4]] and s.ended.tolist() == [False, True]


def test_end_tokens_in_the_prompt_are_read_by_a_real_model(tiny):
    said = generate(tiny, [[9, 4, 8]], 8, 0, ()).ids()[0]
    assert generate(tiny, [[9, 4, 8, *said[:3]]], 5, 0, ()).ids()[0] == said[3:]


# ---- prompts and room


def test_the_exact_fit_works_and_one_more_raises_before_anything_is_sampled(tiny):
    s = generate(tiny, [ids(76), ids(3)], 20, 1.0, (), stream())
    assert s.lengths.tolist() == [20, 20]
    told = []
    with pytest.raises(ValueError, match="prompt 1 has 77 tokens.*96 positions"):
        generate(tiny, [ids(3), ids(77)], 20, 1.0, (), stream(), rows=1, progress=told.append)
    assert not told, "the first rows were sampled before the last prompt was looked at"
    with pytest.raises(ValueError, match="prompt 0 has 200 tokens"):
        generate(tiny, [ids(200)], 20)
    with pytest.raises(ValueError, match="max_new_tokens is 96"):
        generate(tiny, [ids(1)], 96)


def test_empty_prompts_are_refused(tiny):
    with pytest.raises(ValueError, match="prompts is empty"):
        generate(tiny, [], 4)
    with pytest.raises(ValueError, match="prompt 1 has 0 tokens"):
        generate(tiny, [[7], []], 4)


def test_long_and_short_prompts_in_one_batch_are_as_alone(tiny):
    prompts = [ids(1), ids(40, 1), ids(75, 2)]
    whole = generate(tiny, prompts, 20, 0, ENDS)
    for i, p in enumerate(prompts):
        assert generate(tiny, [p], 20, 0, ENDS).ids()[0] == whole.ids()[i], f"prompt of {len(p)} tokens"
    assert torch.isfinite(whole.logp).all()


def test_prompts_are_left_as_they_were_and_may_be_tuples(tiny):
    prompts = [list(p) for p in PROMPTS]
    s = group_of(tiny, prompts)
    assert prompts == PROMPTS and same(s, group_of(tiny, [tuple(p) for p in PROMPTS]))


def test_replies_are_shared_among_cores_only_where_there_is_work_for_them(tiny, monkeypatch):
    prompts = [ids(3 + i % 5, i // 4) for i in range(100)]
    one, whole = sampler.workers(tiny, 100), generate(tiny, prompts, 9, 1.0, ENDS, stream())
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert one == sampler.workers(tiny, 100) == 1, "a tiny model's replies were split"
    monkeypatch.setattr(sampler, "WORK", 0)
    assert [sampler.workers(tiny, n) for n in (1, 63, 64, 95, 96, 1000)] == [1, 1, 2, 2, 3, 3]
    assert same(generate(tiny, prompts, 9, 1.0, ENDS, stream()), whole), "cores changed a reply"


def test_progress_is_told_of_every_reply_once(tiny):
    told = []
    group_of(tiny, GROUPS, rows=5, progress=told.append)
    assert told == [5, 5, 2]


# ---- small parts


def test_masks_come_from_positions():
    assert reply_mask(torch.tensor([0, 2, 3]), 3).tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("limit", [1, 7, 20, 1000])
def test_micro_batches_hold_every_row_once_within_the_limit(limit):
    lengths = [3, 9, 1, 4, 4, 9, 2]
    batches = micro_batches(lengths, limit)
    assert sorted(i for b in batches for i in b) == list(range(7))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= limit for b in batches)
    assert micro_batches([], limit) == []


def test_micro_batches_come_in_multiples_of_the_lanes_where_that_can_be():
    lengths = [i % 13 + 20 for i in range(200)]
    for lanes in (1, 2, 3, 4):
        for limit in (300, 500, 800, 1000, 1300):
            batches = micro_batches(lengths, limit, lanes)
            assert sorted(i for b in batches for i in b) == list(range(200))
            assert all(len(b) * max(lengths[i] for i in b) <= limit for b in batches), f"{lanes} lanes: more than {limit} tokens"
            assert len(batches) % lanes == 0, f"{len(batches)} micro-batches on {lanes} lanes"
    assert micro_batches([5], 100, 4) == [[0]] and micro_batches([], 100, 2) == []


@pytest.mark.parametrize("limit", [1, 40, 10000])
def test_scores_do_not_depend_on_the_split(limit, tiny):
    s = group_of(tiny, GROUPS)
    with torch.no_grad():
        whole = score(tiny, GROUPS, s.tokens, s.lengths)
        for rows in micro_batches([len(p) + int(n) for p, n in zip(GROUPS, s.lengths)], limit):
            part = score(tiny, [GROUPS[i] for i in rows], s.tokens[rows], s.lengths[rows])
            assert torch.allclose(part, whole[rows], atol=1e-4)
