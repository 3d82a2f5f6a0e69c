"""What the checks look at: arrays, from files or made up, and what they are called in messages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.advantages import GroupStatistics, group_statistics
from olmorl_cli.core.mismatch import Mismatch
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray, TermSums, TokenSums


@dataclass(frozen=True)
class Named:
    """A column of one number an answer, float64 (N,), NaN for null."""

    name: str
    values: FloatArray


@dataclass(frozen=True)
class Texts:
    """The answers' texts: the column, a hash of each, uint64 (N,), and which answers have one, bool (N,)."""

    name: str
    hashes: npt.NDArray[np.uint64]
    there: BoolArray


@dataclass(frozen=True)
class Evidence:
    """N answers of P groups in S steps; without a step column all are one.

    Attributes:
        groups: int (N,), the group of each answer.
        step_of_group: int (P,), the step of each group.
        rewards: float64 (N,), NaN where unscorable; the given advantages where there is no reward.
        advantages: float64 (N,), of the recipe or given, NaN where unscorable.
        recipe: what the answers were scored by.
        has_rewards: the rewards are such.
        steps: the steps' ids; None without a step column.
        step_order: int (S,), the steps, ascending.
        columns: role → its column, for messages.
        group_ids: ids of groups by their numbers; None where groups are consecutive rows.
        ids: how many different ids the groups have, steps apart.
        sums: the per-answer sums of the real tokens; None without log-probs.
        old_equals_new: the old log-probs are the new ones.
        mismatch: sampler against old; None without both.
        lengths: int (N,), real tokens, or the length of the token ids or the text; None where none is known.
        length_unit: unmasked tokens, tokens or letters.
        texts: None without a column of texts or token ids.
        cut: which answers were cut off, 1.0 or 0.0; None without a column that tells.
        components: further columns of rewards.
        given: advantages of the file's own; None without a column.
    """

    groups: IntArray
    step_of_group: IntArray
    rewards: FloatArray
    advantages: FloatArray
    recipe: Recipe = field(default_factory=Recipe)
    has_rewards: bool = True
    steps: list[Any] | None = None
    step_order: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    columns: Mapping[str, str] = field(default_factory=dict)
    group_ids: Callable[[IntArray], list[Any]] | None = None
    ids: int = 0
    sums: TokenSums | None = None
    old_equals_new: bool = False
    mismatch: Mismatch | None = None
    lengths: IntArray | None = None
    length_unit: str = "tokens"
    texts: Texts | None = None
    cut: Named | None = None
    components: tuple[Named, ...] = ()
    given: Named | None = None

    @cached_property
    def statistics(self) -> GroupStatistics:
        """Of each group's rewards."""
        return group_statistics(self.rewards, self.groups, self.step_of_group.size)

    @cached_property
    def scorable(self) -> BoolArray:
        """Which answers have a finite reward, bool (N,)."""
        return np.isfinite(self.rewards)

    @cached_property
    def kept(self) -> BoolArray:
        """Which answers are scorable and in a kept group, bool (N,)."""
        return self.scorable & self.statistics.kept[self.groups]

    @property
    def terms(self) -> TermSums | None:
        """What the recipe makes of each answer's tokens; None without the log-probs for it."""
        return None if self.sums is None else self.sums.by_terms.get(self.recipe.terms)

    @property
    def step_number(self) -> int:
        """S."""
        return 1 if self.steps is None else len(self.steps)

    @cached_property
    def step_of_answer(self) -> IntArray:
        """The step of each answer, int (N,)."""
        return self.step_of_group[self.groups]

    def steps_called(self, numbers: IntArray) -> list[Any]:
        """The ids of steps, ascending; nothing without a step column."""
        if self.steps is None:
            return []
        wanted = np.zeros(self.step_number, dtype=np.bool_)
        wanted[numbers] = True
        return [self.steps[number] for number in self.step_order[wanted[self.step_order]].tolist()]

    def groups_called(self, numbers: IntArray) -> list[Any]:
        """The ids of groups."""
        return numbers.tolist() if self.group_ids is None else self.group_ids(numbers)
