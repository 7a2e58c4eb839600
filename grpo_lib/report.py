"""From run records to rows that stand beside the article's numbers: every value with its interval and n, none typed by hand.

`ARTICLE` holds facts that the article states; everything else is computed from the rows of a run.
"""
from grpo_lib.analysis import bootstrap, gain_split, paired, style, wilson

ARTICLE = {"start greedy": 0.178, "start sampled": 0.114, "start silent groups": 0.64, "start worked": 0.59,
           "end greedy": 0.774, "end sampled": 0.599, "gain greedy": 0.596, "end worked": 0.98, "reply tokens start": 42, "reply tokens end": 60}
CLAIM = {"start": "C11", "end": "C17", "gain": "C17", "reply": "C29"}


def greedy(run, step=None, key="3"):
    """The greedy rows of a run at a step (the last by default), in the order of the held-out set."""
    rows = run.replies[(run.replies["set"] == key) & (run.replies["sample"] < 0)]
    return rows[rows["step"] == (rows["step"].max() if step is None else step)]


def sampled(run, step=None, key="3"):
    """The sampled rows of a run at a step (the last by default)."""
    rows = run.replies[(run.replies["set"] == key) & (run.replies["sample"] >= 0)]
    return rows[rows["step"] == (rows["step"].max() if step is None else step)]


def by_problem(rows, kind="strict"):
    """Rewards of sampled rows as one list per problem, in order of appearance."""
    return rows.groupby(["a", "b"], sort=False)[kind].apply(list).tolist()


def by_style(rows, kind="strict"):
    """{style: (share of replies, share right among them)} for the styles that occur."""
    styles = rows["reply"].map(style)
    return {s: ((styles == s).mean(), rows.loc[styles == s, kind].mean()) for s in sorted(styles.unique())}


def split_gain(before, after):
    """The gain in sampled accuracy split into style and column parts; -> analysis.gain_split of two runs' sampled rows."""
    names = sorted(set(before) | set(after))
    share = lambda side: {s: side.get(s, (0.0, 0.0))[0] for s in names}
    right = lambda side: {s: side.get(s, (0.0, 0.0))[1] for s in names}
    return gain_split(right(before), share(before), right(after), share(after))


def rows(main, group=8):
    """[{claim, quantity, article, value, low, high, n}] for the start (step 0) and the end of a main run."""
    first, last = min(main.replies["step"]), max(main.replies[main.replies["set"] == "3"]["step"])
    out = []

    def add(quantity, n, value, low, high):
        out.append({"claim": CLAIM[quantity.split()[0]], "quantity": quantity, "article": ARTICLE[quantity],
                    "value": float(value), "low": float(low), "high": float(high), "n": n})

    for name, step in (("start", first), ("end", last)):
        g, s = greedy(main, step), sampled(main, step)
        add(f"{name} greedy", len(g), *wilson(int(g["strict"].sum()), len(g)))
        values = by_problem(s)
        add(f"{name} sampled", len(s), *bootstrap(values))
        add(f"{name} worked", len(s), *bootstrap([[style(t) == "worked" for t in part] for part in by_problem(s, "reply")]))
        add(f"reply tokens {name}", len(s), *bootstrap(by_problem(s, "length")))
    a, b = greedy(main, last)["strict"].tolist(), greedy(main, first)["strict"].tolist()
    add("gain greedy", len(a), *paired(a, b))
    return out


def table(rows):
    """The rows as aligned text for a terminal."""
    percent = lambda r, v: f"{v:.1f}" if "tokens" in r["quantity"] else f"{v:.1%}"
    lines = [f"{'claim':6}{'quantity':22}{'article':>9}{'here':>9}   95% interval       n"]
    lines += [f"{r['claim']:6}{r['quantity']:22}{percent(r, r['article']):>9}{percent(r, r['value']):>9}   "
              f"{percent(r, r['low']):>6} to {percent(r, r['high']):<7}{r['n']:>5}" for r in rows]
    return "\n".join(lines)
