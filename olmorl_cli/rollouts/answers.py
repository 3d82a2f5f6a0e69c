"""The answer table: every answer's group, step, reward and given advantage. Small columns only, tokens are not touched."""

import functools
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from olmorl_cli.errors import MOST_PLACES, InputError, Place, Problems, text_of
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, column_of, numbers_of, rows_by_file, taken
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.hashes import all_differ, hashes_of
from olmorl_cli.rollouts.ids import (
    Codes,
    Runs,
    combine,
    encode_runs,
    refine,
    refuse_invalid_texts,
    refuse_rounded,
    runs_of,
)
from olmorl_cli.rollouts.parallel import memory
from olmorl_cli.rollouts.roles import FOUND, Column
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.shares import Key, Share

FloatArray = npt.NDArray[np.float64]

_KINDS: Mapping[str, Callable[[pa.Array], Any]] = {
    "group": runs_of,
    "step": runs_of,
    "by": runs_of,
    "reward": numbers_of,
    "advantage": numbers_of,
    "answer": hashes_of,
}
"""What is kept of the columns of each role while they are read."""

K = TypeVar("K", bound=Hashable)
ROWS = "rows"
"""Beside the columns of a share: which rows of the input they are of."""

ANSWER_BYTES = 32
"""Memory that an answer takes at the very least: its group, its reward, its advantage and what they are made of."""


@dataclass(frozen=True)
class AnswerTable:
    """N answers in input order, those of the input or of a share; P groups in order of first appearance, S steps likewise.

    Attributes:
        groups: int (N,), the group of each answer.
        step_of_group: int (P,), all 0 where the input has no step.
        group_ids: name → the groups' ids (P,); under "group", or each under its own column's name where there are several.
        steps: the steps' ids (S,), or None.
        rewards: float64 (N,), NaN where null; None where there is no such column.
        advantages: float64 (N,), the given ones, NaN where null; None where none are given.
        by: what tells the batches that results are asked for, one a row; None for one batch.
        problems: unscorable answers (under the skip policy with severity note), and rows that cannot be grouped.
        told: some group's answers have different ids of their own.
        repeated: answers whose id stands in their group before: faults where the ids of any answers of the whole input are
            `told`, so that they are no prompts' or requests'; those of answers that are told here are among the problems.
        rows: int (N,), which rows of the input these are, ascending; None where they are all of them.
    """

    groups: IntArray
    step_of_group: IntArray
    group_ids: dict[str, pa.Array]
    steps: pa.Array | None
    rewards: FloatArray | None
    advantages: FloatArray | None
    by: Codes | None = None
    problems: Problems = field(default_factory=Problems)
    told: bool = False
    repeated: Problems = field(default_factory=Problems)
    rows: IntArray | None = None

    @property
    def scores(self) -> FloatArray:
        """What tells whether a group has signal: the rewards, or without them the given advantages; float64 (N,)."""
        if self.rewards is not None:
            return self.rewards
        assert self.advantages is not None, "open_rollouts finds rewards or advantages"
        return self.advantages


def read_answers(rollouts: Rollouts, skip: bool, share: Share | None = None) -> AnswerTable:
    """Read the answer table.

    Args:
        rollouts: the open input.
        skip: leave unscorable answers (null, NaN or infinite reward) to the caller instead of refusing them.
        share: whose answers are asked for; None for all of them.

    Raises:
        InputError: a column cannot be read, or ids of several files cannot be compared.
    """
    return _Reading(rollouts, skip, share).table()


def read_columns(
    file: DataFile, fragment: Fragment, columns: Mapping[K, tuple[Column, Callable[[pa.Array], Any]]]
) -> list[tuple[int, dict[K, Any]]]:
    """Small columns of a fragment: for each batch its number of rows, and what is made of each column.

    Args:
        file: the fragment's file.
        fragment: what to read of it.
        columns: where each is, and what makes of it what is kept.

    Raises:
        InputError: the file cannot be read.
    """
    tops = list(dict.fromkeys(place.top for place, _ in columns.values()))
    return [
        (batch.num_rows, {key: kept(column_of(batch, place)) for key, (place, kept) in columns.items()})
        for batch in file.batches(fragment, tops)
    ]


def read_share(
    file: DataFile,
    fragment: Fragment,
    columns: Mapping[Key, tuple[Column, Callable[[pa.Array], Any]]],
    share: Share,
    units: Sequence[Column],
    first: int,
) -> list[tuple[int, dict[Key | str, Any]]]:
    """`read_columns` of the rows that are in a share, and under ROWS which ones these are.

    Args:
        file, fragment, columns: as `read_columns`.
        share: of the answers.
        units: the columns that tell its units.
        first: the input's row with which the fragment begins.

    Raises:
        InputError: the file cannot be read.
    """
    found = []
    tops = [*(place.top for place, _ in columns.values()), *(place.top for place in units)]
    for batch in file.batches(fragment, list(dict.fromkeys(tops))):
        rows = share.rows([column_of(batch, place) for place in units], first, batch.num_rows)
        there = {key: kept(taken(column_of(batch, place), rows - first)) for key, (place, kept) in columns.items()}
        found.append((rows.size, {ROWS: rows} | there))
        first += batch.num_rows
    return found


def _refuse_too_many(rollouts: Rollouts, answers: int) -> None:
    """Refuse to hold so many answers of the input as cannot be held.

    Raises:
        InputError: they do not fit into memory.
    """
    if answers * ANSWER_BYTES > memory():
        raise InputError(
            f"{rollouts.files[0].name}: {answers} answers do not fit into this machine's memory. Score fewer files"
            " at a time, or check that they are whole"
        )


class _Reading:
    """The columns of the roles as they come from the files, and what is made of them."""

    def __init__(self, rollouts: Rollouts, skip: bool, share: Share | None) -> None:
        self.rollouts, self.share = rollouts, share
        self.unscorable = "note" if skip else "error"
        self.problems = Problems()
        self.problems.merge(rollouts.notes)
        self.told, self.repeated = False, Problems()
        self.chunks: dict[Key | str, list[Any]] = {}
        self.files_of_chunks: list[int] = []
        _refuse_too_many(rollouts, rollouts.rows if share is None else 0)
        self.rows, lengths = 0, []
        for fragment, batches in zip(rollouts.fragments, self._read(_KINDS), strict=True):
            for rows, columns in batches:
                self.files_of_chunks.append(fragment.file_number)
                lengths.append(rows)
                self.rows += rows
                for key, chunk in columns.items():
                    self.chunks.setdefault(key, []).append(chunk)
            _refuse_too_many(rollouts, self.rows)  # a share may have more of them than others
        self.edges = np.zeros(len(rollouts.files) + 1, dtype=np.int64)  # where each file begins among the rows
        np.add.at(self.edges, np.array(self.files_of_chunks, dtype=np.int64) + 1, lengths)
        self.edges = np.cumsum(self.edges)
        self.at: IntArray | None = None
        if share is not None:
            self.at = np.concatenate([*self.chunks.pop(ROWS, []), np.zeros(0, dtype=np.int64)])

    def _read(self, kinds: Mapping[str, Callable[[pa.Array], Any]]) -> Iterator[list[tuple[int, dict[Any, Any]]]]:
        """What `read_columns` or `read_share` gives of each fragment, for the columns that play the roles of `kinds`."""
        of_files = [
            {
                (role, number): (place, kinds[role])
                for role in kinds
                for number, place in enumerate(self.rollouts.locate(role, file))
                if place is not None
            }
            for file in self.rollouts.files
        ]
        numbers = [fragment.file_number for fragment in self.rollouts.fragments]
        if (share := self.share) is None:
            return self.rollouts.map(read_columns, ((of_files[number],) for number in numbers))
        units = [
            [place for role in share.roles for place in self.rollouts.locate(role, file) if place is not None]
            for file in self.rollouts.files
        ]
        firsts = self.rollouts.first_rows
        given = ((of_files[number], share, units[number], first) for number, first in zip(numbers, firsts, strict=True))
        return self.rollouts.map(read_share, given)

    def table(self) -> AnswerTable:
        steps = self._ids("step", 0) if "step" in self.rollouts.choices else None
        if self.rollouts.group_size is not None:
            ids, groups = self._consecutive(self.rollouts.group_size, steps)
        else:
            ids, groups = self._grouped(steps)
        first = groups.first
        step_of_group = steps.codes[first] if steps is not None else np.zeros(first.size, dtype=np.int64)
        group_ids = {
            name: each.values if each is groups else each.values.take(pa.array(each.codes[first]))
            for name, each in ids.items()
        }
        step_ids = None if steps is None else steps.values
        del ids, steps  # their codes, as large as what comes next
        self._refuse_duplicates(groups)
        rewards, advantages = self._numbers("reward"), self._numbers("advantage")
        return AnswerTable(
            groups=groups.codes,
            step_of_group=step_of_group,
            group_ids=group_ids,
            steps=step_ids,
            rewards=rewards,
            advantages=advantages,
            by=self._ids("by", 0) if "by" in self.rollouts.choices else None,
            problems=self.problems,
            told=self.told,
            repeated=self.repeated,
            rows=self.at,
        )

    def _ids(self, role: str, number: int, *, may_be_null: bool = False) -> Codes:
        files = [self.rollouts.files[file] for file in self.files_of_chunks]
        chunks: list[Runs] = self.chunks.pop((role, number), [])
        column, heads = self.rollouts.choices[role].columns[number], [chunk.heads for chunk in chunks]
        refuse_rounded(column, heads, files)
        ids = encode_runs(role, chunks, [file.name for file in files])
        refuse_invalid_texts(column, ids, heads, files)
        if ids.null is not None and not may_be_null:
            what = f"{column}, the {role}, is null" if role != "by" else f"{column}, which results are asked by, is null"
            self.report("null_id", what, "Write a value into every row", ids.null, column)
        return ids

    def _grouped(self, steps: Codes | None) -> tuple[dict[str, Codes], Codes]:
        """The codes of each group column, and of the groups."""
        names = self.rollouts.choices["group"].columns
        ids = [self._ids("group", number) for number in range(len(names))]
        keys = ids if steps is None else [*ids, steps]
        if len(scopes := self.rollouts.scopes) > 1:
            ends = np.cumsum(scopes)
            of_rows = (
                np.repeat(np.arange(ends.size), scopes) if self.at is None else np.searchsorted(ends, self.at, side="right")
            )
            keys = [*keys, Codes(of_rows, pa.nulls(ends.size))]
        labels = ["group"] if len(names) == 1 else list(names)
        return dict(zip(labels, ids, strict=True)), functools.reduce(refine, keys)

    def _refuse_duplicates(self, groups: Codes) -> None:
        """Report answers that stand in a group more than once."""
        if "answer" not in self.rollouts.choices:
            return
        self.told = len(groups.values) < self.rows
        if all_differ(self.chunks.pop(("answer", 0), []), groups.codes):
            return
        read = itertools.chain.from_iterable(self._read({"answer": runs_of}))
        self.chunks["answer", 0] = [columns["answer", 0] for _, columns in read]
        answers = self._ids("answer", 0, may_be_null=True)
        if len(answers.values) == self.rows:
            return
        rows = np.arange(self.rows) if answers.null is None else np.flatnonzero(~answers.null)
        pairs = combine(Codes(groups.codes[rows], groups.values), Codes(answers.codes[rows], answers.values))
        again = np.zeros(self.rows, dtype=np.bool_)
        again[rows] = True
        again[rows[pairs.first]] = False
        # One id for all answers of a group, as a request's, tells groups, not answers.
        self.told = len(pairs.values) > len(np.unique(groups.codes[rows]))
        faults = self.problems if self.told or self.rollouts.choices["answer"].why != FOUND else self.repeated
        column = self.rollouts.choices["answer"].columns[0]
        message = f"{column}, the answer's id, stands in its group before"
        action = "Keep one row an answer, or name what tells them apart with --answer or --step (or --answer none)"
        self.report("duplicate_answer", message, action, again, column, answers.value, into=faults)

    def _consecutive(self, size: int, steps: Codes | None) -> tuple[dict[str, Codes], Codes]:
        numbers = (self.rollouts.first_row + np.arange(self.rows) if self.at is None else self.at) // size
        begins = np.diff(numbers, prepend=-1) != 0
        groups = Codes(np.cumsum(begins) - 1, pa.array(numbers[begins]), found=np.flatnonzero(begins))
        whole = self.rollouts.rows
        if whole % size and (self.share is None or self.share.number == 0):
            self.problems.add(
                "group_size",
                f"{whole} rows are no multiple of the group size {size}",
                "Give the size of the groups with -G, or the column that tells them with --group",
                file=self.rollouts.files[-1].name,
                places=[],
                count=1,
            )
        elif steps is not None and not whole % size:
            across = steps.codes != steps.codes[begins][groups.codes]
            if steps.null is not None:
                across &= ~steps.null & ~steps.null[begins][groups.codes]
            if across.any():
                action = "Give the size of the groups with -G, or the column that tells them with --group"
                message = f"a group of {size} rows crosses into another step"
                self.report(
                    "group_across_steps", message, action, across, self.rollouts.choices["step"].columns[0], steps.value
                )
        return {"group": groups}, groups

    def _numbers(self, role: str) -> FloatArray | None:
        """Values of the reward or advantage (the sum of several columns), with what is wrong reported; float64 (N,)."""
        if role not in self.rollouts.choices:
            return None
        values, null = np.zeros(self.rows), np.zeros(self.rows, dtype=np.bool_)
        choice = self.rollouts.choices[role]
        for number, weight in enumerate(choice.weights or [1.0] * len(choice.columns)):
            first = 0
            for part, empty in self.chunks.pop((role, number), []):
                with np.errstate(over="ignore", invalid="ignore"):
                    values[first : first + part.size] += part if weight == 1.0 else part * weight
                if empty is not None:
                    null[first : first + part.size] |= empty
                first += part.size
        name = " + ".join(self.rollouts.choices[role].columns)
        left_out = self.unscorable == "note"
        mend = "Such answers are left out" if left_out else f"Mend the {role}, or leave such answers out with --invalid skip"
        certain, mend_certainly = (self.unscorable, mend) if role == "reward" else ("error", f"Mend the {role}")
        if not np.isfinite(values).all():
            nan = np.isnan(values) & ~null
            infinite = np.isinf(values)
            is_ = f"{name}, the {role}, is"
            self.report(f"null_{role}", f"{is_} null", mend, null, name, severity=self.unscorable)
            self.report(f"nan_{role}", f"{is_} NaN", mend_certainly, nan, name, values.item, certain)
            self.report(f"infinite_{role}", f"{is_} infinite", mend_certainly, infinite, name, values.item, certain)
        return values

    def report(
        self,
        code: str,
        message: str,
        action: str,
        wrong: BoolArray,
        column: str,
        value: Callable[[int], object] = lambda _: None,
        severity: str = "error",
        into: Problems | None = None,
    ) -> None:
        """Add a problem for each file with rows where `wrong` (N,) is true; rows are numbered within the file.

        `value` gives what stands in `column` in a row of the input; `into` takes the problems, the table's by default.
        """
        starts = self.edges if self.at is None else np.cumsum([0, *self.rollouts.file_rows])
        for number, own in rows_by_file(wrong, self.edges):
            first = own[:MOST_PLACES]
            in_file = (first if self.at is None else self.at[first]) - starts[number]
            values = [text_of(value(row)) for row in first.tolist()]
            places = [Place(number, row, value=text) for row, text in zip(in_file.tolist(), values, strict=True)]
            name = self.rollouts.files[number].name
            (self.problems if into is None else into).add(
                code, message, action, file=name, places=places, count=own.size, severity=severity, column=column
            )
