"""What the scoring commands have in common: the input is opened, the destination checked, what is wrong gathered."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from olmorl_cli.errors import UsageError
from olmorl_cli.options import parse_choice
from olmorl_cli.output import Destination, problems_to, progress_bar, say, say_columns

if TYPE_CHECKING:
    from olmorl_cli.core.recipes import Recipe
    from olmorl_cli.rollouts.rollouts import Selection
    from olmorl_cli.scoring import Objective, ScoredAnswers


def refuse_together(asked: Mapping[str, bool]) -> None:
    """Refuse two forms of the objective at once: rows of answers or tokens have no figures of batches.

    Raises:
        UsageError: two of the options `asked` for do not go together.
    """
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) > 1 and given[0].startswith("--per"):
        raise UsageError(f"{given[0]} and {given[1]} exclude each other: ask for one of them")


def _skips(invalid: str) -> bool:
    """Whether --invalid leaves out what cannot be scored.

    Raises:
        UsageError: it has another value.
    """
    return parse_choice("--invalid", invalid, ("error", "skip")) == "skip"


def score_input(
    files: list[str] | None,
    selection: "Selection",
    recipe: "Recipe",
    invalid: str,
    destination: Destination,
    mask: bool = False,
) -> "ScoredAnswers":
    """Open the input (with its mask, if that is asked for), check the destination, score the answers."""
    from olmorl_cli.rollouts.opening import open_rollouts
    from olmorl_cli.scoring import score_answers

    skip = _skips(invalid)
    needs = {"group", "step", "reward", "answer"} | ({"advantage"} if selection.of("advantage") else set())
    needs |= {"mask"} if mask else set()
    with problems_to(destination) as found:
        rollouts = open_rollouts(files or (), selection, frozenset(needs), check=destination.check)
        scored = score_answers(rollouts, recipe, skip)
        found.merge(scored.problems)
    say_columns(destination.quiet, rollouts)
    say(destination.quiet, scored.notes)
    return scored


def score_tokens_by(
    files: list[str] | None,
    selection: "Selection",
    recipes: Sequence["Recipe"],
    invalid: str,
    destination: Destination,
    *,
    by: str | None = None,
    own_advantages: bool = False,
    keep_sums: bool = False,
    diagnose: bool = False,
) -> list["Objective"]:
    """Open the input, check the destination, score the objective under every recipe."""
    from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts
    from olmorl_cli.scoring import RESULT_KEYS, score_objective

    skip = _skips(invalid)
    required = frozenset[str]().union(*(recipe.needs for recipe in recipes))
    needs = {"group", "step", "reward", "answer", "mask", "logp_old", "logp_sampler", *required}
    if own_advantages or selection.of("advantage"):
        needs.add("advantage")
    optional = (OPTIONAL | {"logp_old"}) - required
    if by is not None:
        if by in RESULT_KEYS or not by:
            raise UsageError(f"--by takes a column that is not called like a key of the result, got {by!r}. Rename it")
        needs.add("by")
        optional -= {"step"} if by == "step" else frozenset()
        selection = selection.with_column("by", by)
    with problems_to(destination) as found:
        rollouts = open_rollouts(files or (), selection, frozenset(needs), optional, destination.check)
        with progress_bar(destination.quiet, rollouts.rows) as progress:
            results = score_objective(
                rollouts, recipes, by=by, skip=skip, keep_sums=keep_sums, diagnose=diagnose, progress=progress
            )
        found.merge(results[0].answers.problems)
    if destination.format != "table" or by is not None or len(results) > 1:  # the screen of one objective shows them itself
        say_columns(destination.quiet, rollouts)
    say(destination.quiet, list(dict.fromkeys(note for result in results for note in result.notes)))
    return results


def report_input(
    files: list[str] | None,
    selection: "Selection",
    recipe: "Recipe",
    invalid: str,
    destination: Destination,
    *,
    own_advantages: bool,
) -> str:
    """Open the input, check the destination, and make a page of the run."""
    from olmorl_cli.report.data import read_run
    from olmorl_cli.report.page import page_of
    from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts

    skip = _skips(invalid)
    logps = {"logp_new", "logp_old", "logp_sampler", *recipe.needs}
    needs = {"group", "step", "reward", "answer", "mask", *logps}
    if own_advantages or selection.of("advantage"):
        needs.add("advantage")
    with problems_to(destination) as found:
        rollouts = open_rollouts(files or (), selection, frozenset(needs), OPTIONAL | logps, destination.check)
        with progress_bar(destination.quiet, rollouts.rows) as progress:
            run, problems = read_run(rollouts, recipe, skip, progress)
        found.merge(problems)
        page = page_of(run, problems, skip)
    say_columns(destination.quiet, rollouts)
    notes = [kind.line() for kind in problems.kinds() if kind.severity != "error"]
    say(destination.quiet, list(dict.fromkeys([*notes, *run.notes])))
    return page
