"""How far the sampler's log-probs lie from the old ones: over all tokens, their tail, and by place in the answer."""

import numpy as np

from olmorl_cli.core.sums import FloatArray, IntArray, exact_sum
from olmorl_cli.core.tokens import Tokens, Workspace, log_weights
from olmorl_cli.core.totals import Totals

STARTS = (0, 1, 4, 16, 64, 256, 1024)
"""First places of the buckets, counted among an answer's real tokens; its last token is a bucket of its own."""
BUCKETS = ("first token", "tokens 2-4", "5-16", "17-64", "65-256", "257-1,024", "1,025 on", "last token")

CONFIDENT = -0.7
"""Log-prob of the sampler from which on a token counts as a confident one: a probability of 1/2."""
FAR = 2.0
"""Nats by which the old log-prob of a confident token lies below the sampler's where the two disagree."""

_SHIFT = 16
_BINS = 1 << (32 - 1 - _SHIFT)
"""Of |d| as float32: its exponent and seven bits after the point, 128 bins to each power of two."""


class Mismatch:
    """d = logp_old - logp_sampler and w = exp(d) over the tokens that have both, gathered part by part.

    Attributes:
        whole: counts, sums and the spread of |d| over all tokens.
        by_place: the same of each of `BUCKETS`.
    """

    def __init__(self) -> None:
        self.whole, self.by_place = Totals(1), Totals(len(BUCKETS))

    def add(self, tokens: Tokens, workspace: Workspace) -> None:
        """Add the tokens of n answers; nothing where a column is missing."""
        if tokens.old is None or tokens.sampler is None:
            return
        segments, d = log_weights(tokens, workspace)
        sampler = tokens.sampler
        if sampler.size != d.size and tokens.has_sampler is not None:
            sampler = sampler[np.repeat(tokens.has_sampler, np.diff(tokens.offsets))]
        confident = sampler > CONFIDENT
        self.whole.count("tokens", d.size, None)
        self.whole.count("equal", int(np.count_nonzero(d == 0.0)), None)
        self.whole.count("confident", int(np.count_nonzero(confident)), None)
        self.whole.count("disagree", int(np.count_nonzero(confident & (d < -FAR))), None)
        self.whole.add("log_weight", segments.sum(d), None)
        with np.errstate(over="ignore", under="ignore"):
            k3 = np.subtract(np.expm1(d, out=workspace.array("growth", d.size)), d, out=workspace.array("growth", d.size))
        self.whole.add("k3", segments.sum(k3), None)
        size = np.abs(d, out=d)
        bins = size.astype(np.float32).view(np.int32) >> _SHIFT
        self.whole.tally("difference", bins.astype(np.int64), _BINS, None)
        self._add_places(size, segments.lengths)

    def _add_places(self, size: FloatArray, lengths: IntArray) -> None:
        """Add |d| (T,) of answers of these lengths to the buckets: one run of tokens for each answer and bucket."""
        ends = np.cumsum(lengths)
        inner = np.maximum(lengths - 1, 0)  # without the last token
        starts = np.minimum(np.array([*STARTS])[None, :], inner[:, None])
        counts = np.diff(starts, axis=1, append=inner[:, None])
        counts = np.concatenate((counts, (lengths > 0)[:, None]), axis=1)
        first = np.concatenate((starts, inner[:, None]), axis=1) + (ends - lengths)[:, None]
        filled = np.flatnonzero(counts.ravel())
        if not filled.size:
            return
        codes = filled % len(BUCKETS)
        self.by_place.count("tokens", counts.ravel()[filled], codes)
        self.by_place.add("difference", np.add.reduceat(size, first.ravel()[filled]), codes)

    def merge(self, other: "Mismatch") -> None:
        """Add another part."""
        self.whole.merge(other.whole)
        self.by_place.merge(other.by_place)

    def quantile(self, share: float) -> float:
        """The |d| at or below which `share` of the tokens lie, to 0.8 %; NaN without any."""
        bins, counts = self.whole.tallied("difference").whole()
        total = int(counts.sum())
        if not total:
            return float("nan")
        found = int(bins[np.searchsorted(counts.cumsum(), max(1.0, np.ceil(share * total)))])
        low, high = (np.array([found + step << _SHIFT], dtype=np.int32).view(np.float32)[0] for step in (0, 1))
        return float(low + high) / 2.0 if found else 0.0

    @property
    def tokens(self) -> int:
        """How many tokens have both log-probs."""
        return int(self.whole.counted("tokens")[0])

    def mean_difference(self) -> float:
        """Mean of |d|; NaN without any token."""
        return exact_sum(self.by_place.over("difference", 1.0)) / self.tokens if self.tokens else float("nan")

    def mean(self, name: str) -> float:
        """Mean over the tokens of `log_weight` or `k3`; NaN without any."""
        return float(self.whole.over(name, self.tokens)[0])
