"""What a person sees of the answers, groups and objective."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types
from rich.console import Console, RenderableType
from rich.text import Text

from olmorl_cli.core.advantages import GroupStatistics
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import exact_means
from olmorl_cli.display.findings import checks_lines, waterfall_table
from olmorl_cli.display.tables import GAP, WIDE, Column, columns_table, facts, fit
from olmorl_cli.display.text import bar, number, plain, share, sparks, trace
from olmorl_cli.inspection import Inspection
from olmorl_cli.rollouts.texts import plain_texts
from olmorl_cli.scoring import Objective, ScoredAnswers

ROWS = 20
"""Rows of a table that are shown."""
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
    yield from _cut(table.num_rows, "answers")


def groups_screen(scored: ScoredAnswers, table: pa.Table, console: Console) -> Iterator[RenderableType]:
    """A summary of the run, then its first groups with a bar for the mean reward."""
    yield headline(scored)
    yield ""
    yield _group_shares(scored.statistics, console)
    yield ""
    low, high = _range(scored.table.scores)
    means = scored.statistics.mean[:ROWS]
    bars = [bar((mean - low) / (high - low) if high > low else 0.0, BAR // 2, console) for mean in means]
    drawn = [Column("mean reward", [Text(text, style="cyan") for text in bars])]
    drawn.append(Column("rewards", [Text(text, style="cyan") for text in _group_spreads(scored, low, high, console)]))
    yield _rows(table, console, drawn)
    yield from _cut(table.num_rows, "groups")


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
    yield from _cut(total, what)


def objective_screen(results: list[Objective], console: Console) -> Iterator[RenderableType]:
    """The objective and its diagnostics: a block, or a row each where there are several."""
    rows = [row for result in results for row in result.rows]
    if len(rows) == 1 and results[0].by is None:
        yield _figures(rows[0], console)
        return
    by = results[0].by
    shown = rows[:ROWS]
    if by is not None and len(results) == 1 and len(rows) > 1:
        yield _traces(rows, console)
        yield ""
    columns = [Column(by, [plain(row[by]) for row in shown])] if by is not None else []
    if len(results) > 1:
        columns += _compared(shown)
    columns += [
        Column(key.replace("_", " "), [Text(number(row[key])) for row in shown], numeric=True)
        for key in ("objective", "objective_all_groups", "kept_groups", "groups", "kept_tokens", "tokens")
    ]
    if len(results) > 1:
        columns.append(Column("change", _changes(rows[0]["objective"], shown), numeric=True))
        effective = [_effective(row, result.answers.recipe) for result in results for row in result.rows][:ROWS]
        columns.append(Column("effective tokens", [Text(number(tokens)) for tokens in effective], numeric=True))
    columns += [
        Column(key.replace("_", " "), [Text(number(row[key])) for row in shown], numeric=True)
        for key in ("clip_low", "clip_high", "ratio_min", "ratio_max", "approx_kl")
    ]
    if by is not None:
        bars = [bar(row["kept_groups"] / max(row["groups"], 1), BAR // 2, console) for row in shown]
        kept = Column("kept", [Text(drawn, style="green") for drawn in bars])
        columns = [columns[0], kept, *columns[1:]] if fit([*columns, kept], console) else columns
    yield columns_table(columns, console)
    yield from _cut(len(rows), "rows")


TRACED = ("objective", "kept_groups", "kept_tokens", "clip_low", "clip_high", "ratio_mean", "approx_kl")
"""Figures whose course over the rows is drawn."""


def _traces(rows: Sequence[dict[str, Any]], console: Console) -> RenderableType:
    """The course of each figure over the rows, and between what it lies where there is room to say so."""
    names = [key.replace("_", " ") for key in TRACED]
    room = max(BAR, min(console.width // 2, console.width - max(map(len, names)) - 2 * GAP))
    lines: list[tuple[Text, ...]] = []
    for name, key in zip(names, TRACED, strict=True):
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None and np.isfinite(value)]
        line = (Text(name), Text(trace(values, room, console), style="cyan"))
        extent = f"{number(min(known))} to {number(max(known))}" if known else "-"
        lines.append((*line, Text(extent)) if console.width >= WIDE else line)
    return facts(lines, console)


def _compared(rows: Sequence[dict[str, Any]]) -> list[Column]:
    """The recipe of each row, and its bounds where one recipe has several."""
    columns = [Column("recipe", [plain(row["recipe"]) for row in rows])]
    if len({row["recipe"] for row in rows}) < len(rows):
        columns += [
            Column(key.replace("_", " "), [Text(number(row[key])) for row in rows], numeric=True)
            for key in ("eps_low", "eps_high")
        ]
    return columns


def _changes(first: float | None, rows: Sequence[dict[str, Any]]) -> list[Text]:
    """The objectives against the first one."""
    values = [row["objective"] for row in rows]
    return [Text("-" if first is None or v is None else f"{v - first:+.4g}") for v in values]


def _effective(row: dict[str, Any], recipe: Recipe) -> int | None:
    """Counted tokens that no bound clips."""
    if row["clip_low"] is None:
        return None
    counted: int = row["tokens" if recipe.zero_signal_groups == "kept" else "kept_tokens"]
    clipped: float = row["clip_low"] + row["clip_high"]
    return round(counted * (1.0 - clipped))


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
        ("tokens", "no log-probs" if record["tokens"] is None else number(record["tokens"])),
    ):
        yield Text(f"{name:<9}", style="bold").append_text(plain(value))
    yield ""
    choices = inspection.rollouts.choices
    cells = [
        (role, ", ".join(choice.columns), choice.why, ", ".join(choice.others) or "-") for role, choice in choices.items()
    ]
    names = ("role", "column", "why", "could have been")
    yield columns_table([Column(name, [plain(row[at]) for row in cells]) for at, name in enumerate(names)], console)
    yield ""
    kinds = inspection.problems.kinds()
    for kind in kinds:
        yield Text(f"{kind.severity}: ", style="red" if kind.severity == "error" else "yellow").append_text(
            plain(kind.line())
        )
    if not any(kind.severity != "note" for kind in kinds):
        tokens = "" if record["tokens"] is None else f" and {number(record['tokens'])} tokens"
        yield Text(f"no fault of the data in {number(record['answers'])} answers{tokens}", style="green")
    if record["waterfall"] is not None:
        yield ""
        yield waterfall_table(record["waterfall"], console)
    yield ""
    yield from checks_lines(inspection.examination)


def _figures(row: dict[str, Any], console: Console) -> RenderableType:
    lines: list[tuple[Text, ...]] = []

    def line(name: str, value: str, more: str = "") -> None:
        lines.append((Text(name), plain(value, "bold"), Text(more)))

    kept = f"{number(row['kept_tokens'])} tokens of {number(row['kept_groups'])} kept groups"
    line("objective", _exact(row["objective"]), kept)
    everything = f"{number(row['tokens'])} tokens of all {number(row['groups'])} groups, {number(row['answers'])} answers"
    line("  over all groups", _exact(row["objective_all_groups"]), everything)
    for key, what in (("clip_low", "ratio below the bound, A < 0"), ("clip_high", "ratio above the bound, A > 0")):
        value = row[key]
        drawn = f"{bar(value or 0.0, BAR, console)}  " if console.width >= WIDE else ""
        line(key.replace("_", " "), _percent(value), drawn + what)
    line("ratio mean", number(row["ratio_mean"]), f"{number(row['ratio_min'])} to {number(row['ratio_max'])}")
    if "ratio_p50" in row:
        line("ratio median", number(row["ratio_p50"]), f"{_between(row, 'ratio_p05', 'ratio_p95')} in 90 % of the tokens")
        line("", "", f"{_between(row, 'ratio_p01', 'ratio_p99')} in 98 %")
    line("approx kl", number(row["approx_kl"]), "mean of (ratio - 1) - log ratio")
    if "approx_kl_k1" in row:
        line("  k1", number(row["approx_kl_k1"]), "mean of -log ratio")
        line("  k2", number(row["approx_kl_k2"]), "mean of (log ratio)² / 2")
    if "sampler_ratio_mean" in row:
        extent = f"{number(row['sampler_ratio_min'])} to {number(row['sampler_ratio_max'])}"
        line("sampler ratio mean", number(row["sampler_ratio_mean"]), extent)
        if "sampler_outside" in row:
            line("sampler outside", _percent(row["sampler_outside"]), "share of tokens with a ratio outside [1/2, 2]")
            line(
                "sampler |diff|",
                number(row["sampler_abs_diff"]),
                f"of log-probs; at most {number(row['sampler_abs_diff_max'])}",
            )
            line("sampler k3", number(row["sampler_k3"]), f"k1 {number(row['sampler_k1'])}")
        line("sampler ess", number(row["sampler_ess"]), "effective sample size, as a share of the tokens")
        if row["sampler_clip"] is not None:
            line("sampler clip", _percent(row["sampler_clip"]), "share of tokens cut by the sampler's bounds")
    bounds = f"eps {number(row['eps_low'])} below, {number(row['eps_high'])} above; {row['aggregation']}"
    line("recipe", row["recipe"], bounds + ("; divided by the group's std" if row["normalize_std"] else ""))
    for role, column in row["columns"].items():
        columns = ", ".join(map(str, column)) if isinstance(column, list) else column
        lines.append((plain(role, "dim"), Text(""), plain("consecutive rows" if columns is None else columns, "dim")))
    return facts(lines, console)


def _between(row: dict[str, Any], low: str, high: str) -> str:
    return f"{number(row[low])} to {number(row[high])}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3f} %"


def _exact(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.10g}"


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
    lines: list[tuple[Text, ...]] = []
    for name, which, style in (
        ("kept", statistics.kept, "green"),
        (f"dropped: all {number(float(high))}", at_high, "yellow"),
        (f"dropped: all {number(float(low))}", at_low, "yellow"),
        ("dropped: all the same, between", dropped & ~at_high & ~at_low, "yellow"),
        ("dropped: nothing to score", ~scored, "red"),
    ):
        count = int(which.sum())
        if count or name == "kept":
            drawn = bar(count / total if total else 0.0, BAR, console) if console.width >= WIDE else ""
            lines.append((Text(name), Text(number(count)), Text(share(count, total)), Text(drawn, style=style)))
    return facts(lines, console)


def _spreads(scored: ScoredAnswers, console: Console) -> RenderableType:
    """How rewards and advantages are spread, as small histograms."""
    columns = [("advantage", scored.advantages)]
    if scored.table.rewards is not None:
        columns.insert(0, ("reward", scored.table.rewards))
    lines: list[tuple[Text, ...]] = []
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


def _rows(table: pa.Table, console: Console, extra: Sequence[Column] = ()) -> RenderableType:
    """The first rows of a result, ids as text, `kept` as a mark; `extra` columns as far as there is room for them."""
    first = table.slice(0, ROWS)
    columns = [
        Column(
            name,
            [_cell(value, name) for value in _values(column)],
            types.is_floating(column.type) or types.is_integer(column.type),
        )
        for name, column in zip(first.column_names, first.columns, strict=True)
    ]
    for each in extra:
        columns += [each] if fit([*columns, each], console) else []
    return columns_table(columns, console)


def id_cells(column: pa.ChunkedArray) -> list[Text]:
    """The ids of a result's rows."""
    return [_cell(value, "group") for value in _values(column)]


def _is_number(kind: pa.DataType) -> bool:
    return bool(types.is_floating(kind) or types.is_integer(kind))


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
    return plain(value)


def _cut(rows: int, what: str) -> Iterator[RenderableType]:
    if rows > ROWS:
        yield Text(f"the first {ROWS} of {number(rows)} {what}; all of them with -f jsonl, or -o FILE", style="dim")
