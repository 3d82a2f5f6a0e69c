"""Ids as hashes, which tell quickly that no two of them are equal."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from olmorl_cli.rollouts.arrays import BoolArray, IntArray, lists_of, numbers_of, storage_of, taken
from olmorl_cli.rollouts.ids import encode_runs, is_plain_text, runs_of
from olmorl_cli.rollouts.roles import is_list
from olmorl_cli.rollouts.texts import plain_texts

_NULL = np.uint64(0x9E3779B97F4A7C15)
_ROWS = 1 << 16
"""Rows worked on at a time."""


@dataclass(frozen=True)
class Hashes:
    """A number for each id: equal ids have equal numbers, others most likely not.

    Attributes:
        values: uint64 (n,).
        of_texts: the ids are texts, not whole numbers.
    """

    values: npt.NDArray[np.uint64]
    of_texts: bool


def hashes_of(ids: pa.Array) -> Hashes | None:
    """The hashes of texts or whole numbers; None where some are null, and for other types."""
    ids = storage_of(ids)
    if types.is_dictionary(ids.type) and not ids.null_count:
        if len(ids.dictionary) > len(ids):
            return hashes_of(taken(ids.dictionary, ids.indices.to_numpy()))
        words = hashes_of(ids.dictionary)
        return None if words is None else Hashes(words.values[ids.indices.to_numpy()], words.of_texts)
    if ids.null_count or not (types.is_integer(ids.type) or is_plain_text(ids.type)):
        return None
    if types.is_integer(ids.type):
        return Hashes(_mixed(ids.to_numpy().astype(np.int64, copy=False).view(np.uint64)), False)
    _, ends, data = ids.cast(pa.large_string()).buffers()
    if not len(ids) or data is None:
        return Hashes(_mixed(np.zeros(len(ids), dtype=np.uint64)), True)
    bounds = np.frombuffer(ends, dtype=np.int64)[: ids.offset + len(ids) + 1][-len(ids) - 1 :]
    letters = np.frombuffer(data, dtype=np.uint8)[bounds[0] : bounds[-1]]
    return Hashes(_text_hashes(letters, bounds[:-1] - bounds[0], np.diff(bounds)), True)


def hashes_of_answers(answers: pa.Array) -> tuple[npt.NDArray[np.uint64], BoolArray]:
    """A number for each answer's text, chat or list of tokens, and whether it has one.

    Returns:
        uint64 (n,), equal for equal answers, others most likely not; bool (n,), false for null.
    """
    answers = storage_of(answers)
    there = answers.is_valid().to_numpy(zero_copy_only=False)
    if is_list(answers.type) and types.is_integer(storage_of(answers.slice(0, 0).flatten()).type):
        lists = lists_of(answers)
        tokens, _ = numbers_of(lists.values)
        starts = (np.cumsum(lists.lengths) - lists.lengths) * 8
        return _text_hashes(tokens.astype(np.float64).view(np.uint8), starts, lists.lengths * 8), there
    hashes = hashes_of(answers)
    if hashes is None:
        hashes = hashes_of(plain_texts(answers).fill_null(""))
    assert hashes is not None, "texts without nulls have hashes"
    return hashes.values, there


def hashes_of_ids(ids: pa.Array) -> npt.NDArray[np.uint64]:
    """A number for each id of any type, equal ones for equal ids of a column; uint64 (n,)."""
    runs = runs_of(ids)
    known = hashes_of(runs.heads)
    if known is not None:
        return np.repeat(known.values, runs.lengths)
    codes = encode_runs("id", [runs], [""])
    words, _ = hashes_of_answers(codes.values)
    if codes.null is None:
        return words[codes.codes]
    hashes = np.full(codes.codes.size, _NULL, dtype=np.uint64)
    hashes[~codes.null] = words[codes.codes[~codes.null]]
    return hashes


def chained(first: npt.NDArray[np.uint64], second: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Hashes of pairs, by those of both; uint64 (n,)."""
    return _mixed(_mixed(first) ^ second)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers spread over all bits (the finalizer of MurmurHash3)."""
    mixed = values ^ (values >> np.uint64(33))
    for factor in (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)):
        mixed *= factor
        mixed ^= mixed >> np.uint64(33)
    return mixed


def _text_hashes(letters: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray) -> npt.NDArray[np.uint64]:
    """Hashes of the texts that lie at `starts` (n,) among `letters`, eight letters at a time."""
    padded = np.concatenate((letters, np.zeros(8, dtype=np.uint8)))
    words = np.ndarray((letters.size + 1,), dtype="<u8", buffer=padded, strides=(1,))  # one starts at every letter
    hashes = _mixed(lengths.astype(np.uint64))
    rows: IntArray | slice = slice(None)
    for first in range(0, int(lengths.max(initial=0)), 8):
        if (lengths <= first).any():
            rows = np.flatnonzero(lengths > first)
        left = np.minimum(lengths[rows] - first, 8).astype(np.uint64)
        word = words[starts[rows] + first] & (np.uint64(2**64 - 1) >> (np.uint64(64) - np.uint64(8) * left))
        hashes[rows] = _mixed(hashes[rows] ^ word)
    return hashes


def all_differ(hashes: Sequence[Hashes | None], codes: IntArray) -> bool:
    """Whether, by their hashes, all ids of rows with one code surely differ; hashes in chunks, `codes` int (N,)."""
    known = [each for each in hashes if each is not None]
    if len(known) < len(hashes) or len({each.of_texts for each in known}) > 1:
        return False
    whole = np.concatenate([*(each.values for each in known), np.zeros(0, dtype=np.uint64)])
    for start in range(0, codes.size, _ROWS):
        rows = slice(start, start + _ROWS)
        whole[rows] ^= _mixed(codes[rows].view(np.uint64))
    whole.sort()
    return not (whole[1:] == whole[:-1]).any()
