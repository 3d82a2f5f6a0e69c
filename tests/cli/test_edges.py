"""What a stranger found by trying, each find held by its kind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli import kit


@pytest.mark.parametrize("name", ["tokens", "objective", "recipe", "columns", ""])
def test_by_a_column_called_like_a_key_of_the_result_is_refused(name: str) -> None:
    path = kit.write("r.parquet", **({name: [1, 1, 1, 1, 2, 2, 2, 2]} if name else {}))
    done = kit.run("objective", path, "--by", name)
    assert (done.code, done.out) == (2, b"")
    assert repr(name) in done.err


def test_names_that_are_no_utf_8_come_out_as_escapes_in_every_format() -> None:
    """A stray byte of a name is \\udcff in JSON and CSV, and nothing is printed beside an error."""
    path = kit.write("r.parquet")
    stray = os.fsdecode(b"\xff.toml")
    Path(stray).write_text("eps_high = 0.3\n")
    for format in ("jsonl", "csv", "parquet"):
        done = kit.run("compare", path, "--recipe", "olmorl", "--recipe", stray, "-f", format)
        assert (done.code, done.err) == (0, "")
        if format != "parquet":
            assert "\\udcff" in done.text
    os.rename(path, os.fsdecode(b"\xff.parquet"))
    assert kit.run("inspect", os.fsdecode(b"\xff.parquet")).row["files"] == ["\udcff.parquet"]


def test_an_objective_or_advantage_that_overflows_is_said() -> None:
    lists = [[-1.0], [-1.0], [-1.0]]
    big = [1.7e308, -1.7e308, -1.7e308]
    path = kit.write("b.parquet", pa.table({"prompt_id": ["a"] * 3, "reward": big, "logp_new": lists, "logp_old": lists}))
    done = kit.run("advantages", path)
    assert done.rows[0]["advantage"] is None
    assert "the advantage overflows (null in JSON), row 0 (1 in all)" in done.err
    far = pa.table({"prompt_id": ["a", "a"], "reward": [1.0, 0.0], "logp_new": [[0.0], [0.0]], "logp_old": [[-800.0]] * 2})
    done = kit.run("objective", kit.write("f.parquet", far))
    assert done.row["objective"] is None
    assert "in answer 1 a ratio" in done.err


def test_rewards_that_overflow_in_their_sum_are_told_without_a_warning_of_numpy() -> None:
    path = kit.write("r.parquet", pa.table({"prompt_id": ["a", "a"], "x": [1.7e308, 1.0], "y": [1.7e308, 1.0]}))
    done = kit.run("advantages", path, "--reward", "x", "--reward", "y")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "x + y, the reward, is infinite, row 0" in done.err


def test_json_of_any_depth_is_read_or_refused_in_a_line() -> None:
    Path("deep.jsonl").write_text('{"prompt_id": "a", "reward": 1, "x": ' + "[" * 3000 + "]" * 3000 + "}\n")
    done = kit.run("groups", "deep.jsonl")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("olmorl: error: deep.jsonl: ")


def test_a_terminated_run_leaves_nothing() -> None:
    path = kit.many("many.parquet", 150_000)
    process = subprocess.Popen([sys.executable, "-m", "olmorl_cli", "advantages", path, "-o", "out.jsonl"])
    until = time.monotonic() + 20
    while not list(Path().glob(".out.jsonl*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(signal.SIGTERM)
    code = process.wait(20)
    assert code in (0, 143), "it may have been done already"
    assert [name for name in os.listdir() if name.startswith(".")] == []
    assert Path("out.jsonl").exists() == (code == 0)


def test_sample_writes_parquet_only() -> None:
    for name in ("-", "s.csv", "s.jsonl"):
        done = kit.run("sample", "-o", name)
        assert (done.code, os.listdir()) == (2, [])
        assert "Parquet" in done.err


def test_output_redirected_into_the_input_folder_is_told_as_such() -> None:
    Path("d").mkdir()
    kit.write("d/r.parquet")
    done = kit.shell("olmorl advantages d > d/out.jsonl")
    assert done.code == 2
    assert "d/out.jsonl: standard output is redirected into this input" in done.err


def test_our_own_json_lines_are_read_back() -> None:
    """The column `group` tells the group; the step stays with it."""
    path = kit.write("r.parquet")
    rows = kit.run("advantages", path).out
    again = kit.run("groups", stdin=rows)
    assert again.rows == kit.run("groups", path).rows


def test_a_negative_zero_is_zero() -> None:
    path = kit.write("r.parquet")
    assert '"eps_low": 0.0' in kit.run("objective", path, "--eps-low", "-0").text
    zeros = kit.write("z.parquet", pa.table({"prompt_id": [0.0, -0.0], "reward": [1.0, 0.0]}))
    assert [row["size"] for row in kit.run("groups", zeros).rows] == [2]


def test_more_json_lines_than_files_may_be_open(folder: Path) -> None:
    """The limit of open files is a default of shells, and is raised as far as it may be."""
    (folder / "many").mkdir()
    for number in range(300):
        lines = (f'{{"prompt_id": "p{number}", "reward": {reward}}}\n' for reward in (0, 1))
        (folder / "many" / f"{number}.jsonl").write_text("".join(lines))
    done = kit.shell("ulimit -S -n 100; olmorl groups many -f csv | tail -n +2 | wc -l")
    assert (done.code, done.text.strip()) == (0, "300"), done.err
