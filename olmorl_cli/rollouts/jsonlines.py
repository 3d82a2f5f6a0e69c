"""JSON Lines, taken to an Arrow file once, block by block, so that it can be read like any other."""

import io
import json
import re
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.roles import MIXED
from olmorl_cli.rollouts.sources import Source

BLOCK = 16 << 20
"""Bytes of whole lines parsed at a time."""
DEEPEST = 100
"""Most objects and lists inside of each other."""

MOST_PATHS = 12
"""Keys at any depth that may become texts by themselves; after them, whole columns do."""

Path = tuple[str, ...]
"""Keys from the top down; `_ITEMS` for the items of a list."""
_ITEMS = "[]"
_CHANGES = re.compile(r"Column\(/(.+)\) changed from ")
_NO_OBJECT = re.compile(rb"^[ \t\r]*(?:[^{\s].*|\{.*[^}\s][ \t\r]*)$", re.MULTILINE)
_TEXT = re.compile(rb'"[^"\n]*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"\n'))
_AFTER_OBJECT = re.compile(rb"\}[ \t\r]*(?:null|true|false|[\[\"\d{-])")


def json_to_arrow(source: Source, sink: IO[bytes]) -> None:
    """Write the objects of `source` to `sink` as an Arrow file; the columns are the keys of all lines together.

    Bare NaN and Infinity, as Python's json writes them, are numbers. Texts that look like dates stay texts. A key, at any
    depth, whose values are of several kinds becomes text, each value as JSON; at the top its field says so (`MIXED`).

    Raises:
        InputError: a line is no JSON object.
    """
    mixed: set[Path] = set()
    schema, known = _schema(source, mixed), 0
    while len(mixed) > known:  # blocks read before may have these keys as well
        known = len(mixed)
        schema = _schema(source, mixed)
    marked = {path[0] for path in mixed if len(path) == 1}
    fields = [field.with_metadata(MIXED) if field.name in marked else field for field in schema]
    with pa.ipc.new_file(sink, pa.schema(fields)) as writer:
        for line, block in _blocks(source):
            table = _parsed(source, line, block, schema, mixed).select(schema.names)
            writer.write_table(table.cast(pa.schema(fields)))
    sink.flush()


def _schema(source: Source, mixed: set[Path]) -> pa.Schema:
    """The columns of all blocks together; keys whose values do not go together are added to `mixed`."""
    fields: dict[str, pa.Field] = {}
    for line, block in _blocks(source):
        for field in _parsed(source, line, block, None, mixed).schema:
            found = pa.field(field.name, _plain(field.type))
            try:
                schemas = [pa.schema([fields.get(field.name, found)]), pa.schema([found])]
                fields[field.name] = pa.unify_schemas(schemas, promote_options="permissive").field(0)
            except pa.ArrowException:
                mixed.add((field.name,))
                fields[field.name] = pa.field(field.name, pa.string())
    return pa.schema(list(fields.values()))


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
    with source.open() as file:
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


def _parsed(source: Source, line: int, block: bytes, schema: pa.Schema | None, mixed: set[Path]) -> pa.Table:
    """A block's objects; without a `schema`, keys with values of several kinds are added to `mixed`."""
    _check_objects(source, line, block)
    if schema is None:
        _check_depth(source, line, block)
    if not block.strip():
        return (schema or pa.schema([])).empty_table()
    options = pyarrow.json.ParseOptions(explicit_schema=schema)
    while True:
        data = _with_texts(block, mixed) if mixed else block
        read = pyarrow.json.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 20))
        try:
            return pyarrow.json.read_json(io.BytesIO(data), read_options=read, parse_options=options)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            said = " ".join(str(error).split()).removeprefix("JSON parse error: ")
            changes = _CHANGES.match(said)
            path = tuple(changes[1].split("/")) if changes else ()
            path = path if len(mixed) < MOST_PATHS else path[:1]
            if not path or path in mixed or schema is not None:
                raise InputError(
                    f"{source.name}: not JSON Lines in the block from line {line + 1}: {said}. Write one object a line,"
                    " and one kind of value for each key"
                ) from error
            mixed.add(path)


def _with_texts(block: bytes, mixed: set[Path]) -> bytes:
    """The block with the values at the paths `mixed` as texts: a line at a time, which few files need."""
    lines = []
    for line in filter(bytes.strip, block.split(b"\n")):
        value = json.loads(line)
        for path in mixed:
            value = _as_text(value, path)
        lines.append(json.dumps(value).encode())
    return b"\n".join(lines) + b"\n"


def _as_text(value: Any, path: Path) -> Any:
    """The value with what lies at the path in it as JSON, but for texts and nulls, which stay as they are."""
    if not path:
        return value if value is None or isinstance(value, str) else json.dumps(value)
    if path[0] == _ITEMS and isinstance(value, list):
        return [_as_text(item, path[1:]) for item in value]
    if isinstance(value, dict) and path[0] in value:
        return {**value, path[0]: _as_text(value[path[0]], path[1:])}
    return value


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


def _check_depth(source: Source, line: int, block: bytes) -> None:
    """Refuse lines that nest without end: pyarrow's parser does not survive them either."""
    text = block.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in block else block
    brackets = _TEXT.sub(b"", text.translate(None, _NO_BRACKETS))
    marks = np.frombuffer(brackets, dtype=np.uint8)
    ends = marks == ord("\n")
    steps = np.where((marks == ord("[")) | (marks == ord("{")), 1, -1)
    steps[ends] = -marks.size  # a new line begins below all that was before
    depth = np.cumsum(steps)
    deep = depth - np.minimum(np.minimum.accumulate(depth), 0) > DEEPEST
    if deep.any():
        number = line + int(ends[: np.argmax(deep)].sum()) + 1
        raise InputError(f"{source.name}: line {number} nests more than {DEEPEST} deep. Write rollouts, one object a line")


def _one_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
