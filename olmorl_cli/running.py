"""What the scoring commands have in common: the input is opened, the destination checked, what is wrong gathered."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from olmorl_cli.errors import UsageError
from olmorl_cli.output import problems_to, progress_bar, say, say_columns

if TYPE_CHECKING:
    from olmorl_cli.answer_pass import ScoredInput
    from olmorl_cli.core.recipes import Recipe
    from olmorl_cli.objectives import Objective
    from olmorl_cli.request import Request


def refuse_together(asked: Mapping[str, bool]) -> None:
    """Refuse two forms of the objective at once: rows of answers or tokens have no figures of batches.

    Raises:
        UsageError: two of the options `asked` for do not go together.
    """
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) > 1 and given[0].startswith("--per"):
        raise UsageError(f"{given[0]} and {given[1]} exclude each other: ask for one of them")


def score_input(
    request: "Request", recipe: "Recipe", *, whole: bool, groups: bool = False, mask: bool = False
) -> "ScoredInput":
    """Open the input (with its mask, if that is asked for), check the destination, score the answers, perhaps as a whole."""
    from olmorl_cli.answer_pass import ScoredInput
    from olmorl_cli.rollouts.parallel import keep_freed_memory

    keep_freed_memory()
    needs = {"group", "step", "reward", "answer"} | ({"advantage"} if request.selection.of("advantage") else set())
    needs |= {"mask"} if mask else set()
    with problems_to(request.destination) as found:
        rollouts = request.opened(frozenset(needs))
        scored = ScoredInput(rollouts, recipe, request.skip, whole, groups)
        found.merge(scored.problems)
    say_columns(request.destination.quiet, rollouts)
    say(request.destination.quiet, scored.notes)
    return scored


def score_tokens_by(
    request: "Request",
    recipes: Sequence["Recipe"],
    *,
    by: str | None = None,
    own_advantages: bool = False,
    keep_sums: bool = False,
    diagnose: bool = False,
) -> list["Objective"]:
    """Open the input, check the destination, score the objective under every recipe."""
    from olmorl_cli.objectives import RESULT_KEYS, score_objective
    from olmorl_cli.rollouts.opening import OPTIONAL

    required = frozenset[str]().union(*(recipe.needs for recipe in recipes))
    needs = {"group", "step", "reward", "answer", "mask", "logp_old", "logp_sampler", *required}
    if own_advantages or request.selection.of("advantage"):
        needs.add("advantage")
    optional = (OPTIONAL | {"logp_old"}) - required
    if by is not None:
        if by in RESULT_KEYS or not by:
            raise UsageError(f"--by takes a column that is not called like a key of the result, got {by!r}. Rename it")
        needs.add("by")
        optional -= {"step"} if by == "step" else frozenset()
        request = dataclasses.replace(request, selection=request.selection.with_column("by", by))
    destination = request.destination
    with problems_to(destination) as found:
        rollouts = request.opened(frozenset(needs), optional)
        with progress_bar(destination.quiet, rollouts.rows, len(rollouts.fragments)) as progress:
            results = score_objective(
                rollouts, recipes, by=by, skip=request.skip, keep_sums=keep_sums, diagnose=diagnose, progress=progress
            )
        found.merge(results[0].problems)
    if destination.format != "table" or by is not None or len(results) > 1:  # the screen of one objective shows them itself
        say_columns(destination.quiet, rollouts)
    say(destination.quiet, list(dict.fromkeys(note for result in results for note in result.notes)))
    return results


def report_input(request: "Request", recipe: "Recipe", *, own_advantages: bool) -> str:
    """Open the input, check the destination, and make a page of the run."""
    from olmorl_cli.report.data import read_run
    from olmorl_cli.report.page import page_of
    from olmorl_cli.rollouts.opening import OPTIONAL

    destination = request.destination
    logps = {"logp_new", "logp_old", "logp_sampler", *recipe.needs}
    needs = {"group", "step", "reward", "answer", "mask", *logps}
    if own_advantages or request.selection.of("advantage"):
        needs.add("advantage")
    with problems_to(destination) as found:
        rollouts = request.opened(frozenset(needs), OPTIONAL | logps)
        with progress_bar(destination.quiet, rollouts.rows, len(rollouts.fragments)) as progress:
            run, problems = read_run(rollouts, recipe, request.skip, progress)
        found.merge(problems)
        page = page_of(run, problems, request.skip)
    say_columns(destination.quiet, rollouts)
    notes = [kind.line() for kind in problems.kinds() if kind.severity != "error"]
    say(destination.quiet, list(dict.fromkeys([*notes, *run.notes])))
    return page
