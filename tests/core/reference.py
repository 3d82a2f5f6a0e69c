"""A slow reference for the core: the papers' formulas, one answer and one token at a time, in exact arithmetic.

Rewards are Fractions, log-probs and ratios Decimals of 60 digits. It is written from the papers and shares no code with
the package; `settings` is anything with a recipe's fields. Formulas are from:

- group-relative advantage: DeepSeekMath, arXiv 2402.03300, section 4.1.2; OLMo 3, arXiv 2512.13961, section 4.4.1;
- leave-one-out baseline: RLOO, arXiv 2402.14740, eq. 7;
- min(ρA, clip(ρ)A): PPO, arXiv 1707.06347, eq. 7; two bounds: DAPO, arXiv 2503.14476, eq. 8;
- dual clip, max(min(...), cA) where A < 0: arXiv 1912.09729, eq. 5; cap on the unclipped ρ: INTELLECT-2, arXiv 2505.07291;
- clip(ρ) A log π, ρ held constant: CISPO, arXiv 2506.13585, eq. 4; ρ of a sequence: GSPO, arXiv 2507.18071, eq. 7;
- k1, k2, k3 of d = log π - log π_ref: Schulman, "Approximating KL divergence".
"""

import math
from decimal import Context, Decimal, localcontext
from fractions import Fraction

DIGITS_60 = Context(prec=60)


def mean(values):
    """Σ x / n, a Fraction."""
    total = Fraction(0)
    for value in values:
        total += Fraction(value)
    return total / len(values)


def deviation(values, ddof):
    """sqrt(Σ (x - mean)² / (n - ddof)) to 60 digits, a Fraction; 0 where one value or none is left to vary."""
    if len(values) <= ddof:
        return Fraction(0)
    center, squares = mean(values), Fraction(0)
    for value in values:
        squares += (Fraction(value) - center) ** 2
    variance = squares / (len(values) - ddof)
    with localcontext(DIGITS_60):
        return Fraction((Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt())


def advantages(rewards, groups, settings, batches=None):
    """Every answer's advantage, a list of floats; NaN where the reward is not finite."""
    batches = [0] * len(rewards) if batches is None else batches
    scorable = [i for i, reward in enumerate(rewards) if math.isfinite(reward)]
    result = []
    for i, reward in enumerate(rewards):
        if i not in scorable:
            result.append(math.nan)
            continue
        peers = [float(rewards[j]) for j in scorable if groups[j] == groups[i]]
        others = [float(rewards[j]) for j in scorable if groups[j] == groups[i] and j != i]
        if len(set(peers)) > 1:
            value = Fraction(float(reward)) - mean(others if settings.center == "leave_one_out_mean" else peers)
            if settings.scale != "none":
                batch = [float(rewards[j]) for j in scorable if batches[j] == batches[i]]
                spread_over = {"group_std": peers, "batch_std": batch, "leave_one_out_std": others}[settings.scale]
                spread = deviation(spread_over, settings.ddof)
                if spread != 0 or settings.zero_std == "divide":
                    value /= spread + Fraction(settings.std_eps)
        elif settings.size_1 == "raw" and not others:
            # verl takes mean 0 and deviation 1 for a lone answer: core_algos.py, compute_grpo_outcome_advantage.
            value = Fraction(float(reward))
            if settings.scale == "group_std":
                value /= 1 + Fraction(settings.std_eps)
        else:
            value = Fraction(0)
        if settings.advantage_clip is not None:
            low, high = settings.advantage_clip
            value = min(max(value, Fraction(low)), Fraction(high))
        result.append(float(value))
    return result


def clip(value, low, high):
    """`value` between bounds, each of them perhaps None."""
    if low is not None:
        value = max(value, Decimal(low))
    if high is not None:
        value = min(value, Decimal(high))
    return value


def bounds(settings):
    """1 - eps_low and 1 + eps_high, None where there is no bound."""
    low = None if settings.eps_low is None else 1 - Decimal(settings.eps_low)
    high = None if settings.eps_high is None else 1 + Decimal(settings.eps_high)
    return low, high


def surrogate(advantage, ratio, logp_new, settings):
    """One token's term; `advantage` is a Decimal."""
    clipped = clip(ratio, *bounds(settings))
    if settings.surrogate == "cispo":
        return clipped * advantage * logp_new
    unclipped = clip(ratio, None, settings.delta)
    term = min(unclipped * advantage, clipped * advantage)
    if settings.dual_clip is not None and advantage < 0:
        term = max(term, Decimal(settings.dual_clip) * advantage)
    return term


def ratios(new, base, settings):
    """ρ of every token of one answer."""
    logs = [a - b for a, b in zip(new, base, strict=True)]
    if logs and settings.ratio_level == "sequence_mean":
        logs = [sum(logs) / len(logs)] * len(logs)
    return [clip(log, settings.log_ratio_low, settings.log_ratio_high).exp() for log in logs]


def sampler_weights(old, sampler, settings):
    """The factor of every token's term of one answer, and whether the token's w lies outside the bounds."""
    logs = [a - b for a, b in zip(old, sampler, strict=True)]
    if settings.sampler_level == "sequence_product":
        logs = [sum(logs)] * len(logs)
    elif logs and settings.sampler_level == "sequence_geometric_mean":
        logs = [sum(logs) / len(logs)] * len(logs)
    factors, outside = [], []
    for log in logs:
        clamp = settings.sampler_log_clamp
        weight = clip(log, None if clamp is None else -clamp, clamp).exp()
        bounded = clip(weight, settings.sampler_low, settings.sampler_cap)
        outside.append(bounded != weight)
        if settings.sampler_mode == "truncate":
            factors.append(bounded)
        elif bounded != weight:
            factors.append(Decimal(0))
        else:
            factors.append(weight if settings.sampler_mode == "mask" else Decimal(1))
    return factors, outside


def kl(new, reference, settings):
    """The KL estimator of one token."""
    d = new - reference
    return {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d, "abs": abs(d)}[settings.kl]


def answer_tokens(answer, settings):
    """Per token of one answer, what `settings` makes of it: a list of dicts.

    `answer` is a dict of lists of Decimals: new, and old, sampler, reference where they are needed; a sampler of None is
    an answer without sampler log-probs, whose terms are taken as they are.
    """
    rho = ratios(answer["new"], answer["old" if settings.ratio == "old" else "sampler"], settings)
    factors, outside = [Decimal(1)] * len(rho), [False] * len(rho)
    if settings.sampler_mode != "none" and answer["sampler"] is not None:
        factors, outside = sampler_weights(answer["old"], answer["sampler"], settings)
    low, high = bounds(settings)
    tokens = []
    for t, (ratio, factor) in enumerate(zip(rho, factors, strict=True)):
        new = answer["new"][t]
        seen = clip(ratio, None, settings.delta) if settings.surrogate == "ratio_clip" else ratio
        tokens.append(
            {
                "if_positive": factor * surrogate(Decimal(1), ratio, new, settings),
                "if_negative": -factor * surrogate(Decimal(-1), ratio, new, settings),
                "below": low is not None and ratio < low,
                "above": high is not None and seen > high,  # TRL f2cd5771 caps ρ at delta before it counts
                "ratio": ratio,
                "k3": (ratio - 1) - ratio.ln(),
                "cut": outside[t],
                "kl": Decimal(0) if settings.kl is None else kl(new, answer["reference"][t], settings),
                "factor": factor,
            }
        )
    return tokens


def aggregate(terms, groups, batches, counted, aggregation, divisor=None):
    """One Decimal a batch, or None without a counted token.

    Args:
        terms: of each answer, the list of its tokens' terms.
        groups, batches, counted: of each answer.
        aggregation, divisor: as a recipe's.
    """
    values = []
    for batch in range(max(batches) + 1):
        answers = [i for i in range(len(terms)) if batches[i] == batch and counted[i] and terms[i]]
        if not answers:
            values.append(None)
            continue
        total = sum(sum(terms[i]) for i in answers)
        if aggregation == "token_mean":
            value = total / sum(len(terms[i]) for i in answers)
        elif aggregation == "token_sum":
            value = total
        elif aggregation == "sequence_mean_of_token_mean":
            value = sum(sum(terms[i]) / len(terms[i]) for i in answers) / len(answers)
        elif aggregation == "sequence_mean_of_token_sum":
            value = total / len(answers)
        elif aggregation == "sum_over_constant":
            value = total / Decimal(divisor)
        else:
            prompts = []
            for group in sorted({groups[i] for i in answers}):
                tokens = [term for i in answers if groups[i] == group for term in terms[i]]
                prompts.append(sum(tokens) / len(tokens))
            value = sum(prompts) / len(prompts)
        values.append(value)
    return values


def objective(answers, answer_advantages, groups, batches, counted, settings):
    """The objective of every batch, from log-probs: a list of Decimals, None without a counted token."""
    with localcontext(DIGITS_60):
        terms, penalties = [], []
        for answer, advantage in zip(answers, answer_advantages, strict=True):
            advantage = Decimal(float(advantage))
            rho = ratios(answer["new"], answer["old" if settings.ratio == "old" else "sampler"], settings)
            tokens = answer_tokens(answer, settings)
            terms.append(
                [
                    token["factor"] * surrogate(advantage, ratio, new, settings)
                    for token, ratio, new in zip(tokens, rho, answer["new"], strict=True)
                ]
            )
            penalties.append([token["kl"] for token in tokens])
        values = aggregate(terms, groups, batches, counted, settings.aggregation, settings.divisor)
        if settings.kl is not None:
            taken = aggregate(penalties, groups, batches, counted, settings.aggregation, settings.divisor)
            coefficient = Decimal(settings.kl_coefficient)
            values = [v if v is None else v - coefficient * p for v, p in zip(values, taken, strict=True)]
        return values


def olmorl_objective(new, old, answer_advantages, mask, eps_low, eps_high):
    """OLMo 3's eq. 1 over padded rows, and Σ |term| / tokens, the size its error is measured against: two Decimals."""
    with localcontext(DIGITS_60):
        low, high = 1 - Decimal(eps_low), 1 + Decimal(eps_high)
        total, magnitude, tokens = Decimal(0), Decimal(0), 0
        for i, advantage in enumerate(answer_advantages):
            for t, real in enumerate(mask[i]):
                if real:
                    ratio, a = (Decimal(new[i][t]) - Decimal(old[i][t])).exp(), Decimal(advantage)
                    term = min(ratio * a, min(max(ratio, low), high) * a)
                    total, magnitude, tokens = total + term, magnitude + abs(term), tokens + 1
        return total / tokens, magnitude / tokens
