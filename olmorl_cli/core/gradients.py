"""From tokens to gradients: each token's term, and the derivative of the objective by the token's own new log-prob.

Held constant, as trainers do: old, sampler and reference log-probs, the sampler's weights, the mask, the advantages, and
cispo's ρ. On a bound itself a token counts as inside it, and has the derivative from there: PyTorch's `clamp`, and its
`minimum` of two branches that agree. (At ρ = dual_clip exactly, PyTorch's `maximum` halves it.) |d| has derivative 0 at 0.
"""

from dataclasses import dataclass

import numpy as np

from olmorl_cli.core.recipes import Recipe, Terms
from olmorl_cli.core.segments import Segments
from olmorl_cli.core.sums import FloatArray
from olmorl_cli.core.tokens import (
    BoolArray,
    Tokens,
    Workspace,
    log_ratios,
    most_if_negative,
    ratios,
    reaches_high,
    weighted,
    weights,
)


@dataclass(frozen=True)
class TokenTerms:
    """What one `Terms` makes of each token; every array is (T,).

    Attributes:
        log_ratio: log ρ, of the recipe's level and after its clamps, in nats.
        ratio: ρ.
        term: A f(ρ) by the sampler's weight, 0 where A is 0 and NaN where A is; an answer's add up to `answer_terms`.
        slope: derivative, by the token's new log-prob, of the sum of its answer's terms.
        clipped_low: ρ < 1 - eps_low and A < 0.
        clipped_high: ρ > 1 + eps_high and A > 0.
    """

    log_ratio: FloatArray
    ratio: FloatArray
    term: FloatArray
    slope: FloatArray
    clipped_low: BoolArray
    clipped_high: BoolArray


def token_terms(tokens: Tokens, terms: Terms, advantages: FloatArray) -> TokenTerms:
    """Every token's term and its slope; the formulas of the terms are in `term_sums`.

    With ρ = exp(logp_new - logp_old), dρ/dlogp_new = ρ, so that a term A f(ρ) w has the slope A ρ w where f(ρ) = ρ, and 0
    where a bound holds f. Of a sequence's ρ each token's log-prob moves log ρ by 1/|y|, and with it all terms: the slope is
    the mean of A ρ w over the answer (GSPO, arXiv 2507.18071, section 4.2). cispo's is clip(ρ) A w, ρ held constant (arXiv
    2506.13585, eq. 4).

    Args:
        tokens: with the log-probs that `terms` needs.
        terms: what is made of them.
        advantages: (n,), of each answer.

    Raises:
        ValueError: log-probs are missing.
    """
    segments = Segments(tokens.offsets)
    per_token = segments.spread(advantages)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        ratio, _ = ratios(tokens, terms, segments, Workspace())
        log_ratio, free = _log_ratios(tokens, terms, segments)
        weight = weights(tokens, terms, segments)[0] if terms.sampler_mode != "none" else None
        if terms.surrogate == "cispo":
            slope = np.clip(ratio, terms.ratio_low, terms.ratio_high)
            values = slope * tokens.new
        else:
            values = _clipped(ratio, terms, per_token > 0.0)
            slope = np.where((values == ratio) & free, ratio, 0.0)
        term = np.where(per_token == 0.0, 0.0, per_token * weighted(values, weight)) + 0.0  # no negative zero
        slope = np.where(per_token == 0.0, 0.0, per_token * weighted(slope, weight))
        if terms.surrogate != "cispo" and terms.ratio_level == "sequence_mean":
            slope = segments.spread(segments.mean(slope))
    return TokenTerms(
        log_ratio=log_ratio,
        ratio=ratio,
        term=term,
        slope=slope,
        clipped_low=(ratio < terms.ratio_low) & (per_token < 0.0),
        clipped_high=(ratio > terms.ratio_high) & (per_token > 0.0) & reaches_high(terms),
    )


def token_gradients(tokens: Tokens, recipe: Recipe, slope: FloatArray, answer_weights: FloatArray) -> FloatArray:
    """dJ/dlogp_new of every token, J the recipe's `objective`; float64 (T,).

    Args:
        tokens: as `token_terms`.
        recipe: its KL term is taken off.
        slope: (T,), of the terms.
        answer_weights: (n,), dJ/d the answer's sum of terms; where it is 0, so is the gradient.

    Raises:
        ValueError: the KL term has no reference log-probs.
    """
    weight = Segments(tokens.offsets).spread(answer_weights)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if recipe.kl is not None and recipe.kl_coefficient != 0.0:
            slope = slope - recipe.kl_coefficient * _kl_slopes(tokens, recipe.kl)
        return np.where(weight == 0.0, 0.0, weight * slope) + 0.0


def _clipped(ratio: FloatArray, terms: Terms, positive: BoolArray) -> FloatArray:
    """ratio_clip's f(ρ) as it counts by the sign of A, float64 (T,)."""
    high = terms.ratio_high if terms.delta is None else min(terms.ratio_high, terms.delta)
    if_negative = np.minimum(np.maximum(ratio, terms.ratio_low), most_if_negative(terms))
    return np.where(positive, np.minimum(ratio, high), if_negative)


def _log_ratios(tokens: Tokens, terms: Terms, segments: Segments) -> tuple[FloatArray, BoolArray]:
    """Log ρ, float64 (T,), and where no clamp holds it, bool (T,)."""
    log_ratio = log_ratios(tokens, terms, segments, Workspace())
    low = -np.inf if terms.log_ratio_low is None else terms.log_ratio_low
    high = np.inf if terms.log_ratio_high is None else terms.log_ratio_high
    clamped = np.clip(log_ratio, low, high)
    return clamped, clamped == log_ratio


def _kl_slopes(tokens: Tokens, estimator: str) -> FloatArray:
    """Derivative of the KL estimator by logp_new, d = logp_new - logp_ref: k1 1, k2 d, k3 1 - exp(-d), abs its sign."""
    if tokens.reference is None:
        raise ValueError("a KL term needs logp_ref")
    d = np.subtract(tokens.new, tokens.reference, dtype=np.float64)
    if estimator == "k1":
        return np.ones_like(d)
    if estimator == "k2":
        return d
    return -np.expm1(-d) if estimator == "k3" else np.sign(d)
