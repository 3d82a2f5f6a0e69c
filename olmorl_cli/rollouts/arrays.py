"""Arrow arrays of every layout and type, taken to plain NumPy arrays."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.rollouts.roles import Column

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FloatValues = npt.NDArray[np.floating[Any]]


def column_of(batch: pa.RecordBatch, column: Column) -> pa.Array:
    """The column at the end of its path; a null struct on the way makes its fields null."""
    array = storage_of(batch.column(batch.schema.get_field_index(column.top)))
    for part in column.path:
        array = _field(array, part)
    return array


def _field(array: pa.Array, part: str) -> pa.Array:
    """A struct's field; of lists of structs, the lists of their fields."""
    if types.is_struct(array.type):
        return storage_of(pc.struct_field(array, part))
    lists = lists_of(array)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lists.lengths))), pa.int64())
    null = None if lists.null is None else pa.array(lists.null)
    return pa.LargeListArray.from_arrays(offsets, _field(lists.values, part), mask=null)


def rows_by_file(wrong: BoolArray, first_rows: IntArray) -> Iterator[tuple[int, IntArray]]:
    """The rows where `wrong` (N,) is true, by the file that they lie in; files without one are left out.

    Args:
        wrong: of all files' rows, one file after another.
        first_rows: int (files + 1,), where each file begins; the last is N.

    Yields:
        The file's number, and its rows in ascending order, counted from the first file's first.
    """
    rows = np.flatnonzero(wrong)
    edges = np.searchsorted(rows, first_rows)
    for number in np.flatnonzero(np.diff(edges)).tolist():
        yield number, rows[edges[number] : edges[number + 1]]


def storage_of(array: pa.Array) -> pa.Array:
    """The array without extension types around it; no code of theirs is run."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def taken(array: pa.Array, rows: IntArray) -> pa.Array:
    """The values in some rows; of views, whose values pyarrow does not take, as plain texts or bytes."""
    if types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    elif types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    return array.take(pa.array(rows))


def numbers_of(array: pa.Array) -> tuple[npt.NDArray[Any], BoolArray | None]:
    """The values of a column of numbers, and where they are null.

    Returns:
        Floats keep their width, all else becomes float64; nulls are NaN. The second is None where there is no null.
    """
    array = storage_of(array)
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if types.is_null(array.type):
        return np.full(len(array), np.nan), null
    if types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    if types.is_decimal(array.type):
        array = array.cast(pa.float64())
    values = array.to_numpy(zero_copy_only=False)  # floats and integers with nulls come as floats with NaN
    return (values if values.dtype.kind == "f" else values.astype(np.float64)), null


MASKED_ID = -100
"""What stands for a masked token in a list of token ids (labels)."""


@dataclass(frozen=True)
class Lists:
    """A column of lists, flat.

    Attributes:
        lengths: int (n,), 0 for a null list.
        values: the lists' values one after another, without what a null list may hide.
        null: bool (n,), which lists are null; None where none is.
    """

    lengths: IntArray
    values: pa.Array
    null: BoolArray | None

    @property
    def is_null(self) -> BoolArray:
        """Which lists are null, bool (n,)."""
        return np.zeros(self.lengths.size, dtype=np.bool_) if self.null is None else self.null


def lists_of(array: pa.Array) -> Lists:
    """A column of lists of any Arrow layout; a slice gives its own rows only."""
    array = storage_of(array)
    if types.is_dictionary(array.type):
        array = storage_of(array.dictionary_decode())
    null = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if types.is_null(array.type):
        return Lists(np.zeros(len(array), dtype=np.int64), pa.array([], pa.float64()), null)
    if null is None and (types.is_list(array.type) or types.is_large_list(array.type)):
        offsets = array.offsets.to_numpy().astype(np.int64)
        values = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        return Lists(np.diff(offsets), storage_of(values), None)
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return Lists(lengths, storage_of(array.flatten()), null)


def marks_of(values: pa.Array, labels: bool = False) -> tuple[BoolArray | None, BoolArray | None]:
    """What a mask marks.

    Args:
        values: of the mask, bools or numbers, (T,).
        labels: they are label ids: -100 is masked, every other one is real.

    Returns:
        The real tokens, bool (T,), None where every one is; and where the values say nothing (null, NaN), or None.
    """
    values = storage_of(values)
    if types.is_boolean(values.type) and not values.null_count:
        return (None if values.true_count == len(values) else _bits(values)), None
    numbers, null = _mask_numbers(values)
    marks = numbers != (MASKED_ID if labels else 0)
    if numbers.dtype.kind == "f" and (nan := np.isnan(numbers)).any():
        return marks & ~nan, nan
    return (None if marks.all() else marks), null


def _bits(values: pa.BooleanArray) -> BoolArray:
    """A bool array without nulls, one byte a value."""
    packed = np.frombuffer(values.buffers()[1], dtype=np.uint8)[values.offset // 8 :]
    start = values.offset % 8
    return np.unpackbits(packed, count=start + len(values), bitorder="little")[start:].view(np.bool_)


def _mask_numbers(values: pa.Array) -> tuple[npt.NDArray[Any], BoolArray | None]:
    if types.is_integer(values.type) and not values.null_count:
        return values.to_numpy(zero_copy_only=True), None
    return numbers_of(values)
