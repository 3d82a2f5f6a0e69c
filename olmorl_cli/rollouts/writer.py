"""Results to files and standard output: Parquet, Arrow, CSV and JSON Lines."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from olmorl_cli.errors import OutputError
from olmorl_cli.rollouts.arrays import lists_of, storage_of
from olmorl_cli.rollouts.parallel import in_order, lots
from olmorl_cli.rollouts.roles import is_list
from olmorl_cli.rollouts.texts import csv_texts, few_values, joined, json_texts

Texts = Callable[[pa.Array], pa.Array]

ROWS = 1 << 16
"""Rows written at a time."""
LEAST_ROWS = 256
CHUNK_BYTES = 16 << 20
"""About how much text is written at a time, where rows are wide."""
ROW_GROUP_BYTES = 16 << 20
"""About how much memory the rows of one row group of Parquet take."""
LEAST_TO_JUDGE = 4096
"""Rows that show whether a column's values repeat."""


def write_table(table: pa.Table, format: str, sink: IO[bytes], *, stream: bool) -> None:
    """`write_tables` of one table."""
    write_tables([table], format, sink, stream=stream)


def write_tables(tables: Iterable[pa.Table], format: str, sink: IO[bytes], *, stream: bool) -> None:
    """Write tables with the same columns, which may be dictionaries of ids; none is held while the next is made.

    Args:
        tables: the rows; at least one table.
        format: parquet, arrow, csv or jsonl.
        sink: takes the bytes.
        stream: Arrow as a stream rather than a file.
    """
    names: list[str] = []

    def lines(table: pa.Table) -> None:
        _write_lines([table], table.column_names, format, sink, headed=bool(names))
        names[:] = table.column_names

    def rows(table: pa.Table) -> list[pa.RecordBatch]:
        plain = pa.Table.from_arrays([_decoded(column) for column in table.columns], names=table.column_names)
        return plain.to_batches() or [pa.RecordBatch.from_pylist([], plain.schema)]

    if format in ("jsonl", "csv"):
        for _ in map(lines, tables):
            pass
        return
    batches = itertools.chain.from_iterable(map(rows, tables))
    first = next(batches)
    write_batches(first.schema, itertools.chain([first], batches), format, sink, stream=stream)


def write_batches(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], format: str, sink: IO[bytes], *, stream: bool
) -> None:
    """Write record batches of one schema; in jsonl and csv each dictionary column's dictionary should be small.

    Raises:
        OutputError: Parquet has no type for a column.
    """
    if format in ("jsonl", "csv"):
        _write_lines((pa.Table.from_batches([batch]) for batch in batches), schema.names, format, sink)
        return
    if format == "parquet":
        batches = iter(batches)
        start = list(itertools.islice(batches, 1))
        try:
            parquet = pq.ParquetWriter(sink, schema, use_dictionary=_repeating(start))
        except pa.ArrowNotImplementedError as error:
            said = " ".join(str(error).split())
            raise OutputError(f"a column cannot be written as Parquet: {said}. Ask for -f arrow") from error
        with parquet as writer:
            for lot in lots(itertools.chain(start, batches), lambda batch: int(batch.nbytes), ROW_GROUP_BYTES):
                writer.write_table(pa.Table.from_batches(lot))
        return
    with pa.ipc.new_stream(sink, schema) if stream else pa.ipc.new_file(sink, schema) as ipc:
        for batch in batches:
            ipc.write_batch(batch)


def _repeating(batches: Sequence[pa.RecordBatch]) -> list[str] | bool:
    """Paths of the columns worth a dictionary, by their first batch: not those in which most values are new."""
    if not batches:
        return True
    first = batches[0].slice(0, LEAST_TO_JUDGE)
    leaves = [leaf for name, column in zip(first.schema.names, first.columns, strict=True) for leaf in _leaves(name, column)]
    return [path for path, values in leaves if not _are_new(values)]


def _leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The columns of Parquet that a column becomes, each with its path."""
    values = storage_of(values)
    if types.is_struct(values.type):
        for index, field in enumerate(values.type):
            yield from _leaves(f"{path}.{field.name}", pc.struct_field(values, [index]))
    elif types.is_map(values.type):
        yield from _leaves(f"{path}.key_value.key", values.keys)
        yield from _leaves(f"{path}.key_value.value", values.items)
    elif is_list(values.type):
        yield from _leaves(f"{path}.list.element", lists_of(values).values)
    else:
        yield path, values


def _are_new(values: pa.Array) -> bool:
    """Whether most of many values are different."""
    if len(values) < LEAST_TO_JUDGE or types.is_dictionary(values.type):
        return False
    try:
        return int(pc.count_distinct(values.slice(0, LEAST_TO_JUDGE)).as_py()) > LEAST_TO_JUDGE // 2
    except pa.ArrowNotImplementedError:
        return False


def write_records(records: Sequence[Mapping[str, Any]], format: str, sink: IO[bytes], *, stream: bool) -> None:
    """Write a few records of plain values; nested ones are JSON texts but in JSON Lines."""
    if format == "jsonl":
        lines = [json.dumps(_without_infinity(record), ensure_ascii=False, allow_nan=False) + "\n" for record in records]
        sink.write("".join(lines).encode(errors="backslashreplace"))  # \udcff is JSON's own way for a name's stray bytes
        return
    flat = [{key: _flat(value) for key, value in record.items()} for record in records]
    columns = {key: [record[key] for record in flat] for key in (flat[0] if flat else {})}
    write_table(pa.table({key: _typed(values) for key, values in columns.items()}), format, sink, stream=stream)


def _typed(values: list[Any]) -> pa.Array:
    kind = pa.float64() if all(value is None or isinstance(value, float) for value in values) else None
    if any(isinstance(value, int) and value >= 2**63 for value in values):
        kind = pa.uint64()
    return pa.array(values, kind)


def _flat(value: Any) -> Any:
    if isinstance(value, dict | list):
        value = json.dumps(value, ensure_ascii=False)
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _without_infinity(value: Any) -> Any:
    """The value with None for infinite numbers, which JSON cannot write."""
    if isinstance(value, dict):
        return {key: _without_infinity(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_infinity(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    if not types.is_nested(kind):
        return column.cast(kind)
    # pyarrow has no cast from dictionaries of lists and structs.
    parts = (chunk.slice(first, ROWS) for chunk in column.chunks for first in range(0, len(chunk), ROWS))
    return pa.chunked_array([part.dictionary.take(part.indices) for part in parts], kind)


def _write_lines(
    tables: Iterable[pa.Table], names: Sequence[str], format: str, sink: IO[bytes], *, headed: bool = False
) -> None:
    """Write the rows of tables with columns of these names as JSON Lines, or as CSV with one header if it is not there."""
    if format == "jsonl":
        keys = [f"{json.dumps(name, ensure_ascii=False)}: " for name in names]
        texts, before, end = json_texts, [("{" if n == 0 else ", ") + key for n, key in enumerate(keys)], "}\n"
    else:
        header = ",".join(csv_texts(pa.array(names)).to_pylist())
        sink.write(b"" if headed else f"{header}\n".encode())
        texts, before, end = csv_texts, ["", *[","] * (len(names) - 1)], "\n"
    around = list(zip(before, [*[""] * (len(names) - 1), end], strict=True))
    for table in tables:
        _write_texts(table, sink, texts, around)


def _write_texts(table: pa.Table, sink: IO[bytes], texts: Texts, around: Sequence[tuple[str, str]]) -> None:
    """Write a line a row: before and after the text of column i stands what `around[i]` says."""
    columns = [_with_words(column, texts, *each) for column, each in zip(table.columns, around, strict=True)]
    width = sum(column.width if isinstance(column, _Words) else column.nbytes / max(len(column), 1) for column in columns)
    rows = max(LEAST_ROWS, min(ROWS, int(CHUNK_BYTES / max(width, 1.0))))

    def lines(first: int) -> memoryview:
        parts: list[str | pa.Array] = []
        for column, (before, after) in zip(columns, around, strict=True):
            cell = column.slice(first, rows)
            if isinstance(column, _Words):
                parts.append(cell)
            elif (few := few_values(cell)) is not None:
                parts.append(joined(before, texts(few.dictionary), after).take(few.indices))
            else:
                parts += [before, texts(cell), after]
        return _characters(joined(*(part for part in parts if not isinstance(part, str) or part)))

    for part in in_order(lines, range(0, table.num_rows, rows)):
        sink.write(part)


def _with_words(column: pa.ChunkedArray, texts: Texts, before: str, after: str) -> "pa.Array | _Words":
    """The column in one piece; a dictionary's ids are turned into texts here, once, rather than row by row."""
    array = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    if not types.is_dictionary(array.type):
        return array
    return _Words(array.indices, joined(before, texts(array.dictionary), after))


class _Words:
    """Texts by code, with what stands around them: what is left of a dictionary column."""

    def __init__(self, indices: pa.Array, texts: pa.Array) -> None:
        self.indices, self.texts = indices, texts

    @property
    def width(self) -> float:
        """Mean bytes of a text."""
        return float(self.texts.nbytes / max(len(self.texts), 1))

    def slice(self, first: int, rows: int) -> pa.Array:
        return self.texts.take(self.indices.slice(first, rows))


def _characters(texts: pa.Array) -> memoryview:
    """The texts one after another."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(data)[bounds[0] : bounds[-1]] if data is not None else memoryview(b"")
