"""Every check by its code."""

from collections.abc import Callable

import numpy as np

from olmorl_cli.checks import groups, steps, texts, tokens
from olmorl_cli.checks.evidence import Evidence
from olmorl_cli.checks.finding import CODES, Finding, not_available

CHECKS: dict[str, Callable[[Evidence], Finding]] = {
    "no_signal_step": steps.no_signal_step,
    "zero_signal": groups.zero_signal,
    "signal_thin": steps.signal_thin,
    "clip": tokens.clip,
    "mismatch": tokens.mismatch,
    "mismatch_position": tokens.mismatch_position,
    "length_reward": texts.length_reward,
    "truncated": texts.truncated,
    "duplicates": texts.duplicates,
    "components": groups.components,
    "group_identity": groups.group_identity,
    "advantage_formula": groups.advantage_formula,
    "trend": steps.trend_of_steps,
}


def findings_of(evidence: Evidence) -> list[Finding]:
    """What every check says, in the order of `CODES`."""
    if not evidence.groups.size:
        return nothing_of("there is no answer")
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return [CHECKS[code](evidence) for code in CODES]


def nothing_of(why: str) -> list[Finding]:
    """The same where none can say anything."""
    return [not_available(code, why) for code in CODES]
