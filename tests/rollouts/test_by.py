"""Results by a column: the step, or any other, also one whose values share groups."""

import math
from pathlib import Path

import pytest

from olmorl_cli.errors import InputError
from olmorl_cli.results import sums_table
from olmorl_cli.rollouts.rollouts import Selection
from tests.rollouts.builders import random_rows, score, table_of, write

ROWS = [
    row | {"dataset": "ab"[int(row["group_id"][1:]) % 2], "reason": ["stop", "length"][n % 3 == 0]}
    for n, row in enumerate(random_rows(3))
]


def by(path: str, column: str) -> list[dict[str, object]]:
    return score(path, by_column=column).rows


def test_a_column_of_whole_groups_gives_what_each_part_gives_alone(tmp_path: Path) -> None:
    together = by(write(tmp_path / "r.parquet", table_of(ROWS)), "dataset")
    assert [row.pop("dataset") for row in together] == ["a", "b"]
    for name, row in zip("ab", together, strict=True):
        part = [each for each in ROWS if each["dataset"] == name]
        assert row == score(write(tmp_path / f"{name}.parquet", table_of(part))).rows[0]


def test_a_column_that_cuts_through_groups_keeps_their_advantages(tmp_path: Path) -> None:
    """Sums of answers and tokens over the parts are those of the whole; a group counts in each part that it is in."""
    path = write(tmp_path / "r.parquet", table_of(ROWS))
    parts, (whole,) = by(path, "reason"), score(path).rows
    assert [row["reason"] for row in parts] == ["length", "stop"]
    for key in ("answers", "tokens", "kept_tokens"):
        assert sum(row[key] for row in parts) == whole[key]
    keys = {(row["step"], row["group_id"], row["reason"]) for row in ROWS}
    assert sum(row["groups"] for row in parts) == len(keys)
    total = sum(row["objective"] * row["kept_tokens"] for row in parts if row["objective"] is not None)
    assert total / whole["kept_tokens"] == pytest.approx(whole["objective"], rel=1e-12)


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column nope"):
        by(write(tmp_path / "r.parquet", table_of(ROWS)), "nope")


def test_one_more_role_leaves_the_others(tmp_path: Path) -> None:
    selection = Selection({"group": ("g",)}, 3).with_column("by", "x")
    assert (selection.of("group"), selection.of("by"), selection.group_size) == (("g",), ("x",), 3)


def test_the_table_of_sums_adds_up_to_the_objective(tmp_path: Path) -> None:
    """Terms of kept answers by their tokens; clipped tokens by their tokens; a ratio's extremes."""
    result = score(write(tmp_path / "r.parquet", table_of(ROWS)))
    (row,), table = result.rows, sums_table(result).to_pylist()
    counted = [each for each in table if each["kept"]]
    tokens = sum(each["tokens"] for each in counted)
    assert len(table) == row["answers"]
    assert tokens == row["kept_tokens"]
    assert math.fsum(each["terms"] for each in counted) / tokens == pytest.approx(row["objective"], rel=1e-12)
    assert sum(each["clip_low"] for each in counted) / tokens == row["clip_low"]
    assert sum(each["clip_high"] for each in counted) / tokens == row["clip_high"]
    assert max(each["ratio_max"] for each in counted if each["tokens"]) == row["ratio_max"]
    empty = [each for each in table if not each["tokens"]]
    assert empty
    assert all(each["ratio_mean"] is each["approx_kl"] is each["ratio_min"] is None for each in empty)
