"""Replies laid out as trees: nothing lost, nothing read twice, everyone sees its own beginning only; scores as reply by reply."""
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import copy_of, slow_logp

from grpo_lib.config import ModelConfig
from grpo_lib.sampler import lay_out, read, score
from grpo_lib.tree import bundles, grow

CFG = ModelConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32, head_dim=8)
PROMPTS = [[5, 6, 7]] * 6 + [[8, 9]] * 2
REPLIES = [[10, 11, 12, 13], [10, 11, 14], [10, 11, 12, 13], [15], [10, 11], [10, 11, 12, 16, 17, 18], [10, 11, 12], [30]]
replies = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=7)


def beginnings(ids):
    """What must be read of these replies: each distinct beginning that something follows."""
    return {tuple(reply[:n]) for reply in ids for n in range(1, len(reply))}


def scored(model, prompts, ids):
    lengths = torch.tensor([len(reply) for reply in ids])
    tokens = torch.full((len(ids), int(lengths.max())), 3)
    for row, reply in zip(tokens, ids):
        row[:len(reply)] = torch.tensor(reply)
    return score(model, prompts, tokens, lengths)


@given(replies, st.integers(0, 3))
def test_a_tree_holds_every_beginning_once_and_shows_each_token_its_own(ids, other):
    rows = [list(range(len(ids))), [len(ids)]]
    ids = ids + [[other]]
    tree = grow(ids, rows)
    assert int(tree.valid[0].sum()) == len(beginnings(ids[:-1])) and not tree.valid[1].any(), "read twice, or not at all"
    assert tree.numbers.tolist() == [*range(len(ids))] and tree.first.tolist() == [0, len(ids) - 1]
    path = {0: (), 1: ()}                                      # what each state has behind it, told by `until` alone
    for place, token in enumerate(tree.tokens[0][tree.valid[0]].tolist()):
        seen = [p for p in range(place + 1) if tree.until[0, p] > place]
        path[2 + place] = tuple(tree.tokens[0, seen].tolist())
        assert seen[-1] == place and tree.tokens[0, place] == token, "a token must see itself"
    for reply, row in zip(ids, tree.edge.tolist()):
        edges = [e for e in row if e < len(tree.token)]
        assert [int(tree.token[e]) for e in edges] == reply and row[len(reply):] == [len(tree.token)] * (len(row) - len(reply))
        assert [path[int(tree.state[e])] for e in edges] == [tuple(reply[:t]) for t in range(len(reply))], "predicted from another beginning"


@given(replies, st.integers(1, 30))
def test_bundles_hold_each_reply_once_with_replies_to_its_own_prompt(ids, begin):
    where = [i % 2 for i in range(len(ids))]
    found = bundles(ids, where, range(len(ids)), begin, CFG)
    assert sorted(i for row, _ in found for i in row) == [*range(len(ids))]
    for row, states in found:
        assert len({where[i] for i in row}) == 1, "two prompts in one row"
        assert states == 1 + len(beginnings([ids[i] for i in row])), "miscounted"
    alone = sum(len(reply) for reply in ids)
    assert sum(states for _, states in found) <= alone, "more is read than without bundles"


def test_replies_that_share_nothing_stay_rows_of_their_own():
    long = [[k] * 20 for k in range(8)]
    assert [row for row, _ in bundles(long, [0] * 8, range(8), 10, CFG)] == [[k] for k in range(8)]
    alike = [[1] * 19 + [k] for k in range(8)]
    assert [row for row, _ in bundles(alike, [0] * 8, range(8), 10, CFG)] == [[*range(8)]]
    assert [row for row, _ in bundles(alike, [0] * 4 + [1] * 4, [6, 1, 3, 5], 10, CFG)] == [[1, 3], [5, 6]], "only those asked for"


def test_shared_beginnings_score_as_each_reply_alone(make_model):
    model = make_model()
    with torch.no_grad():
        got = scored(model, PROMPTS, REPLIES)
        for prompt, reply, row in zip(PROMPTS, REPLIES, got):
            assert torch.allclose(row[:len(reply)], slow_logp(model, prompt, reply), atol=2e-5), reply
            assert (row[len(reply):] == 0).all()


def test_shared_beginnings_pass_on_the_gradient_of_each_reply_alone(make_model):
    model = make_model()
    other, weight = copy_of(model), torch.arange(1.0, 9.0)[:, None]
    (scored(model, PROMPTS, REPLIES) * weight).sum().backward()
    sum((w * slow_logp(other, p, r)).sum() for p, r, w in zip(PROMPTS, REPLIES, weight)).backward()
    for (name, a), b in zip(model.named_parameters(), other.parameters()):
        assert torch.allclose(a.grad, b.grad, atol=1e-3, rtol=1e-3), f"gradient of {name} differs from whole rows'"


def test_what_stands_in_the_padding_of_a_tree_does_not_matter(make_model):
    model = make_model()
    with torch.no_grad():
        told = read(model, PROMPTS)
        tree = grow(REPLIES, lay_out(model.cfg, REPLIES, told)[0])
        assert not tree.valid.all(), "no padding to test"
        states = lambda: model.hidden(tree.tokens, tree.valid, told[0].share(told[2][tree.first], tree.until))[tree.valid]
        want = states()
        model.model.embed_tokens.weight[39] = torch.nan
        tree.tokens[~tree.valid], tree.until[~tree.valid] = 39, 99
        assert torch.equal(states(), want)
