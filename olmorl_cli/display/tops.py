"""What a person sees of the answers that weigh most."""

from collections.abc import Iterator

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from olmorl_cli.display.screens import headline, id_cells
from olmorl_cli.display.tables import FAIR_TEXT, GAP, Column, bars_column, columns_table, rank_in
from olmorl_cli.display.text import bar, number, plain, share
from olmorl_cli.scoring import ScoredAnswers
from olmorl_cli.top import Top

BAR = 8
LINES = 2
"""Lines of a table's row that the start of a text may take."""
LEFT_OUT_LAST = ("row", "tokens", "reward", "step")
"""Columns that can be left out for want of room: the first of them last."""


def top_screen(scored: ScoredAnswers, top: Top, console: Console) -> Iterator[RenderableType]:
    """How much they weigh together; then those that the update pushes toward, and those that it pushes away from."""
    advantages = np.array(top.table["advantage"].to_pylist(), dtype=np.float64)
    yield headline(scored)
    weight = share(float(top.weights.sum()), top.total)
    yield Text(f"{number(top.table.num_rows)} of them have {weight} of the sum of |advantage| x tokens")
    for title, which, style in (
        ("pushed toward", advantages > 0.0, "green"),
        ("pushed away from", advantages < 0.0, "red"),
    ):
        rows = np.flatnonzero(which)
        yield ""
        yield Text(title if rows.size else f"{title}: none", style=f"bold {style}")
        if rows.size:
            yield _table(top, rows, style, console)


def _table(top: Top, rows: np.ndarray, style: str, console: Console) -> RenderableType:
    table = top.table.take(rows)
    ids = table.column_names[: table.column_names.index("row")]
    columns = [Column(name, id_cells(table[name]), rank=rank_in(LEFT_OUT_LAST, name)) for name in ids]
    columns.append(Column("row", [Text(str(row)) for row in table["row"].to_pylist()], True, rank_in(LEFT_OUT_LAST, "row")))
    columns += [
        Column(name, [Text(number(v)) for v in table[name].to_pylist()], numeric=True, rank=rank_in(LEFT_OUT_LAST, name))
        for name in ("reward", "advantage", "tokens")
    ]
    with np.errstate(invalid="ignore"):
        parts = np.nan_to_num(top.weights[rows] / float(top.weights.max()))
    columns.append(bars_column("weight", [bar(part, BAR, console) for part in parts.tolist()], style))
    room = console.width - sum(column.widest + GAP for column in columns)
    letters = LINES * max(FAIR_TEXT, room)
    texts = table["text"].to_pylist()
    if any(text is not None for text in texts):
        columns.append(Column("text", [_start(text, letters) for text in texts]))
    return columns_table(columns, console)


def _start(text: str | None, letters: int) -> Text:
    """The start of a text, runs of white space as one space; what is cut off is said to be."""
    if text is None:
        return Text("-", style="dim")
    start = " ".join(text[: 4 * letters].split())
    whole = len(text) <= 4 * letters and len(start) <= letters
    return plain(start if whole else f"{start[: letters - 3].rstrip()}...")
