"""Every machine output: its columns and their order, its values, the same in all four formats."""

import math
from typing import Any

import pyarrow as pa
import pytest

from tests.cli import kit

FIGURES = [
    *("objective", "objective_all_groups", "answers", "groups", "kept_groups", "tokens", "kept_tokens"),
    *("clip_low", "clip_high", "ratio_mean", "ratio_min", "ratio_max", "approx_kl"),
]
SAMPLER = [f"sampler_{key}" for key in ("ratio_mean", "ratio_min", "ratio_max", "clip", "ess", "abs_diff")]
SETTINGS = ["recipe", "eps_low", "eps_high", "normalize_std", "aggregation", "columns"]
OF_ANSWER = ["row", "reward", "advantage", "kept"]
OF_TOKEN = ["row", "token", "log_ratio", "ratio", "advantage", "term", "clipped_low", "clipped_high", "gradient"]
OF_GROUP = ["size", "mean", "std", "min", "max", "kept"]

RECIPES = ("--recipe", "olmorl", "--recipe", "grpo")
PAIR = ("--group", "prompt_id", "--group", "seed")
FILES: dict[str, dict[str, Any]] = {
    "r": {},
    "no_step": {"step": None},
    "pairs": {"step": None, "seed": [7, 7, 7, 7, 9, 9, 9, 9]},
    "sampled": {"logp_sampler": kit.TOKENS["logp_old"]},
}
CASES = {
    "answers with a step": (("advantages", "r"), ["step", "group", *OF_ANSWER]),
    "answers without": (("advantages", "no_step"), ["group", *OF_ANSWER]),
    "answers by two columns": (("advantages", "pairs", *PAIR), ["prompt_id", "seed", *OF_ANSWER]),
    "answers by two columns and a step": (
        ("advantages", "pairs", *PAIR, "--step", "reward"),
        ["step", *PAIR[1::2], *OF_ANSWER],
    ),
    "groups with a step": (("groups", "r"), ["step", "group", *OF_GROUP]),
    "groups of consecutive rows": (("groups", "no_step", "-G", "4"), ["group", *OF_GROUP]),
    "groups by two columns": (("groups", "pairs", *PAIR), ["prompt_id", "seed", *OF_GROUP]),
    "objective": (("objective", "r"), [*FIGURES, *SETTINGS]),
    "objective by step": (("objective", "r", "--by", "step"), ["step", *FIGURES, *SETTINGS]),
    "objective by another column": (("objective", "r", "--by", "prompt_id"), ["prompt_id", *FIGURES, *SETTINGS]),
    "objective without a step": (("objective", "no_step", "-G", "2"), [*FIGURES, *SETTINGS]),
    "objective with a sampler": (("objective", "sampled", "--sampler-cap", "2"), [*FIGURES, *SAMPLER, *SETTINGS]),
    "tokens with a step": (("objective", "r", "--per-token"), ["step", "group", *OF_TOKEN]),
    "tokens by two columns": (("objective", "pairs", "--per-token", *PAIR), [*PAIR[1::2], *OF_TOKEN]),
    "tokens of consecutive rows": (("objective", "no_step", "--per-token", "-G", "4"), ["group", *OF_TOKEN]),
    "recipes": (("compare", "r", *RECIPES), ["recipe", *FIGURES, *SETTINGS[1:]]),
    "recipes with a sampler": (("compare", "sampled", *RECIPES), ["recipe", *FIGURES, *SAMPLER, *SETTINGS[1:]]),
}

Outputs = dict[str, dict[str, kit.Done]]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Each case's output in each format."""
    folder = tmp_path_factory.mktemp("contract")
    paths = {name: kit.write(str(folder / f"{name}.parquet"), **columns) for name, columns in FILES.items()}
    commands = [
        (command, paths[file], *options, "-f", format)
        for (command, file, *options), _ in CASES.values()
        for format in kit.FORMATS
    ]
    done = iter(kit.run_in_turn(commands))
    return {case: {format: next(done) for format in kit.FORMATS} for case in CASES}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_text_outputs_have_exactly_these_columns(case: str, format: str, outputs: Outputs) -> None:
    assert kit.keys_of(outputs[case][format], format) == CASES[case][1]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_binary_outputs_have_these_columns_or_the_inputs_and_two_more(case: str, format: str, outputs: Outputs) -> None:
    command, file, *_ = CASES[case][0]
    passed = kit.rollouts(**FILES[file]).column_names
    expected = [*passed, "advantage", "kept"] if command == "advantages" else CASES[case][1]
    assert kit.keys_of(outputs[case][format], format) == expected


@pytest.mark.parametrize("case", CASES)
def test_values_are_the_same_in_all_formats(case: str, outputs: Outputs) -> None:
    rows = kit.values_of(outputs[case]["jsonl"], "jsonl")
    assert rows
    for format in ("csv", "parquet", "arrow"):
        others = kit.values_of(outputs[case][format], format)
        shared = [key for key in rows[0] if key in others[0]]
        assert [[row[key] for key in shared] for row in others] == [[row[key] for key in shared] for row in rows]
        assert len(shared) == len(rows[0]) or CASES[case][0][0] == "advantages"


@pytest.mark.parametrize("case", CASES)
def test_nothing_else_is_written(case: str, outputs: Outputs) -> None:
    notes = 1 if case == "objective by another column" else 0  # prompt b has no kept group
    assert [done.err.count("\n") for done in outputs[case].values()] == [notes] * 4
    assert all(done.out.endswith(b"\n") for format, done in outputs[case].items() if format in ("jsonl", "csv"))


def test_answers_stand_in_input_order(outputs: Outputs) -> None:
    rows = outputs["answers with a step"]["jsonl"].rows
    given = kit.GROUPED
    expected = zip(given["step"], given["prompt_id"], range(8), given["reward"], kit.ADVANTAGES, kit.KEPT, strict=True)
    assert [tuple(row.values()) for row in rows] == list(expected)


def test_groups_stand_in_order_of_first_appearance(outputs: Outputs) -> None:
    assert [tuple(row.values()) for row in outputs["groups with a step"]["jsonl"].rows] == [
        (1, "a", 2, (1 + 0) / 2, 0.5, 0, 1, True),
        (1, "b", 2, (1 + 1) / 2, 0.0, 1, 1, False),
        (2, "a", 2, (3 + 1) / 2, 1.0, 1, 3, True),
        (2, "c", 2, (0.5 + 0.25) / 2, 0.125, 0.25, 0.5, True),
    ]


def test_groups_of_consecutive_rows_are_numbered(outputs: Outputs) -> None:
    rows = outputs["groups of consecutive rows"]["jsonl"].rows
    assert [(row["group"], row["size"], row["mean"]) for row in rows] == [(0, 4, 3 / 4), (1, 4, (3 + 1 + 0.5 + 0.25) / 4)]


def test_figures_are_those_of_the_formulas(outputs: Outputs) -> None:
    row = outputs["objective"]["jsonl"].row
    first = 0.5 + 1.272 * 0.5 - 0.5 - 0.8 * 0.5  # rows 0 and 2: ratios 1, e^4 and 1, e^-4
    second = 1 + 1 - 1 + 0.125 - 0.125
    high, low = math.exp(4), math.exp(-4)
    assert row | {"columns": None} == {
        "objective": pytest.approx((first + second) / 9, rel=1e-14),
        "objective_all_groups": pytest.approx((first + second) / 12, rel=1e-14),
        "answers": 8,
        "groups": 4,
        "kept_groups": 3,
        "tokens": 2 + 1 + 2 + 2 + 2 + 1 + 1 + 1,
        "kept_tokens": 2 + 2 + 2 + 1 + 1 + 1,
        "clip_low": 1 / 9,
        "clip_high": 1 / 9,
        "ratio_mean": pytest.approx((7 + high + low) / 9, rel=1e-14),
        "ratio_min": pytest.approx(low, rel=1e-14),
        "ratio_max": pytest.approx(high, rel=1e-14),
        "approx_kl": pytest.approx((high - 1 - 4 + low - 1 + 4) / 9, rel=1e-14),
        "recipe": "olmorl",
        "eps_low": 0.2,
        "eps_high": 0.272,
        "normalize_std": False,
        "aggregation": "token_mean",
        "columns": None,
    }
    assert row["columns"] == {"group": "prompt_id", "step": "step", "reward": "reward"} | {name: name for name in kit.TOKENS}
    steps = outputs["objective by step"]["jsonl"].rows
    assert [(row["step"], row["tokens"]) for row in steps] == [(1, 7), (2, 5)]
    assert [row["objective"] for row in steps] == pytest.approx([first / 4, second / 5], rel=1e-14)
    prompts = outputs["objective by another column"]["jsonl"].rows
    assert [(row["prompt_id"], row["objective"]) for row in prompts] == [
        ("a", pytest.approx((first + 1 + 1 - 1) / (4 + 3), rel=1e-14)),
        ("b", None),
        ("c", (0.125 - 0.125) / 2),
    ]


def test_a_sampler_equal_to_the_old_policy_has_weight_1_everywhere(outputs: Outputs) -> None:
    row = outputs["objective with a sampler"]["jsonl"].row
    assert [row[key] for key in SAMPLER] == [1.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    uncapped = outputs["recipes with a sampler"]["jsonl"].rows[0]
    assert [uncapped[key] for key in SAMPLER] == [1.0, 1.0, 1.0, None, 1.0, 0.0]


def test_consecutive_groups_have_no_column(outputs: Outputs) -> None:
    assert outputs["objective without a step"]["jsonl"].row["columns"]["group"] is None


def test_recipes_stand_in_the_order_asked_for(outputs: Outputs) -> None:
    rows = outputs["recipes"]["jsonl"].rows
    assert [(row["recipe"], row["eps_high"], row["normalize_std"]) for row in rows] == [
        ("olmorl", 0.272, False),
        ("grpo", 0.2, True),
    ]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_added_columns_have_their_types(format: str, outputs: Outputs) -> None:
    table = kit.table_of(outputs["answers with a step"][format].out, format)
    assert (table.schema.field("advantage").type, table.schema.field("kept").type) == (pa.float64(), pa.bool_())
    assert table["advantage"].to_pylist() == kit.ADVANTAGES
    assert table["kept"].to_pylist() == kit.KEPT


def test_compare_sweeps_the_values_that_an_option_lists() -> None:
    """A row for each pair of values, the same as objective's with that pair."""
    path = kit.write("r.parquet")
    bounds = [(low, high) for low in ("0.1", "0.2") for high in ("0.05", "0.3")]
    swept = kit.run("compare", path, "--recipe", "grpo", "--eps-low", "0.1,0.2", "--eps-high", "0.05,0.3").rows
    assert [(row["eps_low"], row["eps_high"]) for row in swept] == [(float(low), float(high)) for low, high in bounds]
    low, high = bounds[-1]
    alone = kit.run("objective", path, "--recipe", "grpo", "--eps-low", low, "--eps-high", high).row
    assert swept[-1] == alone
    refused = kit.run("compare", path, "--eps-high", "0.1,")
    assert (refused.code, "--eps-high" in refused.err) == (2, True)
