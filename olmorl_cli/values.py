"""What was given: the values of a command's options, read."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from olmorl_cli.errors import UsageError

if TYPE_CHECKING:
    from olmorl_cli.core.recipes import Recipe
    from olmorl_cli.rollouts.rollouts import Selection

_DECIMAL = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)


def parse_number(
    option: str, text: str, *, above: float | None = None, least: float = 0.0, most: float | None = None
) -> float:
    """The finite number that an option's value writes.

    Args:
        option: its name, for the message.
        text: its value.
        above, least, most: the interval, open at `above` if that is given.

    Raises:
        UsageError: it is none, or outside the interval.
    """
    end = "inf)" if most is None else f"{most:g}]"
    allowed = f"a number in {f'({above:g}' if above is not None else f'[{least:g}'}, {end}"
    value = float(text) if _DECIMAL.fullmatch(text) else float("nan")
    fits = value > above if above is not None else value >= least
    if not (fits and value < float("inf") and (most is None or value <= most)):
        raise UsageError(f"{option} takes {allowed}, got {text!r}")
    return value + 0.0  # no negative zero


def parse_count(option: str, text: str, least: int = 1) -> int:
    """The whole number that an option's value writes.

    Raises:
        UsageError: it is none, or below `least`.
    """
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII) or int(text) < least:
        raise UsageError(f"{option} takes a whole number of at least {least} and of at most 12 digits, got {text!r}")
    return int(text)


def parse_choice(option: str, text: str, allowed: tuple[str, ...]) -> str:
    """An option's value out of a few words.

    Raises:
        UsageError: it is another.
    """
    if text not in allowed:
        raise UsageError(f"{option} takes one of {', '.join(allowed)}, got {text!r}")
    return text


ROLES = ("group", "step", "reward", "advantage", "answer", "logp_new", "logp_old", "logp_sampler", "logp_ref", "mask")
"""Options that name the column of a role, as parameters of the commands."""


def selection_of(parameters: Mapping[str, Any]) -> "Selection":
    """What a command's parameters say of the input.

    Raises:
        UsageError: they cannot be meant.
    """
    from olmorl_cli.rollouts.rollouts import Selection

    given = {role: parameters[role] for role in ROLES if parameters.get(role) is not None}
    columns = {role: (value,) if isinstance(value, str) else tuple(value) for role, value in given.items()}
    for role, names in columns.items():
        if "" in names:
            raise UsageError(f"--{role.replace('_', '-')} takes the name of a column, got ''")
    size = parameters.get("group_size")
    if size is not None and columns.get("group"):
        raise UsageError("-G and --group exclude each other: give the size of consecutive groups, or the column")
    group_size = None if size is None else parse_count("-G, --group-size", size)
    accept = parameters.get("accept")
    if accept is not None:
        parse_choice("--accept", accept, ("compact",))
    join, on = _join_of(parameters.get("join"), parameters.get("on") or ())
    named = {role: names for role, names in columns.items() if names}
    return Selection(named, group_size, accept is not None, join, on)


def _join_of(join: str | None, on: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """The second file and the columns of its key.

    Raises:
        UsageError: one is given without the other.
    """
    if on and join is None:
        raise UsageError("--on tells which rows of two files belong together: add --join FILE, or leave --on out")
    if join is not None and not on:
        raise UsageError("--join needs a key: add --on COL, a column of both files that tells an answer, as --on answer_id")
    if "" in on:
        raise UsageError("--on takes the name of a column, got ''")
    return join, tuple(dict.fromkeys(on))


@dataclass(frozen=True)
class Overrides:
    """Options that win over a recipe, as they were given."""

    normalize_std: bool | None = None
    eps_low: str | None = None
    eps_high: str | None = None
    aggregation: str | None = None
    sampler_cap: str | None = None
    keep_zero_signal: bool = False

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Those among a command's parameters."""
        return cls(**{f.name: parameters[f.name] for f in dataclasses.fields(cls) if f.name in parameters})

    def fields(self) -> dict[str, Any]:
        """The recipe's fields that they set.

        Raises:
            UsageError: one has a value that is not allowed.
        """
        fields: dict[str, Any] = {}
        if self.normalize_std is not None:
            fields["scale"] = "group_std" if self.normalize_std else "none"
        if self.eps_low is not None:
            fields["eps_low"] = parse_number("--eps-low", self.eps_low, most=1.0)
        if self.eps_high is not None:
            fields["eps_high"] = parse_number("--eps-high", self.eps_high)
        if self.aggregation is not None:
            from olmorl_cli.core.recipes import CHOICES

            allowed = tuple(str(word) for word in CHOICES["aggregation"] if word != "sum_over_constant")
            fields["aggregation"] = parse_choice("--aggregation", self.aggregation, allowed)
        if self.sampler_cap is not None:
            fields["sampler_mode"] = "truncate"
            fields["sampler_cap"] = parse_number("--sampler-cap", self.sampler_cap, above=0.0)
        if self.keep_zero_signal:
            fields["zero_signal_groups"] = "kept"
        return fields

    def sweep(self) -> list["Overrides"]:
        """These options with each of the values that --eps-low, --eps-high and --sampler-cap list, comma between them."""
        swept = [self]
        for field in ("eps_low", "eps_high", "sampler_cap"):
            listed = getattr(self, field)
            if listed is not None and "," in listed:
                swept = [dataclasses.replace(each, **{field: value}) for each in swept for value in listed.split(",")]
        return swept

    def swept(self, names: Sequence[str]) -> list["Recipe"]:
        """Every recipe with each of the listed values over it; one of several caps is part of its name."""
        recipes = []
        for name in names:
            for each in self.sweep():
                recipe = each.over(name)
                several = self.sampler_cap is not None and "," in self.sampler_cap
                recipes.append(
                    dataclasses.replace(recipe, name=f"{recipe.name} cap {each.sampler_cap}") if several else recipe
                )
        return recipes

    def over(self, name: str) -> "Recipe":
        """The recipe called `name` with these options over it."""
        from olmorl_cli.recipe_files import recipe_of

        return recipe_of(name, self.fields())
