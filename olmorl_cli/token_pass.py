"""The token pass: every fragment's tokens, once, to the figures of every recipe.

A fragment is scored by one plain function of it and of the answers' advantages; what comes out are exact partial sums, so
neither the order of the fragments nor who scores them matters.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from olmorl_cli.core.figures import Figures, Part
from olmorl_cli.core.mismatch import Mismatch
from olmorl_cli.core.objective import Partition
from olmorl_cli.core.recipes import Recipe, Terms
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray, Tokens, TokenSums, Workspace, every_term_sums, sampler_sums
from olmorl_cli.errors import Problems
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.roles import missing_column
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.token_batches import TokenColumns, token_blocks, token_columns

Progress = Callable[[int], None]
"""Told the number of rows done since the last call."""
Look = Callable[[int, Tokens, Workspace], None]
"""Shown tokens, and the input's row of the first answer that has them; by several threads, in any order."""

GATHERED = 1 << 11
"""Answers whose sums are reduced at a time."""


@dataclass(frozen=True)
class Plan:
    """What is asked of the tokens.

    Attributes:
        recipes: what is asked for.
        skip: leave out tokens that cannot be scored, instead of reporting errors.
        keep_sums: the per-answer sums are asked for too.
        diagnose: the further figures are asked for too.
        examine: errors are gathered, but what is sound is summed up all the same, under the skip policy; and what checks
            want beside that is asked for: `Mismatch`, and the tokens that the mask leaves out among the kept sums.
        look: is shown all tokens.
    """

    recipes: Sequence[Recipe]
    skip: bool = False
    keep_sums: bool = False
    diagnose: bool = False
    examine: bool = False
    look: Look | None = None

    @property
    def terms(self) -> list[Terms]:
        """What to do to the tokens, each once."""
        return list(dict.fromkeys(recipe.terms for recipe in self.recipes))

    @property
    def by_group(self) -> bool:
        """Whether anything is gathered by group."""
        return any(figures.by_group for figures in self.figures(len(self.recipes), 1, 1))

    def figures(self, recipes: int, batches: int, groups: int) -> list[Figures]:
        """Figures of no answer yet, of the first `recipes`."""
        return [Figures(recipe, batches, groups, self.diagnose) for recipe in self.recipes[:recipes]]


@dataclass(frozen=True)
class Answers:
    """What the token pass must know of n answers, those of the whole input or of a fragment.

    Attributes:
        first: the first one's row in the whole input.
        advantages: float64 (n,) under each recipe, NaN where unscorable; empty where the answers could not be scored, and
            the tokens are only looked at for what is wrong with them.
        kept: bool (n,), the answer's group is kept.
        groups: int (n,), the group of each.
        batches: int (n,), the batch of each; None where there is only one.
    """

    first: int
    advantages: Sequence[FloatArray]
    kept: BoolArray
    groups: IntArray
    batches: IntArray | None

    @classmethod
    def of(cls, advantages: Sequence[FloatArray], kept: BoolArray, partition: Partition) -> Self:
        """Those of a whole input, with their groups and batches."""
        return cls(0, advantages, kept, partition.groups, None if partition.batches == 1 else partition.answers)

    def by_fragment(self, rollouts: Rollouts) -> Iterator["Answers"]:
        """Those of each fragment of the input whose answers these are."""
        for fragment, first in zip(rollouts.fragments, rollouts.first_rows, strict=True):
            yield self.rows(first, fragment.rows)

    def rows(self, first: int, number: int) -> "Answers":
        """So many of them from the `first` on."""
        own = slice(first, first + number)
        batches = None if self.batches is None else self.batches[own]
        return Answers(
            self.first + first, [each[own] for each in self.advantages], self.kept[own], self.groups[own], batches
        )


class FragmentFigures:
    """The figures of a fragment. Its groups and batches are numbered anew: few of all of them lie in one.

    Attributes:
        tokens: number of its real tokens.
        old_equals_new: their old log-probs are the new ones, all of them.
        mismatch: sampler against old.
    """

    def __init__(self, plan: Plan, answers: Answers) -> None:
        self.tokens, self.old_equals_new = 0, True
        self.mismatch = Mismatch()
        self._group_at: IntArray | None = None
        self._batch_at: IntArray | None = None
        if answers.advantages and plan.by_group:
            self._group_at, groups = np.unique(answers.groups, return_inverse=True)
            answers = dataclasses.replace(answers, groups=groups)
        if answers.batches is not None:
            self._batch_at, batches = np.unique(answers.batches, return_inverse=True)
            answers = dataclasses.replace(answers, batches=batches)
        sizes = (1 if at is None else at.size for at in (self._batch_at, self._group_at))
        self._figures = plan.figures(len(answers.advantages), *sizes)
        self._answers, self._done = answers, 0

    def __getstate__(self) -> dict[str, Any]:
        """What is to be added to the whole; the answers stay where they were scored."""
        return {name: value for name, value in vars(self).items() if name != "_answers"}

    def add(self, sums: TokenSums) -> None:
        """What the tokens of the next rows add up to."""
        for figures, part in self._parts(self._done, sums.tokens.size):
            figures.add(part, sums)
        self._done += sums.tokens.size

    def see(self, tokens: Tokens) -> None:
        """Count tokens, and look whether their old log-probs are the new ones."""
        self.tokens += tokens.new.size
        self.old_equals_new = self.old_equals_new and tokens.old is not None and np.array_equal(tokens.new, tokens.old)

    def diagnose(self, row: int, tokens: Tokens, workspace: Workspace) -> None:
        """The tokens of the answers from `row` of the fragment on."""
        for figures, part in self._parts(row, tokens.offsets.size - 1):
            figures.diagnose(part, tokens, workspace)

    def _parts(self, row: int, number: int) -> Iterator[tuple[Figures, Part]]:
        """Each recipe's figures, and so many answers as it scores them."""
        rows = self._answers.rows(row, number)
        for advantages, figures in zip(rows.advantages, self._figures, strict=True):
            yield figures, Part(rows.first, advantages, rows.kept, rows.groups, rows.batches)

    def by_group(self) -> tuple[IntArray, Sequence[Figures]]:
        """The groups of its answers, if any figures are gathered by group, ascending, and these figures in their order."""
        return np.zeros(0, dtype=np.int64) if self._group_at is None else self._group_at, self._figures

    def add_to(self, whole: Sequence[Figures]) -> None:
        """Add these figures to those of the whole input."""
        for figures, part in zip(whole, self._figures, strict=True):
            figures.merge(part, self._group_at, self._batch_at)


def score_fragment(
    file: DataFile, fragment: Fragment, columns: TokenColumns, plan: Plan, answers: Answers, sampler: bool
) -> tuple[FragmentFigures, Problems, list[TokenSums]]:
    """The token pass over one fragment.

    Args:
        file: the fragment's file.
        fragment: what to read of it.
        columns: where its tokens are.
        plan: what is asked for.
        answers: the fragment's.
        sampler: the input has old log-probs and the sampler's.

    Returns:
        Its figures, what is wrong with its tokens, and the per-answer sums if they are asked for.

    Raises:
        InputError: the file cannot be read.
    """
    problems, workspace, terms = Problems(), Workspace(), plan.terms
    figures = FragmentFigures(plan, answers)
    gathered: list[TokenSums] = []
    kept: list[TokenSums] = []

    def reduce() -> None:
        if gathered and (plan.examine or not problems.errors):
            sums = TokenSums.joined(gathered)
            figures.add(sums)
            if plan.keep_sums:
                kept.append(sums)
        gathered.clear()

    waiting = 0
    severity = "error" if plan.examine else None
    for row, tokens in token_blocks(file, fragment, columns, plan.skip or plan.examine, problems, severity):
        figures.see(tokens)
        lengths = np.diff(tokens.offsets)
        by_terms = every_term_sums(tokens, terms, workspace)
        masked = tokens.masked if tokens.masked is not None or not plan.examine else np.zeros_like(lengths)
        of_sampler = sampler_sums(tokens, workspace) if sampler else None
        gathered.append(TokenSums(lengths, by_terms, of_sampler, masked if plan.examine else None))
        if plan.examine and of_sampler is not None:
            figures.mismatch.add(tokens, workspace)
        if plan.diagnose:
            figures.diagnose(row, tokens, workspace)
        if plan.look is not None:
            plan.look(answers.first + row, tokens, workspace)
        waiting += lengths.size
        if waiting >= GATHERED:
            reduce()
            waiting = 0
    reduce()
    return figures, problems, kept


@dataclass(frozen=True)
class TokenPass:
    """What the token pass makes of the whole input.

    Attributes:
        figures: under each recipe; without an answer in them if errors are among the problems.
        problems: what is wrong with the tokens, or was left out.
        sums: the per-answer sums (N,); None where they were not asked for.
        count: number of real tokens.
        old_equals_new: their old log-probs are the new ones, all of them.
        mismatch: sampler against old; of no token where `examine` was not asked for.
    """

    figures: list[Figures]
    problems: Problems
    sums: TokenSums | None
    count: int
    old_equals_new: bool
    mismatch: Mismatch


def score_tokens(
    rollouts: Rollouts,
    plan: Plan,
    advantages: Sequence[FloatArray],
    kept: BoolArray,
    partition: Partition,
    progress: Progress | None = None,
) -> TokenPass:
    """The token pass over the whole input, with all of its answers at hand.

    Args:
        rollouts: the input.
        plan: what is asked for.
        advantages, kept: as those of `Answers`.
        partition: the answers' groups and batches.
        progress: is told of the rows done.

    Raises:
        InputError: as `score_fragments`.
    """
    whole = plan.figures(len(advantages), partition.batches, partition.batch_of_group.size)
    answers = Answers.of(advantages, kept, partition).by_fragment(rollouts)
    tokens = score_fragments(rollouts, plan, answers, whole, progress)
    for figures in whole:
        figures.close(partition.batch_of_group)
    return tokens


def score_fragments(
    rollouts: Rollouts,
    plan: Plan,
    answers: Iterable[Answers],
    whole: list[Figures],
    progress: Progress | None = None,
    also: Callable[[FragmentFigures], None] | None = None,
) -> TokenPass:
    """The token pass over the whole input, fragment by fragment.

    Args:
        rollouts: the input.
        plan: what is asked for.
        answers: those of each fragment.
        whole: the figures under each recipe that all is added to; none where the answers could not be scored.
        progress: is told of the rows done.
        also: takes the figures of each fragment too.

    Raises:
        InputError: a file cannot be read, or lacks a column that a recipe needs.
    """
    by_sampler = any(terms.ratio == "sampler" for terms in plan.terms)
    where = [token_columns(rollouts, number, by_sampler) for number in range(len(rollouts.files))]
    for file, columns in zip(rollouts.files, where, strict=True):
        if by_sampler and columns.sampler_missing:
            raise missing_column(rollouts.choices["logp_sampler"].columns[0], file.name, file.schema.names)
    sampler = any({"logp_old", "logp_sampler"} <= set(columns.logps) for columns in where)
    given = (
        (where[fragment.file_number], plan, own, sampler) for fragment, own in zip(rollouts.fragments, answers, strict=True)
    )
    pa.default_memory_pool().release_unused()  # what the answers were read into
    problems, every = Problems(), [TokenSums.empty(plan.terms, sampler)] if plan.keep_sums else []
    count, equal, sound, mismatch = 0, True, True, Mismatch()
    for fragment, (part, wrong, sums) in zip(rollouts.fragments, rollouts.map(score_fragment, given), strict=True):
        problems.merge(wrong)
        count += part.tokens
        equal = equal and part.old_equals_new
        sound = sound and not wrong.errors
        if plan.examine or sound:
            part.add_to(whole)
            if also is not None:
                also(part)
            mismatch.merge(part.mismatch)
            every += sums
        if progress is not None:
            progress(fragment.rows)
    return TokenPass(whole, problems, TokenSums.joined(every) if every else None, count, equal, mismatch)
