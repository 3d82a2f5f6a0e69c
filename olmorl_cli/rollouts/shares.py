"""Answers in shares: each has all the answers of its groups, wherever these lie, and can be scored by itself."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from olmorl_cli.errors import Problems
from olmorl_cli.rollouts.arrays import BoolArray, IntArray
from olmorl_cli.rollouts.files import DataFile
from olmorl_cli.rollouts.hashes import chained, hashes_of_ids
from olmorl_cli.rollouts.ids import encode
from olmorl_cli.rollouts.roles import Column, storage_type, type_of
from olmorl_cli.rollouts.rollouts import Rollouts

Key = tuple[str, int]
"""A role, and the number of one of its columns."""

MOST_ANSWERS = 10**8
"""Answers up to which the input is scored in one piece."""
SHARE_ANSWERS = 1 << 24
"""Answers of a share, about."""


@dataclass(frozen=True)
class Share:
    """The answers of some of the input's units, which are groups or steps.

    Attributes:
        number: of this share, from 0.
        of: how many shares there are.
        roles: whose columns tell the units; none where groups are consecutive.
        group_size: of consecutive groups, or None.
        scopes: int (files,), the row after each file that ids are only unique in; None where they are unique everywhere.
    """

    number: int
    of: int
    roles: tuple[str, ...]
    group_size: int | None = None
    scopes: IntArray | None = None

    def rows(self, units: Sequence[pa.Array], first: int, number: int) -> IntArray:
        """Those of `number` rows, from the input's row `first` on, that are in this share; ascending, int (n,).

        Args:
            units: columns that tell the rows' units, (number,) each.
            first: a row of the input.
            number: how many.
        """
        rows: IntArray = np.arange(first, first + number)
        if self.group_size is not None:
            own: BoolArray = rows // self.group_size % self.of == self.number
            return rows[own]
        hashes = functools.reduce(chained, map(hashes_of_ids, units))
        if self.scopes is not None:
            hashes = chained(hashes, np.searchsorted(self.scopes, rows, side="right").view(np.uint64))
        own = hashes % np.uint64(self.of) == np.uint64(self.number)
        return rows[own]


def shares_of(rollouts: Rollouts, by_step: bool, notes: Problems) -> list[Share]:
    """The shares that the answers are scored in.

    Args:
        rollouts: the open input.
        by_step: a unit is a step, rather than a group.
        notes: is told why more than MOST_ANSWERS are scored in one piece all the same.

    Returns:
        None at all where the input is scored in one piece.
    """
    if rollouts.rows <= MOST_ANSWERS:
        return []
    why, action = _held_together(rollouts, by_step)
    if why:
        message = f"{why}, so {rollouts.rows} answers are held in memory together"
        name = rollouts.files[0].name
        notes.add("held_together", message, action, file=name, places=[], count=rollouts.rows, severity="note")
        return []
    number, scopes = -(-rollouts.rows // SHARE_ANSWERS), rollouts.scopes
    ends = None if by_step or len(scopes) == 1 else np.cumsum(scopes)
    roles = ("step",) if by_step else () if rollouts.group_size is not None else ("group", "step")
    return [Share(each, number, roles, rollouts.group_size, ends) for each in range(number)]


def _held_together(rollouts: Rollouts, by_step: bool) -> tuple[str, str]:
    """Why the answers are scored in one piece, and what can be done; empty texts where they need not be."""
    if not _of_one_type(rollouts):
        return "the files' ids are of different types", "Write one type into all files to score them with less"
    if max(fragment.rows for fragment in rollouts.fragments) > MOST_ANSWERS:
        return "many are one row group, batch or stream", "Write Parquet of smaller row groups to score them with less"
    if by_step and "step" not in rollouts.choices:
        return "the recipe scales advantages over the whole input", "Name the step with --step to score them with less"
    if by_step and rollouts.group_size is not None:
        why = "the recipe scales advantages over steps, and groups are consecutive rows"
        return why, "Write a column that tells the groups, and name it with --group, to score them with less"
    return "", ""


def _of_one_type(rollouts: Rollouts) -> bool:
    """Whether ids of one role are of one type in all files: others are compared, or refused, when all are read together."""

    def kind(column: Column, file: DataFile) -> pa.DataType:
        own = storage_type(type_of(column, file.schema))
        return own if pa.types.is_uint64(own) else encode("id", [pa.nulls(0, own)], [file.name]).values.type

    for role in {"group", "step", "by", "answer"} & set(rollouts.choices):
        for places in zip(*(rollouts.locate(role, file) for file in rollouts.files), strict=True):
            kinds = [kind(place, file) for place, file in zip(places, rollouts.files, strict=True) if place is not None]
            if any(not each.equals(kinds[0]) for each in kinds):
                return False
    return True
