"""The checks as `inspect` shows them: their place in the record, from files of several layouts, and `--fail-on`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from olmorl_cli.checks.finding import CODES
from tests.cli import kit
from tests.readme import ROOT

REAL = ROOT.parent / "shared" / "data" / "rollouts" / "trl_bf16_answers.parquet"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def checks(done: kit.Done) -> dict[str, dict[str, Any]]:
    """The findings of an inspect by their codes."""
    record = json.loads(done.text)
    assert [finding["code"] for finding in record["checks"]] == list(CODES)
    return {finding["code"]: finding for finding in record["checks"]}


def inspected(path: str, *options: str) -> dict[str, dict[str, Any]]:
    done = kit.run("inspect", path, *options)
    assert done.code in (0, 1), done.err
    return checks(done)


def test_the_record_has_checks_and_a_waterfall() -> None:
    row = kit.run("inspect", kit.write("r.parquet")).row
    assert list(row)[-3:] == ["problems", "checks", "waterfall"]
    keys = ["code", "state", "severity", "value", "n", "where", "message", "action"]
    assert [list(finding) for finding in row["checks"]] == [keys] * len(CODES)
    sizes = [0.5, 0.0, 0.5, 0.0, 1.0, 1.0, 0.125, 0.125]
    expected = [
        ("all", 13, 0.5 * 2 + 0.5 * 3 + 1 * 2 + 1 * 1 + 0.125 + 0.125),
        ("masked", 1, sizes[2]),
        ("zero_signal", 1 + 2, 0.0),
        ("clipped_low", 1, 0.5),
        ("clipped_high", 1, 0.5),
        ("cut", 0, 0.0),
        ("live", 7, 5.75 - 1.5),
    ]
    assert [tuple(line.values()) for line in row["waterfall"]] == expected


def test_without_log_probs_there_is_no_waterfall_and_token_checks_say_why() -> None:
    kit.write("r.parquet", logp_new=None, logp_old=None)
    row = kit.run("inspect", "r.parquet").row
    assert row["waterfall"] is None
    found = {finding["code"]: finding for finding in row["checks"]}
    assert found["clip"]["message"] == "no column of logp_new and logp_old"
    assert "--logp-new and --logp-old" in found["clip"]["action"]
    assert found["mismatch"]["state"] == "not_available"
    assert found["zero_signal"]["value"] == 1 / 4
    kit.write("s.parquet", logp_new=None, logp_old=None, logp_sampler=kit.TOKENS["logp_old"])
    assert kit.run("inspect", "s.parquet").row["tokens"] == 12
    assert inspected("s.parquet")["mismatch"]["message"] == "no column of logp_old"


def test_a_recipe_decides_what_is_cut() -> None:
    sampler = [[value - 2.0 for value in answer] for answer in kit.TOKENS["logp_old"]]
    kit.write("r.parquet", logp_sampler=sampler)
    for recipe, cut in (("olmorl", 0), ("olmorl-tis", 0), ("trl", 7)):
        lines = {
            line["name"]: line["tokens"] for line in kit.run("inspect", "r.parquet", "--recipe", recipe).row["waterfall"]
        }
        assert lines["cut"] == cut, recipe
        assert lines["all"] == sum(lines.values()) - lines["all"]


def test_what_is_sound_is_checked_beside_errors() -> None:
    rewards = [*kit.GROUPED["reward"][:-2], float("nan"), 0.25]
    done = kit.run("inspect", kit.write("r.parquet", reward=rewards))
    assert done.code == 1
    found = checks(done)
    assert found["zero_signal"]["value"] == 2 / 4
    assert found["zero_signal"]["state"] == "passed"
    done = kit.run("inspect", kit.write("n.parquet", prompt_id=["a", None] * 4))
    assert {finding["state"] for finding in checks(done).values()} == {"not_available"}
    assert "null_id" in checks(done)["trend"]["message"]


def test_no_answers_are_not_judged() -> None:
    found = inspected(kit.write("r.parquet", kit.rollouts().slice(0, 0)))
    assert {finding["state"] for finding in found.values()} == {"not_available"}


def test_columns_beside_the_roles_are_found() -> None:
    kit.write(
        "r.parquet",
        completion=["x", "x", "x", "y", "p", "q", "r", None],
        finish_reason=["stop", "length", "LENGTH ", None, "stop", "stop", "stop", "stop"],
        format_reward=[1.0, 1.0, 0.0, 1.0, 3.0, 1.0, 0.5, 0.25],
        mean_reward=[0.0] * 8,
        advantage=kit.ADVANTAGES,
    )
    found = inspected("r.parquet")
    assert found["duplicates"]["where"] == {"rows": [0, 2]}, "one text, rewards 1 and 0"
    assert found["duplicates"]["value"] == 1 / 7
    assert (found["truncated"]["value"], found["truncated"]["where"]) == (2 / 8, {"rows": [1, 2]})
    assert found["components"]["message"].startswith("share of the reward's variance inside groups: format_reward 100.0 %")
    assert found["components"]["severity"] == "warning"
    assert found["advantage_formula"]["message"].startswith("advantage is reward - group mean, to 0")


def test_chats_and_token_ids_are_texts_too() -> None:
    chats = [[{"role": "assistant", "content": text}] for text in "aabbcdef"]
    assert inspected(kit.write("c.parquet", completion=chats))["duplicates"]["value"] == 0.0
    chats[2] = chats[0]
    assert inspected(kit.write("c.parquet", completion=chats))["duplicates"]["value"] == 1 / 8
    ids = [[1, 2], [1], [1, 2], [1, 2], [7], [7, 7], [], []]
    found = inspected(kit.write("i.parquet", completion_ids=ids))["duplicates"]
    assert (found["value"], found["where"]) == (2 / 8, {"rows": [0, 2, 6, 7]}), "empty answers are the same as well"


def test_text_that_is_none_and_rewards_that_overflow_are_judged_as_far_as_they_can_be() -> None:
    words = pa.Array.from_buffers(
        pa.string(), 4, [None, pa.array([0, 2, 4, 6, 10], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfeab\xff\xfecut ")]
    )
    table = {"prompt_id": ["a", "a", "a", "b"], "finish_reason": words, "completion": words}
    kit.write("w.parquet", pa.table({**table, "reward": [1.0, 0.0, 1.0, 0.0]}))
    huge = {"reward": [1e308, -1e308, 1e308, 0.0], "format_reward": [1e308, -1e308, 1e308, 0.0]}
    kit.write("h.parquet", pa.table({"prompt_id": ["a", "a", "b", "b"], **huge}))
    texts, large = kit.run_in_turn([("inspect", "w.parquet"), ("inspect", "h.parquet")])
    assert (texts.err, large.err) == ("", "")
    assert checks(texts)["duplicates"]["value"] == 1 / 4
    assert checks(texts)["truncated"]["value"] == 0.0
    assert checks(large)["components"]["state"] == "not_available"
    assert checks(large)["components"]["message"] == "its figures overflow"


def test_a_reference_answer_is_no_answer() -> None:
    """`answer` is the right one in many files: the same throughout each group."""
    found = inspected(kit.write("r.parquet", answer=["1", "2", "1", "2", "3", "3", "4", "4"]))
    assert found["duplicates"]["state"] == "not_available"


def test_files_of_prompts_are_opened() -> None:
    table = pa.table(
        {
            "prompt_id": ["a", "b"],
            "rewards": [[1.0, 0.0, 1.0], [0.0, 1.0]],
            "completions": [["x", "x", "y"], ["z", "w"]],
            "answer": ["the right one", "another"],
        }
    )
    found = inspected(kit.write("p.parquet", table))
    assert (found["duplicates"]["value"], found["duplicates"]["where"]) == (1 / 5, {"rows": [0, 1]})
    assert found["group_identity"]["value"] == 1 / 2


def test_figures_do_not_depend_on_the_order_of_rows_and_files() -> None:
    rng = np.random.default_rng(0)
    n, lengths = 480, rng.integers(1, 9, 480)
    logps = [(-rng.exponential(1.0, length)).tolist() for length in lengths]
    table = pa.table(
        {
            "step": np.arange(n) // 40,
            "prompt_id": np.arange(n) // 8,
            "reward": (rng.random(n) < 0.5) / 3.0,
            "logp_old": logps,
            "logp_new": [[min(0.0, v + rng.normal(0, 0.2)) for v in answer] for answer in logps],
            "logp_sampler": [[min(0.0, v + rng.normal(0, 0.2)) for v in answer] for answer in logps],
        }
    )
    kit.write("r.parquet", table)
    shuffled = table.take(pa.array(rng.permutation(n)))
    kit.write("a.parquet", shuffled.slice(0, 123))
    kit.write("b.parquet", shuffled.slice(123))
    one, many = kit.run("inspect", "r.parquet").row, kit.run("inspect", "b.parquet", "a.parquet").row
    assert one["waterfall"] == many["waterfall"]
    drop = ("where",)
    for a, b in zip(one["checks"], many["checks"], strict=True):
        assert {k: v for k, v in a.items() if k not in drop} == {k: v for k, v in b.items() if k not in drop}


def test_findings_alone_do_not_change_the_exit_code(folder: Path) -> None:
    kit.write("r.parquet", reward=[1.0] * 8)
    done = kit.run("inspect", "r.parquet")
    assert checks(done)["no_signal_step"]["state"] == "fired"
    assert (done.code, done.err) == (0, "")


FAILURES = [
    (("no_signal_step",), ["no_signal_step fired: 2 of 2 steps have no group with signal"]),
    (("zero_signal>0.6",), ["zero_signal is 1, above 0.6: 100.0 % of 4 groups"]),
    (("zero_signal > 0.9999", "signal_thin"), ["zero_signal is 1, above 0.9999: "]),
    (("zero_signal>1", "truncated"), []),
    (("zero_signal", "no_signal_step>1"), ["zero_signal fired: ", "no_signal_step is 2, above 1: "]),
    (("zero_signal>-1e3",), ["zero_signal is 1, above -1000: "]),
]


def test_fail_on_is_a_line_each_and_exit_code_1() -> None:
    kit.write("r.parquet", reward=[1.0] * 8)
    commands = [
        ("inspect", "r.parquet", *(word for limit in limits for word in ("--fail-on", limit)), *quiet)
        for limits, _ in FAILURES
        for quiet in ((), ("-q",))
    ]
    ends = iter(kit.run_in_turn(commands))
    for limits, lines in FAILURES:
        done, quiet = next(ends), next(ends)
        assert done.code == (1 if lines else 0)
        assert len(checks(done)) == len(CODES), "the record is there all the same"
        said = [line for line in done.err.splitlines() if line.startswith("olmorl: error: ")]
        notes = [line for line in done.err.splitlines() if line.startswith("olmorl: note: ")]
        assert [line.startswith(f"olmorl: error: r.parquet: {each}") for line, each in zip(said, lines, strict=True)] == [
            True
        ] * len(lines)
        unavailable = [limit for limit in limits if limit in ("truncated", "signal_thin")]
        expected = [f"olmorl: note: --fail-on {limit}: not available, so it does not fail: " for limit in unavailable]
        assert [note[: len(start)] for note, start in zip(notes, expected, strict=True)] == expected
        assert (quiet.code, quiet.err.splitlines()) == (done.code, said)


def test_a_limit_that_is_none_is_refused() -> None:
    limits = ("nope", "", ">1", "zero_signal>", "zero_signal>x", "zero_signal>nan", "clip<1", "clip>1e999")
    for done in kit.run_in_turn([("inspect", "nowhere.parquet", "--fail-on", limit) for limit in limits]):
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
        assert ", ".join(CODES) in done.err


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_the_screen_is_whole_at_any_width(width: int) -> None:
    kit.write("r.parquet", logp_sampler=kit.TOKENS["logp_old"], completion=list("abcdefgh"))
    done = kit.terminal("inspect", "r.parquet", width=width, apart=True)
    shown = kit.without_styles(done.text)
    assert done.code == 0
    assert max(map(len, shown.splitlines())) <= width
    text = " ".join(shown.split())
    assert "13 checks of 8 answers and 12 unmasked tokens: " in text
    ended = r"( [-+\d.e]+)?, (warning|error|note|passed|not available): "
    assert [code for code in CODES if not re.search(rf"^{code}{ended}".replace(" ", r"\s+"), shown, re.MULTILINE)] == []
    assert re.search(r"unmasked +12 .*100\.0 %", shown)
    assert re.search(r"in zero-signal(\s|groups)+3 .*25\.0 %", shown), "of the 12 unmasked tokens"
    assert ("█" in shown) == (width >= 120)
    plain = kit.terminal("inspect", "r.parquet", width=width, apart=True, env={"PYTHONIOENCODING": "ascii"})
    assert plain.text.isascii()
    assert ("##" in plain.text) == (width >= 120)
    assert "\\u" not in plain.text


@pytest.mark.skipif(not REAL.exists(), reason="shared/data is not beside the repository")
def test_a_real_run_is_found_out() -> None:
    found = inspected(str(REAL), "--advantage", "advantage_logged")
    assert found["advantage_formula"]["state"] == "passed"
    message = found["advantage_formula"]["message"]
    assert message.startswith("advantage_logged is (reward - group mean) / (group std + 1e-4), ddof 1, to 1.9e-07")
    assert found["no_signal_step"]["where"] == {"steps": [4, 12]}
    assert found["zero_signal"]["value"] == 6 / 8
    assert "3 groups all at 1, 3 all at 0, 0 all equal between" in found["zero_signal"]["message"]
    assert "75.7 % of the unmasked tokens" in found["zero_signal"]["message"], "190 of 251"
