"""The speed benchmark: counted work against torch's own counter, the record as a function of its rows, one tiny real run."""
import importlib
import json
from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from grpo_lib.config import ROOT
from grpo_lib.sampler import follow, generate, read
from grpo_lib.tree import grow


@pytest.fixture
def bench(monkeypatch):
    """bench(name): a module of benchmarks/, which is run from the root and not installed."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def counted(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


PROMPTS = [[5, 6, 7]] * 3 + [[8, 9, 10, 11, 12]] * 2
REPLIES = [[7, 8, 9, 4], [7], [7, 8, 6, 6, 6, 6], [9, 4], [9, 8, 7, 6, 4]]


def test_a_forward_pass_is_counted_as_torch_counts_it(bench, make_model):
    flops, model = bench("work").flops, make_model(num_key_value_heads=4)
    tokens = torch.randint(5, 300, (3, 7))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 0] = False                                     # a mask: torch then counts plain attention over every pair
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert counted(lambda: model(tokens, mask)) == flops(model.cfg, 21, 21, 3 * 7 * 7)


def test_scoring_executes_what_is_counted_and_its_backward_twice_that(bench, make_model):
    work, model = bench("work"), make_model(num_key_value_heads=4)
    micros = [[[0, 1, 2], [3]], [[4]]]
    def scored():
        told = read(model, PROMPTS)
        return sum(follow(model, told, grow(REPLIES, rows)).sum() for rows in micros)

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        forward = counted(scored)
        both = counted(lambda: scored().backward())
    assert forward == work.flops(model.cfg, *work.executed(PROMPTS, REPLIES, micros))
    assert both == 3 * forward, "policy's forward and backward are three forwards"


def test_needed_work_is_counted_token_by_token(bench):
    work, tokens, pairs = bench("work"), 0, 0
    for prompt in {tuple(p) for p in PROMPTS}:
        tokens, pairs = tokens + len(prompt), pairs + sum(range(1, len(prompt) + 1))
    read = [(3, 1), (3, 2), (3, 3), (3, 3), (3, 4), (3, 5), (5, 1), (5, 2), (5, 3), (5, 4)]      # prompt's and beginning's tokens, 7 8 once
    tokens, pairs = tokens + len(read), pairs + sum(p + n for p, n in read)
    assert work.needed(PROMPTS, REPLIES) == (tokens, 2 + len(read), pairs)
    padded = work.executed(PROMPTS, REPLIES, [[[0, 1, 2], [3, 4]]])
    assert all(a >= b for a, b in zip(padded, work.needed(PROMPTS, REPLIES))), "padding cannot save work"


def test_decoding_reads_the_weights_once_a_step(bench, tiny):
    work = bench("work")
    weights = sum(p.numel() for name, p in tiny.named_parameters() if p.dim() > 1)
    keys = 2 * tiny.cfg.num_hidden_layers * tiny.cfg.num_key_value_heads * tiny.cfg.head_dim
    apart, alike = [[7, 8, 4], [8, 8, 4]], [[7, 8, 4], [7, 8, 9]]
    assert work.decode_bytes(tiny.cfg, [[5, 6]], [[4]], 1) == 4 * weights
    assert work.decode_bytes(tiny.cfg, [[5, 6]] * 2, apart, 1) == 4 * (3 * weights + 2 * keys * (3 + 4))
    assert work.decode_bytes(tiny.cfg, [[5, 6]] * 2, alike, 1) == 4 * (3 * weights + keys * (3 + 4)), "what begins alike is read once"
    assert work.decode_bytes(tiny.cfg, [[5, 6]] * 2, apart, 2) == 4 * (6 * weights + 2 * keys * (3 + 4)), "each worker reads the weights"


def test_tokens_are_counted_to_the_first_end(bench):
    first_ends = bench("speed").first_ends
    assert first_ends(torch.tensor([[7, 4, 9, 4], [7, 7, 7, 7], [5, 7, 4, 4]]), (4, 5)).tolist() == [2, 4, 1]


def row(part, who, seconds, setting="ours", model="mini", weights="warm", x=256, **more):
    return {"part": part, "model": model, "weights": weights, "x": x, "limit": 8, "dtype": "float32", "who": who, "setting": setting, "repeat": 0,
            "seconds": seconds, **more}


TABLE = [row("generate", "ours", s, tokens=300, flops=600, bytes=30) for s in (1.0, 9.0, 1.0)] + [
    row("generate", "transformers", 2.0, "static", tokens=200), row("generate", "transformers", 4.0, "dynamic", tokens=600),
    row("generate", "ours", 1.0, weights="chat", tokens=200, flops=500, bytes=20),
    row("generate", "transformers", 2.0, "static", weights="chat", tokens=100),
    row("step", "ours", 2.0, "step"), row("step", "ours", 1.0, "train", flops=400, flops_executed=500),
    row("step", "trl", 6.0, "64 rows"), row("step", "trl", 5.0, "32 rows"),
    row("limits", "train", 1.0, "float32 cores", flops=800, weights="any"),
    row("limits", "train", 1.0, "float32 threads", flops=700, weights="any"),
    row("limits", "decode", 1.0, "float32 cores", flops=1000, weights="any"),
    row("limits", "copy", 1.0, "float32 threads", bytes=100, weights="any")]


def test_the_summary_follows_from_the_rows(bench):
    record = bench("record")
    out = record.summarise(pd.DataFrame(TABLE).reindex(columns=record.COLUMNS))
    assert out["generate"] == {"mini-warm@256": 2.0, "mini@256": 2.0, "mini-chat@256": 4.0}, "medians over the faster cache"
    assert out["step"] == {"mini": 2.5}, "TRL's faster micro-batch is the rival"
    assert out["gemm_share"] == {"train_mini": 0.5, "decode_mini": 0.5}, "the lower of the weights, over the faster way to use the cores"
    assert out["executed_share"] == {"train_mini": 0.625} and out["bandwidth_share"] == {"decode_mini": 0.2}


def test_bfloat16_is_told_apart_from_float32(bench):
    record = bench("record")
    more = [r | {"dtype": "bfloat16", "seconds": r["seconds"] / (4 if r["who"] == "ours" else 2)} for r in TABLE if r["part"] == "generate"]
    more.append(row("limits", "decode", 1.0, "bfloat16 cores", flops=4000, weights="any") | {"dtype": "bfloat16"})
    alone, out = (record.summarise(pd.DataFrame(rows).reindex(columns=record.COLUMNS)) for rows in (TABLE, TABLE + more))
    assert out["generate"]["mini@256 bfloat16"] == 4.0, "twice the ratio of float32, 2.0"
    assert out["gemm_share"]["decode_mini bfloat16"] == 0.5, "four times the work a second over four times the rate"
    for part in ("generate", "step", "gemm_share"):
        assert out[part].items() >= alone[part].items(), f"{part}: float32's numbers moved"


def test_a_new_timing_replaces_its_own_rows_only(bench, tmp_path):
    record = bench("record")
    first = [{k: v for k, v in r.items() if k != "part"} for r in TABLE if r["part"] == "generate"]
    write = lambda rows: record.write(rows, "generate", "mini", 1.0, ["--only", "generate"], 1, folder=tmp_path)
    write(first)
    write([r | {"seconds": r["seconds"] / 2} if r["who"] == "ours" else r for r in first if r["weights"] == "chat"])
    assert len(pd.read_csv(tmp_path / "runs.csv", encoding="utf-8")) == len(first), "rows were doubled or lost"
    told = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert told["generate"] == {"mini-warm@256": 2.0, "mini@256": 2.0, "mini-chat@256": 8.0}
    bars = record.speed_figure(told).axes[1].patches
    assert [bar.get_height() for bar in bars] == [2.0], "the figure shows another ratio than the record"
    assert told["provenance"]["generate mini"]["command"].startswith("python -m benchmarks.speed --only")


def test_the_work_of_a_whole_run_is_that_of_its_steps_and_evaluations(bench, tiny):
    work, cfg = bench("work"), tiny.cfg
    config = {"problems": 2, "group": 3, "beta": 0.04}
    one = work.run_flops(cfg, config, [{"length": 5.0}], [], prompt=4)
    assert one == pytest.approx(5 * work.flops(cfg, *work.needed([[1, 2, 3, 4]] * 3 + [[5, 6, 7, 8]] * 3, [[k] * 5 for k in range(6)])), rel=0.15), "five passes over six replies"
    assert work.run_flops(cfg, config | {"beta": 0.0}, [{"length": 5.0}], [], prompt=4) == pytest.approx(one * 4 / 5), "no reference"
    replies = [[1, 2, 3, k, 9] for k in range(3)] + [[1, 2, 3, 4, 9]] + [[1, 2, 3, 4, k] for k in (7, 8)]
    prompts = [[1, 2, 3, 4]] * 3 + [[5, 6, 7, 8]] * 3
    assert work.needed(prompts, replies)[1] == 2 + 6 + 4, "the example"
    shared = work.run_flops(cfg, config, [{"length": 5.0, "states": 12}], [], prompt=4)
    assert shared == pytest.approx(5 * work.flops(cfg, *work.needed(prompts, replies)), rel=0.05), "what is alike is passed once"
    evals = [{"greedy": {"n": 10, "length": 5.0}, "sampled": {"n": 6, "length": 5.0}}]
    assert work.run_flops(cfg, config, [], evals, prompt=4) == pytest.approx(one * (10 + 2 * 6) / 6 / 5, rel=0.5)


def test_transformers_and_ours_are_asked_the_same_and_counted_alike(bench, monkeypatch):
    transformers = pytest.importorskip("transformers")
    speed = bench("speed")
    model, tokenizer = speed.load("mini")
    rival = transformers.AutoModelForCausalLM.from_pretrained(speed.find("mini"), dtype=torch.float32).eval()
    prompts = speed.ask(tokenizer, 3, group=2)
    assert prompts[0] == prompts[1] != prompts[2] and len(prompts) == 3
    greedy = lambda **kwargs: rival.__class__.generate(rival, **(kwargs | {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}))
    monkeypatch.setattr(rival, "generate", greedy)
    ours = generate(model, prompts, 12, 0, tokenizer.end_ids).ids()
    for cache in ("dynamic", "static"):
        assert speed.theirs(rival, tokenizer, prompts, 12, cache) == ours, f"greedy replies differ with the {cache} cache"


def test_the_command_records_a_tiny_run(bench, tmp_path, capsys, monkeypatch):
    speed = bench("speed")
    monkeypatch.setitem(speed.STEP, "mini", replace(speed.MAIN, micro_tokens=16))
    monkeypatch.setitem(speed.SWEEPS, "mini", {"rows": (1, 2), "limit": (2,), "group": (1, 2), "update": (4,)})
    speed.main(["--only", "limits", "growth", "--models", "mini", "--weights", "chat", "--rows", "2", "--limit", "2", "--repeat", "1",
                         "--out", str(tmp_path)])
    told = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert told["gemm_flops_per_second"]["train_mini_float32"] > 0 and told["cells"]["growth"], "nothing was measured"
    swept = {(cell["who"], cell["setting"]) for cell in told["cells"]["growth"]}
    assert swept == {("generate", "rows"), ("generate", "limit"), ("generate", "group"), ("update", "rows")}
    assert "limits" in capsys.readouterr().out


@pytest.mark.parametrize("place, mark", [("speed", "speed"), ("speed/xeon", "speed xeon")])
def test_the_record_is_a_function_of_its_rows_and_the_readme_shows_it(place, mark, bench):
    record, folder = bench("record"), ROOT / "data" / place
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    again = record.summarise(pd.read_csv(folder / "runs.csv", encoding="utf-8"))
    for part in ("generate", "step", "gemm_share", "executed_share"):
        assert summary[part] == pytest.approx(again[part]), f"{part} of summary.json does not follow from runs.csv"
    shown = (ROOT / "README.md").read_text(encoding="utf-8").split(f"<!-- {mark} -->")[1].split("<!-- end -->")[0]
    wanted = record.overview(summary)
    assert [line.strip() for line in wanted.splitlines()] == [line.strip() for line in shown.strip().splitlines()], \
        f"README's table of speed is not what data/{place} says; it must read:\n" + wanted
