"""The folded answers of notebook 06, taken out as they are printed there, run, and put to the test."""

import pytest
from test_exercises import run

from grpo_lib import measured as m, report
from grpo_lib.task import columns


@pytest.fixture(autouse=True)
def committed(monkeypatch):
    monkeypatch.delenv("GRPO_RUNS", raising=False)
    m.load.cache_clear()
    yield
    m.load.cache_clear()


def test_06_1_what_64_tries_miss():
    names, printed = run("06", 1)
    assert printed == "52.6% 299 2995\n", f"the text names 52.6%, 299 and 2,995, the code printed {printed!r}"
    missed, tries = names["missed"], names["tries"]
    for p, level in ((0.01, 0.95), (0.2, 0.95), (0.003, 0.5)):
        n = tries(p, level)
        assert missed(p, n) <= 1 - level < missed(p, n - 1), f"{n} is not the fewest tries for {p} at {level}"


def test_06_2_a_vote_needs_no_checker():
    names, printed = run("06", 2)
    assert printed == "warm 59.0%\ngrpo 90.0%\n", f"the text names 59.0% and 90.0%, the code printed {printed!r}"
    majority = names["majority"]
    assert majority(["The answer is 7.", "The answer is 8.", "So: The answer is 7."]) == "7"
    assert majority(["no number", "7"]) is None and majority([]) is None, "nothing to count, nothing elected"
    for source in ("warm", "grpo"):
        voted = float(printed.split(source + " ")[1].split("%")[0]) / 100
        assert m.passes(source, 1)("mini").value < voted < m.passes(source, 64)("mini").value, "a vote lies between pass@1 and pass@64"


def test_06_3_accuracy_by_carries():
    names, printed = run("06", 3)
    carries = names["carries"]
    rows = report.sampled(m.load("samples-main-s1", "mini"), 0)
    for a, b in rows[["a", "b"]].drop_duplicates().values.tolist():
        assert carries(a, b) == sum(column[-1] for column in columns(a, b)), f"carries of {a} + {b}"
    assert printed.split("\n")[:4] == ["0 carries: 78.9% of 3,520", "1 carries: 64.2% of 2,816", "2 carries: 40.3% of 1,280", "3 carries: 4.4% of 320"]
    assert carries(999, 1) == 3 and carries(1, 999) == 3 and carries(0, 0) == 0
