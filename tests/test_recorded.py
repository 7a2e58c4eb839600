"""What is committed under data/ is what the code makes of it: records, start, mini's promises."""
import gzip
import json
from dataclasses import fields

import pytest

from grpo_lib import evaluate, report, runs, train
from grpo_lib.analysis import style
from grpo_lib.checker import rewards
from grpo_lib.config import DATA, RECIPES, TrainConfig, differences
from grpo_lib.corpus import has_sum
from grpo_lib.model import load
from grpo_lib.replay import read
from grpo_lib.sft import adamw
from grpo_lib.task import heldout, heldout_pairs, sampling_set

RECORDS = sorted((p.parent.parent.name, p.parent.name) for p in (DATA / "runs").glob("*/*/run.json"))
START = f"warm-{RECIPES['mini']['warm'].n}"


def test_the_spine_is_recorded():
    names = {name for model, name in RECORDS if model == "mini"}
    assert {"chat", START, "main-s1", "main-s2", "main-s3", "weak-s1"} <= names, f"records of mini: {sorted(names)}"
    assert sum(n.startswith("warm-") for n in names) >= 4 and sum(n.startswith("pilot-") for n in names) == 3, sorted(names)


@pytest.mark.parametrize("model, name", RECORDS, ids=lambda x: str(x))
def test_a_record_follows_from_its_reply_texts(model, name):
    run = runs.load(name, model, quiet=True)
    r = run.replies
    for kind in ("strict", "exact", "contains"):
        again = rewards(r["reply"].tolist(), (r["a"] + r["b"]).tolist(), kind)
        assert again == r[kind].astype(float).tolist(), f"{kind} of {model}/{name} is not what the checker says of the texts"
    for e in run.evals:
        for key, summary in [("3", e)] * ("greedy" in e) + [(key, e[key]) for key in ("4", "5") if key in e]:
            for part, rows in (("greedy", report.greedy(run, e["step"], key)), ("sampled", report.sampled(run, e["step"], key))):
                told = f"step {e['step']} set {key} {part}"
                assert len(rows) == summary[part]["n"], f"{told}: {len(rows)} replies, summary of {summary[part]['n']}"
                assert rows["strict"].mean() == pytest.approx(summary[part]["strict"]), told
                assert rows["reply"].map(style).eq("worked").mean() == pytest.approx(summary[part]["worked"]), told
    asked = {(min(a, b), max(a, b)) for a, b in zip(r["a"], r["b"])}
    drawn = r[r["set"] == "train"]
    assert not {(min(a, b), max(a, b)) for a, b in zip(drawn["a"], drawn["b"])} & heldout_pairs(), "a held-out sum was trained on"
    assert asked and run.provenance["seconds"] > 0 and run.provenance["versions"]["torch"]


def test_the_recorded_held_out_replies_are_of_the_committed_set_in_its_order():
    run = runs.load("main-s1", quiet=True)
    rows = report.greedy(run)
    assert [(p.a, p.b, p.template) for p in heldout(3)] == list(zip(rows["a"], rows["b"], rows["template"]))


def test_the_first_steps_of_the_main_run_come_back():
    run = runs.load("main-s1", quiet=True)
    cfg = TrainConfig(**{f.name: run.config[f.name] for f in fields(TrainConfig) if f.name in run.config})     # a later field: its default
    changed = differences(RECIPES["mini"]["main"], cfg)
    assert not changed, f"config.json is not the recipe that `make run` uses: {changed}"
    folder = runs.RECORDED / "mini" / START
    (policy, tokenizer), (ref, _) = load(folder), load(folder)
    optimizer = adamw(policy, cfg.lr)
    for step in (1, 2):
        _, row = train.one_step(policy, ref, tokenizer, optimizer, cfg, step, cfg.checker)
        then = run.metrics.iloc[step - 1]
        for key, near in (("reward", 0.02), ("exact", 0.02), ("length", 0.5), ("entropy", 0.01), ("kl", 0.002), ("grad_norm", 0.1 * then["grad_norm"] + 0.01)):
            assert row[key] == pytest.approx(then[key], abs=near), f"step {step}: {key} is {row[key]:.4f}, recorded {then[key]:.4f}"


def test_the_recorded_start_gives_its_recorded_greedy_replies():
    model, tokenizer = load(runs.RECORDED / "mini" / START)
    then = report.greedy(runs.load(START, quiet=True)).head(64)
    now, _ = evaluate.replies(model, tokenizer, heldout(3)[:64])
    same = sum(a["reply"] == b for a, b in zip(now, then["reply"]))
    assert same >= 61, f"only {same} of 64 greedy replies are the recorded ones: weights and record do not belong together"


@pytest.mark.parametrize("name", [n for m, n in RECORDS if m == "mini" and n.startswith("main-s")])
def test_main_gains_what_it_was_built_for(name):
    run = runs.load(name, quiet=True)
    first, last = run.at(0), run.at()
    told = f"{name}: greedy {first['greedy']['strict']:.1%} -> {last['greedy']['strict']:.1%}"
    assert 0.10 <= first["sampled"]["strict"] <= 0.30, f"{name} starts at {first['sampled']['strict']:.1%} sampled"
    assert last["greedy"]["strict"] >= max(0.70, first["greedy"]["strict"] + 0.30) and run.config["steps"] == 250, told
    assert abs(last["unrounded"]["strict"] - last["greedy"]["strict"]) < 0.03, f"{told}, before rounding to bfloat16 {last['unrounded']['strict']:.1%}"


def test_the_seeds_differ_in_nothing_but_the_seed():
    first, *others = [runs.load(n, quiet=True) for m, n in RECORDS if m == "mini" and n.startswith("main-s")]
    for run in others:
        read = lambda r: TrainConfig(**{f.name: r.config[f.name] for f in fields(TrainConfig) if f.name in r.config})
        assert set(differences(read(first), read(run))) == {"seed"} and run.config["init"] == first.config["init"], run.name


ARMS = {"nokl": {"beta": 0.0}, "drgrpo": {"std": False, "agg": "constant"}, "contains": {"checker": "contains"}, "updates4": {"updates": 4},
        "exact": {"checker": "exact"}, "random": {"checker": "random"}, **{f"g{g}": {"group": g, "problems": 256 // g} for g in (2, 4, 16, 32)}}


@pytest.mark.parametrize("name", [n for m, n in RECORDS if m == "mini" and n.rpartition("-s")[0] in ARMS])
def test_an_arm_changes_what_its_name_says_and_nothing_else(name):
    run, arm = runs.load(name, quiet=True), name.rpartition("-s")[0]
    cfg = TrainConfig(**{f.name: run.config[f.name] for f in fields(TrainConfig) if f.name in run.config})
    changed = {key: new for key, (_, new) in differences(RECIPES["mini"]["main"], cfg).items()}
    seed = {"seed": int(name.rpartition("-s")[2])} if not name.endswith("-s1") else {}
    assert changed == {"steps": 100, **ARMS[arm], **seed} and run.config["init"] == START, f"{name} changes {changed}"
    assert len(run.metrics) == 100 and [e["step"] for e in run.evals] == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("name", [n for m, n in RECORDS if m == "mini" and n.rpartition("-s")[0] in set(ARMS) - {"g2", "g4", "g16", "g32"}])
def test_arms_of_one_seed_meet_the_same_problems(name):
    run, main = runs.load(name, quiet=True), f"main-s{name.rpartition('-s')[2]}"
    if ("mini", main) not in RECORDS:
        pytest.skip(f"{main} is not recorded yet")
    asked = lambda r: r.replies[(r.replies["set"] == "train") & (r.replies["step"] <= 100)][["step", "a", "b", "template"]].values.tolist()
    assert asked(run) == asked(runs.load(main, quiet=True)), f"{name} trained on other problems than {main}"


@pytest.mark.parametrize("folder", sorted((DATA / "benchmarks").glob("*/*/run.json")), ids=lambda p: p.parent.name)
def test_a_benchmark_record_follows_from_its_log_likelihoods(folder):
    from grpo_lib import benchmarks
    scores = json.loads((folder.parent / "scores.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in gzip.decompress((folder.parent / "picks.jsonl.gz").read_bytes()).decode("utf-8").splitlines()]
    for task in benchmarks.TASKS:
        items, mine = benchmarks.questions(task), [r for r in rows if r["task"] == task]
        assert [(r["id"], r["gold"]) for r in mine] == [(q["id"], q["gold"]) for q in items], f"{task}: other questions than those that ship"
        again = benchmarks.accuracy([r["loglikelihoods"] for r in mine], items)
        for name, value in again.items():                      # log-likelihoods are recorded to four digits: a tie may fall otherwise
            assert value == pytest.approx(scores[task][name], abs=2 / len(items)), f"{task} {name}"


@pytest.mark.parametrize("folder", sorted((DATA / "talk").glob("*/*/run.json")), ids=lambda p: p.parent.name)
def test_a_chat_record_follows_from_its_replies(folder):
    from grpo_lib import talk
    from grpo_lib.prompts import FIXED, unseen_prompts
    scores = json.loads((folder.parent / "scores.json").read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in gzip.decompress((folder.parent / "replies.jsonl.gz").read_bytes()).decode("utf-8").split("\n") if line]
    assert [r["prompt"] for r in rows] == [*FIXED, *talk.ARITHMETIC, *unseen_prompts()]
    unseen = [r for r in rows if r["kind"] == "unseen"]
    assert scores["ended"] == sum(r["ended"] for r in unseen) and scores["n"] == len(unseen) == 100
    assert scores["length"] == pytest.approx(sum(r["length"] for r in unseen) / 100) and scores["chat_loss"]["n"] == len(talk.replay.held_out())


def test_mini_chats_and_cannot_add():
    record = json.loads((DATA / "mini" / "build.json").read_text(encoding="utf-8"))
    said = record["replies"]
    assert len(said) == 100 and sum(r["ended"] for r in said) >= 80, f"{sum(r['ended'] for r in said)} of {len(said)} replies end"
    assert len({r["reply"] for r in said}) >= 80
    assert 2_000_000 <= record["parameters"] <= 4_000_000
    chat = runs.load("chat", quiet=True).at()
    assert chat["greedy"]["n"] == 500 and chat["greedy"]["strict"] == 0 and chat["sampled"]["strict"] == 0


def test_mini_says_today_what_its_card_says():
    record = json.loads((DATA / "mini" / "build.json").read_text(encoding="utf-8"))
    from grpo_lib.build_mini import card
    from grpo_lib.prompts import unseen_prompts
    from grpo_lib.talk import ask
    model, tokenizer = load("mini")
    now = ask(model, tokenizer, unseen_prompts(), 256)
    same = sum(a["reply"] == b["reply"] for a, b in zip(now, record["greedy_replies"]))
    assert same >= 90, f"{same} of 100 greedy replies are those of the card"
    assert (DATA / "mini" / "README.md").read_text(encoding="utf-8") == card(record)


def test_replay_chats_hold_no_sum_and_no_held_out_prompt():
    chats = read()
    text = ["\n".join(m["content"] for m in c) for c in chats]
    assert len(chats) >= 2000 and not any(map(has_sum, text)), "a replay chat contains a sum"
    assert len({c[0]["content"] for c in chats}) == len(chats)
    questions = {p.prompt for key in (3, 4, 5, "dev") for p in heldout(key)} | {p.prompt for p in sampling_set(3)}
    assert not questions & {c[0]["content"] for c in chats}
