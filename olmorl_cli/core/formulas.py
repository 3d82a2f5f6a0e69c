"""Which formula gives the advantages that somebody else has computed."""

import itertools
from dataclasses import dataclass

import numpy as np

from olmorl_cli.core.advantages import BoolArray, GroupStatistics, answer_advantages, answer_deviations
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray

CENTERS = ("group_mean", "leave_one_out_mean")
SCALES = ("group_std", "batch_std", "leave_one_out_std")
EPSILONS = (0.0, 1e-9, 1e-8, 1e-6, 1e-5, 1e-4)
"""Added to the deviation; 0 leaves answers undivided whose deviation is 0."""


@dataclass(frozen=True)
class Formula:
    """How advantages are made of rewards, by fields of `Recipe`, and how far they lie from the given ones.

    Attributes:
        center, scale, ddof, std_eps: (reward - center) / (deviation + std_eps); ddof and std_eps are None where `scale` is
            none.
        difference: greatest absolute difference from the given advantages, in their unit.
    """

    center: str
    scale: str
    ddof: int | None
    std_eps: float | None
    difference: float


def formulas_of(
    given: FloatArray,
    rewards: FloatArray,
    codes: IntArray,
    statistics: GroupStatistics,
    batches: IntArray,
) -> list[Formula]:
    """Every formula, and how far what it gives lies from the given advantages; the nearest first.

    Args:
        given: float64 (N,), the advantages of somebody else; NaN where there is none.
        rewards, codes: as `answer_advantages`, with the groups' `statistics`.
        batches: int (N,), the step of each answer.
    """
    compared = np.isfinite(given) & np.isfinite(rewards)
    found: list[Formula] = []
    for center in CENTERS:
        centred = answer_advantages(rewards, codes, statistics, Recipe(center=center))
        found.append(Formula(center, "none", None, None, _difference(given, centred, compared)))
        for scale, ddof in itertools.product(SCALES, (0, 1)):
            recipe = Recipe(center=center, scale=scale, ddof=ddof)
            deviations = answer_deviations(rewards, codes, statistics, recipe, batches)
            assert deviations is not None, "these scales divide"
            for eps in EPSILONS:
                divisor = deviations + eps
                with np.errstate(over="ignore", invalid="ignore"):
                    made = np.divide(centred, divisor, out=centred.copy(), where=divisor > 0.0)
                found.append(Formula(center, scale, ddof, eps, _difference(given, made, compared)))
    return sorted(found, key=lambda formula: formula.difference)


def _difference(given: FloatArray, made: FloatArray, compared: BoolArray) -> float:
    with np.errstate(invalid="ignore"):
        difference = float(np.max(np.abs(given - made), where=compared, initial=0.0))
    return difference if difference == difference else float("inf")
