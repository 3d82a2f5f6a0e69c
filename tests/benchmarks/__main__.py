"""The command line. The README's table is made by `python -m tests.benchmarks --tokens 40,160 --answers 10 --repeats 5`."""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

from tests.benchmarks.data import Data
from tests.benchmarks.measure import ProgramError
from tests.benchmarks.report import measured, measured_peaks, peak_table, table
from tests.benchmarks.rows import peak_rows, rows

PEAKS = "peaks"
NAMES = ("compare", "read-only", "polars", "duckdb", "torch", "sorted", "shuffled", "jsonl", "version", PEAKS)
PACKAGES = ("olmorl-cli", "numpy", "pyarrow", "polars", "duckdb", "torch", "typer")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write Markdown on standard output; 1 if programs fail or disagree."""
    chosen = _parser().parse_args(arguments)
    if chosen.work is not None:
        chosen.work.mkdir(parents=True, exist_ok=True)
        return _report(chosen, Data(chosen.work))
    with tempfile.TemporaryDirectory() as folder:
        return _report(chosen, Data(Path(folder)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    add = parser.add_argument
    add("--tokens", type=sizes, default=(4.0, 16.0), metavar="M[,M]", help="millions of tokens; of the large rows [4,16]")
    add("--answers", type=size, default=1.0, metavar="M", help="millions of answers of the advantages' rows [1]")
    add("--repeats", type=count, default=3, metavar="N", help="runs of each program, after one to warm up [3]")
    add("--only", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}")
    add("--work", type=Path, metavar="DIR", help="keep the data there and use them again [a temporary folder]")
    return parser


def size(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


def sizes(text: str) -> tuple[float, float]:
    values = [size(part) for part in text.split(",")]
    if len(values) > 2:
        raise ValueError(text)
    return values[0], values[-1]


def count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _report(chosen: argparse.Namespace, data: Data) -> int:
    _write([f"{_machine()}; median of {chosen.repeats}", ""])
    sound = _compare(chosen, data)
    if PEAKS in chosen.only:
        sound = _show_peaks(chosen, data) and sound
    return 0 if sound else 1


def _show_peaks(chosen: argparse.Namespace, data: Data) -> bool:
    """The table of peak memory; whether olmorl ran."""
    files = peak_rows(data, *chosen.tokens)
    try:
        _write([*peak_table(files, measured_peaks(files, chosen.repeats, _say)), ""])
    except ProgramError as error:
        _write([f"- {PEAKS}: FAILED: {error}", ""])
        return False
    return True


def _compare(chosen: argparse.Namespace, data: Data) -> bool:
    """The table of times and the notes below it; whether all is sound."""
    tokens, most_tokens = chosen.tokens
    lines = [row for row in rows(data, tokens, most_tokens, chosen.answers) if row.name in chosen.only]
    outcomes = []
    for row in lines:
        _say(row.what)
        outcomes.append(measured(row, chosen.repeats))
        data.remove_outputs()
    if lines:
        _write([*table(lines, outcomes), "", *(f"- {outcome.note}" for outcome in outcomes), ""])
    return all(outcome.sound for outcome in outcomes)


def _machine() -> str:
    """The machine and the versions, in one line."""
    load = f", load {os.getloadavg()[0]:.1f} before" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores{load}; Python {platform.python_version()}, {', '.join(_versions())}"


def _versions() -> Iterable[str]:
    for name in PACKAGES:
        try:
            yield f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            yield f"no {name}"


def _write(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def _say(what: str) -> None:
    sys.stderr.write(f"measuring {what}\n")


if __name__ == "__main__":
    sys.exit(main())
