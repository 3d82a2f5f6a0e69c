"""`--problems FILE.jsonl`: the records of what is wrong, whatever the exit code; and warnings that are no errors."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from olmorl_cli.core.named import NAMED
from olmorl_cli.core.recipes import Recipe
from olmorl_cli.remarks import bounds_notes
from tests.cli import kit

KEYS = ["code", "severity", "count", "file", "row", "token", "column", "value", "message", "action"]
LIST = kit.TOKENS["logp_new"]


def records(path: str = "p.jsonl") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    assert all(list(record) == KEYS for record in found)
    return found


def places(path: str = "p.jsonl") -> list[tuple[Any, ...]]:
    return [tuple(record[key] for key in ("code", "count", "row", "token", "column", "value")) for record in records(path)]


FAULTS: dict[str, tuple[tuple[str, ...], dict[str, Any], list[tuple[Any, ...]]]] = {
    "rewards": (
        ("advantages",),
        {"reward": [1.0, None, math.nan, -math.inf, 1.0, 1.0, 1.0, 1.0]},
        [
            ("null_reward", 1, 1, None, "reward", "null"),
            ("nan_reward", 1, 2, None, "reward", "NaN"),
            ("infinite_reward", 1, 3, None, "reward", "-inf"),
        ],
    ),
    "eight rewards, five named": (
        ("groups",),
        {"reward": pa.nulls(8, pa.float64())},
        [("null_reward", 8, row, None, "reward", "null") for row in range(5)],
    ),
    "log-probs": (
        ("objective",),
        {"logp_new": [*LIST[:5], [1.5], [None], [math.inf]], "logp_old": [[-1.0, math.nan], *kit.TOKENS["logp_old"][1:]]},
        [
            ("nan_logp_old", 1, 0, 1, "logp_old", "NaN"),
            ("positive_logp_new", 1, 5, 0, "logp_new", "1.5"),
            ("null_logp_new", 1, 6, 0, "logp_new", "null"),
            ("infinite_logp_new", 1, 7, 0, "logp_new", "inf"),
        ],
    ),
    "lengths": (
        ("objective",),
        {"logp_old": [[-1.0], *kit.TOKENS["logp_old"][1:]], "mask": [*kit.TOKENS["mask"][:7], None]},
        [
            ("lengths", 1, 0, None, "logp_old", "logp_new 2, logp_old 1"),
            ("lengths", 1, 7, None, "mask", "logp_new 1, mask 0"),
            ("null_mask", 1, 7, None, "mask", "null"),
        ],
    ),
    "a mask of floats with null and NaN": (
        ("compare",),
        {"mask": [[1.0, None], [1.0], [math.nan, 1.0, 0.0], *kit.TOKENS["mask"][3:]]},
        [("null_in_mask", 2, 0, 1, "mask", "null"), ("null_in_mask", 2, 2, 0, "mask", "NaN")],
    ),
    "ids": (
        ("groups",),
        {"prompt_id": ["a", None, *"ababab"], "completion_id": [*"ABCDEF", "E", "E"], "step": [1] * 8},
        [("null_id", 1, 1, None, "prompt_id", "null"), ("duplicate_answer", 1, 6, None, "completion_id", "E")],
    ),
    "a group across steps": (
        ("groups", "-G", "4"),
        {"step": ["s1", "s1", "s1", "s2", *["s3"] * 4]},
        [("group_across_steps", 1, 3, None, "step", "s2")],
    ),
    "a group size": (("groups", "-G", "3"), {}, [("group_size", 1, None, None, None, None)]),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[kit.Done, str]]:
    folder = tmp_path_factory.mktemp("problems")
    commands, targets = [], []
    for number, ((command, *options), columns, _) in enumerate(FAULTS.values()):
        path = kit.write(str(folder / f"bad{number}.parquet"), **columns)
        targets.append(str(folder / f"{number}.jsonl"))
        commands.append((command, path, *options, "--problems", targets[-1]))
    done = kit.run_in_turn(commands)
    return {fault: (each, target) for fault, each, target in zip(FAULTS, done, targets, strict=True)}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_named_place_is_a_record(fault: str, runs: dict[str, tuple[kit.Done, str]]) -> None:
    done, path = runs[fault]
    assert (done.code, done.out) == (1, b"")
    assert sorted(places(path), key=str) == sorted(FAULTS[fault][2], key=str)
    for record in records(path):
        assert record["severity"] == "error"
        assert record["file"].endswith(".parquet")
        assert f"{record['file']}: {record['message']}" in done.err
        assert record["action"] in done.err


def test_column_names_that_stand_twice_are_found_before_anything_is_read() -> None:
    twice = pa.table([pa.array(["a"]), pa.array([1.0]), pa.array([2.0])], names=["prompt_id", "reward", "reward"])
    assert kit.run("groups", kit.write("r.parquet", twice), "--problems", "p.jsonl").code == 1
    assert places() == [("duplicate_column", 1, None, None, "reward", None)]


def test_every_command_writes_them_and_an_empty_file_where_nothing_is_wrong(rollouts: str) -> None:
    commands = ("advantages", "groups", "objective", "compare", "inspect")
    done = kit.run_in_turn([(command, rollouts, "--problems", f"{command}.jsonl") for command in commands])
    assert [each.code for each in done] == [0] * 5
    assert [Path(f"{command}.jsonl").read_bytes() for command in commands] == [b""] * 5


def test_inspect_writes_the_records_that_it_shows() -> None:
    kit.write("r.parquet", reward=[None] * 6 + [1.0, 0.0], group_id=list("aabbccdd"))
    done = kit.run("inspect", "r.parquet", "--problems", "p.jsonl")
    assert done.code == 1
    shown = json.loads(done.text)["problems"]
    assert {(p["code"], p["severity"], p["count"]) for p in shown} == {
        ("null_reward", "error", 6),
        ("other_columns", "note", 1),
    }
    assert [(r["code"], r["row"]) for r in records() if r["severity"] == "error"] == [("null_reward", r) for r in range(5)]
    assert {r["code"] for r in records()} == {p["code"] for p in shown}


def test_what_is_left_out_is_recorded_as_notes_even_if_quiet() -> None:
    kit.write("r.parquet", reward=[math.nan, *[1.0] * 7], logp_new=[*LIST[:7], [math.inf]])
    done = kit.run("objective", "r.parquet", "--invalid", "skip", "-q", "--problems", "p.jsonl")
    assert (done.code, done.err) == (0, "")
    assert [(r["code"], r["severity"], r["row"], r["value"]) for r in records()] == [
        ("nan_reward", "note", 0, "NaN"),
        ("infinite_logp_new", "note", 7, "inf"),
    ]


def test_nothing_is_written_where_nothing_was_read(rollouts: str, folder: Path) -> None:
    (folder / "p.jsonl").write_text("old")
    failing = (("groups", "no.parquet"), ("groups", rollouts, "--group", "no"), ("objective", rollouts, "--eps-low", "9"))
    done = kit.run_in_turn([(*args, "--problems", "p.jsonl") for args in failing])
    assert [each.code for each in done] == [2] * 3
    assert (folder / "p.jsonl").read_text() == "old"
    assert sorted(os.listdir(folder)) == ["p.jsonl", "r.parquet"]


REFUSED: list[tuple[str, ...]] = [
    ("in.jsonl", "--problems", "in.jsonl"),
    ("in.jsonl", "--problems", "sub/../soft.jsonl"),
    ("sub", "--problems", "sub/hard.jsonl"),
    ("bad.jsonl", "--problems", "bad.jsonl"),
    ("in.jsonl", "-o", "p.jsonl", "--problems", "./p.jsonl"),
    ("in.jsonl", "-o", "old.jsonl", "--problems", "link.jsonl"),
    ("in.jsonl", "--problems", "/dev/stdout"),
    ("in.jsonl", "--problems", "p.csv"),
    ("in.jsonl", "--problems", ""),
    ("in.jsonl", "--problems", "no/p.jsonl"),
    ("in.jsonl", "--problems", "sub"),
]


def test_no_input_and_no_result_is_written_over(folder: Path) -> None:
    row = '{"prompt_id": "a", "reward": %s}\n'
    (folder / "sub").mkdir()
    (folder / "in.jsonl").write_text(row % 1 + row % 0)
    (folder / "bad.jsonl").write_text(row % "null" + row % 0)
    (folder / "soft.jsonl").symlink_to("in.jsonl")
    os.link("in.jsonl", "sub/hard.jsonl")
    (folder / "link.jsonl").symlink_to("old.jsonl")
    (folder / "old.jsonl").touch()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = kit.run_in_turn([("groups", *args) for args in REFUSED])
    done.append(kit.shell("olmorl groups in.jsonl --problems old.jsonl > old.jsonl"))
    for args, each in zip([*REFUSED, "redirected"], done, strict=True):
        assert (each.code, each.out, each.err.count("\n")) == (2, b"", 1), args
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_disk_that_is_full_leaves_the_old_file(folder: Path) -> None:
    kit.write("r.parquet", reward=[None] * 8)
    (folder / "p.jsonl").write_text("old")
    done = kit.shell("ulimit -f 0; olmorl groups r.parquet --problems p.jsonl")
    assert (done.code, done.out) == (2, b"")
    assert "p.jsonl: cannot be written: File too large" in done.err
    assert (folder / "p.jsonl").read_text() == "old"
    assert sorted(os.listdir(folder)) == ["p.jsonl", "r.parquet"]


def test_equal_log_probs_are_remarked() -> None:
    """One token differs: where it is masked, it does not count."""
    old = kit.TOKENS["logp_new"]
    other = [[-1.0, -1.25], *old[1:]]
    kit.write("same.parquet", logp_old=old)
    kit.write("masked.parquet", logp_old=other, mask=[[1, 0], *kit.TOKENS["mask"][1:]])
    kit.write("differ.parquet", logp_old=other)
    commands = [
        ("objective",),
        ("compare", "--recipe", "gspo", "--recipe", "grpo"),
        ("objective", "--by", "step"),
        ("inspect",),
    ]
    for path, said in (("same.parquet", True), ("masked.parquet", True), ("differ.parquet", False)):
        done = kit.run_in_turn([(command, path, *more, "--problems", "p.jsonl") for command, *more in commands])
        for each in done[:3]:
            assert each.code == 0
            assert each.err.count("the ratio is 1 everywhere: nothing can be clipped") == said
        shown = [(p["code"], p["severity"], p["count"]) for p in done[3].row["problems"]]
        assert shown == ([("old_equals_new", "warning", 12 if path == "same.parquet" else 11)] if said else [])
        assert [record["code"] for record in records()] == ["old_equals_new"] * said


def test_bounds_written_for_offsets_are_remarked(rollouts: str) -> None:
    low = "eps-low is an offset: 1 - 0.8 = 0.2 is the bound; for a bound of 0.8 give 0.2"
    high = "eps-high is an offset: 1 + 1.2 = 2.2 is the bound; for a bound of 1.2 give 0.2"
    both, swept = kit.run_in_turn(
        [
            ("objective", rollouts, "--eps-low", "0.8", "--eps-high", "1.2"),
            ("compare", rollouts, "--recipe", "olmorl", "--recipe", "grpo", "--eps-high", "0.2,1.272"),
        ]
    )
    assert both.err.splitlines() == [f"olmorl: note: {low}", f"olmorl: note: {high}"]
    assert swept.err.splitlines() == [
        f"olmorl: note: {high.replace('1.2 ', '1.272 ').replace('2.2', '2.272').replace('0.2', '0.272')}"
    ]


def test_bounds_that_are_meant_are_not_remarked() -> None:
    silent = [make() for make in NAMED.values()]
    silent += [Recipe(eps_low=1.0, eps_high=5.0), Recipe(eps_low=None, eps_high=None), Recipe(eps_low=0.4, eps_high=0.9)]
    silent += [Recipe(eps_low=2.0, eps_high=1e6)]
    assert [bounds_notes(recipe) for recipe in silent] == [[]] * len(silent)
