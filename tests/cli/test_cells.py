"""What stands in the cells of machine outputs: awkward ids and numbers, and columns passed through whole."""

import csv
import datetime
import io
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit

IDS = [
    "",
    " a ",
    'q"q',
    "c,d",
    "l\nl",
    "r\rr",
    "\u2028",
    "\x00\x1b[2J",
    "é😀",
    "\u202e",
    "null",
    "1e5",
    "=1+1",
    "{",
    "\\",
    "'",
]
REWARDS = [0.1 + 0.2, 5e-324, 1e22, -1.7976931348623157e308, 1 / 3, 123456789.12345679, -0.0, 2**53 + 2.0]


def answers(path: str, ids: Any, rewards: Any) -> str:
    return kit.write(path, pa.table({"prompt_id": ids, "reward": rewards}))


def significant(number: str) -> str:
    """The digits that tell a number, without sign, point, exponent and zeros around them."""
    return number.lower().split("e")[0].replace(".", "").strip("-0")


def test_ids_come_back_as_they_went_in() -> None:
    answers("r.parquet", IDS, [1.0] * len(IDS))
    done = dict(
        zip(kit.FORMATS, kit.run_in_turn([("groups", "r.parquet", "-q", "-f", f) for f in kit.FORMATS]), strict=True)
    )
    for format in ("jsonl", "parquet", "arrow"):
        assert [row["group"] for row in kit.values_of(done[format], format)] == IDS
    cells = csv.reader(io.StringIO(done["csv"].text, newline=""))
    assert [row[0] for row in cells] == ["group", *IDS]
    assert len(done["jsonl"].out.splitlines()) == len(done["jsonl"].text.splitlines()) == len(IDS)


@pytest.mark.parametrize(
    ("ids", "json_ids"),
    [
        (pa.array([2**63 + 1, 7], pa.uint64()), [2**63 + 1, 7]),
        (pa.array([True, False]), [True, False]),
        (pa.array([0.5, -0.25]), [0.5, -0.25]),
        (pa.array([datetime.date(2025, 12, 1), datetime.date(1969, 7, 20)]), ["2025-12-01", "1969-07-20"]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
        (pa.array([b"\x00\xff", b"a"]), ["00ff", "61"]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_ids_of_other_types(ids: pa.Array, json_ids: list[Any]) -> None:
    answers("r.parquet", ids, [1.0, 0.0])
    jsonl, parquet = kit.run_in_turn([("groups", "r.parquet", "-q", "-f", format) for format in ("jsonl", "parquet")])
    assert [row["group"] for row in jsonl.rows] == json_ids
    assert [row["group"] for row in kit.values_of(parquet, "parquet")] == ids.to_pylist()


def test_numbers_are_the_shortest_that_read_back() -> None:
    answers("r.parquet", range(len(REWARDS)), REWARDS)
    done = kit.run_in_turn([("advantages", "r.parquet", "-q", "-f", format) for format in kit.FORMATS])
    for format, output in zip(kit.FORMATS[:2], done, strict=False):
        assert [row["reward"] for row in kit.values_of(output, format)] == REWARDS
    shown = [row["reward"] for row in csv.DictReader(io.StringIO(done[1].text))]
    assert shown[0] == "0.30000000000000004"
    assert [significant(text) for text in shown] == [significant(repr(value)) for value in REWARDS]
    assert pq.read_table(io.BytesIO(done[2].out))["reward"].to_pylist() == REWARDS


def test_what_is_not_known_is_null_everywhere_and_never_nan() -> None:
    kit.write("r.parquet", reward=[1.0, None, 0.0, math.nan, math.inf, 1.0, 0.5, 0.25])
    done = kit.run_in_turn([("advantages", "r.parquet", "-q", "--invalid", "skip", "-f", format) for format in kit.FORMATS])
    expected = [0.5, None, -0.5, None, None, 0.0, 0.125, -0.125]
    for format, output in zip(kit.FORMATS, done, strict=True):
        assert [row["advantage"] for row in kit.values_of(output, format)] == expected
    assert not any(word in output.text for word in ("NaN", "nan", "inf") for output in done[:2])
    assert [row["reward"] for row in done[0].rows] == [1.0, None, 0.0, None, None, 1.0, 0.5, 0.25]
    assert kit.table_of(done[2].out, "parquet")["advantage"].null_count == 3


def test_an_infinite_objective_is_null_in_json_only() -> None:
    kit.write("r.parquet", logp_old=[*kit.TOKENS["logp_old"][:5], [-900.0], [-1.0], [-1.0]])  # row 5 has A = -1
    done = kit.run_in_turn([("objective", "r.parquet", "-f", format) for format in kit.FORMATS])
    assert done[0].row["objective"] is None
    assert [row["objective"] for row in csv.DictReader(io.StringIO(done[1].text))] == ["-inf"]
    assert [kit.table_of(done[n].out, kit.FORMATS[n])["objective"].to_pylist() for n in (2, 3)] == [[-math.inf]] * 2
    assert {(output.code, output.err.count("\n")) for output in done} == {(0, 1)}
    assert "olmorl: note: " in done[0].err
    assert "answer 5" in done[0].err


def test_no_answers_give_no_rows() -> None:
    kit.write("r.parquet", kit.rollouts().slice(0, 0))
    done = kit.run_in_turn([("advantages", "r.parquet", "-f", format) for format in kit.FORMATS])
    assert [output.code for output in done] == [0] * 4
    assert (done[0].out, done[1].out) == (b"", b"step,group,row,reward,advantage,kept\n")
    assert [len(kit.table_of(done[n].out, kit.FORMATS[n])) for n in (2, 3)] == [0, 0]
    (objective,) = kit.run_in_turn([("objective", "r.parquet")])
    assert (objective.row["objective"], objective.row["tokens"], objective.row["clip_low"]) == (None, 0, None)


def every_type() -> dict[str, pa.Array]:
    """Columns of eight values, nulls among them, one for each sort of type."""
    moment = datetime.datetime(2025, 12, 1, 3, 4, 5, 678901)
    values: dict[str, tuple[pa.DataType, list[Any]]] = {
        "tiny": (pa.int8(), [-128, None, 127]),
        "huge": (pa.uint64(), [2**64 - 1, None, 0]),
        "half": (pa.float16(), [np.float16(0.5), None, np.float16(-2.0)]),
        "exact": (pa.decimal128(20, 3), [Decimal("12345678901234567.125"), None, Decimal("-0.001")]),
        "flag": (pa.bool_(), [True, None, False]),
        "text": (pa.string(), ["", None, "a\x00😀"]),
        "long text": (pa.large_string(), ["[bold]", None, "\n"]),
        "bytes": (pa.binary(), [b"", None, b"\xff\x00"]),
        "word": (pa.dictionary(pa.int32(), pa.string()), ["x", None, "y"]),
        "day": (pa.date32(), [datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
        "moment": (pa.timestamp("us", "UTC"), [moment, None, moment]),
        "pair": (
            pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
            [{"a": 1, "b": ["x", None]}, None, {"b": []}],
        ),
        "lists": (pa.list_(pa.list_(pa.float32())), [[[0.5], None, []], None, []]),
        "ids": (pa.large_list(pa.int64()), [[1, None], None, []]),
        "vector": (pa.list_(pa.float32(), 2), [[1.0, 2.0], [0.5, 0.0], [3.0, None]]),
        "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1)], None, []]),
        "nothing": (pa.null(), [None, None, None]),
    }
    return {name: pa.array((items * 3)[:8], kind) for name, (kind, items) in values.items()}


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_input_columns_pass_through_with_type_value_order_and_metadata(format: str) -> None:
    table = kit.rollouts(**every_type()).replace_schema_metadata({b"mine": b"kept"})
    if format == "parquet":
        table = pq.read_table(kit.write("in.parquet", table))
    else:
        with pa.OSFile("in.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as ipc:
            ipc.write_table(table, max_chunksize=3)
    done = kit.run("advantages", f"in.{format}", "-f", format)
    assert (done.code, done.err) == (0, "")
    passed = kit.table_of(done.out, format)
    assert passed.column_names == [*table.column_names, "advantage", "kept"]
    assert passed.select(table.column_names).schema.equals(table.schema)
    assert passed.select(table.column_names).equals(table)
    assert passed["advantage"].to_pylist() == kit.ADVANTAGES
    assert passed.schema.metadata[b"mine"] == b"kept"


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_columns_that_are_there_already_are_replaced_and_that_is_said(format: str) -> None:
    kit.write("r.parquet", advantage=["old"] * 8, kept=[9] * 8, note=["x"] * 8)
    loud, quiet = kit.run_in_turn([("advantages", "r.parquet", "-f", format, *more) for more in ((), ("-q",))])
    table = kit.table_of(loud.out, format)
    assert table.column_names == [*kit.rollouts().column_names, "note", "advantage", "kept"]
    assert (table["advantage"].to_pylist(), table["kept"].to_pylist()) == (kit.ADVANTAGES, kit.KEPT)
    assert loud.err.startswith("olmorl: note: ")
    assert ("advantage" in loud.err, "kept" in loud.err, loud.err.count("\n")) == (True, True, 1)
    assert (quiet.err, quiet.out) == ("", loud.out)


def test_files_of_different_columns_are_united_by_name() -> None:
    first, second = kit.rollouts(extra=[1] * 8).slice(0, 4), kit.rollouts(other=["x"] * 8).slice(4)
    done = kit.run("advantages", kit.write("a.parquet", first), kit.write("b.parquet", second), "-f", "arrow")
    table = kit.table_of(done.out, "arrow")
    assert table.column_names == [*kit.rollouts().column_names, "extra", "other", "advantage", "kept"]
    assert table["extra"].to_pylist() == [1] * 4 + [None] * 4
    assert table["advantage"].to_pylist() == kit.ADVANTAGES


def test_a_group_column_called_like_a_result_is_not_lost() -> None:
    names = ("row", "reward", "advantage", "kept")
    for name in names:
        kit.write(f"{name}.parquet", prompt_id=["a"] * 8, **{name: [0.0, 1.0] * 4})
    options = ("-q", "--group", "prompt_id", "--group")
    for done in kit.run_in_turn([("advantages", f"{name}.parquet", *options, name) for name in names]):
        assert done.code == 2 or len(json.loads(done.text.split("\n")[0])) == len(["step", "prompt_id", "the other", *names])
