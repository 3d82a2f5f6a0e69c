"""`advantages --top N`: the answers of greatest |advantage| x tokens, in every format; and what tables draw at any width."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli import kit

TEXTS = ["a right one", "b", "wrong " * 400, "d", "e\x1b[2J\nf", "g", "h", None]
ORDER = [4, 0, 2, 5, 6, 7, 1, 3]
"""By |advantage| x real tokens: 1 x 2, 0.5 x 2 (row 0), 0.5 x 2 (row 2), 1 x 1, 0.125, 0.125, 0, 0."""
WEIGHTED = dict(zip(range(8), [2, 1, 2, 2, 2, 1, 1, 1], strict=True))
"""Real tokens of each answer."""
BLOCKS = set("▁▂▃▄▅▆▇█▏▎▍▌▋▊▉")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    kit.write("r.parquet", completion=TEXTS)
    yield tmp_path


def test_rows_are_those_of_greatest_weight_in_every_format() -> None:
    commands = [("advantages", "r.parquet", "--top", "4", "-f", format) for format in kit.FORMATS]
    done = dict(zip(kit.FORMATS, kit.run_in_turn(commands), strict=True))
    keys = ["step", "group", "row", "reward", "advantage", "kept", "tokens", "text"]
    for format in kit.FORMATS:
        assert kit.keys_of(done[format], format) == keys
        rows = kit.values_of(done[format], format)
        assert [row["row"] for row in rows] == ORDER[:4]
        assert [row["tokens"] for row in rows] == [WEIGHTED[row] for row in ORDER[:4]]
        assert [row["advantage"] for row in rows] == [kit.ADVANTAGES[row] for row in ORDER[:4]]
        assert [row["text"] for row in rows] == [TEXTS[row] for row in ORDER[:4]]


def test_a_table_has_as_many_in_each_direction() -> None:
    done = kit.terminal("advantages", "r.parquet", "--top", "2", width=200, apart=True)
    toward, away = kit.without_styles(done.text).split("pushed toward")[1].split("pushed away from")
    rows = [[int(row) for row in re.findall(r"^\d +[a-c] +(\d)", part, re.MULTILINE)] for part in (toward, away)]
    assert rows == [[4, 0], [2, 5]], "the rows of greatest weight with an advantage above 0, and below"
    kit.write("one.parquet", reward=[1.0] * 8)
    assert "pushed toward: none" in kit.terminal("advantages", "one.parquet", "--top", "2", apart=True).text


def test_all_are_given_where_there_are_fewer_and_a_null_text_is_null() -> None:
    rows = kit.run("advantages", "r.parquet", "--top", "100").rows
    assert [row["row"] for row in rows] == ORDER
    assert rows[5]["text"] is None


def test_tokens_come_from_the_mask_the_log_probs_or_are_one() -> None:
    kit.write("logps.parquet", mask=None, logp_old=None)
    kit.write(
        "ids.parquet", mask=None, logp_old=None, logp_new=None, completion_ids=[[7] * n for n in (1, 1, 9, 1, 1, 1, 1, 1)]
    )
    kit.write("none.parquet", mask=None, logp_old=None, logp_new=None)
    kit.write(
        "labels.parquet",
        mask=None,
        logp_old=None,
        logp_new=None,
        labels=[[-100, 5], [5], [0, 0, 0], [5], [5], [5], [5], [5]],
    )
    names = ("logps", "ids", "none", "labels")
    done = kit.run_in_turn([("advantages", f"{name}.parquet", "--top", "8") for name in names])
    tokens = {name: {row["row"]: row["tokens"] for row in each.rows} for name, each in zip(names, done, strict=True)}
    assert [tokens["logps"][row] for row in range(8)] == [2, 1, 3, 2, 2, 1, 1, 1]
    assert [tokens["ids"][row] for row in range(8)] == [1, 1, 9, 1, 1, 1, 1, 1]
    assert [tokens["none"][row] for row in range(8)] == [1] * 8
    assert [tokens["labels"][row] for row in range(3)] == [1, 1, 3], "0 is a token's id, -100 is masked"
    assert done[2].rows[0]["text"] is None


def test_unscorable_answers_come_last() -> None:
    kit.write("r.parquet", reward=[None, *kit.GROUPED["reward"][1:]])
    rows = kit.run("advantages", "r.parquet", "--top", "8", "--invalid", "skip").rows
    assert rows[-1]["row"] == 0
    assert rows[-1]["advantage"] is None


def test_files_of_prompts_and_chats_have_texts_too() -> None:
    chat = [[{"role": "assistant", "content": "x"}]] * 8
    kit.write("c.parquet", completion=chat)
    kit.write(
        "p.parquet",
        pa.table(
            {"prompt_id": ["a", "b"], "rewards": [[1.0, 0.0], [0.0, 3.0, 0.0]], "completions": [["x", "y"], ["z", "w", "v"]]}
        ),
    )
    chats, prompts = kit.run_in_turn([("advantages", name, "--top", "1") for name in ("c.parquet", "p.parquet")])
    assert json.loads(chats.row["text"]) == [{"role": "assistant", "content": "x"}]
    assert (prompts.row["row"], prompts.row["text"]) == (3, "w")


def test_a_number_that_is_none_is_refused() -> None:
    for number in ("0", "-1", "x", "1.5"):
        done = kit.run("advantages", "r.parquet", f"--top={number}")
        assert (done.code, done.out) == (2, b"")
        assert "--top takes a whole number" in done.err


def test_a_group_column_of_a_results_name_is_refused() -> None:
    kit.write("t.parquet", text=list("abababab"))
    done = kit.run("advantages", "t.parquet", "--group", "text", "--group", "prompt_id", "--top", "2")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "called like a column of the result: text" in done.err


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_screens_are_whole_at_any_width(width: int) -> None:
    kit.write("by.parquet", step=list(range(8)))
    calls = [
        ("advantages", "r.parquet", "--top", "6"),
        ("objective", "by.parquet", "--by", "step"),
        ("groups", "r.parquet"),
    ]
    shown = []
    for call in calls:
        done = kit.terminal(*call, width=width, apart=True)
        assert done.code == 0
        text = kit.without_styles(done.text)
        assert max(map(len, text.splitlines())) <= width, call
        assert "\x1b" not in text
        shown.append(text)
    top, by, groups = shown
    assert "pushed toward" in top
    assert "pushed away from" in top
    assert "wrong wrong" in top
    assert "..." in top, "the start of a text says that it is one"
    assert "e\\x1b[2J f" in top
    assert BLOCKS & set(by), "the course of each figure"
    assert ("rewards" in groups) == (width >= 80)
    assert BLOCKS & set(groups) or width < 80
    assert len(re.findall(r"^\d ", by, re.MULTILINE)) == 8, "a table, a line a step"
    assert "step: 0" not in by + top
    assert ("left out for want of room" in by) == (width < 100)


def test_a_series_is_drawn_in_ascii_too() -> None:
    kit.write("by.parquet", step=list(range(8)))
    env = {"PYTHONIOENCODING": "ascii"}
    for call in (
        ("objective", "by.parquet", "--by", "step"),
        ("groups", "r.parquet"),
        ("advantages", "r.parquet", "--top", "3"),
    ):
        done = kit.terminal(*call, width=120, apart=True, env=env)
        assert (done.code, done.text.isascii()) == (0, True)
    assert "kept tokens" in kit.terminal("objective", "by.parquet", "--by", "step", apart=True, env=env).text
