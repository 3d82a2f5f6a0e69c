"""What is said of the whole input, gathered block by block: problems, warnings, and the figures of its batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from olmorl_cli.core.figures import Figures
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
    """What no block can tell by itself.

    Attributes:
        problems: of all blocks; once it is settled, with what may be a fault of the reading.
    """

    def __init__(self) -> None:
        self.problems = Problems()
        self._told, self._repeated = False, Problems()
        self._answers = self._groups = self._tokens = 0
        self._equal = True
        self._overflown: list[tuple[int, int]] = []

    def add_table(self, table: AnswerTable) -> None:
        """Add the answers of a block, as they are read."""
        self.problems.merge(table.problems)
        self._repeated.merge(table.repeated)
        self._told = self._told or table.told
        self._answers += table.groups.size
        self._groups += table.step_of_group.size

    def add_advantages(self, advantages: Sequence[FloatArray], first_row: int) -> None:
        """Add the advantages of a block under each recipe, float64 (N,), of answers from `first_row` on."""
        infinite = [np.flatnonzero(np.isinf(each)) for each in advantages]
        known = self._overflown or [(0, 0)] * len(infinite)
        self._overflown = [
            (count + rows.size, first if count or not rows.size else first_row + int(rows[0]))
            for (count, first), rows in zip(known, infinite, strict=True)
        ]

    def add_tokens(self, tokens: TokenPass) -> None:
        """Add what the token pass over a block found beside the figures."""
        self.problems.merge(tokens.problems)
        self._tokens += tokens.count
        self._equal = self._equal and tokens.old_equals_new

    def settle(self, rollouts: Rollouts) -> None:
        """All blocks of the input are added.

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
        figures: under each recipe, closed.
    """

    labels: pa.Array | None
    answers: IntArray
    groups: IntArray
    kept_groups: IntArray
    figures: Sequence[Figures]

    @classmethod
    def of(cls, table: AnswerTable, partition: Partition, kept_groups: BoolArray, figures: Sequence[Figures]) -> Self:
        """Those of one table; `kept_groups` (P,) are those of the partition that are kept."""
        count, batch_of_group = partition.batches, partition.batch_of_group
        return cls(
            None if table.by is None else table.by.values,
            np.array([table.groups.size]) if count == 1 else np.bincount(partition.answers, minlength=count),
            np.bincount(batch_of_group, minlength=count),
            np.bincount(batch_of_group[kept_groups], minlength=count),
            figures,
        )

    @classmethod
    def joined(cls, parts: Sequence["Batches"]) -> "Batches":
        """Those of several blocks, at least one; a batch that lies in several of them is one."""
        labels, size, at = None, 1, [np.zeros(1, dtype=np.int64)] * len(parts)
        known = [part.labels for part in parts if part.labels is not None]
        if known:
            codes = encode("by", known, [""] * len(known))
            labels, size = codes.values, len(codes.values)
            at = np.split(codes.codes, np.cumsum([len(each) for each in known])[:-1])
        counts = np.zeros((3, size), dtype=np.int64)
        whole = [Figures(each.recipe, size, 0, each.diagnostics is not None) for each in parts[0].figures]
        for figures in whole:
            figures.close(np.zeros(0, dtype=np.int64))
        for part, batches in zip(parts, at, strict=True):
            counts[:, batches] += (part.answers, part.groups, part.kept_groups)
            for figures, own in zip(whole, part.figures, strict=True):
                figures.merge(own, None, batches)
        answers, groups, kept_groups = counts
        return cls(labels, answers, groups, kept_groups, whole)
