"""A small file of every writer that the README's table of trainers names, and what its command line makes of it.

Unless said otherwise two prompts, p and q, have two answers each, in this order, with rewards 1, 0 and 1, 1: one group is
kept, and the advantages are 0.5, -0.5 and 0, 0.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
ROWS: list[Row] = [{"p": p, "n": n, "r": r} for p, n, r in (("p", 0, 1.0), ("p", 1, 0.0), ("q", 0, 1.0), ("q", 1, 1.0))]
NEW = [[-1.0, -1.0], [-3.0], [-1.0], [-2.0]]
OLD = [[-1.0, -2.0], [-3.0], [-1.0], [-2.5]]
OBJECTIVE = (0.5 * 1.0 + 0.5 * 1.272 - 0.5 * 1.0) / 3
"""Of `NEW` against `OLD`: three tokens of a kept group, one ratio of e where the advantage is 0.5."""


@dataclass(frozen=True)
class Layout:
    """What a writer leaves, and what comes of it.

    Attributes:
        write: puts the files into the current folder.
        groups: sizes, in order of first appearance; empty where it is refused.
        kept: number of kept groups.
        advantages: of the answers, in order.
        objective: in place of the advantages, where the command is `objective`.
        refusal: part of the only line on standard error, where the file cannot be scored.
    """

    write: Callable[[], None]
    groups: Sequence[int] = (2, 2)
    kept: int = 1
    advantages: Sequence[float | None] = (0.5, -0.5, 0.0, 0.0)
    objective: float | None = None
    refusal: str = ""


LAYOUTS: dict[str, Layout] = {}
"""By the first cell of the README's rows."""


def layout(name: str, **expected: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(write: Callable[[], None]) -> Callable[[], None]:
        LAYOUTS[name] = Layout(write, **expected)
        return write

    return add


def parquet(path: str, rows: Sequence[Row], **types: pa.DataType) -> None:
    """Rows as Parquet; columns have the types that pyarrow infers, unless given."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({name: pa.array([row[name] for row in rows], types.get(name)) for name in rows[0]})
    pq.write_table(table, path)


def jsonl(path: str, rows: Sequence[Any]) -> None:
    """Rows as JSON Lines, bare NaN where they hold one."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def listed(rows: Sequence[Row]) -> Row:
    """Rows as one row with a list for each key."""
    return {key: [row[key] for row in rows] for key in rows[0]}
