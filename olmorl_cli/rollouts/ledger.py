"""Columns that are found in one order and wanted in another, laid down in a temporary file."""

import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.rollouts.arrays import IntArray
from olmorl_cli.rollouts.sources import Descriptor, keeping, temporary_file

Columns = Mapping[Any, npt.NDArray[Any]]
MOST_READ = 1 << 30
"""Bytes read at a time."""
ROWS = ""
"""What the rows themselves are called among the columns."""


class Ledger:
    """Columns beside numbered rows, added in pieces with rows anywhere, taken in sections of rows that follow each other.

    Memory holds where they lie.
    """

    def __init__(self, first_rows: Sequence[int] | IntArray, name: str) -> None:
        """Nothing yet.

        Args:
            first_rows: the row with which each section begins, ascending.
            name: what messages call the input.

        Raises:
            InputError: there is no room for temporary files.
        """
        self._firsts, self._name, self._end = np.array(first_rows), name, 0
        self._pieces: list[tuple[IntArray, dict[Hashable, tuple[int, np.dtype[Any]]]]] = []
        with keeping(name), temporary_file() as file:
            self._file = Descriptor(os.dup(file.fileno()))

    def add(self, rows: IntArray, columns: Columns) -> None:
        """Add a piece.

        Args:
            rows: int (n,), ascending.
            columns: beside them, (n,) each.

        Raises:
            InputError: there is no room for it.
        """
        places = {}
        with keeping(self._name), open(self._file.number, "wb", closefd=False) as file:
            file.seek(self._end)
            for key, values in {ROWS: rows, **columns}.items():
                places[key] = (self._end, values.dtype)
                file.write(np.ascontiguousarray(values).data)
                self._end += values.nbytes
        self._pieces.append((np.append(np.searchsorted(rows, self._firsts), rows.size), places))

    def piece(self, number: int) -> dict[Any, npt.NDArray[Any]]:
        """The columns of a piece, its rows among them."""
        return self._read(number, 0, self._firsts.size)

    def pieces(self, section: int) -> Iterator[dict[Any, npt.NDArray[Any]]]:
        """What each piece has of a section: columns, the rows among them."""
        return (self._read(number, section, section + 1) for number in range(len(self._pieces)))

    def section(self, number: int) -> dict[Any, npt.NDArray[Any]]:
        """All columns of a section, rows ascending and among them; every piece must have the same ones."""
        pieces = list(self.pieces(number))
        whole = {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}
        order = np.argsort(whole[ROWS], kind="stable")
        return {key: values[order] for key, values in whole.items()}

    def _read(self, number: int, first: int, stop: int) -> dict[Any, npt.NDArray[Any]]:
        """What a piece has of the sections from `first` to before `stop`."""
        bounds, places = self._pieces[number]
        begin, size = int(bounds[first]), int(bounds[stop] - bounds[first])
        return {
            key: np.frombuffer(self._bytes(place + begin * kind.itemsize, size * kind.itemsize), dtype=kind)
            for key, (place, kind) in places.items()
        }

    def _bytes(self, place: int, size: int) -> bytes:
        """So many bytes of the file; the system gives MOST_READ at a time at most."""
        parts = [
            os.pread(self._file.number, min(MOST_READ, size - done), place + done) for done in range(0, size, MOST_READ)
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)
