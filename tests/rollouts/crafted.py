"""Parquet files that no writer writes, byte by byte: footers and pages in Thrift's compact protocol."""

import struct
from collections.abc import Sequence

Value = "int | bytes | list[Value] | dict[int, Value]"
PAGE = 2**31 - 1
"""Most values of a page."""


class I32(int):
    """A whole number that the format has as an i32; plain ones are i64."""


ONE, REQUIRED = I32(1), I32(0)
INT64, DOUBLE = I32(2), I32(5)
PLAIN, RLE, RLE_DICTIONARY = I32(0), I32(3), I32(8)
DATA_PAGE, DICTIONARY_PAGE = I32(0), I32(2)


def varint(value: int) -> bytes:
    """A whole number, seven bits a byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def packed(value: Value) -> tuple[int, bytes]:
    """A value's type in the protocol, and its bytes."""
    if isinstance(value, int):
        return 5 if isinstance(value, I32) else 6, varint(value << 1)
    if isinstance(value, bytes):
        return 8, varint(len(value)) + value
    if isinstance(value, list):
        kinds, parts = zip(*map(packed, value), strict=True) if value else ((12,), ())
        size = bytes([len(value) << 4 | kinds[0]]) if len(value) < 15 else bytes([0xF0 | kinds[0]]) + varint(len(value))
        return 9, size + b"".join(parts)
    out, last = b"", 0
    for number, item in value.items():
        kind, part = packed(item)
        out += bytes([number - last << 4 | kind]) + part
        last = number
    return 12, out + b"\0"


def thrift(value: Value) -> bytes:
    return packed(value)[1]


def constant_pages(value: bytes, counts: Sequence[int]) -> list[bytes]:
    """A dictionary of one value, and pages that repeat it: some thirty bytes for two thousand million rows."""
    size = I32(len(value))
    out = [thrift({1: DICTIONARY_PAGE, 2: size, 3: size, 7: {1: ONE, 2: PLAIN}}) + value]
    for count in counts:
        body = b"\0" + varint(count << 1)  # codes of no bits, one run
        header = {1: I32(count), 2: RLE_DICTIONARY, 3: RLE, 4: RLE}
        out.append(thrift({1: DATA_PAGE, 2: I32(len(body)), 3: I32(len(body)), 5: header}) + body)
    return out


def constant_parquet(rows: int, columns: dict[str, bytes], claimed: int | None = None) -> bytes:
    """A file of `rows` rows with the same values in each.

    Args:
        rows: that its pages hold.
        columns: name → the value, eight bytes: of type double if called reward, else int64.
        claimed: rows that its footer tells of, if others.
    """
    counts = [PAGE] * (rows // PAGE) + [rows % PAGE] * (rows % PAGE > 0)
    told = claimed or rows
    data, chunks = b"PAR1", []
    schema: list[Value] = [{4: b"schema", 5: I32(len(columns))}]
    for name, value in columns.items():
        kind = DOUBLE if name == "reward" else INT64
        dictionary, *pages = constant_pages(value, counts)
        start, body = len(data), dictionary + b"".join(pages)
        whole = {1: kind, 2: [RLE_DICTIONARY], 3: [name.encode()], 4: I32(0), 5: told, 6: len(body), 7: len(body)}
        chunks.append({2: start, 3: whole | {9: start + len(dictionary), 11: start}})
        schema.append({1: kind, 3: REQUIRED, 4: name.encode()})
        data += body
    group = {1: chunks, 2: len(data), 3: told}
    return with_footer(data, {1: ONE, 2: schema, 3: told, 4: [group]})


def deep_parquet(depth: int) -> bytes:
    """A file without rows whose schema is one column, so many groups deep."""
    inner = {3: REQUIRED, 4: b"g", 5: ONE}
    schema: list[Value] = [{4: b"schema", 5: ONE}, *[inner] * depth, {1: DOUBLE, 3: REQUIRED, 4: b"reward"}]
    return with_footer(b"PAR1", {1: ONE, 2: schema, 3: 0, 4: []})


def with_footer(data: bytes, footer: Value) -> bytes:
    """The file: its pages, its footer, the footer's length."""
    end = thrift(footer)
    return data + end + struct.pack("<I", len(end)) + b"PAR1"
