"""Rows as JSON Lines and CSV: columns of few values are written as those of many."""

import io
import json
import math

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.rollouts.texts import few_values
from olmorl_cli.rollouts.writer import write_table

FEW = [0.5, -0.0, 0.0, None, math.nan, math.inf, 1e-300, 0.1]
BOOLS = [True, False, None]
ROWS = [1, 64, 65, 100, 5000, 70_000]


def columns(rows):
    """An id, a float of eight values and one of many, a bool, a row number; the same as lists and as a table."""
    rng = np.random.default_rng(rows)
    lists = {
        "id": [f"p{row // 8}" for row in range(rows)],
        "few": [FEW[n] for n in rng.integers(0, len(FEW), rows)],
        "many": rng.random(rows).tolist(),
        "row": list(range(rows)),
        "kept": [BOOLS[n] for n in rng.integers(0, 3, rows)],
    }
    return lists, pa.table({**lists, "id": pa.array(lists["id"]).dictionary_encode()})


def written(table, format):
    sink = io.BytesIO()
    write_table(table, format, sink, stream=False)
    return sink.getvalue().decode()


@pytest.mark.parametrize("rows", ROWS)
def test_json_lines_read_back_as_what_they_were(rows):
    """NaN and infinity, which JSON has not, are null; -0.0, written -0, keeps its sign."""
    lists, table = columns(rows)
    lists["few"] = [None if value is None or not math.isfinite(value) else value for value in lists["few"]]
    lists["row"] = [float(row) for row in lists["row"]]
    expected = [repr(dict(zip(lists, row, strict=True))) for row in zip(*lists.values(), strict=True)]
    lines = written(table, "jsonl").splitlines()
    assert [repr(json.loads(line, parse_int=float)) for line in lines] == expected


@pytest.mark.parametrize("rows", ROWS)
def test_csv_cells_read_back_as_what_they_were(rows):
    """Null and NaN are empty."""
    lists, table = columns(rows)
    header, *lines = written(table, "csv").splitlines()
    assert header == "id,few,many,row,kept"
    few = [line.split(",")[1] for line in lines]
    empty = [value is None or math.isnan(value) for value in lists["few"]]
    assert [cell == "" for cell in few] == empty
    assert [repr(float(cell)) for cell in few if cell] == [
        repr(v) for v, none in zip(lists["few"], empty, strict=True) if not none
    ]
    assert [line.split(",")[4] for line in lines] == ["" if kept is None else str(kept).lower() for kept in lists["kept"]]


def test_few_values_are_looked_for_where_they_pay():
    """Not in short columns, not where a first few rows or all rows differ, not in whole numbers."""
    halves = pa.array([0.0, 0.5] * 2500)
    found = few_values(halves)
    assert found is not None
    assert found.dictionary.to_pylist() == [0.0, 0.5]
    late = pa.concat_arrays([halves, pa.array(np.arange(5000.0))])
    assert [few_values(array) for array in (halves[:64], late, pa.array([1, 2] * 2500))] == [None] * 3
    assert few_values(pa.array(np.arange(5000.0))) is None
