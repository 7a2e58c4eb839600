"""The record of many samples: what is asked and on which streams, whole sets only, and refusals that leave nothing behind."""

import pytest
from tiny import load, make_folder

from grpo_lib import __main__ as cli
from grpo_lib import evaluate, report, runs, warmstart
from grpo_lib.task import heldout, sampling_set, worked

LINE = ("samples --model tiny --samples 8 --seed 3 --sets").split()


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("samples"))


@pytest.fixture
def few(monkeypatch, tmp_path):
    """The first five and the first three problems stand for the sets; records are looked for in tmp_path."""
    monkeypatch.setattr(warmstart, "heldout", lambda key: heldout(key)[:5])
    monkeypatch.setattr(warmstart, "sampling_set", lambda key: heldout(key)[:3])
    monkeypatch.setenv("GRPO_RUNS", str(tmp_path))
    return tmp_path / "tiny"


def command(start, out, *sets, extra=()):
    return cli.main([*LINE, *map(str, sets), "--init", str(start), "--out", str(out), *extra])


def test_the_command_leaves_a_record_that_follows_from_its_replies(start, few, capsys):
    assert command(start, few / "s3", 5, 3, 4) == 0
    assert [line[:6] for line in capsys.readouterr().out.splitlines() if line.startswith("set")] == ["set 5:", "set 3:", "set 4:"]
    run = runs.load("s3", "tiny", quiet=True)
    tokenizer = load(start)[1]
    longest = len(tokenizer.encode(worked(99_999, 99_999))) + 16
    assert run.config == {"init": "start", "model": "tiny", "samples": 8, "seed": 3, "max_tokens": {"3": 128, "4": longest, "5": longest}}
    assert run.metrics.empty and "recorded" not in run.source() and run.provenance["seed"] == 3
    entry = run.at()
    for key in ("3", "4", "5"):
        part = entry if key == "3" else entry[key]
        asked = [(p.a, p.b, p.template) for p in heldout(int(key))[:5]]
        greedy, drawn = report.greedy(run, 0, key), report.sampled(run, 0, key)
        assert list(zip(greedy["a"], greedy["b"], greedy["template"])) == asked and part["greedy"]["n"] == 5
        assert list(zip(drawn["a"], drawn["b"], drawn["template"])) == [p for p in asked[:3] for _ in range(8)]
        assert drawn["sample"].tolist() == list(range(8)) * 3 and part["sampled"]["n"] == 24
        assert part["sampled"]["length"] == pytest.approx(drawn["length"].mean()) and "all_wrong" in part["sampled"]
        assert drawn["length"].max() <= run.config["max_tokens"][key]
    assert len(run.replies) == 3 * 29


def test_a_set_s_replies_do_not_depend_on_the_other_sets_or_the_batch(start, few):
    assert command(start, few / "all", 3, 4) == command(start, few / "four", 4, extra=["--batch", "5"]) == 0
    assert command(start, few / "seed", 4, extra=["--seed", "4"]) == 0
    drawn = {name: report.sampled(runs.load(name, "tiny", quiet=True), 0, "4")["reply"].tolist() for name in ("all", "four", "seed")}
    assert drawn["all"] == drawn["four"] != drawn["seed"], "the stream of a set is a function of seed and set"


def test_what_is_asked_of_the_real_sets(start, monkeypatch, tmp_path):
    asked = []

    def replies(model, tokenizer, problems, samples, temperature, max_tokens, generator, batch, progress, step, set):
        asked.append((set, problems, samples, temperature, max_tokens, generator.initial_seed(), batch))
        return [dict(step=step, set=set, a=1, b=2, template=0, sample=0, reply="", length=1, ended=True, strict=0, exact=0,
                     contains=0)] * 64, None

    monkeypatch.setattr(evaluate, "replies", replies)
    warmstart.samples(start, tmp_path / "out", "tiny", max_tokens=512, batch=99)
    assert [(key, problems, samples) for key, problems, samples, *_ in asked] == [
        (str(key), problems, n) for key in (3, 4, 5) for problems, n in ((heldout(key), 0), (sampling_set(key), 64))]
    assert [len(problems) for _, problems, *_ in asked] == [500, 200, 200, 100, 200, 100]
    assert {row[3:5] for row in asked} == {(1.0, 512)} and {row[-1] for row in asked} == {99}
    assert [row[5] for row in asked[1::2]] == [evaluate.stream("samples", 1, key).initial_seed() for key in (3, 4, 5)]


def test_an_interrupted_command_leaves_whole_sets_only(start, few, monkeypatch, capsys):
    true = evaluate.replies

    def stops(model, tokenizer, problems, samples, *more, **tags):
        if tags["set"] == "4" and samples:
            raise KeyboardInterrupt
        return true(model, tokenizer, problems, samples, *more, **tags)

    monkeypatch.setattr(evaluate, "replies", stops)
    assert command(start, few / "cut", 3, 4) == 130
    run = runs.load("cut", "tiny", quiet=True)
    assert set(run.replies["set"]) == set(run.config["max_tokens"]) == {"3"} and "4" not in run.at(), "half of set 4 was recorded"
    before = {p.name: p.read_bytes() for p in (few / "cut").iterdir()}
    monkeypatch.setattr(evaluate, "replies", true)
    capsys.readouterr()
    assert command(start, few / "cut", 3, 4) == 2 and "already holds a record: give another --out" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in (few / "cut").iterdir()} == before, "a refused command changed the record"


def test_the_record_names_the_run_whose_model_folder_it_measured(start, few):
    (few / "main-s1").mkdir(parents=True)
    (few / "main-s1" / "model").symlink_to(start, target_is_directory=True)
    assert command(few / "main-s1" / "model", few / "s", 3) == 0
    assert runs.load("s", "tiny", quiet=True).config["init"] == "main-s1"


@pytest.mark.parametrize("words, says", [
    (["--samples", "7"], "samples is 7: give a whole number of at least 8"), (["--sets", "3", "3"], "sets is [3, 3]"),
    (["--max-tokens", "0"], "max_new_tokens must be"), (["--batch", "0"], "rows must be"), (["--init", "nowhere"], "no model at nowhere"),
])
def test_bad_input_is_one_line_and_leaves_nothing(start, few, words, says, capsys):
    assert command(start, few / "bad", 3, extra=words) == 2
    err = [line for line in capsys.readouterr().err.splitlines() if "grpo_lib samples:" in line]
    assert len(err) == 1 and says in err[0], err
    assert not (few / "bad").exists(), "something was left behind"


def test_out_is_needed_and_other_sets_are_refused_by_the_parser(capsys):
    assert cli.main(["samples"]) == 2 and "needs --out" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["samples", "--sets", "6"])
