"""Sums that do not depend on the order of their terms.

Floating-point addition is not associative, so a plain sum changes in its last bits with the order of rows, the number of
threads or the way a file is cut. Here every value is first cut, exactly, into pieces on a fixed grid of powers of two
(pre-rounding, after Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", ARITH 2013); the pieces of one
place of the grid share an exponent range, so adding them in any order is exact. What is left to round is a handful of
piece sums, always added from the greatest place to the least.
"""

import math
from collections.abc import Mapping
from typing import Self

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PIECE_BITS = 22
"""Bits in one piece; 53 - 22 - 1 = 30 bits of head room: exact for 2**30 terms, then pieces are carried upwards."""
MOST_TERMS = 2**30
BLOCK = 2**15
"""Terms cut at a time."""
_LEAST_PLACE = -1074
_HUGE_PLACE = 880
"""Pieces from this place up are added divided by 2**64, so that their sum cannot overflow."""
_DOWN = 2.0**-64


def exact_sums(values: npt.ArrayLike, codes: IntArray | None = None, size: int = 1) -> FloatArray:
    """Sum of `values` inside each of `size` groups, the same to the last bit for every order of the terms.

    Args:
        values: float (N,).
        codes: int (N,), the group of each value in 0..size-1; None puts all into group 0 (`size` is then 1).
        size: number of groups.

    Returns:
        float64 (size,); 0.0 for a group without terms. The error is below one unit in the last place of the exact sum
        plus 2**-100 of its greatest term; with infinite terms the result is theirs (inf, -inf or NaN).

    >>> exact_sums([1e16, 1.0, -1e16, 0.125])
    array([1.125])
    """
    return ExactSums(size).add(values, codes).over(1.0)


def exact_means(values: npt.ArrayLike, counts: npt.ArrayLike, codes: IntArray | None = None, size: int = 1) -> FloatArray:
    """`exact_sums` divided by `counts` (size,): no overflow where the sum alone would; NaN (0/0) where a count is 0.

    >>> exact_means([1e308, 1e308, 1e308, -1e308], 4)
    array([5.e+307])
    """
    return ExactSums(size).add(values, codes).over(counts)


def exact_sum(values: npt.ArrayLike) -> float:
    """`exact_sums` of one group: a float.

    >>> exact_sum([0.1] * 10)
    1.0
    """
    return float(exact_sums(values)[0])


class ExactSums:
    """Sums inside each of `size` groups, gathered part by part; the same to the last bit for every order of the parts.

    Attributes:
        size: number of groups.
    """

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self._by_place: dict[int, FloatArray] = {}
        self._infinite: FloatArray | None = None
        self._terms, self._carried = 0, False

    def add(self, values: npt.ArrayLike, codes: IntArray | None = None) -> Self:
        """Add `values` (N,) to the groups `codes` (N,); None puts all into group 0."""
        terms = np.asarray(values, dtype=np.float64)
        for start in range(0, terms.size, BLOCK):  # a block stays in the cache
            rows = slice(start, start + BLOCK)
            self._make_room(min(BLOCK, terms.size - start))
            self._add_block(terms[rows], None if codes is None else codes[rows])
        return self

    def merge(self, other: "ExactSums", at: IntArray | None = None) -> None:
        """Add the groups of `other` to the groups `at` (other.size,) of these, all of them different; None: one to one."""
        self._make_room(other._terms)
        self._carried = self._carried or other._carried
        where = slice(None) if at is None else at
        for place, sums in other._by_place.items():
            self._at(place)[where] += sums
        if other._infinite is not None:
            with np.errstate(invalid="ignore"):
                self._special()[where] += other._infinite

    def columns(self) -> dict[int | None, FloatArray]:
        """What the sums are made of, float64 (size,) each, by place; under None what infinite terms make of them."""
        columns: dict[int | None, FloatArray] = dict(self._by_place.items())
        return columns if self._infinite is None else columns | {None: self._infinite}

    @classmethod
    def of_columns(cls, size: int, columns: Mapping[int | None, FloatArray], terms: int) -> Self:
        """The sums that were made of these columns, with at most so many terms."""
        sums = cls(size)
        sums._by_place = {place: column for place, column in columns.items() if place is not None}
        sums._infinite, sums._terms = columns.get(None), terms
        return sums

    def over(self, divisors: npt.ArrayLike) -> FloatArray:
        """The sums by `divisors` (size,) or one number: no overflow where the sum alone would; NaN for 0/0."""
        divisors = np.asarray(divisors, dtype=np.float64)
        if self._carried:
            self._carry()  # once more: one sum has one form, whenever it was carried before
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            sums = _combine({p: s for p, s in self._by_place.items() if p < _HUGE_PLACE}, self.size)
            quotients: FloatArray = sums / divisors
            if any(place >= _HUGE_PLACE for place in self._by_place):
                scaled = _combine({p: s if p >= _HUGE_PLACE else s * _DOWN for p, s in self._by_place.items()}, self.size)
                huge = np.any([s != 0.0 for p, s in self._by_place.items() if p >= _HUGE_PLACE], axis=0)
                quotients = np.where(huge, scaled / divisors / _DOWN, quotients)
        if self._infinite is None:
            return quotients
        return np.where(self._infinite == 0.0, quotients, self._infinite)

    def _make_room(self, terms: int) -> None:
        """Be ready for so many more terms, MOST_TERMS at most."""
        if self._terms + terms > MOST_TERMS:
            self._carry()
        self._terms += terms

    def _carry(self) -> None:
        """Leave at each place at most half of the next place's unit (less above 0), and add the rest to the next; exact."""
        for place in sorted(self._by_place):
            sums, above = self._by_place[place], (place // PIECE_BITS + 1) * PIECE_BITS
            scale = above - (64 if place >= _HUGE_PLACE else 0)
            whole = np.ldexp(np.floor(np.ldexp(sums, -scale) + 0.5), scale)
            self._by_place[place] = sums - whole
            self._at(above)[:] += whole * _DOWN if place < _HUGE_PLACE <= above else whole
        self._terms, self._carried = 1 << 10, True  # the greatest place may hold so much, in terms of its own

    def _at(self, place: int) -> FloatArray:
        """The sums of one place."""
        if place not in self._by_place:
            self._by_place[place] = np.zeros(self.size)
        return self._by_place[place]

    def _special(self) -> FloatArray:
        """Sums of the infinite terms and NaN, which decide their group whatever its other terms are."""
        if self._infinite is None:
            self._infinite = np.zeros(self.size)
        return self._infinite

    def _add_block(self, rest: FloatArray, codes: IntArray | None) -> None:
        """Cut `rest` into pieces, place by place downwards, and add each place's pieces, exactly, to its sums."""
        while rest.size and (greatest := max(-float(rest.min()), float(rest.max()))) != 0.0:
            if not greatest < np.inf:  # infinite, or NaN
                finite = np.isfinite(rest)
                self._add_infinite(rest[~finite], None if codes is None else codes[~finite])
                rest, codes = rest[finite], None if codes is None else codes[finite]
                continue
            # The grid is fixed, multiples of PIECE_BITS, so that a value is cut the same way in any company: whatever
            # does not round to 0 at a place makes it a place, also without greater values beside it.
            mantissa, exponent = math.frexp(greatest)
            place = max((exponent - (mantissa == 0.5)) // PIECE_BITS * PIECE_BITS, _LEAST_PLACE)
            if place < _HUGE_PLACE:
                anchor = 1.5 * 2.0 ** (place + 52)
                pieces = (rest + anchor) - anchor  # rounded to a multiple of 2**place
                rest = rest - pieces  # exact: both lie on the grid of the value's last bit
            else:
                anchor = 1.5 * 2.0 ** (place + 52 - 64)
                pieces = (rest * _DOWN + anchor) - anchor
                rest = np.where(pieces == 0.0, rest, (rest * _DOWN - pieces) / _DOWN)
            if codes is None:
                self._at(place)[0] += pieces.sum()
            else:
                _add_at(self._at(place), codes, pieces)
            if (left := np.flatnonzero(rest)).size < rest.size // 2:
                rest, codes = rest[left], None if codes is None else codes[left]

    def _add_infinite(self, terms: FloatArray, codes: IntArray | None) -> None:
        codes = np.zeros(terms.size, dtype=np.int64) if codes is None else codes
        with np.errstate(invalid="ignore"):
            self._special()[:] += np.bincount(codes, weights=terms, minlength=self.size)


def _add_at(sums: FloatArray, codes: IntArray, pieces: FloatArray) -> None:
    """Add pieces (n,), of which there is at least one, to the sums of their groups `codes` (n,)."""
    first = int(codes.min())
    if (span := int(codes.max()) + 1 - first) <= codes.size:  # groups lie one after another
        sums[first : first + span] += np.bincount(codes - first, weights=pieces, minlength=span)
    else:
        np.add.at(sums, codes, pieces)


def _combine(sums_by_place: dict[int, FloatArray], size: int) -> FloatArray:
    """Add the places' exact sums, greatest place first, in doubled precision (Knuth's TwoSum)."""
    high, low = np.zeros(size), np.zeros(size)
    for place in sorted(sums_by_place, reverse=True):
        high, error = _two_sum(high, sums_by_place[place])
        high, low = _two_sum(high, low + error)
    return high


def _two_sum(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """fl(a + b) and its rounding error (Knuth, TAOCP vol. 2, 4.2.2, theorem B)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)
