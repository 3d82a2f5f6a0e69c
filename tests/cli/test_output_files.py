"""Files that are written: their kind, whole or not there, never over an input, nothing left beside."""

import json
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit

MAGIC = {
    "jsonl": b'{"step": 1, ',
    "csv": b"step,group,size",
    "parquet": b"PAR1",
    "arrow": b"ARROW1",
    "table": b"8 answers in 4",
}
"""How an output file of `groups` begins; Arrow's is the file format, not the stream."""


NAMES = [
    (("-o", "o.jsonl"), "jsonl"),
    (("-o", "o.ndjson"), "jsonl"),
    (("-o", "o.csv"), "csv"),
    (("-o", "O.CSV"), "csv"),
    (("-o", "a.b.parquet"), "parquet"),
    (("-o", "o.arrow"), "arrow"),
    (("-o", "o.feather"), "arrow"),
    (("-o", "o.parquet", "-f", "csv"), "csv"),
    (("-o", "p.csv", "-f", "parquet"), "parquet"),
    (("-o", "q.csv", "-f", "table"), "table"),
    (("-o", "o", "-f", "arrow"), "arrow"),
    (("-o", "-o", "-f", "jsonl"), "jsonl"),
    (("-o", "ö[x] é.csv"), "csv"),
    (("--output", "s.csv"), "csv"),
]


def test_the_suffix_tells_the_kind_and_format_wins(rollouts: str, folder: Path) -> None:
    done = kit.run_in_turn([("groups", rollouts, *options) for options, _ in NAMES])
    assert [(each.code, each.out, each.err) for each in done] == [(0, b"", "")] * len(NAMES)
    for (_, name, *_), format in NAMES:
        assert (folder / name).read_bytes().startswith(MAGIC[format]), name
    assert len(os.listdir(folder)) == len(NAMES) + 1


def test_a_file_holds_what_standard_output_would(rollouts: str, folder: Path) -> None:
    commands = [("advantages",), ("groups",), ("objective", "--by", "step"), ("compare",)]
    to_files = [(command, rollouts, *more, "-o", f"{command}.{f}") for command, *more in commands for f in kit.FORMATS]
    assert [(done.code, done.out, done.err) for done in kit.run_in_turn(to_files)] == [(0, b"", "")] * len(to_files)
    shown = kit.run_in_turn([(command, rollouts, *more, "-f", f) for command, *more in commands for f in kit.FORMATS])
    for (command, *_, name), done in zip(to_files, shown, strict=True):
        if name.endswith(".arrow"):
            with pa.memory_map(name) as file:
                assert pa.ipc.open_file(file).read_all().equals(kit.table_of(done.out, "arrow")), command
        elif name.endswith(".parquet"):
            assert pq.read_table(name).equals(kit.table_of(done.out, "parquet"), check_metadata=True), command
        else:
            assert Path(name).read_bytes() == done.out, command


def test_an_old_file_is_replaced_in_one_step(rollouts: str, folder: Path) -> None:
    """Whoever has the old file open keeps reading it whole: it is another file."""
    (folder / "o.csv").write_text("old")
    with open("o.csv") as old:
        assert kit.run("groups", rollouts, "-o", "o.csv").code == 0
        assert old.read() == "old"
    assert (folder / "o.csv").read_bytes().startswith(MAGIC["csv"])
    assert sorted(os.listdir(folder)) == ["o.csv", "r.parquet"]


def test_a_link_stays_a_link_and_its_file_is_replaced(rollouts: str, folder: Path) -> None:
    (folder / "far").mkdir()
    (folder / "far" / "real.csv").write_text("old")
    (folder / "o.csv").symlink_to("far/real.csv")
    assert kit.run("groups", rollouts, "-o", "o.csv").code == 0
    assert (folder / "o.csv").is_symlink()
    assert (folder / "far" / "real.csv").read_bytes().startswith(MAGIC["csv"])
    assert os.listdir(folder / "far") == ["real.csv"]


@pytest.mark.parametrize(("umask", "mode"), [("022", 0o644), ("027", 0o640), ("077", 0o600)])
def test_modes_are_those_of_the_umask(umask: str, mode: int, rollouts: str) -> None:
    done = kit.shell(f"umask {umask}; olmorl groups {rollouts} -o o.csv")
    assert done.code == 0
    assert stat.S_IMODE(os.stat("o.csv").st_mode) == mode


def no_output_but_the_old(folder: Path, *others: str) -> bool:
    return (folder / "o.jsonl").read_text() == "old" and sorted(os.listdir(folder)) == sorted(["o.jsonl", *others])


@pytest.mark.parametrize("format", kit.FORMATS)
def test_bad_data_in_the_last_row_leave_the_old_file(format: str, folder: Path) -> None:
    kit.write("r.parquet", reward=[1.0] * 7 + [None], logp_new=[*kit.TOKENS["logp_new"][:7], [0.5]])
    (folder / "o.jsonl").write_text("old")
    for done in kit.run_in_turn(
        [(command, "r.parquet", "-f", format, "-o", "o.jsonl") for command in ("groups", "compare")]
    ):
        assert done.code == 1
    assert no_output_but_the_old(folder, "r.parquet")
    kit.run("groups", "r.parquet", "-f", format, "-o", "new")
    assert no_output_but_the_old(folder, "r.parquet")


def test_a_file_that_breaks_off_while_it_is_passed_through_leaves_the_old_file(folder: Path) -> None:
    """The fault lies in a column that is only read once writing has begun."""
    table = kit.rollouts(text=["some text"] * 8)
    with pa.OSFile("r.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as ipc:
        ipc.write_table(table, max_chunksize=4)
    whole = (folder / "r.arrow").read_bytes()
    last = whole.rindex(b"some text") - 4 * len(b"some text") * 2
    offsets = whole.rindex(pa.array([0, 9, 18, 27, 36], pa.int32()).buffers()[1].to_pybytes(), 0, last + 200)
    (folder / "r.arrow").write_bytes(whole[: offsets + 16] + (2**30).to_bytes(4, "little") + whole[offsets + 20 :])
    (folder / "o.jsonl").write_text("old")
    done = kit.run("advantages", "r.arrow", "-f", "parquet", "-o", "o.jsonl")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("olmorl: error: r.arrow: ")
    assert no_output_but_the_old(folder, "r.arrow")
    piped = kit.run("advantages", "r.arrow", "-f", "parquet")
    assert (piped.code, piped.out) == (2, b"")


@pytest.mark.parametrize("format", [*kit.FORMATS, "table"])
def test_a_disk_that_is_full_leaves_the_old_file(format: str, folder: Path) -> None:
    kit.many("r.parquet", 2_000)
    (folder / "o.jsonl").write_text("old")
    done = kit.shell(f"ulimit -f 0; olmorl advantages r.parquet -f {format} -o o.jsonl")
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    assert done.err.startswith("olmorl: error: o.jsonl: ")
    assert "File too large" in done.err
    assert no_output_but_the_old(folder, "r.parquet")


def test_a_device_and_a_pipe_are_written_straight(rollouts: str, folder: Path) -> None:
    done = kit.shell(
        f"olmorl groups {rollouts} -o /dev/full -f parquet; echo $?; olmorl groups {rollouts} -o /dev/null -f csv"
    )
    assert (done.code, done.out) == (0, b"2\n")
    assert done.err.startswith("olmorl: error: /dev/full: ")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    piped = kit.shell(f"mkfifo p; cat p > copy & olmorl groups {rollouts} -o p -f csv; wait")
    assert (piped.code, piped.err) == (0, "")
    assert stat.S_ISFIFO(os.stat("p").st_mode)
    assert (folder / "copy").read_bytes().startswith(MAGIC["csv"])
    for line in ("-o >(cat > copy2) -f csv; sleep 0.3; cat copy2", "-o /dev/stdout -f csv", "-o /dev/stdout -f csv | cat"):
        shown = kit.shell(f"olmorl groups {rollouts} {line}")
        assert (shown.code, shown.err) == (0, ""), line
        assert shown.out == (folder / "copy").read_bytes(), line


def test_a_result_on_dev_stdout_lands_where_the_shell_says(rollouts: str, folder: Path) -> None:
    """Also behind what stands there already."""
    done = kit.shell(f"(echo first; olmorl groups {rollouts} -o /dev/stdout -f csv; echo last) > all")
    assert (done.code, done.err) == (0, "")
    lines = (folder / "all").read_text().splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("first", "last", 1 + 5 + 1)


OVER_INPUT = [
    "groups r.parquet -o r.parquet",
    "advantages r.parquet -o ./r.parquet",
    "objective r.parquet -o $PWD/sub/../r.parquet",
    "compare r.parquet -o soft.parquet",
    "groups soft.parquet -o r.parquet",
    "groups r.parquet -o hard.parquet",
    "advantages other.parquet r.parquet -o r.parquet -f csv",
    "groups . -o sub/in.parquet",
    "groups 'r*.parquet' -o r.parquet",
    "groups - < r.parquet -o r.parquet",
    "groups < r.parquet -o r.parquet",
    "groups r.parquet >> r.parquet",
    "groups r.parquet 1<> hard.parquet",
    "advantages r.parquet -f table >> r.parquet",
]


def test_an_input_is_never_written_over(rollouts: str, folder: Path) -> None:
    (folder / "sub").mkdir()
    kit.write("other.parquet")
    kit.write("sub/in.parquet")
    (folder / "soft.parquet").symlink_to(rollouts)
    os.link(rollouts, "hard.parquet")
    before = {path: path.read_bytes() for path in folder.rglob("*.parquet")}
    for line, done in zip(OVER_INPUT, kit.at_once(kit.shell, [(f"olmorl {line}",) for line in OVER_INPUT]), strict=True):
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1), line
        assert "input" in done.err, line
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_json_lines_are_not_written_over_either(folder: Path) -> None:
    """They are read from a temporary copy of another kind."""
    (folder / "r.jsonl").write_text('{"group_id": "a", "reward": 1}\n')
    done = kit.run("groups", "r.jsonl", "-o", "r.jsonl")
    assert (done.code, done.err) == (2, "olmorl: error: r.jsonl: it is an input (r.jsonl). Write to another file\n")
    assert (folder / "r.jsonl").read_text() == '{"group_id": "a", "reward": 1}\n'


def test_the_default_inputs_are_not_written_over_either(folder: Path) -> None:
    whole = (folder / kit.write("rollouts.parquet")).read_bytes()
    for line in (
        "olmorl groups -o rollouts.parquet",
        "OLMORL_ROLLOUTS=$PWD/rollouts.parquet olmorl groups -o rollouts.parquet",
    ):
        assert kit.shell(line).code == 2
    assert (folder / "rollouts.parquet").read_bytes() == whole


@pytest.mark.parametrize("line", ["olmorl advantages f -o f/out.parquet", "olmorl advantages f > f/out.jsonl"])
def test_a_second_run_never_reads_the_first_ones_output(line: str, folder: Path) -> None:
    (folder / "f").mkdir()
    kit.write("f/r.parquet")
    first = kit.shell(f"{line}; olmorl groups f/r.parquet")
    second = kit.shell(line)
    assert len(first.rows) == 4
    assert second.code in (0, 2)
    assert "out." in second.err
    assert "empty" not in second.err, "the shell has just made it so: not what is wrong"
    if second.code == 0:
        (written,) = (folder / "f").glob("out.*")
        rows = pq.read_table(written).num_rows if written.suffix == ".parquet" else len(written.read_text().splitlines())
        assert rows == 8


def test_a_table_in_a_file_is_whole_and_plain(folder: Path) -> None:
    ids = [f"{'long ' * 60}{number}" for number in range(8)]
    kit.write("r.parquet", prompt_id=ids)
    assert kit.run("groups", "r.parquet", "-q", "-o", "o.txt", "-f", "table", env={"COLUMNS": "20"}).code == 0
    text = (folder / "o.txt").read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert [name for name in ids if name not in text] == []


def test_texts_are_utf_8_whatever_the_locale(rollouts: str, folder: Path) -> None:
    kit.write("r.parquet", prompt_id=["é😀"] * 8)
    without = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert kit.run("groups", rollouts, "-o", "o.jsonl", env=without).code == 0
    text = (folder / "o.jsonl").read_bytes()
    assert json.loads(text.decode().splitlines()[0])["group"] == "é😀"
    for env in ({}, without, {"PYTHONIOENCODING": "ascii"}):
        assert kit.run("groups", rollouts, env=env).out == text
