"""Totals of per-answer columns, gathered part by part: in any order, to the same bits."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.sums import ExactSums, FloatArray, IntArray

_DENSE = 1 << 20
"""Cells up to which a count for each of them is cheaper than sorting those that occur."""


class Tally:
    """How often each of `number` values occurs in each batch; only cells (batch · number + value) that occur are kept."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._parts: list[tuple[IntArray, IntArray]] = []
        self._held = self._sorted = 0

    def add(self, cells: IntArray, counts: IntArray) -> None:
        """Add `counts` (C,) to `cells` (C,), all different."""
        self._parts.append((cells, counts))
        self._held += cells.size
        if self._held > 4 * max(self._sorted, _DENSE):
            self.whole()

    def whole(self) -> tuple[IntArray, IntArray]:
        """The cells that occur, ascending, and their counts."""
        if len(self._parts) > 1:
            cells, counts = (np.concatenate(each) for each in zip(*self._parts, strict=True))
            order = np.argsort(cells, kind="stable")
            cells, counts = cells[order], counts[order]
            first = np.flatnonzero(np.diff(cells, prepend=-1))
            self._parts = [(cells[first], np.add.reduceat(counts, first))] if first.size else []
        if not self._parts:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._held = self._sorted = self._parts[0][0].size
        return self._parts[0]


class Totals:
    """Named counts, sums and extremes inside each of `size` batches (or groups) of answers.

    Plain data: a part can be totalled by one worker and merged by another.

    Attributes:
        size: number of batches.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._counts: dict[str, IntArray] = {}
        self._sums: dict[str, ExactSums] = {}
        self._least: dict[str, FloatArray] = {}
        self._tallies: dict[str, Tally] = {}

    def count(self, name: str, values: npt.NDArray[Any] | int, codes: IntArray | None) -> None:
        """Add whole numbers or flags (n,) to the batches `codes` (n,); None puts all into batch 0, `values` may be a sum."""
        if codes is None:
            counts = np.array([np.sum(values)], dtype=np.int64)
        else:
            counts = np.bincount(codes, weights=values, minlength=self.size).astype(np.int64)
        self._counts[name] = self.counted(name) + counts

    def add(self, name: str, values: FloatArray, codes: IntArray | None) -> None:
        """Add numbers (n,) exactly."""
        self._sums.setdefault(name, ExactSums(self.size)).add(values, codes)

    def least(self, name: str, values: FloatArray, codes: IntArray | None) -> None:
        """Take numbers (n,) into the least value of each batch."""
        least = self._least.setdefault(name, np.full(self.size, np.inf))
        if codes is None:
            least[0] = min(least[0], values.min(initial=np.inf))
        else:
            np.minimum.at(least, codes, values)

    def tally(self, name: str, bins: IntArray, number: int, codes: IntArray | None) -> None:
        """Count values (n,) of 0..number-1, each value for itself."""
        cells = bins if codes is None else codes * number + bins
        if self.size * number <= _DENSE:
            counts = np.bincount(cells, minlength=1)
            cells = np.flatnonzero(counts)
            counts = counts[cells]
        else:
            cells, counts = np.unique(cells, return_counts=True)
        self._tallies.setdefault(name, Tally(number)).add(cells, counts)

    def merge(self, other: "Totals", at: IntArray | None = None) -> None:
        """Add the batches of `other` to the batches `at` (other.size,) of these, all different; None: one to one."""
        where = slice(None) if at is None else at
        for name, counts in other._counts.items():
            self._counts.setdefault(name, np.zeros(self.size, dtype=np.int64))[where] += counts
        for name, sums in other._sums.items():
            self._sums.setdefault(name, ExactSums(self.size)).merge(sums, at)
        for name, values in other._least.items():
            least = self._least.setdefault(name, np.full(self.size, np.inf))
            least[where] = np.minimum(least[where], values)
        for name, tally in other._tallies.items():
            cells, counts = tally.whole()
            if at is not None:
                cells = at[cells // tally.number] * tally.number + cells % tally.number
            self._tallies.setdefault(name, Tally(tally.number)).add(cells, counts)

    def columns(self) -> dict[tuple[str, str, int | None], npt.NDArray[Any]]:
        """The counts and sums as columns, (size,) each: ("count", name, None), and ("sum", name, place) of `ExactSums`."""
        counts = {("count", name, None): column for name, column in self._counts.items()}
        return counts | {("sum", name, at): each for name, sums in self._sums.items() for at, each in sums.columns().items()}

    @classmethod
    def of_columns(cls, size: int, columns: Mapping[tuple[str, str, int | None], npt.NDArray[Any]]) -> Self:
        """The totals that had these columns; each term of a sum was counted, as one at least, under some name."""
        totals = cls(size)
        totals._counts = {name: column for (sort, name, _), column in columns.items() if sort == "count"}
        terms = sum(int(column.sum()) for column in totals._counts.values())
        for summed in {name for sort, name, _ in columns if sort == "sum"}:
            own = {at: each for (sort, name, at), each in columns.items() if (sort, name) == ("sum", summed)}
            totals._sums[summed] = ExactSums.of_columns(size, own, terms)
        return totals

    def counted(self, name: str) -> IntArray:
        """What was counted, int (size,)."""
        return self._counts.get(name, np.zeros(self.size, dtype=np.int64))

    def tallied(self, name: str) -> "Tally":
        """How often each value was tallied in each batch."""
        return self._tallies.get(name, Tally(1))

    def over(self, name: str, divisors: npt.ArrayLike) -> FloatArray:
        """Sums by `divisors` (size,) or one number, float64 (size,); NaN for 0/0."""
        return self._sums.get(name, ExactSums(self.size)).over(divisors)

    def share(self, name: str, of: str) -> FloatArray:
        """One count by another, float64 (size,); NaN for 0/0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.counted(name) / self.counted(of)

    def lowest(self, name: str, of: str) -> FloatArray:
        """Least values, float64 (size,); NaN where nothing was counted as `of`."""
        return np.where(self.counted(of) > 0, self._least.get(name, np.nan), np.nan)
