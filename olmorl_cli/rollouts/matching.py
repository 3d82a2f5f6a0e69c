"""Which row of the joined files belongs to each row of the input, by the values of a key."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from olmorl_cli.errors import MOST_PLACES, DataError, Place, Problems
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, column_of, rows_by_file
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.ids import Codes, combine, encode, first_rows, refuse_invalid_texts, refuse_rounded
from olmorl_cli.rollouts.parallel import in_order
from olmorl_cli.rollouts.roles import resolve

_LONGEST = 60
"""Characters of a key that messages show."""


@dataclass(frozen=True)
class Matching:
    """N rows of the input, each with one of M rows of the joined files.

    Attributes:
        rows: int (N,), which of the used joined rows it is.
        first_rows: int (files + 1,), of the input's files.
        used: bool (M,), which joined rows belong to one of the input.
        fragments: of each joined file.
    """

    rows: IntArray
    first_rows: IntArray
    used: BoolArray
    fragments: list[list[Fragment]]

    def rows_of(self, fragment: Fragment) -> IntArray:
        """The used joined rows that belong to a fragment of the input."""
        first = self.first_rows[fragment.file_number] + fragment.first_row
        return self.rows[first : first + fragment.rows]


def match_rows(mains: Sequence[DataFile], others: Sequence[DataFile], on: Sequence[str], name: str) -> Matching:
    """Find for each row of `mains` the one row of `others`, called `name`, that has the same values in the columns `on`.

    Raises:
        DataError: a row has none, or keys are null or come twice on one side; all of it is gathered first.
        InputError: the keys cannot be compared.
    """
    main = _Side(mains, on)
    other = _Side(others, on, after=main)
    ids = [_encoded(key, main, other, number) for number, key in enumerate(on)]
    null = functools.reduce(np.logical_or, (np.zeros(1, np.bool_) if each.null is None else each.null for each in ids))
    null = np.broadcast_to(null, ids[0].codes.shape)
    keys = functools.reduce(combine, ids)
    problems = Problems()
    described = functools.partial(_described, on, ids)
    for side in (main, other):
        part = slice(side.start, side.start + side.rows)
        what = f"{', '.join(on)}, the key of {side.row}, is null"
        side.report(problems, "null_key", what, "Write a value into every row", null[part])
        again = _again(keys.codes[part], null[part], len(keys.values))
        action = "Keep one row an answer, or add with another --on what tells them apart"
        side.report(problems, "repeated_key", f"the key of {side.row} comes again", action, again, described)
    row_of_key = np.full(len(keys.values), -1, dtype=np.int64)
    known = np.flatnonzero(~null[main.rows :])
    row_of_key[keys.codes[main.rows :][known]] = known
    found = row_of_key[keys.codes[: main.rows]]
    action = f"Write its row into {name}, or leave it out of the input"
    missing = (found < 0) & ~null[: main.rows]
    main.report(problems, "missing_key", f"{name} has no row with this key", action, missing, described)
    if problems:
        raise DataError(problems)
    used = np.zeros(other.rows, dtype=np.bool_)
    used[found] = True
    return Matching((np.cumsum(used) - 1)[found], main.first_rows, used, other.fragments)


class _Side:
    """The key columns of one side's files; its files and rows are counted `after` those of the other."""

    def __init__(self, files: Sequence[DataFile], on: Sequence[str], after: "_Side | None" = None) -> None:
        self.files, self.on = files, on
        self.row = "an answer" if after is None else "a joined row"
        self.number: int = 0 if after is None else len(after.files)
        self.start: int = 0 if after is None else after.rows
        self.fragments = [file.fragments(place) for place, file in enumerate(files)]
        self.chunks: list[list[pa.Array]] = [[] for _ in on]
        self.owners: list[DataFile] = []
        fragments = [fragment for own in self.fragments for fragment in own]

        def read(fragment: Fragment) -> list[list[pa.Array]]:
            file = files[fragment.file_number]
            places = [place for key in on if (place := resolve(key, file.schema)) is not None]
            tops = list(dict.fromkeys(place.top for place in places))
            return [[column_of(batch, place) for place in places] for batch in file.batches(fragment, tops)]

        for fragment, batches in zip(fragments, in_order(read, fragments), strict=True):
            for arrays in batches:
                self.owners.append(files[fragment.file_number])
                for chunks, array in zip(self.chunks, arrays, strict=True):
                    chunks.append(array)
        self.first_rows = np.cumsum([0, *(sum(fragment.rows for fragment in own) for own in self.fragments)])
        self.rows: int = int(self.first_rows[-1])

    def report(
        self,
        problems: Problems,
        code: str,
        message: str,
        action: str,
        wrong: BoolArray,
        detail: Callable[[int], str] | None = None,
    ) -> None:
        """Add a problem for each file with rows where `wrong` is true; `detail` of a row among those of both sides."""
        for number, own in rows_by_file(wrong, self.first_rows):
            first = int(self.first_rows[number])
            named = own[:MOST_PLACES].tolist()
            details = ["" if detail is None else detail(self.start + row) for row in named]
            places = [
                Place(self.number + number, row - first, detail=d, value=d.strip(" ()") or "null")
                for row, d in zip(named, details, strict=True)
            ]
            name = self.files[number].name
            problems.add(code, message, action, file=name, places=places, count=own.size, column=", ".join(self.on))


def _encoded(key: str, main: _Side, other: _Side, number: int) -> Codes:
    """Codes of one column of the key, the input's rows and then the joined ones."""
    chunks, owners = [*main.chunks[number], *other.chunks[number]], [*main.owners, *other.owners]
    refuse_rounded(key, chunks, owners)
    ids = encode(f"key {key}", chunks, [file.name for file in owners])
    refuse_invalid_texts(key, ids, chunks, owners)
    return ids


def _again(codes: IntArray, null: BoolArray, number: int) -> BoolArray:
    """Rows whose key stands in a row before."""
    rows = np.flatnonzero(~null)
    again = ~null
    first = first_rows(codes[rows], number)
    seen = np.bincount(codes[rows], minlength=number) > 0
    again[rows[first[seen]]] = False
    return again


def _described(on: Sequence[str], ids: Sequence[Codes], row: int) -> str:
    """A row's key for a message."""
    texts = (f"{key} {each.value(row)}" for key, each in zip(on, ids, strict=True))
    return " (" + ", ".join(text if len(text) <= _LONGEST else text[:_LONGEST] + "..." for text in texts) + ")"
