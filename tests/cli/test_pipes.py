"""Real pipes: into the program, out of it, between two of it; and where rollouts come from when no file is named."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli import kit

OPTIONS = (
    "--eps-high 0.3 --by step",
    "",
    "--eps-low 0.1",
    "--aggregation sequence_mean_of_token_mean",
    "--keep-zero-signal",
    "--recipe olmorl-tis --sampler-cap 3",
)
RESULT = (
    "recipe",
    "objective",
    "objective_all_groups",
    "kept_tokens",
    "tokens",
    "clip_low",
    "clip_high",
    "ratio_mean",
    "approx_kl",
)


@pytest.fixture
def thirds() -> str:
    """Rollouts whose advantages and ratios are no round numbers."""
    uneven = [[x / 3 for x in tokens] for tokens in kit.TOKENS["logp_old"]]
    return kit.write("r.parquet", reward=[x / 3 for x in kit.GROUPED["reward"]], logp_old=uneven, logp_sampler=uneven)


def figures(done: kit.Done) -> list[list[object]]:
    return [[row[key] for key in RESULT] for row in done.rows]


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_scored_answers_piped_into_the_objective_give_what_the_file_gives(format: str, thirds: str) -> None:
    line = f"set -o pipefail; olmorl advantages {thirds} -f {format} | tee scored | olmorl objective"
    piped = kit.shell(f"{line} --eps-high 0.3 --by step")
    assert (piped.code, piped.err) == (0, "")
    assert {row["columns"]["advantage"] for row in piped.rows} == {"advantage"}, "that they are the file's own is said"
    options = [options.split() for options in OPTIONS]
    done = kit.run_in_turn([("objective", file, *each) for file in (thirds, "scored") for each in options])
    from_file, from_scored = done[: len(options)], done[len(options) :]
    assert figures(piped) == figures(from_file[0])
    assert [figures(each) for each in from_scored] == [figures(each) for each in from_file]


def test_divided_advantages_are_not_divided_again(thirds: str) -> None:
    piped = kit.shell(f"olmorl advantages {thirds} --normalize-std -f arrow | olmorl objective")
    (divided, plain) = kit.run_in_turn([("objective", thirds, "--normalize-std"), ("objective", thirds)])
    assert figures(piped) == figures(divided) != figures(plain)
    assert piped.row["normalize_std"] is True
    other = kit.shell(f"olmorl advantages {thirds} --normalize-std -f arrow | olmorl objective --reward reward")
    assert figures(other) == figures(plain)


def test_json_lines_can_be_piped_too(rollouts: str) -> None:
    piped = kit.shell(
        f"olmorl advantages {rollouts} | tee kept.jsonl | olmorl groups --group group && head -1 kept.jsonl >&2"
    )
    assert [list(row.values()) for row in piped.rows] == [list(row.values()) for row in kit.run("groups", rollouts).rows]
    assert piped.err.startswith('{"step": 1, "group": "a", ')


WAYS_IN = [
    "cat r.parquet | olmorl groups",
    "cat r.parquet | olmorl groups -",
    "olmorl groups < r.parquet",
    "olmorl groups - < r.parquet",
    "olmorl groups <(cat r.parquet)",
    "cat r.parquet | olmorl groups /dev/stdin",
    "cat r.parquet | OLMORL_ROLLOUTS=no.parquet olmorl groups",
    "(sleep 0.5; cat r.parquet) | olmorl groups",
    "OLMORL_ROLLOUTS=r.parquet olmorl groups",
    "OLMORL_ROLLOUTS=r.parquet olmorl groups <&-",
    "mv r.parquet rollouts.parquet; olmorl groups",
    "mv r.parquet rollouts.parquet; OLMORL_ROLLOUTS= olmorl groups",
    "echo x > rollouts.parquet; OLMORL_ROLLOUTS=r.parquet olmorl groups",
    "mkdir f; mv r.parquet f/; OLMORL_ROLLOUTS=f olmorl groups",
    "olmorl groups r.parquet <&-",
    "echo x | OLMORL_ROLLOUTS=no.parquet olmorl groups r.parquet",
]


def test_ways_in(rollouts: str) -> None:
    lines = [(f"mkdir {number}; cd {number}; cp ../{rollouts} .; {line}",) for number, line in enumerate(WAYS_IN)]
    for line, done in zip(WAYS_IN, kit.at_once(kit.shell, lines), strict=True):
        assert (done.code, done.err) == (0, ""), line
        assert [row["mean"] for row in done.rows] == [0.5, 1.0, 2.0, 0.375], line


def test_standard_input_is_one_of_several_files(rollouts: str) -> None:
    kit.write("second.parquet", prompt_id=list("pqpqpqpq"))
    done = kit.shell(f"cat second.parquet | olmorl advantages {rollouts} -")
    assert [row["group"] for row in done.rows] == [*kit.GROUPED["prompt_id"], *"pqpqpqpq"]


def test_standard_input_is_not_touched_where_files_are_named(rollouts: str) -> None:
    done = kit.shell(f"printf 'all of it' | (olmorl groups {rollouts} > /dev/null; cat)")
    assert done.text == "all of it"
    reading, writing = os.pipe()  # stays open and silent
    done = kit.run("groups", rollouts, stdin=reading)
    os.close(reading)
    os.close(writing)
    assert done.code == 0


@pytest.mark.parametrize("line", ["olmorl groups", "olmorl groups <&-", "OLMORL_ROLLOUTS= olmorl advantages"])
def test_no_input_at_all_gives_a_hint(line: str, folder: Path) -> None:
    done = kit.shell(line)
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("olmorl: error: ")
    assert all(word in done.err for word in ("files", "folders", "standard input", "$OLMORL_ROLLOUTS", "./rollouts.parquet"))


def test_nothing_usable_on_standard_input_gives_2(rollouts: str) -> None:
    lines = {
        ": | olmorl groups": "empty",
        ": | olmorl groups -": "empty",
        "olmorl groups - < /dev/null": "empty",
        "echo x | olmorl groups": "Parquet, Arrow or JSON Lines",
        "head -c 300 r.parquet | olmorl groups": "read",
    }
    done = kit.at_once(kit.shell, [(f"export OLMORL_ROLLOUTS={rollouts}; {line}",) for line in lines])
    for (line, word), each in zip(lines.items(), done, strict=True):
        assert (each.code, each.out, each.err.count("\n")) == (2, b"", 1), line
        assert each.err.startswith("olmorl: error: standard input: "), line
        assert word in each.err, line


def test_a_terminal_is_not_waited_for() -> None:
    for args in (("groups",), ("groups", "-")):
        done = kit.terminal(*args)
        assert done.code == 2
        assert done.text.startswith("olmorl: error: ")


def test_a_reader_that_goes_away_is_quiet_0(folder: Path) -> None:
    kit.many("r.parquet", 20_000)
    formats = (*kit.FORMATS, "table")
    lines = [
        f"olmorl advantages r.parquet -f {format} | {{ head -c 100; }} > head.{format}; echo ${{PIPESTATUS[0]}}"
        f"; olmorl groups r.parquet -f {format} | true; echo ${{PIPESTATUS[0]}}"
        for format in formats
    ]
    for format, done in zip(formats, kit.at_once(kit.shell, [(line,) for line in lines]), strict=True):
        assert (done.text, done.err) == ("0\n0\n", ""), format
        assert len((folder / f"head.{format}").read_bytes()) == 100, format


def test_small_outputs_and_texts_of_the_program_break_off_quietly_too(rollouts: str) -> None:
    lines = [
        f"olmorl objective {rollouts}",
        "PYTHONUNBUFFERED=1 olmorl groups r.parquet",
        "olmorl --help",
        "olmorl --version",
    ]
    broken = [(f"(sleep 0.2; {line}; echo $? >&2) | true",) for line in lines]
    assert [done.err for done in kit.at_once(kit.shell, broken)] == ["0\n"] * len(lines)


def test_output_that_cannot_be_written_gives_2(rollouts: str) -> None:
    commands = ["advantages -f arrow", "groups -f parquet", "objective", "compare -f table"]
    lines = [f"olmorl {command} {rollouts} {where}" for command in commands for where in ("> /dev/full", ">&-")]
    for line, done in zip(lines, kit.at_once(kit.shell, [(line,) for line in lines]), strict=True):
        assert (done.code, done.err.count("\n")) == (2, 1), line
        assert done.err.startswith("olmorl: error: standard output: "), line


def test_a_copy_of_standard_input_that_finds_no_room_is_not_blamed_on_the_output(rollouts: str) -> None:
    assert kit.run("advantages", rollouts, "-o", "r.jsonl").code == 0
    lines = ["cat r.parquet | olmorl groups", "olmorl groups <(cat r.parquet)", "olmorl groups r.jsonl"]
    for line, done in zip(lines, kit.at_once(kit.shell, [(f"ulimit -f 1; {line}",) for line in lines]), strict=True):
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1), line
        assert "standard output" not in done.err, line
        assert "whole" not in done.err, line
        assert "File too large" in done.err, line


def test_closed_streams_do_no_harm_where_they_are_not_needed(rollouts: str) -> None:
    done = kit.shell(f"olmorl groups {rollouts} -o out.csv <&- >&- 2>&-; echo $?; wc -l < out.csv")
    assert done.text.split() == ["0", "5"]


def test_ctrl_c_while_writing_leaves_the_old_file(folder: Path) -> None:
    kit.many("r.parquet", 500_000)
    (folder / "out.jsonl").write_text("old")
    command = [*kit.PROGRAM, "advantages", "r.parquet", "-o", "out.jsonl"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=kit.environment()) as process:
        while len(os.listdir(folder)) < 3:
            assert process.poll() is None, "ended before it was seen writing"
        assert kit.interrupt(process) == (130, b"")
    assert sorted(os.listdir(folder)) == ["out.jsonl", "r.parquet"]
    assert (folder / "out.jsonl").read_text() == "old"
