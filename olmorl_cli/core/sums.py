"""Sums that do not depend on the order of their terms.

Floating-point addition is not associative, so a plain sum changes in its last bits with the order of rows, the number of
threads or the way a file is cut. Here every value is first cut, exactly, into pieces on a fixed grid of powers of two
(pre-rounding, after Demmel and Nguyen, "Fast Reproducible Floating-Point Summation", ARITH 2013); the pieces of one
place of the grid share an exponent range, so adding them in any order is exact. What is left to round is a handful of
piece sums, always added from the greatest place to the least.
"""

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PIECE_BITS = 22
"""Bits in one piece; 53 - 22 - 1 = 30 bits of head room: exact for 2**30 terms a sum."""
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

    Raises:
        ValueError: more than 2**30 terms.

    >>> exact_sums([1e16, 1.0, -1e16, 0.125])
    array([1.125])
    """
    return _exact_quotients(values, codes, size, 1.0)


def exact_means(values: npt.ArrayLike, counts: npt.ArrayLike, codes: IntArray | None = None, size: int = 1) -> FloatArray:
    """`exact_sums` divided by `counts` (size,): no overflow where the sum alone would; NaN (0/0) where a count is 0.

    >>> exact_means([1e308, 1e308, 1e308, -1e308], 4)
    array([5.e+307])
    """
    return _exact_quotients(values, codes, size, counts)


def exact_sum(values: npt.ArrayLike) -> float:
    """`exact_sums` of one group: a float.

    >>> exact_sum([0.1] * 10)
    1.0
    """
    return float(exact_sums(values)[0])


def _exact_quotients(values: npt.ArrayLike, codes: IntArray | None, size: int, divisor: npt.ArrayLike) -> FloatArray:
    terms, divisors = np.asarray(values, dtype=np.float64), np.asarray(divisor, dtype=np.float64)
    if terms.size > MOST_TERMS:
        raise ValueError(f"cannot add {terms.size} terms exactly: at most 2**30")
    finite = np.isfinite(terms)
    if not finite.all():
        return _quotients_beside_infinite(terms, finite, codes, size, divisor)
    sums_by_place: dict[int, FloatArray] = {}
    step = max(BLOCK, 4 * size)  # a block stays in the cache, and is never shorter than its row of sums
    for start in range(0, terms.size, step):
        _add_pieces(sums_by_place, terms[start : start + step], None if codes is None else codes[start : start + step], size)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        sums = _combine({p: s for p, s in sums_by_place.items() if p < _HUGE_PLACE}, size)
        quotients: FloatArray = sums / divisors
        if any(place >= _HUGE_PLACE for place in sums_by_place):
            scaled = _combine({p: s if p >= _HUGE_PLACE else s * _DOWN for p, s in sums_by_place.items()}, size)
            huge = np.any([s != 0.0 for p, s in sums_by_place.items() if p >= _HUGE_PLACE], axis=0)
            quotients = np.where(huge, scaled / divisors / _DOWN, quotients)
    return quotients


def _quotients_beside_infinite(
    terms: FloatArray, finite: npt.NDArray[np.bool_], codes: IntArray | None, size: int, divisor: npt.ArrayLike
) -> FloatArray:
    """`_exact_quotients` where some terms are infinite or NaN: these decide their own group only."""
    codes = np.zeros(terms.size, dtype=np.int64) if codes is None else codes
    quotients = _exact_quotients(np.where(finite, terms, 0.0), codes, size, divisor)
    with np.errstate(invalid="ignore"):
        special = np.bincount(codes[~finite], weights=terms[~finite], minlength=size)
    return np.where(special == 0.0, quotients, special)


def _add_pieces(sums_by_place: dict[int, FloatArray], rest: FloatArray, codes: IntArray | None, size: int) -> None:
    """Cut `rest` into pieces, place by place downwards, and add each place's pieces, exactly, to its sums."""
    while rest.size and (greatest := max(-float(rest.min()), float(rest.max()))) > 0.0:
        # The grid is fixed, multiples of PIECE_BITS, so that a value is cut the same way in any company: whatever does
        # not round to 0 at a place makes it a place, also without greater values beside it.
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
        sums: FloatArray
        if codes is None:
            sums = np.array([pieces.sum()])
        else:
            sums = np.bincount(codes, weights=pieces, minlength=size).astype(np.float64, copy=False)
        sums_by_place[place] = sums_by_place[place] + sums if place in sums_by_place else sums
        if (left := np.flatnonzero(rest)).size < rest.size // 2:
            rest, codes = rest[left], None if codes is None else codes[left]


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
