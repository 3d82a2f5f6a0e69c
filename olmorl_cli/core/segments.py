"""Flat values cut into the parts of one answer each, and reductions over each part."""

from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.sums import FloatArray, IntArray

Floats = npt.NDArray[np.floating[Any]]
BoolArray = npt.NDArray[np.bool_]


class Segments:
    """Reductions over each answer's tokens. The sum of an answer depends on its own tokens alone."""

    def __init__(self, offsets: IntArray) -> None:
        self.lengths: IntArray = np.diff(offsets)
        self.filled = np.flatnonzero(self.lengths)
        self.starts = offsets[self.filled]

    def _scatter(self, values: npt.NDArray[Any], start: float = 0.0) -> npt.NDArray[Any]:
        if self.filled.size == self.lengths.size:
            return values
        full = np.full(self.lengths.size, start, dtype=values.dtype)
        full[self.filled] = values
        return full

    def sum(self, per_token: Floats) -> FloatArray:
        """Σ of each answer, float64 (n,)."""
        return self._scatter(np.add.reduceat(per_token, self.starts)) if self.starts.size else np.zeros(self.lengths.size)

    def count(self, flags: BoolArray) -> IntArray:
        """Number of true flags of each answer, int64 (n,)."""
        if not flags.any():
            return np.zeros(self.lengths.size, dtype=np.int64)
        return self._scatter(np.add.reduceat(flags.view(np.int8), self.starts, dtype=np.int32).astype(np.int64))

    def min(self, per_token: Floats) -> FloatArray:
        """Least value of each answer, inf where it has no token."""
        if not self.starts.size:
            return np.full(self.lengths.size, np.inf)
        return self._scatter(np.minimum.reduceat(per_token, self.starts), np.inf)

    def max(self, per_token: Floats) -> FloatArray:
        """Greatest value of each answer, -inf where it has no token."""
        if not self.starts.size:
            return np.full(self.lengths.size, -np.inf)
        return self._scatter(np.maximum.reduceat(per_token, self.starts), -np.inf)

    def spread(self, per_answer: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Each answer's value at each of its tokens, (T,)."""
        return np.repeat(per_answer, self.lengths)

    def mean(self, per_token: Floats) -> FloatArray:
        """Mean of each answer, 0 where it has no token."""
        return self.sum(per_token) / np.maximum(self.lengths, 1)
