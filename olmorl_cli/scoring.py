"""Rollouts and a recipe, to results: what the commands show, and what a program can call."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from olmorl_cli.core.advantages import GroupStatistics, answer_advantages, group_deviations, group_statistics
from olmorl_cli.core.objective import Partition, answer_terms, objective
from olmorl_cli.core.recipes import Recipe, Terms
from olmorl_cli.core.sums import FloatArray, IntArray, exact_means
from olmorl_cli.core.tokens import BoolArray, SamplerSums, TermSums, Workspace, sampler_sums, term_sums
from olmorl_cli.errors import DataError, Problems
from olmorl_cli.rollouts.answers import AnswerTable, read_answers
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.ids import Codes, combine, first_rows
from olmorl_cli.rollouts.roles import missing_column
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.token_batches import TokenColumns, token_blocks, token_columns

_FIGURES = "objective objective_all_groups answers groups kept_groups tokens kept_tokens clip_low clip_high approx_kl"
_RATIOS = "ratio_mean ratio_min ratio_max sampler_ratio_mean sampler_ratio_min sampler_ratio_max"
_OTHERS = "sampler_clip sampler_ess sampler_abs_diff recipe eps_low eps_high normalize_std aggregation columns"
RESULT_KEYS = frozenset(f"{_FIGURES} {_RATIOS} {_OTHERS}".split())
"""Keys of an objective's figures and settings."""

Progress = Callable[[int], None]
"""Told the number of rows done since the last call."""


@dataclass(frozen=True)
class ScoredAnswers:
    """The answer table with what a recipe makes of it.

    Attributes:
        rollouts: the input.
        table: its answers.
        recipe: what they were scored by.
        statistics: of each group's rewards.
        advantages: float64 (N,), NaN for an unscorable answer.
        problems: what was left out, with severity note.
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
        notes = [kind.line() for kind in self.problems.kinds("note")]
        if (overflown := np.flatnonzero(np.isinf(self.advantages))).size:
            where = f"row {overflown[0]} ({overflown.size} in all)"
            notes.append(f"the advantage overflows (null in JSON), {where}: scale the rewards down")
        sizes = self.statistics.size
        if sizes.size > 1 and (sizes == 1).all():
            column = ", ".join(self.rollouts.choices["group"].columns) if "group" in self.rollouts.choices else "-G 1"
            notes.append(
                f"every group has one answer, so every advantage is 0: is {column} what tells the groups?"
                " Name another column with --group"
            )
        return notes


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
    statistics = group_statistics(table.scores, table.groups, table.step_of_group.size)
    if table.advantages is None:
        steps = table.step_of_group[table.groups]
        advantages = answer_advantages(table.scores, table.groups, statistics, recipe, steps)
    else:
        advantages = np.where(np.isfinite(table.scores), table.advantages, np.nan)
    return ScoredAnswers(rollouts, table, recipe, statistics, advantages, table.problems)


@dataclass(frozen=True)
class TokenSums:
    """One pass over the tokens: per-answer sums, for each `Terms` asked for.

    Attributes:
        tokens: int (N,), real tokens of each answer.
        by_terms: the sums of each `Terms`.
        sampler: sampler against old; None without a sampler column.
    """

    tokens: IntArray
    by_terms: dict[Terms, TermSums]
    sampler: SamplerSums | None

    @classmethod
    def empty(cls, answers: int, terms: Sequence[Terms], sampler: bool) -> "TokenSums":
        """Sums of `answers` answers without tokens."""
        return cls(
            np.zeros(answers, dtype=np.int64),
            {each: TermSums.empty(answers) for each in terms},
            SamplerSums.empty(answers) if sampler else None,
        )

    def put(self, first: int, part: "TokenSums") -> None:
        """Write `part` over the answers from row `first` on."""
        self.tokens[first : first + part.tokens.size] = part.tokens
        for terms, sums in part.by_terms.items():
            self.by_terms[terms].put(first, sums)
        if self.sampler is not None and part.sampler is not None:
            self.sampler.put(first, part.sampler)


def score_fragment(
    file: DataFile, fragment: Fragment, columns: TokenColumns, terms: Sequence[Terms], skip: bool
) -> tuple[TokenSums, Problems]:
    """The token pass over one fragment: its answers' sums, and what is wrong with its tokens."""
    problems, workspace = Problems(), Workspace()
    with_sampler = {"logp_old", "logp_sampler"} <= set(columns.logps)
    sums = TokenSums.empty(fragment.rows, terms, with_sampler)
    for first, tokens in token_blocks(file, fragment, columns, skip, problems):
        part = TokenSums(
            np.diff(tokens.offsets),
            {each: term_sums(tokens, each, workspace) for each in terms},
            sampler_sums(tokens, workspace) if with_sampler else None,
        )
        sums.put(first, part)
    return sums, problems


def sum_tokens(
    rollouts: Rollouts, terms: Sequence[Terms], skip: bool, progress: Progress | None = None
) -> tuple[TokenSums, Problems]:
    """The token pass over the whole input, all cores at work.

    Raises:
        InputError: a file cannot be read.
    """
    by_sampler = any(each.ratio == "sampler" for each in terms)
    where = [token_columns(rollouts, file, by_sampler) for file in rollouts.files]
    for file, columns in zip(rollouts.files, where, strict=True):
        if by_sampler and columns.sampler_missing:
            raise missing_column(rollouts.choices["logp_sampler"].columns[0], file.name, file.schema.names)
    sampler = any({"logp_old", "logp_sampler"} <= set(columns.logps) for columns in where)
    sums, problems = TokenSums.empty(rollouts.rows, terms, sampler), Problems()

    def work(file: DataFile, fragment: Fragment) -> tuple[TokenSums, Problems]:
        return score_fragment(file, fragment, where[fragment.file_number], terms, skip)

    first = 0
    for fragment, (part, wrong) in zip(rollouts.fragments, rollouts.map(work), strict=True):
        sums.put(first, part)
        problems.merge(wrong)
        first += fragment.rows
        if progress is not None:
            progress(fragment.rows)
    return sums, problems


@dataclass(frozen=True)
class Objective:
    """The objective and its diagnostics under one recipe, one value a batch (the whole input, or each step).

    Attributes:
        answers: the answers, as the recipe scores them.
        sums: of their tokens.
        by: name of the column that tells the batches, None for the whole input.
        rows: the figures of each batch, by the keys that results have; None where a figure is undefined.
        notes: what a person should know beside them.
    """

    answers: ScoredAnswers
    sums: TokenSums
    by: str | None
    rows: list[dict[str, Any]]
    notes: list[str]


def score_objective(
    rollouts: Rollouts,
    recipes: Sequence[Recipe],
    *,
    by: str | None = None,
    skip: bool = False,
    progress: Progress | None = None,
) -> list[Objective]:
    """The objective under each recipe, from one pass over the tokens.

    Args:
        rollouts: with the log-probs that the recipes need among its choices.
        recipes: at least one.
        by: what the results of each batch are called by: the batches are the values of the column that plays the role
            "by", rows ascending. None is one batch.
        skip: leave out what cannot be scored, instead of refusing it.
        progress: is told of the rows done.

    Raises:
        InputError: a file cannot be read.
        DataError: something in the answers or tokens is wrong; all of it is gathered first.
    """
    problems = Problems()
    scored: list[ScoredAnswers] = []
    try:
        scored.append(score_answers(rollouts, recipes[0], skip))
    except DataError as error:
        problems.merge(error.problems)
    terms = list(dict.fromkeys(recipe.terms for recipe in recipes))
    sums, wrong = sum_tokens(rollouts, terms, skip, progress)
    problems.merge(wrong)
    if problems.errors:
        raise DataError(problems)
    table = scored[0].table
    for recipe in recipes[1:]:
        steps = table.step_of_group[table.groups]
        advantages = (
            scored[0].advantages
            if table.advantages is not None
            else answer_advantages(table.scores, table.groups, scored[0].statistics, recipe, steps)
        )
        scored.append(ScoredAnswers(rollouts, table, recipe, scored[0].statistics, advantages, Problems()))
    scored[0].problems.merge(problems)
    return [_reduced(answers, sums, by) for answers in scored]


def _reduced(answers: ScoredAnswers, sums: TokenSums, by: str | None) -> Objective:
    """One recipe's figures from the per-answer sums."""
    table, recipe = answers.table, answers.recipe
    partition, kept_groups = _partition(table, answers.statistics.kept)
    labels = None if table.by is None else table.by.values
    terms = sums.by_terms[recipe.terms]
    scorable = ~np.isnan(answers.advantages)
    kept = scorable & answers.kept
    counted = scorable if recipe.zero_signal_groups == "kept" else kept
    batches, count = partition.answers, partition.batches
    per_batch = _PerBatch(batches, count, sums.tokens, counted)

    figures: dict[str, Any] = {
        "objective": objective(answers.advantages, terms, sums.tokens, counted, partition, recipe),
        "objective_all_groups": objective(answers.advantages, terms, sums.tokens, scorable, partition, recipe),
        "answers": np.bincount(batches, minlength=count),
        "groups": np.bincount(partition.batch_of_group, minlength=count),
        "kept_groups": np.bincount(partition.batch_of_group[kept_groups], minlength=count),
        "tokens": per_batch.count(sums.tokens, scorable),
        "kept_tokens": per_batch.count(sums.tokens, kept),
        "clip_low": per_batch.share(terms.below, answers.advantages < 0.0),
        "clip_high": per_batch.share(terms.above, answers.advantages > 0.0),
        "ratio_mean": per_batch.mean(terms.ratio),
        "ratio_min": per_batch.least(terms.ratio_min),
        "ratio_max": -per_batch.least(-terms.ratio_max),
        "approx_kl": per_batch.mean(terms.k3),
    }
    if "logp_sampler" in answers.rollouts.choices:
        figures |= _sampler_figures(sums, terms, recipe, batches, count, counted)
    shown: dict[str, Any] = {
        "recipe": recipe.name,
        "eps_low": recipe.eps_low,
        "eps_high": recipe.eps_high,
        "normalize_std": recipe.scale == "group_std",
        "aggregation": recipe.aggregation,
        "columns": answers.rollouts.columns(),
    }
    if answers.rollouts.provenance is not None:
        shown["normalize_std"] = answers.rollouts.provenance.settings.get("scale") == "group_std"
    rows = [
        ({} if labels is None or by is None else {by: labels[number].as_py()})
        | {key: _plain(values[number]) for key, values in figures.items()}
        | shown
        for number in ascending(labels, count)
    ]
    notes = answers.notes + _objective_notes(answers, terms, figures, counted)
    return Objective(answers, sums, by, rows, notes)


def _sampler_figures(
    sums: TokenSums, terms: TermSums, recipe: Recipe, batches: IntArray, count: int, counted: BoolArray
) -> dict[str, FloatArray]:
    """How far the sampler lies from the old log-probs, w = exp(logp_old - logp_sampler), over counted tokens."""
    nothing = np.full(count, np.nan)
    if sums.sampler is None:
        keys = ("ratio_mean", "ratio_min", "ratio_max", "clip", "ess", "abs_diff")
        return {f"sampler_{key}": nothing for key in keys}
    sampler = sums.sampler
    per_batch = _PerBatch(batches, count, sampler.tokens, counted)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = per_batch.mean(sampler.weight)
        ess = mean * mean / per_batch.mean(sampler.weight_squared)
    return {
        "sampler_ratio_mean": mean,
        "sampler_ratio_min": per_batch.least(sampler.weight_min),
        "sampler_ratio_max": -per_batch.least(-sampler.weight_max),
        "sampler_clip": nothing if recipe.sampler_mode == "none" else per_batch.share(terms.cut, counted),
        "sampler_ess": ess,
        "sampler_abs_diff": per_batch.mean(sampler.abs_diff),
    }


@dataclass(frozen=True)
class _PerBatch:
    """Reductions of per-answer columns (N,) to one value a batch (B,), over the counted answers' tokens."""

    batches: IntArray
    number: int
    tokens: IntArray
    counted: BoolArray

    @cached_property
    def _total(self) -> FloatArray:
        return self.count(self.tokens, self.counted).astype(np.float64)

    @cached_property
    def _rows(self) -> IntArray:
        """Counted answers with tokens; the others add nothing."""
        return np.flatnonzero(self.counted & (self.tokens > 0))

    @cached_property
    def _codes(self) -> IntArray | None:
        return None if self.number == 1 else self.batches[self._rows]

    def count(self, values: IntArray, where: BoolArray) -> IntArray:
        """Σ of whole numbers over the answers `where`."""
        if self.number == 1:
            return np.array([np.sum(values, where=where)])
        return np.bincount(self.batches[where], weights=values[where], minlength=self.number).astype(np.int64)

    def share(self, values: IntArray, where: BoolArray) -> FloatArray:
        """Σ over the counted answers `where`, as a share of all counted tokens; NaN without any."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.count(values, where & self.counted) / self._total

    def mean(self, values: FloatArray) -> FloatArray:
        """Σ over the counted answers by the number of their tokens; NaN without any."""
        return exact_means(values[self._rows], self._total, self._codes, self.number)

    def least(self, values: FloatArray) -> FloatArray:
        """Least value of the counted answers with tokens; NaN without any."""
        least, values = np.full(self.number, np.inf), values[self._rows]
        if self._codes is None:
            least[0] = values.min(initial=np.inf)
        else:
            np.minimum.at(least, self._codes, values)
        return np.where(self._total > 0, least, np.nan)


def _partition(table: AnswerTable, kept: BoolArray) -> tuple[Partition, BoolArray]:
    """Groups and batches, and which groups are kept; a group that lies in several batches is one group in each."""
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
    if labels is None:
        return iter(range(count))
    values = labels.to_pylist()
    digits = all(isinstance(value, str) and value.isascii() and value.isdigit() for value in values)
    if any(isinstance(value, dict | list) for value in values):  # no order of their own
        values = [str(value) for value in values]
    return iter(sorted(range(count), key=lambda number: int(values[number]) if digits else values[number]))


def _plain(value: Any) -> int | float | None:
    """A NumPy number as Python's; None for NaN."""
    number = value.item()
    return None if number != number else number


def _objective_notes(answers: ScoredAnswers, terms: TermSums, figures: dict[str, Any], counted: BoolArray) -> list[str]:
    notes = []
    values = figures["objective"]
    if np.isnan(values).any():
        why = "no real token" if not figures["tokens"].any() else "no group with signal has a real token"
        where = "" if values.size == 1 else f" in {int(np.isnan(values).sum())} of {values.size} steps"
        notes.append(f"the objective is undefined (null){where}: {why}")
    if np.isinf(values).any():
        with np.errstate(invalid="ignore"):
            infinite = np.flatnonzero(counted & np.isinf(answer_terms(answers.advantages, terms)))
        row = int(infinite[0]) if infinite.size else 0
        what = f"{row} (and {infinite.size - 1} more)" if infinite.size > 1 else f"{row}"
        notes.append(
            f"the objective is infinite (null in JSON): in answer {what} a ratio, or its product with the advantage,"
            " overflows"
        )
    return notes
