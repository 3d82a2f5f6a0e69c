"""The benchmark runs and its table is whole; how fast anything is, is not asked here."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmarks.agreement import nothing, same_objective
from tests.benchmarks.measure import ProgramError, Run, run
from tests.benchmarks.report import measured
from tests.benchmarks.rows import Row

ROOT = Path(__file__).parents[2]
ROWS = ("read-only", "version")
"""The rows whose peers need no more than olmorl does."""


def said(objective: float | None) -> Run:
    return Run(1.0, 1.0, json.dumps({"objective": objective}))


def test_small_run_gives_a_whole_table(tmp_path: Path) -> None:
    options = ["--tokens", "0.05", "--repeats", "1", "--only", *ROWS, "peaks", "--work", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks", *options], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tables = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    times, peaks = [cells for cells in tables if len(cells) == 7], [cells for cells in tables if len(cells) == 5]
    assert len(times) == 2 + len(ROWS)
    for _, _, _, ratio, _, olmorl_peak, peer_peak in times[2:]:
        assert all(0 < float(cell) < math.inf for cell in (ratio, olmorl_peak, peer_peak))
    assert [cells[0] for cells in peaks[2:]] == ["0.0125M tokens", "0.05M tokens", "0.05M tokens in one row group"]
    assert "read-only: agree" in done.stdout


@pytest.mark.parametrize(("ours", "theirs", "holds"), [(0.1 + 0.2, 0.3, True), (0.3, 0.3001, False), (0.3, None, False)])
def test_disagreement_is_seen(ours: float, theirs: float | None, holds: bool) -> None:
    assert same_objective([], said(ours), [], said(theirs)).holds is holds


def test_peer_that_is_not_installed_is_left_out_and_said() -> None:
    outcome = measured(Row("x", "x", 1.0, lambda: ([], []), nothing, package="no_such_package"), repeats=1)
    assert outcome.pairs is None
    assert outcome.sound
    assert "no_such_package is not installed" in outcome.note


def test_program_that_fails_is_said() -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such column')"]
    with pytest.raises(ProgramError, match="exit 1: no such column"):
        run(command)
    outcome = measured(Row("x", "x", 1.0, lambda: (command, command), nothing), repeats=1)
    assert not outcome.sound
    assert "no such column" in outcome.note


def test_a_small_soak_agrees(tmp_path: Path) -> None:
    options = ["--tokens", "20000", "--groups", "20", "--files", "10", "--work", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.soak", *options], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the 10 files and the one give the same figures" in done.stdout
    assert done.stdout.count(" MB: ") == 9
    assert not list(tmp_path.glob("written*"))
