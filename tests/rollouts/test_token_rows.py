"""One row a token: which tokens, their place in the lists, and gradients that are those of the objective of the file."""

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import InputError
from olmorl_cli.objectives import Objective, score_objective
from olmorl_cli.rollouts import token_batches
from olmorl_cli.rollouts.opening import open_rollouts
from olmorl_cli.rollouts.parallel import cores
from olmorl_cli.rollouts.rollouts import Selection
from olmorl_cli.token_rows import FIELDS, token_rows
from tests.cli import kit
from tests.rollouts.builders import Row, random_rows, score, table_of, tokens_table, write

DOUBLES = pa.list_(pa.float64())
ROWS = random_rows(5)
TRUNCATE = {"sampler_mode": "truncate", "sampler_cap": 1.5}
RECIPES = [
    Recipe(eps_low=0.5, eps_high=1.0),
    Recipe(scale="group_std", aggregation="sequence_mean_of_token_mean", zero_signal_groups="kept", **TRUNCATE),
    Recipe(ratio_level="sequence_mean", aggregation="prompt_mean_of_token_mean", eps_low=0.9, eps_high=3.0),
    Recipe(aggregation="sum_over_constant", divisor=3.0, eps_high=None, log_ratio_high=0.4, dual_clip=1.3),
    Recipe(aggregation="sequence_mean_of_token_sum", eps_low=None, eps_high=None, sampler_mode="mask", sampler_cap=2.0),
]


def table(result: Objective, *, skip: bool = False, dictionaries: bool = False, least: int = 1) -> pa.Table:
    schema, batches = token_rows(result, skip, dictionaries=dictionaries, least=least)
    return pa.Table.from_batches(list(batches), schema)


def rows_of(result: Objective, **options: Any) -> list[Row]:
    return table(result, **options).to_pylist()


def places(rows: list[Row]) -> list[tuple[int, int]]:
    """Answer and place of every real token of rows without faults."""
    return [(row, place) for row, each in enumerate(rows) for place, mark in enumerate(each["loss_mask"]) if mark]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.aggregation)
def test_gradients_are_differences_of_the_files_objective(tmp_path: Path, recipe: Recipe) -> None:
    """One log-prob a little up, then down, in the file; and Σ of weight and term is the objective."""

    def objective(rows: list[Row]) -> float:
        value: float = score(write(tmp_path / "moved.parquet", table_of(rows, logps=DOUBLES)), recipe).rows[0]["objective"]
        return value

    result = score(write(tmp_path / "r.parquet", table_of(ROWS, logps=DOUBLES)), recipe)
    found, step = rows_of(result), 2.0**-20
    assert sum(row["gradient"] != 0.0 for row in found) > 10
    tried = [row for row in found if row["gradient"] != 0.0][:8] + [row for row in found if row["gradient"] == 0.0][:4]
    for row in tried:
        up, down = ([dict(each) for each in ROWS] for _ in range(2))
        for rows, sign in ((up, 1), (down, -1)):
            moved = list(ROWS[row["row"]]["new_logprobs"])
            moved[row["token"]] += sign * step
            rows[row["row"]]["new_logprobs"] = moved
        difference = (objective(up) - objective(down)) / (2 * step)
        assert row["gradient"] == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_rows_are_the_real_tokens_in_input_order(tmp_path: Path) -> None:
    """Each at its place in the answer's list; step and group as the file has them."""
    found = rows_of(score(write(tmp_path / "r.parquet", table_of(ROWS))))
    assert [(row["row"], row["token"]) for row in found] == places(ROWS)
    assert any(b[1] - a[1] > 1 for a, b in pairwise(places(ROWS)) if a[0] == b[0])
    for row in found:
        answer = ROWS[row["row"]]
        assert (row["step"], row["group"]) == (answer["step"], answer["group_id"])
        assert row["log_ratio"] == answer["new_logprobs"][row["token"]] - answer["old_logprobs"][row["token"]]
        assert row["ratio"] == pytest.approx(math.exp(row["log_ratio"]), rel=1e-15)


def test_terms_flags_and_gradients_of_the_default_recipe(tmp_path: Path) -> None:
    """A ρ by the number of kept tokens; nothing where clipped, and in dropped groups."""
    result = score(write(tmp_path / "r.parquet", table_of(ROWS)))
    (figures,), found = result.rows, rows_of(result)
    kept, tokens = result.answers.kept.tolist(), figures["kept_tokens"]
    for row in found:
        advantage, ratio = row["advantage"], row["ratio"]
        assert row["clipped_low"] == (advantage < 0 and ratio < 0.8)
        assert row["clipped_high"] == (advantage > 0 and ratio > 1.272)
        clipped = row["clipped_low"] or row["clipped_high"]
        assert row["term"] == min(ratio * advantage, min(max(ratio, 0.8), 1.272) * advantage)
        expected = 0.0 if clipped or not kept[row["row"]] else advantage * ratio / tokens
        assert row["gradient"] == pytest.approx(expected, rel=1e-15)
    counted = [row for row in found if kept[row["row"]]]
    assert math.fsum(row["term"] for row in counted) / tokens == pytest.approx(figures["objective"], rel=1e-14)
    assert sum(row["clipped_low"] for row in counted) / tokens == figures["clip_low"] > 0
    assert sum(row["clipped_high"] for row in counted) / tokens == figures["clip_high"] > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [("r.parquet", {"row_group_size": 1}), ("r.parquet", {"row_group_size": 4}), ("r.arrow", {}), ("r.jsonl", {})],
)
def test_layout_and_blocks_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, options: dict[str, Any]
) -> None:
    """The same rows to the last bit from any file, cut anywhere, and gathered into batches of any size."""
    rows = [row | {"rollout_logprobs": row["old_logprobs"]} for row in ROWS]
    recipe = RECIPES[1]
    whole = table(score(write(tmp_path / "whole.parquet", table_of(rows, logps=DOUBLES)), recipe))
    result = score(write(tmp_path / name, table_of(rows, logps=DOUBLES), **options), recipe)
    monkeypatch.setattr(token_batches, "BLOCK_TOKENS", 5)
    for least in (1, 7, 1000):
        parts = table(result, least=least)
        assert parts.to_pylist() == whole.to_pylist()
        lengths = [len(chunk) for chunk in parts["row"].chunks]
        assert min(lengths[:-1], default=least) >= least
        assert table(result, least=least, dictionaries=True).to_pylist() == whole.to_pylist()


def test_several_files_are_one_input(tmp_path: Path) -> None:
    """Rows run through; the objective is that of all of them."""
    half = len(ROWS) // 2
    parts = [write(tmp_path / f"{n}.parquet", table_of(rows)) for n, rows in enumerate((ROWS[:half], ROWS[half:]))]
    whole = score(write(tmp_path / "whole.parquet", table_of(ROWS)))
    assert rows_of(score(parts)) == rows_of(whole)


def test_what_is_left_out_leaves_holes(tmp_path: Path) -> None:
    """A null reward: no advantage, no term, gradient 0. A NaN log-prob: no row. A null list: no rows."""
    new = [[-1.0, math.nan, -1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0], None]
    old = [[-1.0, -1.0, -1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0], None]
    rows = tokens_table(new, old, loss_mask=[[0, 1, 1, 1], [1, 0], [0, 1], []], reward=[1.0, 0.0, None, 1.0])
    result = score(write(tmp_path / "r.parquet", rows), skip=True)
    found = rows_of(result, skip=True)
    third = 1 / 3
    assert [(row["row"], row["token"]) for row in found] == [(0, 2), (0, 3), (1, 0), (2, 1)]
    assert [row["advantage"] for row in found] == pytest.approx([third, third, -2 * third, None])
    assert [row["term"] for row in found] == pytest.approx([third, third, -2 * third, None])
    assert [row["gradient"] for row in found] == pytest.approx([third / 3, third / 3, -2 * third / 3, 0.0])


def test_places_of_compact_lists_are_their_own(tmp_path: Path) -> None:
    """A log-prob for each 1 of the mask: the list has no holes."""
    lists = [[-1.0, -2.0], [-1.0]]
    path = write(tmp_path / "r.parquet", tokens_table(lists, lists, loss_mask=[[1, 0, 1], [0, 0, 1]]))
    needs = frozenset({"group", "reward", "logp_new", "logp_old", "mask"})
    rollouts = open_rollouts([path], Selection(compact=True), needs)
    found = rows_of(score_objective(rollouts, [Recipe()], keep_sums=True)[0])
    assert [(row["row"], row["token"]) for row in found] == [(0, 0), (0, 1), (1, 0)]


def test_rows_of_prompts_are_those_of_their_answers(tmp_path: Path) -> None:
    """One row a prompt with lists of lists: `row` counts answers."""
    lists = [[[-1.0, -1.0], [-2.0]], [[-3.0], []]]
    nested = pa.table({"prompt_id": ["a", "b"], "reward": [[1.0, 0.0], [0.0, 1.0]], "logp_new": lists, "logp_old": lists})
    found = rows_of(score(write(tmp_path / "r.parquet", nested)))
    assert [(row["group"], row["row"], row["token"]) for row in found] == [
        ("a", 0, 0),
        ("a", 0, 1),
        ("a", 1, 0),
        ("b", 2, 0),
    ]
    assert [row["gradient"] for row in found] == [0.5 / 4, 0.5 / 4, -0.5 / 4, -0.5 / 4]


def test_a_group_column_called_like_one_of_the_others(tmp_path: Path) -> None:
    """Refused for those of tokens; those of other results may be taken."""
    rows = [row | {"token": row["group_id"], "size": 1} for row in ROWS]
    path = write(tmp_path / "r.parquet", table_of(rows))
    with pytest.raises(InputError, match="called like a column of the result: token"):
        rows_of(score(path, group=("token", "size")))
    assert {"group_id", "size"} <= rows_of(score(path, group=("group_id", "size")))[0].keys()


@pytest.mark.parametrize("rewards", [[1.0, 1.0], [1.0, 0.0]])
def test_without_a_counted_token_nothing_moves(tmp_path: Path, rewards: list[float]) -> None:
    """No group has signal: all 0. No token at all: no rows, but the columns."""
    lists = [[-1.0], [-1.0]] if rewards[0] == rewards[1] else [[], []]
    result = score(write(tmp_path / "r.parquet", tokens_table(lists, lists, reward=rewards)))
    assert result.rows[0]["objective"] is None
    assert [row["gradient"] for row in rows_of(result)] == [0.0] * sum(map(len, lists))
    assert table(result).column_names == ["group", *FIELDS]


def test_tokens_are_read_as_rows_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first batch no more than a few blocks are read, of any number in a single fragment."""
    lists = [[-1.0] * 5] * 400
    result = score(write(tmp_path / "r.arrow", tokens_table(lists, lists)))
    monkeypatch.setattr(token_batches, "BLOCK_TOKENS", 10)
    read = 0

    def counted(answers: int) -> None:
        nonlocal read
        read += answers

    _, batches = token_rows(result, False, dictionaries=False, least=1, progress=counted)
    next(batches)
    assert read <= 2 * (cores() + 1)
    assert sum(batch.num_rows for batch in batches) == 2000 - 10
    assert read == 400


_PEAK = """
import os, resource, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # what is in flight grows with the cores
from olmorl_cli.__main__ import main
code = main(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="maximum memory is told in other units elsewhere")
def test_memory_does_not_grow_with_the_output(tmp_path: Path) -> None:
    """Four million tokens are 250 MB of rows; writing them takes less than half of that more than the objective alone."""
    path, target = str(tmp_path / "r.parquet"), tmp_path / "tokens.arrow"
    python = (sys.executable, "-c", _PEAK)
    answers, length = 16_000, 256
    old = pa.array(np.random.default_rng(1).uniform(-1, 0, answers * length).astype(np.float32))
    lists = pa.FixedSizeListArray.from_arrays(old, length).cast(pa.list_(pa.float32()))
    ids, rewards = np.arange(answers) // 2, np.arange(answers) % 2.0
    rows = pa.table({"group_id": ids, "reward": rewards, "logp_new": lists, "logp_old": lists})
    pq.write_table(rows, path, row_group_size=2000)
    alone = kit.run("objective", path, "-o", str(tmp_path / "o.jsonl"), python=python)
    whole = kit.run("objective", path, "--per-token", "-o", str(target), python=python)
    (code, before), (other, after) = (map(int, done.text.split()) for done in (alone, whole))
    assert (code, other) == (0, 0)
    size = target.stat().st_size
    assert size > 230 << 20
    assert (after - before) << 10 < size / 2


def test_groups_told_by_lists_are_written_as_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block has words of its own, and such words cannot be joined."""
    monkeypatch.setattr(token_batches, "BLOCK_TOKENS", 2)
    lists = [[-1.0, -2.0], [-1.0], [-0.5, -0.5, -0.5]]
    groups = pa.array([[1, 2], [1, 2], [3]], pa.list_(pa.int64()))
    rows = tokens_table(lists, lists, prompt_ids=groups, reward=[1.0, 0.0, 1.0]).drop_columns(["group_id"])
    found = table(score(write(tmp_path / "r.parquet", rows), group="prompt_ids"), dictionaries=True, least=1 << 17)
    assert [row["group"] for row in found.to_pylist()] == [[1, 2]] * 3 + [[3]] * 3


def test_long_ids_are_written_a_few_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts of 2,000 rows would take 20 MB, those of a batch no more than CHUNK_BYTES."""
    lists = [[-1.0] * 1000, [-2.0] * 1000]
    rows = tokens_table(lists, lists, group_id=["x" * 10_000] * 2, reward=[1.0, 0.0])
    result = score(write(tmp_path / "r.parquet", rows))
    monkeypatch.setattr("olmorl_cli.token_rows.CHUNK_BYTES", 1 << 22)
    _, batches = token_rows(result, False, dictionaries=False)
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == 2000
    assert max(sizes) <= (1 << 22) // 10_000
