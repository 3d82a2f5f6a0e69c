"""The answer pass: every answer's advantage and kept flag, from the small columns alone.

Where the answers do not fit into memory together they are scored share by share, wherever their groups lie, and what is
found goes to a ledger on disk, from which it is taken back in the order of the input.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import types

from olmorl_cli.core.advantages import GroupStatistics
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray
from olmorl_cli.rollouts.answers import AnswerTable, read_answers
from olmorl_cli.rollouts.ids import first_rows
from olmorl_cli.rollouts.ledger import ROWS, Columns, Ledger
from olmorl_cli.rollouts.roles import storage_type, type_of
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.shares import Share, shares_of
from olmorl_cli.scoring import ScoredAnswers, ScoredGroups, score_answers, score_by_each
from olmorl_cli.whole import Batches, Whole

RUN_ANSWERS = 1 << 22
"""Answers of a run, about."""

Noted = tuple[IntArray, Columns, Batches | None]
"""What is kept of a share: rows of the input, ascending, columns beside them, and the answers' batches if they matter."""
Note = Callable[[Sequence[ScoredAnswers]], Noted]
"""Makes it of the share's answers as each recipe scores them."""


class Run(Protocol):
    """Consecutive answers, scored; n of them."""

    @property
    def rollouts(self) -> Rollouts:
        """The fragments that they lie in."""

    @property
    def table(self) -> AnswerTable:
        """Their ids and rewards."""

    @property
    def advantages(self) -> FloatArray:
        """float64 (n,), NaN for an unscorable answer."""

    @property
    def kept(self) -> BoolArray:
        """Whether each answer's group is kept, bool (n,)."""


@dataclass(frozen=True)
class _Run:
    """A `Run` whose ids and rewards are read if they are asked for."""

    rollouts: Rollouts
    advantages: FloatArray
    kept: BoolArray

    @cached_property
    def table(self) -> AnswerTable:
        return _ids_of(self.rollouts)


def _ids_of(rollouts: Rollouts) -> AnswerTable:
    """Ids and rewards of a run. Those of 64 bits without a sign stay such, as they may not fit otherwise in other runs."""
    table = read_answers(rollouts.without("answer", "advantage"), skip=True)

    def kept(role: str, ids: pa.Array | None, number: int = 0) -> pa.Array | None:
        file = rollouts.files[0]
        place = next(iter(rollouts.locate(role, file)[number:]), None)
        unsigned = place is not None and types.is_uint64(storage_type(type_of(place, file.schema)))
        return ids.cast(pa.uint64()) if ids is not None and unsigned else ids

    groups = {name: kept("group", ids, number) for number, (name, ids) in enumerate(table.group_ids.items())}
    return dataclasses.replace(table, group_ids=groups, steps=kept("step", table.steps))


def score_shares(
    rollouts: Rollouts, shares: Sequence[Share], recipes: Sequence[Recipe], skip: bool, note: Note, whole: Whole
) -> Iterator[Noted]:
    """What is noted of each share, until one has faults.

    Args:
        rollouts: the open input.
        shares: of its answers.
        recipes: at least one; the answers are scored by each.
        skip: leave out what cannot be scored.
        note: makes of a share's answers, as each recipe scores them, what is kept.
        whole: takes what is said of all shares.

    Raises:
        InputError: a file cannot be read.
    """
    whole.problems.merge(rollouts.notes)
    for found, noted in rollouts.map_shares(_score_share, shares, recipes, skip, note):
        whole.merge(found)
        if noted is not None and not whole.problems.errors:
            yield noted


def _score_share(
    rollouts: Rollouts, share: Share, recipes: Sequence[Recipe], skip: bool, note: Note
) -> tuple[Whole, Noted | None]:
    found, table = Whole(), read_answers(rollouts, skip, share)
    found.add_table(table)
    if found.problems.errors:
        return found, None
    scored = score_by_each(rollouts, table, recipes)
    found.add_advantages([answers.advantages for answers in scored], table.rows)
    return found, note(scored)


class ScoredInput:
    """The answers of an input under one recipe, in one piece or share by share.

    Attributes:
        rollouts: the whole input.
        recipe: what it is scored by.
        problems, notes: as those of `ScoredAnswers`.
    """

    def __init__(
        self, rollouts: Rollouts, recipe: Recipe, skip: bool = False, whole: bool = False, groups: bool = False
    ) -> None:
        """Score every answer, and say what is wrong with any of them.

        Args:
            rollouts: the open input.
            recipe: its advantage fields are used, unless the input gives the advantages.
            skip: unscorable answers leave their group's statistics, instead of being refused.
            whole: the answers are wanted in one piece.
            groups: it is the groups that are wanted, rather than the answers.

        Raises:
            InputError, DataError: as `score_answers`.
        """
        self.rollouts, self.recipe = rollouts, recipe
        found = Whole()
        shares = [] if whole else shares_of(rollouts, recipe.by_step, found.problems)
        if shares:
            self._scored: ScoredAnswers | Ledger = Ledger(rollouts.first_rows, rollouts.files[0].name)
            for rows, columns, _ in score_shares(rollouts, shares, [recipe], skip, _groups if groups else _answers, found):
                self._scored.add(rows, columns)
            found.settle(rollouts)
        else:
            self._scored = score_answers(rollouts, recipe, skip, found)
        self.problems, self.notes = found.problems, found.notes(0)

    @property
    def whole(self) -> ScoredAnswers:
        """The answers in one piece, as they were asked for."""
        assert isinstance(self._scored, ScoredAnswers), "they were asked for so"
        return self._scored

    @property
    def runs(self) -> Iterator[Run]:
        """The answers in runs, in input order."""
        if isinstance(self._scored, ScoredAnswers):
            yield self._scored
            return
        for rollouts, columns in self._taken(self._scored):
            yield _Run(rollouts, columns["advantage"], columns["kept"])

    @property
    def groups(self) -> Iterator[ScoredGroups]:
        """The groups, in order of first appearance, some at a time."""
        if isinstance(self._scored, ScoredAnswers):
            yield from self._scored.groups
            return
        for rollouts, columns in self._taken(self._scored):
            table = _ids_of(rollouts)
            size, mean, low, high, kept = (columns[key] for key in ("size", "mean", "min", "max", "kept"))
            statistics = GroupStatistics(size, columns["count"], mean, low, high, kept)
            codes = table.groups[columns[ROWS] - rollouts.first_row]
            yield ScoredGroups(rollouts, table, codes, statistics, columns["std"])

    def _taken(self, ledger: Ledger) -> Iterator[tuple[Rollouts, dict[str, Any]]]:
        """The input in runs of fragments, with what the ledger has of each."""
        taken = map(ledger.section, range(len(self.rollouts.fragments)))
        for rollouts in self.rollouts.runs(RUN_ANSWERS):
            parts = [next(taken) for _ in rollouts.fragments]
            yield rollouts, {key: np.concatenate([columns[key] for columns in parts]) for key in parts[0]}


def _answers(scored: Sequence[ScoredAnswers]) -> Noted:
    """What outputs add to the answers."""
    (answers,) = scored
    return rows_of(answers), {"advantage": answers.advantages, "kept": answers.kept}, None


def _groups(scored: Sequence[ScoredAnswers]) -> Noted:
    """What outputs say of the groups, at the first row of each."""
    (answers,) = scored
    first = first_rows(answers.table.groups, answers.statistics.size.size)
    return rows_of(answers)[first], {**vars(answers.statistics), "std": answers.deviations}, None


def rows_of(answers: ScoredAnswers) -> IntArray:
    """Which rows of the input the answers of a share are."""
    assert answers.table.rows is not None, "they are of a share"
    return answers.table.rows
