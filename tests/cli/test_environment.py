"""Machine formats, screens and errors in every environment: nothing in the data or around the program bends them."""

import io
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit
from tests.cli.test_screen import HOSTILE, NOT_TEXT, text_of
from tests.cli.test_start import loaded

LONG = "a long id with spaces and [bold]brackets[/bold] " * 5
MACHINE = [
    *(("advantages", "r.parquet"), ("groups", "r.parquet"), ("groups", "r.parquet", "--group", "mask")),
    *(("objective", "r.parquet", "--by", "step"), ("compare", "r.parquet"), ("inspect", "r.parquet")),
    ("objective", "r.parquet", "--per-answer"),
]
ENVIRONMENTS = {
    "no colour": {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "40", "LINES": "3"},
    "colour forced": {"FORCE_COLOR": "1", "COLORTERM": "truecolor", "COLUMNS": "20", "TTY_COMPATIBLE": "1"},
    "both, and a width that is none": {"FORCE_COLOR": "3", "NO_COLOR": "", "TERM": "", "COLUMNS": "wide", "CLICOLOR": "1"},
    "ascii": {"PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1", "TERM": "dumb"},
    "a legacy encoding": {"PYTHONIOENCODING": "cp1252", "TTY_INTERACTIVE": "1", "JUPYTER_COLUMNS": "30"},
    "the C locale": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONUNBUFFERED": "1"},
}


@pytest.fixture
def awkward() -> str:
    """Rollouts whose ids are hostile, long and not ASCII."""
    ids = [LONG, *[text for text in HOSTILE if "\0" not in text][:5], "é😀", LONG]
    return kit.write("r.parquet", prompt_id=ids, step=[1] * 8)


def test_machine_formats_are_the_same_bytes_in_every_environment(awkward: str) -> None:
    commands = [(*command, "-f", format) for command in MACHINE for format in ("jsonl", "csv", "arrow")]
    commands.append(("groups", "r.parquet"))  # a pipe gets JSON Lines, whatever is forced
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        plain, *others = pool.map(partial(kit.run_in_turn, commands), [{}, *ENVIRONMENTS.values()])
    for (*_, format), done in zip(commands, plain, strict=True):
        assert done.code == 0
        if format not in ("csv", "arrow"):
            assert b"\x1b" not in done.out
            assert all(isinstance(json.loads(line), dict) for line in done.out.split(b"\n")[:-1]), "a record a line"
    assert LONG in {row["group"] for row in plain[-1].rows}
    for env, each in zip(ENVIRONMENTS, others, strict=True):
        for command, expected, done in zip(commands, plain, each, strict=True):
            assert (done.code, done.out) == (0, expected.out), (env, command)
            assert NOT_TEXT.search(done.err) is None


def test_machine_formats_do_not_even_load_what_draws_screens(awkward: str) -> None:
    codes, modules = loaded([(*command, "-f", format) for command in MACHINE for format in kit.FORMATS])
    assert set(codes.values()) == {0}
    drawing = ("rich.", "olmorl_cli.display")
    assert [module for module in modules if module == "rich" or module.startswith(drawing)] == []


@pytest.mark.parametrize("env", [{"FORCE_COLOR": "0", "TERM": "dumb", "COLUMNS": "200"}, *ENVIRONMENTS.values()], ids=str)
def test_a_table_in_a_pipe_has_full_values(env: dict[str, str], awkward: str) -> None:
    done = kit.run("groups", awkward, "-f", "table", env=env)
    assert done.code == 0
    shown = kit.without_styles(done.out.decode(env.get("PYTHONIOENCODING", "utf-8")))
    assert LONG in shown
    assert "…" not in shown


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "shift_jis"])
def test_screens_and_errors_fit_any_encoding(encoding: str, awkward: str) -> None:
    env = {"PYTHONIOENCODING": encoding}
    table, error = kit.run("groups", awkward, "-f", "table", env=env), kit.shell("olmorl groups é😀.parquet 2>&1", env=env)
    shown = table.out.decode(encoding)
    assert (table.code, table.err) == (0, "")
    assert ("é" if "é".encode(encoding, "replace") != b"?" else "\\xe9") in shown
    assert "\\U0001f600" in shown
    assert error.out.decode(encoding).startswith("olmorl: error: ")
    assert "no such file" in error.out.decode(encoding)


TABLES = [
    ("advantages", "--group", "prompt_id", "--group", "COLUMN"),
    ("groups", "--group", "prompt_id", "--group", "COLUMN"),
    ("objective", "--recipe", "RECIPE", "--group", "COLUMN"),
    ("objective", "--by", "COLUMN"),
    ("objective", "--per-answer", "--group", "prompt_id", "--group", "COLUMN"),
    ("compare", "--recipe", "RECIPE", "--recipe", "olmorl"),
    ("inspect", "--group", "COLUMN"),
]


NAME, SHOWN = "[b]\x1b[2J\u202e:+1:\n", "[b]\\x1b[2J\\u202e:+1:\\n"


@pytest.mark.parametrize(("width", "env"), [(40, {}), (200, {}), (200, {"COLUMNS": "40", "NO_COLOR": "1", "TERM": "dumb"})])
def test_every_screen_shows_ids_columns_paths_and_recipes_as_text(width: int, env: dict[str, str]) -> None:
    """Markup, emoji codes, escape sequences, bidi and control characters; no line is longer than the screen."""
    path = kit.write(f"{NAME}.parquet", prompt_id=[*HOSTILE][:8], **{NAME: [*HOSTILE][-8:]}, step=None)
    Path(f"{NAME}.toml").write_text("eps_high = 0.3\n")
    words = {"COLUMN": NAME, "RECIPE": f"{NAME}.toml"}
    calls = [(command, path, *(words.get(word, word) for word in options)) for command, *options in TABLES]
    for call, done in zip(calls, kit.at_once(partial(kit.terminal, width=width, env=env, apart=True), calls), strict=True):
        shown = text_of(done)
        assert max(map(len, shown.splitlines())) <= int(env.get("COLUMNS", width)), call
        assert SHOWN in re.sub(r"\n *", "", shown), call
        if call[0] == "groups":
            assert [text for text in [*HOSTILE.values()][:8] if text not in shown] == []


def test_a_traceback_is_text_too(rollouts: str) -> None:
    hostile = "x\x1b[2J\u202e[red]"
    done = kit.run("groups", rollouts, "--group", hostile, "--debug")
    assert done.err.startswith("Traceback (most recent call last):\n")
    assert not NOT_TEXT.search(done.err)
    assert "x\\x1b[2J\\u202e[red]" in done.err


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=str)
def test_credentials_are_never_shown(debug: tuple[str, ...]) -> None:
    done = kit.run("groups", "gopher://key:s3cret@bucket/r.parquet", *debug)
    assert (done.code, done.out) == (2, b"")
    assert "s3cret" not in done.err
    assert "gopher://bucket/r.parquet" in done.err


def test_help_is_plain_text_whatever_is_forced() -> None:
    plain = kit.run("objective", "--help", env={"COLUMNS": "80"})
    assert (plain.code, plain.err) == (0, "")
    for env in ({"FORCE_COLOR": "1"}, {"TERM": "dumb"}, {"PYTHONIOENCODING": "ascii"}):
        done = kit.run("objective", "--help", env={"COLUMNS": "80", **env})
        assert (done.code, done.out) == (0, plain.out)


def flipped(path: str, value: float) -> str:
    """The Parquet file with one bit of a stored value turned over."""
    data = bytearray(Path(path).read_bytes())
    data[data.index(pa.array([value]).buffers()[1].to_pybytes()[:8])] ^= 4
    Path(path).write_bytes(data)
    return path


def unpacked(path: str, *, checksums: bool) -> str:
    table = kit.rollouts(reward=[0.40625, *[1.0] * 7], note=[-7.28125] * 8)
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=checksums, **options)
    return path


def test_a_page_that_its_checksum_denies_gives_2_and_nothing_is_written() -> None:
    """Among good files too; a column that is only passed on counts as well."""
    good = kit.write("good.parquet")
    reward = flipped(unpacked("reward.parquet", checksums=True), 0.40625)
    note = flipped(unpacked("note.parquet", checksums=True), -7.28125)
    commands = [
        *(
            (command, reward, *more)
            for command in ("advantages", "groups", "objective", "compare", "inspect")
            for more in ((),)
        ),
        *(("advantages", good, reward, "-f", format, "-o", f"out.{format}") for format in kit.FORMATS),
        *(("advantages", note, "-o", f"out.{format}") for format in ("parquet", "arrow")),
        ("advantages", note, "-f", "arrow"),
    ]
    before = sorted(os.listdir())
    for command, done in zip(commands, kit.run_in_turn(commands), strict=True):
        bad = note if note in command else reward
        assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1), command
        assert re.match(rf"olmorl: error: {bad}: cannot be read: .*CRC.*\. Check that it is whole", done.err), command
    assert sorted(os.listdir()) == before
    assert kit.run("groups", note).code == 0, "the damaged column is not read"


def test_without_a_checksum_a_turned_bit_cannot_be_seen() -> None:
    """What the format itself cannot tell: the reason to write files with checksums."""
    done = kit.run("advantages", flipped(unpacked("r.parquet", checksums=False), 0.40625))
    assert done.rows[0]["reward"] != 0.40625


def test_a_stream_of_arrow_is_read_from_standard_input(rollouts: str) -> None:
    table, sink = pq.read_table(rollouts), io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    assert kit.run("groups", stdin=sink.getvalue()).out == kit.run("groups", rollouts).out


def test_which_files_of_a_folder_were_read_is_said(folder: Path) -> None:
    """Data files by their suffix: names with _ and in folders below, a link; no mark of success, no note, no hidden one."""
    for name in ("in/_shard0.parquet", "in/below/part-1.parquet", "in/.hidden.parquet", "elsewhere.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        kit.write(name)
    (folder / "in" / "link.parquet").symlink_to("../elsewhere.parquet")
    for name in ("_SUCCESS", "README.md", "notes.txt"):
        (folder / "in" / name).write_text("not data")
    row = kit.run("inspect", "in").row
    assert row["files"] == ["in/_shard0.parquet", "in/below/part-1.parquet", "in/link.parquet"]
    assert row["answers"] == 24
    (folder / "none").mkdir()
    (folder / "none" / "README.md").write_text("not data")
    done = kit.run("inspect", "none")
    assert (done.code, done.out) == (2, b"")
    assert done.err.startswith("olmorl: error: none: no data file in this folder")
