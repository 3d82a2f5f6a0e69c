"""JSON Lines, taken to an Arrow file once, block by block, so that it can be read like any other."""

import io
import re
from collections.abc import Iterator
from typing import IO

import pyarrow as pa
import pyarrow.json

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.sources import Source

BLOCK = 16 << 20
"""Bytes of whole lines parsed at a time."""

_NO_OBJECT = re.compile(rb"^[ \t\r]*(?:[^{\s].*|\{.*[^}\s][ \t\r]*)$", re.MULTILINE)
_AFTER_OBJECT = re.compile(rb"\}[ \t\r]*(?:null|true|false|[\[\"\d{-])")


def json_to_arrow(source: Source, sink: IO[bytes]) -> None:
    """Write the objects of `source` to `sink` as an Arrow file; the columns are the keys of all lines together.

    Bare NaN and Infinity, as Python's json writes them, are numbers. Texts that look like dates stay texts.

    Raises:
        InputError: a line is no JSON object, or values of one key do not go together.
    """
    schema: pa.Schema | None = None
    for line, block in _blocks(source):
        table = _parsed(source, line, block, None)
        found = pa.schema([pa.field(f.name, _plain(f.type)) for f in table.schema])
        try:
            schema = found if schema is None else pa.unify_schemas([schema, found], promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(
                f"{source.name}: a key has values that do not go together: {' '.join(str(error).split())}."
                " Give each key one kind of value"
            ) from error
    schema = pa.schema([]) if schema is None else schema
    with pa.ipc.new_file(sink, schema) as writer:
        for line, block in _blocks(source):
            writer.write_table(_parsed(source, line, block, schema).select(schema.names))
    sink.flush()


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without what the parser guesses from texts: timestamps are texts."""
    if pa.types.is_timestamp(kind):
        return pa.string()
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain(f.type)) for f in kind])
    return kind


def _blocks(source: Source) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines, each with the 0-based number of its first line."""
    with open(source.path, "rb") as file:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        line, rest = 0, b""
        while chunk := file.read(BLOCK):
            cut = chunk.rfind(b"\n") + 1
            if cut == 0:
                rest += chunk
                continue
            block, rest = rest + chunk[:cut], chunk[cut:]
            yield line, block
            line += block.count(b"\n")
        if rest.strip():
            yield line, rest


def _parsed(source: Source, line: int, block: bytes, schema: pa.Schema | None) -> pa.Table:
    _check_objects(source, line, block)
    if not block.strip():
        return (schema or pa.schema([])).empty_table()
    options = pyarrow.json.ParseOptions(explicit_schema=schema)
    read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(block) + 1, 1 << 20))
    try:
        return pyarrow.json.read_json(io.BytesIO(block), read_options=read, parse_options=options)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        said = " ".join(str(error).split()).removeprefix("JSON parse error: ")
        raise InputError(
            f"{source.name}: not JSON Lines in the block from line {line + 1}: {said}. Write one object a line,"
            " and one kind of value for each key"
        ) from error


def _check_objects(source: Source, line: int, block: bytes) -> None:
    """Refuse lines that are no object: pyarrow's parser does not survive some of them."""
    wrong = _NO_OBJECT.search(block)
    at = wrong.start() if wrong else -1
    if at < 0:
        for match in _AFTER_OBJECT.finditer(block):
            start, end = block.rfind(b"\n", 0, match.start()) + 1, block.find(b"\n", match.start())
            if not _one_object(block[start : end if end >= 0 else len(block)]):
                at = start
                break
    if at >= 0:
        number = line + block.count(b"\n", 0, at) + 1
        raise InputError(f"{source.name}: line {number} is no JSON object. Write one object a line")


def _one_object(line: bytes) -> bool:
    import json

    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
