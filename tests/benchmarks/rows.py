"""What is measured against what, and the aims."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.benchmarks import agreement
from tests.benchmarks.data import Data
from tests.benchmarks.measure import Command, olmorl, program

COLUMNS = ("step", "prompt_id", "reward", "logp_new", "logp_old", "logp_sampler", "mask")
"""What `olmorl objective` reads of the rollouts."""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: for --only.
        what: the work, and the peer.
        aim: olmorl's time ÷ the peer's is to be at most this.
        commands: makes the data; gives olmorl's command and the peer's.
        check: whether both came to the same.
        package: what the peer needs installed, or None.
        times: runs for each repeat; more where a run is short.
    """

    name: str
    what: str
    aim: float
    commands: Callable[[], tuple[Command, Command]]
    check: agreement.Check
    package: str | None = None
    times: int = 1


@dataclass(frozen=True)
class PeakRow:
    """One line of the table of peak memory: `olmorl objective` on one file."""

    what: str
    file: Callable[[], str]


RECIPES = (
    *("olmorl", "olmorl-tis", "grpo", "dapo", "dr-grpo", "gspo"),
    *("cispo", "rloo", "open-instruct", "trl", "verl", "slime"),
)
"""What `compare` is measured on."""


def rows(data: Data, tokens: float, most_tokens: float, answers: float) -> list[Row]:
    """The table's lines.

    Args:
        data: where files are.
        tokens: millions, of most lines about the objective.
        most_tokens: millions, of the lines that show how it grows.
        answers: millions, of the lines about advantages.
    """
    return [*_objective_rows(data, tokens, most_tokens), *_advantage_rows(data, answers), _start_row()]


def peak_rows(data: Data, tokens: float, most_tokens: float) -> list[PeakRow]:
    """The lines of the table of peak memory."""
    sizes = dict.fromkeys((tokens / 4, tokens, most_tokens))
    grown = [PeakRow(f"{size:g}M tokens", partial(data.rollouts, size)) for size in sizes]
    return [*grown, PeakRow(f"{tokens:g}M tokens in one row group", partial(data.one_row_group, tokens))]


def _objective_rows(data: Data, tokens: float, most_tokens: float) -> list[Row]:
    def against(peer: str, size: float, *columns: str) -> Callable[[], tuple[Command, Command]]:
        return lambda: (olmorl("objective", data.rollouts(size)), program(peer, data.rollouts(size), *columns))

    def compared() -> tuple[Command, Command]:
        asked = [word for name in RECIPES for word in ("--recipe", name)]
        return olmorl("compare", data.rollouts(tokens), *asked), olmorl("objective", data.rollouts(tokens))

    small, large = f"objective, {tokens:g}M tokens", f"objective, {most_tokens:g}M tokens"
    same = agreement.same_objective
    reading = against("read_only", tokens, *COLUMNS)
    return [
        Row("read-only", f"{small} ÷ reading the same columns", 1.35, reading, agreement.same_answers),
        Row("polars", f"{large} ÷ Polars", 0.5, against("polars_objective", most_tokens), same, "polars"),
        Row("duckdb", f"{large} ÷ DuckDB", 0.5, against("duckdb_objective", most_tokens), same, "duckdb"),
        Row("torch", f"{small} ÷ padded PyTorch", 0.15, against("torch_objective", tokens), same, "torch"),
        Row("compare", f"compare of 12 recipes, {tokens:g}M tokens ÷ objective", 3.0, compared, agreement.same_objective),
    ]


def _advantage_rows(data: Data, answers: float) -> list[Row]:
    def row(name: str, what: str, aim: float, order: str, suffix: str) -> Row:
        def commands() -> tuple[Command, Command]:
            file, ours, theirs = data.answers(answers, order), data.output(f"ours.{suffix}"), data.output(f"theirs.{suffix}")
            return olmorl("advantages", file, "-o", ours), program("polars_advantages", file, theirs)

        what = f"advantages, {answers:g}M answers, {what} ÷ Polars"
        return Row(name, what, aim, commands, agreement.same_advantages, "polars")

    return [
        row("sorted", "sorted integer ids, to Parquet", 1.0, "sorted", "parquet"),
        row("shuffled", "shuffled text ids, to Parquet", 1.0, "shuffled", "parquet"),
        row("jsonl", "sorted integer ids, to JSON Lines", 1.5, "sorted", "jsonl"),
    ]


def _start_row() -> Row:
    def commands() -> tuple[Command, Command]:
        return olmorl("--version"), [sys.executable, "-c", "import typer"]

    return Row("version", "`olmorl --version` ÷ `import typer`", 1.5, commands, agreement.nothing, times=4)
