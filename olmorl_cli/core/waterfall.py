"""Where the gradient went: from all tokens to those that move the policy."""

from dataclasses import dataclass

import numpy as np

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray, exact_sum
from olmorl_cli.core.tokens import BoolArray, TokenSums

LINES = ("all", "masked", "zero_signal", "clipped_low", "clipped_high", "cut", "live")
"""The first is what there is, the last what is left; those between are taken off in this order."""


@dataclass(frozen=True)
class Line:
    """One line: `name` is of `LINES`; tokens, and Σ |A| over them."""

    name: str
    tokens: int
    mass: float


def waterfall(advantages: FloatArray, kept: BoolArray, sums: TokenSums, recipe: Recipe) -> list[Line]:
    """Where the gradient of each token is lost, every token in one line, in tokens and in Σ |A|.

    all = masked + zero_signal + clipped_low + clipped_high + cut + live. Masked: the mask leaves the token out.
    zero_signal: its group's rewards are identical, and the recipe drops it. clipped_low and clipped_high: ρ < 1 - eps_low
    with A < 0, ρ > 1 + eps_high with A > 0: the bound holds the term (cispo's gradient goes on, so there it is none). cut:
    the sampler's weight is out of its bounds and set to 0 (truncated weights are not 0). A token's line is the first that
    fits. Tokens of unscorable answers are in none.

    Args:
        advantages: (N,), NaN for an unscorable answer.
        kept: bool (N,), the answer's group is kept.
        sums: of the answers' tokens, `masked` and the recipe's `Terms` among them.
        recipe: the bounds.
    """
    scorable = ~np.isnan(advantages)
    terms, masked = sums.by_terms[recipe.terms], np.zeros_like(sums.tokens) if sums.masked is None else sums.masked
    counted = scorable & kept if recipe.zero_signal_groups == "dropped" else scorable & (kept | (advantages != 0.0))
    clips = recipe.surrogate == "ratio_clip"
    removes = recipe.sampler_mode in ("mask", "keep_or_drop")
    negative, positive = advantages < 0.0, advantages > 0.0
    not_clipped = np.where(negative, terms.cut_not_below, np.where(positive, terms.cut_not_above, terms.cut))
    none = np.zeros_like(sums.tokens)
    taken = {
        "masked": np.where(scorable, masked, 0),
        "zero_signal": np.where(scorable & ~counted, sums.tokens, 0),
        "clipped_low": np.where(counted & negative, terms.below, 0) if clips else none,
        "clipped_high": np.where(counted & positive, terms.above, 0) if clips else none,
        "cut": np.where(counted, not_clipped if clips else terms.cut, 0) if removes else none,
    }
    whole = np.where(scorable, masked + sums.tokens, 0)
    counts: dict[str, IntArray] = {**taken, "live": whole - sum(taken.values(), none)}
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(advantages)
        masses = {name: exact_sum(np.where(counts[name] > 0, size * counts[name], 0.0)) for name in LINES[1:]}
    # The whole is the sum of its parts as they are written, so that they add up to the last digit.
    lines = [Line(name, int(counts[name].sum()), mass) for name, mass in masses.items()]
    return [Line("all", int(whole.sum()), sum(masses.values())), *lines]
