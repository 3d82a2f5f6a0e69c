"""`objective --per-token` as its users run it: files, pipes, a terminal, and what it does not go together with."""

import math
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit

COLUMNS = [
    "step",
    "group",
    "row",
    "token",
    "log_ratio",
    "ratio",
    "advantage",
    "term",
    "clipped_low",
    "clipped_high",
    "gradient",
]


def test_values_of_a_file(rollouts: str) -> None:
    """Nine kept tokens: A ρ / 9, but 0 where clipped (row 0's second, row 2's second) and in the dropped group."""
    done = kit.run_in_turn([("objective", rollouts, "--per-token", "-o", "tokens.parquet"), ("objective", rollouts)])
    table = pq.read_table("tokens.parquet")
    assert table.column_names == COLUMNS
    rows = table.to_pylist()
    tokens = [(row, place) for row, marks in enumerate(kit.TOKENS["mask"]) for place, mark in enumerate(marks) if mark]
    assert [(row["row"], row["token"]) for row in rows] == tokens
    assert [row["group"] for row in rows] == [kit.GROUPED["prompt_id"][row] for row, _ in tokens]
    clipped = {(0, 1): "clipped_high", (2, 1): "clipped_low"}
    for row in rows:
        at = row["row"], row["token"]
        assert [name for name in ("clipped_low", "clipped_high") if row[name]] == ([clipped[at]] if at in clipped else [])
        assert row["gradient"] == (0.0 if at in clipped else pytest.approx(kit.ADVANTAGES[at[0]] / 9, rel=1e-15))
        assert row["log_ratio"] == {(0, 1): 4.0, (2, 1): -4.0}.get(at, 0.0)
    kept = [row["term"] for row in rows if kit.KEPT[row["row"]]]
    assert math.fsum(kept) / 9 == pytest.approx(done[1].row["objective"], rel=1e-15)


def test_options_and_recipe_files_count(rollouts: str) -> None:
    """Four kept answers of seven tokens with one mean each; the group's deviation is in the advantage."""
    with open("mine.toml", "w") as file:
        file.write('scale = "group_std"\nstd_eps = 0.0\naggregation = "sequence_mean_of_token_mean"\neps_high = "none"\n')
    rows = kit.run("objective", rollouts, "--recipe", "mine.toml", "--per-token", "--keep-zero-signal").rows
    by_place = {(row["row"], row["token"]): row["gradient"] for row in rows}
    assert by_place[0, 1] == pytest.approx(math.exp(4) / 8 / 2, rel=1e-15)
    assert by_place[4, 0] == pytest.approx(1 / 8 / 2, rel=1e-15)
    assert by_place[5, 0] == pytest.approx(-1 / 8, rel=1e-15)
    assert by_place[1, 0] == 0.0


def test_pipes_carry_the_same_rows(rollouts: str) -> None:
    """From standard input, in both Arrow forms, and of advantages that olmorl wrote."""
    done = kit.shell(f"olmorl advantages {rollouts} -f arrow | olmorl objective --per-token -f arrow")
    assert (done.code, done.err) == (0, "")
    rows = kit.table_of(done.out, "arrow").to_pylist()
    commands = [("objective", rollouts, "--per-token", *more) for more in ((), ("-o", "t.arrow"))]
    assert rows == kit.run_in_turn(commands)[0].rows
    with pa.OSFile("t.arrow") as file:
        assert pa.ipc.open_file(file).read_all().to_pylist() == rows


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    path = kit.write("r.parquet", pa.concat_tables([kit.rollouts()] * 1000))
    line = f"olmorl objective {path} --per-token --answer none -G 2 2> err | head -n 1; echo ${{PIPESTATUS[0]}}; cat err"
    first, code = kit.shell(line).text.splitlines()
    assert (first[:8], code) == ('{"step":', "0")


def test_one_at_a_time(rollouts: str) -> None:
    others = [("--per-answer",), ("--by", "step"), ("--per-answer", "--by", "step")]
    runs = kit.run_in_turn([("objective", rollouts, "--per-token", *other, "-o", "t.parquet") for other in others])
    for other, done in zip(others, runs, strict=True):
        assert (done.code, done.out) == (2, b"")
        assert done.err == f"olmorl: error: --per-token and {other[0]} exclude each other: ask for one of them\n"


def test_on_a_terminal_the_first_rows_and_how_many_there_are() -> None:
    path = kit.write("r.parquet", pa.concat_tables([kit.rollouts()] * 3))
    calls = [("objective", path, "--per-token", *more) for more in ((), ("-o", "t.parquet"))]
    done, written = kit.at_once(partial(kit.terminal, width=200, apart=True), calls)
    lines = kit.without_styles(done.text).splitlines()
    assert (done.code, lines[0].split()) == (0, COLUMNS)
    assert len(lines) == 1 + 20 + 1
    assert lines[2].split()[-3:] == ["no", "yes", "0"]
    assert lines[-1].startswith("the first 20 of 36 tokens, in input order;")
    assert (written.code, written.text, len(pq.read_table("t.parquet"))) == (0, "", 36)


def test_without_a_token_there_are_the_columns() -> None:
    """Answers of no tokens, and no answers at all."""
    empty = kit.write("empty.parquet", **dict.fromkeys(kit.TOKENS, pa.array([[]] * 8, pa.list_(pa.float64()))))
    none = kit.write("none.parquet", pq.read_table(empty).slice(0, 0))
    formats = ("table", "csv", "jsonl", "parquet", "arrow")
    calls = [("objective", path, "--per-token", "-q", "-f", format) for path in (empty, none) for format in formats]
    for call, done in zip(calls, kit.run_in_turn(calls), strict=True):
        assert (done.code, done.err) == (0, ""), call
        if call[-1] in ("parquet", "arrow", "csv"):
            assert kit.keys_of(done, call[-1]) == COLUMNS
        assert call[-1] != "table" or done.text.split() == COLUMNS
        assert call[-1] != "jsonl" or done.text == ""


def test_bad_data_leave_no_file(folder: Path) -> None:
    path = kit.write("bad.parquet", logp_new=[[-1.0, math.nan], *kit.TOKENS["logp_new"][1:]])
    wrong = ("objective", path, "--per-token")
    refused, skipped = kit.run_in_turn([(*wrong, "-o", "t.parquet"), (*wrong, "--invalid", "skip", "-q")])
    assert (refused.code, "row 0 token 1" in refused.err, (folder / "t.parquet").exists()) == (1, True, False)
    assert [(row["row"], row["token"]) for row in skipped.rows[:2]] == [(0, 0), (1, 0)]
