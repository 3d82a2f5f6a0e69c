"""Command-line options: one declaration each, shared by the commands, and the reading of their values."""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
import typer.core

from olmorl_cli.errors import UsageError

if TYPE_CHECKING:
    from olmorl_cli.core.recipes import Recipe
    from olmorl_cli.rollouts.rollouts import Selection

_INPUT, _SCORING, _OUTPUT = "Input", "Scoring", "Output"

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILES",
        help="Parquet, Arrow or JSON Lines files, folders or patterns, here or behind URIs; - is standard input. Without"
        " any: standard input if it is a pipe, else $OLMORL_ROLLOUTS, else ./rollouts.parquet.",
        show_default=False,
    ),
]
Join = Annotated[
    str | None,
    typer.Option(
        "--join",
        metavar="FILE",
        help="Columns from a second file (or folder, or pattern) with the same answers in any order; needs --on.",
        show_default=False,
    ),
]
On = Annotated[
    list[str] | None,
    typer.Option("--on", metavar="COL", help="Column that tells an answer in both files (repeatable).", show_default=False),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="COL", help="Column that tells an answer's group (repeatable).", show_default=False),
]
GroupSize = Annotated[
    str | None,
    typer.Option("-G", "--group-size", metavar="N", help="Groups are N consecutive rows.", show_default=False),
]
Step = Annotated[
    str | None,
    typer.Option("--step", metavar="COL", help="Column of the training step, part of the group's key.", show_default=False),
]
Reward = Annotated[
    list[str] | None,
    typer.Option(
        "--reward",
        metavar="COL",
        help="Column of the reward, or COL*0.5 (repeatable: their sum).",
        show_default=False,
    ),
]
Advantage = Annotated[
    str | None,
    typer.Option("--advantage", metavar="COL", help="Take the advantages from this column.", show_default=False),
]
Answer = Annotated[
    str | None,
    typer.Option(
        "--answer", metavar="COL", help="Column that tells an answer: none may stand in a group twice.", show_default=False
    ),
]
LogpNew = Annotated[
    str | None,
    typer.Option("--logp-new", metavar="COL", help="Column of the trained policy's log-probs.", show_default=False),
]
LogpOld = Annotated[
    str | None,
    typer.Option("--logp-old", metavar="COL", help="Column of the log-probs before the update.", show_default=False),
]
LogpSampler = Annotated[
    str | None,
    typer.Option("--logp-sampler", metavar="COL", help="Column of the inference engine's log-probs.", show_default=False),
]
LogpRef = Annotated[
    str | None,
    typer.Option("--logp-ref", metavar="COL", help="Column of the reference policy's log-probs.", show_default=False),
]
Mask = Annotated[
    str | None,
    typer.Option(
        "--mask", metavar="COL", help="Column that marks real tokens; without one every token is real.", show_default=False
    ),
]
Accept = Annotated[
    str | None,
    typer.Option(
        "--accept",
        metavar="compact",
        help="compact: log-probs stand only for the tokens that the mask marks.",
        show_default=False,
    ),
]
Invalid = Annotated[
    str,
    typer.Option(
        "--invalid",
        metavar="error|skip",
        help="What cannot be scored is refused, all of it gathered first, or left out and counted.",
    ),
]
RecipeName = Annotated[
    str,
    typer.Option("--recipe", metavar="NAME|FILE.toml", help="Scoring settings; the options below win over them."),
]
RecipeNames = Annotated[
    list[str] | None,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE.toml",
        help="Scoring settings, a row each (repeatable); the options below win over them. [default: olmorl, grpo, dapo,"
        " dr-grpo, gspo, cispo]",
        show_default=False,
    ),
]
NormalizeStd = Annotated[
    bool | None,
    typer.Option(
        "--normalize-std/--no-normalize-std",
        help="Divide advantages by their group's standard deviation.",
        show_default=False,
    ),
]
EpsLow = Annotated[
    str | None,
    typer.Option("--eps-low", metavar="X", help="Lower clip: ratio above 1 - X. OlmoRL: 0.2.", show_default=False),
]
EpsHigh = Annotated[
    str | None,
    typer.Option("--eps-high", metavar="X", help="Upper clip: ratio below 1 + X. OlmoRL: 0.272.", show_default=False),
]
Aggregation = Annotated[
    str | None,
    typer.Option(
        "--aggregation",
        metavar="HOW",
        help="token_mean (OlmoRL), token_sum, sequence_mean_of_token_mean, sequence_mean_of_token_sum or"
        " prompt_mean_of_token_mean.",
        show_default=False,
    ),
]
SamplerCap = Annotated[
    str | None,
    typer.Option(
        "--sampler-cap", metavar="X", help="Weight tokens by min(old / sampler probability, X).", show_default=False
    ),
]
KeepZeroSignal = Annotated[
    bool, typer.Option("--keep-zero-signal", help="Count groups whose rewards are all identical too.")
]
Diagnostics = Annotated[
    bool,
    typer.Option(
        "--diagnostics",
        help="More figures: clip_changed, quantiles of the ratio, approx_kl_k1 and _k2, and the sampler's tails.",
    ),
]
PerAnswer = Annotated[
    bool, typer.Option("--per-answer", help="Write what each answer's tokens add up to, one row an answer.")
]
PerToken = Annotated[
    bool, typer.Option("--per-token", help="Write each token's term and the objective's gradient by it, one row a token.")
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CODE|CODE>X",
        help="Exit with 1 where this check fires, or its value is above X, as in --fail-on 'zero_signal>0.6' (repeatable).",
        show_default=False,
    ),
]
Top = Annotated[
    str | None,
    typer.Option(
        "--top", metavar="N", help="Only the N answers of greatest |advantage| x tokens, with texts.", show_default=False
    ),
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="step|COL", help="One row for each step, or value of a column.", show_default=False),
]
Format = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--format",
        metavar="table|jsonl|csv|parquet|arrow",
        help="[default: by the suffix of -o; table on a terminal, else jsonl]",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write there instead of to standard output.", show_default=False),
]
ProblemsFile = Annotated[
    str | None,
    typer.Option(
        "--problems",
        metavar="FILE.jsonl",
        help="Write what is wrong with the data there too, a JSON object for each place named.",
        show_default=False,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No notes and no progress on standard error.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class Command(typer.core.TyperCommand):
    """A command that refuses an option given twice, where the parser would let the last one win in silence."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As the parser does, once it is known that every option of one value has one.

        Raises:
            UsageError: one has two.
        """
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(list(args))
            for option in given:
                if given.count(option) > 1 and _has_one_value(option):
                    names = ", ".join([*option.opts, *option.secondary_opts])
                    raise UsageError(f"{names} is given twice. Give it once")
        return super().parse_args(ctx, args)


def _has_one_value(parameter: Any) -> bool:
    """Whether an option that is given again would take the place of what was given before."""
    lone_flag = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
    return parameter.param_type_name == "option" and not parameter.multiple and not lone_flag


class Program(typer.Typer):
    """A program of such commands."""

    def command(self, *args: Any, **kwargs: Any) -> Callable[[Any], Any]:
        return super().command(*args, **{"cls": Command} | kwargs)


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
