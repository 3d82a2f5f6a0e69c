"""Numbers that lie close together, and texts of digits, taken apart by a table with a place for each: no hashing."""

import numpy as np
import numpy.typing as npt

from olmorl_cli.rollouts.arrays import IntArray

_ROWS = 1 << 16
"""Rows worked on at a time."""
_PLACES = 2
"""Places a row that the table may have at most."""
_LEAST_SIZE = 1 << 12
"""Rows from which a table pays."""

Words = npt.NDArray[np.uint64]


def numbered(values: IntArray) -> tuple[IntArray, IntArray] | None:
    """Codes of whole numbers, counted from 0 in order of first appearance.

    Args:
        values: int64 (N,).

    Returns:
        The codes, int (N,), and the row where each code appears first, int (U,) ascending; None where there are few
        values, or they lie too far apart.
    """
    if values.size < _LEAST_SIZE:
        return None
    low = int(values.min())
    if (span := int(values.max()) + 1 - low) > values.size * _PLACES:
        return None
    table: npt.NDArray[np.signedinteger] = np.full(span, -1, dtype=np.int32 if values.size < 2**31 else np.int64)
    starts = range(0, values.size, _ROWS)
    for start in reversed(starts):  # backwards: the first appearance is written last
        places = values[start : start + _ROWS] - low
        table[places[::-1]] = np.arange(start + places.size - 1, start - 1, -1)
    is_first = np.zeros(values.size, dtype=np.bool_)
    is_first[table[table >= 0]] = True
    first = np.flatnonzero(is_first)
    table[values[first] - low] = np.arange(first.size)
    codes = np.empty(values.size, dtype=np.int64)
    for start in starts:
        codes[start : start + _ROWS] = table[values[start : start + _ROWS] - low]
    return codes, first


def digits_to_numbers(words: Words) -> bool:
    """Put in the place of texts of eight bytes the numbers that they write, if they are digits; whether they were.

    Args:
        words: uint64 (N,), of which N is at least 1, the first letter in the lowest byte. Letters that all of them have
            in one place count as 0. Where another letter is no digit, they are left as they are.
    """
    varying = np.bitwise_or.reduce([np.bitwise_or.reduce(block ^ words[0]) for block in _blocks(words)])
    digits = np.where(varying.reshape(1).view(np.uint8) != 0, 0xFF, 0).astype(np.uint8).view(np.uint64)[0]
    same = _each(0x30) & ~digits
    for block in _blocks(words):
        letters = (block & digits) | same
        # A digit is 0x30 to 0x39: its high half is 3, also when 6 is added.
        if ((letters & (letters + _each(0x06)) & _each(0xF0)) != _each(0x30)).any():
            return False
    for block in _blocks(words):
        block[:] = _value(((block & digits) | same) - _each(0x30))
    return True


def _value(digits: Words) -> Words:
    """Eight digits, one a byte, as a number: pairs of bytes, then of pairs, are put together in all places at once."""
    pairs = (digits * np.uint64(10) + (digits >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    value: Words = (fours * np.uint64(10_000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    return value


def _blocks(values: Words) -> list[Words]:
    return [values[start : start + _ROWS] for start in range(0, values.size, _ROWS)]


def _each(byte: int) -> np.uint64:
    """A word of eight times this byte."""
    return np.uint64(byte * 0x0101010101010101)
