"""Text for a terminal: data shown as what it is, numbers short, bars that any encoding can draw."""

import io
import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from math import fsum, isfinite
from typing import Any, TextIO

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from olmorl_cli.errors import visible

MOST_CHARACTERS = 500
"""Of an id or text, or of a word in a sentence, that are shown."""
_LONG_WORD = re.compile(rf"\S{{{MOST_CHARACTERS + 1},}}")

_WIDE = 10_000
"""Columns of a table that goes into a pipe or file: nothing is cut or folded there."""

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
PLAIN_LEVELS = "_.-:=+*#"
"""What stands for them where they cannot be drawn."""


def plain(value: object, style: str = "") -> Text:
    """Data as rich text that is never read as markup; of a word that is too long, its beginning."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = _LONG_WORD.sub(lambda word: beginning(word[0]), text)
    return Text(visible(text), style=style, overflow="fold")


def beginning(text: str) -> str:
    """A text; of one that is too long, its beginning, and how long it is."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[: MOST_CHARACTERS - 1]}… ({number(len(text))} characters)"


def number(value: float | int | None) -> str:
    """A number in up to six digits; a dash for None and NaN."""
    if value is None or value != value:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def share(part: float, whole: float) -> str:
    """A percentage of a whole."""
    return f"{100.0 * part / whole:.1f} %" if whole else "-"


def bar(fraction: float, width: int, console: Console) -> str:
    """A horizontal bar, `fraction` of `width` characters long."""
    filled = max(0.0, min(1.0, fraction)) * width
    if not draws_blocks(console):
        return ("#" * round(filled)).ljust(width, ".")
    whole = int(filled)
    rest = EIGHTHS[int((filled - whole) * 8)] if whole < width else ""
    return ("█" * whole + rest).ljust(width)[:width]


def sparks(counts: Iterable[int], console: Console) -> str:
    """A histogram, one character a bin."""
    values = list(counts)
    most = max(values, default=0)
    if not draws_blocks(console):
        return " ".join(map(str, values))
    return "".join(" " if value == 0 else LEVELS[min(7, value * 8 // (most + 1))] for value in values)


def trace(values: Sequence[float | None], width: int, console: Console) -> str:
    """A series between its least and greatest value, one character each, or a mean of several where there are more.

    A space stands for what is undefined or infinite.
    """
    per = -(-len(values) // max(width, 1)) or 1
    parts = [[v for v in values[at : at + per] if v is not None and isfinite(v)] for at in range(0, len(values), per)]
    means = [fsum(part) / len(part) if part else None for part in parts]
    known = [mean for mean in means if mean is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    levels = LEVELS if draws_blocks(console) else PLAIN_LEVELS
    size = (high - low) or 1.0
    return "".join(" " if mean is None else levels[min(7, int((mean - low) / size * 8))] for mean in means)


def draws_blocks(console: Console) -> bool:
    """Whether the console's encoding has block characters."""
    try:
        (EIGHTHS + LEVELS).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


class VisibleConsole(Console):
    """A console that shows nothing but visible text, wherever it comes from; its own colours apart."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            lines = segment.text.split("\n")
            yield segment if segment.control else segment._replace(text="\n".join(map(visible, lines)))


def console_for(stream: TextIO) -> Console:
    """A console on `stream`: as wide as the terminal, or as wide as its tables need in a pipe."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    wide: dict[str, Any] = {} if stream.isatty() else {"width": _WIDE, "height": 100}
    console = VisibleConsole(file=stream, highlight=False, emoji=False, markup=False, **wide)
    if not wide and console.is_dumb_terminal:  # rich takes it for 80 columns wide
        console.size = ConsoleDimensions(*shutil.get_terminal_size())
    return console


def show(renderables: Iterable[RenderableType], stream: TextIO | None = None) -> None:
    """Print to `stream`, standard output by default; spaces at the ends of lines are dropped in a pipe."""
    stream = stream or sys.stdout
    console = console_for(stream)
    if stream.isatty():
        for renderable in renderables:
            console.print(renderable)
        return
    with console.capture() as captured:
        for renderable in renderables:
            console.print(renderable)
    stream.write("\n".join(line.rstrip() for line in captured.get().split("\n")))
