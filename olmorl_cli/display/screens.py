"""What a person sees of the answers, of the groups, and of what is in the files."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types
from rich.console import Console, RenderableType
from rich.text import Text

from olmorl_cli.core.advantages import GroupStatistics
from olmorl_cli.core.sums import exact_means
from olmorl_cli.display.findings import checks_lines, waterfall_table
from olmorl_cli.display.tables import LAST, Column, bars_column, columns_table, cut_line, facts, rank_in
from olmorl_cli.display.text import bar, beginning, number, plain, share, sparks
from olmorl_cli.inspection import Inspection
from olmorl_cli.rollouts.texts import plain_texts
from olmorl_cli.scoring import ScoredAnswers

ROWS = 20
"""Answers, groups or tokens that are shown."""
LEFT_OUT_LAST = (
    *("term terms", "kept", "reward", "step", "gradient", "tokens", "std", "ratio", "size", "min max", "clip_low clip_high"),
    *("clipped_low clipped_high", "approx_kl", "ratio_mean", "ratio_min ratio_max", "log_ratio"),
    *("sampler_ratio_mean", "sampler_ratio_min sampler_ratio_max", "sampler_abs_diff"),
)
"""Columns of rows that can be left out for want of room: the first of them last. Never ids and what the rows are for."""
BINS = 16
SPREAD = 8
"""Bins of one group's rewards."""
BAR = 16


def answers_screen(scored: ScoredAnswers, table: pa.Table, console: Console) -> Iterator[RenderableType]:
    """A summary of the run, then its first answers."""
    yield headline(scored)
    yield ""
    yield _group_shares(scored.statistics, console)
    yield ""
    yield _spreads(scored, console)
    yield ""
    yield _rows(table, console)
    yield from cut_line(table.num_rows, ROWS, "answers, in input order")


def groups_screen(scored: ScoredAnswers, table: pa.Table, console: Console) -> Iterator[RenderableType]:
    """A summary of the run, then its first groups with a bar for the mean reward."""
    yield headline(scored)
    yield ""
    yield _group_shares(scored.statistics, console)
    yield ""
    low, high = _range(scored.table.scores)
    what = "advantage" if scored.table.rewards is None else "reward"
    extent = f"{number(low)} to {number(high)}" if high > low else number(low)
    means = scored.statistics.mean[:ROWS]
    shares = [bar((mean - low) / (high - low) if high > low else 0.0, BAR // 2, console) for mean in means]
    spreads = _group_spreads(scored, low, high, console)
    of_means = bars_column(f"mean {what} {extent}", shares, "cyan")
    yield _rows(table, console, [of_means, bars_column(f"{what}s {extent}", spreads, "cyan", LAST + 1)])
    yield from cut_line(table.num_rows, ROWS, "groups, in input order")


def _group_spreads(scored: ScoredAnswers, low: float, high: float, console: Console) -> list[str]:
    """How the rewards of each of the first groups are spread between the least and the greatest of all."""
    scores, groups = scored.table.scores, scored.table.groups
    rows = np.flatnonzero((groups < ROWS) & np.isfinite(scores))
    size = high * 0.5 - low * 0.5 or 1.0
    bins = np.minimum((scores[rows] * 0.5 - low * 0.5) / size * SPREAD, SPREAD - 1).astype(np.int64)
    shown = min(ROWS, scored.statistics.size.size)
    counts = np.bincount(groups[rows] * SPREAD + bins, minlength=shown * SPREAD).reshape(shown, SPREAD)
    return [sparks(row, console) for row in counts.tolist()]


def rows_screen(table: pa.Table, total: int, what: str, console: Console) -> Iterator[RenderableType]:
    """The first rows of `total` ones, of `what`."""
    yield _rows(table, console)
    yield from cut_line(total, ROWS, f"{what}, in input order")


def inspection_screen(inspection: Inspection, console: Console) -> Iterator[RenderableType]:
    """What is in the files, the roles of their columns, the problems, where the gradient went, and the checks."""
    record = inspection.record
    sizes = ", ".join(f"{number(count)} of {size}" for size, count in record["group_sizes"].items())
    steps = record["steps"]
    for name, value in (
        ("files", ", ".join(record["files"])),
        ("format", ", ".join(record["format"])),
        ("answers", number(record["answers"])),
        ("groups", f"{number(record['groups'])}, {number(record['kept_groups'])} of them kept ({sizes})"),
        ("steps", "none" if steps is None else f"{number(steps['count'])}, {steps['first']} to {steps['last']}"),
        ("tokens", "no log-probs" if record["tokens"] is None else f"{number(record['tokens'])} unmasked"),
    ):
        yield Text(f"{name:<9}", style="bold").append_text(plain(value))
    yield ""
    choices = inspection.rollouts.choices
    cells = [
        (role, ", ".join(choice.columns), choice.why, ", ".join(choice.others) or "-") for role, choice in choices.items()
    ]
    ranks = {"role": 0, "column": 0, "why": 2, "could have been": 1}
    yield columns_table(
        [
            Column(name, [plain(row[at]) for row in cells], rank=rank, written=not rank)
            for at, (name, rank) in enumerate(ranks.items())
        ],
        console,
    )
    yield ""
    kinds = inspection.problems.kinds()
    for kind in kinds:
        yield Text(f"{kind.severity}: ", style="red" if kind.severity == "error" else "yellow").append_text(
            plain(kind.line())
        )
    if not any(kind.severity != "note" for kind in kinds):
        tokens = "" if record["tokens"] is None else f" and {number(record['tokens'])} unmasked tokens"
        yield Text(f"no fault of the data in {number(record['answers'])} answers{tokens}", style="green")
    if record["waterfall"] is not None:
        yield ""
        yield waterfall_table(record["waterfall"], console)
    yield ""
    yield from checks_lines(inspection.examination, console)


def headline(scored: ScoredAnswers) -> Text:
    """How many answers, groups and steps there are."""
    statistics, steps = scored.statistics, scored.table.steps
    sizes = np.unique(statistics.size)
    answers, groups = scored.table.groups.size, statistics.size.size
    of = "" if not sizes.size else f" of {sizes[0]}" if sizes.size == 1 else f" of {sizes[0]} to {sizes[-1]}"
    text = f"{number(answers)} answers in {number(groups)} groups{of}"
    if steps is not None and len(steps):
        text += f" over {number(len(steps))} step{'s' if len(steps) > 1 else ''}"
    return Text(text, style="bold")


def _group_shares(statistics: GroupStatistics, console: Console) -> RenderableType:
    """How many groups are kept, and which sort of sameness drops the others."""
    scored = statistics.count > 0
    dropped = scored & ~statistics.kept
    low = np.min(statistics.min, where=scored, initial=np.inf)
    high = np.max(statistics.max, where=scored, initial=-np.inf)
    at_high, at_low = dropped & (statistics.mean == high), dropped & (statistics.mean == low) & (low < high)
    total = statistics.size.size
    lines: list[tuple[Text, Text, Text]] = []
    bars: list[Text] = []
    for name, which, style in (
        ("kept", statistics.kept, "green"),
        (f"dropped: all {number(float(high))}", at_high, "yellow"),
        (f"dropped: all {number(float(low))}", at_low, "yellow"),
        ("dropped: all the same, between", dropped & ~at_high & ~at_low, "yellow"),
        ("dropped: nothing to score", ~scored, "red"),
    ):
        count = int(which.sum())
        if count or name == "kept":
            lines.append((Text(name), Text(number(count)), Text(share(count, total))))
            bars.append(Text(bar(count / total if total else 0.0, BAR, console), style=style))
    return facts(lines, console, bars)


def _spreads(scored: ScoredAnswers, console: Console) -> RenderableType:
    """How rewards and advantages are spread, as small histograms."""
    columns = [("advantage", scored.advantages)]
    if scored.table.rewards is not None:
        columns.insert(0, ("reward", scored.table.rewards))
    lines: list[tuple[Text, Text, Text]] = []
    for name, values in columns:
        finite = values[np.isfinite(values)]
        if not finite.size:
            continue
        low, high = _range(finite)
        with np.errstate(over="ignore"):
            spread = np.histogram(finite, BINS, (low, high))[0] if high > low and np.isfinite(high - low) else [finite.size]
        middle = float(exact_means(finite, finite.size)[0])
        extent = f"{number(low)} to {number(high)}, mean {number(middle)}"
        lines.append((Text(name), Text(sparks(map(int, spread), console), style="cyan"), Text(extent)))
    return facts(lines, console)


def _range(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    finite = np.isfinite(values)
    if not finite.any():
        return 0.0, 0.0
    return float(np.min(values, where=finite, initial=np.inf)), float(np.max(values, where=finite, initial=-np.inf))


def _rows(table: pa.Table, console: Console, bars: Sequence[Column] = ()) -> RenderableType:
    """The first rows of a result, ids as text, `kept` as a mark; and columns of bars for them."""
    first = table.slice(0, ROWS)
    columns = [
        Column(
            name,
            [_cell(value, name) for value in _values(column)],
            types.is_floating(column.type) or types.is_integer(column.type),
            rank_in(LEFT_OUT_LAST, name),
        )
        for name, column in zip(first.column_names, first.columns, strict=True)
    ]
    return columns_table([*columns, *bars], console)


def id_cells(column: pa.ChunkedArray) -> list[Text]:
    """The ids of a result's rows."""
    return [_cell(value, "group") for value in _values(column)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if types.is_dictionary(array.type):
        words: list[Any] = plain_texts(array.dictionary.take(array.indices)).to_pylist()
        return words
    values: list[Any] = array.to_pylist()
    return values


def _cell(value: Any, name: str) -> Text:
    if isinstance(value, bool) and name != "kept":
        return Text("yes", style="yellow") if value else Text("no")
    if isinstance(value, bool):
        return Text("kept", style="green") if value else Text("dropped", style="yellow")
    if value is None or isinstance(value, int | float):
        return Text(str(value) if isinstance(value, int) else number(value))
    return plain(beginning(value) if isinstance(value, str) else value)
