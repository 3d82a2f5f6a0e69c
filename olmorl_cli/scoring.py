"""Answers and a recipe, to advantages and kept groups."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from olmorl_cli.core.advantages import GroupStatistics, answer_advantages, group_deviations, group_statistics
from olmorl_cli.core.objective import Partition
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray
from olmorl_cli.errors import DataError, Problems
from olmorl_cli.remarks import remark_single_answers
from olmorl_cli.rollouts.answers import AnswerTable, read_answers
from olmorl_cli.rollouts.ids import Codes, combine, first_rows
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.whole import Whole, answer_notes


@dataclass(frozen=True)
class ScoredAnswers:
    """The answer table with what a recipe makes of it.

    Attributes:
        rollouts: the input.
        table: its answers.
        recipe: what they were scored by.
        statistics: of each group's rewards.
        advantages: float64 (N,), NaN for an unscorable answer.
        problems: what was left out, with severity note, and what may be a fault of the reading, with severity warning.
    """

    rollouts: Rollouts
    table: AnswerTable
    recipe: Recipe
    statistics: GroupStatistics
    advantages: FloatArray
    problems: Problems

    @property
    def kept(self) -> BoolArray:
        """Whether each answer's group is kept, bool (N,)."""
        return self.statistics.kept[self.table.groups]

    @cached_property
    def deviations(self) -> FloatArray:
        """Each group's population standard deviation, float64 (P,)."""
        return group_deviations(self.table.scores, self.table.groups, self.statistics)

    @property
    def notes(self) -> list[str]:
        """What a person should know beside the result, a sentence each."""
        overflown = np.flatnonzero(np.isinf(self.advantages))
        return answer_notes(self.problems, overflown.size, int(overflown[0]) if overflown.size else 0)

    @property
    def runs(self) -> "Iterator[ScoredAnswers]":
        """All answers, as one run of them."""
        yield self

    @property
    def groups(self) -> "Iterator[ScoredGroups]":
        """All groups, in one piece."""
        size = self.statistics.size.size
        yield ScoredGroups(self.rollouts, self.table, np.arange(size), self.statistics, self.deviations)


@dataclass(frozen=True)
class ScoredGroups:
    """P groups in order of first appearance.

    Attributes:
        rollouts: the input, or some of its fragments.
        table: answers of theirs, by which their ids are known.
        codes: int (P,), their numbers in the table.
        statistics: of their rewards, (P,).
        deviations: population standard deviation of these, float64 (P,).
    """

    rollouts: Rollouts
    table: AnswerTable
    codes: IntArray
    statistics: GroupStatistics
    deviations: FloatArray


def score_answers(rollouts: Rollouts, recipe: Recipe, skip: bool = False, found: Whole | None = None) -> ScoredAnswers:
    """Advantage and kept flag of every answer.

    Args:
        rollouts: with a reward or advantage column among its choices.
        recipe: its advantage fields are used, unless the input gives the advantages.
        skip: unscorable answers leave their group's statistics, instead of being refused.
        found: takes what is said of the answers.

    Raises:
        InputError: as `read_answers`.
        DataError: an answer is unscorable, or the rows cannot be grouped.
    """
    found, table = found or Whole(), read_answers(rollouts, skip)
    found.add_table(table)
    if found.problems.errors:
        raise DataError(found.problems)
    scored = _scored(rollouts, table, recipe)
    found.add_advantages([scored.advantages])
    found.settle(rollouts)
    return dataclasses.replace(scored, problems=found.problems)


def score_table(rollouts: Rollouts, table: AnswerTable, recipe: Recipe) -> ScoredAnswers:
    """`score_answers` of answers that are read, whatever is wrong with them: what is unscorable has advantage NaN."""
    remark_single_answers(rollouts, table.problems, table.groups.size, table.step_of_group.size)
    return _scored(rollouts, table, recipe)


def _scored(rollouts: Rollouts, table: AnswerTable, recipe: Recipe) -> ScoredAnswers:
    """`score_table` without a judgement of the whole input."""
    statistics = group_statistics(table.scores, table.groups, table.step_of_group.size)
    if table.advantages is None:
        advantages = _advantages(table, statistics, recipe)
    else:
        advantages = np.where(np.isfinite(table.scores), table.advantages, np.nan)
    return ScoredAnswers(rollouts, table, recipe, statistics, advantages, table.problems)


def _advantages(table: AnswerTable, statistics: GroupStatistics, recipe: Recipe) -> FloatArray:
    """The answers' advantages by their scores, float64 (N,); a step is a batch."""
    steps = table.step_of_group[table.groups] if recipe.by_step else None
    return answer_advantages(table.scores, table.groups, statistics, recipe, steps)


def score_by_each(rollouts: Rollouts, table: AnswerTable, recipes: Sequence[Recipe]) -> list[ScoredAnswers]:
    """The answers as each recipe scores them: advantages computed once for equal settings."""
    scored = [_scored(rollouts, table, recipes[0])]
    known = {recipes[0].of_advantages: scored[0].advantages}
    statistics = scored[0].statistics
    for recipe in recipes[1:]:
        key = recipe.of_advantages
        if key not in known:
            given = table.advantages is not None
            known[key] = scored[0].advantages if given else _advantages(table, statistics, recipe)
        scored.append(ScoredAnswers(rollouts, table, recipe, statistics, known[key], Problems()))
    return scored


def partitioned(scored: ScoredAnswers) -> tuple[Partition, BoolArray]:
    """Groups and batches, and which groups are kept; a group that lies in several batches is one group in each."""
    table, kept = scored.table, scored.statistics.kept
    if table.by is None:
        return Partition(table.groups, np.zeros(kept.size, dtype=np.int64)), kept
    by, groups = table.by, Codes(table.groups, pa.nulls(kept.size))
    first = first_rows(table.groups, kept.size)
    if (by.codes[first][table.groups] != by.codes).any():
        groups = combine(groups, by)
        first = groups.first
    return Partition(groups.codes, by.codes[first], len(by.values)), kept[table.groups[first]]
