"""--join and --on as users give them: every command's output is that of one file with all columns."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit

IDS = [f"{letter}-{number}" for number, letter in enumerate("hgfedcba")]
COMMANDS = {
    "advantages": ("advantages",),
    "groups": ("groups",),
    "objective": ("objective",),
    "by step": ("objective", "--by", "step"),
    "per answer": ("objective", "--per-answer"),
    "compare": ("compare", "--recipe", "olmorl", "--recipe", "grpo"),
}
JOIN = ("--join", "logps.parquet", "--on", "answer_id")


def tables() -> tuple[pa.Table, pa.Table, pa.Table]:
    """All columns, those of the rewards, and those of the tokens, rows in another order."""
    whole = kit.rollouts(answer_id=IDS)
    tokens = whole.select(["answer_id", *kit.TOKENS]).take([5, 2, 7, 0, 1, 6, 3, 4])
    return whole, whole.select([*kit.GROUPED, "answer_id"]), tokens


@pytest.fixture(autouse=True)
def files(folder: object) -> None:
    """whole.parquet, rewards.parquet, logps.parquet."""
    for name, table in zip(("whole", "rewards", "logps"), tables(), strict=True):
        kit.write(f"{name}.parquet", table)


def test_every_command_prints_what_one_file_gives() -> None:
    lines = [
        command for each in COMMANDS.values() for command in ((*each, "whole.parquet"), (*each, "rewards.parquet", *JOIN))
    ]
    lines += [("objective", "logps.parquet", "--join", "rewards.parquet", "--on", "answer_id")]
    *pairs, turned = kit.run_in_turn(lines)
    for whole, joined in zip(pairs[::2], pairs[1::2], strict=True):
        assert (joined.code, joined.err, joined.out) == (0, whole.err, whole.out)
        assert whole.rows
    assert turned.row | {"columns": None} == pairs[4].row | {"columns": None}


def test_standard_input_on_either_side() -> None:
    whole = kit.run("objective", "whole.parquet")
    for name, args in (
        ("rewards", JOIN),
        ("rewards", ("-", *JOIN)),
        ("logps", ("rewards.parquet", "--join", "-", *JOIN[2:])),
    ):
        with open(f"{name}.parquet", "rb") as file:
            done = kit.run("objective", *args, stdin=file.read())
        assert (done.code, done.out) == (0, whole.out)
    piped = kit.shell("olmorl advantages rewards.parquet -f arrow | olmorl objective --join logps.parquet --on answer_id")
    assert (piped.code, piped.row["objective"]) == (0, whole.row["objective"])


def test_parquet_output_carries_the_columns_of_both() -> None:
    whole, rewards, _ = tables()
    assert kit.run("advantages", "rewards.parquet", *JOIN, "-o", "out.parquet").code == 0
    written = pq.read_table("out.parquet")
    assert written.column_names == [*rewards.column_names, *kit.TOKENS, "advantage", "kept"]
    assert written.select(whole.column_names).to_pylist() == whole.to_pylist()
    assert written["advantage"].to_pylist() == kit.ADVANTAGES
    assert kit.run("objective", "out.parquet").row["objective"] == kit.run("objective", "whole.parquet").row["objective"]


def test_inspect_names_both_files_and_what_is_not_used() -> None:
    *_, tokens = tables()
    kit.write("logps.parquet", pa.concat_tables([tokens, tokens.slice(0, 1).set_column(0, "answer_id", [["z"]])]))
    calls = [("inspect",), ("objective",), ("objective", "-q")]
    done, noted, quiet = kit.run_in_turn([(*call, "rewards.parquet", *JOIN) for call in calls])
    assert done.row["files"] == ["rewards.parquet", "logps.parquet"]
    assert done.row["tokens"] == 12
    (problem,) = done.row["problems"]
    assert (problem["code"], problem["severity"], problem["count"]) == ("joined_unused", "note", 1)
    assert noted.err == "olmorl: note: logps.parquet: 1 of 9 rows belong to no row of the input. They are ignored\n"
    assert quiet.err == ""


REFUSED = [
    (("--join", "logps.parquet"), "--join needs a key: add --on COL"),
    (("--on", "answer_id"), "add --join FILE"),
    ((*JOIN, "--join", "whole.parquet"), "--join is given twice. Give it once"),
    ((*JOIN, "--on", ""), "--on takes the name of a column, got ''"),
    (("--join", "", "--on", "answer_id"), "'' is no name of a file"),
    (("--join", "nothing.parquet", "--on", "answer_id"), "nothing.parquet: no such file or folder"),
    (("--join", "logps.parquet", "--on", "answer"), "no column answer. The columns are"),
    (("--join", "-", "--on", "answer_id", "-"), "standard input can be read once"),
    ((*JOIN, "--logp-new", "join.logp_new"), "no column join.logp_new"),
    ((*JOIN, "-o", "logps.parquet", "-f", "jsonl"), "it is an input (logps.parquet)"),
]


def test_what_cannot_be_meant_is_refused_in_a_line() -> None:
    calls = [("objective", "rewards.parquet", *options) for options, _ in REFUSED]
    for done, (_, said) in zip(kit.run_in_turn(calls), REFUSED, strict=True):
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
        assert done.err.startswith("olmorl: error: ")
        assert said in done.err


def test_answers_without_a_partner_are_bad_data() -> None:
    *_, tokens = tables()
    kit.write("logps.parquet", tokens.slice(0, 2))
    listed = "; ".join(f"row {row} (answer_id {IDS[row]})" for row in (0, 1, 3, 4, 6))
    for done in kit.run_in_turn([(command, "rewards.parquet", *JOIN) for command in ("advantages", "objective", "inspect")]):
        assert (done.code, done.out) == (1, b"")
        assert done.err == (
            f"olmorl: error: rewards.parquet: logps.parquet has no row with this key, {listed} (6 in all). Write its row"
            " into logps.parquet, or leave it out of the input\n"
        )
