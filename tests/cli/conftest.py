"""Every test here runs in a folder of its own, which is also where its files and commands are."""

from pathlib import Path

import pytest

from tests.cli import kit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def rollouts(folder: Path) -> str:
    """The name of a file with `kit.rollouts()`."""
    return kit.write("r.parquet")
