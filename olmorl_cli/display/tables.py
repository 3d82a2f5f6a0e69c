"""Tables that never cut a value: the columns that matter most, side by side; in the last resort one under another."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from olmorl_cli.display.text import number, plain

GAP = 2
"""Spaces between columns."""
FAIR_TEXT = 24
"""Characters down to which a column of text is folded before any column is left out."""
LEAST_TEXT = 12
"""Characters below which a column of text is not folded."""
LAST = 100
"""The rank from which on there is nothing but what is left out first."""
INDENT = 4
"""Spaces before what goes on from the line above."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading, folded onto two lines where room is short.
        cells: one a row.
        numeric: the cells are numbers, set right and never folded.
        rank: how soon it is left out for want of room, with all others of its rank: the greatest first, 0 never.
        drawn: the cells are bars, never folded; what they draw is said elsewhere, so nobody is told where they are left out.
        written: machine formats have the column too.
    """

    name: str
    cells: Sequence[Text]
    numeric: bool = False
    rank: int = 0
    drawn: bool = False
    written: bool = True

    @property
    def title(self) -> Text:
        return plain(self.name)

    @cached_property
    def longest(self) -> int:
        """The width of its widest cell."""
        return max((cell.cell_len for cell in self.cells), default=0)

    @property
    def widest(self) -> int:
        """The width in which nothing of it is folded."""
        return max(self.title.cell_len, self.longest)

    def least(self, text: int) -> int:
        """The width that it needs where texts are folded to `text` characters."""
        title = self.title.plain
        halves = [(title[:at], title[at + 1 :]) for at, letter in enumerate(title) if letter == " "]
        heading = min((max(map(cell_len, half)) for half in halves), default=self.title.cell_len)
        return max(heading, self.longest if self.numeric or self.drawn else min(self.longest, text))


def rank_in(left_out_last: Sequence[str], name: str) -> int:
    """The rank of a column: its place among those that can be left out, 0 if it is not of them.

    Several names with spaces between them stand for columns that stay, or are left out, together.
    """
    return next((at for at, names in enumerate(left_out_last, 1) if name in names.split()), 0)


def bars_column(name: str, bars: Sequence[str], style: str, rank: int = LAST) -> Column:
    """A column of bars, the first to be left out."""
    return Column(name, [Text(bar, style=style) for bar in bars], rank=rank, drawn=True)


def columns_table(columns: Sequence[Column], console: Console) -> RenderableType:
    """One line a row, of as many columns as there is room for; where the essential ones have none, one line a cell."""
    for text in (FAIR_TEXT, LEAST_TEXT):
        if shown := _chosen(columns, text, console):
            break
    else:
        return Group(*_blocks(columns))
    table = Table(box=None, padding=(0, GAP, 0, 0), header_style="bold", pad_edge=False)
    for column, width in zip(shown, _widths(shown, text, console), strict=True):
        table.add_column(column.title, justify="right" if column.numeric else "left", overflow="fold", width=width)
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*row)
    there = {id(column) for column in shown}
    left = [column for column in columns if id(column) not in there and not column.drawn]
    return Group(table, _left_out(left)) if left else table


def _chosen(columns: Sequence[Column], text: int, console: Console) -> list[Column]:
    """The columns that have room, of the least ranks, in their order; none if the essential ones have not."""
    room, chosen = console.width + GAP, set()
    ranks = itertools.groupby(sorted(range(len(columns)), key=lambda at: columns[at].rank), lambda at: columns[at].rank)
    for rank, places in ranks:
        numbers = list(places)
        room -= sum(columns[at].least(text) + GAP for at in numbers)
        if room < 0:
            if not rank:
                return []
            break
        chosen.update(numbers)
    return [column for at, column in enumerate(columns) if at in chosen]


def _widths(columns: Sequence[Column], text: int, console: Console) -> list[int]:
    """The width of each column: what it needs, and what is left goes to the columns that are folded, in equal parts."""
    room = console.width - GAP * (len(columns) - 1)
    widths = [column.widest for column in columns]
    if sum(widths) <= room:
        return widths
    widths = [column.least(text) for column in columns]
    spare = room - sum(widths)
    wants = {at: c.widest - widths[at] for at, c in enumerate(columns) if not c.numeric and not c.drawn}
    for done, at in enumerate(sorted(wants, key=lambda at: wants[at])):
        more = min(wants[at], spare // (len(wants) - done))
        widths[at] += more
        spare -= more
    return widths


def _left_out(columns: Sequence[Column]) -> Text:
    """Which columns there was no room for, and where they are."""
    names = ", ".join(column.name for column in columns)
    where = "a wider terminal or -f jsonl" if all(column.written for column in columns) else "a wider terminal"
    them = "it" if len(columns) == 1 else "them"
    return plain(f"left out for want of room: {names}; {where} shows {them}", "dim")


def _blocks(columns: Sequence[Column]) -> Iterator[RenderableType]:
    columns = [column for column in columns if not column.drawn]
    for row in range(len(columns[0].cells)):
        for column in columns:
            yield plain(f"{column.name}: ", "bold").append_text(column.cells[row])
        yield ""


def facts(lines: Sequence[tuple[Text, Text, Text]], console: Console, bars: Sequence[Text] = ()) -> RenderableType:
    """Lines of a name, a value set right, and what follows, folded or on the next line; bars where all has room."""
    names, values, more = (max((line[at].cell_len for line in lines), default=0) for at in range(3))
    room = console.width - names - values - 2 * GAP
    if room < min(more, FAIR_TEXT):
        return Group(*_beneath(lines, names, values, console))
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(width=names)
    grid.add_column(width=values, justify="right")
    grid.add_column(width=min(more, room), overflow="fold")
    widest = max((each.cell_len for each in bars), default=0)
    drawn = 0 < widest <= room - more - GAP
    for at, line in enumerate(lines):
        grid.add_row(*line, *([bars[at]] if drawn else []))
    return grid


def _beneath(
    lines: Sequence[tuple[Text, Text, Text]], names: int, values: int, console: Console
) -> Iterator[RenderableType]:
    for name, value, more in lines:
        line = name.copy()
        line.pad_right(names + GAP - name.cell_len)
        after = more if not value and line.cell_len + more.cell_len <= console.width else None
        if value:
            line.pad_right(values - value.cell_len)
        if name or value:
            yield line.append_text(value if after is None else after)
        if more and after is None:
            yield Padding(more, (0, 0, 0, INDENT))


def hanging(text: Text, console: Console) -> Text:
    """A text whose lines are indented, but for the first."""
    lines = text.wrap(console, max(console.width - INDENT, 1))
    return Text(f"\n{' ' * INDENT}").join(lines)


def cut_line(rows: int, shown: int, what: str) -> Iterator[RenderableType]:
    """That only the first rows of `what` are shown, if there are more."""
    if rows > shown:
        yield Text(f"the first {shown} of {number(rows)} {what}; all of them with -f jsonl, or -o FILE", style="dim")
