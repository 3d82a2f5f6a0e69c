"""Checks of tokens: what the clip takes, and how far the sampler lies from the trainer."""

import numpy as np

from olmorl_cli.checks.evidence import Evidence
from olmorl_cli.checks.finding import Finding, found, not_available, percent
from olmorl_cli.core.mismatch import BUCKETS, Mismatch
from olmorl_cli.core.sums import exact_sum

MOST_CLIPPED = 0.2
"""Share of Σ |A| that the clip may take."""

MOST_DIFFERENCE, MOST_TAIL = 0.05, 0.5
"""Nats: of the mean |logp_old - logp_sampler|, and of the 99th percentile."""
MOST_K3, MOST_OFF, LEAST_SAMPLE = 0.01, 0.05, 0.5
"""Of the weights w = exp(logp_old - logp_sampler): the mean of (w - 1) - log w, how far their mean may lie from 1, and the
effective sample size as a share of the tokens."""
MOST_DISAGREED, LEAST_DISAGREED = 1e-4, 3
"""Of the tokens that the sampler is sure of: the share, and the number, that the trainer may disagree on."""

LEAST_TOKENS, LEAST_BUCKETS = 100, 4
"""Tokens that make a bucket of places count, and buckets that must."""
MOST_SHARE, MOST_TIMES = 0.45, 3.0
"""Of one bucket: its share of Σ |logp_old - logp_sampler|, and how many times the others' mean its own may be."""


def clip(e: Evidence) -> Finding:
    """What the clip takes: of tokens on the side where it binds, and of Σ |A|."""
    code, terms = "clip", e.terms
    if terms is None or e.sums is None:
        lacking = sorted(e.recipe.needs - set(e.columns))
        return _lacking(code, lacking or ["logp_new", "logp_old"])
    if e.old_equals_new:
        return not_available(code, "old equals new: every ratio is 1", "Name the log-probs after the update with --logp-new")
    size, tokens = np.where(e.kept, np.abs(e.advantages), 0.0), e.sums.tokens
    negative, positive = e.kept & (e.advantages < 0.0), e.kept & (e.advantages > 0.0)
    clipped = np.where(negative, terms.below, 0) + np.where(positive, terms.above, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        whole, lost = (
            exact_sum(np.where(tokens > 0, size * tokens, 0.0)),
            exact_sum(np.where(clipped > 0, size * clipped, 0.0)),
        )
    n = int(tokens[negative | positive].sum())
    if not n or not whole > 0.0:
        return not_available(code, "no token has an advantage other than 0")
    share = lost / whole
    sides = [
        f"{_share(terms.below, tokens, negative)} of the {int(tokens[negative].sum()):,} with A < 0 lie below the bound",
        f"{_share(terms.above, tokens, positive)} of the {int(tokens[positive].sum()):,} with A > 0 above",
    ]
    message = (
        f"the clip takes {percent(share)} of the counted tokens' sum of |advantage| (limit {percent(MOST_CLIPPED)}); of the"
        f" counted tokens, those unmasked in kept groups, {', '.join(sides)}"
    )
    action = "Make fewer updates a batch, lower the learning rate, or widen the bounds"
    return found(code, share > MOST_CLIPPED, share, n, message, action)


def _share(counts: np.ndarray, tokens: np.ndarray, where: np.ndarray) -> str:
    return percent(int(counts[where].sum()) / max(int(tokens[where].sum()), 1))


def _lacking(code: str, roles: list[str]) -> Finding:
    options = " and ".join(f"--{role.replace('_', '-')}" for role in roles)
    return not_available(
        code, f"no column of {' and '.join(roles)}", f"Name {'it' if len(roles) == 1 else 'them'} with {options}"
    )


def mismatch(e: Evidence) -> Finding:
    """Sampler against old: the bulk, the weights, and confident disagreements; two of the three must agree."""
    code = "mismatch"
    if isinstance(measured := _measured(e, code), Finding):
        return measured
    n = measured.tokens
    difference, tail = float(measured.mean_difference()), measured.quantile(0.99)
    k3, k1 = measured.mean("k3"), -measured.mean("log_weight")
    mean, sample = _weights(e)
    sure, disagreed = (int(measured.whole.counted(name)[0]) for name in ("confident", "disagree"))
    rate = disagreed / sure if sure else 0.0
    bulk = difference > MOST_DIFFERENCE or tail > MOST_TAIL
    weights = not k3 <= MOST_K3 or not abs(mean - 1.0) <= MOST_OFF or sample < LEAST_SAMPLE
    disagree = rate > MOST_DISAGREED and disagreed >= LEAST_DISAGREED
    message = (
        f"|logp_old - logp_sampler| over {n:,} unmasked tokens with both: mean {difference:.3g} (limit {MOST_DIFFERENCE:g}),"
        f" 99 % within {tail:.3g} (limit {MOST_TAIL:g}); weights: k3 {k3:.3g} (limit {MOST_K3:g}), k1 {k1:.3g}, mean"
        f" {mean:.4g} (limit {MOST_OFF:g} from 1), effective sample {percent(sample)} of these tokens (limit"
        f" {percent(LEAST_SAMPLE)}); {disagreed:,} of {sure:,} confident tokens disagree (limit {MOST_DISAGREED:g} of them"
        f" and {LEAST_DISAGREED}); it takes two of these three to fire"
    )
    action = "Check that sampler and trainer have the same weights, temperature and numeric type, or cap the weights"
    return found(code, sum((bulk, weights, disagree)) >= 2, k3, n, message, action)


def _measured(e: Evidence, code: str) -> Mismatch | Finding:
    """The mismatch, or why there is none."""
    if e.mismatch is None:
        return _lacking(code, [role for role in ("logp_old", "logp_sampler") if role not in e.columns] or ["logp_sampler"])
    if not e.mismatch.tokens:
        return not_available(code, "no token has log-probs of both the sampler and the old policy")
    if int(e.mismatch.whole.counted("equal")[0]) == e.mismatch.tokens:
        why = f"the sampler's log-probs equal the old ones at all {e.mismatch.tokens} tokens: the same ones, written twice?"
        return not_available(code, why, "Name others with --logp-sampler and --logp-old")
    return e.mismatch


def _weights(e: Evidence) -> tuple[float, float]:
    """The mean of w, and the effective sample size as a share."""
    assert e.sums is not None, "the mismatch was measured along with the sums"
    assert e.sums.sampler is not None, "the mismatch was measured along with the sampler's sums"
    sampler = e.sums.sampler
    n = max(int(sampler.tokens.sum()), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, squares = exact_sum(sampler.weight) / n, exact_sum(sampler.weight_squared) / n
        return mean, float(np.divide(mean * mean, squares)) if np.isfinite(squares) and squares > 0.0 else 0.0


def mismatch_position(e: Evidence) -> Finding:
    """Whether one place in the answers has most of the mismatch."""
    code = "mismatch_position"
    if isinstance(measured := _measured(e, code), Finding):
        return measured
    tokens, sums = measured.by_place.counted("tokens"), measured.by_place.over("difference", 1.0)
    if int((tokens >= LEAST_TOKENS).sum()) < LEAST_BUCKETS:
        return not_available(
            code, f"fewer than {LEAST_BUCKETS} ranges of places have {LEAST_TOKENS} tokens: answers are short"
        )
    total, n = float(sums.sum()), int(tokens.sum())
    others = (total - sums) / np.maximum(n - tokens, 1)
    own = sums / np.maximum(tokens, 1)
    times = np.divide(own, others, out=np.zeros(own.size), where=others > 0.0)
    share = sums / total
    worst = int(np.argmax(np.where(tokens >= LEAST_TOKENS, times, -1.0)))
    fires = share[worst] > MOST_SHARE and times[worst] > MOST_TIMES and own[worst] > MOST_DIFFERENCE
    message = (
        f"the greatest mean |logp_old - logp_sampler|, {own[worst]:.3g}, is that of the {BUCKETS[worst]}: {times[worst]:.1f}"
        f" times that of the others, {percent(share[worst])} of the sum in {percent(tokens[worst] / n)} of the unmasked"
        f" tokens with both (limits: a mean of {MOST_DIFFERENCE:g}, {MOST_TIMES:g} times, {percent(MOST_SHARE)} of the sum,"
        " all three)"
    )
    action = "First tokens: compare the templates. Last ones: compare how the end of an answer, or its cut, is scored"
    return found(code, bool(fires), float(times[worst]), n, message, action, where={"places": [BUCKETS[worst]]})
