"""Measures the rows and puts them in Markdown."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tests.benchmarks.measure import Pairs, ProgramError, Run, olmorl, peak, run, run_pairs, seconds
from tests.benchmarks.rows import PeakRow, Row

HEAD = ("what", "olmorl", "peer", "median ratio", "aim", "olmorl peak MB", "peer peak MB")
PEAK_HEAD = ("`olmorl objective` on", "peak MB", "aim", "÷ smallest", "aim")
PEAK_AIM, SPREAD_AIM = 300, 1.15
"""Peak memory in MB, and the largest peak ÷ the smallest."""


@dataclass(frozen=True)
class Outcome:
    """What came of one row.

    Attributes:
        note: a sentence about it.
        sound: the programs ran and agree, or the peer is not installed.
        pairs: the measured runs, or None.
    """

    note: str
    sound: bool
    pairs: Pairs | None = None


def measured(row: Row, repeats: int) -> Outcome:
    """Run one row's programs once to warm up and compare what they give, then by turns."""
    if row.package is not None and importlib.util.find_spec(row.package) is None:
        return Outcome(f"{row.name}: left out, {row.package} is not installed", True)
    try:
        ours, theirs = row.commands()
        agreed = row.check(ours, run(ours), theirs, run(theirs))
        pairs = run_pairs(ours, theirs, repeats * row.times)
    except ProgramError as error:
        return Outcome(f"{row.name}: FAILED: {error}", False)
    return Outcome(f"{row.name}: {'agree' if agreed.holds else 'DISAGREE'}: {agreed.words}", agreed.holds, pairs)


def measured_peaks(rows: Sequence[PeakRow], repeats: int, say: Callable[[str], None]) -> list[float]:
    """Largest peak memory of `olmorl objective` on each row's file, MB."""
    peaks = []
    for row in rows:
        say(f"peak memory, {row.what}")
        command = olmorl("objective", row.file())
        peaks.append(peak([run(command) for _ in range(repeats)]))
    return peaks


def table(rows: Sequence[Row], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """The Markdown lines of what was measured."""
    cells = (_cells(row, outcome.pairs) for row, outcome in zip(rows, outcomes, strict=True) if outcome.pairs is not None)
    return _markdown(HEAD, cells)


def peak_table(rows: Sequence[PeakRow], peaks: Sequence[float]) -> Iterator[str]:
    """The Markdown lines of peak memory."""
    cells = (
        (row.what, f"{value:.0f}", f"{PEAK_AIM}", f"{value / min(peaks):.2f}", f"{SPREAD_AIM}")
        for row, value in zip(rows, peaks, strict=True)
    )
    return _markdown(PEAK_HEAD, cells)


def _cells(row: Row, pairs: Pairs) -> tuple[str, ...]:
    ours, theirs = _time(pairs.olmorl), _time(pairs.peer)
    return (
        row.what,
        ours,
        theirs,
        f"{pairs.ratio:.2f}",
        f"{row.aim:g}",
        f"{peak(pairs.olmorl):.0f}",
        f"{peak(pairs.peer):.0f}",
    )


def _time(runs: Sequence[Run]) -> str:
    return f"{seconds(runs):.2f} s"


def _markdown(head: Sequence[str], lines: Iterator[Sequence[str]]) -> Iterator[str]:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return (f"| {' | '.join(cells)} |" for cells in chain((head, rule), lines))
