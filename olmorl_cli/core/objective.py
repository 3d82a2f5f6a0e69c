"""The objective: reductions of the per-answer sums."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.advantages import numbers
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray, exact_means
from olmorl_cli.core.tokens import BoolArray, TermSums, Tokens, term_sums
from olmorl_cli.core.totals import Totals

MOST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class Partition:
    """Who belongs to what; answers are N, groups P, batches B (the steps, where results are asked by step).

    Attributes:
        groups: int (N,), the group of each answer.
        batch_of_group: int (P,), the batch of each group.
        batches: their number, B.
    """

    groups: IntArray
    batch_of_group: IntArray
    batches: int = 1

    @classmethod
    def of_nothing(cls) -> Self:
        """No answers, no groups, one batch."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @property
    def answers(self) -> IntArray:
        """The batch of each answer, int (N,)."""
        return self.batch_of_group[self.groups]


def answer_terms(advantages: FloatArray, sums: TermSums) -> FloatArray:
    """Σ over an answer's tokens of its surrogate terms, float64 (N,): A · Σ f(ρ), 0 where A is 0 whatever ρ is."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(advantages == 0.0, 0.0, advantages * np.where(advantages > 0.0, sums.if_positive, sums.if_negative))


class Aggregation:
    """One number a batch from answers' sums of terms, gathered part by part; the same to the last bit for every order.

    Args:
        how: of `recipes.CHOICES`; token_mean Σ/tokens (DAPO, arXiv 2503.14476, eq. 8; OlmoRL),
            sequence_mean_of_token_mean (GRPO, arXiv 2402.03300, eq. 3), sum_over_constant Σ/divisor (Dr. GRPO,
            arXiv 2503.20783), token_sum, sequence_mean_of_token_sum, and prompt_mean_of_token_mean (mean over groups of
            the token mean inside each).
        divisor: of sum_over_constant.
        batches, groups: their numbers, B and P.
    """

    def __init__(self, how: str, divisor: float | None, batches: int, groups: int) -> None:
        self.how, self.divisor, self.batches = how, divisor, batches
        self.by_group = how == "prompt_mean_of_token_mean"
        self.totals = Totals(groups if self.by_group else batches)

    def add(self, terms: FloatArray, tokens: IntArray, groups: IntArray, batches: IntArray | None) -> None:
        """Add answers that count.

        Args:
            terms: float64 (n,), each answer's sum over its real tokens.
            tokens: int (n,), its real tokens; answers without one are in no divisor.
            groups, batches: int (n,), where it belongs; None for batches is one batch.
        """
        if not (filled := tokens > 0).all():
            terms, tokens, groups = terms[filled], tokens[filled], groups[filled]
            batches = None if batches is None else batches[filled]
        codes = groups if self.by_group else batches
        self.totals.count("tokens", tokens, codes)
        self.totals.count("answers", np.ones(tokens.size) if codes is not None else tokens.size, codes)
        self.totals.add("terms", terms / tokens if self.how == "sequence_mean_of_token_mean" else terms, codes)

    def merge(self, other: "Aggregation", groups: IntArray | None, batches: IntArray | None) -> None:
        """Add another part, whose groups and batches are these `groups` and `batches`; None: one to one."""
        self.totals.merge(other.totals, groups if self.by_group else batches)

    def close(self, batch_of_group: IntArray) -> None:
        """All answers of these groups, in the batches `batch_of_group` (P,), are added: none of the groups gets more.

        What is gathered by group is from now on gathered by batch, a group's mean as one term.
        """
        if not self.by_group:
            return
        tokens, of_groups = self.totals.counted("tokens"), self.totals
        used = np.flatnonzero(tokens)
        codes = batch_of_group[used]
        self.by_group, self.totals = False, Totals(self.batches)
        self.totals.count("tokens", tokens[used], codes)
        self.totals.count("answers", np.ones(used.size), codes)
        self.totals.add("terms", of_groups.over("terms", tokens)[used], codes)

    def values(self) -> FloatArray:
        """The aggregate of each batch, float64 (B,), once it is closed; NaN for a batch without a counted real token."""
        tokens = self.totals.counted("tokens")
        if self.how == "token_mean":
            divisors: npt.ArrayLike = tokens
        elif self.how in ("sequence_mean_of_token_mean", "sequence_mean_of_token_sum", "prompt_mean_of_token_mean"):
            divisors = self.totals.counted("answers")
        else:
            divisors = self.divisor if self.how == "sum_over_constant" and self.divisor else 1.0
        return np.where(tokens > 0, self.totals.over("terms", divisors), np.nan)


def answer_weights(
    tokens: IntArray, counted: BoolArray, partition: Partition, aggregation: str, divisor: float | None
) -> FloatArray:
    """Derivative of an `Aggregation` by each answer's sum of terms, float64 (N,).

    Every aggregation is linear: Σ weight · terms over a batch's answers is its value. 0 for an answer that is not counted,
    or has no real token.

    Args:
        tokens: int (N,), real tokens of each answer.
        counted: bool (N,), the answers that take part.
        partition: their groups and batches.
        aggregation, divisor: as `Aggregation`.
    """
    used = counted & (tokens > 0)
    batches, groups = partition.answers, partition.groups
    if aggregation == "token_mean":
        divisors = np.bincount(batches, weights=tokens * used, minlength=partition.batches)[batches]
    elif aggregation == "prompt_mean_of_token_mean":
        tokens_per_group = np.bincount(groups, weights=tokens * used, minlength=partition.batch_of_group.size)
        used_groups = np.bincount(partition.batch_of_group, weights=tokens_per_group > 0, minlength=partition.batches)
        divisors = tokens_per_group[groups] * used_groups[batches]
    elif aggregation in ("sequence_mean_of_token_mean", "sequence_mean_of_token_sum"):
        divisors = np.bincount(batches, weights=used, minlength=partition.batches)[batches]
        if aggregation == "sequence_mean_of_token_mean":
            divisors = divisors * tokens
    else:
        divisors = np.full(tokens.size, divisor if aggregation == "sum_over_constant" and divisor else 1.0)
    with np.errstate(over="ignore"):
        return np.divide(1.0, divisors, out=np.zeros(tokens.size), where=used)


def olmorl_objective(
    logp_new: npt.ArrayLike,
    logp_old: npt.ArrayLike,
    adv: npt.ArrayLike,
    mask: npt.ArrayLike,
    eps_low: float = 0.2,
    eps_high: float = 0.272,
) -> float:
    """OlmoRL's objective (loss = -objective), OLMo 3 (arXiv 2512.13961, section 4.4.1, eq. 1, without the sampler's cap):

        J = Σ_i Σ_t min(ρ_it A_i, clip(ρ_it, 1 - eps_low, 1 + eps_high) A_i) / Σ_i |y_i|,   ρ = exp(logp_new - logp_old)

    Both sums run over real tokens. Trainers disagree on the bounds: 0.2 below and 0.272 above are OLMo 3's, DAPO takes
    0.28, GRPO 0.2 on both sides. Groups without signal are the caller's to leave out.

    Args:
        logp_new, logp_old: (N, T) of any float type, log-probs in nats; what stands where the mask is 0 never matters.
        adv: (N,), advantage of each answer.
        mask: (N, T) of bool, int or float; a token is real where it is not 0.
        eps_low: in [0, 1].
        eps_high: in [0, inf), finite.

    Returns:
        The objective, in the unit of the advantages. ρ may overflow at a real token: A > 0 gives (1 + eps_high) A, A = 0
        gives 0, A < 0 gives -inf.

    Raises:
        ValueError: wrong rank or shapes, no real token, NaN log-prob (or both of them -inf) at a real token, bounds
            outside their intervals, an advantage that is not finite, NaN in the mask.

    >>> round(olmorl_objective([[0.0, -1.0]], [[-0.223143551314, -1.0]], [1.0], [[1, 1]]), 9)
    1.125
    """
    new, old = numbers("logp_new", logp_new), numbers("logp_old", logp_old)
    advantages, marks = numbers("adv", adv), numbers("mask", mask)
    real = marks != 0.0
    if new.ndim != 2:
        raise ValueError(f"logp_new must be of rank 2 (answers, tokens), got shape {new.shape}")
    for name, array, shape in (("logp_old", old, new.shape), ("mask", real, new.shape), ("adv", advantages, new.shape[:1])):
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape} beside logp_new of shape {new.shape}, got {array.shape}")
    for name, bound, most in (("eps_low", eps_low, 1.0), ("eps_high", eps_high, np.inf)):
        if isinstance(bound, bool) or not isinstance(bound, int | float | np.number) or not 0.0 <= bound <= min(most, MOST):
            raise ValueError(f"{name} must be a finite number in [0, {'inf)' if most == np.inf else '1]'}, got {bound!r}")
    if not np.isfinite(advantages).all():
        at = int(np.flatnonzero(~np.isfinite(advantages))[0])
        raise ValueError(f"adv must be finite, got {advantages[at]} at index {at}")
    if np.isnan(marks).any():
        raise ValueError(f"mask must not be NaN, got NaN at {tuple(np.argwhere(np.isnan(marks))[0].tolist())}")
    lengths = real.sum(axis=1)
    if not lengths.any():
        raise ValueError("mask must mark at least one real token, got none")
    for name, array in (("logp_new", new), ("logp_old", old)):
        if (wrong := np.argwhere(np.isnan(array) & real)).size:
            answer, token = wrong[0]
            raise ValueError(f"{name} must not be NaN at a real token, got NaN at answer {answer}, token {token}")
    if (wrong := np.argwhere(np.isinf(new) & (new == old) & real)).size:
        answer, token = wrong[0]
        raise ValueError(f"logp_new and logp_old must not both be {new[answer, token]} at answer {answer}, token {token}")
    tokens = Tokens(np.concatenate(([0], np.cumsum(lengths))), new[real], old[real])
    terms = answer_terms(advantages, term_sums(tokens, Recipe(eps_low=float(eps_low), eps_high=float(eps_high)).terms))
    return float(exact_means(terms, int(lengths.sum()))[0])
