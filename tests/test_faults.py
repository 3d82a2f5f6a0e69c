"""The table of known faults: complete, and every test that it names is there."""

import ast
import re
from functools import cache

import pytest

from tests.readme import ROOT

TABLE = (ROOT / "tests" / "FAULTS.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([ABC]\d+) \| .+ \| (.+) \|$", TABLE, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TABLE)))
LIST = ROOT.parent / "shared" / "facts" / "faults.md"


@cache
def functions_of(path: str) -> set[str]:
    """The test functions of a file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_there_are_54_faults_each_once_and_each_with_a_test() -> None:
    numbers = [number for number, _ in ROWS]
    assert len(numbers) == len(set(numbers)) == 54
    assert [number for number, tests in ROWS if "::test_" not in tests] == []


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_every_named_test_exists(path: str, name: str) -> None:
    assert name in functions_of(path)


def test_nothing_in_backquotes_is_a_test_that_cannot_be_found() -> None:
    """A name written another way would not be checked."""
    assert len(re.findall("::", TABLE)) == len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", TABLE))


@pytest.mark.skipif(not LIST.exists(), reason="shared/facts is not beside the repository")
def test_the_table_has_the_entries_of_the_list() -> None:
    assert [number for number, _ in ROWS] == re.findall(
        r"^\*\*([ABC]\d+)\. ", LIST.read_text(encoding="utf-8"), re.MULTILINE
    )
