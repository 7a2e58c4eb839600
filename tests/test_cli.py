"""The command line: bad input is one line and exit code 2, flags reach the configs, help names every command."""
import pytest

from grpo_lib import __main__ as cli
from grpo_lib.config import RECIPES, TrainConfig, WarmConfig, differences


@pytest.mark.parametrize("words, says", [
    ("train --out OUT --init nowhere", "no model at nowhere"),
    ("train --out OUT --lr -1", "lr must be"),
    ("train --out OUT --lr nan", "lr must be"),
    ("train --out OUT --updates 3", "updates (3) must divide problems (32)"),
    ("train --out OUT --group 0", "group must be at least 1"),
    ("train", "needs --out"),
    ("warmstart --out OUT --n 0", "nothing to train on"),
    ("evaluate --out OUT --init nowhere", "no model at nowhere"),
])
def test_bad_input_is_one_line_with_the_value(words, says, tmp_path, capsys):
    code = cli.main([str(tmp_path / "run") if w == "OUT" else w for w in words.split()])
    err = capsys.readouterr().err.strip()
    assert code == 2 and says in err and len(err.splitlines()) == 1, err
    assert not (tmp_path / "run").exists(), "something was left behind"


@pytest.mark.parametrize("words", ["train --agg median --out x", "train --steps many --out x", "fly", ""])
def test_impossible_flags_are_refused_by_the_parser(words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(words.split())
    assert stop.value.code == 2 and "error:" in capsys.readouterr().err


def test_flags_of_the_article_reach_the_config():
    args = cli.parser().parse_args("train --init a --out b --lr 1e-5 --kl 0.04 --steps 250 --eval-every 25 --show-every 25 --ckpt-every 25 "
                                   "--time-cap 1800 --fused --updates 4 --no-std --agg constant --max-tokens 64".split())
    cfg = TrainConfig(**{k: v for k, v in vars(args).items() if k in TrainConfig.__dataclass_fields__})
    assert differences(TrainConfig(), cfg) == {"time_cap": (0.0, 1800.0), "fused": (False, True), "updates": (1, 4), "std": (True, False),
                                               "agg": ("seq-mean", "constant"), "max_tokens": (128, 64)}


def test_help_names_every_command():
    text = cli.parser().format_help()
    assert all(name in text for name in ("build-mini", "sample", "warmstart", "train", "evaluate", "chat", "run")), text


def test_recipes_are_valid_and_complete():
    assert isinstance(RECIPES["mini"]["warm"], WarmConfig) and isinstance(RECIPES["mini"]["main"], TrainConfig)
    assert RECIPES["mini"]["main"].steps == 250 and RECIPES["mini"]["main"].problems * RECIPES["mini"]["main"].group == 256
