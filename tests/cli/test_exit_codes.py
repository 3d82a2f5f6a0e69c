"""The table of exit codes, several causes a row: 0 done, 1 the data are not acceptable, 2 could not do it, 130 Ctrl-C.

Ctrl-C and readers that go away are in test_pipes.py, disks that are full there and in test_output_files.py.
"""

import fcntl
import math
import os
import re
import subprocess
import sys
import termios
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit

LIST = kit.TOKENS["logp_new"]

DATA_FAULTS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "a reward is null": (("advantages",), {"reward": [1.0, None] * 4}, "reward.* null, rows 1, 3, 5, 7 "),
    "a reward is NaN": (("groups",), {"reward": [math.nan, *[1.0] * 7]}, "reward.* NaN, row 0 "),
    "a reward is infinite": (("objective",), {"reward": [*[1.0] * 7, -math.inf]}, "reward.* infinite, row 7 "),
    "eight are, five are named": (("groups",), {"reward": pa.nulls(8, pa.float64())}, r"rows 0, 1, 2, 3, 4 \(8 in all\)"),
    "a group id is null": (("groups",), {"prompt_id": ["a", None] * 4}, "prompt_id.* null, rows 1, 3, 5, 7 "),
    "a step is null": (("advantages",), {"step": [*[1] * 7, None]}, "step.* null, row 7 "),
    "an advantage is NaN": (("objective", "--advantage", "a"), {"a": [math.nan, *[1.0] * 7]}, "a.* NaN, row 0 "),
    "-G does not divide": (("groups", "-G", "3"), {}, "8 rows .* 3"),
    "-G crosses a step": (("groups", "-G", "4"), {"step": [1, 1, 1, 2, 2, 2, 2, 2]}, "step, row 3 "),
    "a log-prob is null": (
        ("objective",),
        {"logp_new": [[-1.0, None], *LIST[1:]]},
        "logp_new.* null, row 0 token 1 ",
    ),
    "a log-prob is NaN": (("objective",), {"logp_old": [*LIST[:7], [math.nan]]}, "logp_old.* NaN, row 7 token 0 "),
    "a log-prob is -inf": (("compare",), {"logp_new": [*LIST[:7], [-math.inf]]}, "logp_new.* infinite, row 7 token 0 "),
    "a log-prob is positive": (("objective",), {"logp_new": [*LIST[:7], [1.0]]}, "logp_new.* row 7 token 0 "),
    "a log-prob list is null": (("objective",), {"logp_new": [*LIST[:7], None]}, "logp_new.* null list, row 7 "),
    "lists differ in length": (("objective",), {"logp_old": [[-1.0], *LIST[1:]]}, "row 0 .*2.*1"),
    "a mask differs in length": (("objective",), {"mask": [[1], *kit.TOKENS["mask"][1:]]}, "row 0 .*2.*1"),
    "a mask holds a null": (("objective",), {"mask": [[1, None], *kit.TOKENS["mask"][1:]]}, "mask.* row 0 token 1 "),
}


def said(done: kit.Done) -> list[str]:
    """The error lines, which must be all there is."""
    assert done.out == b""
    lines = done.err.splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("olmorl: error: ")] == []
    assert done.err == "".join(f"{line}\n" for line in lines)
    return [line.removeprefix("olmorl: error: ") for line in lines]


@pytest.fixture(scope="module")
def data_faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, kit.Done]:
    folder = tmp_path_factory.mktemp("faults")
    commands = [
        (command, kit.write(str(folder / f"bad{number}.parquet"), **columns), *options)
        for number, ((command, *options), columns, _) in enumerate(DATA_FAULTS.values())
    ]
    return dict(zip(DATA_FAULTS, kit.run_in_turn(commands), strict=True))


@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_data_that_are_not_acceptable_give_1(fault: str, data_faults: dict[str, kit.Done]) -> None:
    done = data_faults[fault]
    (line,) = said(done)
    assert done.code == 1
    number = list(DATA_FAULTS).index(fault)
    assert re.match(rf"\S*bad{number}\.parquet: .+\. \S", line), "file: what, where. What to do"
    assert re.search(DATA_FAULTS[fault][2], line)


def test_all_faults_are_gathered_and_each_names_its_own_file() -> None:
    kit.write("a.parquet", reward=[None, *[1.0] * 7], logp_new=[[-1.0, math.nan], *LIST[1:]])
    kit.write("b.parquet", reward=[*[1.0] * 7, math.inf])
    done = kit.run("objective", "a.parquet", "b.parquet")
    assert done.code == 1
    assert [re.findall(r"^\w.parquet|rows? [\d, ]*\d", line) for line in said(done)] == [
        ["a.parquet", "row 0"],
        ["a.parquet", "row 0"],
        ["b.parquet", "row 7"],
    ]


def test_column_names_that_stand_twice_give_1() -> None:
    twice = pa.table([pa.array(["a"]), pa.array([1.0]), pa.array([2.0])], names=["prompt_id", "reward", "reward"])
    done = kit.run("groups", kit.write("r.parquet", twice))
    assert (done.code, len(said(done))) == (1, 1)
    assert "2 columns are called reward" in done.err


def test_some_faults_are_errors_under_either_policy() -> None:
    always = [
        "a group id is null",
        "an advantage is NaN",
        "-G does not divide",
        "lists differ in length",
        "a mask holds a null",
    ]
    commands = []
    for number, ((command, *options), columns, _) in enumerate(DATA_FAULTS[fault] for fault in always):
        path = kit.write(f"{number}.parquet", **columns)
        commands.append((command, path, *options, "--invalid", "skip"))
    done = kit.run_in_turn(commands)
    assert [each.code for each in done] == [1] * len(always)
    assert not any("--invalid skip" in line for each in done for line in said(each)), "it would not help"


USAGE: dict[str, tuple[tuple[str, ...], str]] = {
    "no such command": (("bogus",), "bogus"),
    "no such option": (("groups", "r.parquet", "--bogus"), "--bogus"),
    "an option without its value": (("groups", "r.parquet", "--group"), "--group"),
    "a value for a flag": (("objective", "r.parquet", "--normalize-std=yes"), "--normalize-std"),
    "no such format": (("groups", "r.parquet", "-f", "xml"), "jsonl.*'xml'"),
    "no such policy": (("groups", "r.parquet", "--invalid", "drop"), "error, skip.*'drop'"),
    "no such aggregation": (("objective", "r.parquet", "--aggregation", "mean"), "token_mean.*'mean'"),
    "no such recipe": (("compare", "r.parquet", "--recipe", "bogus"), "bogus.*olmorl, .*grpo"),
    "no such recipe file": (("compare", "r.parquet", "--recipe", "no.toml"), "no.toml"),
    "a recipe file with a word too many": (("objective", "r.parquet", "--recipe", "key.toml"), "key.toml.*epsilon.*eps_low"),
    "a recipe file with a wrong value": (
        ("groups", "r.parquet", "--recipe", "value.toml"),
        "value.toml.*center.*group_mean",
    ),
    "a recipe file that is none": (("groups", "r.parquet", "--recipe", "r.parquet"), "r.parquet.*TOML"),
    "-G and --group": (("groups", "r.parquet", "-G", "2", "--group", "prompt_id"), "-G.*--group"),
    "--by a column that is not there": (("objective", "r.parquet", "--by", "bogus"), "^r.parquet: .*bogus"),
    "no such file": (("groups", "no.parquet"), "^no.parquet: "),
    "one file of two": (("groups", "r.parquet", "no.parquet"), "^no.parquet: "),
    "no match for a pattern": (("groups", "no*.parquet"), r"^no\*.parquet: "),
    "a folder without data": (("groups", "empty"), "^empty: "),
    "a link to nothing": (("groups", "link.parquet"), "^link.parquet: "),
    "an empty file": (("groups", "empty.parquet"), "^empty.parquet: .*empty"),
    "half a file": (("groups", "half.parquet"), "^half.parquet: "),
    "no kind of data": (("groups", "key.toml"), "^key.toml: .*Parquet, Arrow or JSON Lines"),
    "an empty name": (("groups", ""), "''"),
    "standard input twice": (("groups", "-", "-"), "standard input"),
    "no such column": (("groups", "r.parquet", "--group", "Prompt"), "^r.parquet: .*Prompt.*prompt_id"),
    "no reward": (("groups", "bare.parquet", "--group", "x"), "^bare.parquet: .*reward.*--reward COL"),
    "no group": (("groups", "bare.parquet", "--reward", "x"), "^bare.parquet: .*group.*--group COL.*-G N"),
    "no log-probs": (("objective", "bare.parquet", "--group", "x", "--reward", "x"), "^bare.parquet: .*new.*--logp-new COL"),
    "no sampler": (("objective", "r.parquet", "--sampler-cap", "2"), "^r.parquet: .*sampler.*--logp-sampler COL"),
    "no sampler for a recipe": (("compare", "r.parquet", "--recipe", "olmorl-tis"), "^r.parquet: .*--logp-sampler COL"),
    "a text for a reward": (("groups", "r.parquet", "--reward", "prompt_id"), "^r.parquet: .*prompt_id.*string.*number"),
    "a list for a reward": (("groups", "r.parquet", "--reward", "mask"), "^r.parquet: .*mask.*list.*number"),
    "a number for log-probs": (("objective", "r.parquet", "--logp-new", "reward"), "^r.parquet: .*reward.*double.*list"),
    "an output without a kind": (("groups", "r.parquet", "-o", "out.txt"), "^out.txt: .*--format"),
    "an output in no folder": (("groups", "r.parquet", "-o", "no/out.csv"), "^no/out.csv: .*folder"),
    "an output that is a folder": (("groups", "r.parquet", "-o", "empty"), "^empty: .*folder"),
    "an output without a name": (("groups", "r.parquet", "-o", "", "-f", "csv"), "''|name"),
}


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory) -> dict[str, kit.Done]:
    folder = tmp_path_factory.mktemp("usage")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        whole = (folder / kit.write("r.parquet")).read_bytes()
        (folder / "half.parquet").write_bytes(whole[: len(whole) // 2])
        (folder / "empty.parquet").touch()
        (folder / "empty").mkdir()
        (folder / "link.parquet").symlink_to("nowhere")
        (folder / "key.toml").write_text("epsilon = 0.2\n")
        (folder / "value.toml").write_text('center = "median"\n')
        kit.write("bare.parquet", pa.table({"x": [1.0]}))
        before = sorted(os.listdir(folder))
        done = dict(zip(USAGE, kit.run_in_turn([args for args, _ in USAGE.values()]), strict=True))
        assert sorted(os.listdir(folder)) == before
    return done


@pytest.mark.parametrize("fault", USAGE)
def test_what_could_not_be_done_gives_2(fault: str, usage: dict[str, kit.Done]) -> None:
    done = usage[fault]
    (line,) = said(done)
    assert done.code == 2
    assert re.search(USAGE[fault][1], line)
    assert "fault of olmorl" not in line


NUMBERS: dict[tuple[str, ...], list[str]] = {
    ("groups", "-G"): ["nan", "inf", "-1", "1_0", "", "x", "0", "8.0", "1e1", " 2", "٢", "-0"],
    ("objective", "--eps-low"): ["nan", "inf", "-1", "1_0", "", "x", "-inf", "1.5", "-1e-9", "0x1", " 0.1", "0,2"],
    ("compare", "--eps-high"): ["nan", "inf", "-1", "1_0", "", "x", "Infinity", "1e999", "-0.1", "1e", "٠.٢"],
    ("objective", "--sampler-cap"): ["nan", "inf", "-1", "1_0", "", "x", "0", "-2.0", "0.0"],
}
SPELLINGS = [
    (command, option, value, spelling)
    for (command, option), values in NUMBERS.items()
    for value in values
    for spelling in ("apart", "joined")
]


@pytest.fixture(scope="module")
def numbers() -> dict[tuple[str, ...], kit.Done]:
    commands = [
        (command, "no.parquet", option, value)
        if spelling == "apart"
        else (command, "no.parquet", f"{option}={value}" if option.startswith("--") else f"--group-size={value}")
        for command, option, value, spelling in SPELLINGS
    ]
    return dict(zip(SPELLINGS, kit.run_in_turn(commands), strict=True))


@pytest.mark.parametrize(("command", "option", "value", "spelling"), SPELLINGS)
def test_bad_numbers_give_2(
    command: str, option: str, value: str, spelling: str, numbers: dict[tuple[str, ...], kit.Done]
) -> None:
    done = numbers[command, option, value, spelling]
    (line,) = said(done)
    assert done.code == 2
    assert line.startswith(option)
    assert f"got '{value}'" in line
    assert re.search(r"\[0, 1\]|\[0, inf\)|\(0, inf\)|at least 1", line)


def test_good_numbers_are_taken_as_they_are_written(rollouts: str) -> None:
    spellings = [(".25", 0.25), ("1e-3", 1e-3), ("+0.5", 0.5), ("0", 0.0), ("1.", 1.0), ("-0", 0.0)]
    done = kit.run_in_turn([("objective", rollouts, f"--eps-low={text}", "--eps-high", text) for text, _ in spellings])
    assert [(each.row["eps_low"], each.row["eps_high"]) for each in done] == [(value, value) for _, value in spellings]


def test_what_is_only_remarkable_gives_0() -> None:
    kit.write("masked.parquet", mask=[[0] * len(tokens) for tokens in LIST])
    kit.write("alone.parquet", prompt_id=list("abcdefgh"))
    masked, alone = kit.run_in_turn([("objective", "masked.parquet"), ("advantages", "alone.parquet")])
    assert (masked.row["objective"], masked.row["tokens"]) == (None, 0)
    assert masked.err.startswith("olmorl: note: ")
    assert {row["advantage"] for row in alone.rows} == {0}
    assert re.search(r"olmorl: note: .*one answer.*prompt_id", alone.err)


def test_what_is_left_out_is_counted() -> None:
    kit.write("r.parquet", reward=[math.nan, None, *[1.0] * 6], logp_new=[*LIST[:7], [math.inf]])
    commands = [("advantages", "r.parquet"), ("objective", "r.parquet"), ("objective", "r.parquet", "-q")]
    answers, objective, quiet = kit.run_in_turn([(*command, "--invalid", "skip") for command in commands])
    assert (answers.code, objective.code, quiet.code) == (0, 0, 0)
    assert [re.findall(r"r.parquet: .*, row (\d)", done.err) for done in (answers, objective)] == [
        ["0", "1"],
        ["0", "1", "7"],
    ]
    assert all(line.startswith("olmorl: note: ") and "1 in all" in line for line in objective.err.splitlines()[:3])
    assert (quiet.err, quiet.out) == ("", objective.out)
    assert "--invalid skip" not in objective.err, "that is what was done"


@pytest.mark.parametrize(("options", "code"), [(("-G", "3"), 1), (("--group", "no"), 2), (("--bogus",), 2), ((), 0)])
def test_debug_shows_the_traceback_and_keeps_the_code(options: tuple[str, ...], code: int, rollouts: str) -> None:
    plain, debug = kit.run_in_turn([("groups", rollouts, *options), ("groups", rollouts, *options, "--debug")])
    assert (plain.code, debug.code) == (code, code)
    assert "Traceback" not in plain.err
    assert debug.err.endswith(plain.err)
    assert debug.err.startswith("Traceback (most recent call last)") == (code != 0)


def test_codes_are_those_of_real_processes(rollouts: str) -> None:
    commands = [
        ("groups", rollouts),
        ("groups", rollouts, "-G", "3"),
        ("groups", "no"),
        ("--version",),
        ("groups", "--help"),
    ]
    assert [done.code for done in kit.at_once(kit.run, commands)] == [0, 1, 2, 0, 0]


def test_a_bare_call_shows_the_help() -> None:
    done = kit.run()
    shown = done.text or done.err
    assert done.code in (0, 2)
    assert "olmorl: error: Usage" not in shown
    assert re.search(r"^ *advantages  ", shown, re.MULTILINE), "a line a command"


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_the_code_and_the_data_stay_where_messages_cannot_be_written(where: str, rollouts: str) -> None:
    line = f"olmorl groups {rollouts} -G 1 {where}; echo $?; olmorl groups {rollouts} -G 3 {where}; echo $?"
    done = kit.shell(f"{line}; olmorl groups no {where}; echo $?")
    *notes, wrong, missing = done.text.splitlines()
    assert (len(notes), notes[-1], wrong, missing) == (9, "0", "1", "2")


WITH_100_MB = """
import os, resource, runpy, sys
import pyarrow.compute, pyarrow.parquet
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 100_000_000,) * 2)
runpy.run_module("olmorl_cli", run_name="__main__")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sets the limit as Linux does")
def test_memory_that_does_not_suffice_gives_2_and_says_so() -> None:
    zeros = pa.array([0.0]).take(pa.nulls(20_000_000, pa.int8()).fill_null(0))  # 160 MB, next to nothing in the file
    with pq.ParquetWriter("r.parquet", pa.schema([("prompt_id", pa.float64()), ("reward", pa.float64())])) as writer:
        writer.write_table(pa.table({"prompt_id": zeros, "reward": zeros}))
    done = kit.run("groups", "r.parquet", python=(sys.executable, "-c", WITH_100_MB))
    assert (done.code, len(said(done))) == (2, 1)
    assert "memory" in done.err
    assert "damaged" not in done.err


def test_ctrl_c_gives_130_and_nothing_is_left(folder: Any) -> None:
    os.mkfifo("pipe")
    command = [*kit.PROGRAM, "advantages", "pipe", "-o", "out.csv"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=kit.environment())
    pipe = os.open("pipe", os.O_RDWR)  # unlike for writing alone, this does not wait for a reader that may never come
    with process:
        os.write(pipe, b"PAR1")
        until = time.monotonic() + 60
        while process.poll() is None and fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)) != bytes(4):
            assert time.monotonic() < until, "the pipe is not read"
            time.sleep(0.01)
        assert kit.interrupt(process) == (130, b"")
    os.close(pipe)
    assert os.listdir(folder) == ["pipe"]
