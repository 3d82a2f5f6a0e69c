"""Tables that never cut a value: side by side where there is room, else one under another."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from olmorl_cli.display.text import plain

GAP = 2
"""Spaces between columns."""
LEAST_TEXT = 12
"""Characters below which a column of text is not folded."""
WIDE = 60
"""Characters from which on there is room for bars."""


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its cells, and whether they are numbers (set right, never folded)."""

    name: str
    cells: Sequence[Text]
    numeric: bool = False

    @property
    def title(self) -> Text:
        return plain(self.name)

    @property
    def widest(self) -> int:
        return max([self.title.cell_len, *(cell.cell_len for cell in self.cells)])

    @property
    def least(self) -> int:
        """The width that it needs."""
        return self.widest if self.numeric else min(self.widest, max(LEAST_TEXT, self.title.cell_len))


def fit(columns: Sequence[Column], console: Console) -> bool:
    """Whether the columns have room side by side."""
    return sum(column.least + GAP for column in columns) - GAP <= console.width


def columns_table(columns: Sequence[Column], console: Console) -> RenderableType:
    """One line a row, or where the console is too narrow for that, one line a cell."""
    if not fit(columns, console):
        return Group(*_blocks(columns))
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            overflow="fold",
            no_wrap=column.numeric,
            min_width=column.least,
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*row)
    return table


def _blocks(columns: Sequence[Column]) -> Iterator[RenderableType]:
    for number in range(len(columns[0].cells)):
        for column in columns:
            yield plain(f"{column.name}: ", "bold").append_text(column.cells[number])
        yield ""


def facts(lines: Sequence[tuple[Text, ...]], console: Console) -> RenderableType:
    """Lines of a name, a value set right, and what may follow; what does not fit goes onto a line of its own."""
    names = max((line[0].cell_len for line in lines), default=0)
    values = max((line[1].cell_len for line in lines if len(line) > 1), default=0)
    more = max((sum(cell.cell_len + GAP for cell in line[2:]) for line in lines), default=0)
    if names + GAP + values + more > console.width and console.width < WIDE * 2:
        return Group(*(Text("  ").join(cell for cell in line if cell.plain.strip()) for line in lines))
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    for _ in range(max((len(line) for line in lines), default=2) - 2):
        grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row(*line)
    return grid
