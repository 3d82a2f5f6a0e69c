"""What a person sees of the answers that weigh most."""

from collections.abc import Iterator

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from olmorl_cli.display.screens import headline, id_cells
from olmorl_cli.display.tables import GAP, WIDE, Column, columns_table
from olmorl_cli.display.text import bar, number, plain, share
from olmorl_cli.scoring import ScoredAnswers
from olmorl_cli.top import Top

BAR = 8
LEAST = 24
"""Letters of a text that are shown at least."""
LINES = 2
"""Lines of a table's row that the start of a text may take."""


def top_screen(scored: ScoredAnswers, top: Top, console: Console) -> Iterator[RenderableType]:
    """How much they weigh together; then those that the update pushes toward, and those that it pushes away from."""
    advantages = np.array([np.nan if a is None else a for a in top.table["advantage"].to_pylist()], dtype=np.float64)
    yield headline(scored)
    weight = share(float(top.weights.sum()), top.total)
    yield Text(f"{number(top.table.num_rows)} of them have {weight} of the sum of |advantage| x tokens")
    for title, which, style in (
        ("pushed toward", advantages > 0.0, "green"),
        ("pushed away from", advantages < 0.0, "red"),
    ):
        rows = np.flatnonzero(which & (top.weights > 0.0))
        if rows.size:
            yield ""
            yield Text(title, style=f"bold {style}")
            yield _table(top, rows, style, console)
    if left := int((~(top.weights > 0.0)).sum()):
        yield ""
        yield Text(f"{number(left)} more weigh nothing: advantage 0 or none, or no token", style="dim")


def _table(top: Top, rows: np.ndarray, style: str, console: Console) -> RenderableType:
    table = top.table.take(rows)
    most = float(top.weights.max())
    columns = [
        Column(name, id_cells(table[name]), numeric=False) for name in table.column_names[: table.column_names.index("row")]
    ]
    columns.append(Column("row", [Text(str(row)) for row in table["row"].to_pylist()], numeric=True))
    columns += [
        Column(name, [Text(number(value)) for value in table[name].to_pylist()], numeric=True)
        for name in ("reward", "advantage", "tokens")
    ]
    if console.width >= WIDE + 2 * BAR:
        with np.errstate(invalid="ignore"):
            parts = np.nan_to_num(top.weights[rows] / most)
        columns.append(Column("weight", [Text(bar(part, BAR, console), style=style) for part in parts.tolist()]))
    room = console.width - sum(column.widest + GAP for column in columns)
    letters = max(LEAST, room * LINES if room >= LEAST else console.width * LINES)
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
