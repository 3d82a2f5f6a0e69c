"""Scoring settings as data: the frozen `Recipe`, its limits, and the part of it that acts on tokens."""

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

CHOICES: dict[str, tuple[str | int, ...]] = {
    "center": ("group_mean", "leave_one_out_mean"),
    "scale": ("none", "group_std", "batch_std", "leave_one_out_std"),
    "ddof": (0, 1),
    "size_1": ("zero", "raw"),
    "zero_std": ("divide", "skip"),
    "zero_signal_groups": ("dropped", "kept"),
    "surrogate": ("ratio_clip", "cispo"),
    "ratio": ("old", "sampler"),
    "ratio_level": ("token", "sequence_mean"),
    "aggregation": (
        "token_mean",
        "token_sum",
        "sequence_mean_of_token_mean",
        "sequence_mean_of_token_sum",
        "sum_over_constant",
        "prompt_mean_of_token_mean",
    ),
    "sampler_mode": ("none", "truncate", "mask", "keep_or_drop"),
    "sampler_level": ("token", "sequence_product", "sequence_geometric_mean"),
}
"""Fields that take one of a few words, with the words."""

ADVANTAGE_FIELDS = ("center", "scale", "ddof", "std_eps", "size_1", "zero_std", "advantage_clip")
"""Fields that act on advantages."""

KL_ESTIMATORS = ("k1", "k2", "k3", "abs")

_AT_LEAST_0, _ABOVE_0, _ANY = "[0, inf)", "(0, inf)", "(-inf, inf)"
_INTERVALS: dict[str, tuple[str, bool]] = {
    "std_eps": (_AT_LEAST_0, False),
    "eps_low": (_AT_LEAST_0, True),
    "eps_high": (_AT_LEAST_0, True),
    "dual_clip": (_ABOVE_0, True),
    "delta": (_ABOVE_0, True),
    "log_ratio_low": (_ANY, True),
    "log_ratio_high": (_ANY, True),
    "divisor": (_ABOVE_0, True),
    "sampler_low": (_AT_LEAST_0, True),
    "sampler_cap": (_ABOVE_0, True),
    "sampler_log_clamp": (_ABOVE_0, True),
}
"""Fields that take a finite number: the interval it lies in, and whether none is allowed."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a recipe does to tokens. Recipes with equal `Terms` share one set of per-answer sums.

    The fields mean what they mean in `Recipe`; `kl` is the estimator alone.
    """

    surrogate: str
    ratio: str
    ratio_level: str
    log_ratio_low: float | None
    log_ratio_high: float | None
    eps_low: float | None
    eps_high: float | None
    dual_clip: float | None
    delta: float | None
    sampler_mode: str
    sampler_level: str
    sampler_low: float | None
    sampler_cap: float | None
    sampler_log_clamp: float | None
    kl: str | None

    @property
    def of_ratio(self) -> tuple[str, str, float | None, float | None]:
        """The fields that ρ depends on."""
        return self.ratio, self.ratio_level, self.log_ratio_low, self.log_ratio_high

    @property
    def ratio_low(self) -> float:
        """Lower bound of clip(ρ), 1 - eps_low; -inf without one."""
        return -math.inf if self.eps_low is None else 1.0 - self.eps_low

    @property
    def ratio_high(self) -> float:
        """Upper bound of clip(ρ), 1 + eps_high; +inf without one."""
        return math.inf if self.eps_high is None else 1.0 + self.eps_high


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How rollouts are scored. The defaults are OlmoRL's (arXiv 2512.13961, section 4.4.1, eq. 1-2).

    Advantage of an answer with reward x: A = (x - center) / (std + std_eps), then clipped.

    Attributes:
        name: what results call this recipe.
        center: group_mean, or leave_one_out_mean (mean of the group's other answers).
        scale: none (no division), group_std, batch_std (of all rewards of the step), leave_one_out_std (of the others).
        ddof: 0 divides the squared deviations by n, 1 by n - 1.
        std_eps: added to the deviation.
        size_1: a group of one answer has advantage zero, or raw (its reward; by 1 + std_eps where divided, as verl does).
        zero_std: where a deviation is 0, divide (by std_eps alone) or skip the division.
        advantage_clip: (low, high) bounds of the advantage, or None.
        zero_signal_groups: groups whose rewards are all identical are dropped before the objective, or kept.
        surrogate: ratio_clip, min(ρA, clip(ρ)A); or cispo, clip(ρ) A logp_new with ρ held constant.
        ratio: ρ = exp(logp_new - logp_old), or against the sampler's log-probs.
        ratio_level: token, or sequence_mean (exp of the answer's mean log-ratio, as in GSPO).
        log_ratio_low, log_ratio_high: clamp on log ρ.
        eps_low, eps_high: clip(ρ) is ρ between 1 - eps_low and 1 + eps_high; None is no bound on that side.
        dual_clip: c; where A < 0 a term is at least c A.
        delta: cap on the unclipped ρ.
        aggregation: how per-token terms become one number (see `CHOICES`).
        divisor: the constant of sum_over_constant.
        sampler_mode: how the weight w = exp(logp_old - logp_sampler) acts on each term. none; truncate: w cut to
            [sampler_low, sampler_cap]; mask: w = 0 outside them; keep_or_drop: w is 1 inside and 0 outside.
        sampler_level: w of each token, or of the answer (exp of the sum, or of the mean, of its log-weights).
        sampler_low, sampler_cap: the bounds, inclusive; None is no bound on that side.
        sampler_log_clamp: c; the log-weight (of the level) is cut to [-c, c].
        kl: estimator of the KL term against the reference log-probs, k1, k2, k3 or abs, or None.
        kl_coefficient: what the aggregated KL term is multiplied by before it is taken off the objective.

    Raises:
        ValueError: a field has a value that is not allowed; the message names the field and what is.
    """

    name: str = "olmorl"
    center: str = "group_mean"
    scale: str = "none"
    ddof: int = 0
    std_eps: float = 1e-6
    size_1: str = "zero"
    zero_std: str = "divide"
    advantage_clip: tuple[float, float] | None = None
    zero_signal_groups: str = "dropped"
    surrogate: str = "ratio_clip"
    ratio: str = "old"
    ratio_level: str = "token"
    log_ratio_low: float | None = None
    log_ratio_high: float | None = None
    eps_low: float | None = 0.2
    eps_high: float | None = 0.272
    dual_clip: float | None = None
    delta: float | None = None
    aggregation: str = "token_mean"
    divisor: float | None = None
    sampler_mode: str = "none"
    sampler_level: str = "token"
    sampler_low: float | None = None
    sampler_cap: float | None = None
    sampler_log_clamp: float | None = None
    kl: str | None = None
    kl_coefficient: float = 0.0

    def __post_init__(self) -> None:
        for field, words in CHOICES.items():
            value = getattr(self, field)
            if isinstance(value, bool) or value not in words:
                raise ValueError(f"{field} must be one of {', '.join(map(str, words))}, got {value!r}")
        for field, (interval, optional) in _INTERVALS.items():
            object.__setattr__(self, field, _number(field, getattr(self, field), interval, optional))
        self._check_pairs()

    def _check_pairs(self) -> None:
        if self.advantage_clip is not None:
            clip = self.advantage_clip
            if not isinstance(clip, list | tuple) or len(clip) != 2:
                raise ValueError(f"advantage_clip must be two numbers [low, high] or none, got {clip!r}")
            low, high = (_number("advantage_clip", x, _ANY, False) for x in clip)
            if low is None or high is None or not low <= 0.0 <= high:
                raise ValueError(f"advantage_clip must be [low, high] with low <= 0 <= high, got {clip!r}")
            object.__setattr__(self, "advantage_clip", (low, high))
        if self.aggregation == "sum_over_constant" and self.divisor is None:
            raise ValueError("divisor must be a number in (0, inf) where aggregation is sum_over_constant, got none")
        if self.sampler_mode != "none" and self.sampler_low is None and self.sampler_cap is None:
            raise ValueError(f"sampler_mode {self.sampler_mode} needs sampler_low or sampler_cap, got neither")
        for low_name, high_name in (("sampler_low", "sampler_cap"), ("log_ratio_low", "log_ratio_high")):
            low, high = getattr(self, low_name), getattr(self, high_name)
            if low is not None and high is not None and low > high:
                raise ValueError(f"{low_name} must not be above {high_name}, got {low!r} and {high!r}")
        if self.kl is not None and self.kl not in KL_ESTIMATORS:
            raise ValueError(f"kl estimator must be one of {', '.join(KL_ESTIMATORS)}, got {self.kl!r}")
        if self.eps_low is not None and 1.0 < self.eps_low < 2.0:
            # 1 - eps_low below 0 never binds; such a value is more often a bound written for an offset.
            raise ValueError(f"eps_low must be in [0, 1], at least 2 (it never binds then) or none, got {self.eps_low!r}")
        object.__setattr__(self, "kl_coefficient", _number("kl coefficient", self.kl_coefficient, _ANY, False))

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any], *, name: str) -> Self:
        """A recipe from the keys of a recipe file; "none" stands for None, what is left out is OlmoRL's.

        Raises:
            ValueError: an unknown key or a value that is not allowed, with those that are.
        """
        known = [f.name for f in dataclasses.fields(cls) if f.name not in ("name", "kl_coefficient")]
        values: dict[str, Any] = {}
        for key, value in settings.items():
            if key not in known:
                raise ValueError(f"unknown key {key!r}; the keys are {', '.join(known)}")
            if key == "kl":
                values |= _kl_of(value)
            else:
                values[key] = None if value == "none" and key not in CHOICES else value
        if "sampler_mode" not in values and any(values.get(key) is not None for key in ("sampler_low", "sampler_cap")):
            raise ValueError("sampler_low and sampler_cap need a sampler_mode: truncate, mask or keep_or_drop, got none")
        return cls(name=name, **values)

    @property
    def terms(self) -> Terms:
        """The fields that act on tokens."""
        return Terms(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Terms)})

    @property
    def of_advantages(self) -> tuple[Any, ...]:
        """The fields that act on advantages: recipes where they are equal give the same ones."""
        return tuple(getattr(self, name) for name in ADVANTAGE_FIELDS)

    @property
    def by_step(self) -> bool:
        """Whether an answer's advantage depends on other groups of its step."""
        return self.scale == "batch_std"

    @property
    def needs(self) -> frozenset[str]:
        """The log-prob roles that the objective reads: of logp_new, logp_old, logp_sampler, logp_ref."""
        roles = {"logp_new", "logp_old" if self.ratio == "old" else "logp_sampler"}
        if self.sampler_mode != "none":
            roles |= {"logp_old", "logp_sampler"}
        if self.kl is not None:
            roles |= {"logp_ref"}
        return frozenset(roles)


def _number(field: str, value: Any, interval: str, optional: bool) -> float | None:
    """`value` as a float inside `interval`, or None where that is allowed."""
    if value is None and optional:
        return None
    allowed = f"a finite number in {interval}" + (" or none" if optional else "")
    finite = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    if not finite:
        raise ValueError(f"{field} must be {allowed}, got {value!r}")
    if (interval == _AT_LEAST_0 and value < 0) or (interval == _ABOVE_0 and value <= 0):
        raise ValueError(f"{field} must be {allowed}, got {value!r}")
    return float(value)


def _kl_of(value: Any) -> dict[str, Any]:
    """The `kl` key of a recipe file, "none" or {estimator = ..., coefficient = ...}, as the two fields."""
    if value == "none":
        return {"kl": None, "kl_coefficient": 0.0}
    if not isinstance(value, Mapping) or set(value) != {"estimator", "coefficient"}:
        raise ValueError(f'kl must be "none" or {{estimator = ..., coefficient = ...}}, got {value!r}')
    return {"kl": value["estimator"], "kl_coefficient": value["coefficient"]}
