"""The command line: what each command reads, scores and shows, and the exit code."""

import os
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Annotated

import typer

from olmorl_cli import __version__, options
from olmorl_cli.errors import ExitCode, UsageError
from olmorl_cli.output import (
    destination_of,
    page_destination,
    print_error,
    problems_to,
    progress_bar,
    say,
    write_folder,
    write_objectives,
    write_result,
    write_sums,
    write_tokens,
    write_top,
)
from olmorl_cli.program import Program, takes
from olmorl_cli.request import Request
from olmorl_cli.running import refuse_together, report_input, score_input, score_tokens_by
from olmorl_cli.values import Overrides, parse_count

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


COMPARED = ("olmorl", "grpo", "dapo", "dr-grpo", "gspo", "cispo")
"""Recipes that `compare` takes where none is named."""

app = Program(
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Scores reinforcement-learning rollouts offline: advantages, kept groups and the clipped objective, as OLMo 3's"
    " OlmoRL and other trainers compute them.",
)


@app.command()
@takes(first=[options.ANSWERS], last=[options.INVALID, options.ENGINE, options.RESULT, options.OTHERS])
def advantages(
    context: typer.Context,
    recipe: options.RecipeName = "olmorl",
    normalize_std: options.NormalizeStd = None,
    top: options.Top = None,
) -> None:
    """Every answer's advantage and kept flag.

    One row an answer, in input order. JSON Lines and CSV have the columns step (where there is one), group, row, reward,
    advantage and kept; Parquet and Arrow have every input column, and advantage and kept. -o FOLDER/ takes these in parts, a
    file for each 64 MB or million rows of the input.
    """
    from olmorl_cli.results import answers_table, passed_through, replaced_columns
    from olmorl_cli.rollouts.writer import write_batches, write_tables

    number = None if top is None else parse_count("--top", top)
    destination = destination_of(context.params, parts=number is None)
    request, settings = Request.of(context.params, destination), Overrides.of(context.params).over(recipe)
    whole = number is not None or destination.format == "table"
    scored = score_input(request, settings, whole=whole, mask=number is not None)
    if number is not None:
        write_top(scored.whole, number, destination)
        return
    if destination.format in ("parquet", "arrow") and (replaced := replaced_columns(scored)):
        say(destination.quiet, [f"input columns replaced in the output: {', '.join(replaced)}"])
    if destination.folder is not None:
        write_folder(scored, destination.folder, destination)
        return

    def write(sink: IO[bytes], stream: bool) -> None:
        if destination.format not in ("parquet", "arrow"):
            write_tables(map(answers_table, scored.runs), destination.format, sink, stream=stream)
            return
        schema, batches = passed_through(scored, dictionaries=stream or destination.format == "parquet")
        write_batches(schema, batches, destination.format, sink, stream=stream)

    def screen(console: "Console") -> Iterator["RenderableType"]:
        from olmorl_cli.display.screens import answers_screen

        return answers_screen(scored.whole, answers_table(scored.whole), console)

    write_result(destination, write, screen)


@app.command()
@takes(first=[options.ANSWERS], last=[options.INVALID, options.ENGINE, options.RESULT, options.OTHERS])
def groups(
    context: typer.Context,
    recipe: options.RecipeName = "olmorl",
) -> None:
    """Every group's statistics and kept flag.

    One row a group, in order of first appearance. The columns are step (where there is one), group, size, mean, std (the
    population's), min, max and kept.
    """
    from olmorl_cli.results import groups_table
    from olmorl_cli.rollouts.writer import write_tables

    request = Request.of(context.params)
    format = request.destination.format
    scored = score_input(request, Overrides().over(recipe), whole=format == "table", groups=True)

    def write(sink: IO[bytes], stream: bool) -> None:
        write_tables(map(groups_table, scored.groups), format, sink, stream=stream)

    def screen(console: "Console") -> Iterator["RenderableType"]:
        from olmorl_cli.display.screens import groups_screen

        return groups_screen(scored.whole, groups_table(next(scored.groups)), console)

    write_result(request.destination, write, screen)


@app.command()
@takes(first=[options.ANSWERS, options.TOKENS], last=[options.INVALID, options.ENGINE, options.RESULT, options.OTHERS])
def objective(
    context: typer.Context,
    recipe: options.RecipeName = "olmorl",
    normalize_std: options.NormalizeStd = None,
    eps_low: options.EpsLow = None,
    eps_high: options.EpsHigh = None,
    aggregation: options.Aggregation = None,
    sampler_cap: options.SamplerCap = None,
    keep_zero_signal: options.KeepZeroSignal = False,
    by: options.By = None,
    diagnostics: options.Diagnostics = False,
    per_answer: options.PerAnswer = False,
    per_token: options.PerToken = False,
) -> None:
    """The objective and its diagnostics.

    objective counts the tokens of kept groups, objective_all_groups those of all. clip_low is the share of counted tokens
    with ratio < 1 - eps_low and advantage < 0, clip_high with ratio > 1 + eps_high and advantage > 0; approx_kl is the mean
    of (ratio - 1) - log ratio.
    """
    from olmorl_cli.results import changes_advantages

    refuse_together(
        {"--per-token": per_token, "--per-answer": per_answer, "--by": by is not None, "--diagnostics": diagnostics}
    )
    request, settings = Request.of(context.params), Overrides.of(context.params).over(recipe)
    own = normalize_std is None and not changes_advantages(settings)
    results = score_tokens_by(
        request,
        [settings],
        by=by,
        own_advantages=own,
        keep_sums=per_answer or per_token,
        diagnose=diagnostics,
    )
    if per_answer:
        write_sums(results[0], request.destination)
    elif per_token:
        write_tokens(results[0], request.skip, request.destination)
    else:
        write_objectives(results, results[0].rows, request.destination)


@app.command()
@takes(first=[options.ANSWERS, options.TOKENS], last=[options.INVALID, options.ENGINE, options.RESULT, options.OTHERS])
def compare(
    context: typer.Context,
    recipe: options.RecipeNames = None,
    normalize_std: options.NormalizeStd = None,
    eps_low: options.EpsLow = None,
    eps_high: options.EpsHigh = None,
    aggregation: options.Aggregation = None,
    sampler_cap: options.SamplerCap = None,
    keep_zero_signal: options.KeepZeroSignal = False,
) -> None:
    """The objective under several recipes, one a row.

    The rollouts are read once for all of them. --eps-low, --eps-high and --sampler-cap take several values with commas
    between them: a row each.
    """
    request, overrides = Request.of(context.params), Overrides.of(context.params)
    results = score_tokens_by(request, overrides.swept(recipe or COMPARED))
    records = [{"recipe": row["recipe"]} | row for result in results for row in result.rows]
    write_objectives(results, records, request.destination)


@app.command()
@takes(first=[options.ANSWERS, options.TOKENS], last=[options.ENGINE, options.RESULT, options.OTHERS])
def inspect(
    context: typer.Context,
    recipe: options.RecipeName = "olmorl",
    fail_on: options.FailOn = None,
) -> None:
    """What is in the files, and what is wrong with them.

    Which column plays which role and why, the numbers of files, answers, groups and tokens, the problems found, what every
    check says of the run, and where the gradient went under the recipe. The exit code is 1 if a problem is an error, or if a
    check named by --fail-on fires. Two columns of a role that disagree stop it: an option says which to take.
    """
    from olmorl_cli.checks.limits import exceeded, parse_limits
    from olmorl_cli.inspection import ROLES, inspect_rollouts
    from olmorl_cli.rollouts.opening import OPTIONAL
    from olmorl_cli.rollouts.writer import write_records

    request, settings, limits = Request.of(context.params), Overrides().over(recipe), parse_limits(fail_on or ())
    destination = request.destination
    optional = OPTIONAL | {role for role in ROLES if role.startswith("logp")}
    with problems_to(destination) as found:
        rollouts = request.opened(ROLES, optional)
        with progress_bar(destination.quiet, rollouts.rows, len(rollouts.fragments)) as progress:
            inspection = inspect_rollouts(rollouts, progress, settings)
        found.merge(inspection.problems)

    def screen(console: "Console") -> Iterator["RenderableType"]:
        from olmorl_cli.display.screens import inspection_screen

        return inspection_screen(inspection, console)

    records = [inspection.record]
    write_result(destination, lambda sink, stream: write_records(records, destination.format, sink, stream=stream), screen)
    errors, notes = exceeded(limits, inspection.examination.findings, inspection.name)
    say(destination.quiet, notes)
    for line in errors:
        print_error(f"olmorl: error: {line}")
    if errors or not inspection.acceptable:
        raise typer.Exit(ExitCode.BAD_DATA)


@app.command()
@takes(first=[options.ANSWERS, options.TOKENS], last=[options.INVALID, options.OTHERS])
def report(
    context: typer.Context,
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE.html", help="The page to write.")],
    recipe: options.RecipeName = "olmorl",
) -> None:
    """One HTML page of a run, with plots and tables.

    What happened in the run, what the checks found, where the gradient went, figures by step, spreads, and the groups down
    to their answers' tokens. The page is whole: it loads nothing, and opens from disk.
    """
    from olmorl_cli.results import changes_advantages
    from olmorl_cli.rollouts.target import open_target

    request = Request.of(context.params, page_destination(context.params))
    settings = Overrides().over(recipe)
    page = report_input(request, settings, own_advantages=not changes_advantages(settings))
    with open_target(output, whole=True) as sink:
        sink.write(page.encode())


@app.command()
def sample(
    output: Annotated[str, typer.Option("-o", "--output", metavar="FILE", help="The Parquet file to write.")],
    steps: Annotated[str, typer.Option("--steps", metavar="N", help="Training steps.")] = "8",
    prompts: Annotated[str, typer.Option("--prompts", metavar="N", help="Prompts a step.")] = "32",
    group_size: Annotated[str, typer.Option("--group-size", metavar="N", help="Answers a prompt.")] = "8",
    tokens: Annotated[str, typer.Option("--tokens", metavar="N", help="Mean tokens an answer.")] = "64",
    seed: Annotated[str, typer.Option("--seed", metavar="N", help="Of the random numbers.")] = "0",
    debug: options.Debug = False,
) -> None:
    """Synthetic rollouts, to try and to measure with.

    STEPS x PROMPTS x GROUP SIZE answers are written to a Parquet file with the columns of sample_data.
    """
    from olmorl_cli.rollouts.target import SUFFIXES, check_target, open_target
    from olmorl_cli.rollouts.writer import write_batches
    from olmorl_cli.sample import SCHEMA, Shape, sample_batches

    if not output:  # some versions of the parser let it be left out
        raise UsageError("sample writes to a file: add -o FILE.parquet")
    shape = Shape(
        steps=parse_count("--steps", steps),
        prompts=parse_count("--prompts", prompts),
        group_size=parse_count("--group-size", group_size),
        tokens=parse_count("--tokens", tokens),
        seed=parse_count("--seed", seed, least=0),
    )
    if output == "-" or SUFFIXES.get(os.path.splitext(output)[1], "parquet") != "parquet":
        raise UsageError(f"{output}: sample writes Parquet. Call the file NAME.parquet")
    check_target(output, [])
    with open_target(output, whole=False) as sink:
        write_batches(SCHEMA, sample_batches(shape), "parquet", sink, stream=False)


@app.callback(invoke_without_command=True)
def olmorl(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Options of the program itself."""
    if version:
        typer.echo(f"olmorl {__version__}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(ExitCode.FAILED)
