"""What `olmorl advantages` writes is scored with its own advantages, unless something else is asked for."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.objectives import score_objective
from olmorl_cli.results import passed_through
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.provenance import KEY, Provenance, provenance_of
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.rollouts.writer import write_batches
from olmorl_cli.scoring import ScoredAnswers
from tests.rollouts.builders import figures, random_rows, score, score_rewards, table_of, tokens_table, write

FORMATS = [("parquet", "parquet", False), ("arrow", "arrow", False), ("arrows", "arrow", True)]
NORMALIZED = Recipe(scale="group_std")


def pass_on(path: Path, scored: ScoredAnswers, form: tuple[str, str, bool] = FORMATS[0]) -> str:
    """Write scored answers as the command does."""
    _, format, stream = form
    schema, batches = passed_through(scored, dictionaries=stream or format == "parquet")
    with path.open("wb") as sink:
        write_batches(schema, batches, format, sink, stream=stream)
    return str(path)


def read(path: str) -> pa.Table:
    if path.endswith("parquet"):
        return pq.read_table(path)
    with pa.memory_map(path) as data:
        opened = pa.ipc.open_stream(data) if path.endswith("arrows") else pa.ipc.open_file(data)
        return opened.read_all()


@pytest.fixture
def plain(tmp_path: Path) -> str:
    return write(tmp_path / "plain.parquet", table_of(random_rows(7)), row_group_size=7)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form[0])
def test_every_column_goes_through_and_two_are_added(tmp_path: Path, plain: str, form: tuple[str, str, bool]) -> None:
    scored = score_rewards(plain)
    table = read(pass_on(tmp_path / f"out.{form[0]}", scored, form))
    before = pq.read_table(plain)
    assert table.column_names == [*before.column_names, "advantage", "kept"]
    assert table.select(before.column_names).equals(before)
    assert table.column("advantage").to_pylist() == scored.advantages.tolist()
    assert table.column("kept").to_pylist() == scored.kept.tolist()


def test_columns_of_these_names_are_replaced_and_unscorable_answers_have_none(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]] * 3, [[-1.0]] * 3, reward=[1.0, None, 0.0], advantage=[7.0] * 3, kept=["x"] * 3)
    scored = score_rewards(write(tmp_path / "r.parquet", table), skip=True)
    found = read(pass_on(tmp_path / "out.parquet", scored))
    assert found.column_names == ["group_id", "reward", "new_logprobs", "old_logprobs", "advantage", "kept"]
    assert found.column("advantage").to_pylist() == [0.5, None, -0.5]
    assert found.column("kept").to_pylist() == [True] * 3


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form[0])
def test_its_own_advantages_are_used_and_said(tmp_path: Path, plain: str, form: tuple[str, str, bool]) -> None:
    path = pass_on(tmp_path / f"out.{form[0]}", score_rewards(plain, NORMALIZED), form)
    result = score(path)
    same = figures(score(plain, NORMALIZED))
    assert figures(result) == same
    assert same != figures(score(plain))
    (row,) = result.rows
    assert row["normalize_std"] is True
    assert row["columns"]["advantage"] == "advantage"


def test_they_are_used_even_where_they_say_otherwise_than_the_rewards(tmp_path: Path) -> None:
    """Ratios are 1, so the objective is the mean of what the column says: 4, 2 and 0 over three tokens."""
    table = tokens_table([[-1.0]] * 3, [[-1.0]] * 3)
    path = pass_on(tmp_path / "out.parquet", score_rewards(write(tmp_path / "r.parquet", table)))
    edited = read(path).set_column(4, "advantage", pa.array([4.0, 2.0, 0.0]))
    assert score(write(tmp_path / "edited.parquet", edited)).rows[0]["objective"] == 2.0


@pytest.mark.parametrize(
    "options", [{"reward": "reward"}, {"group": "group_id"}, {"step": "step"}, {"group": ("group_id", "step")}], ids=str
)
def test_naming_what_they_rest_on_scores_anew(tmp_path: Path, plain: str, options: dict[str, Any]) -> None:
    path = pass_on(tmp_path / "out.parquet", score_rewards(plain, NORMALIZED))
    assert figures(score(path, **options)) == figures(score(plain, **options))


def test_a_group_size_scores_anew(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]] * 4, [[-1.0]] * 4, reward=[1.0, 0.0, 3.0, 5.0])
    plain = write(tmp_path / "r.parquet", table)
    path = pass_on(tmp_path / "out.parquet", score_rewards(plain, NORMALIZED))
    assert figures(score(path, group_size=2)) == figures(score(plain, group_size=2))


def test_another_column_of_advantages_wins(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]] * 2, [[-1.0]] * 2, other=[3.0, 5.0])
    path = pass_on(tmp_path / "out.parquet", score_rewards(write(tmp_path / "r.parquet", table)))
    assert score(path, advantage="other").rows[0]["objective"] == (3.0 + 5.0) / 2


def test_who_does_not_want_them_scores_anew(tmp_path: Path, plain: str) -> None:
    """An option of the advantages leaves "advantage" out of what is needed."""
    path = pass_on(tmp_path / "out.parquet", score_rewards(plain, NORMALIZED))
    needs = frozenset({"group", "step", "reward", "mask", "logp_new", "logp_old", "logp_sampler"})
    rollouts = open_rollouts([path], Selection(), needs)
    assert rollouts.provenance is None
    assert figures(score_objective(rollouts, [Recipe()])[0]) == figures(score(plain))


def test_consecutive_groups_are_remembered(tmp_path: Path) -> None:
    table = tokens_table([[-1.0]] * 4, [[-1.0]] * 4, reward=[1.0, 0.0, 1.0, 1.0]).drop_columns(["group_id"])
    plain = write(tmp_path / "r.parquet", table)
    path = pass_on(tmp_path / "out.parquet", score_rewards(plain, group_size=2))
    assert figures(score(path)) == figures(score(plain, group_size=2))
    assert score(path).rows[0]["columns"]["group"] is None


def test_ids_that_start_again_in_every_file_are_remembered(tmp_path: Path) -> None:
    """Both files have a group 0; in one file with all rows these are still two groups."""
    tables = [
        tokens_table([[-1.0]] * 2, [[-1.0]] * 2, reward=rewards, group_id=[0, 0]).rename_columns(
            ["group_index", "reward", "new_logprobs", "old_logprobs"]
        )
        for rewards in ([1.0, 0.0], [5.0, 3.0])
    ]
    paths = [write(tmp_path / f"{n}.parquet", table) for n, table in enumerate(tables)]
    path = pass_on(tmp_path / "out.parquet", score_rewards(paths))
    assert score(path).rows[0]["groups"] == 2
    assert figures(score(path)) == figures(score(paths))


def test_what_is_passed_on_twice_keeps_where_it_came_from(tmp_path: Path, plain: str) -> None:
    once = pass_on(tmp_path / "1.parquet", score_rewards(plain, NORMALIZED))
    again = pass_on(tmp_path / "2.parquet", score_rewards(once, NORMALIZED))
    assert figures(score(again)) == figures(score(once))


def test_rewards_count_before_a_column_of_advantages_that_another_program_wrote(tmp_path: Path) -> None:
    table = tokens_table([[-1.0], [-1.0]], [[-1.0], [-1.0]], advantage=[9.0, 7.0])
    for metadata in (None, {b"pandas": b"{}"}):
        path = write(tmp_path / "r.parquet", table.replace_schema_metadata(metadata))
        assert score(path).rows[0]["objective"] == 0.0
        assert score(path, advantage="advantage").rows[0]["objective"] == 8.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "7",
        "null",
        "{}",
        '{"columns": 3}',
        '{"columns": {"reward": ["gone"]}, "settings": {}}',
        "\udcff",
        '"x"',
    ],
)
def test_a_key_that_another_program_or_a_later_version_wrote_is_passed_over(tmp_path: Path, text: str) -> None:
    table = tokens_table([[-1.0], [-1.0]], [[-1.0], [-1.0]], advantage=[9.0, 7.0])
    metadata = {KEY: text.encode(errors="surrogateescape")}
    path = write(tmp_path / "r.parquet", table.replace_schema_metadata(metadata))
    assert score(path).rows[0]["objective"] == 0.0


def test_a_column_that_is_gone_scores_anew(tmp_path: Path, plain: str) -> None:
    whole = read(pass_on(tmp_path / "out.parquet", score_rewards(plain, NORMALIZED)))
    path = write(tmp_path / "less.parquet", whole.drop_columns(["advantage"]))
    assert figures(score(path)) == figures(score(plain))


def test_it_is_written_beside_the_metadata_that_is_there() -> None:
    written = Provenance({"reward": ["r", "s"], "advantage": ["advantage"]}, 4, {"scale": "none"}, [3, 5])
    schema = written.written_into(pa.schema([("r", pa.int8())], metadata={b"pandas": b"{}"}))
    assert schema.metadata[b"pandas"] == b"{}"
    assert provenance_of([schema]) == written
    assert json.loads(schema.metadata[KEY])["version"] == 1
    assert provenance_of([pa.schema([])]) is None
