"""Every option of every command, walked through the live command table: given twice, no number, a flag both ways."""

import re
from typing import Any

import pytest
import typer.main

from olmorl_cli.cli import app
from tests.cli import kit

OPTIONS = [
    (name, option)
    for name, command in typer.main.get_command(app).commands.items()
    for option in command.params
    if option.param_type_name == "option"
]
LONE_FLAGS = {"--debug", "--diagnostics", "--help", "--keep-zero-signal", "--per-answer", "--per-token", "--quiet"}
REPEATABLE = {("compare", "--recipe"), ("inspect", "--fail-on")} | {
    (name, option) for name, _ in OPTIONS for option in ("--group", "--on", "--reward")
}
NO_NUMBERS = ["", " ", "nan", "NaN", "inf", "-inf", "Infinity", "1_0", "-1", "-0.5", "0x10", "1e999", "٢", "2-", "one"]


def long_name(option: Any) -> str:
    return next(name for name in option.opts if name.startswith("--"))


def refusals(commands: list[tuple[str, ...]]) -> list[str]:
    """What each command, which must end with exit code 2, says in its only line."""
    done = kit.run_in_turn(commands)
    assert [(each.code, each.out, each.err.count("\n")) for each in done] == [(2, b"", 1)] * len(commands)
    return [each.err.removeprefix("olmorl: error: ").rstrip("\n") for each in done]


def test_no_option_of_one_value_can_be_given_twice() -> None:
    """By any of its names, in any spelling, before or behind the files; neither the first nor the last wins in silence."""
    commands, names = [], []
    for name, option in OPTIONS:
        if long_name(option) in LONE_FLAGS or (name, long_name(option)) in REPEATABLE:
            continue
        value = () if option.is_flag else ("x",)
        for first in [*option.opts, *option.secondary_opts]:
            for second in [*option.opts, *option.secondary_opts]:
                commands.append((name, first, *value, "no.parquet", second, *value))
                names.append(", ".join([*option.opts, *option.secondary_opts]))
    assert {"--recipe", "--by", "-f, --format", "--normalize-std, --no-normalize-std"} < set(names)
    assert {name for name, _ in OPTIONS} == {command[0] for command in commands}
    assert refusals(commands) == [f"{name} is given twice. Give it once" for name in names]


def test_joined_spellings_are_the_same_option() -> None:
    said = refusals(
        [("groups", "-fcsv", "--format=csv"), ("objective", "--by=a", "--by", "b"), ("groups", "-G2", "-G", "2")]
    )
    assert [line.split(" is ")[0] for line in said] == ["-f, --format", "--by", "-G, --group-size"]


def test_what_can_be_given_again_is_taken_again(rollouts: str) -> None:
    """Repeatable options add up, a flag that is only on or off stays on, and what stands behind -- is a file."""
    options = ("--group", "prompt_id", "--group", "step", "--reward", "reward", "--reward", "reward")
    groups, quiet, flags, files = kit.run_in_turn(
        [
            ("objective", rollouts, *options),
            ("compare", rollouts, "--recipe", "grpo", "--recipe", "grpo"),
            ("groups", rollouts, "-q", "--quiet", "-q"),
            ("groups", rollouts, "-f", "csv", "--", "-f", "-f"),
        ]
    )
    assert (groups.row["columns"]["group"], groups.row["columns"]["reward"]) == (["prompt_id", "step"], ["reward"] * 2)
    assert [row["recipe"] for row in quiet.rows] == ["grpo", "grpo"]
    assert len(flags.rows) == 4
    assert files.err == "olmorl: error: -f: no such file or folder. Check the path\n"


def test_a_parse_error_is_told_before_a_repeat(rollouts: str) -> None:
    (said,) = refusals([("groups", rollouts, "--step", "a", "--step", "b", "--bogus")])
    assert "--bogus" in said


def test_every_number_is_checked_by_us() -> None:
    """Whatever the parser would let through: no option of a number takes what is none, in either spelling."""
    numeric = [(name, option) for name, option in OPTIONS if option.metavar in ("N", "X")]
    names = {long_name(option) for _, option in numeric}
    assert names == {
        "--group-size",
        "--steps",
        "--prompts",
        "--tokens",
        "--seed",
        "--eps-low",
        "--eps-high",
        "--sampler-cap",
        "--top",
    }
    commands, expected = [], []
    for name, option in numeric:
        rest = {"sample": ("-o", "no/out.parquet"), "report": ("-o", "no.html")}.get(name, ("no.parquet",))
        for number, value in enumerate(NO_NUMBERS):
            long = long_name(option)
            commands.append((name, *rest, *((long, value) if number % 2 else (f"{long}={value}",))))
            expected.append(rf"(-G, )?{long} takes a (whole )?number .* got {re.escape(repr(value))}")
    assert [said for said, words in zip(refusals(commands), expected, strict=True) if not re.fullmatch(words, said)] == []


@pytest.mark.parametrize("weight", ["nan", "inf", "-inf", "1_0", "1e999", "", "x", "0x1"])
def test_a_weight_of_a_reward_is_a_number_or_part_of_a_name(weight: str, rollouts: str) -> None:
    (said,) = refusals([("groups", rollouts, "--reward", f"reward*{weight}")])
    assert said.startswith(f"{rollouts}: no column reward*{weight}. ")


def test_negative_numbers_are_values_and_never_options(rollouts: str) -> None:
    apart, joined = kit.run_in_turn(
        [("groups", rollouts, "--reward", "reward*-1"), ("groups", rollouts, "--reward=reward*-1")]
    )
    assert apart.rows == joined.rows
    assert [row["mean"] for row in apart.rows] == [-0.5, -1.0, -2.0, -0.375]
    said = refusals([("objective", rollouts, "--eps-low", "-1e-3"), ("objective", rollouts, "--eps-low=-1e-3")])
    assert said == ["--eps-low takes a number in [0, 1], got '-1e-3'"] * 2


BOUNDS = [
    ((), (0.2, 0.272)),
    (("--eps-high", "0.272"), (0.2, 0.272)),
    (("--eps-high", "0"), (0.2, 0.0)),
    (("--eps-low", "0.3"), (0.3, 0.272)),
    (("--eps-low", "0.3", "--eps-high", "0.2"), (0.3, 0.2)),
    (("--eps-low", "1"), (1.0, 0.272)),
    (("--recipe", "grpo", "--eps-high", "0.28"), (0.2, 0.28)),
]


def test_one_bound_leaves_the_other_and_both_are_said(rollouts: str) -> None:
    done = kit.run_in_turn([("objective", rollouts, *options) for options, _ in BOUNDS])
    assert [(each.row["eps_low"], each.row["eps_high"]) for each in done] == [bounds for _, bounds in BOUNDS]
    shown = kit.run("objective", rollouts, "-f", "table", "--eps-high", "0.3").text
    assert "eps 0.2 below, 0.3 above" in shown


def test_bounds_that_leave_no_band_are_refused(rollouts: str) -> None:
    bad = [("--eps-low", "1.5"), *(("--eps-high", value) for value in ("nan", "inf", "-0.1"))]
    for (option, value), said in zip(bad, refusals([("objective", rollouts, *each) for each in bad]), strict=True):
        assert re.fullmatch(rf"{option} takes a number in \[0, (1\]|inf\)), got '{value}'", said)


def test_a_flag_is_on_off_or_left_to_the_recipe_and_takes_no_value(rollouts: str) -> None:
    ways = [(), ("--normalize-std",), ("--no-normalize-std",), ("--recipe", "grpo")]
    ways.append(("--recipe", "grpo", "--no-normalize-std"))
    done = kit.run_in_turn([("objective", rollouts, *way) for way in ways])
    assert [each.row["normalize_std"] for each in done] == [False, True, False, True, False]
    both, value, path = refusals(
        [
            ("objective", rollouts, "--normalize-std", "--no-normalize-std"),
            ("objective", rollouts, "--normalize-std=false"),
            ("objective", rollouts, "--normalize-std", "false"),
        ]
    )
    assert both.startswith("--normalize-std, --no-normalize-std is given twice")
    assert "--normalize-std" in value
    assert path == "false: no such file or folder. Check the path"
