"""Whether the masks of a file mark tokens with 0 and 1, or are label ids: token ids, and -100 for what is masked."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.core.segments import Segments
from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.arrays import BoolArray, IntArray, Lists, column_of, lists_of, marks_of, numbers_of, storage_of
from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.roles import Choice, Column, is_list, resolve, storage_type, type_of

LOOKED_AT = 256
"""Rows of a file that show which of the two its masks are; rows that differ from them are errors."""


def files_of_labels(
    files: Sequence[DataFile], fragments: Sequence[Fragment], choices: Mapping[str, Choice]
) -> frozenset[int]:
    """The numbers of the files whose masks are label ids.

    Raises:
        InputError: in one file they are, in another they are 0 and 1.
    """
    if "mask" not in choices:
        return frozenset()
    found: dict[bool, list[int]] = {True: [], False: []}
    of_file: dict[int, list[Fragment]] = {number: [] for number in range(len(files))}
    for fragment in fragments:
        of_file[fragment.file_number].append(fragment)
    for number, file in enumerate(files):
        column = resolve(choices["mask"].columns[0], file.schema)
        if column is None or not _of_integers(type_of(column, file.schema)):
            continue
        values = _first_values(file, of_file[number], column)
        if odd_marks(values) is not None:
            found[True].append(number)
        elif len(values) and pc.any(pc.equal(values, 0)).as_py():
            found[False].append(number)
    if found[True] and found[False]:
        name = choices["mask"].columns[0]
        labels, marks = (files[found[each][0]].name for each in (True, False))
        raise InputError(
            f"{marks}: {name}, the mask, is 0 and 1 here, and label ids in {labels}. Write one kind into all files, or score"
            " them apart"
        )
    return frozenset(found[True])


def odd_marks(values: pa.Array) -> BoolArray | None:
    """Which integers are neither 0 nor 1, bool (T,); None where none is, and for values of other types."""
    values = _decoded(values)
    if not types.is_integer(values.type) or not len(values):
        return None
    ends = pc.min_max(values)
    if ends["min"].as_py() is None or (ends["min"].as_py() >= 0 and ends["max"].as_py() <= 1):
        return None
    numbers, _ = numbers_of(values)
    odd: BoolArray = ~((numbers == 0) | (numbers == 1) | np.isnan(numbers))
    return odd


def ones_of(mask: Lists, labels: bool) -> IntArray:
    """How many tokens of each answer the mask marks, int (n,)."""
    marks, _ = marks_of(mask.values, labels)
    if marks is None:
        return mask.lengths
    return Segments(np.concatenate(([0], np.cumsum(mask.lengths)))).count(marks)


def _of_integers(kind: pa.DataType) -> bool:
    """Whether a mask of this type can hold -100: it has lists of signed integers."""
    kind = storage_type(kind)
    if not is_list(kind):
        return False
    inner = storage_type(kind.value_type)
    return bool(types.is_signed_integer(inner.value_type if types.is_dictionary(inner) else inner))


def _first_values(file: DataFile, fragments: Sequence[Fragment], column: Column) -> pa.Array:
    """The values of a list column in the file's first rows."""
    parts, rows = [], 0
    for fragment in fragments:
        for batch in file.batches(fragment, [column.top]):
            part = column_of(batch.slice(0, LOOKED_AT - rows), column)
            parts.append(_decoded(lists_of(part).values))
            rows += len(part)
            if rows == LOOKED_AT:
                return pa.concat_arrays(parts)
    return pa.concat_arrays(parts) if parts else pa.array([], pa.int64())


def _decoded(values: pa.Array) -> pa.Array:
    values = storage_of(values)
    return storage_of(values.dictionary_decode()) if types.is_dictionary(values.type) else values
