"""The oracle: rollouts scored one token at a time in plain Python, from the formulas alone.

A = r - mean(r of the group), divided by (population std + eps) where asked for (OLMo 3, arXiv 2512.13961, 4.4.1; GRPO,
arXiv 2402.03300, 4.1.2). A token's term is min(rho A, clip(rho, 1 - low, 1 + high) A), rho = exp(new - old). What cannot
be scored is left out as design.md, section 3.5, says of `skip`. Rows are what `Table.to_pylist()` gives.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


def is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def group_of(row: Row) -> tuple[Any, Any]:
    return row.get("step"), row["group_id"]


def kept_groups(rows: Sequence[Row], by: str = "reward") -> set[tuple[Any, Any]]:
    """Groups whose scorable values are not all identical."""
    values = defaultdict(set)
    for row in rows:
        if is_finite(row[by]):
            values[group_of(row)].add(float(row[by]))
    return {group for group, different in values.items() if len(different) > 1}


def advantages(rows: Sequence[Row], *, eps: float | None = None, ddof: int = 0) -> list[float | None]:
    """Each answer's advantage, None where its reward cannot be scored; `eps` divides by (std + eps)."""
    kept = kept_groups(rows)
    found: list[float | None] = []
    for row in rows:
        if not is_finite(row["reward"]):
            found.append(None)
            continue
        if group_of(row) not in kept:
            found.append(0.0)
            continue
        others = [float(r["reward"]) for r in rows if group_of(r) == group_of(row) and is_finite(r["reward"])]
        mean = math.fsum(others) / len(others)
        value = float(row["reward"]) - mean
        if eps is not None:
            std = math.sqrt(math.fsum((x - mean) ** 2 for x in others) / (len(others) - ddof))
            value /= std + eps
        found.append(value)
    return found


@dataclass(frozen=True)
class Token:
    new: float
    old: float
    sampler: float | None

    @property
    def ratio(self) -> float:
        return math.exp(self.new - self.old)

    @property
    def weight(self) -> float | None:
        return None if self.sampler is None else math.exp(self.old - self.sampler)


def real_tokens(row: Row) -> list[Token]:
    """The answer's tokens that the mask marks and whose log-probs can be log-probs."""
    new, old = row["new_logprobs"], row["old_logprobs"]
    if new is None or old is None:
        return []
    sampler = row.get("rollout_logprobs")
    mask = row.get("loss_mask", [1] * len(new))
    tokens = []
    for place in range(len(new)):
        values = [new[place], old[place]] + ([] if sampler is None else [sampler[place]])
        if mask[place] and all(is_finite(value) and value <= 1e-3 for value in values):
            tokens.append(Token(new[place], old[place], None if sampler is None else sampler[place]))
    return tokens


def term(token: Token, advantage: float, low: float, high: float, cap: float | None) -> float:
    clipped = max(1.0 - low, min(1.0 + high, token.ratio))
    weight = 1.0 if cap is None or token.weight is None else min(cap, token.weight)
    return weight * min(token.ratio * advantage, clipped * advantage)


def aggregate(terms: Sequence[list[float]], groups: Sequence[Any], how: str, divisor: float) -> float | None:
    """One number from each answer's list of terms."""
    filled = [each for each in terms if each]
    if not filled:
        return None
    if how == "prompt_mean_of_token_mean":
        by_group = defaultdict(list)
        for each, group in zip(terms, groups, strict=True):
            by_group[group] += each
        means = [math.fsum(each) / len(each) for each in by_group.values() if each]
        return math.fsum(means) / len(means)
    total = math.fsum(x for each in filled for x in each)
    return {
        "token_mean": total / sum(map(len, filled)),
        "token_sum": total,
        "sum_over_constant": total / divisor,
        "sequence_mean_of_token_sum": total / len(filled),
        "sequence_mean_of_token_mean": math.fsum(math.fsum(each) / len(each) for each in filled) / len(filled),
    }[how]


def objective(
    rows: Sequence[Row],
    *,
    given: Sequence[float | None] | None = None,
    eps: float | None = None,
    low: float = 0.2,
    high: float = 0.272,
    keep: bool = False,
    how: str = "token_mean",
    divisor: float = 1.0,
    cap: float | None = None,
) -> dict[str, float | int | None]:
    """The figures that `olmorl objective` gives of one batch."""
    known = advantages(rows, eps=eps) if given is None else given
    kept = kept_groups(rows)
    scorable = [(row, a, real_tokens(row)) for row, a in zip(rows, known, strict=True) if a is not None]
    live = [each for each in scorable if group_of(each[0]) in kept]
    counted = scorable if keep else live

    def value(answers: list[tuple[Row, float, list[Token]]]) -> float | None:
        terms = [[term(token, a, low, high, cap) for token in tokens] for _, a, tokens in answers]
        return aggregate(terms, [group_of(row) for row, _, _ in answers], how, divisor)

    pairs = [(token, a) for _, a, tokens in counted for token in tokens]
    return {
        "objective": value(counted),
        "objective_all_groups": value(scorable),
        "answers": len(rows),
        "groups": len({group_of(row) for row in rows}),
        "kept_groups": len(kept),
        "tokens": sum(len(tokens) for _, _, tokens in scorable),
        "kept_tokens": sum(len(tokens) for _, _, tokens in live),
        **ratio_figures(pairs, low, high),
        **sampler_figures([token for token, _ in pairs], cap),
    }


def share(flags: list[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def ratio_figures(pairs: Sequence[tuple[Token, float]], low: float, high: float) -> dict[str, float | None]:
    ratios = [token.ratio for token, _ in pairs]
    return {
        "clip_low": share([token.ratio < 1.0 - low and a < 0.0 for token, a in pairs]),
        "clip_high": share([token.ratio > 1.0 + high and a > 0.0 for token, a in pairs]),
        "ratio_mean": mean(ratios),
        "ratio_min": min(ratios, default=None),
        "ratio_max": max(ratios, default=None),
        "approx_kl": mean([token.ratio - 1.0 - (token.new - token.old) for token, _ in pairs]),
    }


def sampler_figures(tokens: Sequence[Token], cap: float | None) -> dict[str, float | None]:
    """Of the counted tokens that have a sampler's log-prob."""
    weights = [token.weight for token in tokens if token.weight is not None]
    squares = mean([w * w for w in weights])
    return {
        "sampler_ratio_mean": mean(weights),
        "sampler_ratio_min": min(weights, default=None),
        "sampler_ratio_max": max(weights, default=None),
        "sampler_clip": None if cap is None else share([weight > cap for weight in weights]),
        "sampler_ess": mean(weights) ** 2 / squares if squares else None,
        "sampler_abs_diff": mean([abs(t.old - t.sampler) for t in tokens if t.sampler is not None]),
    }
