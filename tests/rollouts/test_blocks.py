"""Inputs scored block by block: the same bits, words and rows as in one piece."""

import dataclasses
import io
import itertools
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, Kind, Problems
from olmorl_cli.parts import write_parts
from olmorl_cli.results import answers_table, groups_table, passed_through
from olmorl_cli.rollouts import blocks, files
from olmorl_cli.rollouts.blocks import blocks_of
from olmorl_cli.rollouts.folders import folder_of
from olmorl_cli.rollouts.hashes import hashes_of_ids
from olmorl_cli.rollouts.rollouts import Rollouts
from olmorl_cli.rollouts.writer import write_batches, write_tables
from olmorl_cli.scoring import Objective, Scored, ScoredBlocks, score_answers, score_objective
from tests.rollouts.builders import Row, opened, random_rows, table_of, write
from tests.rollouts.test_engine import Elsewhere

MOST = pytest.mark.parametrize("most", [1, 7, 40])
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def small_fragments(monkeypatch: Patch) -> None:
    """Every row group is a fragment."""
    monkeypatch.setattr(files, "FRAGMENT_BYTES", 1)


def laid(folder: Path, rows: Sequence[Row], seed: int, number: int = 4, most: int = 5, **more: Any) -> list[str]:
    """The rows, one file after another, cut anywhere into so many files and into row groups of up to `most` rows."""
    draw = random.Random(seed)
    table = table_of(rows, **more)
    cuts = [0, *sorted(draw.randint(0, len(rows)) for _ in range(number - 1)), len(rows)]
    paths = []
    for name, (first, stop) in enumerate(itertools.pairwise(cuts)):
        own = table.slice(first, stop - first)
        paths.append(write(folder / f"{name}.parquet", own, row_group_size=draw.randint(1, most)))
    return paths


def by_group(rows: Sequence[Row], swaps: int = 0, seed: int = 0) -> list[Row]:
    """The rows group by group, but for some that change places with near ones, so that a few groups overlap."""
    draw = random.Random(seed)
    rows = sorted(rows, key=lambda row: (row["step"], row["group_id"]))
    for _ in range(swaps):
        at = draw.randrange(len(rows) - 3)
        rows[at], rows[at + 3] = rows[at + 3], rows[at]
    return rows


def records_of(problems: Problems) -> list[dict[str, object]]:
    return [record for kind in problems.kinds() for record in kind.records()]


def outcome(rollouts: Rollouts, recipes: Sequence[Recipe], **options: Any) -> Any:
    """All that scoring says, figures or faults."""
    try:
        results: list[Objective] = score_objective(rollouts, recipes, diagnose=True, **options)
    except DataError as error:
        return error.lines, records_of(error.problems)
    return [(result.rows, result.notes, records_of(result.problems)) for result in results]


def in_blocks(monkeypatch: Patch, most: int, rollouts: Rollouts, recipes: Sequence[Recipe], **options: Any) -> int:
    """Holds the outcome in blocks against that in one piece; how many blocks they were."""
    whole = outcome(rollouts, recipes, **options)
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "MOST_ANSWERS", most)
        cut = blocks_of(rollouts, any(recipe.by_step for recipe in recipes))
        found = outcome(rollouts, recipes, **options)
    held = [kind for kind in cut[0].notes.kinds() if kind.code == "held_together"]
    assert _without(found, held) == whole
    assert [f for block in cut for f in block.fragments] == list(rollouts.fragments)
    assert [block.first_row for block in cut] == [sum(b.rows for b in cut[:n]) for n in range(len(cut))]
    return len(cut)


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
    """About 100 answers of 40 groups in 4 files, some groups overlapping: each recipe, each batch; rewards lie in all."""
    rows = by_group(random_rows(seed, groups=40, steps=4), swaps=6, seed=seed)
    columns = {} if by is None else {"by": by}
    rollouts = opened(laid(tmp_path, rows, seed), ANSWERS[0], **columns)
    count = in_blocks(monkeypatch, most, rollouts, ANSWERS, by=by)
    assert count > 1 + len(rows) // 45 if most == 40 else count > 8


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_rows_are_one_block_and_a_note_says_so(tmp_path: Path, monkeypatch: Patch, seed: int) -> None:
    rows = random_rows(seed)
    rollouts = opened(laid(tmp_path, rows, seed))
    in_blocks(monkeypatch, 1, rollouts, ANSWERS)
    monkeypatch.setattr(blocks, "MOST_ANSWERS", 1)
    cut = blocks_of(rollouts)
    greatest = max(block.rows for block in cut)
    (kind,) = cut[0].notes.kinds()
    assert (kind.code, kind.severity, kind.count) == ("held_together", "note", greatest)
    assert f"groups lie across row groups and files, so {greatest} answers are held in memory together" in kind.line()
    assert not rollouts.notes


@MOST
def test_deviations_of_steps_keep_steps_together(tmp_path: Path, monkeypatch: Patch, most: int) -> None:
    rows = by_group(random_rows(5, groups=40, steps=8))
    recipes = [Recipe(scale="batch_std", std_eps=0.0), PROMPTS]
    held, expected = 0, 0
    for size in Counter(row["step"] for row in rows).values():
        expected += held == 0 or held + size > most
        held = size if held + size > most else held + size
    assert in_blocks(monkeypatch, most, opened(laid(tmp_path, rows, 5, most=1)), recipes) == expected
    assert expected == (5 if most == 40 else 8)


def test_deviations_of_an_input_without_steps_keep_all_of_it_together(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = [{k: v for k, v in row.items() if k != "step"} for row in by_group(random_rows(5, steps=1))]
    rollouts = opened(laid(tmp_path, rows, 5))
    assert in_blocks(monkeypatch, 1, rollouts, [Recipe(scale="batch_std")]) == 1
    monkeypatch.setattr(blocks, "MOST_ANSWERS", 1)
    (kind,) = blocks_of(rollouts, by_step=True)[0].notes.kinds()
    assert f"scales advantages over the whole input, so {len(rows)} answers are held in memory together" in kind.line()
    (kind,) = blocks_of(opened(write(tmp_path / "r.arrows", table_of(rows))))[0].notes.kinds()
    assert "they are one row group, batch or stream" in kind.line()


@MOST
def test_ids_that_restart_in_every_file(tmp_path: Path, monkeypatch: Patch, most: int) -> None:
    """The same numbers in every file, which are other groups there."""
    rows = [{"prompt_idx": n, **row} for n, row in enumerate(by_group(random_rows(2, groups=30, steps=1)))]
    rows = [{k: v for k, v in row.items() if k != "group_id"} | {"prompt_idx": row["prompt_idx"] // 3 % 4} for row in rows]
    paths = laid(tmp_path, rows, 2, number=9, most=3)
    count = in_blocks(monkeypatch, most, opened(paths), ANSWERS)
    assert count >= (2 if most == 40 else 6)


@MOST
@pytest.mark.parametrize("recipe", [PROMPTS, Recipe(scale="batch_std")], ids=lambda recipe: str(recipe.scale))
def test_consecutive_groups_are_cut_between_them(tmp_path: Path, monkeypatch: Patch, recipe: Recipe, most: int) -> None:
    """Twelve groups of 4 over 3 steps; row groups of 2 rows."""
    rows = [{"step": n // 16, **row} for n, row in enumerate(random_rows(1, groups=30, most=4, steps=1)[:48])]
    rows = [{k: v for k, v in row.items() if k != "group_id"} | {"step": n // 16} for n, row in enumerate(rows)]
    assert len(rows) == 48
    path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=2)
    count = in_blocks(monkeypatch, most, opened(path, group_size=4), [recipe])
    expected = {1: 12, 7: 12, 40: 2} if recipe is PROMPTS else {1: 3, 7: 3, 40: 2}
    assert count == expected[most]


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
    rows = spoiled(by_group(random_rows(4, groups=40, steps=4)))
    rollouts = opened(laid(tmp_path, rows, 4, number=3))
    assert in_blocks(monkeypatch, most, rollouts, ANSWERS, skip=skip, by=None) > 1


def test_faults_of_the_shape_of_the_input(tmp_path: Path, monkeypatch: Patch) -> None:
    """Ten rows in groups of 4; a group across steps; a null id."""
    rows = [{**row, "step": n // 6} for n, row in enumerate(random_rows(1)[:10])]
    path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=2)
    assert in_blocks(monkeypatch, 4, opened(path, group_size=4), ANSWERS) == 3
    assert in_blocks(monkeypatch, 4, opened(path, group_size=2), ANSWERS) == 3
    rows = [{**row, "group_id": None if n == 7 else f"{n // 2}"} for n, row in enumerate(rows)]
    assert in_blocks(monkeypatch, 2, opened(write(tmp_path / "n.parquet", table_of(rows), row_group_size=2)), ANSWERS) > 2


OF_GROUPS, OF_ANSWERS = [n // 2 for n in range(20)], list(range(20))


@pytest.mark.parametrize(
    "ids",
    [OF_GROUPS, OF_ANSWERS, OF_GROUPS[:16] + OF_ANSWERS[16:], [*OF_ANSWERS[:9], 8, *OF_ANSWERS[10:]]],
    ids=["groups", "answers", "both", "repeated"],
)
def test_ids_of_answers_are_judged_over_all_blocks(tmp_path: Path, monkeypatch: Patch, ids: list[int]) -> None:
    """Groups of 2 rows: an id a group is no fault, but where other groups have an id an answer."""
    rows = [{**row, "group_id": f"{n // 2}", "step": 0, "answer_id": ids[n]} for n, row in enumerate(random_rows(1)[:20])]
    path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=2)
    rollouts = opened(path, answer=())
    assert rollouts.choices["answer"].columns == ("answer_id",)
    assert in_blocks(monkeypatch, 2, rollouts, ANSWERS) == 10
    assert in_blocks(monkeypatch, 2, opened(path, answer="answer_id"), ANSWERS) == 10


def test_judgements_of_the_whole_are_made_once(tmp_path: Path, monkeypatch: Patch) -> None:
    """Groups of one answer; the old log-probs are the new ones; an advantage overflows in the second block."""
    rows = [{**row, "old_logprobs": row["new_logprobs"]} for row in random_rows(3, sampler=False)[:12]]
    single = [{**row, "group_id": str(n)} for n, row in enumerate(rows)]
    huge = [{**row, "step": 0, "group_id": str(n // 2), "reward": 0.5} for n, row in enumerate(rows)]
    huge[8]["reward"], huge[9]["reward"] = 1.5e308, -1.5e308
    for name, each in (("single", single), ("huge", huge)):
        rollouts = opened(write(tmp_path / f"{name}.parquet", table_of(each), row_group_size=2))
        assert in_blocks(monkeypatch, 4, rollouts, [Recipe(), Recipe(name="rloo", center="leave_one_out_mean")]) == 3


def test_an_infinite_objective_names_the_row_of_the_whole_input(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = [{**row, "step": 0, "group_id": str(n // 2), "reward": n % 2} for n, row in enumerate(random_rows(3)[:12])]
    rows[10] |= {"new_logprobs": [0.0], "old_logprobs": [-800.0], "rollout_logprobs": None, "loss_mask": [1]}
    wide = pa.list_(pa.float64())
    rollouts = opened(write(tmp_path / "r.parquet", table_of(rows, logps=wide), row_group_size=2))
    assert in_blocks(monkeypatch, 2, rollouts, [Recipe(eps_low=0.2)]) == 6
    (note,) = score_objective(rollouts, [Recipe()])[0].notes
    assert "in answer 10 a ratio" in note


def test_units_are_looked_up_in_as_many_passes_as_it_takes(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = by_group(random_rows(6, groups=60, steps=4), swaps=9, seed=6)
    rollouts = opened(laid(tmp_path, rows, 6))
    monkeypatch.setattr(blocks, "MOST_ANSWERS", 1)
    at_once = [len(block.fragments) for block in blocks_of(rollouts)]
    passes: list[int] = []

    def counted(*args: Any) -> Any:
        passes.append(args[-1])
        return unit_hashes(*args)

    unit_hashes = blocks.unit_hashes
    monkeypatch.setattr(blocks, "unit_hashes", counted)
    for most in (1, 5, 16):
        monkeypatch.setattr(blocks, "MOST_UNITS", most)
        passes.clear()
        assert [len(block.fragments) for block in blocks_of(rollouts)] == at_once
        assert len(passes) == len(set(passes)) * len(rollouts.fragments)
        assert len(set(passes)) > 60 // 2 // most
    assert len(at_once) > 10


def test_files_whose_ids_are_of_different_types_are_read_together(tmp_path: Path, monkeypatch: Patch) -> None:
    """Whole numbers and floats are compared as numbers, which only works on all of them."""
    rows = [{**row, "group_id": n // 2} for n, row in enumerate(random_rows(1)[:12])]
    kinds = (pa.int32(), pa.int64(), pa.float64())
    paths = [
        write(tmp_path / f"{kind}.parquet", table_of(rows[n * 4 : n * 4 + 4], group_id=kind), row_group_size=2)
        for n, kind in enumerate(kinds)
    ]
    assert in_blocks(monkeypatch, 2, opened(paths[:2]), ANSWERS) == 4
    assert in_blocks(monkeypatch, 2, opened(paths), ANSWERS) == 1
    monkeypatch.setattr(blocks, "MOST_ANSWERS", 2)
    (kind,) = blocks_of(opened(paths))[0].notes.kinds()
    assert "the files' ids are of different types, so 12 answers are held in memory together" in kind.line()


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
    assert in_blocks(monkeypatch, 2, rollouts, [Recipe()]) > 4
    assert in_blocks(monkeypatch, 8, rollouts, [Recipe()]) == 3


def written(scored: Scored, folder: Path) -> dict[str, bytes]:
    """The answers in every machine format, and the groups in lines: name → bytes."""
    found = {}
    for name, table, format in (
        ("answers", answers_table, "jsonl"),
        ("answers", answers_table, "csv"),
        ("groups", groups_table, "jsonl"),
        ("groups", groups_table, "csv"),
    ):
        sink = io.BytesIO()
        write_tables(map(table, scored.blocks), format, sink)
        found[f"{name}.{format}"] = sink.getvalue()
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


@MOST
@pytest.mark.parametrize("size", [None, 2])
def test_answers_and_groups_are_written_block_by_block(
    tmp_path: Path, monkeypatch: Patch, size: int | None, most: int
) -> None:
    rows = by_group(random_rows(8, groups=40, steps=4), swaps=0 if size else 4)
    rows = [{**row, "step": n // 20} for n, row in enumerate(rows[:80])] if size else rows
    rollouts = opened(laid(tmp_path, rows, 8, most=2), group_size=size)
    whole = written(score_answers(rollouts, Recipe(), skip=True), tmp_path / "whole")
    monkeypatch.setattr(blocks, "MOST_ANSWERS", most)
    scored = ScoredBlocks(rollouts, Recipe(), skip=True)
    assert len(list(scored.blocks)) > (1 if most == 40 else 8)
    assert written(scored, tmp_path / "blocks") == whole
    assert whole["answers.jsonl"].count(b"\n") == len(rows)


def test_answers_that_are_at_fault_are_refused_before_any_is_given(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = spoiled(by_group(random_rows(4, groups=40, steps=4)))
    rollouts = opened(laid(tmp_path, rows, 4, number=3, most=1))
    with pytest.raises(DataError) as whole:
        score_answers(rollouts, Recipe())
    monkeypatch.setattr(blocks, "MOST_ANSWERS", 7)
    with pytest.raises(DataError) as found:
        ScoredBlocks(rollouts, Recipe())
    assert found.value.lines == whole.value.lines
    left, scored = score_answers(rollouts, Recipe(), skip=True), ScoredBlocks(rollouts, Recipe(), skip=True)
    assert (scored.notes, records_of(scored.problems)) == (left.notes, records_of(left.problems))


def test_work_on_blocks_can_be_done_elsewhere(tmp_path: Path, monkeypatch: Patch) -> None:
    rows = by_group(random_rows(8, groups=40, steps=4), swaps=4)
    here = opened(laid(tmp_path, rows, 8))
    engine = Elsewhere()
    assert in_blocks(monkeypatch, 7, dataclasses.replace(here, engine=engine), ANSWERS, by=None) > 8
    assert engine.fragments == 6 * len(here.fragments)  # whole: answers, tokens; the cuts, twice; blocks: answers, tokens


def test_one_block_is_scored_once(tmp_path: Path, monkeypatch: Patch) -> None:
    scored = ScoredBlocks(opened(laid(tmp_path, by_group(random_rows(8)), 8)), Recipe())
    assert next(scored.blocks) is next(scored.blocks) is scored.whole
    monkeypatch.setattr(blocks, "MOST_ANSWERS", 1)
    assert ScoredBlocks(scored.rollouts, Recipe(), whole=True).whole.advantages.tolist() == scored.whole.advantages.tolist()


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
