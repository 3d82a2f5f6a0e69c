"""Rewards in files to advantages: inputs on which tools of this kind have gone wrong, each with what is right."""

import itertools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError
from olmorl_cli.results import groups_table
from tests.rollouts.builders import arrow, kinds, rewards_table, score_rewards, write

NAN, INF = math.nan, math.inf
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
IDENTICAL = [(3, -0.087), (3, 0.1), (6, 0.1), (7, 0.1), (8, 0.1), (6, 1.1), (10, 0.3), (8, 60000.0)]


def advantages(folder: Path, groups: Any, rewards: Any, recipe: Recipe | None = None, **options: Any) -> list[float]:
    path = write(folder / "r.parquet", rewards_table(groups, rewards), row_group_size=3)
    return score_rewards(path, recipe, **options).advantages.tolist()


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("scale", ["none", "group_std", "leave_one_out_std"])
def test_identical_rewards_have_advantage_0_in_any_order_and_type(tmp_path: Path, kind: pa.DataType, scale: str) -> None:
    """All groups at once, one after another and interleaved, without an epsilon that would hide a rounded mean."""
    rows = [(f"{number} x {reward}", reward) for number, reward in IDENTICAL for _ in range(number)]
    for order in (rows, rows[::-1], random.Random(1).sample(rows, len(rows)), [*rows[::2], *rows[1::2]]):
        table = rewards_table([group for group, _ in order], arrow([reward for _, reward in order], kind))
        scored = score_rewards(write(tmp_path / "r.parquet", table, row_group_size=4), Recipe(scale=scale, std_eps=0.0))
        assert scored.advantages.tobytes() == np.zeros(len(rows)).tobytes(), "+0.0 to the bit"
        assert not scored.kept.any()
        assert groups_table(next(scored.groups)).column("std").to_pylist() == [0.0] * len(IDENTICAL)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_low_precision_rewards_are_scored_in_float64(tmp_path: Path, kind: pa.DataType) -> None:
    """Deviation sqrt(3)/4 (ddof 0) or 1/2 (ddof 1) of 1.0078125 - 1, which is lost in the sum of four halves."""
    rewards = arrow([1.0, 1.0, 1.0, 1.0078125], kind)
    root = math.sqrt(3)
    for ddof, expected in ((0, [-1 / root] * 3 + [root]), (1, [-0.5] * 3 + [1.5])):
        recipe = Recipe(scale="group_std", std_eps=0.0, ddof=ddof)
        assert advantages(tmp_path, ["a"] * 4, rewards, recipe) == pytest.approx(expected, rel=1e-14)
    high = arrow([60000.0] * 7 + [0.0], kind)
    assert advantages(tmp_path, ["a"] * 8, high) == [7500.0] * 7 + [-52500.0]


@pytest.mark.parametrize("rewards", [pa.array([1, 0, 0, 1], pa.int8()), pa.array([True, False, False, True])], ids=str)
def test_whole_and_true_rewards_are_divided_as_floats(tmp_path: Path, rewards: pa.Array) -> None:
    assert advantages(tmp_path, ["a"] * 4, rewards, Recipe(scale="group_std", std_eps=0.0)) == [1.0, -1.0, -1.0, 1.0]


def test_the_deviation_is_the_populations_unless_a_recipe_says_otherwise(tmp_path: Path) -> None:
    for fields, expected in (({}, 1.0), ({"ddof": 0}, 1.0), ({"ddof": 1}, 0.5 / math.sqrt(0.5))):
        recipe = Recipe(scale="group_std", std_eps=0.0, **fields)
        assert advantages(tmp_path, ["a", "a"], [1.0, 0.0], recipe) == pytest.approx([expected, -expected], rel=1e-15)
        assert advantages(tmp_path, ["a"], [0.7], recipe) == [0.0], "one answer has no signal at any ddof"
    for ddof in (-1, 2, 0.5, NAN):
        with pytest.raises(ValueError, match="ddof must be one of 0, 1, got"):
            Recipe(ddof=ddof)  # type: ignore[arg-type]


@pytest.mark.parametrize("missing", [None, NAN])
def test_a_missing_reward_is_no_reward_and_never_0(tmp_path: Path, missing: float | None) -> None:
    """1, 1, -, 1 has no signal and mean 1; 1, -, 0 has mean 1/2, whichever way the writer says that one is missing."""
    rewards = [1.0, 1.0, missing, 1.0, 1.0, missing, 0.0]
    path = write(tmp_path / "r.parquet", rewards_table(["a"] * 4 + ["b"] * 3, rewards))
    scored = score_rewards(path, skip=True)
    assert scored.advantages.tolist() == pytest.approx([0.0, 0.0, NAN, 0.0, 0.5, NAN, -0.5], nan_ok=True)
    assert groups_table(next(scored.groups)).select(["size", "mean", "kept"]).to_pylist() == [
        {"size": 4, "mean": 1.0, "kept": False},
        {"size": 3, "mean": 0.5, "kept": True},
    ]
    with pytest.raises(DataError, match="rows 2, 5 "):
        score_rewards(path)


@pytest.mark.parametrize(("bad", "code"), [(NAN, "nan"), (INF, "infinite"), (-INF, "infinite"), (None, "null")])
def test_a_reward_that_is_none_is_named_and_touches_its_own_group_only(tmp_path: Path, bad: float | None, code: str) -> None:
    clean = advantages(tmp_path, ["b", "b", "b"], [0.1, 0.2, 0.7], Recipe(scale="group_std"))
    path = write(
        tmp_path / "r.parquet", rewards_table(["a", "a", "b", "a", "b", "a", "b"], [1.0, 0.0, 0.1, bad, 0.2, 1.0, 0.7])
    )
    with pytest.raises(DataError) as caught:
        score_rewards(path)
    (kind,) = kinds(caught.value).values()
    assert (kind.code, [place.row for place in kind.places]) == (f"{code}_reward", [3])
    scored = score_rewards(path, Recipe(scale="group_std"), skip=True)
    assert scored.advantages[[2, 4, 6]].tobytes() == np.array(clean).tobytes()
    assert math.isnan(scored.advantages[3])
    assert groups_table(next(scored.groups)).column("mean")[0].as_py() == pytest.approx(2 / 3, rel=1e-15)


def test_huge_rewards_keep_their_signal(tmp_path: Path) -> None:
    """±s, 0, 0 has deviation s / sqrt(2); three of s and one of -s have mean s/2, though their sum overflows."""
    rewards = [1e200, -1e200, 0.0, 0.0, 1e308, 1e308, 1e308, -1e308]
    groups = ["a"] * 4 + ["b"] * 4
    two, three = math.sqrt(2), math.sqrt(3)
    expected = [two, -two, 0.0, 0.0, *[1 / three] * 3, -three]
    assert advantages(tmp_path, groups, rewards, Recipe(scale="group_std")) == pytest.approx(expected, rel=1e-14)
    assert advantages(tmp_path, groups, rewards)[4:] == pytest.approx([5e307] * 3 + [-1.5e308], rel=1e-15)


def test_a_mean_never_hides_the_spread(tmp_path: Path) -> None:
    """Mean 0 in each group; what tells them apart stands beside it."""
    rewards = [0.0, 0.0, 1.0, -1.0, 1e200, -1e200]
    scored = score_rewards(write(tmp_path / "r.parquet", rewards_table(list("aabbcc"), rewards)))
    assert groups_table(next(scored.groups)).drop_columns(["group", "size"]).to_pylist() == [
        {"mean": 0.0, "std": size, "min": -size, "max": size, "kept": size > 0.0} for size in (0.0, 1.0, 1e200)
    ]


EPSILONS = [(0.0, math.sqrt(3)), (1e-8, 0.0719), (1e-6, 7.5e-4), (1e-4, 7.5e-6)]


@pytest.mark.parametrize(("eps", "greatest"), EPSILONS)
def test_the_epsilon_of_the_recipe_is_added_and_decides_tiny_spreads(tmp_path: Path, eps: float, greatest: float) -> None:
    """Three of 0.5 and one 1e-9 above: 7.5e-10 over sqrt(3)/4 1e-9 + eps. The group has signal at any epsilon."""
    rewards = [0.5, 0.5, 0.5, 0.5 + 1e-9]
    path = write(tmp_path / "r.parquet", rewards_table(["a"] * 4, rewards))
    scored = score_rewards(path, Recipe(scale="group_std", std_eps=eps))
    assert scored.advantages[3] == pytest.approx(greatest, rel=2e-3)
    assert scored.advantages[3] == pytest.approx(7.5e-10 / (math.sqrt(3) / 4 * 1e-9 + eps), rel=1e-6)
    assert scored.kept.all()
    assert score_rewards(path).advantages[3] == pytest.approx(7.5e-10, rel=1e-6)


def test_uneven_groups_are_grouped_by_id_and_their_sizes_are_said(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", pa.table({"prompt_id": [0, 0, 1], "reward": [1.0, 3.0, 5.0]}))
    scored = score_rewards(path)
    assert scored.advantages.tolist() == [-1.0, 1.0, 0.0]
    assert groups_table(next(scored.groups)).column("size").to_pylist() == [2, 1]
    with pytest.raises(DataError, match="3 rows are no multiple of the group size 2"):
        score_rewards(path, group_size=2)


def test_groups_need_not_lie_together(tmp_path: Path) -> None:
    """a has 1 and 3, b twice 5: the same answers in each of the 24 orders, whatever the row groups, in input order."""
    rows = [("a", 1.0, -1.0), ("b", 5.0, 0.0), ("a", 3.0, 1.0), ("b", 5.0, 0.0)]
    for order in itertools.permutations(rows):
        groups, rewards, expected = zip(*order, strict=True)
        assert advantages(tmp_path, list(groups), list(rewards)) == list(expected)


def test_groups_of_one_answer_never_give_their_raw_reward(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rewards_table(list(range(8)), [1.0, 0, 1, 0, 1, 1, 0, 0]))
    scored = score_rewards(path, Recipe(scale="group_std"))
    assert scored.advantages.tolist() == [0.0] * 8
    assert scored.kept.sum() == 0
    (note,) = scored.notes
    assert ": every group has one answer, so every advantage is 0: " in note


def test_zero_signal_is_told_by_group_and_never_by_the_batch(tmp_path: Path) -> None:
    """1, 1, 1 and 9, 9, 9: the batch has deviation 4, each group 0. One NaN does not make a group vary."""
    path = write(tmp_path / "r.parquet", rewards_table(list("aaabbb"), [1.0] * 3 + [9.0] * 3))
    for recipe in (Recipe(), Recipe(scale="batch_std")):
        scored = score_rewards(path, recipe)
        assert (scored.kept.any(), scored.advantages.tolist()) == (False, [0.0] * 6)
    assert groups_table(next(scored.groups)).column("std").to_pylist() == [0.0, 0.0]
    nan = write(tmp_path / "n.parquet", rewards_table(list("aaa"), [1.0, NAN, 1.0]))
    assert not score_rewards(nan, skip=True).kept.any()
