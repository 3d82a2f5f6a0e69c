"""Runs whole programs and measures them from outside: wall time and peak memory.

Nothing but the standard library is imported here: a child's peak is never less than its parent's (the kernel counts from
the fork), so the parent is kept small, below 20 MB.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

Command = Sequence[str]

PROGRAMS = Path(__file__).with_name("programs")
RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes that ru_maxrss counts in."""


class ProgramError(Exception):
    """A measured program failed, or did not write what it should."""


@dataclass(frozen=True)
class Run:
    """One run of one program: wall and processor time in s, peak memory in MB (10⁶ bytes), and its standard output."""

    seconds: float
    peak: float
    output: str
    cpu: float = 0.0


@dataclass(frozen=True)
class Pairs:
    """Runs of olmorl and of its peer, by turns: the one before the other, again and again."""

    olmorl: tuple[Run, ...]
    peer: tuple[Run, ...]

    @property
    def ratio(self) -> float:
        """Median over the pairs of olmorl's time ÷ the peer's."""
        return statistics.median(ours.seconds / theirs.seconds for ours, theirs in zip(self.olmorl, self.peer, strict=True))


def seconds(runs: Sequence[Run]) -> float:
    """Median wall time, s."""
    return statistics.median(run.seconds for run in runs)


def peak(runs: Sequence[Run]) -> float:
    """Largest peak memory, MB."""
    return max(run.peak for run in runs)


def olmorl(*arguments: str) -> Command:
    """The command that runs this Python's olmorl: its script where there is one."""
    script = Path(sys.executable).with_name("olmorl")
    return ([str(script)] if script.exists() else [sys.executable, "-m", "olmorl_cli"]) + list(arguments)


def program(name: str, *arguments: str) -> Command:
    """The command that runs one of the programs beside this file."""
    return [sys.executable, str(PROGRAMS / f"{name}.py"), *arguments]


def run(command: Command) -> Run:
    """Run a program to its end.

    Raises:
        ProgramError: it exits with another code than 0.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        elapsed = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said, complained = _text(output), _text(errors)
    if process.returncode:
        name = " ".join(Path(word).name for word in command[:2])
        raise ProgramError(f"{name}: exit {process.returncode}: {(complained.strip().splitlines() or ['no message'])[-1]}")
    return Run(elapsed, usage.ru_maxrss * RSS_UNIT / 1e6, said, usage.ru_utime + usage.ru_stime)


def run_pairs(ours: Command, theirs: Command, repeats: int) -> Pairs:
    """Run two programs by turns, each `repeats` times."""
    pairs = [(run(ours), run(theirs)) for _ in range(repeats)]
    return Pairs(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
