"""Columns laid down once in a temporary file, so that their rows can be taken in any order."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from olmorl_cli.rollouts.arrays import IntArray
from olmorl_cli.rollouts.parallel import lots
from olmorl_cli.rollouts.sources import held, keeping, temporary_file

CHUNK_BYTES = 32 << 20
"""About how much a record batch of the file takes: each that a request touches costs a little."""


class Shelf:
    """Rows on disk, mapped into memory: the system decides which of them stay there. Taking from several threads is safe.

    Attributes:
        row_bytes: mean size of a row.
    """

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch], name: str) -> None:
        """Write the batches, rows of what messages call `name`.

        Raises:
            InputError: there is no room for them.
        """
        self._schema = schema
        with temporary_file() as file, keeping(name):
            with pa.ipc.new_file(file, schema) as writer:
                for chunk in _chunks(batches, schema):
                    writer.write_batch(chunk)
            size = file.tell()
            source = held(file, name)
            reader = pa.ipc.open_file(pa.memory_map(source.path))
        self._batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        self._first = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self.row_bytes = size / max(int(self._first[-1]), 1)

    def take(self, rows: IntArray) -> dict[str, pa.Array]:
        """The columns at these rows (n,), n > 0, in their order."""
        back = None
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            back, rows = np.empty_like(order), rows[order]
            back[order] = np.arange(order.size)
        edges = np.searchsorted(rows, self._first)
        touched = np.flatnonzero(np.diff(edges))
        pieces = [self._piece(number, rows[edges[number] : edges[number + 1]]) for number in touched.tolist()]
        return {name: _whole([piece.column(name) for piece in pieces], back) for name in self._schema.names}

    def _piece(self, number: int, rows: IntArray) -> pa.RecordBatch:
        """Ascending rows that all stand in one batch."""
        batch, rows = self._batches[number], rows - self._first[number]
        if (rows[1:] == rows[:-1] + 1).all():
            return batch.slice(rows[0], rows.size)
        return batch.take(pa.array(rows))


def _whole(pieces: list[pa.Array], order: IntArray | None) -> pa.Array:
    """The pieces one after another, in another order if one is given."""
    array = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
    return array if order is None else array.take(pa.array(order))


def _chunks(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about CHUNK_BYTES."""
    for lot in lots(batches, lambda batch: batch.nbytes, CHUNK_BYTES):
        yield from pa.Table.from_batches(lot, schema).combine_chunks().to_batches()
