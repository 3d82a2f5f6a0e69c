"""Ids of every type that can be told apart, as group, step and batch, in every command and format."""

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.cli import kit

DAY = datetime.date(2025, 12, 1)
CHAT = pa.list_(pa.struct([("role", pa.string()), ("day", pa.date32())]))
IDS: dict[str, tuple[pa.Array, list[Any]]] = {
    "day": (pa.array([DAY, datetime.date(2025, 2, 3)]), ["2025-12-01", "2025-02-03"]),
    "nanoseconds": (
        pa.array([7, 5], pa.timestamp("ns")),
        ["1970-01-01 00:00:00.000000007", "1970-01-01 00:00:00.000000005"],
    ),
    "zoned": (pa.array([1, 0], pa.timestamp("s", "UTC")), ["1970-01-01 00:00:01Z", "1970-01-01 00:00:00Z"]),
    "time": (pa.array([60, 5], pa.time32("s")), ["00:01:00", "00:00:05"]),
    "exact": (pa.array([Decimal("10.25"), Decimal("9.50")]), [10.25, 9.5]),
    "bytes": (pa.array([b"\xff", b"\x00"]), ["ff", "00"]),
    "views": (pa.array([b"b", b"a"], pa.binary_view()), ["62", "61"]),
    "uuid": (
        pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"b" * 16, b"a" * 16], pa.binary(16))),
        ["62" * 16, "61" * 16],
    ),
    "flag": (pa.array([True, False]), [True, False]),
    "huge": (pa.array([2**64 - 1, 7], pa.uint64()), [2**64 - 1, 7]),
    "fraction": (pa.array([2.5, -1.0]), [2.5, -1]),
    "tokens": (pa.array([[2, 1], [1, 2]], pa.list_(pa.int16())), [[2, 1], [1, 2]]),
    "holes": (pa.array([[math.nan, 2.0], [None, 1.0]]), [[None, 2], [None, 1]]),
    "chat": (
        pa.array([[{"role": "u\x1b", "day": DAY}], [{"role": 'a"'}]], CHAT),
        [[{"role": "u\x1b", "day": "2025-12-01"}], [{"role": 'a"', "day": None}]],
    ),
    "empty": (pa.array([{"a": None, "b": [None]}, {"a": None, "b": []}]), [{"a": None, "b": [None]}, {"a": None, "b": []}]),
}
USES = [
    ("groups", "--group", "id"),
    ("advantages", "--group", "id"),
    ("groups", "--step", "id", "--group", "prompt_id"),
    ("objective", "--per-answer", "--group", "id"),
    ("objective", "--by", "id"),
    ("inspect", "--step", "id"),
]
WRITTEN = [USES[0], USES[4], USES[5]]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, tuple[str, ...], str], kit.Done]:
    """Every kind in every use as JSON Lines, in some as Arrow and a table."""
    folder, commands, keys = tmp_path_factory.mktemp("ids"), [], []
    lists = [[-1.0], [-1.0]]
    for name, (ids, _) in IDS.items():
        table = pa.table({"prompt_id": ["a", "a"], "reward": [1.0, 0.0], "logp_new": lists, "logp_old": lists, "id": ids})
        path = str(folder / f"{name}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        uses = [(use, "jsonl") for use in USES] + [(use, format) for use in WRITTEN for format in ("arrow", "table")]
        for (command, *options), format in uses:
            commands.append((command, path, *options, "-q", "-f", format))
            keys.append((name, (command, *options), format))
    return dict(zip(keys, kit.run_in_turn(commands), strict=True))


@pytest.mark.parametrize("name", IDS)
def test_ids_of_every_type_are_the_same_json_in_every_command(name: str, outputs: Any) -> None:
    expected = IDS[name][1]
    for use in USES:
        done = outputs[name, use, "jsonl"]
        if use[0] == "inspect":
            assert [done.row["steps"][key] for key in ("last", "first")] == expected
        else:
            key = "id" if "--by" in use else use[1].lstrip("-") if "--per-answer" not in use else "group"
            order = expected[::-1] if "--by" in use else expected  # ascending
            assert [row[key] for row in done.rows] == order, use


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("format", ["arrow", "table"])
def test_ids_of_every_type_can_be_written_in_every_format(name: str, format: str, outputs: Any) -> None:
    assert [outputs[name, use, format].err for use in WRITTEN] == [""] * len(WRITTEN)
    assert [outputs[name, use, format].code for use in WRITTEN] == [0] * len(WRITTEN)


def test_what_cannot_be_written_is_no_id_and_no_parquet() -> None:
    """An interval of months, days and nanoseconds: refused by its type, and passed on where the format has it."""
    table = pa.table({"prompt_id": ["a"], "reward": [1.0], "id": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pa.OSFile("r.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    commands = [("groups", "r.arrow", "--group", "id"), *(("advantages", "r.arrow", "-f", f) for f in ("parquet", "arrow"))]
    group, parquet, arrow = kit.run_in_turn(commands)
    assert (group.code, group.err.count("\n")) == (2, 1)
    assert "column id cannot be the group: it has type month_day_nano_interval" in group.err
    assert (parquet.code, parquet.out, parquet.err.count("\n")) == (2, b"", 1)
    assert "cannot be written as Parquet" in parquet.err
    assert "-f arrow" in parquet.err
    assert kit.table_of(arrow.out, "arrow")["id"].equals(table["id"])


def test_a_json_line_of_ids_is_one_line_of_any_reader() -> None:
    """Lists of texts with line breaks, quotes and separators of lines."""
    ids = [["a\nb", '"', "\u2028"], ["\x00", "é", "\\"]]
    path = kit.write("r.parquet", pa.table({"prompt_id": pa.array(ids), "reward": [1.0, 0.0]}))
    done = kit.run("groups", path, "-q")
    assert [json.loads(line)["group"] for line in done.text.splitlines()] == ids
