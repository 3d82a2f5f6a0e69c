"""Ids of any type as whole numbers, told apart by value, in order of first appearance."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, lists_of, numbers_of, storage_of
from olmorl_cli.rollouts.files import DataFile
from olmorl_cli.rollouts.numbered import digits_to_numbers, numbered
from olmorl_cli.rollouts.roles import is_list
from olmorl_cli.rollouts.texts import joined, plain_texts, valid_texts

_LONGEST = 64
"""Bytes of a text up to which it is compared as whole numbers."""
_ROWS = 1 << 16
"""Rows worked on at a time."""
_FEW_ROWS = 1 << 10
"""Rows that show whether equal values stand together."""


@dataclass(frozen=True)
class Codes:
    """Ids as numbers.

    Attributes:
        codes: int (N,); equal ids have equal codes, numbered from 0 in order of first appearance.
        values: the id of each code, (U,).
        null: bool (N,), where the id is null or NaN (its code then means nothing); None where none is.
        found: what `first` is, where it was found on the way.
    """

    codes: IntArray
    values: pa.Array
    null: BoolArray | None = None
    found: IntArray | None = None

    @cached_property
    def first(self) -> IntArray:
        """The row where each code appears first, int (U,) ascending."""
        return first_rows(self.codes, len(self.values)) if self.found is None else self.found

    def value(self, row: int) -> str:
        """The id of a row, as results write it."""
        text: str | None = plain_texts(self.values.slice(int(self.codes[row]), 1))[0].as_py()
        return "null" if text is None else text


def first_rows(codes: IntArray, number: int) -> IntArray:
    """Where each of `number` codes appears first."""
    first = np.zeros(number, dtype=np.int64)
    for start in range((codes.size - 1) // _ROWS * _ROWS, -1, -_ROWS):  # backwards: the first appearance is written last
        rows = codes[start : start + _ROWS]
        first[rows[::-1]] = np.arange(start + rows.size - 1, start - 1, -1)
    return first


def encode(role: str, chunks: Sequence[pa.Array], files: Sequence[str]) -> Codes:
    """Codes of an id column given in chunks, `files` naming the file of each.

    Raises:
        InputError: the chunks' types cannot be compared (text in one file, integers in another).
    """
    arrays = [_comparable(storage_of(chunk)) for chunk in chunks]
    kinds = [(a.type, file) for a, file in zip(arrays, files, strict=True) if not types.is_null(a.type)]
    target = kinds[0][0] if kinds else pa.null()
    for kind, file in kinds:
        target = _common(role, target, kind, kinds[0][1], file)
    cast = [_cast(role, array, target, file) for array, file in zip(arrays, files, strict=True)]
    return _encoded(pa.chunked_array(cast, type=target))


@dataclass(frozen=True)
class Runs:
    """An id column with each run of equal values once: answers of a group mostly stand together.

    Attributes:
        heads: the value of each run, (R,).
        ends: int (R,), the row after each run; None where each is one row.
    """

    heads: pa.Array
    ends: IntArray | None

    @property
    def lengths(self) -> IntArray:
        """Rows of each run, int (R,)."""
        return np.ones(len(self.heads), dtype=np.int64) if self.ends is None else np.diff(self.ends, prepend=0)


def runs_of(ids: pa.Array) -> Runs:
    """The runs of an id column, whose rows are runs of one where its type cannot be compared."""
    ids = storage_of(ids)
    try:
        for some in (ids.slice(0, _FEW_ROWS), ids):
            encoded = pc.run_end_encode(some, run_end_type=pa.int64())
            if len(encoded.values) * 2 > len(some):
                return Runs(ids, None)
    except pa.ArrowNotImplementedError:
        return Runs(ids, None)
    return Runs(encoded.values, encoded.run_ends.to_numpy())


def encode_runs(role: str, chunks: Sequence[Runs], files: Sequence[str]) -> Codes:
    """Codes of an id column given in chunks, as `encode`.

    Raises:
        InputError: as `encode`.
    """
    codes = encode(role, [chunk.heads for chunk in chunks], files)
    if all(chunk.ends is None for chunk in chunks):
        return codes
    lengths = np.concatenate([chunk.lengths for chunk in chunks])
    null = None if codes.null is None else np.repeat(codes.null, lengths)
    starts = np.cumsum(lengths) - lengths
    return Codes(np.repeat(codes.codes, lengths), codes.values, null, starts[codes.first])


def refuse_rounded(column: str, chunks: Sequence[pa.Array], files: Sequence[DataFile]) -> None:
    """Refuse ids that were rounded on their way: floats so large that not every whole number is one.

    Pandas makes floats of a column of whole numbers with one missing, JSON's reader of those that do not fit int64.

    Raises:
        InputError: there are some.
    """
    for chunk, file in zip(chunks, files, strict=True):
        kind = chunk.type.value_type if types.is_dictionary(chunk.type) else chunk.type
        if types.is_floating(kind):
            values, _ = numbers_of(chunk)
            digits = np.finfo(values.dtype).nmant + 1
            if (np.abs(values) >= 2.0**digits).any():
                raise InputError(
                    f"{file.name}: column {column} has ids of 2**{digits} or more that are stored as fractions ({kind}), so"
                    " neighbours look the same. Write whole numbers or text"
                )


def refuse_invalid_texts(column: str, ids: Codes, chunks: Sequence[pa.Array], files: Sequence[DataFile]) -> None:
    """Refuse ids of text that is none, naming the file.

    Raises:
        InputError: there are some.
    """
    try:
        ids.values.validate(full=True)
    except pa.ArrowInvalid:
        for chunk, file in zip(chunks, files, strict=True):
            valid_texts(chunk, f"column {column}", file.name)
        raise


def combine(first: Codes, second: Codes) -> Codes:
    """Codes of the pairs of two id columns, numbered in order of first appearance; their values are of no use."""
    if not first.codes.size:
        return Codes(first.codes, first.values.slice(0, 0))
    pairs = first.codes * max(len(second.values), 1)
    pairs += second.codes
    return _encoded_numbers(pairs)


def refine(first: Codes, second: Codes) -> Codes:
    """`combine`, which has nothing to do where ids that are equal in `first` are equal in `second` too."""
    return Codes(first.codes, first.values, found=first.first) if _tells(first, second) else combine(first, second)


def _tells(first: Codes, second: Codes) -> bool:
    """Whether the codes of `first` are numbered by their first appearance, none left out, and each has one of `second`."""
    if not first.first.size or (np.diff(first.first, prepend=-1) <= 0).any():
        return False
    told = second.codes[first.first]
    blocks = (slice(start, start + _ROWS) for start in range(0, first.codes.size, _ROWS))
    return all((told[first.codes[rows]] == second.codes[rows]).all() for rows in blocks)


def _comparable(array: pa.Array) -> pa.Array:
    """The array with one type for each sort of id, dictionaries decoded or reduced to distinct words."""
    kind = array.type
    if types.is_dictionary(kind):
        return _comparable(array.dictionary_decode()) if not is_plain_text(kind.value_type) else _with_large_words(array)
    if types.is_string(kind) or types.is_string_view(kind):
        return array.cast(pa.large_string())
    if types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if types.is_integer(kind) and not types.is_uint64(kind):
        return array.cast(pa.int64())
    if types.is_uint64(kind):
        fits = len(array) == array.null_count or pc.max(array).as_py() < 2**63
        return array.cast(pa.int64()) if fits else array
    if types.is_floating(kind):
        array = array.cast(pa.float64())
        return pc.if_else(pc.is_nan(array), pa.scalar(None, pa.float64()), pc.add(array, 0.0))  # one zero
    return array


def is_plain_text(kind: pa.DataType) -> bool:
    """Whether values of the type are texts."""
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _with_large_words(array: pa.DictionaryArray) -> pa.Array:
    return array.dictionary.cast(pa.large_string()).take(array.indices)


def _common(role: str, a: pa.DataType, b: pa.DataType, first: str, file: str) -> pa.DataType:
    """The type in which ids of types a and b are compared."""
    if a.equals(b):
        return a
    numeric = (types.is_integer, types.is_floating)
    if any(is_kind(a) for is_kind in numeric) and any(is_kind(b) for is_kind in numeric):
        return pa.uint64() if types.is_uint64(a) or types.is_uint64(b) else pa.int64()
    raise InputError(
        f"{file}: the {role} is {b} here and {a} in {first}: they cannot be compared. Write one type into all files"
    )


def _cast(role: str, array: pa.Array, target: pa.DataType, file: str) -> pa.Array:
    try:
        return array if array.type.equals(target) else array.cast(target)
    except pa.ArrowException as error:
        raise InputError(
            f"{file}: the {role} does not fit {target}, the type of other files: {' '.join(str(error).split())}."
            " Write one type into all files"
        ) from error


def _encoded(ids: pa.ChunkedArray) -> Codes:
    if ids.null_count == len(ids):
        null = np.ones(len(ids), dtype=np.bool_) if len(ids) else None
        return Codes(np.zeros(len(ids), dtype=np.int64), pa.nulls(min(len(ids), 1), ids.type), null)
    if types.is_nested(ids.type):
        return _encoded_nested(ids)
    null = ids.is_null().to_numpy() if ids.null_count else None
    if null is None and types.is_integer(ids.type) and len(ids):
        values = ids.to_numpy()
        if (values[1:] >= values[:-1]).all():  # sorted: equal ids lie together
            new = np.concatenate(([True], values[1:] != values[:-1]))
            starts, codes = np.flatnonzero(new), np.cumsum(new)
            codes -= 1
            return Codes(codes, pa.array(values[starts]), found=starts)
        if types.is_int64(ids.type) and (close := numbered(values)) is not None:
            return Codes(close[0], pa.array(values[close[1]]), found=close[1])
    if types.is_large_string(ids.type) and null is None and (length := _one_length(ids)) is not None:
        return _encoded_words(ids, length)
    encoded = ids.dictionary_encode()
    codes, first = np.empty(len(ids), dtype=np.int64), 0
    for chunk in encoded.chunks:
        indices = chunk.indices.fill_null(0) if chunk.null_count else chunk.indices
        codes[first : first + len(chunk)] = indices.to_numpy()
        first += len(chunk)
    words = encoded.chunk(encoded.num_chunks - 1).dictionary if encoded.num_chunks else pa.array([], ids.type)
    return Codes(codes, words, null)


def _encoded_numbers(values: IntArray) -> Codes:
    return _encoded(pa.chunked_array([pa.array(values)]))


def _one_length(texts: pa.ChunkedArray) -> int | None:
    """Bytes of each text, where all are of one length that is not too great."""
    lengths = {length for chunk in texts.chunks for length in pc.min_max(pc.binary_length(chunk)).as_py().values()} - {None}
    length: int = lengths.pop() if len(lengths) == 1 else 0
    return length if 0 < length <= _LONGEST else None


def _word(texts: pa.ChunkedArray, length: int, end: int) -> IntArray:
    """Up to eight bytes before `end` of texts of one length as whole numbers, int64 (N,)."""
    word = np.empty(len(texts), dtype=np.int64)
    first = 0
    for chunk in (chunk for chunk in texts.chunks if len(chunk)):
        _, offsets, data = chunk.buffers()
        start = int(np.frombuffer(offsets, dtype=np.int64)[chunk.offset])
        letters = np.frombuffer(data, dtype=np.uint8, count=len(chunk) * length, offset=start)
        if length < 8:
            letters = np.concatenate((letters, np.zeros(8, dtype=np.uint8)))
        eight = np.ndarray((len(chunk),), "<u8", buffer=letters, offset=max(end - 8, 0), strides=(length,))
        word[first : first + len(chunk)] = (eight & np.uint64(2 ** (8 * min(end, 8)) - 1)).view(np.int64)
        first += len(chunk)
    return word


def _encoded_words(texts: pa.ChunkedArray, length: int) -> Codes:
    """Codes of texts of one length, eight bytes at a time, the last ones first.

    Comparing numbers takes half the time of comparing texts, and digits less still.
    """
    word = _word(texts, length, length)
    digits_to_numbers(word.view(np.uint64))
    codes = _encoded_numbers(word)
    for end in range(length - 8, 0, -8):
        del word  # its memory is the next one's
        word = _word(texts, length, end)
        if (word != word[0]).any() and (word[codes.first][codes.codes] != word).any():  # these eight bytes tell more apart
            codes = combine(codes, _encoded_numbers(word))
    return Codes(codes.codes, _taken(texts, codes.first), found=codes.first)


def _encoded_nested(ids: pa.ChunkedArray) -> Codes:
    """Codes of lists and structs (prompt tokens, chats), told apart by a text that no two different values share."""
    null = ids.is_null().to_numpy() if ids.null_count else None
    keys = _encoded(pa.chunked_array(map(_key, ids.chunks), pa.large_string()))
    return Codes(keys.codes, _taken(ids, keys.first), null, keys.first)


def _taken(ids: pa.ChunkedArray, rows: IntArray) -> pa.Array:
    """The ids at `rows`, ascending. Chunks are not joined first: offsets of 32 bits may not reach over all of them."""
    ends = np.cumsum([len(chunk) for chunk in ids.chunks], dtype=np.int64)
    cuts = np.concatenate(([0], np.searchsorted(rows, ends)))
    parts = [
        chunk.take(pa.array(rows[cuts[number] : cuts[number + 1]] - (ends[number] - len(chunk))))
        for number, chunk in enumerate(ids.chunks)
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], ids.type)


def _key(values: pa.Array) -> pa.Array:
    """A text for each value, large_string (n,): its length, then its content; a list's is that of its items in a row."""
    values = storage_of(values)
    kind = values.type
    if types.is_struct(kind):
        fields = [_key(pc.struct_field(values, [index])) for index in range(kind.num_fields)]
        content = joined(*fields) if fields else pa.array([""] * len(values), pa.large_string())
    elif is_list(kind):
        lists = lists_of(values)
        items = _key(lists.values)
        _, ends, data = items.buffers()
        if len(items):
            ends = np.frombuffer(ends, dtype=np.int64)[items.offset : items.offset + len(items) + 1]
        else:
            ends = np.zeros(1, dtype=np.int64)
        offsets = pa.py_buffer(ends[np.concatenate(([0], np.cumsum(lists.lengths)))].astype(np.int64))
        content = pa.Array.from_buffers(pa.large_string(), len(values), [None, offsets, data or pa.py_buffer(b"")])
    else:
        content = plain_texts(values)
    lengths = pc.binary_length(content).cast(pa.large_string())
    return pc.if_else(values.is_valid(), joined(lengths, ":", content), "-").fill_null("-")
