"""Results to their destination, and words to standard error."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from olmorl_cli.errors import DataError, InputError, Problems, UsageError, visible, without_secrets
from olmorl_cli.interrupts import PuttingBack
from olmorl_cli.values import parse_choice

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console, RenderableType

    from olmorl_cli.objectives import Objective
    from olmorl_cli.results import Scored
    from olmorl_cli.rollouts.folders import Folder
    from olmorl_cli.rollouts.rollouts import Rollouts
    from olmorl_cli.rollouts.sources import Source
    from olmorl_cli.scoring import ScoredAnswers
    from olmorl_cli.token_pass import Progress

REPORT_EXTRA = "pip install 'olmorl-cli[report]'"
Screen = Callable[["Console"], Iterator["RenderableType"]]
"""What a person sees of a result, on a given console."""


@dataclass(frozen=True)
class Destination:
    """Where a result goes and in which format.

    Attributes:
        format: one of table, jsonl, csv, parquet and arrow.
        output: path of the file, None for standard output.
        problems: path of the file that takes the problems of the data, None for none.
        quiet: no notes.
        recipes: names of recipes, some of them files that are read.
        folder: the output is a folder, or a URI, that takes a file for each part of the result.
    """

    format: str
    output: str | None
    problems: str | None
    quiet: bool
    recipes: tuple[str, ...] = ()
    folder: "Folder | None" = None

    @property
    def whole(self) -> bool:
        """Whether standard output waits for the whole result: a cut binary file can look like a short one."""
        return self.format in ("parquet", "arrow")

    def check(self, inputs: Sequence["Source"]) -> None:
        """Refuse to write over an input, or two things to one place.

        Raises:
            UsageError, OutputError: nothing can be written there.
        """
        from olmorl_cli.rollouts.target import check_target, same_target

        for path in (self.output, self.problems):
            if path is not None and any(same_target(path, recipe) for recipe in self.recipes if os.path.exists(recipe)):
                raise UsageError(f"{path}: it is an input, the recipe. Write to another file")
        if self.folder is not None:
            self.folder.check(inputs)
        else:
            check_target(self.output, inputs)
        if self.problems is not None:
            check_target(self.problems, inputs, "--problems")
            if same_target(self.problems, self.output):
                raise UsageError(f"{self.problems}: the result goes there. Write the problems to another file")


def destination_of(parameters: Mapping[str, Any], *, parts: bool = False) -> Destination:
    """The destination that a command's parameters name; its `check` is still to be called.

    Args:
        parameters: of the command.
        parts: the result can go to a folder, in parts.

    Raises:
        UsageError: they name none.
        InputError: a package that a URI needs is not installed.
    """
    from olmorl_cli.rollouts.folders import folder_of
    from olmorl_cli.rollouts.sources import is_uri
    from olmorl_cli.rollouts.target import FORMATS, format_of

    format, output, problems = (parameters[name] for name in ("format", "output", "problems"))
    output = None if output == "-" else output
    if format is not None:
        parse_choice("--format", format, FORMATS)
    _check_problems_file(problems)
    named = parameters.get("recipe") or ()
    recipes = (named,) if isinstance(named, str) else tuple(named)
    if parts and output and output.endswith("/"):
        chosen = parse_choice("--format, for a folder,", format or "parquet", ("parquet", "arrow"))
        return Destination(chosen, output, problems, parameters["quiet"], recipes, folder_of(output))
    terminal = output is None and sys.stdout is not None and sys.stdout.isatty()
    refused = not output or os.path.isdir(output) or output.endswith("/") or is_uri(output)  # `check` says so
    file = None if refused else output
    chosen = format_of(file, format) if file else format or ("table" if terminal else "jsonl")
    if terminal and chosen in ("parquet", "arrow"):
        raise UsageError(f"--format {chosen} is not for a terminal. Write to a file with -o, or into a pipe")
    return Destination(chosen, output, problems, parameters["quiet"], recipes)


def _check_problems_file(path: str | None) -> None:
    from olmorl_cli.rollouts.target import SUFFIXES

    if path == "-":
        raise UsageError("--problems takes a file, got -: standard output is for the result")
    if path is not None and SUFFIXES.get(os.path.splitext(path)[1].lower(), "jsonl") != "jsonl":
        raise UsageError(f"{path}: problems are written as JSON Lines. Call the file NAME.jsonl")


def page_destination(parameters: Mapping[str, Any]) -> Destination:
    """The destination of a page; its `check` is still to be called.

    Raises:
        UsageError: the parameters name no file for it.
        InputError: the packages that draw it are not installed.
    """
    from importlib.util import find_spec

    output, problems = parameters["output"], parameters["problems"]
    if output is None:  # of the parsers that the oldest typer goes with, one lets this through
        raise UsageError("Missing option '-o' / '--output'. See olmorl report --help")
    device = os.path.exists(output) and not os.path.isfile(output)
    if output == "-" or not (device or os.path.splitext(output)[1].lower() in (".html", ".htm")):
        raise UsageError(f"{output}: report writes a page. Call the file NAME.html")
    _check_problems_file(problems)
    if missing := [name for name in ("altair", "vl_convert") if find_spec(name) is None]:
        raise InputError(f"report: to draw it, the package {missing[0]} is needed. Install it with {REPORT_EXTRA}")
    return Destination("html", output, problems, parameters["quiet"])


@contextmanager
def problems_to(destination: Destination) -> Iterator[Problems]:
    """Problems to add to: they, or those of an error that ends the work inside, go to the destination's file for them.

    Raises:
        OutputError: they cannot be written.
    """
    found = Problems()
    try:
        yield found
    except DataError as error:
        _write_problems(destination.problems, error.problems)
        raise
    _write_problems(destination.problems, found)


def _write_problems(path: str | None, problems: Problems) -> None:
    if path is None:
        return
    from olmorl_cli.rollouts.target import open_target
    from olmorl_cli.rollouts.writer import write_records

    with open_target(path, whole=False) as sink:
        write_records([record for kind in problems.kinds() for record in kind.records()], "jsonl", sink, stream=False)


def write_result(destination: Destination, write: Callable[[IO[bytes], bool], None], screen: Screen) -> None:
    """Send a result to its destination: `write` for machine formats (its flag asks for a stream), `screen` for tables."""
    from olmorl_cli.rollouts.target import open_target

    if destination.format != "table":
        with open_target(destination.output, whole=destination.whole) as sink:
            write(sink, destination.output is None)
        return
    import io

    from olmorl_cli.display.text import console_for, show

    if destination.output is None:
        with open_target(None, whole=False):
            show(screen(console_for(sys.stdout)))
        return
    with open_target(destination.output, whole=False) as sink:
        text = io.TextIOWrapper(sink, encoding="utf-8", write_through=True)
        show(screen(console_for(text)), text)
        text.detach()


def write_folder(scored: "Scored", folder: "Folder", destination: Destination) -> None:
    """Send every input column, advantage and kept to a folder, and say in how many parts."""
    from olmorl_cli.parts import write_parts

    with progress_bar(destination.quiet, scored.rollouts.rows, len(scored.rollouts.fragments)) as progress:
        parts = write_parts(scored, folder, destination.format, progress)
    say(destination.quiet, [f"{parts} part{'s' * (parts != 1)} written to {folder.name}"])


def write_rows(table: "pa.Table", destination: Destination, screen: Screen) -> None:
    """Send the rows of a table to their destination."""
    from olmorl_cli.rollouts.writer import write_table

    write_result(destination, lambda sink, stream: write_table(table, destination.format, sink, stream=stream), screen)


def write_objectives(results: list["Objective"], records: list[dict[str, Any]], destination: Destination) -> None:
    """Send figures, a record each, to their destination; `results` are what they were made of."""
    from olmorl_cli.rollouts.writer import write_records

    def screen(console: "Console") -> Iterator["RenderableType"]:
        from olmorl_cli.display.objectives import objective_screen

        return objective_screen(results, console)

    write_result(destination, lambda sink, stream: write_records(records, destination.format, sink, stream=stream), screen)


def write_sums(result: "Objective", destination: Destination) -> None:
    """Send what each answer's tokens add up to, one row an answer, to its destination."""
    from olmorl_cli.results import sums_table

    table = sums_table(result)

    def screen(console: "Console") -> Iterator["RenderableType"]:
        from olmorl_cli.display.screens import rows_screen

        return rows_screen(table, table.num_rows, "answers", console)

    write_rows(table, destination, screen)


def write_top(scored: "ScoredAnswers", number: int, destination: Destination) -> None:
    """Send the answers of greatest weight, one row an answer, to their destination; as many each way in a table."""
    from olmorl_cli.top import top_answers

    top = top_answers(scored, number, each_way=destination.format == "table")

    def screen(console: "Console") -> Iterator["RenderableType"]:
        from olmorl_cli.display.tops import top_screen

        return top_screen(scored, top, console)

    write_rows(top.table, destination, screen)


def write_tokens(result: "Objective", skip: bool, destination: Destination) -> None:
    """Send the rows of tokens to their destination as they come; `skip` is what they were scored by."""
    from olmorl_cli.rollouts.writer import write_batches
    from olmorl_cli.token_rows import token_rows

    def write(sink: IO[bytes], stream: bool) -> None:
        beside = stream and sys.stdout is not None and sys.stdout.isatty()  # a bar would run through the rows
        with progress_bar(destination.quiet or beside, result.answers.rollouts.rows) as progress:
            as_text = destination.format in ("jsonl", "csv")
            schema, batches = token_rows(result, skip, dictionaries=as_text, progress=progress)
            write_batches(schema, batches, destination.format, sink, stream=stream)

    def screen(console: "Console") -> Iterator["RenderableType"]:
        import pyarrow as pa

        from olmorl_cli.display.screens import ROWS, rows_screen

        total = int(result.kept_sums.tokens.sum())
        schema, batches = token_rows(result, skip, dictionaries=total > 0, least=ROWS)  # no rows, no words
        first = pa.Table.from_batches(itertools.islice(batches, 1), schema)
        return rows_screen(first, total, "tokens", console)

    write_result(destination, write, screen)


def say(quiet: bool, notes: Sequence[str]) -> None:
    """Notes on standard error, a line each, on a terminal folded between words."""
    if not quiet:
        for note in notes:
            print_error(f"olmorl: note: {note}", folded=True)


def print_error(line: str, *, folded: bool = False) -> None:
    """One line on standard error, whatever its encoding and whatever the data put into it; no URI's secrets.

    Args:
        line: the words.
        folded: on a terminal, break it between words rather than anywhere.
    """
    if sys.stderr is None:
        return
    stream, text = sys.stderr, visible(without_secrets(line))
    try:
        shown = _folded(text) if folded and stream.isatty() else text
        stream.buffer.write(f"{shown}\n".encode(stream.encoding or "utf-8", "backslashreplace"))
        stream.flush()
    except OSError:
        discard(2)  # nobody can be told; the exit code still says it


def _folded(text: str) -> str:
    """Lines as wide as the terminal that standard error is, all but the first of them indented."""
    import shutil
    import textwrap

    width = shutil.get_terminal_size(os.get_terminal_size(sys.stderr.fileno())).columns or 80
    return textwrap.fill(text, max(width, 20), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def discard(descriptor: int) -> None:
    """Let what is still to be written to a standard stream go nowhere: Python would fail on it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def say_columns(quiet: bool, rollouts: "Rollouts") -> None:
    """On a terminal, which column plays which role."""
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        return
    shown = {role: "consecutive rows" if value is None else value for role, value in rollouts.columns().items()}
    pairs = (f"{role} = {' + '.join(v) if isinstance(v, list) else v}" for role, v in shown.items())
    print_error(f"olmorl: columns: {', '.join(pairs)}", folded=True)


@contextmanager
def progress_bar(quiet: bool, total: int, fragments: int = 0) -> Iterator["Progress | None"]:
    """A bar on standard error, on a terminal only, gone at the end.

    Args:
        quiet: there is none.
        total: rows to be done.
        fragments: their number, where rows are told a fragment at a time: the bar then counts them.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr)
    if console.is_dumb_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with PuttingBack(), Progress(*columns, console=console, transient=True) as progress:
        task, counted = progress.add_task("scoring", total=total), itertools.count(1)

        def advance(rows: int) -> None:
            count = f"scoring {min(next(counted), fragments)}/{fragments}" if fragments > 1 else None
            progress.update(task, advance=rows, description=count)

        yield advance
