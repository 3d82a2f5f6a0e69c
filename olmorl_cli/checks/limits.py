"""What `--fail-on` asks for: checks that must not fire, or whose value must not be above a limit."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from olmorl_cli.checks.finding import CODES, Finding, States
from olmorl_cli.errors import UsageError

_LIMIT = re.compile(r"\s*([\w-]+)\s*(?:>\s*(\S+)\s*)?", re.ASCII)
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Limit:
    """A check by its code, and what its value may be at most; None where it must not fire."""

    code: str
    most: float | None


def parse_limits(texts: Sequence[str]) -> list[Limit]:
    """The limits that the option's values write, CODE or CODE>NUMBER.

    Raises:
        UsageError: one writes none.
    """
    return [_parsed(text) for text in texts]


def _parsed(text: str) -> Limit:
    match = _LIMIT.fullmatch(text)
    code, number = match.groups() if match else (text, None)
    if code not in CODES:
        raise UsageError(f"--fail-on takes CODE or 'CODE>NUMBER', got {text!r}. The codes are {', '.join(CODES)}")
    most = None if number is None else float(number) if _NUMBER.fullmatch(number) else math.nan
    if most is not None and not math.isfinite(most):
        raise UsageError(f"--fail-on {code}> takes a finite number, got {number!r}. The codes are {', '.join(CODES)}")
    return Limit(code, most)


def exceeded(limits: Sequence[Limit], findings: Sequence[Finding], file: str) -> tuple[list[str], list[str]]:
    """Which of the limits are exceeded, and which could not be judged; a line for each.

    Args:
        limits: what was asked for.
        findings: of all checks.
        file: what the input is called.
    """
    by_code = {finding.code: finding for finding in findings}
    errors: list[str] = []
    notes: list[str] = []
    for limit in dict.fromkeys(limits):
        finding = by_code[limit.code]
        if finding.state is States.NOT_AVAILABLE:
            notes.append(f"--fail-on {limit.code}: not available, so it does not fail: {finding.message}")
        elif limit.most is not None and finding.value is None:
            notes.append(f"--fail-on {limit.code}: there is no value to compare with {limit.most:g}: {finding.message}")
        elif limit.most is not None and finding.value is not None and finding.value > limit.most:
            errors.append(_line(file, f"{limit.code} is {finding.value:.6g}, above {limit.most:g}", finding))
        elif limit.most is None and finding.fired:
            errors.append(_line(file, f"{limit.code} fired", finding))
    return errors, notes


def _line(file: str, what: str, finding: Finding) -> str:
    return f"{file}: {what}: {finding.message}. {finding.action}".rstrip(". ")
