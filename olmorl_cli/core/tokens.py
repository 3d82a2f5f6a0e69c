"""From tokens to answers: the per-answer sums that everything else reduces.

Every surrogate here is A · f(ρ), with one f for A > 0 and one for A < 0, and does nothing else with A than choose. So an
answer's sum of terms is A times a sum that needs no advantage, and one pass over the tokens serves every recipe whose
`Terms` are equal, whatever its advantages, groups and aggregation.

Tokens are flat: the real tokens of one answer after those of the answer before it, cut by offsets, never padded.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.recipes import Terms
from olmorl_cli.core.segments import Floats, Segments
from olmorl_cli.core.sums import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

_FAR = -0.5
"""Below this log-ratio exp(d) is taken anew: 1 + expm1(d) has lost bits by then."""
_LARGE = 8.0
"""Above this |log-ratio| the rounding error of the difference of two doubles is put back into the ratio."""


@dataclass(frozen=True)
class Tokens:
    """The real tokens of n answers, T in all; log-probs in nats, of any float type.

    Attributes:
        offsets: int (n + 1,), offsets[0] = 0; answer i has tokens offsets[i] .. offsets[i + 1] - 1.
        new: (T,).
        old, sampler, reference: (T,), or None where the input has no such column.
        has_sampler: bool (n,), false for an answer without sampler log-probs (its entries then stand for nothing).
        places: int (T,), where each token stands in its answer's list; None where nobody asks.
        masked: int (n,), tokens of each answer's list that the mask leaves out; None where there is no mask.
    """

    offsets: IntArray
    new: Floats
    old: Floats | None = None
    sampler: Floats | None = None
    reference: Floats | None = None
    has_sampler: BoolArray | None = None
    places: IntArray | None = None
    masked: IntArray | None = None


def _filled(size: int, value: float, kind: type[np.float64 | np.int64]) -> npt.NDArray[Any]:
    return np.full(size, value, kind) if value else np.zeros(size, kind)


class _Sums:
    """Arrays of one value an answer."""

    @classmethod
    def empty(cls, answers: int) -> Self:
        """What `answers` answers without a token have."""
        return cls(
            **{
                f.name: _filled(answers, f.metadata.get("start", 0.0), np.float64 if f.type is FloatArray else np.int64)
                for f in dataclasses.fields(cls)  # type: ignore[arg-type]
            }
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """The sums of the parts' answers, one part after another."""
        names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


@dataclass(frozen=True)
class TermSums(_Sums):
    """What one `Terms` makes of each answer; every array is (n,).

    Attributes:
        if_positive: Σ f(ρ) as it counts where A > 0.
        if_negative: Σ f(ρ) as it counts where A < 0.
        below, above: tokens with ρ < 1 - eps_low, with ρ > 1 + eps_high.
        ratio: Σ ρ.
        ratio_min, ratio_max: of ρ; inf and -inf without tokens.
        k3: Σ (ρ - 1) - log ρ.
        cut: tokens whose weight w lies outside [sampler_low, sampler_cap].
        cut_not_above, cut_not_below: those among them with ρ <= 1 + eps_high, with ρ >= 1 - eps_low.
        kl: Σ of the KL estimator.
    """

    if_positive: FloatArray
    if_negative: FloatArray
    below: IntArray
    above: IntArray
    ratio: FloatArray
    ratio_min: FloatArray = dataclasses.field(metadata={"start": np.inf})
    ratio_max: FloatArray = dataclasses.field(metadata={"start": -np.inf})
    k3: FloatArray
    cut: IntArray
    cut_not_above: IntArray
    cut_not_below: IntArray
    kl: FloatArray


@dataclass(frozen=True)
class SamplerSums(_Sums):
    """Sampler against old, w = exp(logp_old - logp_sampler), of each answer; every array is (n,).

    Attributes:
        tokens: tokens that have a sampler log-prob.
        weight, weight_squared: Σ w, Σ w².
        weight_min, weight_max: of w; inf and -inf without tokens.
        abs_diff: Σ |logp_old - logp_sampler|.
    """

    tokens: IntArray
    weight: FloatArray
    weight_squared: FloatArray
    weight_min: FloatArray = dataclasses.field(metadata={"start": np.inf})
    weight_max: FloatArray = dataclasses.field(metadata={"start": -np.inf})
    abs_diff: FloatArray


@dataclass(frozen=True)
class TokenSums:
    """What one pass over the tokens makes of n answers.

    Attributes:
        tokens: int (n,), real tokens of each answer.
        by_terms: the sums of each `Terms` asked for.
        sampler: sampler against old; None without a sampler column.
        masked: int (n,), tokens that the mask leaves out; None where nobody asks.
    """

    tokens: IntArray
    by_terms: Mapping[Terms, TermSums]
    sampler: SamplerSums | None = None
    masked: IntArray | None = None

    @classmethod
    def empty(cls, terms: Sequence[Terms], sampler: bool) -> "TokenSums":
        """The sums of no answers."""
        nothing, no_sampler = np.zeros(0, dtype=np.int64), SamplerSums.empty(0) if sampler else None
        return cls(nothing, {each: TermSums.empty(0) for each in terms}, no_sampler, nothing)

    @classmethod
    def joined(cls, parts: Sequence["TokenSums"]) -> "TokenSums":
        """The sums of the parts' answers, one part after another; at least one part."""
        samplers = [part.sampler for part in parts if part.sampler is not None]
        masked = [part.masked for part in parts if part.masked is not None]
        return cls(
            np.concatenate([part.tokens for part in parts]),
            {terms: TermSums.joined([part.by_terms[terms] for part in parts]) for terms in parts[0].by_terms},
            SamplerSums.joined(samplers) if samplers else None,
            np.concatenate(masked) if masked else None,
        )


class Workspace:
    """Memory that blocks of tokens share one after another: asking for it anew each time costs as much as the arithmetic."""

    def __init__(self) -> None:
        self._arrays: dict[str, FloatArray] = {}

    def array(self, name: str, size: int) -> FloatArray:
        """Float64 (size,) with no particular content; it is anybody's again at the next block."""
        if name not in self._arrays or self._arrays[name].size < size:
            self._arrays[name] = np.empty(size)
        return self._arrays[name][:size]


@dataclass(frozen=True)
class _Ratios:
    """ρ of the tokens of n answers, and what adds up of it whatever the surrogate; fields as those of `TermSums`.

    Attributes:
        per_token: ρ, (T,).
    """

    per_token: FloatArray
    sum: FloatArray
    min: FloatArray
    max: FloatArray
    k3: FloatArray


def term_sums(tokens: Tokens, terms: Terms, workspace: Workspace | None = None) -> TermSums:
    """The per-answer sums of `terms`.

    With u = min(ρ, delta), l = 1 - eps_low, h = 1 + eps_high and c = dual_clip, ratio_clip's term is
    min(uA, clip(ρ, l, h) A), and at least cA where A < 0, hence A f(ρ) with

        A > 0: f = min(ρ, h, delta)        A < 0: f = min(max(ρ, l), max(h, delta), c)

    and cispo's is A clip(ρ, l, h) logp_new. The sampler's weight multiplies f. Sources: PPO, arXiv 1707.06347, eq. 7;
    dual clip, arXiv 1912.09729, eq. 5; CISPO, arXiv 2506.13585, eq. 4-5; GSPO, arXiv 2507.18071, eq. 5-7.
    """
    return every_term_sums(tokens, [terms], workspace or Workspace())[terms]


def every_term_sums(tokens: Tokens, every: Sequence[Terms], workspace: Workspace) -> dict[Terms, TermSums]:
    """`term_sums` of each, the ratios that several have in common computed once."""
    segments, alike, found = Segments(tokens.offsets), dict[Any, list[Terms]](), {}
    for terms in every:
        alike.setdefault(terms.of_ratio, []).append(terms)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for same in alike.values():
            ratio, k3 = ratios(tokens, same[0], segments, workspace)
            k3_sum = np.maximum(segments.sum(k3), 0.0)
            shared = _Ratios(ratio, segments.sum(ratio), segments.min(ratio), segments.max(ratio), k3_sum)
            found.update({terms: _sums_of(tokens, terms, segments, shared, workspace) for terms in same})
    return found


def _sums_of(tokens: Tokens, terms: Terms, segments: Segments, shared: _Ratios, workspace: Workspace) -> TermSums:
    """The sums of `terms`, whose ratios are given."""
    weight, outside = weights(tokens, terms, segments) if terms.sampler_mode != "none" else (None, None)
    ratio = shared.per_token
    work = workspace.array("growth", ratio.size)
    high = terms.ratio_high if terms.delta is None else min(terms.ratio_high, terms.delta)
    if terms.surrogate == "cispo":
        np.clip(ratio, terms.ratio_low, terms.ratio_high, out=work)
        np.multiply(work, tokens.new, out=work)
        if_positive = if_negative = segments.sum(weighted(work, weight))
    else:  # one clip takes less time than a minimum or a maximum with a number
        if_positive = segments.sum(weighted(np.clip(ratio, -np.inf, high, out=work), weight))
        if_negative = segments.sum(weighted(np.clip(ratio, terms.ratio_low, most_if_negative(terms), out=work), weight))
    below = ratio < terms.ratio_low
    above = ratio > terms.ratio_high if reaches_high(terms) else np.zeros(ratio.size, dtype=np.bool_)
    never = np.zeros(segments.lengths.size, dtype=np.int64)
    return TermSums(
        if_positive=if_positive,
        if_negative=if_negative,
        below=segments.count(below),
        above=segments.count(above),
        ratio=shared.sum,
        ratio_min=shared.min,
        ratio_max=shared.max,
        k3=shared.k3,
        cut=never if outside is None else segments.count(outside),
        cut_not_above=never if outside is None else segments.count(outside & ~above),
        cut_not_below=never if outside is None else segments.count(outside & ~below),
        kl=_kl_sums(tokens, terms, segments),
    )


def reaches_high(terms: Terms) -> bool:
    """Whether the ratio, cut at delta, can lie above 1 + eps_high; cispo knows no delta."""
    return terms.surrogate == "cispo" or terms.delta is None or terms.delta > terms.ratio_high


def most_if_negative(terms: Terms) -> float:
    """The greatest f(ρ) where A < 0: min(max(h, delta), c)."""
    return min(
        np.inf if terms.delta is None else max(terms.ratio_high, terms.delta),
        np.inf if terms.dual_clip is None else terms.dual_clip,
    )


def sampler_sums(tokens: Tokens, workspace: Workspace | None = None) -> SamplerSums:
    """How far the sampler's log-probs lie from the old ones, per answer."""
    workspace = workspace or Workspace()
    if tokens.old is None or tokens.sampler is None:
        return SamplerSums.empty(tokens.offsets.size - 1)
    segments, log_weight = log_weights(tokens, workspace)
    with np.errstate(over="ignore", under="ignore"):
        weight = np.exp(log_weight, out=workspace.array("ratio", log_weight.size))
        return SamplerSums(
            tokens=segments.lengths,
            weight=segments.sum(weight),
            weight_min=segments.min(weight),
            weight_max=segments.max(weight),
            abs_diff=segments.sum(np.abs(log_weight, out=log_weight)),
            weight_squared=segments.sum(np.multiply(weight, weight, out=weight)),
        )


def log_weights(tokens: Tokens, workspace: Workspace) -> tuple[Segments, FloatArray]:
    """Log w = logp_old - logp_sampler of the tokens that have a sampler log-prob, float64; the segments are theirs."""
    if tokens.old is None or tokens.sampler is None:
        raise ValueError("the sampler's weight needs logp_old and logp_sampler")
    segments, old, sampler = Segments(tokens.offsets), tokens.old, tokens.sampler
    if tokens.has_sampler is not None and not tokens.has_sampler.all():
        present = segments.spread(tokens.has_sampler)
        segments = Segments(np.concatenate(([0], np.cumsum(segments.lengths * tokens.has_sampler))))
        old, sampler = old[present], sampler[present]
    return segments, np.subtract(old, sampler, out=workspace.array("log", old.size), dtype=np.float64)


def log_ratios(tokens: Tokens, terms: Terms, segments: Segments, workspace: Workspace) -> FloatArray:
    """Log ρ of each token, of the recipe's level and before its clamps, float64 (T,)."""
    base = tokens.old if terms.ratio == "old" else tokens.sampler
    if base is None:
        raise ValueError(f"the ratio against {terms.ratio} needs logp_{terms.ratio}")
    log_ratio = np.subtract(tokens.new, base, out=workspace.array("log", tokens.new.size), dtype=np.float64)
    return segments.spread(segments.mean(log_ratio)) if terms.ratio_level == "sequence_mean" else log_ratio


def ratios(tokens: Tokens, terms: Terms, segments: Segments, workspace: Workspace) -> tuple[FloatArray, FloatArray]:
    """ρ and (ρ - 1) - log ρ of each token, float64 (T,)."""
    size = tokens.new.size
    log_ratio = log_ratios(tokens, terms, segments, workspace)
    base = tokens.old if terms.ratio == "old" else tokens.sampler
    lost = None
    if base is not None and terms.ratio_level == "token" and tokens.new.dtype == base.dtype == np.float64:
        lost = _lost_bits(tokens.new, base, log_ratio)
    if terms.log_ratio_low is not None or terms.log_ratio_high is not None:
        np.clip(log_ratio, terms.log_ratio_low, terms.log_ratio_high, out=log_ratio)
        lost = None
    growth = np.expm1(log_ratio, out=workspace.array("growth", size))  # keeps the digits of ρ - 1 that rounding drops
    ratio = np.add(growth, 1.0, out=workspace.array("ratio", size))
    if (far := np.flatnonzero(log_ratio < _FAR)).size:
        ratio[far] = np.exp(log_ratio[far])
    k3 = np.subtract(growth, log_ratio, out=growth)
    if lost is not None:
        at, error = lost
        ratio[at] *= 1.0 + error
        k3[at] = ratio[at] - 1.0 - log_ratio[at]
    return ratio, k3


def _lost_bits(a: Floats, b: Floats, difference: FloatArray) -> tuple[IntArray, FloatArray] | None:
    """Where |a - b| is large: the places, and the rounding errors of fl(a - b) (Knuth's TwoSum)."""
    if difference.size == 0 or -_LARGE <= difference.min() <= difference.max() <= _LARGE:
        return None
    at = np.flatnonzero((np.abs(difference) > _LARGE) & np.isfinite(difference))
    x, y, total = a[at], -b[at], difference[at]
    back = total - x
    return at, (x - (total - back)) + (y - back)


def weights(tokens: Tokens, terms: Terms, segments: Segments) -> tuple[FloatArray, BoolArray]:
    """The factor of each token's term, float64 (T,), and where w lies outside its bounds, bool (T,)."""
    if tokens.old is None or tokens.sampler is None:
        raise ValueError("a sampler correction needs logp_old and logp_sampler")
    log_weight = np.subtract(tokens.old, tokens.sampler, dtype=np.float64)
    if terms.sampler_level == "sequence_product":
        log_weight = segments.spread(segments.sum(log_weight))
    elif terms.sampler_level == "sequence_geometric_mean":
        log_weight = segments.spread(segments.mean(log_weight))
    if terms.sampler_log_clamp is not None:
        np.clip(log_weight, -terms.sampler_log_clamp, terms.sampler_log_clamp, out=log_weight)
    weight = np.exp(log_weight, out=log_weight)
    low = 0.0 if terms.sampler_low is None else terms.sampler_low
    cap = np.inf if terms.sampler_cap is None else terms.sampler_cap
    outside = (weight < low) | (weight > cap)
    if terms.sampler_mode == "truncate":
        np.clip(weight, low, cap, out=weight)
    elif terms.sampler_mode == "mask":
        weight[outside] = 0.0
    else:
        weight = (~outside).astype(np.float64)
    if tokens.has_sampler is not None and not tokens.has_sampler.all():
        absent = ~segments.spread(tokens.has_sampler)
        weight[absent], outside[absent] = 1.0, False
    return weight, outside


def weighted(values: FloatArray, weight: FloatArray | None) -> FloatArray:
    """Multiply `values` by the weight in place: 0 wherever the weight is 0, also beside an infinite value."""
    if weight is not None:
        np.multiply(values, weight, out=values)
        values[weight == 0.0] = 0.0
    return values


def _kl_sums(tokens: Tokens, terms: Terms, segments: Segments) -> FloatArray:
    """Σ of the KL estimator of each answer, d = logp_new - logp_ref: k1 d, k2 d²/2, k3 exp(-d) - 1 + d, abs |d|."""
    if terms.kl is None:
        return np.zeros(segments.lengths.size)
    if tokens.reference is None:
        raise ValueError("a KL term needs logp_ref")
    d = np.subtract(tokens.new, tokens.reference, dtype=np.float64)
    if terms.kl == "k2":
        d = d * d / 2.0
    elif terms.kl == "k3":
        d = np.expm1(-d) + d
    elif terms.kl == "abs":
        d = np.abs(d)
    return segments.sum(d)
