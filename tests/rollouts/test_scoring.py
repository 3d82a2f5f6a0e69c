"""Files to figures: against the oracle, step by step, with given advantages, and on real rollouts."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olmorl_cli.core.diagnostics import QUANTILES
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.errors import DataError, InputError
from olmorl_cli.objectives import score_objective
from olmorl_cli.results import answers_table, groups_table
from tests.rollouts import slow
from tests.rollouts.builders import (
    exactly,
    figures,
    nearly,
    opened,
    random_rows,
    rewards_table,
    score,
    score_rewards,
    table_of,
    tokens_table,
    write,
)

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "rollouts"

RECIPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"scale": "group_std"}, {"eps": 1e-6}),
    ({"scale": "group_std", "std_eps": 0.25}, {"eps": 0.25}),
    ({"eps_low": 0.1, "eps_high": 0.0}, {"low": 0.1, "high": 0.0}),
    ({"eps_low": 1.0, "eps_high": 9.0}, {"low": 1.0, "high": 9.0}),
    ({"zero_signal_groups": "kept"}, {"keep": True}),
    ({"aggregation": "token_sum"}, {"how": "token_sum"}),
    ({"aggregation": "sequence_mean_of_token_mean"}, {"how": "sequence_mean_of_token_mean"}),
    ({"aggregation": "sequence_mean_of_token_sum"}, {"how": "sequence_mean_of_token_sum"}),
    ({"aggregation": "prompt_mean_of_token_mean"}, {"how": "prompt_mean_of_token_mean"}),
    ({"aggregation": "sum_over_constant", "divisor": 64}, {"how": "sum_over_constant", "divisor": 64.0}),
    ({"sampler_mode": "truncate", "sampler_cap": 1.2}, {"cap": 1.2}),
    ({"sampler_mode": "truncate", "sampler_cap": 2.0, "zero_signal_groups": "kept"}, {"cap": 2.0, "keep": True}),
]


@pytest.mark.parametrize(("fields", "options"), RECIPES, ids=lambda value: " ".join(map(str, value.values())))
def test_the_oracle_agrees(tmp_path: Path, fields: dict[str, Any], options: dict[str, Any]) -> None:
    for seed in range(8):
        rows = random_rows(seed)
        path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=5)
        expected = slow.objective(table_of(rows).to_pylist(), **options)
        (row,) = score(path, Recipe(**fields)).rows
        assert {key: row[key] for key in expected} == nearly(expected)
        assert (row["eps_low"], row["eps_high"]) == (options.get("low", 0.2), options.get("high", 0.272))
        assert row["normalize_std"] is (fields.get("scale") == "group_std")


@pytest.mark.parametrize("seed", range(6))
def test_advantages_and_statistics_agree_with_the_oracle(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed, groups=12, most=9)
    path = write(tmp_path / "r.parquet", table_of(rows), row_group_size=4)
    for fields, options in (({}, {}), ({"scale": "group_std"}, {"eps": 1e-6}), ({"scale": "group_std", "ddof": 1}, None)):
        scored = score_rewards(path, Recipe(**fields))
        options = {"eps": 1e-6, "ddof": 1} if options is None else options
        assert scored.advantages.tolist() == pytest.approx(slow.advantages(rows, **options), rel=1e-12, abs=1e-15)
    kept = slow.kept_groups(rows)
    assert scored.kept.tolist() == [slow.group_of(row) in kept for row in rows]
    for group in groups_table(next(scored.groups)).to_pylist():
        rewards = [row["reward"] for row in rows if slow.group_of(row) == (group["step"], group["group"])]
        mean = math.fsum(rewards) / len(rewards)
        std = math.sqrt(math.fsum((x - mean) ** 2 for x in rewards) / len(rewards))
        assert group["mean"] == pytest.approx(mean, rel=1e-15)
        assert group["std"] == pytest.approx(std, rel=1e-12, abs=1e-15)
        assert (group["size"], group["min"], group["max"]) == (len(rewards), min(rewards), max(rewards))


def test_the_tables_have_the_columns_and_the_order_that_are_promised(tmp_path: Path) -> None:
    table = rewards_table(["b", "a", "b", "a"], [1.0, 0.0, 0.0, 0.0], step=[3, 1, 3, 1])
    scored = score_rewards(write(tmp_path / "r.parquet", table))
    assert answers_table(scored).to_pylist() == [
        {"step": 3, "group": "b", "row": 0, "reward": 1.0, "advantage": 0.5, "kept": True},
        {"step": 1, "group": "a", "row": 1, "reward": 0.0, "advantage": 0.0, "kept": False},
        {"step": 3, "group": "b", "row": 2, "reward": 0.0, "advantage": -0.5, "kept": True},
        {"step": 1, "group": "a", "row": 3, "reward": 0.0, "advantage": 0.0, "kept": False},
    ]
    assert [list(row.values())[:3] for row in groups_table(next(scored.groups)).to_pylist()] == [[3, "b", 2], [1, "a", 2]]
    assert groups_table(next(scored.groups)).column_names == ["step", "group", "size", "mean", "std", "min", "max", "kept"]
    numbered = answers_table(score_rewards(write(tmp_path / "r.parquet", table.drop_columns(["step"])), group_size=2))
    assert numbered.column("group").to_pylist() == [0, 0, 1, 1]
    assert numbered.column_names == ["group", "row", "reward", "advantage", "kept"]


@pytest.mark.parametrize("seed", range(4))
def test_each_step_is_what_it_is_alone(tmp_path: Path, seed: int) -> None:
    rows = random_rows(seed, groups=14, steps=4)
    path = write(tmp_path / "all.parquet", table_of(rows), row_group_size=5)
    for recipe in (Recipe(), Recipe(scale="batch_std"), Recipe(aggregation="prompt_mean_of_token_mean")):
        together = score(path, recipe, by_step=True)
        assert together.by == "step"
        assert [row["step"] for row in together.rows] == [0, 1, 2, 3]
        assert "step" not in score(path, recipe).rows[0]
        for row in together.rows:
            own = [each for each in rows if each["step"] == row["step"]]
            assert exactly(row) == figures(score(write(tmp_path / "one.parquet", table_of(own)), recipe))
            if recipe == Recipe():
                expected = slow.objective(table_of(own).to_pylist())
                assert {key: row[key] for key in expected} == nearly(expected)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([10, 9, -1, 9], [-1, 9, 10]),
        (["10", "9", "100", "9"], ["9", "10", "100"]),
        (["b10", "b9", "a", "b9"], ["a", "b10", "b9"]),
        ([0.5, 2.0, -1.0, 2.0], [-1.0, 0.5, 2.0]),
    ],
    ids=str,
)
def test_steps_ascend_by_number_where_they_are_numbers(tmp_path: Path, steps: list[Any], expected: list[Any]) -> None:
    table = tokens_table([[-1.0]] * 4, [[-1.0]] * 4, step=steps)
    result = score(write(tmp_path / "r.parquet", table), by_step=True)
    assert [row["step"] for row in result.rows] == expected


def test_zero_signal_groups_are_kept_on_demand(tmp_path: Path) -> None:
    """Group a gives 0.5 · 1 and -0.5 · 1 over three tokens, b nothing over five."""
    table = tokens_table([[-1.0, -1.0], [-1.0], [-2.0] * 5], [[-1.0, -1.0], [-1.0], [-2.0] * 5], group_id=["a", "a", "b"])
    path = write(tmp_path / "r.parquet", table)
    (row,) = score(path).rows
    assert (row["objective"], row["objective_all_groups"]) == (0.5 / 3, 0.5 / 8)
    assert (row["tokens"], row["kept_tokens"], row["groups"], row["kept_groups"]) == (8, 3, 2, 1)
    (row,) = score(path, Recipe(zero_signal_groups="kept")).rows
    assert (row["objective"], row["objective_all_groups"], row["kept_tokens"]) == (0.5 / 8, 0.5 / 8, 3)


def test_given_advantages(tmp_path: Path) -> None:
    """Rewards, where there are any, tell which groups are kept; else the advantages do. Ratios are 1."""
    lists, groups = [[-1.0], [-1.0, -1.0], [-1.0], [-1.0]], ["a", "a", "b", "b"]
    table = tokens_table(lists, lists, group_id=groups, reward=[1.0, 1.0, 0.0, 1.0], adv=[4.0, -1.0, 3.0, 3.0])
    path = write(tmp_path / "r.parquet", table)
    (row,) = score(path, advantage="adv").rows
    assert (row["objective"], row["objective_all_groups"]) == ((3 + 3) / 2, (4 - 2 + 3 + 3) / 5)
    assert row["columns"]["advantage"] == "adv"
    path = write(tmp_path / "r.parquet", table.drop_columns(["reward"]))
    (row,) = score(path, advantage="adv").rows
    assert (row["objective"], row["objective_all_groups"]) == ((4 - 2) / 3, (4 - 2 + 3 + 3) / 5)
    assert "reward" not in row["columns"]
    scored = score_rewards(path, advantage="adv")
    assert answers_table(scored).column("reward").null_count == 4
    assert answers_table(scored).column("advantage").to_pylist() == [4.0, -1.0, 3.0, 3.0]
    expected = slow.objective(table.to_pylist(), given=[4.0, -1.0, 3.0, 3.0])
    assert expected["objective"] == 3.0


def test_several_recipes_share_one_pass_and_change_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", table_of(random_rows(7)), row_group_size=6)
    recipes = [Recipe(**fields) for fields, _ in RECIPES]
    seen: list[int] = []
    together = score_objective(opened(path, recipes[-1]), recipes, progress=seen.append)
    assert sum(seen) == len(random_rows(7))
    for recipe, result in zip(recipes, together, strict=True):
        assert figures(result) == figures(score(path, recipe))


FURTHER = ["clip_changed", *QUANTILES, "approx_kl_k1", "approx_kl_k2"]
OF_SAMPLER = ["sampler_outside", "sampler_abs_diff_max", "sampler_k1", "sampler_k3"]


@pytest.mark.parametrize("by", [None, "step"])
def test_further_figures_do_not_depend_on_the_layout_of_the_file(tmp_path: Path, by: str | None) -> None:
    """To the last bit, in one row group or many; without being asked for, the rows are the same but for them."""
    table, recipe = table_of(random_rows(11)), Recipe()

    def rows(**options: Any) -> list[dict[str, Any]]:
        rollouts = opened(write(tmp_path / "r.parquet", table, **options), recipe, **({"by": by} if by else {}))
        return [score_objective(rollouts, [recipe], by=by, diagnose=asked)[0].rows for asked in (True, False)]

    (whole, plain), (cut, _) = rows(), rows(row_group_size=2)
    assert whole == cut
    assert list(whole[0])[-len(FURTHER + OF_SAMPLER) - 6 : -6] == FURTHER + OF_SAMPLER
    assert [{key: row[key] for key in plain[0]} for row in whole] == plain


def test_what_the_clip_changes(tmp_path: Path) -> None:
    """ρ is 2 and 1/2 in an answer of A = 1/2 and one of A = -1/2: a half of the tokens is changed, by cispo all of them."""
    up, down, none = -1.0, -1.0 - 2 * math.log(2.0), -1.0 - math.log(2.0)
    table = tokens_table([[up, down], [up, down]], [[none, none]] * 2, group_id=["a", "a"], reward=[1.0, 0.0])
    path = write(tmp_path / "r.parquet", table)
    for recipe, expected in ((Recipe(), 0.5), (Recipe(surrogate="cispo"), 1.0)):
        (row,) = score_objective(opened(path, recipe), [recipe], diagnose=True)[0].rows
        assert (row["clip_changed"], row["clip_low"] + row["clip_high"]) == (expected, 0.5)
        assert not set(OF_SAMPLER) & set(row)


@pytest.mark.parametrize(("sign", "expected"), [(1.0, 1.272), (0.0, 0.0), (-1.0, -math.inf)])
def test_ratios_that_overflow(tmp_path: Path, sign: float, expected: float) -> None:
    table = tokens_table([[0.0], [-1.0]], [[-800.0], [-1.0]], adv=[sign, 0.5])
    result = score(write(tmp_path / "r.parquet", table), advantage="adv")
    assert result.rows[0]["objective"] == (expected + 0.5) / 2
    assert any("in answer 0 " in note for note in result.notes) is (sign < 0)


@pytest.mark.parametrize("recipe", [Recipe(aggregation=how, divisor=2) for how in ("token_mean", "sum_over_constant")])
def test_no_real_token_is_no_number_and_said(tmp_path: Path, recipe: Recipe) -> None:
    empty = tokens_table([[], [-1.0]], [[], [-1.0]], loss_mask=pa.array([[], [0]], pa.list_(pa.int8())))
    result = score(write(tmp_path / "r.parquet", empty), recipe)
    (row,) = result.rows
    undefined = ("objective", "objective_all_groups", "clip_low", "clip_high", "ratio_mean", "ratio_min", "approx_kl")
    assert [row[key] for key in undefined] == [None] * 7
    assert (row["answers"], row["kept_groups"], row["tokens"]) == (2, 1, 0)
    assert any("no real token" in note for note in result.notes)
    flat = tokens_table([[-1.0], [-1.0]], [[-1.0], [-1.0]], reward=[1.0, 1.0])
    result = score(write(tmp_path / "r.parquet", flat), recipe)
    assert (result.rows[0]["objective"], result.rows[0]["objective_all_groups"]) == (None, 0.0)
    assert any("no group with signal" in note for note in result.notes)


def test_groups_of_one_answer_are_said_to_be_suspicious(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rewards_table(list("abcdefgh"), [1.0, 0, 1, 0, 1, 1, 0, 0]))
    scored = score_rewards(path)
    assert scored.advantages.tolist() == [0.0] * 8
    assert not scored.kept.any()
    assert any("group_id" in note and "one answer" in note for note in scored.notes)
    assert score_rewards(write(tmp_path / "r.parquet", rewards_table(list("aab"), [1.0, 0, 1]))).notes == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_files_without_the_sampler_have_none(tmp_path: Path, order: tuple[int, int]) -> None:
    """As if the column were there and null."""
    rows = random_rows(7)
    for row in rows[9:]:
        row["rollout_logprobs"] = None
    whole = write(tmp_path / "whole.parquet", table_of(rows))
    paths = [
        write(tmp_path / "0.parquet", table_of(rows[:9])),
        write(tmp_path / "1.parquet", table_of(rows[9:]).drop_columns(["rollout_logprobs"])),
    ]
    for recipe in (Recipe(), Recipe(sampler_mode="truncate", sampler_cap=1.2)):
        assert figures(score([paths[n] for n in order], recipe)) == figures(score(whole, recipe))


def test_a_ratio_against_the_sampler_needs_it_everywhere(tmp_path: Path) -> None:
    recipe = Recipe(ratio="sampler")
    table = tokens_table([[-1.0], [-2.0, -2.0]], [[-1.0], [-2.0, -2.0]])
    whole = write(tmp_path / "0.parquet", table.append_column("rollout_logprobs", pa.array([[-1.0], None])))
    with pytest.raises(DataError, match="null list, row 1"):
        score(whole, recipe)
    (row,) = score(whole, recipe, skip=True).rows
    assert (row["tokens"], row["objective"], row["ratio_mean"]) == (1, 0.5, 1.0)
    full = write(tmp_path / "1.parquet", table.append_column("rollout_logprobs", pa.array([[-1.0], [-2.0, -2.0]])))
    with pytest.raises(InputError, match=r"2\.parquet: no column rollout_logprobs"):
        score([full, write(tmp_path / "2.parquet", table)], recipe)


LAYOUTS = [
    "trl_bf16_answers",
    "answers_dict_group_bool_reward_boolmask",
    "answers_float64_large_list",
    "answers_int_reward_int_group",
    "answers_rowgroups_of_3_gzip_v1",
    "answers_shuffled",
    "padded_fixed_right_zero",
    "padded_fixed_right_nan_boolmask",
    "padded_list_right_null_floatmask",
]


@pytest.mark.parametrize("name", LAYOUTS)
def test_real_rollouts_in_other_layouts(name: str) -> None:
    """A TRL run of 64 answers (Qwen2.5-0.5B-Instruct in bf16); the figures were computed outside this project."""
    path = SHARED / f"{name}.parquet"
    if not path.exists():
        pytest.skip("the real rollouts are not beside this repository")
    (row,) = score(str(path)).rows
    assert row["objective"] == pytest.approx(-0.1231629983782858, rel=1e-12)
    assert row["objective_all_groups"] == pytest.approx(-0.029932043430579418, rel=1e-12)
    assert (row["kept_tokens"], row["tokens"], row["kept_groups"], row["groups"], row["answers"]) == (61, 251, 2, 8, 64)
    names = {role: column for role, column in row["columns"].items() if isinstance(column, str)}
    ours = {"group": "group_id", "mask": "loss_mask", "logp_new": "new_logprobs", "logp_old": "old_logprobs"}
    ours |= {"logp_sampler": "rollout_logprobs"}
    table = pq.read_table(path, columns=list(names.values()))
    table = table.rename_columns([ours.get(role, role) for role in names])
    expected = slow.objective(table.to_pylist())
    assert {key: row[key] for key in expected} == nearly(expected)


def test_real_rollouts_give_the_same_bits_in_every_layout() -> None:
    paths = [SHARED / f"{name}.parquet" for name in LAYOUTS]
    if not all(path.exists() for path in paths):
        pytest.skip("the real rollouts are not beside this repository")
    first, *others = (figures(score(str(path))) for path in paths)
    for other in others:
        assert other == first
