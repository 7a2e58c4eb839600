"""Figures: made from plain data, drawn whole, saved byte for byte the same, none left open; what they draw is right."""
import warnings

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from style import keeps_the_style, made_in

from grpo_lib import draw, plots
from grpo_lib.analysis import wilson

RATE = wilson(30, 100)


def metrics(steps=30):
    rng = np.random.default_rng(0)
    names = ("reward", "kl", "length", "entropy", "worked", "all_wrong", "all_right", "seconds_sample", "seconds_train")
    return pd.DataFrame({"step": range(1, steps + 1), **{name: rng.random(steps) / 2 for name in names}})


def attack():
    replies = ["The answer is 42.", "The answer is 41.", "x " * 99]
    return pd.DataFrame({"strict": [1, 0, 0], "partial": [1, 0.1, 0]}, index=replies)


CURVES = [("seed 1", [0, 25], [0.3, 0.5], 500), ("seed 2", [0, 25], [0.3, 0.6], 500)]
CHAT, START = {"strict": wilson(0, 9)}, dict.fromkeys(("sampled", "greedy", "silent"), RATE)
DRAWN = {
    "attack_table": lambda: plots.attack_table(attack(), "t"),
    "rates_bars": lambda: plots.rates_bars([("a", "chat", CHAT), ("b", "#444444", {"strict": RATE})], "t"),
    "silent_groups": lambda: plots.silent_groups([0, 0, 3, 8], 8, "t"),
    "lengths_hist": lambda: plots.lengths_hist([5, 60, 128, 128], 128, "t"),
    "examples_curve": lambda: plots.examples_curve([250, 500], [START, START], "t"),
    "style_split": lambda: plots.style_split({"worked": (50, 20), "direct": (50, 5)}, {"worked": (100, 80)}, "t"),
    "advantages": lambda: plots.advantages([1, 0, 0, 0], [1.7, -0.6, -0.6, -0.6], "t"),
    "loss_terms": lambda: plots.loss_terms("t"),
    "pilots": lambda: plots.pilots([(1e-4, 0.3, *RATE, 0.01), (2e-4, 0.3, *RATE, 0.0)], "t"),
    "training_curve": lambda: plots.training_curve(CURVES, "t", [("weak", [0, 25], [0.1, 0.0], 500)]),
    "reward_panels": lambda: plots.reward_panels(metrics(), "t"),
    "step_time": lambda: plots.step_time(metrics(), "t"),
}


def texts(fig):
    """Every text on a figure that is not empty, ticks included."""
    return [t.get_text() for t in fig.findobj(matplotlib.text.Text) if t.get_text()]


@pytest.mark.parametrize("name", DRAWN)
def test_each_figure_keeps_the_style(name):
    keeps_the_style(DRAWN[name], {"reward_panels": 4.2}.get(name, 3.2), framed=name == "attack_table")


def test_every_figure_is_tested():
    assert made_in(plots) == set(DRAWN)


def test_the_same_data_give_the_same_bytes_whatever_the_callers_style():
    once = draw.png(DRAWN["training_curve"]())
    with plt.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.dpi": 30}):
        assert draw.png(DRAWN["training_curve"]()) == once, "the caller's rcParams show"
        assert plt.rcParams["font.size"] == 20, "the caller's rcParams were changed"
    assert b"Software" not in once and b"tIME" not in once, "a version or a date is written into the picture"


def test_show_saves_where_the_run_belongs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(draw, "ROOT", tmp_path / "repo")
    monkeypatch.delenv("GRPO_RUNS", raising=False)
    assert draw.show(DRAWN["loss_terms"](), "04_loss") is None
    monkeypatch.setenv("GRPO_RUNS", str(tmp_path / "live"))
    draw.show(DRAWN["loss_terms"](), "04_loss")
    found = [(tmp_path / part / "figures" / "04_loss.png").read_bytes() for part in ("repo", "live")]
    assert found[0] == found[1] and found[0].startswith(b"\x89PNG")
    assert capsys.readouterr().out == "", "show must print nothing: nbval compares text"


def test_show_closes_a_figure_of_pyplot_too(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS", str(tmp_path))
    before = plt.get_fignums()
    draw.show(plt.figure(), "x")
    assert plt.get_fignums() == before


@pytest.mark.parametrize("stem", ["", "a/b", "../x"])
def test_show_refuses_a_path(stem, tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_RUNS", str(tmp_path))
    with pytest.raises(ValueError, match="plain file name"):
        draw.show(DRAWN["loss_terms"](), stem)


def test_labels_at_line_ends_do_not_overlap():
    runs = [(f"seed {k}", [0, 25], [0.3, rate], 500) for k, rate in enumerate((0.97, 0.98, 0.99))]
    fig = plots.training_curve(runs, "t")
    draw.png(fig)
    boxes = sorted((t.get_window_extent() for t in fig.axes[0].texts), key=lambda box: box.y0)
    assert len(boxes) == 4
    assert all(low.y1 <= high.y0 + 1 for low, high in zip(boxes, boxes[1:])), "two labels overlap"


def test_silent_groups_counts_groups_exactly():
    said = texts(plots.silent_groups([0, 4, 8, 8], 8, "t", G=8))
    assert {"25%", "50%"} <= set(said), f"one group all wrong, one mixed, two all right of four: {said}"
    with pytest.raises(ValueError, match="more samples"):
        plots.silent_groups([0, 1], 4, "t", G=8)


def test_style_split_adds_up():
    said = texts(plots.style_split({"worked": (50, 25), "direct": (50, 5)}, {"worked": (100, 80)}, "t"))
    # 30% at first; all replies worked would give 50% (+20); 80% of them right gives +30
    assert {"30%", "+20%", "+30%", "80%"} <= set(said), said
    assert "none" in said, "a style with no replies has no accuracy: say so, draw no bar"


def test_attack_table_says_what_is_paid():
    said = texts(plots.attack_table(attack(), "t"))
    assert said.count("pays") == 2 and said.count("pays 0.1") == 1 and said.count("0") == 3


def test_a_run_without_kl_or_of_one_step_is_drawn():
    data = metrics(1).assign(kl=np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "not measured" in texts(plots.reward_panels(data, "t"))
        draw.png(plots.step_time(data, "t"))


def test_smooth_is_a_running_mean():
    assert draw.smooth([0, 3, 6, 9, 12], 3).tolist() == [1.5, 3, 6, 9, 10.5]
    assert draw.smooth([1, np.nan, 3], 3).tolist() == [1, 2, 3]
    assert np.isnan(draw.smooth([np.nan, np.nan], 3)).all()
