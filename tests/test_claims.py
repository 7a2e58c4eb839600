"""The report: verdicts against hand-made cases, the committed table against the records, the README against the table."""
import math
import re

import pandas as pd
import pytest

from grpo_lib import claims
from grpo_lib.claims import Quantity, parse, verdict
from grpo_lib.config import ROOT
from grpo_lib.measured import Measured, exact


def q(article, **more):
    return Quantity("C00", "made up", article, lambda model: None, **more)


@pytest.mark.parametrize("text, value, half", [("17.8%", 0.178, 0.0005), ("-10.4%", -0.104, 0.0005), ("64,000", 64000, 0.5), ("2.64", 2.64, 0.005),
                                               ("0", 0, 0), ("72%", 0.72, 0.005), ("1", 1, 0)])
def test_a_printed_number_and_its_rounding(text, value, half):
    assert parse(text) == (pytest.approx(value), pytest.approx(half))


@pytest.mark.parametrize("quantity, found, wanted, why", [
    (q("77.4%", n=500), None, "not measured", "no record"),
    (q(None), exact(0.5), "not measured", "the article gives neither figure nor direction"),
    (q("77.4%", n=500), Measured(0.76, 0.72, 0.80), "same", "well within both intervals"),
    (q("77.4%", n=500), Measured(0.90, 0.88, 0.92), "same direction", "higher, and far from nothing"),
    (q("77.4%", n=500, null=None), Measured(0.90, 0.88, 0.92), "differs", "a level has no direction"),
    (q("59.6%", error=0.05), Measured(-0.10, -0.20, -0.02), "differs", "the other sign"),
    (q("-10.4%", error=0.021), Measured(-0.02, -0.03, -0.01), "same direction", "a cost too, but a smaller one"),
    (q("-10.4%", error=0.021), Measured(-0.02, -0.05, 0.01), "differs", "holds 0: no cost is shown, and it is not the article's"),
    (q("-10.4%", error=0.021), Measured(-0.05, -0.25, 0.15), "differs", "an interval wider than the effect shows nothing"),
    (q("0%", scale=0.05, n=500), Measured(0.0, 0.0, 0.008), "same", "0 of 500 on both sides"),
    (q("0%", scale=0.05, n=500), Measured(0.13, 0.08, 0.19), "differs", "an effect where the article has none"),
    (q("0%", scale=0.05, error=0.06), Measured(0.02, -0.10, 0.14), "differs", "no difference found, but one of 5 points could hide"),
    (q("1.47", null=1), Measured(1.30, 1.10, 1.50), "same", "a ratio near the article's"),
    (q("7", null=1), Measured(2.0, 1.5, 2.5), "same direction", "a ratio above 1"),
    (q("7", null=1), Measured(0.8, 0.5, 1.1), "differs", "a ratio that may be 1"),
    (q("0.88"), exact(0.875), "same", "the article's rounding is allowed for"),
    (q("0.88"), exact(0.86), "same direction", "beyond its rounding"),
    (q(None, sign=1), Measured(0.3, 0.2, 0.4), "same direction", "the direction alone"),
    (q(None, sign=1), Measured(0.3, -0.1, 0.7), "differs", "a direction that is not shown"),
    (q(None, sign=-1), Measured(0.3, 0.2, 0.4), "differs", "the other direction"),
])
def test_verdicts(quantity, found, wanted, why):
    assert verdict(quantity, found) == wanted, why


def test_the_articles_own_error_counts():
    found = Measured(0.80, 0.79, 0.81)
    assert verdict(q("77.4%"), found) == "same direction" and verdict(q("77.4%", n=500), found) == "same"
    assert q("50%", n=100).article_error() == pytest.approx(0.098 + 0.005)


def test_every_claim_is_there_once_per_quantity_and_model():
    names = [(x.claim, x.name) for x in claims.QUANTITIES]
    assert len(set(names)) == len(names), "a quantity stands there twice"
    assert [key for key in claims.TEXTS] == [f"C{i:02}" for i in range(1, 39)] and {key for key, _ in names} == set(claims.TEXTS)
    for x in claims.QUANTITIES:
        if x.article and x.null is not None and x.scale is None:
            assert x.value != x.null, f"{x.claim} {x.name}: no effect in the article, so a scale must say what would be one"


@pytest.fixture(scope="module")
def committed():
    return claims.read()


def test_the_committed_report_is_what_the_records_say(committed, monkeypatch):
    monkeypatch.delenv("GRPO_RUNS", raising=False)
    now = pd.read_csv(__import__("io").StringIO(claims.csv(claims.rows())), dtype={"seeds": str, "n": "Int64"})
    assert list(now.columns) == ["id", "claim", "quantity", "article", "model", "value", "low", "high", "n", "seeds", "verdict"]
    assert len(now) == len(committed) == 2 * len(claims.QUANTITIES)
    for (_, a), (_, b) in zip(committed.iterrows(), now.iterrows()):
        told = f"{b['id']} {b['quantity']} ({b['model']}): make it anew with `python -m grpo_lib report`"
        assert (a["id"], a["quantity"], a["model"], a["verdict"]) == (b["id"], b["quantity"], b["model"], b["verdict"]), told
        for key in ("article", "value", "low", "high"):
            assert pd.isna(a[key]) and pd.isna(b[key]) or a[key] == pytest.approx(b[key], rel=1e-3, abs=1e-6), f"{key} of {told}"


def test_the_readme_shows_the_committed_report(committed):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split(claims.MARKS[0])[1].split(claims.MARKS[1])[0].strip()
    assert shown == claims.markdown(committed), "README's table is not data/report.csv: run `python -m grpo_lib report`"


def test_each_claim_that_differs_says_why_and_no_other_does(committed):
    told, differ = set(claims.WHY), set(claims.differing(committed))
    assert differ <= told, f"{sorted(differ - told)} differ from the article without a word in claims.WHY"
    assert told <= differ, f"claims.WHY explains {sorted(told - differ)}, which do not differ any more"
    text = claims.reasons(committed)
    assert len(text.splitlines()) == len(differ) and not re.search(r"\d+(\.\d+)?%", text), "a result typed by hand"


def test_intervals_hold_their_values(committed):
    have = committed[committed["value"].notna()]
    bad = have[~((have["low"] <= have["value"]) & (have["value"] <= have["high"]))]
    assert bad.empty, bad[["id", "quantity", "low", "value", "high"]].to_string()
    assert (committed["verdict"].eq("not measured") | committed["value"].notna()).all(), "a verdict without a value"


def test_a_bad_readme_is_refused_and_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "rows", lambda: claims.read().head(0))
    readme = tmp_path / "README.md"
    readme.write_text("no marks here", encoding="utf-8")
    with pytest.raises(ValueError, match="does not hold the marks"):
        claims.write(tmp_path / "report.csv", readme)
    assert readme.read_text(encoding="utf-8") == "no marks here"
    with pytest.raises(FileNotFoundError, match="python -m grpo_lib report"):
        claims.read(tmp_path / "nowhere.csv")


def test_shown_values():
    row = lambda value, low, high: pd.Series(dict(value=value, low=low, high=high))
    assert claims.shown(row(0.5, 0.4, 0.6), "%") == "50.0% (40.0% to 60.0%)" and claims.shown(row(64000.0, 64000.0, 64000.0), "") == "64,000"
    assert claims.shown(row(math.nan, math.nan, math.nan), "%") == ""
