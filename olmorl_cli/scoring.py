"""Rollouts and a recipe, to results: what the commands show, and what a program can call."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.core.advantages import GroupStatistics, answer_advantages, group_deviations, group_statistics
from olmorl_cli.core.diagnostics import QUANTILES
from olmorl_cli.core.figures import Figures
from olmorl_cli.core.objective import Partition
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray
from olmorl_cli.core.tokens import BoolArray, TokenSums
from olmorl_cli.errors import DataError, Problems
from olmorl_cli.remarks import bounds_notes, remark_single_answers
from olmorl_cli.rollouts.answers import AnswerTable, read_answers
from olmorl_cli.rollouts.blocks import blocks_of
from olmorl_cli.rollouts.ids import Codes, combine, first_rows
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.texts import json_values, plain_texts
from olmorl_cli.token_pass import Plan, Progress, score_tokens
from olmorl_cli.whole import Batches, Whole, answer_notes

_FIGURES = "objective objective_all_groups answers groups kept_groups tokens kept_tokens clip_low clip_high approx_kl"
_RATIOS = "ratio_mean ratio_min ratio_max sampler_ratio_mean sampler_ratio_min sampler_ratio_max"
_FURTHER = "clip_changed approx_kl_k1 approx_kl_k2 sampler_outside sampler_abs_diff_max sampler_k1 sampler_k3"
_OTHERS = "sampler_clip sampler_ess sampler_abs_diff recipe eps_low eps_high normalize_std aggregation columns"
RESULT_KEYS = frozenset([*f"{_FIGURES} {_RATIOS} {_FURTHER} {_OTHERS}".split(), *QUANTILES])
"""Keys of an objective's figures and settings."""


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
    def blocks(self) -> "Iterator[ScoredAnswers]":
        """The answers in blocks, as `ScoredBlocks` has them: one."""
        yield self


def score_answers(rollouts: Rollouts, recipe: Recipe, skip: bool = False) -> ScoredAnswers:
    """Advantage and kept flag of every answer.

    Args:
        rollouts: with a reward or advantage column among its choices.
        recipe: its advantage fields are used, unless the input gives the advantages.
        skip: unscorable answers leave their group's statistics, instead of being refused.

    Raises:
        InputError: as `read_answers`.
        DataError: an answer is unscorable, or the rows cannot be grouped.
    """
    table = read_answers(rollouts, skip)
    if table.problems.errors:
        raise DataError(table.problems)
    return score_table(rollouts, table, recipe)


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


class ScoredBlocks:
    """The answers scored block by block, in input order; one that needs no blocks is scored once, and held.

    Attributes:
        rollouts: the whole input.
        recipe: what it is scored by.
        problems, notes: as those of `ScoredAnswers`, of all blocks.
    """

    def __init__(self, rollouts: Rollouts, recipe: Recipe, skip: bool = False, whole: bool = False) -> None:
        """Score every block, and say what is wrong in any of them; `whole` asks for the input in one block.

        Raises:
            InputError, DataError: as `score_answers`.
        """
        self.rollouts, self.recipe, self._skip = rollouts, recipe, skip
        self._blocks = [rollouts] if whole else blocks_of(rollouts, recipe.by_step)
        found = Whole()
        for block in self._blocks:
            self._held = self._judged(block, found)
        found.settle(rollouts)
        self.problems, self.notes = found.problems, found.notes(0)
        if self._held is not None:
            self._held = dataclasses.replace(self._held, problems=found.problems)

    @property
    def whole(self) -> ScoredAnswers:
        """The input in one block, as it was asked for."""
        assert self._held is not None, "it was scored"
        return self._held

    @property
    def blocks(self) -> Iterator[ScoredAnswers]:
        """Each block; several are read and scored anew. Whoever drops one before the next has one in memory at a time."""
        if len(self._blocks) == 1:
            yield self.whole
            return
        for block in self._blocks:
            yield _scored(block, read_answers(block, self._skip), self.recipe)

    def _judged(self, block: Rollouts, found: Whole) -> ScoredAnswers | None:
        """A block, scored if nothing is wrong, where there are no others; what is said of it goes to `found`."""
        table = read_answers(block, self._skip)
        found.add_table(table)
        if found.problems.errors:
            return None
        scored = _scored(block, table, self.recipe)
        found.add_advantages([scored.advantages], block.first_row)
        return scored if len(self._blocks) == 1 else None


Scored = ScoredAnswers | ScoredBlocks
"""Answers, in one piece or block by block."""


@dataclass(frozen=True)
class Objective:
    """The objective and its diagnostics under one recipe, one value a batch (the whole input, or each step).

    Attributes:
        recipe: the settings.
        by: name of the column that tells the batches, None for the whole input.
        rows: the figures of each batch, by the keys that results have; None where a figure is undefined.
        notes: what a person should know beside them.
        problems: what was left out, and what may be a fault of the reading; of the first recipe for all of them.
        kept: the answers as the recipe scores them, and the sums of their tokens; None where they were not asked for.
    """

    recipe: Recipe
    by: str | None
    rows: list[dict[str, Any]]
    notes: list[str]
    problems: Problems
    kept: tuple[ScoredAnswers, TokenSums] | None = None

    @property
    def answers(self) -> ScoredAnswers:
        """The scored answers, which `score_objective` was asked to keep."""
        assert self.kept is not None, "score_objective(keep_sums=True) keeps them"
        return self.kept[0]

    @property
    def kept_sums(self) -> TokenSums:
        """The per-answer sums, which `score_objective` was asked to keep."""
        assert self.kept is not None, "score_objective(keep_sums=True) keeps them"
        return self.kept[1]


def score_objective(
    rollouts: Rollouts,
    recipes: Sequence[Recipe],
    *,
    by: str | None = None,
    skip: bool = False,
    keep_sums: bool = False,
    diagnose: bool = False,
    progress: Progress | None = None,
) -> list[Objective]:
    """The objective under each recipe, from one pass over the tokens.

    Args:
        rollouts: with the log-probs that the recipes need among its choices.
        recipes: at least one.
        by: what the results of each batch are called by: the batches are the values of the column that plays the role
            "by", rows ascending. None is one batch.
        skip: leave out what cannot be scored, instead of refusing it.
        keep_sums: the results have the answers and their sums: memory for those of the whole input is taken.
        diagnose: the results have the further figures.
        progress: is told of the rows done.

    Raises:
        InputError: a file cannot be read.
        DataError: something in the answers or tokens is wrong; all of it is gathered first.
    """
    plan, whole = Plan(recipes, skip, keep_sums, diagnose), Whole()
    blocks = [rollouts] if keep_sums else blocks_of(rollouts, any(recipe.by_step for recipe in recipes))
    scored = [_score_block(block, plan, whole, progress) for block in blocks]
    whole.settle(rollouts)
    batches = Batches.joined([each for each, _ in scored])
    kept: Sequence[tuple[ScoredAnswers, TokenSums] | None] = scored[0][1] or [None] * len(recipes)
    return [
        objective_of(rollouts, batches, number, by, whole.notes(number), Problems() if number else whole.problems, each)
        for number, each in enumerate(kept)
    ]


def _score_block(
    block: Rollouts, plan: Plan, whole: Whole, progress: Progress | None
) -> tuple[Batches, list[tuple[ScoredAnswers, TokenSums]]]:
    """The batches of a block, of no use if anything is wrong, and the answers under each recipe if the plan keeps them."""
    table = read_answers(block, plan.skip)
    whole.add_table(table)
    scored = [] if whole.problems.errors else score_by_each(block, table, plan.recipes)
    partition, kept_groups = partitioned(scored[0]) if scored else (Partition.of_nothing(), np.zeros(0, dtype=np.bool_))
    advantages = [answers.advantages for answers in scored]
    if scored:
        whole.add_advantages(advantages, block.first_row)
    tokens = score_tokens(block, plan, advantages, scored[0].kept if scored else kept_groups, partition, progress)
    whole.add_tokens(tokens)
    kept = [] if tokens.sums is None else [(answers, tokens.sums) for answers in scored]
    return Batches.of(table, partition, kept_groups, tokens.figures), kept


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


def objective_of(
    rollouts: Rollouts,
    batches: Batches,
    number: int,
    by: str | None,
    notes: list[str],
    problems: Problems,
    kept: tuple[ScoredAnswers, TokenSums] | None = None,
) -> Objective:
    """The figures of one of the recipes, that of this `number`, as results show them; the others as in `Objective`."""
    figures = batches.figures[number]
    recipe = figures.recipe
    values: dict[str, Any] = {
        "objective": figures.objective("counted"),
        "objective_all_groups": figures.objective("scorable"),
        "answers": batches.answers,
        "groups": batches.groups,
        "kept_groups": batches.kept_groups,
        **figures.of_tokens(),
    }
    if "logp_sampler" in rollouts.choices:
        values |= figures.of_sampler()
    values |= figures.further("logp_sampler" in rollouts.choices)
    shown: dict[str, Any] = {
        "recipe": recipe.name,
        "eps_low": recipe.eps_low,
        "eps_high": recipe.eps_high,
        "normalize_std": recipe.scale == "group_std",
        "aggregation": recipe.aggregation,
        "columns": rollouts.columns(),
    }
    if rollouts.provenance is not None:
        shown["normalize_std"] = rollouts.provenance.settings.get("scale") == "group_std"
    shown_labels = [] if batches.labels is None else json_values(batches.labels)
    rows = [
        ({} if by is None else {by: shown_labels[batch]})
        | {key: _plain(column[batch]) for key, column in values.items()}
        | shown
        for batch in ascending(batches.labels, batches.answers.size)
    ]
    return Objective(recipe, by, rows, notes + _objective_notes(figures, values, by), problems, kept)


def partitioned(scored: ScoredAnswers) -> tuple[Partition, BoolArray]:
    """Groups and batches, and which groups are kept; a group that lies in several batches is one group in each."""
    table, kept = scored.table, scored.statistics.kept
    if table.by is None:
        return Partition(table.groups, np.zeros(kept.size, dtype=np.int64)), kept
    by, groups = table.by, Codes(table.groups, pa.nulls(kept.size))
    first = first_rows(table.groups, kept.size)
    if (by.codes[first][table.groups] != by.codes).any():
        groups = combine(groups, by)
        first = first_rows(groups.codes, len(groups.values))
    return Partition(groups.codes, by.codes[first], len(by.values)), kept[table.groups[first]]


def ascending(labels: pa.Array | None, count: int) -> Iterator[int]:
    """Batch numbers in ascending order of their labels; texts of digits by the number they write."""
    if labels is None or types.is_null(labels.type):
        return iter(range(count))
    if not types.is_nested(labels.type) and not types.is_large_string(labels.type):
        return iter(pc.array_sort_indices(labels).to_pylist())
    values = plain_texts(labels).to_pylist()  # lists and structs have no order of their own
    digits = all(value.isascii() and value.isdigit() for value in values)
    return iter(sorted(range(count), key=lambda number: int(values[number]) if digits else values[number]))


def _plain(value: Any) -> int | float | None:
    """A NumPy number as Python's; None for NaN."""
    number = value.item()
    return None if number != number else number


def _objective_notes(figures: Figures, values: dict[str, Any], by: str | None) -> list[str]:
    notes = bounds_notes(figures.recipe)
    unweighted = int(figures.totals.counted("unweighted").sum())
    if figures.recipe.sampler_mode != "none" and unweighted:
        notes.append(f"{unweighted} answers have no sampler log-probs, so the sampler's weight is 1 for their tokens")
    objective, without = values["objective"], figures.totals.counted("counted") == 0
    if without.any():
        why = "no real token" if not values["tokens"].any() else "no group with signal has a real token"
        where = "" if by is None else f" in {int(without.sum())} of {objective.size} values of {by}"
        notes.append(f"the objective is undefined (null){where}: {why}")
    if (~np.isfinite(objective) & ~without).any():
        row = figures.first_infinite if figures.infinite_answers else 0
        what = f"{row} (and {figures.infinite_answers - 1} more)" if figures.infinite_answers > 1 else f"{row}"
        notes.append(
            f"the objective is infinite or undefined (null in JSON): in answer {what} a ratio, or its product with the"
            " advantage, overflows"
        )
    return notes
