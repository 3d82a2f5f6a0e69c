"""The program: commands that share options, and refuse those that are given twice."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import typer
import typer.core

from olmorl_cli.errors import UsageError
from olmorl_cli.options import Options

Function = Callable[..., None]


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


def takes(first: Sequence[Options], last: Sequence[Options]) -> Callable[[Function], Function]:
    """Gives a command shared options, before and after its own; it finds their values in its context."""

    def with_options(function: Function) -> Function:
        own = inspect.signature(function).parameters
        context, *rest = (each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own.values())
        before, after = ([_parameter(*each) for options in shared for each in options.items()] for shared in (first, last))

        @functools.wraps(function)
        def command(**given: Any) -> None:
            function(**{name: value for name, value in given.items() if name in own})

        parameters = [context, *before, *rest, *after]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return command

    return with_options


def _parameter(name: str, declared: tuple[Any, Any]) -> inspect.Parameter:
    annotation, default = declared
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
