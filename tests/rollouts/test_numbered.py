"""Numbers that lie close together and texts of digits, as codes."""

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.rollouts.ids import encode
from olmorl_cli.rollouts.numbered import digits_to_numbers, numbered

ROWS = 70_000


def words_of(texts):
    """Texts of eight letters as words."""
    return np.frombuffer("".join(texts).encode(), dtype="<u8").copy()


def in_order_of_appearance(values):
    """Codes by a dictionary, one value at a time."""
    known = {}
    return [known.setdefault(value, len(known)) for value in values], list(known)


@pytest.mark.parametrize("low", [0, -5, 2**62, -(2**63)])
def test_close_numbers_get_codes_in_order_of_appearance(low):
    """Over more than one block of rows, with gaps between the numbers, at both ends of the range."""
    values = (np.random.default_rng(1).integers(0, 9000, ROWS) * 3).tolist()
    expected, known = in_order_of_appearance(values)
    codes, first = numbered(np.array(values) + low)
    assert codes.tolist() == expected
    assert [values[row] for row in first] == known
    assert (np.diff(first) > 0).all()


@pytest.mark.parametrize("values", [np.array([-(2**63), 2**63 - 1] * 4000), np.arange(10), np.zeros(0, dtype=np.int64)])
def test_numbers_far_apart_and_few_numbers_are_left_to_others(values):
    """A table over the whole range of int64 would not fit; for ten rows none pays."""
    assert numbered(values) is None


def test_digits_are_the_number_they_write():
    """All eight places, each digit in each."""
    numbers = [0, 99_999_999, 12_345_678, *(int(str(digit) * 8) for digit in range(10))]
    words = words_of(f"{number:08d}" for number in numbers)
    assert digits_to_numbers(words)
    assert words.tolist() == numbers


def test_letters_that_all_have_count_as_zero():
    """p-1-0042 and p-7-0099 are 100042 and 700099: p and the dashes are zeros."""
    words = words_of(["p-1-0042", "p-7-0099"])
    assert digits_to_numbers(words)
    assert words.tolist() == [100042, 700099]


@pytest.mark.parametrize("letter", ["/", ":", "p", "\0", "\x7f"])
def test_letters_that_differ_must_be_digits(letter):
    """Those before 0 and after 9 too; the words are left as they are."""
    for other in (f"0000000{letter}", f"{letter}0000001"):
        words = words_of(["00000001", other])
        assert not digits_to_numbers(words)
        assert words.tobytes() == f"00000001{other}".encode()


@pytest.mark.parametrize("form", ["p{:08d}", "{:03d}", "{:08d}", "{:020d}", "q-{:04d}-{:02d}", "{:08x}"])
def test_texts_of_digits_get_the_codes_of_any_text(form):
    """Shorter and longer than eight letters, and hexadecimal digits, which are none here."""
    numbers = np.random.default_rng(2).integers(0, 900, ROWS).tolist()
    texts = [form.format(number, number % 7) for number in numbers]
    expected, known = in_order_of_appearance(texts)
    chunks = [pa.array(texts[:1]), pa.array([], pa.string()), pa.array(["left out", *texts[1:]])[1:]]
    codes = encode("group", chunks, ["a", "b", "c"])
    assert codes.codes.tolist() == expected
    assert codes.values.to_pylist() == known
