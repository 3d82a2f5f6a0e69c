"""What a person sees of the objective: of one, of one a batch, of one a recipe."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console, RenderableType
from rich.text import Text

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.display.tables import GAP, LAST, Column, bars_column, columns_table, cut_line, facts, rank_in
from olmorl_cli.display.text import bar, number, plain, trace
from olmorl_cli.objectives import Objective

ROWS = 100
"""Batches or recipes that are shown."""
BAR = 16
TRACED = ("objective", "kept_groups", "kept_tokens", "clip_low", "clip_high", "ratio_mean", "approx_kl")
"""Figures whose course over the rows is drawn."""
SHOWN = (
    *("objective", "change", "objective_all_groups", "kept_groups", "groups", "kept_tokens", "tokens", "effective_tokens"),
    *("clip_low", "clip_high", "ratio_min", "ratio_max", "approx_kl"),
)
"""Figures of a row, in the order of their columns."""
OF_RECIPES = ("change", "effective_tokens")
"""Those that only recipes have, beside each other."""
COMPARED = "change: of the objective, against the first recipe; effective tokens: counted tokens that no bound clips"
LEFT_OUT_LAST = (
    *("change", "kept_groups groups", "effective_tokens", "clip_low clip_high", "kept_tokens tokens", "approx_kl"),
    *("ratio_max", "ratio_min", "objective_all_groups"),
)
"""Those that can be left out for want of room: the first of them last."""


def objective_screen(results: list[Objective], console: Console) -> Iterator[RenderableType]:
    """The objective and its diagnostics: a block, or a row each where there are several."""
    rows = [row for result in results for row in result.rows]
    by = results[0].by
    if len(rows) == 1 and by is None:
        yield _figures(rows[0], results[0].recipe, console)
        return
    if by is not None and len(results) == 1 and len(rows) > 1:
        yield _traces(rows, console)
        yield ""
    shown = rows[:ROWS]
    columns = [Column(by, [plain(row[by]) for row in shown])] if by is not None else []
    if len(results) > 1:
        recipes = [result.recipe for result in results for _ in result.rows]
        columns += _compared(shown, recipes)
    else:
        columns += [_figure(key, [row[key] for row in shown]) for key in SHOWN if key not in OF_RECIPES]
    if by is not None:
        bars = [bar(row["kept_groups"] / max(row["groups"], 1), BAR // 2, console) for row in shown]
        columns.append(bars_column("groups kept", bars, "green"))
    yield columns_table(columns, console)
    if len(results) > 1:
        yield Text(COMPARED, style="dim")
    yield from cut_line(len(rows), ROWS, "rows")


def _figure(key: str, values: Sequence[float | None]) -> Column:
    cells = [Text(number(value)) for value in values]
    return Column(key.replace("_", " "), cells, numeric=True, rank=rank_in(LEFT_OUT_LAST, key))


def _traces(rows: Sequence[dict[str, Any]], console: Console) -> RenderableType:
    """The course of each figure over the rows, and between what it lies where there is room to say so."""
    lines = []
    for key in TRACED:
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None and np.isfinite(value)]
        lines.append((key.replace("_", " "), values, f"{number(min(known))} to {number(max(known))}" if known else "-"))
    names, extents = (max(len(line[at]) for line in lines) for at in (0, 2))
    room = console.width - names - extents - 2 * GAP
    said = room >= BAR
    room = min(console.width // 2, room) if said else console.width - names - GAP
    return facts(
        [
            (Text(name), Text(trace(values, room, console), style="cyan"), Text(extent if said else ""))
            for name, values, extent in lines
        ],
        console,
    )


def _compared(rows: Sequence[dict[str, Any]], recipes: Sequence[Recipe]) -> list[Column]:
    """The recipe of each row, its bounds where one recipe has several, and its figures, the objective against the first.

    Figures that are the same in every row are the first to be left out.
    """
    columns = [Column("recipe", [plain(row["recipe"]) for row in rows])]
    if len({row["recipe"] for row in rows}) < len(rows):
        columns += [_figure(key, [row[key] for row in rows]) for key in ("eps_low", "eps_high")]
    first, values = rows[0]["objective"], [row["objective"] for row in rows]
    changes = [Text("-" if first is None or v is None else f"{v - first:+.4g}") for v in values]
    effective = [_effective(row, recipe) for row, recipe in zip(rows, recipes, strict=False)]
    own = {
        "change": replace(_figure("change", []), cells=changes, written=False),
        "effective_tokens": replace(_figure("effective_tokens", effective), written=False),
    }
    for key in SHOWN:
        column = own[key] if key in own else _figure(key, [row[key] for row in rows])
        same = len(rows) > 1 and len({cell.plain for cell in column.cells}) == 1
        columns.append(replace(column, rank=column.rank + LAST) if same and column.rank else column)
    return columns


def _effective(row: dict[str, Any], recipe: Recipe) -> int | None:
    """Counted tokens that no bound clips."""
    if row["clip_low"] is None:
        return None
    counted: int = row["tokens" if recipe.zero_signal_groups == "kept" else "kept_tokens"]
    clipped: float = row["clip_low"] + row["clip_high"]
    return round(counted * (1.0 - clipped))


def _figures(row: dict[str, Any], recipe: Recipe, console: Console) -> RenderableType:
    lines: list[tuple[Text, Text, Text]] = []
    bars: list[Text] = []

    def line(name: str, value: str, more: str = "", drawn: float | None = None) -> None:
        lines.append((Text(name), plain(value, "bold"), Text(more)))
        bars.append(Text("" if drawn is None else bar(drawn, BAR, console)))

    groups = f"all {number(row['groups'])} groups"
    tokens, where = row["kept_tokens"], f"{number(row['kept_groups'])} kept groups"
    if recipe.zero_signal_groups == "kept":
        tokens, where = row["tokens"], groups
    line("objective", _exact(row["objective"]), f"over the {number(tokens)} counted tokens: unmasked, in {where}")
    everything = f"{number(row['tokens'])} unmasked tokens of {groups}, {number(row['answers'])} answers"
    line("  over all groups", _exact(row["objective_all_groups"]), everything)
    for key, what in (("clip_low", "ratio below the bound, A < 0"), ("clip_high", "ratio above the bound, A > 0")):
        line(key.replace("_", " "), _percent(row[key]), f"of the counted tokens: {what}", row[key] or 0.0)
    line("ratio mean", number(row["ratio_mean"]), f"{number(row['ratio_min'])} to {number(row['ratio_max'])}")
    if "ratio_p50" in row:
        most = f"{_between(row, 'ratio_p05', 'ratio_p95')} in 90 % of the counted tokens"
        line("ratio median", number(row["ratio_p50"]), most)
        line("", "", f"{_between(row, 'ratio_p01', 'ratio_p99')} in 98 %")
    line("approx kl", number(row["approx_kl"]), "mean of (ratio - 1) - log ratio")
    if "approx_kl_k1" in row:
        line("  k1", number(row["approx_kl_k1"]), "mean of -log ratio")
        line("  k2", number(row["approx_kl_k2"]), "mean of (log ratio)² / 2")
    if "sampler_ratio_mean" in row:
        extent = f"{number(row['sampler_ratio_min'])} to {number(row['sampler_ratio_max'])}"
        line("sampler ratio mean", number(row["sampler_ratio_mean"]), extent)
        if "sampler_outside" in row:
            line("sampler outside", _percent(row["sampler_outside"]), "of the counted tokens: ratio outside [1/2, 2]")
            line(
                "sampler |diff|",
                number(row["sampler_abs_diff"]),
                f"of log-probs; at most {number(row['sampler_abs_diff_max'])}",
            )
            line("sampler k3", number(row["sampler_k3"]), f"k1 {number(row['sampler_k1'])}")
        line("sampler ess", number(row["sampler_ess"]), "effective sample size, as a share of the counted tokens")
        if row["sampler_clip"] is not None:
            line("sampler clip", _percent(row["sampler_clip"]), "of the counted tokens: cut by the sampler's bounds")
    bounds = f"eps {number(row['eps_low'])} below, {number(row['eps_high'])} above; {row['aggregation']}"
    line("recipe", row["recipe"], bounds + ("; divided by the group's std" if row["normalize_std"] else ""))
    for role, column in row["columns"].items():
        columns = ", ".join(map(str, column)) if isinstance(column, list) else column
        lines.append((plain(role, "dim"), Text(""), plain("consecutive rows" if columns is None else columns, "dim")))
        bars.append(Text(""))
    return facts(lines, console, bars)


def _between(row: dict[str, Any], low: str, high: str) -> str:
    return f"{number(row[low])} to {number(row[high])}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.3f} %"


def _exact(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.10g}"
