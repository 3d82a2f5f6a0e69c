"""How sure a figure is: a bootstrap over groups, and a trend's test that allows for autocorrelation."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from olmorl_cli.core.sums import FloatArray, exact_means

RESAMPLES = 2000
MOST_UNITS = 4096
"""Units that are drawn from; more groups are put together at random into so many bundles first."""
LEAST_STEPS = 10
"""Steps below which no trend is tested."""


def mean_interval(values: FloatArray, level: float, seed: int = 0) -> tuple[float, float, float]:
    """Mean of the values, each of them a group's, and an interval around it by resampling groups.

    Args:
        values: float (n,), finite, at least one.
        level: share of the resampled means inside the interval, as 0.99.
        seed: of the random numbers; the same values in any order give the same interval.

    Returns:
        (mean, low, high), in the unit of the values. The percentile bootstrap; Efron, Tibshirani, An Introduction to the
        Bootstrap (1993), section 13.3.
    """
    rng = np.random.default_rng(seed)
    units = np.sort(values)
    sizes = np.ones(units.size)
    if units.size > MOST_UNITS:
        cuts = np.arange(MOST_UNITS) * units.size // MOST_UNITS
        units = np.add.reduceat(rng.permutation(units), cuts)
        sizes = np.diff(cuts, append=values.size).astype(np.float64)
    means = np.empty(RESAMPLES)
    for number in range(RESAMPLES):
        drawn = rng.integers(0, units.size, units.size)
        means[number] = units[drawn].sum() / sizes[drawn].sum()
    low, high = np.quantile(means, [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    return float(exact_means(values, values.size)[0]), float(low), float(high)


@dataclass(frozen=True)
class Trend:
    """A straight line through values of T steps.

    Attributes:
        change: of the line, from the first step to the last, in the unit of the values.
        error: standard error of the change, allowing for autocorrelation.
        effective: independent steps that the T ones are worth.
        limit: change beyond which, on either side, it is no chance at the level asked for.
    """

    change: float
    error: float
    effective: float
    limit: float


def trend(values: FloatArray, level: float) -> Trend | None:
    """Whether a series rises or falls: least squares, with the error widened by the residuals' autocorrelation.

    The lag-1 autocorrelation r of the residuals is corrected for its bias, r + (1 + 4 r) / T (Kendall, Biometrika 41,
    1954), and T steps count as T (1 - r) / (1 + r) independent ones (Bartlett, J. R. Stat. Soc. 98, 1935).

    Args:
        values: float (T,), one a step in order.
        level: of the two-sided test, as 0.99.

    Returns:
        None for fewer than `LEAST_STEPS` steps.
    """
    steps = values.size
    if steps < LEAST_STEPS:
        return None
    x = np.arange(steps) - (steps - 1) / 2.0
    spread = float(x @ x)
    slope = float(x @ values) / spread
    rest = values - values.mean() - slope * x
    squares = float(rest @ rest)
    r = float(rest[1:] @ rest[:-1]) / squares if squares > 0.0 else 0.0
    r = min(max(r + (1.0 + 4.0 * r) / steps, 0.0), 0.95)
    effective = max(steps * (1.0 - r) / (1.0 + r), 4.0)
    error = float(np.sqrt(squares / (steps - 2) / spread * (1.0 + r) / (1.0 - r))) * (steps - 1)
    return Trend(slope * (steps - 1), error, effective, error * _student((1.0 + level) / 2.0, effective - 2.0))


def _student(share: float, freedom: float) -> float:
    """Quantile of Student's t by its expansion in 1 / freedom (Abramowitz, Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(share)
    terms = (
        z,
        (z**3 + z) / 4.0,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96.0,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))
