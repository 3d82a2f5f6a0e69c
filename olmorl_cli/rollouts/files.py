"""Files of each kind, opened: their schema, and their rows in batches of the columns asked for."""

import errno
import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.sources import Source, held, keeping, temporary_file

BATCH_BYTES = 1 << 20
"""About how much a batch of decoded columns takes in memory."""
LONE_BATCHES = 3
"""So many times as much where a fragment is the whole file: fewer batches are then decoded at a time."""
FRAGMENT_BYTES = 64 << 20
FRAGMENT_ROWS = 1 << 20
"""Rows at which a fragment of Parquet ends, however few bytes they take in the file: ids and rewards repeat."""
MOST_ROWS = 1 << 16
FIRST_ROWS = 64
"""Rows that show how much memory the others will take."""
READ_AHEAD = 1 << 18
REMOTE_READ_AHEAD = 4 << 20
"""Bytes of each column that are asked for at a time over a network."""


@dataclass(frozen=True)
class Fragment:
    """A run of a file's rows that one worker reads.

    Attributes:
        file_number: the file's place in the input.
        parts: the row groups (Parquet) or record batches (Arrow file) it consists of; empty for a whole stream.
        first_row: of the file.
        rows: their number.
    """

    file_number: int
    parts: tuple[int, ...]
    first_row: int
    rows: int


class DataFile(ABC):
    """An open file of the input. Reading from several threads at once is safe."""

    kind: str

    def __init__(self, source: Source, schema: pa.Schema) -> None:
        self.source = source
        self.name = source.name
        self.schema = schema

    @property
    def portable(self) -> bool:
        """Whether other processes can open it: it is no copy that only this one has."""
        return self.source.portable

    def called(self, top: str, name: str) -> str:  # noqa: ARG002
        """How messages call the column `name`, which lies in the top-level column `top`."""
        return name

    @abstractmethod
    def fragments(self, number: int) -> list[Fragment]:
        """The file cut into fragments, in order; `number` is the file's place in the input."""

    @abstractmethod
    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The fragment's rows, only the top-level `columns` of them, in order and in batches of bounded size.

        Raises:
            InputError: they cannot be read.
        """


def one_line(error: Exception) -> str:
    """An error's text without line breaks and closing stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


READ_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, NotImplementedError, OverflowError, RecursionError)
"""What pyarrow raises on files that it cannot read."""


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turns what pyarrow raises on a damaged file into an `InputError`; no memory stays a MemoryError."""
    try:
        yield
    except MemoryError:
        raise
    except READ_ERRORS as error:
        if isinstance(error, OSError) and error.errno == errno.EMFILE:
            raise InputError(
                f"{name}: too many files are open. Raise the limit (ulimit -n), or put the rows into fewer"
            ) from error
        raise InputError(f"{name}: cannot be read: {one_line(error)}. Check that it is whole, or write it anew") from error


class ParquetFile(DataFile):
    """Parquet: a fragment is a run of row groups."""

    kind = "parquet"

    def __init__(self, source: Source) -> None:
        self._read_ahead = REMOTE_READ_AHEAD if source.remote else READ_AHEAD
        with _place(source) as place, self._open(place, None, 0) as file:
            self._metadata = file.metadata
            super().__init__(source, file.schema_arrow)

    def _open(self, place: str | pa.NativeFile, metadata: pq.FileMetaData | None, buffer_size: int) -> pq.ParquetFile:
        return pq.ParquetFile(
            place,
            metadata=metadata,
            buffer_size=buffer_size,
            pre_buffer=False,
            page_checksum_verification=True,
        )

    def fragments(self, number: int) -> list[Fragment]:
        fragments: list[Fragment] = []
        parts: list[int] = []
        first = rows = size = 0
        for index in range(self._metadata.num_row_groups):
            group = self._metadata.row_group(index)
            if parts and (size + group.total_byte_size > FRAGMENT_BYTES or rows + group.num_rows > FRAGMENT_ROWS):
                fragments.append(Fragment(number, tuple(parts), first, rows))
                first, parts, rows, size = first + rows, [], 0, 0
            parts.append(index)
            rows += group.num_rows
            size += group.total_byte_size
        if parts:
            fragments.append(Fragment(number, tuple(parts), first, rows))
        return fragments

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = 0
        with reading(self.name), _place(self.source) as place, self._open(place, self._metadata, self._read_ahead) as file:
            for batch in file.iter_batches(
                batch_size=self._rows_per_batch(place, fragment, columns),
                row_groups=list(fragment.parts),
                columns=list(columns),
                use_threads=False,
            ):
                rows += batch.num_rows
                for column in batch.columns:
                    if types.is_dictionary(column.type):
                        column.validate(full=True)  # a damaged file's codes may point beyond its words
                if rows <= fragment.rows:
                    yield batch
            if rows != fragment.rows:
                raise ValueError(f"it has {rows} rows where its footer says {fragment.rows}")

    def _rows_per_batch(self, place: str | pa.NativeFile, fragment: Fragment, columns: Sequence[str]) -> int:
        """Rows whose columns take about BATCH_BYTES, or LONE_BATCHES times as much, by the first rows of the fragment.

        The footer knows the columns' sizes, but pyarrow ends the process when it is asked for those of some damaged ones.
        """
        if not any(types.is_nested(self.schema.field(name).type) for name in columns if name in self.schema.names):
            return MOST_ROWS
        with self._open(place, self._metadata, self._read_ahead) as file:
            first = next(file.iter_batches(FIRST_ROWS, [*fragment.parts], [*columns], use_threads=False), None)
        if first is None or not first.num_rows:
            return MOST_ROWS
        whole = len(fragment.parts) == self._metadata.num_row_groups
        most_bytes = BATCH_BYTES * (LONE_BATCHES if whole else 1)
        rows: int = most_bytes * first.num_rows // max(first.nbytes, 1)
        return max(1, min(MOST_ROWS, rows))


class ArrowFile(DataFile):
    """Arrow's IPC file: record batches that can be read in any order."""

    kind = "arrow"

    def __init__(self, source: Source, copy: Source | None = None) -> None:
        """Open the file, or a `copy` of it that is of this kind."""
        self._read = copy or source
        with _mapped(self._read) as data:
            schema = pa.ipc.open_file(data).schema
            with pa.ipc.open_file(data, options=_only(schema, schema.names[:1])) as reader:
                self._rows = [reader.get_batch(index).num_rows for index in range(reader.num_record_batches)]
            self._row_bytes = data.size() / max(sum(self._rows), 1)
        super().__init__(source, schema)

    @property
    def portable(self) -> bool:
        return self._read.portable

    def fragments(self, number: int) -> list[Fragment]:
        firsts = np.cumsum([0, *self._rows])
        cuts = np.flatnonzero(np.diff(firsts[:-1] * self._row_bytes // FRAGMENT_BYTES, prepend=-1.0)).tolist()
        return [
            Fragment(number, tuple(range(a, b)), int(firsts[a]), int(firsts[b] - firsts[a]))
            for a, b in itertools.pairwise([*cuts, len(self._rows)])
        ]

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = _only(self.schema, columns)
        with reading(self.name), _mapped(self._read) as data, pa.ipc.open_file(data, options=options) as reader:
            for index in fragment.parts:
                yield from _cut(reader.get_batch(index))


class ArrowStream(DataFile):
    """Arrow's IPC stream: one fragment, read from its beginning each time."""

    kind = "arrow"

    def __init__(self, source: Source) -> None:
        with _mapped(source) as data:
            schema = pa.ipc.open_stream(data).schema
        options = _only(schema, schema.names[:1])
        with _streamed(source) as data, pa.ipc.open_stream(data, options=options) as reader:
            self._rows = sum(batch.num_rows for batch in reader)
        super().__init__(source, schema)

    def fragments(self, number: int) -> list[Fragment]:
        return [Fragment(number, (), 0, self._rows)] if self._rows else []

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        options = _only(self.schema, columns)
        with reading(self.name), _streamed(self.source) as data, pa.ipc.open_stream(data, options=options) as reader:
            for batch in reader:
                yield from _cut(batch)


def _place(source: Source) -> AbstractContextManager[str | pa.NativeFile]:
    """Where Parquet is read: the path of a file of this machine, else the file, open."""
    return _mapped(source) if source.remote else nullcontext(source.path)


def _mapped(source: Source) -> pa.NativeFile:
    """The file's bytes for Arrow: mapped into memory, or fetched when they are asked for."""
    return pa.PythonFile(source.open(), mode="r") if source.remote else pa.memory_map(source.path)


def _streamed(source: Source) -> pa.NativeFile:
    """The file's bytes for Arrow, to be read one after another."""
    return pa.BufferedInputStream(_mapped(source), REMOTE_READ_AHEAD) if source.remote else _mapped(source)


def _only(schema: pa.Schema, columns: Sequence[str]) -> pa.ipc.IpcReadOptions:
    wanted = set(columns)
    included = [index for index, name in enumerate(schema.names) if name in wanted]
    return pa.ipc.IpcReadOptions(included_fields=included, use_threads=False)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch of any size in pieces of about BATCH_BYTES."""
    batch.validate(full=True)  # a file's offsets may point anywhere
    rows = max(1, min(MOST_ROWS, BATCH_BYTES * max(batch.num_rows, 1) // max(batch.get_total_buffer_size(), 1)))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)


def open_file(source: Source) -> DataFile:
    """The file, opened by what it contains, whatever its name says.

    Raises:
        InputError: it is empty, damaged, or of no kind that is read here.
    """
    try:
        with source.open() as file:
            head = file.read(4096)
            file.seek(max(0, file.seek(0, os.SEEK_END) - 6))
            tail = file.read(6)
    except OSError as error:
        raise InputError(f"{source.name}: {error.strerror or error}. Check the path and its permissions") from error
    if not head:
        raise InputError(f"{source.name}: it is empty. Write it anew")
    with reading(source.name):
        return _opened(source, head, tail)


def _opened(source: Source, head: bytes, tail: bytes) -> DataFile:
    if head.startswith(b"PAR1"):
        return ParquetFile(source)
    if b"PARE" in (head[:4], tail[-4:]):
        raise InputError(f"{source.name}: the file is encrypted Parquet. Write it without encryption")
    if head.startswith(b"ARROW1"):
        return ArrowFile(source)
    if head.startswith(b"\xff\xff\xff\xff"):
        return ArrowStream(source)
    if head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{":
        from olmorl_cli.rollouts.jsonlines import json_to_arrow

        with temporary_file() as copy, keeping(source.name):
            json_to_arrow(source, copy)
            converted = ArrowFile(source, held(copy, source.name))
        converted.kind = "jsonl"
        return converted
    looks = _foreign(head, tail)
    raise InputError(f"{source.name}: {looks}. Rollouts are Parquet, Arrow or JSON Lines")


def _foreign(head: bytes, tail: bytes) -> str:
    """What a file that is none of ours seems to be."""
    if head.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, not the data; fetch the file with git lfs pull"
    if head.lstrip()[:1] == b"<":
        return "it is HTML or XML, a page instead of the file"
    if tail.endswith(b"PAR1"):
        return "its beginning is missing"
    if head.startswith(b"\x1f\x8b"):
        return "it is gzip; unpack it first"
    return "it is of no kind known here"
