"""What findings name is found again in the table of groups, whatever tells the groups."""

from pathlib import Path

import pyarrow as pa
import pytest

from olmorl_cli.checks.finding import Finding, States
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import Problems
from olmorl_cli.report.data import read_run
from olmorl_cli.report.details import choose
from olmorl_cli.report.findings import Table, findings_section
from olmorl_cli.rollouts.opening import OPTIONAL, open_rollouts
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.rollouts.texts import json_values
from tests.cli import kit
from tests.report.kit import ROLES


def table_of(path: str, selection: Selection) -> Table:
    run = read_run(open_rollouts([path], selection, ROLES, OPTIONAL), Recipe(), False)[0]
    return Table(run, choose(run))


def test_groups_of_several_columns_are_found(tmp_path: Path) -> None:
    path = kit.write(str(tmp_path / "c.parquet"), kit.rollouts(source=["x", "y"] * 4))
    table = table_of(path, Selection({"group": ("prompt_id", "source")}))
    place = table.place("groups", {"prompt_id": "c", "source": "y"})
    assert place is not None
    assert table.chosen.ids[place] == "c · y"
    assert table.place("groups", {"prompt_id": "d", "source": "y"}) is None
    assert "c · y" in findings_section([named("groups", [{"prompt_id": "c", "source": "y"}])], Problems(), table)


def test_consecutive_groups_are_found_by_their_numbers(tmp_path: Path) -> None:
    table = table_of(kit.write(str(tmp_path / "g.parquet"), kit.rollouts(prompt_id=None)), Selection(group_size=2))
    places = [table.place("groups", number) for number in range(5)]
    assert [table.chosen.ids[place] for place in places if place is not None] == ["0", "1", "2", "3"]
    assert places[4] is None


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (pa.array([1.5, 2.0] * 4), ["1.5", "2"]),
        (pa.array([10**17, 3] * 4), ["100000000000000000", "3"]),
        (pa.array([b"\x00", b"\xff"] * 4), ["00", "ff"]),
    ],
    ids=["floats", "whole", "bytes"],
)
def test_ids_of_any_type_are_found(tmp_path: Path, ids: pa.Array, shown: list[str]) -> None:
    table = table_of(kit.write(str(tmp_path / "i.parquet"), kit.rollouts(prompt_id=ids)), Selection())
    first, last = json_values(table.run.scored.table.group_ids["group"].take(pa.array([0, 3])))
    places = [table.place("groups", each) for each in (first, last)]
    assert sorted(table.chosen.ids[place] for place in places if place is not None) == shown


def test_a_place_that_is_not_in_the_table_is_said(tmp_path: Path) -> None:
    table = table_of(kit.write(str(tmp_path / "r.parquet")), Selection())
    said = {
        (0, 99): "See rows <link>, 99. Those without a link are not among the groups and answers on this page.",
        (99,): "See row 99. It is not among the groups and answers on this page.",
        (98, 99): "See rows 98, 99. They are not among the groups and answers on this page.",
    }
    place = table.place("rows", 0)
    link = f'<button type="button" class="to" data-kind="rows" data-at="{place}">0</button>'
    for rows, expected in said.items():
        section = findings_section([named("rows", list(rows))], Problems(), table)
        assert f'<p class="see">{expected.replace("<link>", link)}</p>' in section
    many = findings_section([named("rows", [0, 1, 2, 3, 4, 5, 6, 7, 0])], Problems(), table)
    assert (many.count("<button"), many.count(" ….</p>")) == (8, 1)
    assert "See column" in findings_section([named("columns", ["a<b"])], Problems(), table)


def named(kind: str, places: list) -> Finding:
    return Finding("clip", States.FIRED, "warning", 1.0, 1, {kind: places}, "it is so", "Do this")
