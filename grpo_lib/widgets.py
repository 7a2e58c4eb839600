"""Four things to play with: a checker playground, an advantage explorer, browsers of recorded replies to sums and to chat prompts; and `say`.

Each is a pure function (text, DataFrame or Figure out) with controls around it. A notebook stores two things: the same
content as text, which strict nbval compares and GitHub shows, and a view of the widget, which a running kernel shows instead.
Contents are HTML and Image widgets that are set, never an Output widget: nbval cannot see what an Output has captured.
"""
import html

import ipywidgets as ipw
import pandas as pd
from IPython.display import display

from grpo_lib import draw, plots
from grpo_lib.checker import DIGITS, KINDS, final_number, reward

VIEW = "application/vnd.jupyter.widget-view+json"
LABEL = "(interactive: run this cell in JupyterLab)"


def display_with_fallback(widget, text):
    """Show the widget, and `text` where no kernel runs it (GitHub, a file just opened) or outside a notebook.

    The widget's changing id lies in the view alone, which nbval skips; it compares the text."""
    if draw.in_notebook():
        view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
        display({VIEW: view, "text/plain": f"{text}\n{LABEL}"}, raw=True)
    else:
        print(text)


def say(text):
    """Show prose whose numbers the caller has just computed, as Markdown, so that it speaks of the run at hand."""
    text = text.strip()
    display({"text/markdown": text, "text/plain": text}, raw=True)


def as_text(df, width=100):
    """A DataFrame as plain text without index, left-aligned, long cells cut to `width`, line breaks shown as a sign."""
    cells = [list(map(str, df.columns))] + [[_one_line(v, width) for v in row] for row in df.itertuples(index=False)]
    wide = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join("  ".join(v.ljust(w) for v, w in zip(row, wide)).rstrip() for row in cells)


def _one_line(value, width):
    text = str(value).replace("\n", "⏎")
    return text if len(text) <= width else text[:width - 3] + "..."


def _table(df):
    """An HTML table in which replies stand as text, whatever marks they hold."""
    cell = "<{0} style='text-align:left; padding:1px 10px; line-height:1.4'>{1}</{0}>"
    line = lambda tag, values: f"<tr>{''.join(cell.format(tag, html.escape(str(v))) for v in values)}</tr>"
    return f"<table>{line('th', df)}{''.join(line('td', row) for row in df.itertuples(index=False))}</table>"


def _watch(controls, redraw):
    """Call redraw now and whenever a control changes."""
    for control in controls:
        control.observe(lambda change: redraw(), "value")
    redraw()


# ---- notebook 01: checker playground

def verdicts(reply, answer):
    """DataFrame, a row per checker kind: what it pays for this reply and what it saw. ValueError for a bad answer."""
    closing, runs = final_number(reply), DIGITS.findall(reply)
    seen = f"the closing number {closing}" if closing else "no closing phrase"
    saw = {"strict": seen, "exact": seen, "contains": f"numbers: {', '.join(runs) or 'none'}"}
    pays = {kind: f"{reward(reply, answer, kind):g}" for kind in KINDS}
    return pd.DataFrame([{"kind": kind, "pays": pays[kind], "saw": saw[kind]} for kind in KINDS])


def playground(reply="I think 41. The answer is 042.", answer=42):
    """Type a reply and the right answer, read what the three kinds pay. Notebook 01."""
    box = ipw.Textarea(value=reply, description="reply", layout=ipw.Layout(width="600px", height="70px"))
    right = ipw.BoundedIntText(value=answer, min=0, max=10 ** 6, description="answer")
    out = ipw.HTML()
    _watch((box, right), lambda: setattr(out, "value", _table(verdicts(box.value, right.value))))
    asked = f"reply: {_one_line(reply, 100)}   right answer: {answer}"
    display_with_fallback(ipw.VBox([box, right, out]), f"{asked}\n{as_text(verdicts(reply, answer))}")
    return None


# ---- notebook 04: advantage explorer

def group(right, G=8, std=True):
    """(r, adv), two lists of G: `right` replies of G are paid 1, the rest 0. ValueError unless 0 <= right <= G."""
    if not 0 <= right <= G:
        raise ValueError(f"right is {right}: give a number from 0 to G = {G}")
    from grpo_lib.loss import group_advantages                          # here, so that notebook 01 need not load torch
    r = [1.0] * right + [0.0] * (G - right)
    return r, group_advantages([r], std)[0].tolist()


def advantage_figure(right, G=8, std=True):
    """The bars of one group: Figure."""
    r, adv = group(right, G, std)
    silent = ": silent, nothing to learn" if right in (0, G) else ""
    return plots.advantages(r, adv, f"{right} of {G} right, std {'on' if std else 'off'}{silent}")


def advantage_table(G=8):
    """DataFrame: the advantage of a right and of a wrong reply for each number right, std on and off."""
    rows = []
    for right in range(G + 1):
        pairs = {"on": group(right, G, True)[1], "off": group(right, G, False)[1]}
        row = {f"{who}, std {key}": f"{adv[i]:+.2f}" if (right if i == 0 else G - right) else "-"
               for key, adv in pairs.items() for who, i in (("right", 0), ("wrong", -1))}
        rows.append({f"right of {G}": right, **row})
    return pd.DataFrame(rows)


def advantage_explorer(G=8, right=2):
    """Slide how many of G replies are right, switch std on and off, see the advantages. Notebook 04."""
    slider = ipw.IntSlider(value=right, min=0, max=G, description="right")
    std = ipw.Checkbox(value=True, description="divide by std")
    out = ipw.Image(format="png", width=600)
    _watch((slider, std), lambda: setattr(out, "value", draw.png(advantage_figure(slider.value, G, std.value))))
    display_with_fallback(ipw.VBox([ipw.HBox([slider, std]), out]), as_text(advantage_table(G)))
    return None


# ---- notebook 04: reply browser

def pages(replies):
    """The choices of a browser: {(set, step): [(a, b, template), ...]}, problems in the order met."""
    found = replies.drop_duplicates(["set", "step", "a", "b", "template"])
    return {key: list(part[["a", "b", "template"]].itertuples(index=False, name=None))
            for key, part in found.groupby(["set", "step"], sort=True)}


def reply_page(replies, set, step, problem=0, paid="all"):
    """The replies of one problem (its place in the list) at a step: DataFrame, one row a reply; may be empty.

    `paid` is what training paid, where it did, else what strict pays: "all", "paid" (above 0) or "unpaid"."""
    known = pages(replies).get((set, step), [])
    if not 0 <= problem < len(known):
        raise ValueError(f"no problem {problem} in set {set!r} at step {step}: there are {len(known)} there")
    a, b, template = known[problem]
    at = replies[(replies["set"] == set) & (replies["step"] == step) & (replies["a"] == a) & (replies["b"] == b)
                 & (replies["template"] == template)]
    reward_of = at["reward"].fillna(at["strict"]) if "reward" in at else at["strict"]
    keep = {"all": reward_of == reward_of, "paid": reward_of > 0, "unpaid": reward_of <= 0}[paid]
    who = ["greedy" if k < 0 else f"sample {k}" for k in at["sample"]]
    page = pd.DataFrame({"problem": f"{a} + {b} = {a + b}", "who": who, "reward": [f"{v:g}" for v in reward_of],
                         "tokens": at["length"].to_list(), "reply": at["reply"].to_list()})
    return page[keep.to_numpy()].reset_index(drop=True)


def reply_browser(run, set="3", step=None, problem=0):
    """Leaf through a run's replies by set, step, problem and reward; opens at the last step. Notebook 04."""
    choices = pages(run.replies)
    if not any(key[0] == set for key in choices):
        raise ValueError(f"{run.name} holds no replies of set {set!r}; it holds {sorted({key[0] for key in choices})}")
    steps_of = lambda name: [key[1] for key in choices if key[0] == name]
    step = steps_of(set)[-1] if step is None else step
    which = ipw.Dropdown(options=sorted({key[0] for key in choices}), value=set, description="set")
    when = ipw.SelectionSlider(options=steps_of(set), value=step, description="step")
    place = ipw.BoundedIntText(value=problem, min=0, max=len(choices[set, step]) - 1, description="problem")
    paid = ipw.ToggleButtons(options=["all", "paid", "unpaid"])
    out = ipw.HTML()

    def redraw():
        if when.options != tuple(steps_of(which.value)):
            when.options = steps_of(which.value)                        # another set was evaluated at other steps
        place.max = len(choices[which.value, when.value]) - 1           # a value above it is lowered to it
        page = reply_page(run.replies, which.value, when.value, place.value, paid.value)
        out.value = _table(page) if len(page) else f"no {paid.value} reply on this page"

    _watch((which, when, place, paid), redraw)
    page = as_text(reply_page(run.replies, set, step, problem))
    controls = [ipw.HBox([which, when]), ipw.HBox([place, paid])]
    display_with_fallback(ipw.VBox([*controls, out]), f"set {set}, step {step}, problem {problem}\n{page}")
    return None


# ---- notebook 07: one prompt, every model

def talk_page(records, prompt):
    """The replies of every model to one prompt: DataFrame, a row a model. records: {words: rows of a chat record}. ValueError for an unknown prompt."""
    found = [(words, row) for words, rows in records.items() for row in rows if row["prompt"] == prompt]
    if not found:
        raise ValueError(f"no record holds the prompt {prompt!r:.60}")
    return pd.DataFrame([{"model": words, "tokens": row["length"], "ended": "yes" if row["ended"] else "no", "reply": row["reply"]} for words, row in found])


def talk_browser(records, prompt):
    """Choose a prompt, read what each model replies, side by side; opens at `prompt`. Notebook 07."""
    prompts = list(dict.fromkeys(row["prompt"] for rows in records.values() for row in rows))
    page = talk_page(records, prompt)
    box = ipw.Dropdown(options=prompts, value=prompt, description="prompt", layout=ipw.Layout(width="600px"))
    out = ipw.HTML()
    _watch((box,), lambda: setattr(out, "value", _table(talk_page(records, box.value))))
    display_with_fallback(ipw.VBox([box, out]), f"{prompt}\n{as_text(page)}")
    return None
