"""Each row of the README's table of trainers: its command line, run on a small file of that writer."""

import shlex
import shutil

import pytest

from tests.cli import kit
from tests.readme import README
from tests.rollouts import layouts_others, layouts_trainers  # noqa: F401 - they fill LAYOUTS
from tests.rollouts.layouts import LAYOUTS

HEADING = "### Your trainer's files\n"


def commands() -> dict[str, str]:
    """The first cell of each of the table's rows, and the line that is typed."""
    section = README.read_text().split(HEADING)[1].split("\n### ")[0].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip().replace("\\|", "|") for cell in row] for row in rows[1:]]
    assert all(len(row) == 4 for row in cells)
    return {row[0]: row[2].strip("`") for row in cells}


TABLE = commands()


def test_every_row_has_a_file_and_every_file_a_row() -> None:
    assert set(TABLE) == set(LAYOUTS)
    assert len(TABLE) > 40


Ends = dict[str, list[kit.Done]]


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    """How each row's command line ended, run in a folder with its files; and `olmorl groups` in place of `advantages`."""
    lines: list[tuple[str, str, str]] = []
    for name, line in TABLE.items():
        folder = tmp_path_factory.mktemp("trainer")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            LAYOUTS[name].write()
        more = [line.replace("olmorl advantages", "olmorl groups")] if LAYOUTS[name].objective is None else []
        lines += [(name, str(folder), each) for each in (line, *more)]
    plain = [each for each in lines if each[2].startswith("olmorl ")]
    commands, folders = [tuple(shlex.split(line)[1:]) for _, _, line in plain], [folder for _, folder, _ in plain]
    done = kit.run_in_turn(commands, folders=folders)
    ended: Ends = {}
    for (name, _, _), each in zip(plain, done, strict=True):
        ended.setdefault(name, []).append(each)
    for name, folder, line in lines:
        if "|" in line and shutil.which(line.split()[0]):
            ended.setdefault(name, []).append(kit.shell(f"cd {shlex.quote(folder)} && {line}"))
    return ended


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_row_gives_what_its_file_holds(ends: Ends, name: str) -> None:
    if name not in ends:
        pytest.skip("jq is not installed")
    done, expected = ends[name], LAYOUTS[name]
    if expected.refusal:
        assert [(each.code, each.out, each.err.count("\n")) for each in done] == [(2, b"", 1)] * len(done)
        assert expected.refusal in done[0].err
    elif expected.objective is not None:
        (row,) = (each.row for each in done)
        assert (row["answers"], row["groups"], row["kept_groups"]) == (4, len(expected.groups), expected.kept)
        assert row["objective"] == pytest.approx(expected.objective, rel=1e-12)
    else:
        advantages, groups = (each.rows for each in done)
        nearly = [value if value is None else pytest.approx(value) for value in expected.advantages]
        assert [row["advantage"] for row in advantages] == nearly
        assert [row["size"] for row in groups] == list(expected.groups)
        assert sum(row["kept"] for row in groups) == expected.kept
