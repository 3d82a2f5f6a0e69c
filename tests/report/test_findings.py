"""What findings name is found again in the table of groups, whatever tells the groups."""

from pathlib import Path

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
    group = next(n for n, (p, s) in enumerate(_ids(table)) if (p, s) == ("c", "y"))
    place = table.place("groups", group)
    assert place is not None
    assert table.chosen.ids[place] == "c · y"
    assert table.place("groups", 99) is None
    found = named("groups", [{"prompt_id": "c", "source": "y"}], (group,))
    assert f'data-at="{place}">c · y</button>' in findings_section([found], Problems(), table)


def _ids(table: Table) -> list[tuple]:
    return list(zip(*(json_values(each) for each in table.run.scored.table.group_ids.values()), strict=True))


def test_of_one_id_in_two_steps_the_very_group_is_found(tmp_path: Path) -> None:
    table = kit.rollouts(step=[1] * 4 + [2] * 4, prompt_id=["a", "a", "b", "b"] * 2, reward=[0.0, 1.0] * 2 + [1.0] * 4)
    found = table_of(kit.write(str(tmp_path / "s.parquet"), table), Selection())
    (check,) = [each for each in found.run.examined.findings if each.code == "zero_signal"]
    assert (check.where, check.group_numbers) == ({}, ())  # half of the groups are no finding
    section = findings_section([named("groups", ["a", "b"], (2, 3))], Problems(), found)
    for name, group in (("a", 2), ("b", 3)):
        place = found.chosen.groups.tolist().index(group)
        assert f'data-kind="groups" data-at="{place}">{name}</button> (step 2)' in section


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


def named(kind: str, places: list, numbers: tuple[int, ...] = ()) -> Finding:
    return Finding("clip", States.FIRED, "warning", 1.0, 1, {kind: places}, "it is so", "Do this", numbers)
