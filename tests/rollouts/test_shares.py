"""Inputs scored share by share: the same bits, words and rows as in one piece."""

import dataclasses
import io
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli import answer_pass
from olmorl_cli.answer_pass import ScoredInput
from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, Kind, Problems
from olmorl_cli.objectives import Objective, ascending, score_objective
from olmorl_cli.parts import write_parts
from olmorl_cli.results import Scored, answers_table, groups_table, passed_through
from olmorl_cli.rollouts import files, shares
from olmorl_cli.rollouts.folders import folder_of
from olmorl_cli.rollouts.hashes import hashes_of_ids
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.rollouts import Rollouts, Selection
from olmorl_cli.rollouts.shares import shares_of
from olmorl_cli.rollouts.writer import write_batches, write_tables
from olmorl_cli.scoring import score_answers
from tests.rollouts.builders import Row, opened, random_rows, table_of, write
from tests.rollouts.test_engine import Elsewhere

MOST = pytest.mark.parametrize("most", [8, 40])
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def small_fragments(monkeypatch: Patch) -> None:
    """Every row group is a fragment."""
    monkeypatch.setattr(files, "FRAGMENT_BYTES", 1)


def laid(folder: Path, rows: Sequence[Row], seed: int, number: int = 4, most: int = 9, **more: Any) -> list[str]:
    """The rows, one file after another, cut anywhere into so many files and into row groups of up to `most` rows."""
    draw = random.Random(seed)
    table = table_of(rows, **more)
    cuts = [0, *sorted(draw.randint(0, len(rows)) for _ in range(number - 1)), len(rows)]
    paths = []
    for name, (first, stop) in enumerate(itertools.pairwise(cuts)):
        own = table.slice(first, stop - first)
        paths.append(write(folder / f"{name}.parquet", own, row_group_size=draw.randint(1, most)))
    return paths


def records_of(problems: Problems) -> list[dict[str, object]]:
    return [record for kind in problems.kinds() for record in kind.records()]


def outcome(rollouts: Rollouts, recipes: Sequence[Recipe], **options: Any) -> Any:
    """All that scoring says, figures or faults."""
    try:
        results: list[Objective] = score_objective(rollouts, recipes, diagnose=True, **options)
    except DataError as error:
        return error.lines, records_of(error.problems)
    return [(result.rows, result.notes, records_of(result.problems)) for result in results]


def in_shares(monkeypatch: Patch, most: int, rollouts: Rollouts, recipes: Sequence[Recipe], **options: Any) -> int:
    """Holds the outcome in shares of about `most` answers against that in one piece; how many shares they were."""
    whole = outcome(rollouts, recipes, **options)
    with monkeypatch.context() as patch:
        cut_into(patch, most)
        notes = Problems()
        number = len(shares_of(rollouts, any(recipe.by_step for recipe in recipes), notes))
        found = outcome(rollouts, recipes, **options)
    assert _without(found, notes.kinds()) == whole
    assert number == (0 if notes else -(-rollouts.rows // most))
    return number


def cut_into(patch: Patch, most: int) -> None:
    """Inputs are scored in shares of about `most` answers, which are read in runs of so many."""
    patch.setattr(shares, "MOST_ANSWERS", 9)
    patch.setattr(shares, "SHARE_ANSWERS", most)
    patch.setattr(answer_pass, "RUN_ANSWERS", most)


def _without(found: Any, held: Sequence[Kind]) -> Any:
    """The outcome without the note that groups are held together."""
    lines, records = [kind.line() for kind in held], [record for kind in held for record in kind.records()]
    if isinstance(found, tuple):
        return found[0], [record for record in found[1] if record not in records]
    return [
        (rows, [note for note in notes if note not in lines], [record for record in said if record not in records])
        for rows, notes, said in found
    ]


PROMPTS = Recipe(name="prompts", aggregation="prompt_mean_of_token_mean", scale="group_std")
ANSWERS = [*(NAMED[name]() for name in ("olmorl", "grpo", "dr-grpo", "cispo", "rloo")), PROMPTS]


@MOST
@pytest.mark.parametrize("by", [None, "step", "reward"])
@pytest.mark.parametrize("seed", range(3))
def test_figures_are_the_same(tmp_path: Path, monkeypatch: Patch, seed: int, by: str | None, most: int) -> None:
    """About 100 answers of 40 groups in 4 files, every group anywhere: each recipe, each batch; rewards lie in all."""
    rows = random_rows(seed, groups=40, steps=4)
    columns = {} if by is None else {"by": by}
    rollouts = opened(laid(tmp_path, rows, seed), ANSWERS[0], **columns)
    assert in_shares(monkeypatch, most, rollouts, ANSWERS, by=by) > 1


@MOST
def test_deviations_of_steps(tmp_path: Path, monkeypatch: Patch, most: int) -> None:
    """A share has whole steps, groups of several of them among its batches."""
    recipes = [Recipe(scale="batch_std", std_eps=0.0), PROMPTS]
    rollouts = opened(laid(tmp_path, random_rows(5, groups=40, steps=8), 5))
    assert in_shares(monkeypatch, most, rollouts, recipes) > 1


def test_what_is_held_together(tmp_path: Path, monkeypatch: Patch) -> None:
    """Deviations over the whole input, or over steps where groups are consecutive; one stream. A note says why, once."""
    rows = [{k: v for k, v in row.items() if k != "step"} for row in random_rows(5, steps=1)]
    steps = [{**row, "step": n // 8} for n, row in enumerate(rows[:28])]
    whole = opened(write(tmp_path / "w.parquet", table_of(rows), row_group_size=5))
    consecutive = table_of(steps).drop_columns(["group_id"])
    by_rows = opened(write(tmp_path / "c.parquet", consecutive, row_group_size=5), group_size=4)
    stream = opened(write(tmp_path / "s.arrows", table_of(rows)))
    for rollouts, why in (
        (whole, "the recipe scales advantages over the whole input"),
        (by_rows, "the recipe scales advantages over steps, and groups are consecutive rows"),
        (stream, "many are one row group, batch or stream"),
    ):
        recipe = Recipe(scale="batch_std")
        assert in_shares(monkeypatch, 1, rollouts, [recipe]) == 0
        with monkeypatch.context() as patch:
            cut_into(patch, 1)
            (result,) = score_objective(rollouts, [recipe])
        (kind,) = [kind for kind in result.problems.kinds() if kind.code == "held_together"]
        assert (kind.severity, kind.count) == ("note", rollouts.rows)
        assert f"{why}, so {rollouts.rows} answers are held in memory together" in kind.line()


@MOST
def test_ids_that_restart_in_every_file(tmp_path: Path, monkeypatch: Patch, most: int) -> None:
    """The same numbers in every file, which are other groups there."""
    rows = [{"prompt_idx": n // 3 % 4, **row} for n, row in enumerate(random_rows(2, groups=30, steps=1))]
    rows = [{k: v for k, v in row.items() if k != "group_id"} for row in rows]
    assert in_shares(monkeypatch, most, opened(laid(tmp_path, rows, 2, number=9, most=3)), ANSWERS) > 1


@MOST
def test_consecutive_groups(tmp_path: Path, monkeypatch: Patch, most: int) -> None:
    """Twelve groups of 4 over 3 steps; row groups of 3 rows."""
    rows = [{**row, "step": n // 16} for n, row in enumerate(random_rows(1, groups=30, most=4, steps=1)[:48])]
    assert len(rows) == 48
    path = write(tmp_path / "r.parquet", table_of(rows).drop_columns(["group_id"]), row_group_size=3)
    assert in_shares(monkeypatch, most, opened(path, group_size=4), ANSWERS) > 1


def spoiled(rows: list[Row]) -> list[Row]:
    """Faults of every kind, in rows far from each other."""
    rows = [dict(row) for row in rows]
    for at, reward in ((3, None), (30, float("nan")), (41, float("inf")), (60, None), (77, None), (78, None), (79, None)):
        rows[at]["reward"] = reward
    for at in (8, 55):
        rows[at] |= {"new_logprobs": [0.5], "old_logprobs": [-0.5], "rollout_logprobs": [-0.5], "loss_mask": [1]}
    return rows


@MOST
@pytest.mark.parametrize("skip", [False, True])
def test_faults_are_named_in_the_same_words_and_rows(tmp_path: Path, monkeypatch: Patch, skip: bool, most: int) -> None:
    rows = spoiled(random_rows(4, groups=40, steps=4))
    rollouts = opened(laid(tmp_path, rows, 4, number=3))
    assert in_shares(monkeypatch, most, rollouts, ANSWERS, skip=skip, by=None) > 1


def test_faults_of_the_shape_of_the_input(tmp_path: Path, monkeypatch: Patch) -> None:
    """Ten rows in groups of 4; a group across steps; a null id."""
    rows = [{**row, "step": n // 6} for n, row in enumerate(random_rows(1)[:10])]
    path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=2)
    for size in (4, 2, 5):
        assert in_shares(monkeypatch, 4, opened(path, group_size=size), ANSWERS) == 3
    rows = [{**row, "group_id": None if n == 7 else f"{n // 2}"} for n, row in enumerate(rows)]
    assert in_shares(monkeypatch, 2, opened(write(tmp_path / "n.parquet", table_of(rows), row_group_size=2)), ANSWERS) == 5


OF_GROUPS, OF_ANSWERS = [n // 2 for n in range(20)], list(range(20))


@pytest.mark.parametrize(
    "ids",
    [OF_GROUPS, OF_ANSWERS, OF_GROUPS[:16] + OF_ANSWERS[16:], [*OF_ANSWERS[:9], 8, *OF_ANSWERS[10:]]],
    ids=["groups", "answers", "both", "repeated"],
)
def test_ids_of_answers_are_judged_over_all_shares(tmp_path: Path, monkeypatch: Patch, ids: list[int]) -> None:
    """Groups of 2 rows: an id a group is no fault, but where other groups have an id an answer."""
    rows = [{**row, "group_id": f"{n // 2}", "step": 0, "answer_id": ids[n]} for n, row in enumerate(random_rows(1)[:20])]
    path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=2)
    rollouts = opened(path, answer=())
    assert rollouts.choices["answer"].columns == ("answer_id",)
    assert in_shares(monkeypatch, 2, rollouts, ANSWERS) == 10
    assert in_shares(monkeypatch, 2, opened(path, answer="answer_id"), ANSWERS) == 10


def test_judgements_of_the_whole_are_made_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """Groups of one answer; the old log-probs are the new ones; advantages overflow in two groups."""
    rows = [{**row, "old_logprobs": row["new_logprobs"]} for row in random_rows(3, sampler=False)[:12]]
    single = [{**row, "group_id": str(n)} for n, row in enumerate(rows)]
    huge = [{**row, "step": 0, "group_id": str(n // 2), "reward": 0.5} for n, row in enumerate(rows)]
    for at in (2, 8):
        huge[at]["reward"], huge[at + 1]["reward"] = 1.5e308, -1.5e308
    for name, each in (("single", single), ("huge", huge)):
        rollouts = opened(write(tmp_path / f"{name}.parquet", table_of(each), row_group_size=2))
        assert in_shares(monkeypatch, 4, rollouts, [Recipe(), Recipe(name="rloo", center="leave_one_out_mean")]) == 3


def test_an_infinite_objective_names_the_row_of_the_whole_input(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = [{**row, "step": 0, "group_id": str(n // 2), "reward": n % 2} for n, row in enumerate(random_rows(3)[:12])]
    rows[10] |= {"new_logprobs": [0.0], "old_logprobs": [-800.0], "rollout_logprobs": None, "loss_mask": [1]}
    wide = pa.list_(pa.float64())
    rollouts = opened(write(tmp_path / "r.parquet", table_of(rows, logps=wide), row_group_size=2))
    assert in_shares(monkeypatch, 2, rollouts, [Recipe(eps_low=0.2)]) == 6
    (note,) = score_objective(rollouts, [Recipe()])[0].notes
    assert "in answer 10 a ratio" in note


def test_files_whose_ids_are_of_different_types_are_read_together(tmp_path: Path, monkeypatch: Patch) -> None:
    """Whole numbers and floats are compared as numbers, which only works on all of them."""
    rows = [{**row, "group_id": n // 2} for n, row in enumerate(random_rows(1)[:18])]
    kinds = (pa.int32(), pa.int64(), pa.float64())
    paths = [
        write(tmp_path / f"{kind}.parquet", table_of(rows[n * 6 : n * 6 + 6], group_id=kind), row_group_size=2)
        for n, kind in enumerate(kinds)
    ]
    assert in_shares(monkeypatch, 2, opened(paths[:2]), ANSWERS) == 6
    assert in_shares(monkeypatch, 2, opened(paths), ANSWERS) == 0
    notes = Problems()
    cut_into(monkeypatch, 2)
    assert shares_of(opened(paths), False, notes) == []
    assert "the files' ids are of different types, so 18 answers are held in memory together" in notes.kinds()[0].line()


def test_what_olmorl_wrote_of_files_whose_ids_restart(tmp_path: Path, monkeypatch: Patch) -> None:
    """Its one file has the rows of several, in which the same id means another group."""
    rows = [{**row, "prompt_idx": int("012102"[n // 2 % 6])} for n, row in enumerate(random_rows(7, steps=1)[:24])]
    tables = [table_of(rows[first : first + 6]).drop_columns(["group_id"]) for first in range(0, 24, 6)]
    scored = score_answers(opened([write(tmp_path / f"{n}.parquet", table) for n, table in enumerate(tables)]), Recipe())
    schema, batches = passed_through(scored, dictionaries=True)
    with pq.ParquetWriter(tmp_path / "made.parquet", schema) as writer:
        for batch in pa.Table.from_batches(batches, schema).to_batches(max_chunksize=2):
            writer.write_batch(batch)
    rollouts = opened(str(tmp_path / "made.parquet"))
    assert rollouts.provenance is not None
    assert rollouts.provenance.file_rows == [6, 6, 6, 6]
    assert in_shares(monkeypatch, 2, rollouts, [Recipe()]) == 12
    assert in_shares(monkeypatch, 8, rollouts, [Recipe()]) == 3


def written(scored: Scored, groups: Scored, folder: Path) -> dict[str, Any]:
    """The answers and the groups in every machine format: name → bytes, or rows."""
    found: dict[str, Any] = {}
    for format in ("jsonl", "csv", "parquet"):
        for name, tables in (("answers", map(answers_table, scored.runs)), ("groups", map(groups_table, groups.groups))):
            sink = io.BytesIO()
            write_tables(tables, format, sink, stream=False)
            found[f"{name}.{format}"] = sink.getvalue() if format != "parquet" else pq.read_table(sink).to_pylist()
    for format in ("parquet", "arrow"):
        sink = io.BytesIO()
        schema, batches = passed_through(scored, dictionaries=format == "parquet")
        write_batches(schema, batches, format, sink, stream=False)
        found[format] = sink.getvalue()
        out = Path(f"{folder}.{format}")
        count, parts = write_parts(scored, folder_of(str(out)), format), sorted(out.iterdir())
        assert len(parts) == count == len(scored.rollouts.fragments)
        found |= {path.name: path.read_bytes() for path in parts}
    return found


@pytest.mark.parametrize("most", [8, 40])
@pytest.mark.parametrize("size", [None, 4])
def test_answers_and_groups_are_written_in_input_order(
    tmp_path: Path, monkeypatch: Patch, size: int | None, most: int
) -> None:
    rows = random_rows(8, groups=40, steps=4)[:80]
    rows = [{**row, "step": n // 20} for n, row in enumerate(rows)] if size else rows
    rollouts = opened(laid(tmp_path, rows, 8, most=3), group_size=size)
    recipe = Recipe(scale="group_std")
    at_once = score_answers(rollouts, recipe, skip=True)
    whole = written(at_once, at_once, tmp_path / "whole")
    cut_into(monkeypatch, most)
    answers, groups = (ScoredInput(rollouts, recipe, skip=True, groups=groups) for groups in (False, True))
    assert len(list(answers.runs)) > (1 if most == 40 else 7)
    assert written(answers, groups, tmp_path / "shares") == whole
    assert whole["answers.jsonl"].count(b"\n") == len(rows) == 80


def test_answers_that_are_at_fault_are_refused_before_any_is_given(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = spoiled(random_rows(4, groups=40, steps=4))
    rollouts = opened(laid(tmp_path, rows, 4, number=3))
    with pytest.raises(DataError) as whole:
        score_answers(rollouts, Recipe())
    cut_into(monkeypatch, 20)
    with pytest.raises(DataError) as found:
        ScoredInput(rollouts, Recipe())
    assert found.value.lines == whole.value.lines
    left, scored = score_answers(rollouts, Recipe(), skip=True), ScoredInput(rollouts, Recipe(), skip=True)
    assert (scored.notes, records_of(scored.problems)) == (left.notes, records_of(left.problems))


def test_work_on_shares_can_be_done_elsewhere(tmp_path: Path, monkeypatch: Patch) -> None:
    here, engine = opened(laid(tmp_path, random_rows(8, groups=40, steps=4), 8)), Elsewhere()
    number = in_shares(monkeypatch, 7, dataclasses.replace(here, engine=engine), ANSWERS, by=None)
    assert engine.items == 3 * len(here.fragments) + number  # whole: answers, tokens; shares: themselves, tokens


def test_one_piece_is_scored_once(tmp_path: Path, monkeypatch: Patch) -> None:
    scored = ScoredInput(opened(laid(tmp_path, random_rows(8), 8)), Recipe())
    assert next(scored.runs) is next(scored.runs) is scored.whole
    cut_into(monkeypatch, 1)
    assert ScoredInput(scored.rollouts, Recipe(), whole=True).whole.advantages.tolist() == scored.whole.advantages.tolist()


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([1, 2, 2, None, 1]),
        pa.array([0.0, -0.0, 2.5, float("nan"), None]),
        pa.array(["a", "bb", "bb", None, "a"]),
        pa.array(["a", "bb", "bb", None, "a"]).dictionary_encode(),
        pa.array([[1, 2], [1, 2], [1], None, []]),
        pa.array([[{"role": "user", "content": "x"}], [], [{"role": "user", "content": "x"}], None, []]),
        pa.array([True, False, None, True, True]),
        pa.array([1, 2, 3, 2, 1], pa.date32()),
        pa.array([b"x", b"y", b"x", None, b""]),
        pa.nulls(5),
    ],
    ids=lambda ids: str(ids.type)[:20],
)
def test_equal_ids_have_equal_hashes(ids: pa.Array) -> None:
    """Alone, in slices, and beside nulls."""

    def plain(value: Any) -> Any:
        return None if value is None or value != value else str(value + 0.0 if isinstance(value, float) else value)

    values = [plain(value) for value in ids.to_pylist()]
    hashes = hashes_of_ids(ids).tolist()
    assert [[a == b for b in values] for a in values] == [[a == b for b in hashes] for a in hashes]
    assert [int(hashes_of_ids(ids.slice(n, 1))[0]) for n in range(5)] == hashes


def answers_of(path: str, **columns: tuple[str, ...]) -> Rollouts:
    """The input as `olmorl advantages` opens it; `columns` by role."""
    return open_rollouts([path], Selection(columns), frozenset({"group", "step", "reward", "answer"}))


def few(path: Path, **columns: Any) -> str:
    """A file of these columns in row groups of two."""
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return str(path)


VIEWS = [
    pa.string_view(),
    pa.binary_view(),
    pa.dictionary(pa.int8(), pa.string_view()),
    pa.dictionary(pa.int8(), pa.string()),
]


@pytest.mark.parametrize("kind", VIEWS, ids=str)
def test_ids_of_types_that_pyarrow_does_not_take_from(tmp_path: Path, monkeypatch: Patch, kind: pa.DataType) -> None:
    codes = pa.array([n // 2 % 6 for n in range(24)], pa.int8())
    words = pa.array([b"p0", b"p1", b"p2", b"p3", b"p4", b"p5"], pa.binary())
    values = words.cast(pa.string()) if kind != pa.binary_view() else words
    if pa.types.is_dictionary(kind):
        ids = pa.DictionaryArray.from_arrays(codes, values.cast(kind.value_type))
    else:
        ids = values.take(codes).cast(kind)
    table = pa.table({"group_id": ids, "reward": [float(n % 3 == 0) for n in range(24)]})
    with pa.ipc.new_file(tmp_path / "r.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    rollouts = answers_of(str(tmp_path / "r.arrow"))
    whole = score_answers(rollouts, Recipe()).advantages.tolist()
    cut_into(monkeypatch, 6)
    scored = ScoredInput(rollouts, Recipe())
    assert [value for run in scored.runs for value in run.advantages.tolist()] == whole
    assert len(list(scored.runs)) == 3


def test_answer_ids_of_which_a_share_has_none(tmp_path: Path, monkeypatch: Patch) -> None:
    ids = pa.array([*range(10), *[None] * 10], pa.int64())
    path = few(tmp_path / "r.parquet", group_id=[n // 2 for n in range(20)], answer_id=ids, reward=[0.0, 1.0] * 10)
    cut_into(monkeypatch, 2)
    scored = ScoredInput(answers_of(path, answer=("answer_id",)), Recipe())
    assert [value for run in scored.runs for value in run.advantages.tolist()] == [-0.5, 0.5] * 10


def test_ids_of_64_bits_stay_whole(tmp_path: Path, monkeypatch: Patch) -> None:
    """Half of them fit into a signed number too, which is what they become where all do."""
    ids = [n // 2 if n < 10 else 2**63 + n // 2 for n in range(20)]
    path = few(tmp_path / "r.parquet", group_id=pa.array(ids, pa.uint64()), reward=[0.0, 1.0] * 10)
    cut_into(monkeypatch, 2)
    scored, sink = ScoredInput(answers_of(path), Recipe(), groups=True), io.BytesIO()
    write_tables(map(groups_table, scored.groups), "parquet", sink, stream=False)
    assert pq.read_table(sink)["group"].to_pylist() == ids[::2]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.list_(pa.int64())], ids=str)
def test_row_groups_of_null_ids_alone(tmp_path: Path, monkeypatch: Patch, kind: pa.DataType) -> None:
    value = {"int64": 1, "double": 1.0, "string": "x"}.get(str(kind), [1])
    ids = pa.array([value] * 10 + [None] * 10, kind)
    path = few(tmp_path / "r.parquet", group_id=ids, reward=[0.0, 1.0] * 10)
    cut_into(monkeypatch, 2)
    with pytest.raises(DataError) as error:
        ScoredInput(answers_of(path), Recipe())
    assert "group_id, the group, is null, rows 10, 11, 12, 13, 14 (10 in all)" in error.value.lines[0]


def test_labels_that_write_one_number_have_one_order() -> None:
    """Whatever the order in which they come."""
    for labels in (["1", "01", "2"], ["2", "01", "1"]):
        ordered = [labels[at] for at in ascending(pa.array(labels, pa.large_string()), 3)]
        assert ordered == ["01", "1", "2"]


def test_a_null_step_is_no_other_step(tmp_path: Path, monkeypatch: Patch) -> None:
    """Consecutive groups of three: the null is a fault, and neither it nor what stands beside it crosses into a step."""
    steps = pa.array([0, 0, 0, 1, None, 1, None, 2, 2, 3, 3, 4], pa.int64())
    path = few(tmp_path / "r.parquet", step=steps, reward=[0.0, 1.0] * 6)
    rollouts = open_rollouts([path], Selection(group_size=3), frozenset({"group", "step", "reward", "answer"}))
    cut_into(monkeypatch, 3)
    for score in (score_answers, ScoredInput):
        with pytest.raises(DataError) as error:
            score(rollouts, Recipe())
        kinds = {kind.code: [place.row for place in kind.places] for kind in error.value.problems.kinds()}
        assert kinds == {"null_id": [4, 6], "group_across_steps": [11]}
