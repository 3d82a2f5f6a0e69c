"""What a stranger found, by kind: what was overwritten, what had no words, what could not be told apart."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli import kit

LINES = '{"prompt_id": 1, "reward": %d, "logp_new": [-0.1], "logp_old": [-0.2]%s}\n'


@pytest.fixture
def lines(folder: Path) -> str:
    """Two answers, one of them without the sampler's log-probs."""
    (folder / "a.jsonl").write_text(LINES % (1, ', "logp_sampler": [-0.4]') + LINES % (0, ""))
    return "a.jsonl"


@pytest.mark.parametrize("option", ["-o", "--problems"])
def test_a_recipe_is_an_input_and_never_written_over(lines: str, folder: Path, option: str) -> None:
    (folder / "r.jsonl").write_text("eps_high = 0.3\n")
    (folder / "r.toml").symlink_to("r.jsonl")
    done = kit.run("objective", lines, "--recipe", "r.toml", option, "r.jsonl")
    assert (done.code, done.out) == (2, b"")
    assert "r.jsonl: it is an input, the recipe" in done.err
    assert (folder / "r.jsonl").read_text() == "eps_high = 0.3\n"


def test_keys_of_every_type_are_named(folder: Path) -> None:
    """Nanoseconds have no Python value."""
    keys = pa.array([1700000000123456789 + number for number in range(4)], pa.timestamp("ns"))
    kit.write("r.parquet", pa.table({"k": keys, "prompt_id": [0] * 4, "reward": [0.0, 1.0] * 2}))
    kit.write("j.parquet", pa.table({"k": keys.slice(0, 3), "x": [1] * 3}))
    done = kit.run("advantages", "r.parquet", "--join", "j.parquet", "--on", "k", "--problems", "p.jsonl")
    assert done.code == 1
    assert "row 3 (k 2023-11-14 22:13:20.123456792)" in done.err
    (problem,) = map(json.loads, (folder / "p.jsonl").read_text().splitlines())
    assert (problem["column"], problem["row"], problem["value"]) == ("k", 3, "k 2023-11-14 22:13:20.123456792")


def test_answers_without_a_sampler_under_its_correction_are_counted(lines: str) -> None:
    assert "1 answers have no sampler log-probs" in kit.run("objective", lines, "--sampler-cap", "2").err
    assert "no sampler log-probs" not in kit.run("objective", lines).err


def test_several_caps_are_told_apart(lines: str) -> None:
    rows = kit.run("compare", lines, "--recipe", "olmorl", "--sampler-cap", "1.1,2").rows
    assert [row["recipe"] for row in rows] == ["olmorl cap 1.1", "olmorl cap 2"]


def test_a_dash_is_standard_output(lines: str, folder: Path) -> None:
    assert kit.run("objective", lines, "-o", "-").out == kit.run("objective", lines).out
    assert "--problems takes a file" in kit.run("objective", lines, "--problems", "-").err
    assert not (folder / "-").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("--per-token", "--per-answer"),
        ("--per-token", "--diagnostics"),
        ("--per-answer", "--diagnostics"),
        ("--per-token", "--by"),
    ],
)
def test_forms_of_the_objective_exclude_each_other(lines: str, one: str, other: str) -> None:
    done = kit.run("objective", lines, other, *(["step"] if other == "--by" else []), one)
    assert (done.code, done.out) == (2, b"")
    assert f"{one} and {other} exclude each other" in done.err


def test_answers_of_prompt_rows_can_be_scored_further(folder: Path) -> None:
    """The lists of the rows are opened, whether or not the advantages need them."""
    lists = pa.array([[[-0.1, -0.2], [-0.3]], [[-0.5], [-0.4, -0.6]]], pa.list_(pa.list_(pa.float64())))
    old = pa.array([[[-0.3, -0.2], [-0.1]], [[-0.5], [-0.9, -0.6]]], pa.list_(pa.list_(pa.float64())))
    rewards = pa.array([[1.0, 0.0], [0.0, 1.0]], pa.list_(pa.float64()))
    kit.write(
        "r.parquet", pa.table({"prompt_id": ["a", "b"], "rewards": rewards, "new_logprobs": lists, "old_logprobs": old})
    )
    kit.run("advantages", "r.parquet", "-o", "a.parquet")
    first, then = kit.run("objective", "r.parquet").row, kit.run("objective", "a.parquet").row
    assert then["objective"] == first["objective"]
    assert then["tokens"] == first["tokens"] == 6


def test_faults_of_joined_columns_name_their_file(folder: Path) -> None:
    """The rows are the input's, the column is not."""
    kit.write("r.parquet", pa.table({"k": [1, 2], "prompt_id": [0, 0], "reward": [0.0, 1.0]}))
    lists = pa.array([[-0.1], [-0.2]], pa.list_(pa.float64()))
    kit.write("j.parquet", pa.table({"k": [1, 2], "logp_new": lists, "logp_old": pa.array([[-0.1], None], lists.type)}))
    done = kit.run("objective", "r.parquet", "--join", "j.parquet", "--on", "k")
    assert done.code == 1
    assert "r.parquet: logp_old (of j.parquet), the logp_old, is a null list, row 1" in done.err
