"""Paths, folders and patterns: which files they stand for, and in which order."""

import os
from pathlib import Path

import pytest

from olmorl_cli.errors import InputError, UsageError
from olmorl_cli.rollouts.sources import find_sources
from tests.rollouts.builders import rewards_table, score_rewards, write

TABLE = rewards_table(["a", "a"], [1.0, 0.0])


def lay(folder: Path, *names: str) -> Path:
    """Empty files of these names below the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def found(folder: Path, *arguments: str | Path) -> list[str]:
    """The files of the arguments, as paths below the folder."""
    return [os.path.relpath(source.path, folder) for source in find_sources([str(argument) for argument in arguments])]


def test_files_keep_the_order_of_the_command_line(tmp_path: Path) -> None:
    lay(tmp_path, "b", "a.csv", "c.parquet")
    assert found(tmp_path, tmp_path / "c.parquet", tmp_path / "b", tmp_path / "a.csv") == ["c.parquet", "b", "a.csv"]


def test_folders_give_data_files_in_natural_order(tmp_path: Path) -> None:
    lay(
        tmp_path,
        "step_10/a.parquet",
        "step_2/part-11.parquet",
        "step_2/part-9.parquet",
        "step_1/z.jsonl",
        "x2.arrow",
        "x10.pq",
    )
    expected = ["step_1/z.jsonl", "step_2/part-9.parquet", "step_2/part-11.parquet", "step_10/a.parquet"]
    assert found(tmp_path, tmp_path) == [*expected, "x2.arrow", "x10.pq"]
    assert found(tmp_path, f"{tmp_path}/step_*") == expected
    assert found(tmp_path, f"{tmp_path}/step_*/*.parquet") == expected[1:]
    assert found(tmp_path, f"{tmp_path}/") == found(tmp_path, tmp_path)


def test_numbers_longer_than_an_integer_and_digits_of_other_scripts(tmp_path: Path) -> None:
    lay(tmp_path, f"{10**30}.parquet", "9.parquet", "²x.parquet", "٣.parquet")
    assert set(found(tmp_path, tmp_path)) == set(os.listdir(tmp_path))
    assert found(tmp_path, f"{tmp_path}/[19]*") == ["9.parquet", f"{10**30}.parquet"]


def test_underscores_count_and_dots_do_not(tmp_path: Path) -> None:
    lay(tmp_path, "_shard0.parquet", "_temp/b.parquet", ".hidden.parquet", ".cache/c.parquet")
    assert found(tmp_path, tmp_path) == ["_shard0.parquet", "_temp/b.parquet"]
    assert found(tmp_path, f"{tmp_path}/*") == ["_shard0.parquet", "_temp/b.parquet"]
    assert found(tmp_path, f"{tmp_path}/*.parquet") == ["_shard0.parquet"]
    assert found(tmp_path, tmp_path / ".hidden.parquet") == [".hidden.parquet"]
    assert found(tmp_path, tmp_path / ".cache") == [".cache/c.parquet"]


def test_only_the_suffix_tells_data_in_a_folder(tmp_path: Path) -> None:
    data = ["A.PARQUET", "b.arrow", "c.arrows", "d.feather", "e.ipc", "f.json", "g.jsonl", "h.ndjson", "i.pq"]
    lay(tmp_path, *data, "README.md", "stable", "_SUCCESS", "x.parquet.tmp", "notes.txt", "log.csv", "parquet")
    assert found(tmp_path, tmp_path) == data


def test_only_the_suffix_tells_data_among_what_a_pattern_matches(tmp_path: Path) -> None:
    lay(tmp_path, "a.parquet", "README.md", "sub/b.parquet", "sub/stable")
    assert found(tmp_path, f"{tmp_path}/*") == ["a.parquet", "sub/b.parquet"]


@pytest.mark.parametrize("pattern", ["**", "**/*", "**/*.parquet"])
def test_a_pattern_gives_each_file_once(tmp_path: Path, pattern: str) -> None:
    lay(tmp_path, "a.parquet", "sub/b.parquet", "sub/deep/c.parquet")
    assert found(tmp_path, f"{tmp_path}/{pattern}") == ["a.parquet", "sub/b.parquet", "sub/deep/c.parquet"]


@pytest.mark.parametrize("names", [(), ("README.md", ".a.parquet", "sub/stable")])
def test_a_folder_without_data_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = lay(tmp_path, *names)
    with pytest.raises(InputError, match=r"no data file.*\.parquet") as caught:
        find_sources([str(folder)])
    assert str(caught.value).startswith(str(folder))


@pytest.mark.parametrize("name", ["nope.parquet", "no/folder/", "nope*.parquet", "[ab].parquet"])
def test_what_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        find_sources([f"{tmp_path}/{name}"])
    assert str(caught.value).startswith(f"{tmp_path}/{name}: no ")


def test_standard_input_can_be_asked_for_once() -> None:
    with pytest.raises(UsageError, match="once"):
        find_sources(["-", "-"])


def test_a_literal_path_wins_over_a_pattern(tmp_path: Path) -> None:
    lay(tmp_path, "r[12].parquet", "r1.parquet", "r2.parquet", "x*.parquet", "xy.parquet", "[ab]/a.parquet", "a/b.parquet")
    assert found(tmp_path, tmp_path / "r[12].parquet") == ["r[12].parquet"]
    assert found(tmp_path, tmp_path / "x*.parquet") == ["x*.parquet"]
    assert found(tmp_path, tmp_path / "[ab]") == ["[ab]/a.parquet"]
    (tmp_path / "r[12].parquet").unlink()
    assert found(tmp_path, tmp_path / "r[12].parquet") == ["r1.parquet", "r2.parquet"]


ODD = [
    "r[1]",
    "100%",
    "a%20b",
    "k:v",
    "s3:x",
    "a b",
    " a",
    "{x,y}",
    "~",
    "#1",
    "a?b",
    "é",
    "-x",
    "a\\b",
    "'q\"",
    "a\nb",
    "x=1&y",
]


@pytest.mark.parametrize("odd", ODD)
def test_odd_names_of_files_and_folders_are_read(tmp_path: Path, odd: str) -> None:
    for suffix in ("parquet", "arrow", "arrows"):
        path = write(tmp_path / odd / f"{odd}.{suffix}", TABLE)
        assert score_rewards(path).rollouts.rows == 2
    assert score_rewards(str(tmp_path / odd)).rollouts.rows == 6


RELATIVE = ["k:v.parquet", "s3:x.parquet", "file:x.parquet", "~.parquet", "[1].arrow", "a%20b.parquet"]


@pytest.mark.parametrize("name", RELATIVE)
def test_odd_names_relative_to_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(name), TABLE)
    assert score_rewards(name).rollouts.rows == 2


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "jsonl"])
def test_folders_are_columns_of_files_of_any_kind(tmp_path: Path, suffix: str) -> None:
    paths = [write(tmp_path / f"step={step}/r.{suffix}", TABLE) for step in (2, 10)]
    for arguments in ([str(tmp_path)], [f"{tmp_path}/*/r.*"], paths):
        table = score_rewards(arguments).table
        assert table.steps is not None
        assert table.steps.to_pylist() == [2, 10]


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    lay(tmp_path, "store/real.parquet", "store/run/b.parquet", "in/a.parquet")
    (tmp_path / "in" / "link.parquet").symlink_to(tmp_path / "store" / "real.parquet")
    (tmp_path / "in" / "run").symlink_to(tmp_path / "store" / "run")
    assert found(tmp_path, tmp_path / "in") == ["in/a.parquet", "in/link.parquet", "in/run/b.parquet"]
    (tmp_path / "all").symlink_to(tmp_path / "in")
    assert found(tmp_path, tmp_path / "all") == ["all/a.parquet", "all/link.parquet", "all/run/b.parquet"]


@pytest.mark.parametrize("target", [".", ".."])
def test_links_that_lead_back_end(tmp_path: Path, target: str) -> None:
    lay(tmp_path, "run/a.parquet", "run/sub/b.parquet")
    (tmp_path / "run" / "sub" / "loop").symlink_to(target)
    assert found(tmp_path, tmp_path / "run") == ["run/a.parquet", "run/sub/b.parquet"]


def test_links_to_nothing_and_to_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "gone.parquet").symlink_to("nowhere.parquet")
    (tmp_path / "x.parquet").symlink_to("y.parquet")
    (tmp_path / "y.parquet").symlink_to("x.parquet")
    for argument in ("gone.parquet", "x.parquet", ".", "g*.parquet"):
        with pytest.raises(InputError, match=r"(gone|x)\.parquet: it is a link to nothing"):
            find_sources([str(tmp_path / argument)])


def test_a_folder_whose_name_looks_like_a_file_is_a_folder(tmp_path: Path) -> None:
    lay(tmp_path, "rollouts.parquet/part-0.parquet", "rollouts.parquet/_SUCCESS")
    assert found(tmp_path, tmp_path / "rollouts.parquet") == ["rollouts.parquet/part-0.parquet"]
    assert found(tmp_path, tmp_path) == ["rollouts.parquet/part-0.parquet"]


def test_a_folder_that_must_not_be_read_is_refused(tmp_path: Path) -> None:
    lay(tmp_path, "a.parquet", "closed/b.parquet")
    closed = tmp_path / "closed"
    closed.chmod(0)
    try:
        if os.access(closed, os.R_OK):
            pytest.skip("this user may read everything")
        with pytest.raises(InputError, match="closed: Permission denied"):
            find_sources([str(tmp_path)])
    finally:
        closed.chmod(0o700)
