"""What is found in one order and wanted in another, laid down in temporary files: memory holds where things lie."""

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.rollouts.arrays import IntArray
from olmorl_cli.rollouts.sources import Descriptor, keeping, temporary_file

Columns = Mapping[str, npt.NDArray[Any]]


class _File:
    """A temporary file that grows."""

    def __init__(self, name: str) -> None:
        self._name, self._end = name, 0
        with keeping(name), temporary_file() as file:
            self._file = Descriptor(os.dup(file.fileno()))

    def add(self, data: bytes | memoryview) -> int:
        """Write at the end; where it lies."""
        place = self._end
        with keeping(self._name), open(self._file.number, "wb", buffering=0, closefd=False) as file:
            file.seek(place)
            left = memoryview(data).cast("B") if len(data) else memoryview(b"")
            while left:
                left = left[file.write(left) :]
            self._end = file.tell()
        return place

    def read(self, place: int, size: int) -> bytes:
        return os.pread(self._file.number, size, place)


class Ledger:
    """Columns beside some rows of the input, or all of them, found share by share, to be taken fragment by fragment."""

    def __init__(self, first_rows: Sequence[int], name: str) -> None:
        """Nothing yet, for an input whose fragments begin with `first_rows`, and which messages call `name`.

        Raises:
            InputError: there is no room for temporary files.
        """
        self._firsts, self._file = np.array(first_rows), _File(name)
        self._pieces: list[tuple[IntArray, dict[str, tuple[int, np.dtype[Any]]]]] = []

    def add(self, rows: IntArray, columns: Columns) -> None:
        """Add what was found of some `rows` of the input, ascending, (n,), all of them new; a value a row in each column.

        Raises:
            InputError: there is no room for it.
        """
        whole = {"": rows, **columns}
        places = {key: (self._file.add(np.ascontiguousarray(each).data), each.dtype) for key, each in whole.items()}
        self._pieces.append((np.append(np.searchsorted(rows, self._firsts), rows.size), places))

    def take(self, fragment: int) -> tuple[IntArray, dict[str, npt.NDArray[Any]]]:
        """The rows of a fragment that something was found of, ascending, and the columns beside them."""
        read: dict[str, list[npt.NDArray[Any]]] = {}
        for bounds, places in self._pieces:
            first, stop = (int(bound) for bound in bounds[fragment : fragment + 2])
            for key, (place, kind) in places.items():
                data = self._file.read(place + first * kind.itemsize, (stop - first) * kind.itemsize)
                read.setdefault(key, []).append(np.frombuffer(data, dtype=kind))
        whole = {key: np.concatenate(pieces) for key, pieces in read.items()}
        order = np.argsort(whole[""], kind="stable")
        return whole.pop("")[order], {key: values[order] for key, values in whole.items()}


class Piles:
    """Things of any kind on numbered piles."""

    def __init__(self, name: str) -> None:
        """Nothing yet, of an input that messages call `name`.

        Raises:
            InputError: there is no room for temporary files.
        """
        self._file = _File(name)
        self._places: dict[int, list[tuple[int, int]]] = {}

    def add(self, pile: int, thing: object) -> None:
        """Put something onto a pile.

        Raises:
            InputError: there is no room for it.
        """
        data = pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)
        self._places.setdefault(pile, []).append((self._file.add(data), len(data)))

    def take(self, pile: int) -> Iterator[Any]:
        """What lies on a pile, in the order in which it was put there; it stays there."""
        for place, size in self._places.get(pile, []):
            yield pickle.loads(self._file.read(place, size))
