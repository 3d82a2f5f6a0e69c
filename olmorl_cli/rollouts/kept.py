"""Tokens of flat lists that are left when others are taken out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.rollouts.arrays import BoolArray, IntArray, Lists

Values = Mapping[str, tuple[npt.NDArray[Any], BoolArray | None]]
"""Role → log-probs (T,), and where they are null (None where none is)."""

_SHORT_RUN = 16
"""Mean length of a mask's runs, real and not, below which tokens are picked one by one."""


def flat_of(values: tuple[Any, BoolArray | None], lists: Lists, usable: BoolArray | None) -> tuple[Any, BoolArray | None]:
    """A column's flat values and their nulls, of usable answers only."""
    if usable is None:
        return values
    keep = np.repeat(usable, lists.lengths)
    array, null = values
    return None if array is None else array[keep], None if null is None else null[keep]


def spread_over(values: tuple[Any, BoolArray | None], present: BoolArray) -> tuple[Any, BoolArray | None]:
    """Values of some tokens at the place of all, NaN (and not null) elsewhere."""
    array, null = values
    full = np.full(present.size, np.nan, dtype=array.dtype)
    full[present] = array
    if null is None:
        return full, None
    full_null = np.zeros(present.size, dtype=np.bool_)
    full_null[present] = null
    return full, full_null


class Kept:
    """The tokens that a mask (T,) keeps. Masks come in long runs, which are copied whole."""

    def __init__(self, mask: BoolArray) -> None:
        self.mask = mask
        turns = np.flatnonzero(mask[1:] != mask[:-1]) + 1
        bounds = np.concatenate(([0], turns, [mask.size])) if mask.size else np.zeros(1, dtype=np.int64)
        first = 0 if mask.size and mask[0] else 1
        self.starts, self.stops = bounds[first:-1:2], bounds[first + 1 :: 2]

    @property
    def places(self) -> IntArray:
        """Where the kept tokens stood, int (kept,)."""
        return np.flatnonzero(self.mask)

    def offsets(self, offsets: IntArray) -> IntArray:
        """The answers' offsets among the kept tokens."""
        before = np.concatenate(([0], np.cumsum(self.stops - self.starts)))
        run = np.searchsorted(self.starts, offsets, side="right")
        over = np.maximum(np.append(0, self.stops)[run] - offsets, 0)
        kept: IntArray = before[run] - np.where(run > 0, over, 0)
        return kept

    def values(self, values: Values) -> Values:
        """The kept tokens' values."""
        return {role: (self._of(array), None if null is None else self._of(null)) for role, (array, null) in values.items()}

    def _of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.starts.size == 0 or self.starts.size * _SHORT_RUN > self.mask.size:
            return array[self.mask]
        runs = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return np.concatenate([array[start:stop] for start, stop in runs])


def places_of(whole: IntArray, offsets: IntArray, *cuts: Kept | None) -> IntArray:
    """Where tokens that are left after the cuts, answers' `offsets` theirs, stood in lists of the `whole` offsets."""
    at = np.arange(whole[-1])
    for cut in cuts:
        if cut is not None:
            at = at[cut.places]
    places: IntArray = at - np.repeat(whole[:-1], np.diff(offsets))
    return places
