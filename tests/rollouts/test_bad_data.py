"""Bad data under both policies: what is wrong, in which file, row and token, how often, and what skipping leaves."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.errors import DataError
from olmorl_cli.results import answers_table, groups_table
from tests.rollouts import slow
from tests.rollouts.builders import arrow, kinds, nearly, rewards_table, score, score_rewards, tokens_table, write

NAN, INF = math.nan, math.inf
Found = dict[str, tuple[int, list[tuple[int, int | None]]]]


def found(paths: str | list[str], *, skip: bool = False, **options: Any) -> Found:
    """What the objective is refused for: code → count and the named (row, token)."""
    with pytest.raises(DataError) as caught:
        score(paths, skip=skip, **options)
    return {
        code: (kind.count, [(place.row, place.token) for place in kind.places]) for code, kind in kinds(caught.value).items()
    }


def marks(*lists: Any) -> pa.Array:
    return pa.array(list(lists), pa.list_(pa.int8()))


def floats(*lists: Any) -> pa.Array:
    return pa.array(list(lists), pa.list_(pa.float32()))


@pytest.mark.parametrize(("value", "code"), [(None, "null"), (NAN, "nan"), (INF, "infinite"), (-INF, "infinite")])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_rewards_that_cannot_be_scored_are_refused(
    tmp_path: Path, value: float | None, code: str, kind: pa.DataType
) -> None:
    rewards = pa.array([1.0, value, 0.0, *[value] * 6], kind)
    path = write(tmp_path / "r.parquet", rewards_table(["a"] * 9, rewards))
    with pytest.raises(DataError) as caught:
        score_rewards(path)
    (kind_found,) = caught.value.problems.kinds()
    assert (kind_found.code, kind_found.severity, kind_found.file) == (f"{code}_reward", "error", path)
    assert (kind_found.count, [place.row for place in kind_found.places]) == (7, [1, 3, 4, 5, 6])
    (line,) = caught.value.lines
    assert line.startswith(f"{path}: reward, the reward, is ")
    assert "rows 1, 3, 4, 5, 6 (7 in all). " in line


def test_null_nan_and_infinite_rewards_are_told_apart(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rewards_table(["a"] * 6, [None, NAN, INF, -INF, 1.0, NAN]))
    with pytest.raises(DataError) as caught:
        score_rewards(path)
    assert {code: (k.count, [p.row for p in k.places]) for code, k in kinds(caught.value).items()} == {
        "null_reward": (1, [0]),
        "nan_reward": (2, [1, 5]),
        "infinite_reward": (2, [2, 3]),
    }


def test_unscorable_answers_leave_their_group(tmp_path: Path) -> None:
    """Group a is 1, 1, null, 1: without the null one it has no signal. In b two answers are left, 1 and 0."""
    rewards = [1.0, 1.0, None, 1.0, 1.0, NAN, 0.0, INF, 2.0, -INF]
    groups = ["a"] * 4 + ["b"] * 4 + ["c"] * 2
    scored = score_rewards(write(tmp_path / "r.parquet", rewards_table(groups, rewards)), skip=True)
    nothing = {"advantage": None, "reward": None}
    assert [row["advantage"] for row in answers_table(scored).to_pylist()] == [0, 0, None, 0, 0.5, None, -0.5, None, 0, None]
    assert [row["kept"] for row in answers_table(scored).to_pylist()] == [False] * 4 + [True] * 4 + [False] * 2
    assert answers_table(scored).to_pylist()[2] == {"group": "a", "row": 2, **nothing, "kept": False}
    assert groups_table(next(scored.groups)).to_pylist() == [
        {"group": "a", "size": 4, "mean": 1.0, "std": 0.0, "min": 1.0, "max": 1.0, "kept": False},
        {"group": "b", "size": 4, "mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0, "kept": True},
        {"group": "c", "size": 2, "mean": 2.0, "std": 0.0, "min": 2.0, "max": 2.0, "kept": False},
    ]
    assert {kind.code: kind.count for kind in scored.problems.kinds("note")} == {
        "null_reward": 1,
        "nan_reward": 1,
        "infinite_reward": 2,
    }
    assert not scored.problems.errors


def test_a_group_without_a_scorable_answer(tmp_path: Path) -> None:
    scored = score_rewards(write(tmp_path / "r.parquet", rewards_table(["a", "a", "b"], [None, NAN, 1.0])), skip=True)
    nothing = {"mean": None, "std": None, "min": None, "max": None}
    assert groups_table(next(scored.groups)).to_pylist()[0] == {"group": "a", "size": 2, **nothing, "kept": False}
    assert np.isnan(scored.advantages[:2]).all()


def test_one_bad_group_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    clean = score_rewards(write(tmp_path / "a.parquet", rewards_table(["b", "b", "b"], [0.1, 0.2, 0.7])))
    mixed = rewards_table(["a", "b", "b", "a", "b"], [NAN, 0.1, 0.2, 1.0, 0.7])
    scored = score_rewards(write(tmp_path / "b.parquet", mixed), skip=True)
    assert scored.advantages[[1, 2, 4]].tolist() == clean.advantages.tolist()


TOKENS = [(None, "null"), (NAN, "nan"), (INF, "infinite"), (-INF, "infinite"), (1.0, "positive"), (0.0011, "positive")]
ROLES = {"new_logprobs": "logp_new", "old_logprobs": "logp_old", "rollout_logprobs": "logp_sampler"}


@pytest.mark.parametrize(("value", "code"), TOKENS)
@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_log_probs_that_cannot_be(tmp_path: Path, name: str, kind: pa.DataType, value: float | None, code: str) -> None:
    """Rows 1 and 4 hold two bad tokens; the first of row 1 is masked and never matters."""
    good = [[-1.0, -1.0, -1.0]] * 5
    lists = [good[0], [value, -1.0, value], good[2], good[3], [value, -2.0, -1.0]]
    columns = dict.fromkeys(ROLES, arrow(good, pa.list_(kind))) | {name: arrow(lists, pa.list_(kind))}
    table = rewards_table(
        ["a"] * 5, [1.0, 0.0, 1.0, 0.0, 1.0], **columns, loss_mask=marks([1, 1, 1], [0, 1, 1], *[[1] * 3] * 3)
    )
    path = write(tmp_path / "r.parquet", table, row_group_size=2)
    assert found(path) == {f"{code}_{ROLES[name]}": (2, [(1, 2), (4, 0)])}
    with pytest.raises(DataError, match=r"r\.parquet: .*, row 1 token 2; row 4 token 0 \(2 in all\)\. "):
        score(path)
    result = score(path, skip=True)
    expected = slow.objective(table.to_pylist())
    assert expected["tokens"] == 12
    assert {key: result.rows[0][key] for key in expected} == nearly(expected)
    assert any("row 1 token 2; row 4 token 0 (2 in all)" in note for note in result.notes)


def test_what_rounding_can_explain_is_a_log_prob(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[1e-3, 0.0], [9e-4]], [[1e-3, -0.0], [1e-4]]))
    assert score(path).rows[0]["tokens"] == 3


def test_the_first_five_tokens_are_named_and_all_are_counted(tmp_path: Path) -> None:
    lists = [[-1.0] * 4, [NAN] * 4, [-1.0] * 4, [-1.0, NAN, NAN, NAN]]
    path = write(tmp_path / "r.arrow", tokens_table(lists, [[-1.0] * 4] * 4), rows_a_batch=3)
    assert found(path) == {"nan_logp_new": (7, [(1, 0), (1, 1), (1, 2), (1, 3), (3, 1)])}


def test_a_token_may_be_wrong_in_several_ways(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[NAN, -1.0]], [[2.0, -1.0]], reward=[1.0]))
    assert found(path) == {"nan_logp_new": (1, [(0, 0)]), "positive_logp_old": (1, [(0, 0)])}
    assert score(path, skip=True).rows[0]["tokens"] == 1


NULLS: list[tuple[Any, Any, dict[str, list[int]], int]] = [
    (None, None, {"null_list_logp_new": [1], "null_list_logp_old": [1]}, 3),
    ([-1.0, -1.0], None, {"null_list_logp_old": [1]}, 3),
    (None, [], {"null_list_logp_new": [1]}, 3),
    ([], None, {"null_list_logp_old": [1]}, 3),
]


@pytest.mark.parametrize(("new", "old", "rows", "tokens"), NULLS)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_null_lists_are_answers_without_tokens_only_under_skip(
    tmp_path: Path, suffix: str, new: Any, old: Any, rows: dict[str, list[int]], tokens: int
) -> None:
    table = tokens_table([[-1.0, -1.0], new, [-2.0]], [[-1.0, -1.0], old, [-2.0]])
    path = write(tmp_path / f"r.{suffix}", table)
    assert found(path) == {code: (1, [(row, None) for row in each]) for code, each in rows.items()}
    (row,) = score(path, skip=True).rows
    assert (row["tokens"], row["answers"], row["ratio_mean"]) == (tokens, 3, 1.0)


def test_an_answer_with_a_null_list_stays_in_its_group(tmp_path: Path) -> None:
    """Rewards 1, 0, 0.5: the mean is 0.5 with the second; terms 0.5, 0.5 and 0 over three tokens."""
    table = tokens_table([[-1.0, -1.0], None, [-2.0]], [[-1.0, -1.0], None, [-2.0]], reward=[1.0, 0.0, 0.5])
    result = score(write(tmp_path / "r.parquet", table), skip=True)
    assert result.rows[0]["objective"] == (0.5 + 0.5 + 0.0) / 3


@pytest.mark.parametrize("skip", [False, True])
def test_a_null_new_list_beside_old_tokens_is_always_an_error(tmp_path: Path, skip: bool) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[-1.0], None], [[-1.0], [-1.0, -2.0]]))
    code, words = (
        ("lengths", r"row 1 \(new_logprobs 0, old_logprobs 2\)") if skip else ("null_list_logp_new", "null list, row 1 ")
    )
    assert found(path, skip=skip)[code] == (1, [(1, None)])
    with pytest.raises(DataError, match=words):
        score(path, skip=skip)


@pytest.mark.parametrize("skip", [False, True])
def test_a_null_sampler_list_is_none_for_that_answer(tmp_path: Path, skip: bool) -> None:
    """w is 1 and e; the answer without a sampler counts in the objective and in no sampler figure."""
    table = tokens_table([[-1.0], [-2.0, -3.0], [-2.0]], [[-1.0], [-2.0, -3.0], [-1.0]])
    table = table.append_column("rollout_logprobs", floats([-1.0], None, [-2.0]))
    (row,) = score(write(tmp_path / "r.parquet", table), skip=skip).rows
    assert row["tokens"] == 4
    assert row["sampler_ratio_mean"] == pytest.approx((1.0 + math.e) / 2)
    assert (row["sampler_ratio_min"], row["sampler_ratio_max"]) == (1.0, pytest.approx(math.e))
    assert row["sampler_abs_diff"] == (0.0 + 1.0) / 2
    assert row["sampler_ess"] == pytest.approx((1.0 + math.e) ** 2 / (2 * (1.0 + math.e**2)))


LENGTHS = [
    ({"old_logprobs": floats([-1.0, -1.0], [-1.0], [-1.0])}, "old_logprobs", 1),
    ({"old_logprobs": floats([-1.0, -1.0], [-1.0, -1.0, -1.0], [-1.0])}, "old_logprobs", 3),
    ({"old_logprobs": floats([-1.0, -1.0], [], [-1.0])}, "old_logprobs", 0),
    ({"loss_mask": marks([1, 1], [1], [1])}, "loss_mask", 1),
    ({"loss_mask": marks([1, 1], [1, 1, 0], [1])}, "loss_mask", 3),
    ({"loss_mask": marks([1, 1], [], [1])}, "loss_mask", 0),
    ({"rollout_logprobs": floats([-1.0, -1.0], [-1.0], [-1.0])}, "rollout_logprobs", 1),
    ({"rollout_logprobs": floats([-1.0, -1.0], [], None)}, "rollout_logprobs", 0),
]


@pytest.mark.parametrize(("columns", "name", "length"), LENGTHS)
@pytest.mark.parametrize("skip", [False, True])
def test_lists_of_different_lengths_are_always_an_error(
    tmp_path: Path, columns: dict[str, pa.Array], name: str, length: int, skip: bool
) -> None:
    good = [[-1.0, -1.0], [-1.0, -1.0], [-1.0]]
    path = write(tmp_path / "r.parquet", tokens_table(good, good, **columns))
    assert found(path, skip=skip) == {"lengths": (1, [(1, None)])}
    with pytest.raises(DataError, match=rf"r\.parquet: .*row 1 \(new_logprobs 2, {name} {length}\) \(1 in all\)\. "):
        score(path, skip=skip)


@pytest.mark.parametrize("mask", [pa.list_(pa.int8()), pa.list_(pa.bool_()), pa.list_(pa.float32())])
@pytest.mark.parametrize("skip", [False, True])
def test_a_null_inside_a_mask_is_always_an_error(tmp_path: Path, mask: pa.DataType, skip: bool) -> None:
    good = [[-1.0, -1.0], [-1.0, -1.0]]
    column = marks([1, None], [0, 1]).cast(mask)
    path = write(tmp_path / "r.parquet", tokens_table(good, good, loss_mask=column))
    assert found(path, skip=skip) == {"null_in_mask": (1, [(0, 1)])}


@pytest.mark.parametrize("skip", [False, True])
def test_nan_in_a_mask_and_a_null_mask_say_nothing_either(tmp_path: Path, skip: bool) -> None:
    good = [[-1.0, -1.0], [-1.0, -1.0]]
    path = write(tmp_path / "r.parquet", tokens_table(good, good, loss_mask=floats([1.0, 0.0], [NAN, 1.0])))
    assert found(path, skip=skip) == {"null_in_mask": (1, [(1, 0)])}
    path = write(tmp_path / "r.parquet", tokens_table(good, good, loss_mask=marks([1, 1], None)))
    assert found(path, skip=skip)["null_mask"] == (1, [(1, None)])


@pytest.mark.parametrize(("value", "code"), [(NAN, "nan"), (INF, "infinite"), (-INF, "infinite")])
@pytest.mark.parametrize("skip", [False, True])
def test_a_given_advantage_that_is_no_number_is_always_an_error(tmp_path: Path, value: float, code: str, skip: bool) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[-1.0]] * 3, [[-1.0]] * 3, adv=[1.0, value, -1.0]))
    assert found(path, skip=skip, advantage="adv") == {f"{code}_advantage": (1, [(1, None)])}


def test_a_null_advantage_is_an_unscorable_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([[-1.0]] * 3, [[-1.0]] * 3, adv=[1.0, None, -1.0]))
    assert found(path, advantage="adv") == {"null_advantage": (1, [(1, None)])}
    (row,) = score(path, skip=True, advantage="adv").rows
    assert (row["answers"], row["tokens"], row["objective"]) == (3, 2, 0.0)


@pytest.mark.parametrize("skip", [False, True])
def test_null_ids_of_groups_and_steps_are_always_an_error(tmp_path: Path, skip: bool) -> None:
    table = tokens_table([[-1.0]] * 3, [[-1.0]] * 3, group_id=["a", None, "a"], step=[1, 1, 1])
    assert found(write(tmp_path / "r.parquet", table), skip=skip) == {"null_id": (1, [(1, None)])}
    table = tokens_table([[-1.0]] * 3, [[-1.0]] * 3, step=[None, 1, 1])
    assert found(write(tmp_path / "r.parquet", table), skip=skip) == {"null_id": (1, [(0, None)])}


@pytest.mark.parametrize("skip", [False, True])
def test_a_group_size_that_does_not_divide_is_named(tmp_path: Path, skip: bool) -> None:
    paths = [write(tmp_path / f"{n}.parquet", rewards_table(["a"] * 5, [1.0, 0.0, 1.0, 0.0, 1.0])) for n in range(2)]
    with pytest.raises(DataError, match="5 rows are no multiple of the group size 2") as caught:
        score_rewards(paths[0], skip=skip, group_size=2)
    assert "group_size" in kinds(caught.value)
    with pytest.raises(DataError, match="10 rows are no multiple of the group size 4"):
        score_rewards(paths, skip=skip, group_size=4)
    assert score_rewards(paths, group_size=2).table.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert score_rewards(paths, group_size=10).table.groups.tolist() == [0] * 10


@pytest.mark.parametrize("skip", [False, True])
def test_a_consecutive_group_across_steps_is_named_with_its_row(tmp_path: Path, skip: bool) -> None:
    first = rewards_table(["a"] * 4, [1.0, 0.0, 1.0, 0.0], step=[1, 1, 1, 2])
    second = rewards_table(["a"] * 4, [1.0, 0.0, 1.0, 0.0], step=[2, 2, 3, 3])
    paths = [write(tmp_path / f"{n}.parquet", table) for n, table in enumerate((first, second))]
    with pytest.raises(DataError) as caught:
        score_rewards(paths, skip=skip, group_size=2)
    (kind,) = caught.value.problems.kinds("error")
    assert (kind.code, kind.file, [place.row for place in kind.places]) == ("group_across_steps", paths[0], [3])
    assert score_rewards(paths[1], group_size=2).table.step_of_group.tolist() == [0, 1]


def test_rows_are_numbered_within_their_file(tmp_path: Path) -> None:
    tables = [
        tokens_table([[-1.0], [-1.0], [NAN]], [[-1.0]] * 3, reward=[1.0, None, 0.0]),
        tokens_table([[-1.0]], [[-1.0]]),
        tokens_table([[-1.0, 5.0], [-1.0], [-1.0]], [[-1.0, -1.0], [NAN], [-1.0]], reward=[1.0, 0.0, None]),
    ]
    paths = [write(tmp_path / f"{n}.parquet", table, row_group_size=1) for n, table in enumerate(tables)]
    with pytest.raises(DataError) as caught:
        score(paths)
    places = [(k.file, k.code, [(p.row, p.token) for p in k.places]) for k in caught.value.problems.kinds("error")]
    assert sorted(places) == [
        (paths[0], "nan_logp_new", [(2, 0)]),
        (paths[0], "null_reward", [(1, None)]),
        (paths[2], "nan_logp_old", [(1, 0)]),
        (paths[2], "null_reward", [(2, None)]),
        (paths[2], "positive_logp_new", [(0, 1)]),
    ]
    assert [place[0] for place in places] == [paths[0]] * 2 + [paths[2]] * 3
    notes = score(paths, skip=True).notes
    assert sum(note.startswith(paths[0]) for note in notes) == 2


@pytest.mark.parametrize("new", [[[NAN]], [None], [[-1.0, -1.0]]])
def test_a_reward_and_the_tokens_of_one_answer_may_both_be_wrong(tmp_path: Path, new: list[Any]) -> None:
    path = write(tmp_path / "r.parquet", tokens_table([*new, [-1.0]], [[-1.0], [-1.0]], reward=[None, 1.0]))
    places = found(path)
    assert places.pop("null_reward") == (1, [(0, None)])
    assert {place[0] for _, each in places.values() for place in each} == {0}


def test_everything_wrong_is_gathered(tmp_path: Path) -> None:
    """Lists that do not belong together in one answer hide nothing in the others."""
    new = [[-1.0, -1.0], [NAN], [-1.0], None, [-1.0]]
    old = [[-1.0], [-1.0], [2.0], [], [-1.0]]
    mask = marks([1, 1], [1], [1], [], [None])
    table = tokens_table(new, old, reward=[1.0, 0.0, None, 0.0, INF], loss_mask=mask)
    assert found(write(tmp_path / "r.parquet", table)) == {
        "null_reward": (1, [(2, None)]),
        "infinite_reward": (1, [(4, None)]),
        "lengths": (1, [(0, None)]),
        "null_list_logp_new": (1, [(3, None)]),
        "nan_logp_new": (1, [(1, 0)]),
        "positive_logp_old": (1, [(2, 0)]),
        "null_in_mask": (1, [(4, 0)]),
    }


def test_five_places_of_each_kind_and_five_in_all_files(tmp_path: Path) -> None:
    """Null lists and null tokens, old lists and masks of other lengths, are four kinds."""
    new = [[-1.0, -1.0]] * 13 + [[-1.0, None]]
    old = [[-1.0]] * 6 + [[-1.0, -1.0]] * 8
    mask = marks(*[[1, 1]] * 6, [1], *[[1, 1]] * 7)
    path = write(
        tmp_path / "r.parquet",
        tokens_table([*new[:7], *[None] * 6, new[13]], [*old[:7], *[None] * 6, old[13]], loss_mask=mask),
    )
    with pytest.raises(DataError) as caught:
        score(path)
    lines = caught.value.lines
    assert any("null list, rows 7, 8, 9, 10, 11 (6 in all)" in line for line in lines)
    assert any("is null, row 13 token 1 (1 in all)" in line for line in lines)
    assert any("old_logprobs have different lengths, row 0" in line and "(6 in all)" in line for line in lines)
    assert any("loss_mask have different lengths, row 6 (new_logprobs 2, loss_mask 1) (1 in all)" in line for line in lines)


def test_many_files_name_five_places_and_count_the_rest(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}.parquet", rewards_table(["a"] * 3, [None, 1.0, None])) for n in range(6)]
    with pytest.raises(DataError) as caught:
        score_rewards(paths)
    assert caught.value.lines[0].startswith(f"{paths[0]}: reward, the reward, is null, rows 0, 2 (2 in all). ")
    assert caught.value.lines[2].startswith(f"{paths[2]}: reward, the reward, is null, row 0 (2 in all). ")
    assert "3 more files" in caught.value.lines[3]
    assert "(6 in all)" in caught.value.lines[3]
    assert len(caught.value.lines) == 4
    assert sum(kind.count for kind in caught.value.problems.kinds()) == 12
