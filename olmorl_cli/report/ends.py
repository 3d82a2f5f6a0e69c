"""How answers ended: the column that tells, what it says of each, and which were cut off."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.core.sums import IntArray
from olmorl_cli.rollouts.arrays import BoolArray, storage_of
from olmorl_cli.rollouts.beside import ENDS, Beside, cut_flags, is_end
from olmorl_cli.rollouts.rollouts import Rollouts

MOST_WORDS, BYTES_OF_WORD = 40, 40
OTHER = "…"
"""Stands for the rarer of many words."""


@dataclass(frozen=True)
class Ends:
    """How answers ended.

    Attributes:
        column: what tells.
        cut: bool (N,), which answers were cut off.
        words: what the column says, the most frequent first, and `OTHER`.
        codes: int (N,), the number of each answer's word; -1 for null.
    """

    column: str
    cut: BoolArray
    words: list[str]
    codes: IntArray


def read_ends(rollouts: Rollouts) -> Ends | None:
    """How the answers ended; None without a column that tells.

    Raises:
        InputError: a file cannot be read.
    """
    beside = Beside(rollouts)
    column = beside.first(ENDS, is_end)
    if column is None:
        return None
    read = beside.read({column: lambda array: (cut_flags(array), _words(array))})[column]
    cut = np.concatenate([*(flags for flags, _ in read), np.zeros(0, dtype=np.bool_)])
    encoded = pa.concat_arrays([*(words for _, words in read), pa.array([], pa.large_binary())]).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    often = np.argsort(-np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary)), kind="stable")
    words = [word.decode(errors="replace") for word in encoded.dictionary.take(pa.array(often[:MOST_WORDS])).to_pylist()]
    number = np.full(often.size + 1, -1)  # the last is that of null
    number[often] = np.minimum(np.arange(often.size), MOST_WORDS)
    return Ends(column, cut, [*words, OTHER], number[codes])


def _words(array: pa.Array) -> pa.Array:
    """The beginning of each word, or flag, large_binary: it need not be valid UTF-8."""
    array = storage_of(array)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return pc.binary_slice(array.cast(pa.large_string()).cast(pa.large_binary()), 0, BYTES_OF_WORD)
