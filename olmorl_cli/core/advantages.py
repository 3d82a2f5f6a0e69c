"""Groups and their statistics; advantages.

A group is the answers of one prompt at one step. Answers stand in any order; `codes` (N,) says which group each is in.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.core.sums import FloatArray, IntArray, exact_means, exact_sums

BoolArray = npt.NDArray[np.bool_]

_BLOCK = 1 << 15
"""Answers worked on at a time: their temporaries stay in the cache."""


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics of each group's scorable rewards; every array is (P,), one value a group.

    Attributes:
        size: all answers of the group.
        count: its scorable answers, those with a finite reward.
        mean, min, max: of the scorable rewards; NaN where count is 0.
        kept: the scorable rewards are not all identical.
    """

    size: IntArray
    count: IntArray
    mean: FloatArray
    min: FloatArray
    max: FloatArray
    kept: BoolArray


def group_statistics(rewards: FloatArray, codes: IntArray, groups: int) -> GroupStatistics:
    """Statistics of every group, the same to the last bit for every order of the answers.

    Args:
        rewards: float64 (N,); NaN and infinite ones are not scorable.
        codes: int (N,) in 0..groups-1.
        groups: number of groups, P.
    """
    size = count = np.bincount(codes, minlength=groups)
    values, scorable = rewards, np.isfinite(rewards)
    if not scorable.all():
        values, codes = rewards[scorable], codes[scorable]
        count = np.bincount(codes, minlength=groups)
    low, high = _extremes(values, codes, groups)
    kept = (high != low) & (count > 0)
    # The mean of identical rewards is that reward; a rounded sum divided by n need not be.
    mean = np.where(kept, exact_means(values, np.maximum(count, 1), codes, groups), low)
    return GroupStatistics(size, count, mean, low, high, kept)


def group_deviations(rewards: FloatArray, codes: IntArray, groups: GroupStatistics, ddof: int = 0) -> FloatArray:
    """Standard deviation of each group's scorable rewards, sqrt(Σ (x - mean)² / (count - ddof)).

    Args:
        rewards, codes: as `group_statistics`, whose result `groups` is.
        ddof: 0 for the population's, 1 for the sample's deviation.

    Returns:
        float64 (P,), exactly 0.0 in zero-signal groups, NaN where nothing is scorable. Squares neither overflow nor
        underflow; the same to the last bit for every order of the answers.
    """
    # Half of a difference stays finite up to the end of the float64 range, and halving is exact.
    greatest = np.maximum(groups.max * 0.5 - groups.mean * 0.5, groups.mean * 0.5 - groups.min * 0.5)
    extreme = np.isfinite(greatest) & ((greatest > 2.0**500) | (greatest < 2.0**-400))
    exponents = np.where(extreme, np.frexp(greatest)[1], 0)
    scorable = np.isfinite(rewards)
    values, codes = (rewards, codes) if scorable.all() else (rewards[scorable], codes[scorable])
    deviations = values * 0.5 - (groups.mean * 0.5)[codes]
    if exponents.any():
        deviations = np.ldexp(deviations, -exponents[codes])
    divisor = np.maximum(groups.count - ddof, 1)
    std = np.ldexp(np.sqrt(exact_means(deviations * deviations, divisor, codes, groups.size.size)), exponents + 1)
    return np.where(groups.kept, std, np.where(groups.count > 0, 0.0, np.nan))


def _extremes(values: FloatArray, codes: IntArray, groups: int) -> tuple[FloatArray, FloatArray]:
    """Least and greatest value of each group (0.0 for -0.0), NaN where it has none."""
    low, high = np.full(groups, np.inf), np.full(groups, -np.inf)
    if values.size and (codes[1:] >= codes[:-1]).all():  # groups lie one after another
        starts = np.concatenate(([0], np.flatnonzero(codes[1:] != codes[:-1]) + 1))
        low[codes[starts]] = np.minimum.reduceat(values, starts)
        high[codes[starts]] = np.maximum.reduceat(values, starts)
    else:
        np.minimum.at(low, codes, values)
        np.maximum.at(high, codes, values)
    some = low <= high
    return np.where(some, low, np.nan) + 0.0, np.where(some, high, np.nan) + 0.0


def answer_advantages(
    rewards: FloatArray, codes: IntArray, groups: GroupStatistics, recipe: Recipe, batches: IntArray | None = None
) -> FloatArray:
    """Advantage of every answer under `recipe`.

    A = (x - center) / (std + std_eps), clipped; exactly 0.0 in zero-signal groups (but for groups of one where `size_1`
    is raw), NaN where the reward is not scorable.

    Args:
        rewards: float64 (N,).
        codes: int (N,), the group of each answer.
        groups: their `group_statistics`.
        recipe: its center, scale, ddof, std_eps, size_1, zero_std and advantage_clip are used.
        batches: int (N,), the step of each answer, for scale batch_std; None is one batch.

    Returns:
        float64 (N,), in the unit of the rewards, or of their deviations where scaled.
    """
    deviations = _scale(rewards, codes, groups, recipe, batches)
    advantages = np.empty(rewards.size)
    for first in range(0, rewards.size, _BLOCK):
        rows = slice(first, first + _BLOCK)
        std = None if deviations is None else deviations.of(rows, codes[rows])
        advantages[rows] = _advantages(rewards[rows], codes[rows], groups, recipe, std)
    return advantages


def _advantages(
    rewards: FloatArray, codes: IntArray, groups: GroupStatistics, recipe: Recipe, std: FloatArray | None
) -> FloatArray:
    """`answer_advantages` of some answers, `std` (n,) what theirs are divided by."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Halves: the difference of two rewards may overflow where its quotient does not.
        halves = rewards * 0.5 - groups.mean[codes] * 0.5 if std is not None else rewards - groups.mean[codes]
        if recipe.center == "leave_one_out_mean":  # x - (n mean - x) / (n - 1)
            count = groups.count[codes]
            halves *= count / np.maximum(count - 1, 1)
        advantages = halves
        if std is not None:
            divided = halves / (std + recipe.std_eps) * 2.0
            divided = np.where(std == 0.0, halves * 2.0, divided) if recipe.zero_std == "skip" else divided
            advantages = np.where(groups.kept[codes], divided, 0.0)
        advantages += 0.0  # no negative zero
        if recipe.size_1 == "raw":
            scale = 1.0 + recipe.std_eps if recipe.scale == "group_std" else 1.0
            advantages = np.where(groups.count[codes] == 1, rewards / scale, advantages)
    if recipe.advantage_clip is not None:
        advantages = np.clip(advantages, *recipe.advantage_clip)
    scorable = np.isfinite(rewards)
    return advantages if scorable.all() else np.where(scorable, advantages, np.nan)


def answer_deviations(
    rewards: FloatArray, codes: IntArray, groups: GroupStatistics, recipe: Recipe, batches: IntArray | None = None
) -> FloatArray | None:
    """What `answer_advantages`, whose args these are, divides each answer by, before std_eps; None where it does not.

    Returns:
        float64 (N,), in the unit of the rewards.
    """
    deviations = _scale(rewards, codes, groups, recipe, batches)
    return None if deviations is None else deviations.of(slice(None), codes)


@dataclass(frozen=True)
class _Deviations:
    """What advantages are divided by: one value for each of `codes` (None: for each group), or for each answer."""

    values: FloatArray
    codes: IntArray | None = None
    per_answer: bool = False

    def of(self, rows: slice, groups: IntArray) -> FloatArray:
        """The deviations of some answers, which lie in `groups`."""
        if self.per_answer:
            return self.values[rows]
        return self.values[groups if self.codes is None else self.codes[rows]]


def _scale(
    rewards: FloatArray, codes: IntArray, groups: GroupStatistics, recipe: Recipe, batches: IntArray | None
) -> _Deviations | None:
    """The deviations that advantages are divided by; None where they are not."""
    if recipe.scale == "none":
        return None
    if recipe.scale == "group_std":
        return _Deviations(group_deviations(rewards, codes, groups, recipe.ddof))
    if recipe.scale == "batch_std":
        batches = np.zeros(rewards.size, dtype=np.int64) if batches is None else batches
        whole = group_statistics(rewards, batches, int(batches.max(initial=-1)) + 1)
        return _Deviations(group_deviations(rewards, batches, whole, recipe.ddof), batches)
    return _Deviations(_deviation_of_others(rewards, codes, groups, recipe.ddof), per_answer=True)


def _deviation_of_others(rewards: FloatArray, codes: IntArray, groups: GroupStatistics, ddof: int) -> FloatArray:
    """Standard deviation of the other answers of each answer's group, float64 (N,); 0.0 where they are identical."""
    number = groups.size.size
    n = groups.count[codes].astype(np.float64)
    half_range = groups.max * 0.5 - groups.min * 0.5
    exponents = np.where(half_range > 0.0, np.frexp(np.where(half_range > 0.0, half_range, 1.0))[1], 0)
    scorable = np.isfinite(rewards)
    # Deviations from the group's mean, by a power of two of the group's range: no square overflows or vanishes.
    d = np.ldexp(np.where(scorable, rewards * 0.5 - (groups.mean * 0.5)[codes], 0.0), -exponents[codes])
    squares = exact_sums(d * d, codes, number)[codes]
    # Σ over the others of (x - their mean)² = S - n/(n-1) (x - mean)², S the sum over the whole group.
    others = squares - d * d * n / np.maximum(n - 1.0, 1.0)
    cancelled = np.flatnonzero(scorable & (others < squares / 64.0))
    others[cancelled] = _squares_of_others(d, codes, scorable, cancelled)
    low, high = rewards == groups.min[codes], rewards == groups.max[codes]
    at_low, at_high = (np.bincount(codes, weights=end, minlength=number)[codes] for end in (low, high))
    # Without x the group is one value only where it has two values and x is the sole answer with one of them.
    identical = (n <= 2) | ((at_low + at_high == n) & ((low & (at_low == 1)) | (high & (at_high == 1))))
    std = np.sqrt(np.maximum(others, 0.0) / np.maximum(n - 1.0 - ddof, 1.0))
    return np.where(identical, 0.0, np.ldexp(std, exponents[codes] + 1))


def _squares_of_others(d: FloatArray, codes: IntArray, scorable: BoolArray, answers: IntArray) -> FloatArray:
    """Σ over the others of (d - their mean)², taken afresh for a few `answers`; float64 (answers,)."""
    members = np.flatnonzero(scorable)
    members = members[np.argsort(codes[members], kind="stable")]
    starts = np.searchsorted(codes[members], codes[answers])
    sizes = np.searchsorted(codes[members], codes[answers], side="right") - starts
    owner = np.repeat(np.arange(answers.size), sizes)
    member = members[np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(starts, sizes)]
    other = member != answers[owner]
    owner, values = owner[other], d[member[other]]
    means = exact_means(values, np.maximum(sizes - 1, 1), owner, answers.size)
    return exact_sums((values - means[owner]) ** 2, owner, answers.size)


def group_advantages(rewards: npt.ArrayLike, G: int, normalize_std: bool = False) -> FloatArray:
    """Advantage of every answer of groups of G: A_i = x_i - mean(group of i), OLMo 3 (arXiv 2512.13961, section 4.4.1).

    With `normalize_std`, GRPO's A_i = (x_i - mean) / (std + 1e-6), std the population's (ddof 0), as in DeepSeekMath
    (arXiv 2402.03300, section 4.1.2). Trainers disagree on both constants: TRL takes ddof 1 and 1e-4, verl ddof 1 and
    1e-6, open-instruct ddof 0 and 1e-8; see `Recipe`.

    Args:
        rewards: (N,) of float, int or bool; answers G·p .. G·p + G - 1 are group p.
        G: answers a group, at least 1.
        normalize_std: divide by the group's spread.

    Returns:
        float64 (N,), in the unit of the rewards (no unit where divided); exactly 0.0 in zero-signal groups.

    Raises:
        ValueError: G < 1, rewards not of rank 1, their number not a multiple of G, or one of them not finite.

    >>> group_advantages([1, 0, 0, 1, 1, 1, 1, 0], 4)
    array([ 0.5 , -0.5 , -0.5 ,  0.5 ,  0.25,  0.25,  0.25, -0.75])
    """
    values, codes, statistics = _consecutive(rewards, G)
    return answer_advantages(values, codes, statistics, Recipe(scale="group_std" if normalize_std else "none"))


def nonzero_signal_groups(rewards: npt.ArrayLike, G: int) -> BoolArray:
    """Which groups of G have signal: max ≠ min of the group's rewards (never "std > 0", which rounding can fake).

    The others have advantage 0 for every answer, so no gradient; OlmoRL drops them (arXiv 2512.13961, section 4.4.1).

    Args:
        rewards: (N,) of float, int or bool.
        G: answers a group, at least 1.

    Returns:
        bool (N / G,).

    Raises:
        ValueError: as `group_advantages`.

    >>> nonzero_signal_groups([1, 0, 1, 1], 2)
    array([ True, False])
    """
    return _consecutive(rewards, G)[2].kept


def _consecutive(rewards: npt.ArrayLike, G: int) -> tuple[FloatArray, IntArray, GroupStatistics]:
    """Checked rewards, codes and statistics of groups of G consecutive answers."""
    values = numbers("rewards", rewards)
    if values.ndim != 1:
        raise ValueError(f"rewards must be of rank 1, got shape {values.shape}")
    if isinstance(G, bool | np.bool_) or not isinstance(G, int | float | np.number) or not (G >= 1 and G % 1 == 0):
        raise ValueError(f"G must be a whole number of at least 1, got {G!r}")
    if values.size % G:
        raise ValueError(f"the number of rewards must be a multiple of G, got {values.size} rewards and G = {G}")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"rewards must be finite, got {values[at]} at index {at}")
    codes = np.arange(values.size, dtype=np.int64) // int(G)
    return values, codes, group_statistics(values, codes, values.size // int(G))


def numbers(name: str, values: npt.ArrayLike) -> FloatArray:
    """`values` as float64, of any float, int or bool type.

    Raises:
        ValueError: they are not numbers.
    """
    array = np.asarray(values)
    if array.size == 0 and array.dtype == object:
        array = array.astype(np.float64)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must be numbers, got {array.dtype}")
    return array.astype(np.float64)
