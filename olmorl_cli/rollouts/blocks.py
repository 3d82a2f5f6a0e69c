"""The input cut into blocks that are scored one after another: memory holds the answers of one of them."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from olmorl_cli.errors import Problems
from olmorl_cli.rollouts.answers import is_file_scoped, read_columns
from olmorl_cli.rollouts.arrays import BoolArray, IntArray
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.hashes import chained, hashes_of_ids
from olmorl_cli.rollouts.ids import encode
from olmorl_cli.rollouts.provenance import Provenance
from olmorl_cli.rollouts.roles import Column, storage_type, type_of
from olmorl_cli.rollouts.rollouts import Rollouts

HashArray = npt.NDArray[np.uint64]

MOST_ANSWERS = 10**8
"""Answers of a block, where the input can be cut that often."""
MOST_UNITS = 1 << 25
"""Units whose fragments are looked up at a time."""
_LAST_HASH = 2**64 - 1


def blocks_of(rollouts: Rollouts, by_step: bool = False) -> list[Rollouts]:
    """The input in runs of its fragments, in input order, so that no unit lies in two of them.

    Answers are scored by themselves in each. A note says where a run of more than MOST_ANSWERS cannot be cut.

    Args:
        rollouts: the open input.
        by_step: a unit is a step, or the whole input where it has none, rather than a group.

    Returns:
        At least one; the input itself where it has no more than MOST_ANSWERS.

    Raises:
        InputError: a file cannot be read.
    """
    if rollouts.rows <= MOST_ANSWERS:
        return [rollouts]
    notes = Problems()
    notes.merge(rollouts.notes)
    one_type = _of_one_type(rollouts)
    cuttable = _cuttable(rollouts, by_step) if one_type else np.zeros(len(rollouts.fragments), dtype=np.bool_)
    bounds = _bounds(cuttable, np.array([fragment.rows for fragment in rollouts.fragments]))
    blocks = [_part(rollouts, first, stop, notes if not first else Problems()) for first, stop in itertools.pairwise(bounds)]
    greatest = max(blocks, key=lambda block: block.rows)
    if greatest.rows > MOST_ANSWERS:
        why, action = _held_together(greatest, by_step, one_type)
        message = f"{why}, so {greatest.rows} answers are held in memory together"
        name = rollouts.files[greatest.fragments[0].file_number].name
        notes.add("held_together", message, action, file=name, places=[], count=greatest.rows, severity="note")
    return blocks


def _held_together(block: Rollouts, by_step: bool, one_type: bool) -> tuple[str, str]:
    """Why a block of more than MOST_ANSWERS is not cut, and what can be done."""
    if not one_type:
        return "the files' ids are of different types", "Write one type into all files to score them with less"
    if len(block.fragments) == 1:
        return "they are one row group, batch or stream", "Write Parquet of smaller row groups to score them with less"
    if by_step and "step" not in block.choices:
        return "the recipe scales advantages over the whole input", "Name the step with --step to score them with less"
    unit = "step" if by_step else "group"
    return f"{unit}s lie across row groups and files", f"Sort the rows by {unit} to score them with less"


def _bounds(cuttable: BoolArray, rows: IntArray) -> list[int]:
    """The first fragment of each block, and their number at the end; blocks as large as may be.

    Args:
        cuttable: bool (fragments,), before which fragments the input may be cut.
        rows: int (fragments,).
    """
    ends = np.cumsum(rows)
    bounds, last, begun = [0], 0, 0
    for cut in [*np.flatnonzero(cuttable).tolist(), rows.size]:
        here = int(ends[cut - 1]) if cut else 0
        if here - begun > MOST_ANSWERS and last > bounds[-1]:
            bounds.append(last)
            begun = int(ends[last - 1])
        if here > begun:
            last = cut
    return [*bounds, rows.size]


def _part(rollouts: Rollouts, first: int, stop: int, notes: Problems) -> Rollouts:
    """The input's fragments from `first` to before `stop`."""
    row = sum(fragment.rows for fragment in rollouts.fragments[:first])
    own = rollouts.fragments[first:stop]
    part = dataclasses.replace(rollouts, fragments=own, first_row=row, whole_rows=rollouts.rows, notes=notes)
    written = rollouts.provenance
    if written is None or not written.file_rows:
        return part
    return dataclasses.replace(part, provenance=_written_part(written, rollouts, row, part.rows))


def _written_part(written: Provenance, rollouts: Rollouts, first: int, rows: int) -> Provenance:
    """What is said of where the advantages come from, of so many rows from the `first` on."""
    if sum(written.file_rows) != rollouts.rows:
        return dataclasses.replace(written, file_rows=[])
    ends = np.cumsum([0, *written.file_rows])
    return dataclasses.replace(written, file_rows=np.diff(np.clip(ends - first, 0, rows)).tolist())


def _of_one_type(rollouts: Rollouts) -> bool:
    """Whether ids of one role are of one type in all files: others are compared, or refused, when all are read together."""

    def kind(column: Column, file: DataFile) -> pa.DataType:
        own = storage_type(type_of(column, file.schema))
        return own if pa.types.is_uint64(own) else encode("id", [pa.array([], own)], [file.name]).values.type

    for role in {"group", "step", "by", "answer"} & set(rollouts.choices):
        for places in zip(*(rollouts.locate(role, file) for file in rollouts.files), strict=True):
            kinds = [kind(place, file) for place, file in zip(places, rollouts.files, strict=True) if place is not None]
            if any(not each.equals(kinds[0]) for each in kinds):
                return False
    return True


def _cuttable(rollouts: Rollouts, by_step: bool) -> BoolArray:
    """Before which fragments the input may be cut, bool (fragments,)."""
    if by_step and "step" not in rollouts.choices:
        return np.zeros(len(rollouts.fragments), dtype=np.bool_)
    if rollouts.group_size is None:
        return _between_units(rollouts, by_step)
    cuttable: BoolArray = np.array(rollouts.first_rows) % rollouts.group_size == 0
    return cuttable & _between_units(rollouts, by_step) if by_step else cuttable


def _between_units(rollouts: Rollouts, by_step: bool) -> BoolArray:
    """Before which fragments no unit is left behind that comes again, bool (fragments,)."""
    roles = ("step",) if by_step else ("group", "step")
    of_files = [
        {(role, number): place for role in roles for number, place in enumerate(rollouts.locate(role, file))}
        for file in rollouts.files
    ]
    scoped = not by_step and any(map(is_file_scoped, rollouts.choices["group"].columns))
    scopes = np.cumsum(rollouts.scopes) if scoped else None
    barred = np.zeros(len(rollouts.fragments) + 1, dtype=np.int64)
    low = 0
    while low <= _LAST_HASH and not barred[1:-1].all():
        spans = _Spans()
        given = (
            (of_files[fragment.file_number], first, scopes, low)
            for fragment, first in zip(rollouts.fragments, rollouts.first_rows, strict=True)
        )
        for number, hashes in enumerate(rollouts.map(unit_hashes, given)):
            spans.add(hashes, number)
        first, last = spans.settled()
        edges = np.bincount(first + 1, minlength=barred.size) - np.bincount(last + 1, minlength=barred.size)
        barred += np.cumsum(edges)
        low = spans.high + 1
    cuttable: BoolArray = barred[:-1] == 0
    return cuttable


def unit_hashes(
    file: DataFile,
    fragment: Fragment,
    columns: Mapping[tuple[str, int], Column],
    first: int,
    scopes: IntArray | None,
    low: int,
) -> HashArray:
    """The different units of a fragment as hashes, ascending, those from `low` on; uint64.

    Args:
        file: the fragment's file.
        fragment: what to read of it.
        columns: those that tell units.
        first: the input's row with which the fragment begins.
        scopes: int (files,), the row after each file that ids are only unique in; None where they are unique.
        low: the least hash that is asked for.

    Raises:
        InputError: the file cannot be read.
    """
    units = [np.zeros(0, dtype=np.uint64)]
    for rows, hashes in read_columns(file, fragment, {key: (place, hashes_of_ids) for key, place in columns.items()}):
        own = functools.reduce(chained, hashes.values())
        if scopes is not None:
            own = chained(own, np.searchsorted(scopes, np.arange(first, first + rows), side="right").view(np.uint64))
        first += rows
        units.append(np.unique(own))
    found = np.unique(np.concatenate(units))
    return found[np.searchsorted(found, np.uint64(low)) :]


class _Spans:
    """In which fragment each unit comes first and last; MOST_UNITS of them, the others are left for another pass.

    Attributes:
        high: the greatest hash that is looked at.
    """

    def __init__(self) -> None:
        self.high = _LAST_HASH
        self._hashes, self._first, self._last = (np.zeros(0, dtype=kind) for kind in (np.uint64, np.int32, np.int32))
        self._waiting: list[tuple[HashArray, int]] = []
        self._held = 0

    def add(self, hashes: HashArray, fragment: int) -> None:
        """Add the units of a fragment, ascending, after those of the fragments before it."""
        hashes = hashes[: np.searchsorted(hashes, np.uint64(self.high), side="right")]
        self._waiting.append((hashes, fragment))
        self._held += hashes.size
        if self._held > MOST_UNITS // 4:
            self.settled()

    def settled(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """The first and the last fragment of each unit, (units,)."""
        fragments = [np.full(hashes.size, number, dtype=np.int32) for hashes, number in self._waiting]
        hashes = np.concatenate([self._hashes, *(hashes for hashes, _ in self._waiting)])
        first, last = (np.concatenate([known, *fragments]) for known in (self._first, self._last))
        self._waiting, self._held = [], 0
        order = np.argsort(hashes, kind="stable")  # the fragments of a unit stay in their order
        hashes = hashes[order]
        ends = np.flatnonzero(np.append(hashes[1:] != hashes[:-1], True)) if hashes.size else order
        starts = np.concatenate(([0], ends[:-1] + 1)) if hashes.size else order
        hashes, first, last = hashes[ends], first[order[starts]], last[order[ends]]
        if hashes.size > MOST_UNITS:
            half = hashes.size // 2
            self.high = int(hashes[half - 1])
            hashes, first, last = hashes[:half], first[:half], last[:half]
        self._hashes, self._first, self._last = hashes, first, last
        return first, last
