"""Whether olmorl and its peer came to the same numbers."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmarks.measure import Command, Run, program, run

TOLERANCE = 1e-9
"""Relative, of an objective; absolute, of an advantage."""


@dataclass(frozen=True)
class Agreement:
    """Whether the two agree, and in words how far."""

    holds: bool
    words: str


Check = Callable[[Command, Run, Command, Run], Agreement]
"""From olmorl's command and run and the peer's."""


def nothing(*_: Command | Run) -> Agreement:
    """Of programs that give no number."""
    return Agreement(True, "nothing to compare")


def same_answers(_: Command, ours: Run, __: Command, theirs: Run) -> Agreement:
    """Both have read as many answers."""
    expected, got = json.loads(ours.output)["answers"], json.loads(theirs.output)["answers"]
    return Agreement(expected == got, f"olmorl read {expected} answers, the peer {got}")


def same_objective(_: Command, ours: Run, __: Command, theirs: Run) -> Agreement:
    """Both objectives are the same number, but for rounding."""
    expected, got = (json.loads(run.output.splitlines()[0])["objective"] for run in (ours, theirs))
    if expected is None or got is None:
        return Agreement(expected is got, f"objective {expected}, the peer's {got}")
    difference = abs(got - expected) / (abs(expected) or 1.0)
    return Agreement(difference <= TOLERANCE, f"objective {expected!r}, the peer's {got!r}, {difference:.0e} of it apart")


def same_advantages(ours: Command, _: Run, theirs: Command, __: Run) -> Agreement:
    """Both files, the last word of each command, have the same rows in the same order."""
    found = json.loads(run(program("same_advantages", ours[-1], theirs[-1])).output)
    holds = found["same_columns"] and found["largest_difference"] <= TOLERANCE
    others = "equal" if found["same_columns"] else "NOT equal"
    return Agreement(holds, f"advantages at most {found['largest_difference']:.0e} apart, all other columns {others}")
