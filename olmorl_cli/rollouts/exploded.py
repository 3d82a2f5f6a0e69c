"""One row a prompt, with a list of its answers' values in each column, seen as one row an answer."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from olmorl_cli.errors import MOST_PLACES, DataError, Place, Problems
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, column_of, lists_of
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.roles import Choice, Column, is_list, storage_type, type_of

ROW = "row of the file"
"""Name of the added column that tells which prompt an answer belongs to."""


class ExplodedFile(DataFile):
    """A file of prompts as a file of answers.

    Columns whose lists hold one value an answer are opened; the others are repeated for each answer. A column inside a
    struct appears under its dotted name.
    """

    def __init__(self, file: DataFile, rewards: Column, listed: Sequence[Column]) -> None:
        """Open `listed` columns of `file`, `rewards` among them, whose lists say how many answers a row has."""
        self._file, self._rewards = file, rewards
        self._listed = {column.name: column for column in listed}
        self.kind = file.kind
        inner = {name: pa.field(name, _inner(type_of(column, file.schema))) for name, column in self._listed.items()}
        fields = [inner.pop(field.name, field) for field in file.schema] + list(inner.values())
        super().__init__(file.source, pa.schema([*fields, pa.field(ROW, pa.int64())], metadata=file.schema.metadata))
        self._inner: dict[Fragment, Fragment] = {}

    def opens(self, choice: Choice) -> bool:
        """Whether the choice's columns are among the opened ones."""
        return all(name in self._listed for name in choice.columns)

    def opening(self, columns: Sequence[Column]) -> "ExplodedFile":
        """The same file of answers, with more of its lists opened; it takes this one's fragments."""
        listed = {**self._listed, **{column.name: column for column in columns}}
        more = ExplodedFile(self._file, self._rewards, list(listed.values()))
        more._inner = self._inner
        return more

    @property
    def portable(self) -> bool:
        return self._file.portable

    def fragments(self, number: int) -> list[Fragment]:
        """The file's fragments, with answers for rows."""
        fragments, first = [], 0
        for fragment in self._file.fragments(number):
            answers = 0
            row = fragment.first_row
            for batch in self._file.batches(fragment, [self._rewards.top]):
                rewards = lists_of(column_of(batch, self._rewards))
                if rewards.null is not None:
                    message = f"{self._rewards.name} is a null list: it does not say how many answers there are"
                    name, action = self._rewards.name, "Write its rewards"
                    raise self._fault(
                        number, "null_rewards", message, action, rewards.null, row, name, ["null"] * MOST_PLACES
                    )
                answers += int(rewards.lengths.sum())
                row += batch.num_rows
            fragments.append(Fragment(number, fragment.parts, first, answers))
            self._inner[fragments[-1]] = fragment
            first += answers
        return fragments

    def batches(self, fragment: Fragment, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The fragment's answers."""
        wanted = [name for name in columns if name != ROW]
        tops = [self._listed[name].top if name in self._listed else name for name in wanted]
        inner = self._inner[fragment]
        row = inner.first_row
        for batch in self._file.batches(inner, list(dict.fromkeys([self._rewards.top, *tops]))):
            counts = lists_of(column_of(batch, self._rewards)).lengths
            of_answer = pa.array(np.repeat(np.arange(batch.num_rows), counts))
            arrays = {
                name: self._opened(batch, name, counts, row) if name in self._listed else batch.column(name).take(of_answer)
                for name in wanted
            }
            if ROW in columns:
                arrays[ROW] = pa.array(np.repeat(row + np.arange(batch.num_rows), counts))
            yield pa.RecordBatch.from_pydict({name: arrays[name] for name in columns})
            row += batch.num_rows

    def _opened(self, batch: pa.RecordBatch, name: str, counts: IntArray, first_row: int) -> pa.Array:
        """The values of one column for each answer.

        Raises:
            DataError: a list of the column has another length than that of the rewards.
        """
        lists = lists_of(column_of(batch, self._listed[name]))
        absent = lists.is_null & (counts > 0)
        differs = (lists.lengths != counts) & ~absent
        if differs.any():
            at = int(np.flatnonzero(differs)[0])
            message = (
                f"the lists {self._rewards.name} and {name} have different lengths ({counts[at]} and {lists.lengths[at]} in"
                f" row {first_row + at} of the file)"
            )
            action = "Write one value an answer into each"
            there = [
                f"{self._rewards.name} {counts[row]}, {name} {lists.lengths[row]}"
                for row in np.flatnonzero(differs)[:MOST_PLACES]
            ]
            raise self._fault(0, "lengths", message, action, differs, first_row, name, there)
        if not absent.any():
            return lists.values
        places = np.cumsum(np.repeat(~absent, counts)) - 1
        return lists.values.take(pa.array(places, mask=np.repeat(absent, counts)))

    def _fault(
        self,
        number: int,
        code: str,
        message: str,
        action: str,
        rows: BoolArray,
        first_row: int,
        column: str,
        values: Sequence[str],
    ) -> DataError:
        """The error for rows of the file that are no prompts with answers; `values` stand in the first of them."""
        problems, at = Problems(), np.flatnonzero(rows)
        places = [
            Place(number, first_row + row, value=value)
            for row, value in zip(at[:MOST_PLACES].tolist(), values, strict=False)
        ]
        problems.add(code, message, action, file=self.name, places=places, count=at.size, column=column)
        return DataError(problems)


def _inner(kind: pa.DataType) -> pa.DataType:
    """The type of a list's values."""
    kind = storage_type(kind)
    return kind.value_type if is_list(kind) else kind
