"""Further figures of the tokens, for those who ask: quantiles of the ratio, other estimators, the sampler's tails."""

from typing import Any

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.recipes import Terms
from olmorl_cli.core.segments import Segments
from olmorl_cli.core.sums import FloatArray, IntArray
from olmorl_cli.core.tokens import BoolArray, Tokens, Workspace, log_ratios, log_weights
from olmorl_cli.core.totals import Tally, Totals

QUANTILES = {"ratio_p01": 0.01, "ratio_p05": 0.05, "ratio_p50": 0.5, "ratio_p95": 0.95, "ratio_p99": 0.99}
"""Key → share of the tokens whose ratio is not above the figure."""

_LEAST_EXPONENT, _EXPONENTS, _MANTISSA_BITS = -24, 34, 7
_SHIFT = 23 - _MANTISSA_BITS
_FIRST = (127 + _LEAST_EXPONENT) << _MANTISSA_BITS
_MAGNITUDES = _EXPONENTS << _MANTISSA_BITS
BINS = 2 * _MAGNITUDES + 1
"""Of |log ρ| from 2**-24 to 2**10, 128 to each power of two, on both sides of 0."""


def bins_of(log_ratio: FloatArray) -> IntArray:
    """The bin of each log-ratio, int (T,), ascending with it."""
    bits = np.minimum(np.abs(log_ratio), 2.0**11).astype(np.float32).view(np.int32) >> _SHIFT
    magnitude = np.clip(bits - _FIRST + 1, 0, _MAGNITUDES).astype(np.int64)
    bins: IntArray = np.where(log_ratio < 0.0, -magnitude, magnitude) + _MAGNITUDES
    return bins


def quantiles(tally: Tally, batches: int, shares: npt.ArrayLike) -> FloatArray:
    """Log-ratios below which, or at which, `shares` (Q,) of the counted ones lie.

    Args:
        tally: how many lie in each bin of each batch.
        batches: their number, B.
        shares: in (0, 1].

    Returns:
        float64 (B, Q), the middle of the bin of the ⌈share · n⌉-th log-ratio: off by at most 0.4 % of it, and by 2**-24
        where it is that small. NaN for a batch without any.
    """
    cells, counts = tally.whole()
    below = np.concatenate(([0], np.cumsum(counts)))
    before, after = (below[np.searchsorted(cells, np.arange(batches + 1) * BINS)][part] for part in (np.s_[:-1], np.s_[1:]))
    rank = np.maximum(np.ceil(np.asarray(shares) * (after - before)[:, np.newaxis]), 1)
    found = np.searchsorted(below[1:], before[:, np.newaxis] + rank)
    bins = np.append(cells, 0)[np.minimum(found, cells.size)] % BINS
    return np.where((after > before)[:, np.newaxis], bin_middles()[bins], np.nan)


def bin_middles() -> FloatArray:
    """The log-ratio in the middle of each bin, float64 (BINS,), ascending."""
    magnitudes = np.arange(_MAGNITUDES) + _FIRST
    low, high = ((magnitudes + step << _SHIFT).astype(np.int32).view(np.float32).astype(np.float64) for step in (0, 1))
    middles = (low + high) / 2.0
    return np.concatenate((-middles[::-1], [0.0], middles))


class Diagnostics:
    """Further figures of B batches, gathered part by part.

    Attributes:
        terms: how the ratio is made.
        totals: of what the counted tokens have.
    """

    def __init__(self, terms: Terms, batches: int) -> None:
        self.terms = terms
        self.totals = Totals(batches)

    def add(self, tokens: Tokens, counted: BoolArray, batches: IntArray | None, workspace: Workspace) -> None:
        """Add the tokens of n answers.

        Args:
            tokens: theirs.
            counted: bool (n,), which answers count.
            batches: int (n,), the batch of each; None for one batch.
            workspace: memory to work in.
        """
        segments = Segments(tokens.offsets)
        log_ratio = log_ratios(tokens, self.terms, segments, workspace)
        if self.terms.log_ratio_low is not None or self.terms.log_ratio_high is not None:
            log_ratio = np.clip(log_ratio, self.terms.log_ratio_low, self.terms.log_ratio_high)
        rows = np.flatnonzero(counted)
        codes = None if batches is None else batches[rows]
        self.totals.count("tokens", segments.lengths[rows], codes)
        self.totals.add("log_ratio", segments.sum(log_ratio)[rows], codes)
        which, owners = _tokens_of(segments, counted, batches)
        self.totals.tally("log_ratio", bins_of(log_ratio if which is None else log_ratio[which]), BINS, owners)
        with np.errstate(over="ignore"):
            self.totals.add("log_ratio_squared", segments.sum(np.square(log_ratio))[rows], codes)
        if tokens.old is not None and tokens.sampler is not None:
            self._add_sampler(tokens, rows, codes, workspace)

    def _add_sampler(self, tokens: Tokens, rows: IntArray, codes: IntArray | None, workspace: Workspace) -> None:
        segments, log_weight = log_weights(tokens, workspace)
        with np.errstate(over="ignore"):
            k3 = np.expm1(log_weight) - log_weight
        difference = np.abs(log_weight)
        self.totals.count("sampler_tokens", segments.lengths[rows], codes)
        self.totals.count("outside", segments.count(difference > np.log(2.0))[rows], codes)
        self.totals.add("log_weight", segments.sum(log_weight)[rows], codes)
        self.totals.add("sampler_k3", segments.sum(k3)[rows], codes)
        self.totals.least("difference", -segments.max(difference)[rows], codes)

    def merge(self, other: "Diagnostics", batches: IntArray | None) -> None:
        """Add another part, whose batches are these `batches`; None: one to one."""
        self.totals.merge(other.totals, batches)

    def figures(self) -> dict[str, npt.NDArray[Any]]:
        """Key → value of each batch (B,), NaN where it is undefined."""
        totals, tokens = self.totals, self.totals.counted("tokens")
        with np.errstate(over="ignore"):
            ratios = np.exp(quantiles(totals.tallied("log_ratio"), totals.size, list(QUANTILES.values())))
        return {
            **dict(zip(QUANTILES, ratios.T, strict=True)),
            "approx_kl_k1": 0.0 - totals.over("log_ratio", tokens),
            "approx_kl_k2": totals.over("log_ratio_squared", tokens) / 2.0,
        }

    def sampler_figures(self) -> dict[str, npt.NDArray[Any]]:
        """The same of the sampler against old."""
        totals, tokens = self.totals, self.totals.counted("sampler_tokens")
        return {
            "sampler_outside": totals.share("outside", "sampler_tokens"),
            "sampler_abs_diff_max": -totals.lowest("difference", "sampler_tokens"),
            "sampler_k1": 0.0 - totals.over("log_weight", tokens),
            "sampler_k3": totals.over("sampler_k3", tokens),
        }


def _tokens_of(segments: Segments, counted: BoolArray, batches: IntArray | None) -> tuple[BoolArray | None, IntArray | None]:
    """Which tokens are of counted answers, bool (T,), None where all are; and the batch of each of those."""
    which = None if counted.all() else segments.spread(counted)
    if batches is None:
        return which, None
    owners: IntArray = segments.spread(batches)
    return which, owners if which is None else owners[which]
