"""What a check says."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

CODES = (
    *("no_signal_step", "zero_signal", "signal_thin", "clip", "mismatch", "mismatch_position", "length_reward"),
    *("truncated", "duplicates", "components", "group_identity", "advantage_formula", "trend"),
)
"""Of all checks, in the order in which they are shown."""


class States(StrEnum):
    """How a check ended."""

    FIRED = "fired"
    PASSED = "passed"
    NOT_AVAILABLE = "not_available"


@dataclass(frozen=True)
class Finding:
    """What one check says.

    Attributes:
        code: of the check.
        state: fired, passed, or not available, for want of a column or of data.
        severity: error, warning or note; how much it matters where it fires.
        value: what the check measured; the more of it, the worse. None where there is nothing to measure.
        n: units that it rests on (steps, groups, answers or tokens, as the message says).
        where: what lies behind it, by kind: ids of steps or groups, rows of the whole input, names of columns.
        message: what was found, with the limit.
        action: what to do about it.
        group_numbers: the numbers of the groups that `where` has the ids of: an id can come again in another step.
    """

    code: str
    state: States
    severity: str
    value: float | None
    n: int
    where: dict[str, list[Any]] = field(default_factory=dict)
    message: str = ""
    action: str = ""
    group_numbers: tuple[int, ...] = ()

    @property
    def fired(self) -> bool:
        """Whether it found what it looks for."""
        return self.state is States.FIRED

    def record(self) -> dict[str, Any]:
        """The finding as results show it."""
        shown = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "group_numbers"}
        return shown | {"state": str(self.state)}


SEVERITIES = dict.fromkeys(CODES, "warning") | {"no_signal_step": "error", "components": "note"}
"""How much each check matters where it fires, if it does not say otherwise."""


def found(
    code: str,
    fires: bool,
    value: float | None,
    n: int,
    message: str,
    action: str,
    *,
    where: dict[str, list[Any]] | None = None,
    group_numbers: Sequence[int] = (),
    severity: str | None = None,
) -> Finding:
    """What a check says that had what it needs; what lies behind it, and what to do, are said where it fires.

    A value that is NaN has come out of an overflow: the check can say nothing then.
    """
    if value is not None and value != value:
        return not_available(code, "its figures overflow", "Scale the rewards down")
    state = States.FIRED if fires else States.PASSED
    number = None if value is None else float(value)
    severity = severity or SEVERITIES[code]
    if not fires:
        return Finding(code, state, severity, number, n, {}, message)
    return Finding(code, state, severity, number, n, where or {}, message, action, tuple(group_numbers))


def not_available(code: str, why: str, action: str = "") -> Finding:
    """What a check says that lacks a column, or data."""
    return Finding(code, States.NOT_AVAILABLE, SEVERITIES[code], None, 0, {}, why, action)


def percent(share: float) -> str:
    """A share in words."""
    return f"{100.0 * share:.1f} %"


def counted(number: int, one: str) -> str:
    """How many there are of something, in words."""
    return f"{number:,} {one if number == 1 else one + 's'}"


def listed(values: Sequence[Any], total: int, most: int = 5) -> str:
    """The first few of `total` values, in words."""
    shown = ", ".join(map(str, values[:most]))
    return shown + (f" and {total - most} more" if total > most else "")
