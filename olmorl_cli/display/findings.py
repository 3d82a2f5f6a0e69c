"""What a person sees of the checks, and of where the gradient went."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from olmorl_cli.checks.examine import Examination
from olmorl_cli.checks.finding import Finding, States
from olmorl_cli.display.tables import INDENT, LAST, Column, bars_column, columns_table, hanging
from olmorl_cli.display.text import bar, number, plain, share

BAR = 10
STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}
"""Of a check that fired, by its severity."""
NAMES = {
    "all": "all",
    "masked": "masked",
    "unmasked": "unmasked",
    "zero_signal": "  in zero-signal groups",
    "clipped_low": "  clipped low",
    "clipped_high": "  clipped high",
    "cut": "  cut by the sampler",
    "live": "  live",
}
"""Of the lines that are shown."""


def waterfall_table(lines: Sequence[dict[str, Any]], console: Console) -> RenderableType:
    """Tokens and Σ |A| of each line, as shares of all tokens and of the unmasked ones, among which the others are."""
    of = {line["name"]: line for line in lines}
    parts = [line for line in lines if line["name"] not in ("all", "masked")]
    sums = {key: sum(line[key] for line in parts) for key in ("tokens", "mass")}
    shown = [of["all"], of["masked"], {"name": "unmasked"} | sums, *parts]
    columns = [
        Column("where tokens went", [Text(NAMES[line["name"]]) for line in shown]),
        Column("tokens", [Text(number(line["tokens"])) for line in shown], numeric=True),
    ]
    bars: list[Column] = []
    for key, name, ranks in (("tokens", "tokens", (1, 0)), ("mass", "|advantage|", (4, 2))):
        if key == "mass":
            cells = [Text(number(line["mass"])) for line in shown]
            columns.append(Column("sum of |advantage|", cells, numeric=True, rank=3))
        for rank, base, whole, rows in zip(ranks, ("all", "unmasked"), (of["all"], sums), (shown, shown[2:]), strict=True):
            cells = [Text("-")] * (len(shown) - len(rows)) + [Text(share(line[key], whole[key])) for line in rows]
            columns.append(Column(f"of {base} {name}", cells, numeric=True, rank=rank, written=False))
        drawn = [bar(line[key] / sums[key] if sums[key] else 0.0, BAR, console) for line in shown[2:]]
        bars.append(bars_column(f"unmasked {name}", ["", "", *drawn], "cyan", LAST + len(bars)))
    return columns_table([*columns, *bars], console)


def checks_lines(examination: Examination, console: Console) -> Iterator[RenderableType]:
    """What every check says: those that fired first, with what to do; then the others, and what they rest on."""
    findings = examination.findings
    count = {state: sum(finding.state is state for finding in findings) for state in States}
    answers = examination.answers.table.groups.size
    tokens = 0 if examination.tokens is None else examination.tokens.count
    units = f"{number(int(answers))} answers" + (f" and {number(tokens)} unmasked tokens" if tokens else "")
    said = (
        f"{count[States.FIRED] or 'none'} fired, {count[States.PASSED]} passed, {count[States.NOT_AVAILABLE]} not available"
    )
    yield Text(f"{len(findings)} checks of {units}: {said}", style="bold")
    for finding in sorted(findings, key=lambda finding: list(States).index(finding.state)):
        yield from _lines(finding, console)
        if finding.fired:
            yield ""


def _lines(finding: Finding, console: Console) -> Iterator[RenderableType]:
    """Its code, value, how it ended and what it says, indented where that is folded; what to do on a line of its own."""
    style = {States.FIRED: STYLES[finding.severity], States.PASSED: "green", States.NOT_AVAILABLE: "dim"}[finding.state]
    text = Text().append(finding.code, "bold")
    if finding.value is not None:
        text.append(f" {number(finding.value)}")
    text.append(f", {finding.severity if finding.fired else finding.state.replace('_', ' ')}: ", style)
    yield hanging(text.append_text(plain(finding.message, "" if finding.fired else "dim")), console)
    if finding.action:
        yield Padding(plain(finding.action, style if finding.fired else "dim"), (0, 0, 0, INDENT))
