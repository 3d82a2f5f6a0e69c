"""Arrow columns as the texts that JSON Lines and CSV carry, without a Python object a row."""

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.arrays import IntArray, lists_of, storage_of

_TO_ESCAPE = '["\\\\\\x00-\\x1f\\x7f-\\x{9f}\\x{2028}\\x{2029}]'
_FEW, _MANY = 64, 1024
"""Rows up to which it does not pay to look for equal values, and rows that show whether there are some."""
_LINE_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in map(chr, (0x7F, *range(0x80, 0xA0), 0x2028, 0x2029))}


def json_texts(array: pa.Array) -> pa.Array:
    """Each value as JSON, large_string (n,): null for null and for what JSON has no number for; dates as texts."""
    array = storage_of(array)
    kind = array.type
    if types.is_null(kind):
        return pa.array(["null"], pa.large_string()).take(pa.array(np.zeros(len(array), dtype=np.int64)))
    if types.is_dictionary(kind):
        return json_texts(array.dictionary).take(array.indices).fill_null("null")
    if types.is_floating(kind):
        array = array.cast(pa.float64()) if types.is_float16(kind) else array
        texts = number_texts(pc.if_else(pc.is_finite(array), array, pa.scalar(None, array.type)))
    elif types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        texts = array.cast(pa.large_string())
    elif types.is_struct(kind):
        texts = _objects(array)
    elif types.is_nested(kind):
        texts = _lists(_pairs(array) if types.is_map(kind) else array)
    else:
        texts = _quoted(plain_texts(array))
    return texts.fill_null("null")


def json_values(array: pa.Array) -> list[Any]:
    """Each value as JSON reads it back: dates and bytes as texts, None for null."""
    return [json.loads(text) for text in json_texts(array).to_pylist()]


def _objects(array: pa.StructArray) -> pa.Array:
    """Structs as JSON, large_string (n,), null for null."""
    keys = [json.dumps(field.name, ensure_ascii=False) for field in array.type]
    parts: list[str | pa.Array] = ["{"]
    for index, key in enumerate(keys):
        parts += [f"{', ' if index else ''}{key}: ", json_texts(pc.struct_field(array, [index]))]
    texts = joined(*parts, "}") if keys else pa.array(["{}"] * len(array), pa.large_string())
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.large_string()))


def _pairs(array: pa.MapArray) -> pa.Array:
    """Maps as lists of their pairs; their own keys and items would be those of the whole column, slice or not."""
    kind = array.type
    pair = pa.struct([pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)])
    return array.cast(pa.list_(pair))


def _lists(array: pa.Array) -> pa.Array:
    """Lists of any layout as JSON, large_string (n,), null for null."""
    lists = lists_of(array)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lists.lengths))), pa.int64())
    items = pc.binary_join(
        pa.LargeListArray.from_arrays(offsets, json_texts(lists.values)), pa.scalar(", ", pa.large_string())
    )
    return pc.if_else(array.is_valid(), joined("[", items, "]"), pa.scalar(None, pa.large_string()))


def number_texts(array: pa.Array) -> pa.Array:
    """Floats in the fewest digits that read back the same, large_string (n,), null for null.

    Rewards and advantages take few values, and writing digits is slow: each value is written once.
    """
    few = few_values(array)
    if few is not None:
        return few.dictionary.cast(pa.large_string()).take(few.indices)
    return array.cast(pa.large_string())


def few_values(array: pa.Array) -> pa.DictionaryArray | None:
    """Floats or bools as codes of the values that they take (null is one), if these are few; None for all else."""
    if not (types.is_float32(array.type) or types.is_float64(array.type) or types.is_boolean(array.type)):
        return None
    if len(array) <= _FEW or len(array.slice(0, _MANY).unique()) > _MANY // 4:
        return None
    encoded = array.dictionary_encode(null_encoding="encode")
    return encoded if len(encoded.dictionary) < len(array) // 4 else None


def csv_texts(array: pa.Array) -> pa.Array:
    """Each value as a CSV cell, large_string (n,): empty for null and NaN, quoted where a reader would stumble."""
    array = storage_of(array)
    if types.is_dictionary(array.type):
        return csv_texts(array.dictionary).take(array.indices).fill_null("")
    if types.is_floating(array.type):
        array = array.cast(pa.float64()) if types.is_float16(array.type) else array
        array = pc.if_else(pc.is_nan(array), pa.scalar(None, array.type), array)
    texts = plain_texts(array)
    special = pc.fill_null(pc.match_substring_regex(texts, '[",\r\n]|^$|^ | $'), False)
    if not (types.is_boolean(array.type) or types.is_integer(array.type)) and pc.any(special).as_py():
        texts = pc.if_else(special, joined('"', pc.replace_substring(texts, '"', '""'), '"'), texts)
    return texts.fill_null("")


def plain_texts(array: pa.Array) -> pa.Array:
    """Each value as bare text, large_string (n,), null for null: ids, dates, bytes (as hexadecimal digits)."""
    array = storage_of(array)
    kind = array.type
    if types.is_dictionary(kind):
        return plain_texts(array.dictionary).take(array.indices)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.array([value if value is None else value.hex() for value in array.to_pylist()], pa.large_string())
    if types.is_nested(kind):
        return json_texts(array)
    return number_texts(array) if types.is_floating(kind) else array.cast(pa.large_string())


def text_lengths(array: pa.Array) -> IntArray:
    """Bytes of each text, or of a chat as JSON, int (n,); 0 for null."""
    array = storage_of(array)
    if types.is_dictionary(array.type):
        return text_lengths(array.dictionary.take(array.indices))
    lengths = pc.binary_length(plain_texts(array)).fill_null(0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)


def valid_texts(array: pa.Array, what: str, file: str) -> pa.Array:
    """The array, once it is known to be valid UTF-8.

    Raises:
        InputError: it is not.
    """
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raise InputError(f"{file}: {what} has text that is not valid UTF-8. Write it as UTF-8") from None
    return array


def _quoted(texts: pa.Array) -> pa.Array:
    special = pc.fill_null(pc.match_substring_regex(texts, _TO_ESCAPE), False)
    if pc.any(special).as_py():
        escaped = [_escape(text) for text in texts.filter(special).to_pylist()]
        return pc.replace_with_mask(joined('"', texts, '"'), special, pa.array(escaped, pa.large_string()))
    return joined('"', texts, '"')


def joined(*parts: str | pa.Array) -> pa.Array:
    """Texts joined row by row, large_string (n,), null where one of them is."""
    scalars = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in (*parts, "")]
    return pc.binary_join_element_wise(*scalars)


def _escape(text: str) -> str:
    return re.sub("[\x7f-\x9f\u2028\u2029]", lambda m: _LINE_BREAKS[ord(m[0])], json.dumps(text, ensure_ascii=False))
