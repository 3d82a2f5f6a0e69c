"""The objective under one or more recipes: what the commands show, and what a program can call."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.answer_pass import Noted, rows_of, score_shares
from olmorl_cli.core.diagnostics import QUANTILES
from olmorl_cli.core.figures import Figures
from olmorl_cli.core.objective import Partition
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.tokens import TokenSums
from olmorl_cli.errors import Problems
from olmorl_cli.group_totals import GroupTotals
from olmorl_cli.remarks import bounds_notes
from olmorl_cli.rollouts.answers import read_answers
from olmorl_cli.rollouts.ledger import Ledger
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.shares import Share, shares_of
from olmorl_cli.rollouts.texts import json_values, plain_texts
from olmorl_cli.scoring import ScoredAnswers, partitioned, score_by_each
from olmorl_cli.token_pass import Answers, Plan, Progress, TokenPass, score_fragments, score_tokens
from olmorl_cli.whole import Batches, Whole

_FIGURES = "objective objective_all_groups answers groups kept_groups tokens kept_tokens clip_low clip_high approx_kl"
_RATIOS = "ratio_mean ratio_min ratio_max sampler_ratio_mean sampler_ratio_min sampler_ratio_max"
_FURTHER = "clip_changed approx_kl_k1 approx_kl_k2 sampler_outside sampler_abs_diff_max sampler_k1 sampler_k3"
_OTHERS = "sampler_clip sampler_ess sampler_abs_diff recipe eps_low eps_high normalize_std aggregation columns"
RESULT_KEYS = frozenset([*f"{_FIGURES} {_RATIOS} {_FURTHER} {_OTHERS}".split(), *QUANTILES])
"""Keys of an objective's figures and settings."""


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
    shares = [] if keep_sums else shares_of(rollouts, any(recipe.by_step for recipe in recipes), whole.problems)
    scored: Sequence[ScoredAnswers | None] = [None] * len(recipes)
    if shares:
        batches, tokens = _score_shares(rollouts, plan, whole, progress, shares)
    else:
        batches, tokens, scored = _score_at_once(rollouts, plan, whole, progress)
    whole.add_tokens(tokens)
    whole.settle(rollouts)
    return [
        objective_of(
            rollouts,
            batches,
            figures,
            by,
            whole.notes(number),
            Problems() if number else whole.problems,
            None if answers is None or tokens.sums is None else (answers, tokens.sums),
        )
        for number, (figures, answers) in enumerate(zip(tokens.figures, scored, strict=True))
    ]


def _score_at_once(
    rollouts: Rollouts, plan: Plan, whole: Whole, progress: Progress | None
) -> tuple[Batches, TokenPass, Sequence[ScoredAnswers | None]]:
    """The batches and the tokens of the input, and its answers under each recipe if the plan keeps them.

    Of no use if anything is wrong: `whole` knows.
    """
    table = read_answers(rollouts, plan.skip)
    whole.add_table(table)
    scored = [] if whole.problems.errors else score_by_each(rollouts, table, plan.recipes)
    partition, kept_groups = partitioned(scored[0]) if scored else (Partition.of_nothing(), np.zeros(0, dtype=np.bool_))
    advantages = [answers.advantages for answers in scored]
    if scored:
        whole.add_advantages(advantages)
    batches, kept = Batches.of(table, partition, kept_groups), scored[0].kept if scored else kept_groups
    given: Sequence[ScoredAnswers | None] = scored
    if not plan.keep_sums:  # tokens take memory of their own: what they do not need is let go
        del table
        scored, given = [], [None] * len(scored)
        if partition.batches == 1 and not plan.by_group:
            partition = dataclasses.replace(partition, groups=np.broadcast_to(np.int64(0), kept.size))
    return batches, score_tokens(rollouts, plan, advantages, kept, partition, progress), given


def _score_shares(
    rollouts: Rollouts, plan: Plan, whole: Whole, progress: Progress | None, shares: Sequence[Share]
) -> tuple[Batches, TokenPass]:
    """`_score_at_once` for an input whose answers need not fit into memory: none of them are given back."""
    ledger = Ledger(rollouts.first_rows, rollouts.files[0].name)
    batches: Batches | None = None
    first_groups, groups = [], 0
    for rows, columns, own in score_shares(rollouts, shares, plan.recipes, plan.skip, _of_tokens, whole):
        assert own is not None, "they are noted"
        batches, at = (own, np.arange(own.size)) if batches is None else batches.joined(own)
        ledger.add(rows, {**columns, "group": columns["group"] + groups, "batch": at[columns["batch"]]})
        first_groups.append(groups)
        groups += int(own.groups.sum())
    if batches is None or whole.problems.errors:
        return Batches.of_nothing(), score_fragments(rollouts, plan, _no_answers(rollouts), [], progress)
    answers, figures = _answers_of(rollouts, plan, ledger, batches.size), plan.figures(len(plan.recipes), batches.size, 0)
    for each in figures:
        each.close(np.zeros(0, dtype=np.int64))
    if not plan.by_group:
        return batches, score_fragments(rollouts, plan, answers, figures, progress)
    totals = GroupTotals(plan, ledger, first_groups, rollouts.files[0].name)
    tokens = score_fragments(rollouts, plan, answers, figures, progress, totals.add)
    totals.close(figures)
    return batches, tokens


def _of_tokens(scored: Sequence[ScoredAnswers]) -> Noted:
    """What the token pass must know of the answers of a share, and their batches."""
    partition, kept_groups = partitioned(scored[0])
    advantages = {answers.recipe.of_advantages: answers.advantages for answers in scored}
    columns: dict[str, Any] = {f"advantage {number}": each for number, each in enumerate(advantages.values())}
    columns |= {"kept": scored[0].kept, "group": partition.groups, "batch": partition.answers}
    return rows_of(scored[0]), columns, Batches.of(scored[0].table, partition, kept_groups)


def _answers_of(rollouts: Rollouts, plan: Plan, ledger: Ledger, batches: int) -> Iterator[Answers]:
    """Those of each fragment, from the ledger."""
    settings = list(dict.fromkeys(recipe.of_advantages for recipe in plan.recipes))
    number = [settings.index(recipe.of_advantages) for recipe in plan.recipes]
    for fragment, first in enumerate(rollouts.first_rows):
        columns = ledger.section(fragment)
        advantages = [columns[f"advantage {each}"] for each in number]
        yield Answers(first, advantages, columns["kept"], columns["group"], columns["batch"] if batches > 1 else None)


def _no_answers(rollouts: Rollouts) -> Iterator[Answers]:
    """Those of each fragment where they could not be scored."""
    nothing = Answers.of([], np.zeros(0, dtype=np.bool_), Partition.of_nothing())
    return nothing.by_fragment(rollouts)


def objective_of(
    rollouts: Rollouts,
    batches: Batches,
    figures: Figures,
    by: str | None,
    notes: list[str],
    problems: Problems,
    kept: tuple[ScoredAnswers, TokenSums] | None = None,
) -> Objective:
    """The figures under one recipe, closed, as results show them; the others as in `Objective`."""
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


def ascending(labels: pa.Array | None, count: int) -> Iterator[int]:
    """Batch numbers in ascending order of their labels; texts of digits by the number they write, then as texts."""
    if labels is None or types.is_null(labels.type):
        return iter(range(count))
    if not types.is_nested(labels.type) and not types.is_large_string(labels.type):
        return iter(pc.array_sort_indices(labels).to_pylist())
    values = plain_texts(labels).to_pylist()  # lists and structs have no order of their own
    digits = all(value.isascii() and value.isdigit() for value in values)
    return iter(sorted(range(count), key=lambda at: (int(values[at]) if digits else 0, values[at])))


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
