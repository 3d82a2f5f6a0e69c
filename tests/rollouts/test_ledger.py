"""Columns that are laid down piece by piece and taken section by section."""

import errno
import os
from typing import Any

import numpy as np
import pytest

from olmorl_cli.errors import InputError
from olmorl_cli.rollouts.ledger import ROWS, Ledger


@pytest.mark.parametrize("seed", range(5))
def test_sections_have_the_rows_of_all_pieces(seed: int) -> None:
    """Thirty rows in six sections, one of them empty; three pieces with some rows each, and one without."""
    rng = np.random.default_rng(seed)
    firsts = [0, 4, 4, 9, 17, 29]
    ledger, whole = Ledger(firsts, "r"), rng.random(30)
    piece_of = rng.integers(0, 3, 30)
    pieces = [np.flatnonzero(piece_of == number) for number in (0, 1, 2, 3)]
    for rows in pieces:
        ledger.add(rows, {"value": whole[rows], ("a", 1): rows % 2 == 0})
    for number, (first, stop) in enumerate(zip(firsts, [*firsts[1:], 30], strict=True)):
        section = ledger.section(number)
        assert section[ROWS].tolist() == list(range(first, stop))
        assert section["value"].tolist() == whole[first:stop].tolist()
        assert section["a", 1].tolist() == [row % 2 == 0 for row in range(first, stop)]
        of_pieces = [piece[ROWS].tolist() for piece in ledger.pieces(number)]
        assert of_pieces == [[row for row in rows.tolist() if first <= row < stop] for rows in pieces]
    for number, rows in enumerate(pieces):
        assert ledger.piece(number)["value"].tolist() == whole[rows].tolist()


def test_pieces_may_differ_in_their_columns() -> None:
    ledger = Ledger([0, 2], "r")
    ledger.add(np.array([0, 3]), {"a": np.array([1.0, 2.0])})
    ledger.add(np.array([1]), {"b": np.array([True])})
    assert [sorted(piece) for piece in ledger.pieces(0)] == [[ROWS, "a"], [ROWS, "b"]]
    assert [piece[ROWS].tolist() for piece in ledger.pieces(1)] == [[3], []]


def test_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is always full stands in for the temporary file."""
    ledger = Ledger([0], "runs/r.parquet")
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(ledger._file, "number", full)
    with pytest.raises(InputError, match="runs/r.parquet: cannot be kept in a temporary file: " + os.strerror(errno.ENOSPC)):
        ledger.add(np.arange(10), {"a": np.zeros(10)})


def test_no_folder_for_temporary_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(**_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tempfile.TemporaryFile", nowhere)
    with pytest.raises(InputError, match="cannot be kept in a temporary file"):
        Ledger([0], "r")


def test_more_than_the_system_reads_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("olmorl_cli.rollouts.ledger.MOST_READ", 100)
    ledger, values = Ledger([0, 50], "r"), np.random.default_rng(0).random(90)
    ledger.add(np.arange(90), {"a": values})
    assert ledger.section(1)["a"].tolist() == values[50:].tolist()
    assert ledger.piece(0)["a"].tolist() == values.tolist()
