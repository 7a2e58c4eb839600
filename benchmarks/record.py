"""The record of speed: rows of single timings (runs.csv) in; summary.json, tables and the figure out. No model runs here.

summary.json is a function of the rows, but for what says how they were made (`machine`, `provenance`) and the seconds of
the main run. A `cell` is all repeats of one timing; it has their median and their lowest and highest.
"""
import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.ticker import NullLocator

from benchmarks import work
from grpo_lib import draw, runs
from grpo_lib.config import DATA
from grpo_lib.model import read_config

OUT = DATA / "speed"
PARTS = ("generate", "step", "limits", "growth")
TARGETS = {("generate", "mini@256"): 3, ("generate", "smollm2@256"): 3, ("generate", "smollm2@256 bfloat16"): 3, ("step", "mini"): 3, ("step", "smollm2"): 2,
           ("gemm_share", "train_smollm2"): 0.6, ("gemm_share", "decode_smollm2"): 0.5, ("gemm_share", "decode_smollm2 bfloat16"): 0.5, ("gemm_share", "decode_mini"): 0.5}
RATES = {"tokens_per_second": "tokens", "flops_per_second": "flops", "executed_per_second": "flops_executed",
         "bytes_per_second": "bytes"}
KEYS = ["model", "weights", "x", "limit", "dtype", "who", "setting"]
COLUMNS = ["part", *KEYS, "repeat", "seconds", "tokens", "flops", "flops_executed", "bytes"]


def cells(table, part):
    """Medians of a part's rows with their spread: one dict a cell (model, weights, x, limit, who, setting)."""
    table = table[table["part"] == part].copy()
    for name, column in RATES.items():
        table[name] = table[column] / table["seconds"]
    medians = {name: (name, "median") for name in ("seconds", "tokens", *RATES)}
    groups = table.groupby(KEYS, sort=False)
    return groups.agg(n=("seconds", "size"), low=("seconds", "min"), high=("seconds", "max"), **medians).reset_index()


def ratios(cell, rival):
    """{(model, weights, x, dtype): ours / the rival's best, by tokens per second for generate, by seconds for a step}."""
    speed = cell["tokens_per_second"] if rival == "transformers" else 1 / cell["seconds"]
    whole = cell.assign(speed=speed)[cell["setting"] != "train"]
    best = whole.groupby(["who", "model", "weights", "x", "dtype"], sort=False)["speed"].max()
    who = best.index.get_level_values("who")
    return (best[who == "ours"].droplevel("who") / best[who == rival].droplevel("who")).dropna().to_dict()


def summarise(table):
    """summary.json's numbers from the rows of runs.csv. `mini@256` is the lower of chat and warm, and so is each share; what is not in float32 names its dtype.

    gemm_share: needed work a second over the rate of the products alone; executed_share counts padding and prompts read
    again as work too; bandwidth_share: what decoding must read a second over what a copy moves."""
    parts, out = {part: cells(table, part) for part in PARTS}, {key: {} for key in (
        "generate", "step", "gemm_share", "executed_share", "bandwidth_share", "gemm_flops_per_second")}
    lower = lambda part, key, value: out[part].update({key: min(value, out[part].get(key, value))})
    told = lambda key, dtype: key if dtype == "float32" else f"{key} {dtype}"
    for (model, weights, x, dtype), ratio in ratios(parts["generate"], "transformers").items():
        out["generate"][told(f"{model}-{weights}@{x:.0f}", dtype)] = ratio
        lower("generate", told(f"{model}@{x:.0f}", dtype), ratio)
    for (model, *_), ratio in ratios(parts["step"], "trl").items():
        lower("step", model, ratio)
    limits, rates = parts["limits"], out["gemm_flops_per_second"]
    for row in limits[limits["who"] != "copy"].itertuples():                         # the faster way to use the cores
        key = f"{row.who}_{row.model}_{row.setting.split()[0]}"
        rates[key] = max(row.flops_per_second, rates.get(key, 0.0))
    copied = limits.loc[limits["who"] == "copy", "bytes_per_second"].max()
    train, decode = parts["step"].query("setting == 'train'"), parts["generate"].query("who == 'ours' and x == 256")
    for what, rows in (("train", train), ("decode", decode)):
        for row in rows.itertuples():
            if rate := rates.get(f"{what}_{row.model}_{row.dtype}"):
                lower("gemm_share", told(f"{what}_{row.model}", row.dtype), row.flops_per_second / rate)
                if what == "train":
                    lower("executed_share", f"train_{row.model}", row.executed_per_second / rate)
                else:
                    lower("bandwidth_share", told(f"decode_{row.model}", row.dtype), row.bytes_per_second / copied)
    out["copy_bytes_per_second"] = None if np.isnan(copied) else float(copied)
    plain = lambda cell: json.loads(cell.dropna(axis=1, how="all").to_json(orient="records"))
    out["cells"] = {part: plain(cell) for part, cell in parts.items()}
    return out


def write(rows, part, name, seconds, words, threads, folder=OUT):
    """Put rows in place of earlier ones of the same part, model, weights, x and dtype; write runs.csv and summary.json anew."""
    folder.mkdir(parents=True, exist_ok=True)
    table, path, before = pd.DataFrame(rows).assign(part=part).reindex(columns=COLUMNS), folder / "runs.csv", {}
    if path.is_file():
        old, before = pd.read_csv(path, encoding="utf-8"), read(folder)
        keys = lambda rows: pd.MultiIndex.from_frame(rows[["part", "model", "weights", "x", "dtype"]])
        table = pd.concat([old[~keys(old).isin(keys(table))], table])
    made = runs.provenance(seconds, command=" ".join(["python -m benchmarks.speed", *words]), threads=threads)
    made["versions"] |= {d.name: d.version for d in metadata.distributions() if d.name in ("transformers", "trl")}
    summary = {**summarise(table), "machine": made["machine"],
               **{key: before[key] for key in ("main_run", "main_run_seconds") if key in before},
               "provenance": before.get("provenance", {}) | {f"{part} {name}": made}}
    runs.put_all({path: table.to_csv(index=False, float_format="%.8g", lineterminator="\n").encode("utf-8"),
                  folder / "summary.json": (json.dumps(summary, indent=1) + "\n").encode("utf-8")})


def read(folder=OUT):
    """The summary in a folder. FileNotFoundError where nothing was measured yet."""
    return json.loads((Path(folder) / "summary.json").read_text(encoding="utf-8"))


def main_run(folder):
    """{seconds, steps, distinct, flops} of a main run of `mini` that had all cores to itself: its record's time, the work counted, and
    how many states there were for each reply token, first and last ten steps (1: replies share nothing)."""
    part = lambda name: json.loads((Path(folder) / name).read_text(encoding="utf-8"))
    table, config = pd.read_csv(Path(folder) / "metrics.csv", encoding="utf-8"), part("config.json")
    distinct = table["states"] / (table["length"] * config["problems"] * config["group"])
    return {"seconds": part("run.json")["seconds"], "steps": len(table), "made": part("run.json"),
            "distinct": {"first": float(distinct.head(10).mean()), "last": float(distinct.tail(10).mean())},
            "flops": work.run_flops(read_config(DATA / "mini"), config, table.to_dict("records"), part("evals.json"))}


def print_table(summary):
    """The README's tables: ratios and shares against the targets, then each cell's median with its spread."""
    parts = ("generate", "step", "gemm_share", "executed_share", "bandwidth_share")
    rows = [{"what": f"{part} {key}", "reached": value, "target": TARGETS.get((part, key), "")}
            for part in parts for key, value in summary[part].items()]
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.2f}".format))
    columns = ["model", "weights", "x", "limit", "who", "setting", "n", "seconds", "low", "high", "tokens_per_second"]
    for part, cell in summary["cells"].items():
        if cell:
            shown = pd.DataFrame(cell).reindex(columns=columns).dropna(axis=1, how="all")
            print(f"\n{part}\n{shown.to_string(index=False, float_format='{:.4g}'.format)}")


def overview(summary):
    """The README's lines: ours beside the rival's best, how many times as fast and what was asked; shares of the machine; the main run."""
    cells, lines = {part: pd.DataFrame(rows) for part, rows in summary["cells"].items()}, [f"{'':50}{'ours':>9}{'rival':>9}{'times':>8}{'asked':>7}"]
    for (part, key), target in TARGETS.items():
        if part != "gemm_share" and key in summary[part]:
            (name, _, dtype), (model, _, x) = key.partition(" "), key.partition(" ")[0].partition("@")
            column, unit = {"generate": ("tokens_per_second", "tokens/s"), "step": ("seconds", "s")}[part]
            at = cells[part].query("model == @model and setting != 'train'" + (f" and x == {x} and dtype == '{dtype or 'float32'}'" if x else ""))
            best = at.groupby(["weights", "who"])[column].agg("max" if part == "generate" else "min").unstack()
            rival = best.columns.difference(["ours"])[0]
            pair = best.assign(times=best["ours"] / best[rival] if part == "generate" else best[rival] / best["ours"]).sort_values("times").iloc[0]
            lines.append(f"{f'{part} {name}, {unit}, {rival}' + ' bf16' * bool(dtype):50}{pair['ours']:>9.{1 if part == 'step' else 0}f}{pair[rival]:>9.{1 if part == 'step' else 0}f}"
                         f"{summary[part][key]:>8.1f}{target:>7}")
    lines.append(f"{'share of the matrix product rate':50}{'needed':>9}{'executed':>9}{'':8}{'asked':>7}")
    for key, share in summary["gemm_share"].items():
        done, asked = summary["executed_share"].get(key), TARGETS.get(("gemm_share", key))
        lines.append(f"{key.replace('_', ' '):50}{share:>9.0%}{'' if done is None else format(done, '.0%'):>9}{'':8}{format(asked, '.0%') if asked else '':>7}")
    if "main_run" in summary:
        run, rate = summary["main_run"], summary["gemm_flops_per_second"].get("train_mini_float32")
        lines.append(f"{'main run of mini, minutes':50}{run['seconds'] / 60:>9.1f}{'':17}{10:>7}")
        if rate:
            lines.append(f"{'  its matrix products alone':50}{run['flops'] / rate / 60:>9.1f}")
        if told := run.get("distinct"):
            lines.append(f"{'  states a reply token, first and last ten steps':50}{told['first']:>9.2f}{told['last']:>9.2f}")
    return "\n".join(line.rstrip() for line in lines)


@draw.figure
def speed_figure(summary):
    """Tokens per second by rows, ours and transformers' faster cache (the lower of the weights); ratios and their targets."""
    bars = [(f"{part}\n{key}", summary[part][key], target) for (part, key), target in TARGETS.items()
            if part in ("generate", "step") and key in summary[part]]
    told = ", ".join(f"{words.replace(chr(10), ' ')} {value:.1f}" for words, value, _ in bars)
    fig, (left, ax) = draw.new(f"Times as fast as the usual libraries: {told}", 2, width_ratios=(1.35, 1))
    cell, ends = pd.DataFrame(summary["cells"]["generate"]), []
    for (model, who), g in cell.groupby(["model", "who"], sort=False):
        best = g.loc[g.groupby(["weights", "x"])["tokens_per_second"].idxmax()]
        worst = best.loc[best.groupby("x")["tokens_per_second"].idxmin()]
        x, y, colour = worst["x"], worst["tokens_per_second"], draw.ROLES["grpo" if who == "ours" else "chat"]
        reach = [y - y * worst["seconds"] / worst["high"], y * worst["seconds"] / worst["low"] - y]
        left.errorbar(x, y, reach, color=colour, marker="o", linestyle="-" if model == "mini" else "--", capsize=2)
        ends.append((x.iloc[-1], y.iloc[-1], f"{model}, {who}", colour, 7 if who == "ours" else -20))
    left.set(xscale="log", yscale="log", xlabel="replies at once", ylabel="reply tokens per second")
    left.set_xticks(sorted(set(cell["x"])), [f"{x:.0f}" for x in sorted(set(cell["x"]))])
    left.xaxis.set_minor_locator(NullLocator())
    for x, y, words, colour, dy in ends:
        draw.note(left, words, x, y, 0, dy, colour, "right")
    for i, (_, value, target) in enumerate(bars):
        ax.bar(i, value, 0.65, color=draw.ROLES["grpo"])
        ax.plot([i - 0.42, i + 0.42], [target] * 2, color=draw.INK, linewidth=1.4)
        draw.note(ax, f"{value:.1f}", i, max(value, target))
    draw.names(ax, [words.replace("@", "\n@") for words, *_ in bars])
    ax.tick_params(axis="x", labelsize=7)
    ax.set(ylabel="times as fast (line: target)")
    return fig
