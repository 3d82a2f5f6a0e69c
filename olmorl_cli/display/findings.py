"""What a person sees of the checks, and of where the gradient went."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from olmorl_cli.checks.examine import Examination
from olmorl_cli.checks.finding import Finding, States
from olmorl_cli.display.tables import WIDE, Column, columns_table
from olmorl_cli.display.text import bar, number, plain, share

BAR = 20
STYLES = {"error": "red", "warning": "yellow", "note": "cyan"}
"""Of a check that fired, by its severity."""
NAMES = {
    "all": "all tokens",
    "masked": "masked",
    "zero_signal": "in zero-signal groups",
    "clipped_low": "clipped low",
    "clipped_high": "clipped high",
    "cut": "cut by the sampler's bounds",
    "live": "live",
}
"""Of the waterfall's lines."""


def waterfall_table(lines: Sequence[dict[str, Any]], console: Console) -> RenderableType:
    """Tokens and Σ |A| of each line, as shares of all, with bars where there is room."""
    tokens, mass = lines[0]["tokens"], lines[0]["mass"]
    columns = [
        Column("tokens went", [Text(NAMES[line["name"]]) for line in lines]),
        Column("tokens", [Text(number(line["tokens"])) for line in lines], numeric=True),
        Column("share", [Text(share(line["tokens"], tokens)) for line in lines], numeric=True),
        Column("|advantage|", [Text(number(line["mass"])) for line in lines], numeric=True),
        Column("of it", [Text(share(line["mass"], mass)) for line in lines], numeric=True),
    ]
    if console.width >= WIDE + BAR:
        width = BAR if console.width >= WIDE + 2 * BAR else BAR // 2
        for name, key, whole in (("of tokens", "tokens", tokens), ("of |advantage|", "mass", mass)):
            bars = [bar(line[key] / whole if whole else 0.0, width, console) for line in lines]
            columns.append(Column(name, [Text(drawn, style="cyan") for drawn in bars]))
            if width < BAR:
                break
    return columns_table(columns, console)


def checks_lines(examination: Examination) -> Iterator[RenderableType]:
    """What every check says: those that fired first, with what to do; then the others, and what they rest on."""
    findings = examination.findings
    count = {state: sum(finding.state is state for finding in findings) for state in States}
    answers = examination.answers.table.groups.size
    tokens = 0 if examination.tokens is None else examination.tokens.count
    units = f"{number(int(answers))} answers" + (f" and {number(tokens)} tokens" if tokens else "")
    said = (
        f"{count[States.FIRED] or 'none'} fired, {count[States.PASSED]} passed, {count[States.NOT_AVAILABLE]} not available"
    )
    yield Text(f"{len(findings)} checks of {units}: {said}", style="bold")
    for finding in sorted(findings, key=lambda finding: list(States).index(finding.state)):
        yield _line(finding)


def _line(finding: Finding) -> Text:
    if finding.fired:
        head = Text(f"{finding.severity}: {finding.code}: ", style=STYLES[finding.severity])
        return head.append_text(plain(f"{finding.message}. {finding.action}"))
    passed = finding.state is States.PASSED
    head = Text(f"{'passed' if passed else 'not available'}: {finding.code}: ", style="green" if passed else "dim")
    said = f"{finding.message}. {finding.action}" if finding.action else finding.message
    return head.append_text(plain(said, "dim"))
