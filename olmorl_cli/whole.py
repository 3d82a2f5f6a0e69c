"""What is said of the whole input, gathered share by share: problems, warnings, and the numbers of its batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from olmorl_cli.core.objective import Partition
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray
from olmorl_cli.errors import DataError, Problems
from olmorl_cli.remarks import remark_equal_logprobs, remark_single_answers
from olmorl_cli.rollouts.answers import AnswerTable
from olmorl_cli.rollouts.ids import encode
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.token_pass import TokenPass


def answer_notes(problems: Problems, overflown: int, first: int) -> list[str]:
    """What a person should know of answers, a sentence each.

    Args:
        problems: of the answers.
        overflown: how many advantages are infinite.
        first: the row of the first of them.
    """
    notes = [kind.line() for kind in problems.kinds() if kind.severity != "error"]
    if overflown:
        where = f"row {first} ({overflown} in all)"
        notes.append(f"the advantage overflows (null in JSON), {where}: scale the rewards down")
    return notes


class Whole:
    """What no share can tell by itself.

    Attributes:
        problems: of all shares; once it is settled, with what may be a fault of the reading.
    """

    def __init__(self) -> None:
        self.problems = Problems()
        self._told, self._repeated = False, Problems()
        self._answers = self._groups = self._tokens = 0
        self._equal = True
        self._overflown: list[tuple[int, int]] = []

    def add_table(self, table: AnswerTable) -> None:
        """Add the answers of a share, as they are read."""
        self.problems.merge(table.problems)
        self._repeated.merge(table.repeated)
        self._told = self._told or table.told
        self._answers += table.groups.size
        self._groups += table.step_of_group.size

    def add_advantages(self, advantages: Sequence[FloatArray], rows: IntArray | None = None) -> None:
        """Add the advantages of a share under each recipe, float64 (N,), of answers in these `rows`, (N,); None: in all."""
        infinite = [np.flatnonzero(np.isinf(each)) for each in advantages]
        first = [int(at[0] if rows is None else rows[at[0]]) if at.size else 0 for at in infinite]
        self._overflow([(at.size, row) for at, row in zip(infinite, first, strict=True)])

    def _overflow(self, others: Sequence[tuple[int, int]]) -> None:
        """Add how many advantages are infinite under each recipe, and the row of the first of them."""
        known = self._overflown or [(0, 0)] * len(others)
        self._overflown = [
            (count + more, min(row for number, row in ((count, first), (more, other)) if number) if count + more else 0)
            for (count, first), (more, other) in zip(known, others, strict=True)
        ]

    def add_tokens(self, tokens: TokenPass) -> None:
        """Add what the token pass found beside the figures."""
        self.problems.merge(tokens.problems)
        self._tokens += tokens.count
        self._equal = self._equal and tokens.old_equals_new

    def merge(self, share: "Whole") -> None:
        """Add what was found of a share; nothing of that is settled."""
        self.problems.merge(share.problems)
        self._repeated.merge(share._repeated)
        self._told = self._told or share._told
        self._answers += share._answers
        self._groups += share._groups
        self._overflow(share._overflown or [(0, 0)] * len(self._overflown))

    def settle(self, rollouts: Rollouts) -> None:
        """All of the input is added.

        Raises:
            DataError: something in them is wrong.
        """
        if self._told:
            self.problems.merge(self._repeated)
        if self.problems.errors:
            raise DataError(self.problems)
        remark_single_answers(rollouts, self.problems, self._answers, self._groups)
        remark_equal_logprobs(rollouts, self.problems, self._tokens, self._equal)

    def notes(self, number: int) -> list[str]:
        """What a person should know beside the results of one of the recipes; of the problems, beside the first's."""
        return answer_notes(Problems() if number else self.problems, *self._overflown[number])


@dataclass(frozen=True)
class Batches:
    """Batches of answers that results are asked for, B of them.

    Attributes:
        labels: what tells them, (B,); None for a single one, the whole input.
        answers, groups, kept_groups: their numbers, int (B,).
    """

    labels: pa.Array | None
    answers: IntArray
    groups: IntArray
    kept_groups: IntArray

    @classmethod
    def of(cls, table: AnswerTable, partition: Partition, kept_groups: BoolArray) -> Self:
        """Those of one table; `kept_groups` (P,) are those of the partition that are kept."""
        count, batch_of_group = partition.batches, partition.batch_of_group
        return cls(
            None if table.by is None else table.by.values,
            np.array([table.groups.size]) if count == 1 else np.bincount(partition.answers, minlength=count),
            np.bincount(batch_of_group, minlength=count),
            np.bincount(batch_of_group[kept_groups], minlength=count),
        )

    @classmethod
    def of_nothing(cls) -> Self:
        """One batch, without an answer."""
        return cls(None, *np.zeros((3, 1), dtype=np.int64))

    @property
    def size(self) -> int:
        """How many there are, B."""
        return self.answers.size

    def joined(self, others: "Batches") -> tuple["Batches", IntArray]:
        """These, and those of more answers: a batch of both is one. Beside them, which batch each of the others is."""
        labels, at = None, np.arange(others.size)
        if self.labels is not None and others.labels is not None:
            codes = encode("by", [self.labels, others.labels], ["", ""])
            labels, at = codes.values, codes.codes[self.size :]
        size = self.size if labels is None else len(labels)
        counts = np.zeros((3, size), dtype=np.int64)
        counts[:, : self.size] = (self.answers, self.groups, self.kept_groups)
        counts[:, at] += (others.answers, others.groups, others.kept_groups)
        return Batches(labels, *counts), at
