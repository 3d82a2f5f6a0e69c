"""What `olmorl advantages` writes into its Parquet and Arrow output about where the advantages came from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import pyarrow as pa

KEY = b"olmorl"


@dataclass(frozen=True)
class Provenance:
    """How a file's advantages were made.

    Attributes:
        columns: role → columns, of the roles that the advantages rest on.
        group_size: of consecutive groups; None where a column tells them.
        settings: the recipe's fields that act on advantages.
        file_rows: the rows of each file that went in, where ids are only unique inside a file; else empty.
        parts: files that the output consists of, all with this; 0 for a single one.
    """

    columns: Mapping[str, list[str]]
    group_size: int | None
    settings: Mapping[str, object]
    file_rows: list[int] = field(default_factory=list)
    parts: int = 0

    def written_into(self, schema: pa.Schema) -> pa.Schema:
        """The schema with this as its metadata, beside what is there."""
        text = json.dumps({"version": 1, **asdict(self)})
        return schema.with_metadata({**(schema.metadata or {}), KEY: text.encode()})


def provenance_of(schemas: Sequence[pa.Schema]) -> Provenance | None:
    """What the files' schemas say, or None where `olmorl` did not write them, one output wholly."""
    found = _said_by(schemas[0])
    if found is None or max(found.parts, 1) != len(schemas):
        return None
    return found if all(_said_by(schema) == found for schema in schemas[1:]) else None


def _said_by(schema: pa.Schema) -> Provenance | None:
    text = (schema.metadata or {}).get(KEY)
    if text is None:
        return None
    try:
        found = json.loads(text)
        columns = {str(role): [str(name) for name in names] for role, names in found["columns"].items()}
        rows = [int(number) for number in found["file_rows"]]
        size = None if found["group_size"] is None else int(found["group_size"])
        return Provenance(columns, size, dict(found["settings"]), rows, int(found.get("parts", 0)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # another program's key, or a later version's
