"""What a person sees on a terminal: whole, whatever its width, and never more than text, whatever the data hold."""

import os
import re
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli import kit

HOSTILE = {
    "[bold]x[/bold]": "[bold]x[/bold]",
    "[/p1]": "[/p1]",
    "a[b": "a[b",
    "\\[red]": "\\[red]",
    ":smile:": ":smile:",
    "e\x1b[2Jb": "e\\x1b[2Jb",
    "\x1b]0;title\x07": "\\x1b]0;title\\x07",
    "c\rd": "c\\rd",
    "l\nm": "l\\nm",
    "t\tu": "t\\tu",
    "\u202ediba": "\\u202ediba",
    "\x9b31m": "\\x9b31m",
    "n\x00\u2028\u200b": "n\\x00\\u2028\\u200b",
    "\ue000\U000e0041": "\\ue000\\U000e0041",
}
"""Texts, and how they are shown."""

COMMANDS = [("advantages",), ("groups",), ("objective",), ("objective", "--by", "step"), ("compare",)]
WIDTHS = [40, 60, 80, 100, 120, 200]
NOT_TEXT = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028\u202e]")
BLOCKS = "▁▂▃▄▅▆▇█▏▎▍▌▋▊▉"


def text_of(done: kit.Done) -> str:
    """What a terminal shows, without styles; it must do nothing but show text."""
    assert done.code == 0, done.err
    text = kit.without_styles(done.text)
    assert not NOT_TEXT.search(text)
    return text


def screen(*args: str, width: int = 80, env: dict[str, str] | None = None) -> str:
    """Standard output on a terminal of that width."""
    return text_of(kit.terminal(*args, width=width, env=env, apart=True))


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_and_no_number_is_broken(width: int, rollouts: str) -> None:
    calls = [(name, rollouts, *options) for name, *options in COMMANDS]
    for call, done in zip(calls, kit.at_once(partial(kit.terminal, width=width, apart=True), calls), strict=True):
        shown = text_of(done)
        assert max(map(len, shown.splitlines())) <= width, call
        assert not re.search(r"\w…|…\n|[█▏▎▍▌▋▊▉#.]…", shown), f"{call} is cut without saying so"
        words = {
            "advantages": ["advantage", "dropped", "kept", "reward", "-0.125", "0.25"],
            "groups": ["group", "mean", "kept", "dropped", "0.375"],
            "objective": ["objective", *(["0.059"] if "--by" in call else ["olmorl", "0.1373333333", "0.103"])],
            "compare": ["recipe", "objective", "change", "olmorl", "dr-grpo", "cispo", "0.137333"],
        }
        wide = {"groups": ["std", "min", "max"], "compare": ["effective tokens", "clip low", "0.103", "approx kl"]}
        expected = words[call[0]] + (wide.get(call[0], []) if width == 200 else [])
        assert [word for word in expected if not re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", shown)] == [], call
        assert width < 200 or "left out" not in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_that_have_no_room_are_left_out_by_name(width: int, rollouts: str) -> None:
    for command, essential, least in (
        (("objective", "--by", "step"), ["step", "objective"], ["objective all groups", "ratio min", "ratio max"]),
        (("compare",), ["recipe", "objective", "change"], ["kept groups", "groups", "tokens"]),
        (("groups",), ["step", "group", "mean", "kept"], ["min", "max"]),
    ):
        shown = screen(command[0], rollouts, *command[1:], width=width)
        head = shown.split("\n\n")[-1].split("\nleft out")[0]
        said = " ".join("left out".join(shown.split("left out")[1:]).split())
        assert [name for name in essential if name not in head] == []
        left = re.findall(r"[a-z ]+(?=[,;])", said.removeprefix(" for want of room: "))
        names = {name.strip() for name in left}
        assert not names & set(essential), command
        assert names >= set(least) or width >= 60, command
        assert bool(said) == (width < {"objective": 100, "compare": 160, "groups": 60}[command[0]]), command


def test_all_batches_are_shown_up_to_a_hundred() -> None:
    tokens = {name: [[-1.0]] * 240 for name in ("logp_new", "logp_old")}
    table = {"step": [*range(120)] * 2, "reward": [1.0] * 120 + [0.0] * 120, "prompt_id": [1] * 240}
    kit.write("r.parquet", pa.table(table | tokens))
    shown = screen("objective", "r.parquet", "--by", "step", width=120)
    assert [int(line.split()[0]) for line in shown.splitlines() if re.match(r"\d+ ", line)] == list(range(100))
    assert "the first 100 of 120 rows; all of them with -f jsonl, or -o FILE" in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_a_long_id_is_folded_not_cut(width: int) -> None:
    name = "".join(f"<{number}>" for number in range(100, 130))
    kit.write("r.parquet", prompt_id=[name] * 8)
    shown = screen("groups", "r.parquet", width=width)
    assert re.sub(r"[^<>\d]", "", shown).count("<") == 2 * 30, "once for each step"
    assert "…" not in shown


def test_of_an_endless_id_the_beginning_is_shown() -> None:
    kit.write("r.parquet", prompt_id=["A" * 100_000 + str(at // 2) for at in range(8)])
    for command in ("groups", "inspect"):
        shown = screen(command, "r.parquet")
        assert len(shown) < 20_000, command
    words = "".join(screen("groups", "r.parquet", width=200).split())
    assert (words.count("A"), words.count("…(100,001characters)")) == (4 * 499, 4)


def test_what_only_recipes_have_is_explained_below_them(rollouts: str) -> None:
    said = "change: of the objective, against the first recipe; effective tokens: counted tokens that no bound clips"
    assert screen("compare", rollouts, width=200).splitlines()[-1] == said
    assert said not in screen("objective", rollouts, width=200)


def test_rows_that_are_not_shown_are_counted() -> None:
    kit.many("r.parquet", 1_500)
    assert re.search(r"first 20 of 3,000 answers.*\n?.*-f jsonl", screen("advantages", "r.parquet"))
    assert re.search(r"first 20 of 1,500 groups", screen("groups", "r.parquet").replace("\n", " "))
    kit.write("steps.parquet", step=list(range(8)))
    assert "first" not in screen("objective", "steps.parquet", "--by", "step", width=200)


def test_a_table_of_nothing_is_its_heading() -> None:
    kit.write("r.parquet", kit.rollouts().slice(0, 0))
    for command in (("objective", "--by", "step"), ("compare",), ("groups",), ("advantages", "--top", "2")):
        shown = screen(command[0], "r.parquet", *command[1:])
        assert {"advantages": "pushed toward: none", "groups": "mean"}.get(command[0], "objective") in shown


def test_what_is_drawn_says_between_what_it_lies(rollouts: str) -> None:
    shown = screen("groups", rollouts, width=200)
    assert "mean reward 0 to 3" in shown
    assert "rewards 0 to 3" in shown
    kit.many("r.parquet", 40)
    assert "the first 20 of 40 groups, in input order" in screen("groups", "r.parquet", width=100)


def test_totals_stand_above(rollouts: str) -> None:
    shown = screen("advantages", rollouts)
    assert "8 answers in 4 groups of 2 over 2 steps" in shown
    assert re.search(r"kept +3 +75\.0 %", shown)


@pytest.mark.parametrize("env", [{}, {"PYTHONIOENCODING": "ascii"}], ids=str)
def test_ids_are_shown_as_visible_text(env: dict[str, str]) -> None:
    answers = len(HOSTILE)
    tokens = {name: [[-1.0]] * answers for name in ("logp_new", "logp_old")}
    table = {"prompt_id": list(HOSTILE), "seed": [*HOSTILE][::-1], "reward": [0.5] * answers, "step": list(HOSTILE)}
    kit.write("r.parquet", pa.table(table | tokens))
    for command in (("advantages", "--group", "prompt_id", "--group", "seed"), ("objective", "--by", "step")):
        shown = screen(command[0], "r.parquet", *command[1:], width=200, env=env)
        assert [text for text in HOSTILE.values() if text not in shown] == []


def test_columns_are_shown_as_visible_text() -> None:
    kit.write("r.parquet", **{name: ["x"] * 8 for name in HOSTILE})
    options = [option for name in HOSTILE if "\0" not in name for option in ("--group", name)]
    for done in (
        kit.terminal("objective", "r.parquet", *options, width=200),
        kit.terminal("groups", "r.parquet", "--step", "no"),
    ):
        shown = kit.without_styles(done.text)
        assert [text for text in HOSTILE.values() if text not in shown and text in options] == []
        assert not NOT_TEXT.search(re.sub(r"\r|\x1b\[\?25[lh]|\x1b\[1A|\x1b\[2K", "", shown)), "but for the bar"


def test_paths_are_shown_as_visible_text() -> None:
    paths = {f"./{name.replace('/', '|')}.parquet": f"./{text.replace('/', '|')}.parquet" for name, text in HOSTILE.items()}
    paths = {path: text for path, text in paths.items() if "\0" not in path}
    for path in paths:
        kit.write(path)
    done = kit.run_in_turn([("groups", path, *more) for more in (("-G", "3"), ("--group", "no")) for path in paths])
    for each, text in zip(done, [*paths.values()] * 2, strict=True):
        assert each.err.startswith(f"olmorl: error: {text}: ")
        assert not NOT_TEXT.search(each.err)
        assert each.err.count("\n") == 1
    shown = kit.terminal("groups", *paths, "-G", "7").text
    assert shown.startswith("olmorl: error: ")
    assert not NOT_TEXT.search(shown)


def test_words_of_the_command_line_are_shown_as_visible_text(rollouts: str) -> None:
    text = "[bold]\x1b[2J\u202e\n[/x]"
    calls = [(text,), ("groups", f"--{text}"), ("groups", rollouts, "-f", text), ("groups", "-G", text), ("groups", text)]
    for done in kit.at_once(kit.terminal, calls):
        assert (done.code, done.out.count(b"\n")) == (2, 1)
        assert "[bold]\\x1b[2J\\u202e" in done.text
        assert not NOT_TEXT.search(done.text)


def test_a_file_name_that_is_no_utf_8_is_read(folder: Path) -> None:
    os.rename(os.fsencode(kit.write("r.parquet")), b"\xff.parquet")
    done = kit.run("groups", os.fsdecode(b"\xff.parquet"), "-o", os.fsdecode(b"\xfe.csv"))
    assert (done.code, done.err) == (0, "")
    assert (folder / os.fsdecode(b"\xfe.csv")).exists()


def test_no_color_has_none_and_a_dumb_terminal_no_sequences(rollouts: str) -> None:
    coloured, plain, dumb = (
        kit.terminal("objective", rollouts, env=env) for env in ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})
    )
    assert {done.code for done in (coloured, plain, dumb)} == {0}
    assert re.search(r"\x1b\[(\d+;)*3\d", coloured.text)
    assert not re.search(r"\x1b\[(\d+;)*[349]\d", plain.text)
    assert "\x1b" not in dumb.text
    assert not dumb.text.startswith("\n"), "no line is left of a bar that cannot be drawn"


def test_a_dumb_terminal_is_as_wide_as_it_is(rollouts: str) -> None:
    shown = screen("compare", rollouts, width=200, env={"TERM": "dumb"})
    assert "objective all groups" in shown


def test_force_color_and_columns_are_obeyed(rollouts: str) -> None:
    piped = kit.run("groups", rollouts, "-f", "table", env={"FORCE_COLOR": "1"})
    assert re.search(r"\x1b\[\d", piped.text)
    assert "\x1b" not in kit.run("groups", rollouts, "-f", "table").text
    narrow = screen("advantages", rollouts, width=200, env={"COLUMNS": "44"})
    assert max(map(len, narrow.splitlines())) <= 44


@pytest.mark.parametrize(
    "env", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}], ids=str
)
def test_a_terminal_without_unicode_gets_ascii(env: dict[str, str], rollouts: str) -> None:
    for command in ("advantages", "objective"):
        done = kit.terminal(command, rollouts, env=env)
        assert (done.code, done.text.isascii()) == (0, True)
        assert "\\u" not in done.text, "the program's own words need no escapes"
    kit.write("r.parquet", prompt_id=["é😀"] * 8)
    assert "\\xe9\\U0001f600" in kit.terminal("groups", "r.parquet", env=env).text


def test_blocks_are_drawn_where_they_can_be(rollouts: str) -> None:
    assert set(BLOCKS) & set(screen("groups", rollouts))
    assert not set(BLOCKS) & set(screen("groups", rollouts, env={"PYTHONIOENCODING": "latin-1"}))


def test_quiet_leaves_nothing_on_standard_error() -> None:
    kit.write("r.parquet", prompt_id=list("abcdefgh"))
    command = ("objective", "r.parquet", "-f", "csv")
    loud, quiet, spelled = (kit.terminal(*command, *more).text for more in ((), ("-q",), ("--quiet",)))
    assert [word in loud for word in ("olmorl: note: ", "olmorl: columns: ", "scoring")] == [True] * 3
    assert quiet.startswith("objective,")
    assert spelled == quiet


def test_the_columns_are_said_on_a_terminal_only(rollouts: str) -> None:
    calls = [(name, rollouts, *options, "-G", "2") for name, *options in COMMANDS]
    for call, done in zip(calls, kit.at_once(partial(kit.terminal, width=200), calls), strict=True):
        assert "consecutive rows" in done.text, call
        assert "logp_new" in done.text or call[0] in ("advantages", "groups"), call
    assert kit.terminal("objective", rollouts, apart=True).err == ""


def test_notes_are_folded_between_words_on_a_terminal_alone(rollouts: str) -> None:
    kit.write("s.parquet", prompt_id=list("abcdefgh"))
    for width in (40, 80):
        done = kit.terminal("groups", "s.parquet", width=width, env={"TERM": "dumb"})
        notes = done.text.split("olmorl: ")[1:]
        assert len(notes) == 2
        lines = done.text.splitlines()
        assert max(map(len, lines)) <= width
        assert "olmorl: columns: group = prompt_id, step = step," in " ".join(done.text.split())
    piped = kit.run("groups", "s.parquet").err
    assert piped.count("\n") == 1
    assert "prompt_id" in piped


def test_machine_formats_are_the_same_on_a_terminal() -> None:
    kit.write("r.parquet", prompt_id=["a long id with spaces " * 10] * 8)
    for command in (("groups", "r.parquet", "-f", "jsonl"), ("objective", "r.parquet", "-f", "csv")):
        shown = kit.terminal(*command, width=40, apart=True, env={"FORCE_COLOR": "1"})
        piped = kit.run(*command, env={"FORCE_COLOR": "1", "COLUMNS": "20"})
        assert (shown.code, shown.out) == (0, piped.out)
        assert b"\x1b" not in shown.out


def test_binary_formats_are_not_for_a_terminal(rollouts: str) -> None:
    for format in ("parquet", "arrow"):
        done = kit.terminal("advantages", rollouts, "-f", format)
        assert done.code == 2
        assert re.match(r"olmorl: error: .*-o", done.text)
    assert kit.terminal("advantages", rollouts, "-q", "-o", "o.arrow").out == b""


def test_progress_counts_fragments() -> None:
    table = kit.rollouts()
    os.mkdir("in")
    for number, first in enumerate((0, 4, 6)):
        kit.write(f"in/{number}.parquet", table.slice(first, (4, 2, 2)[number]))
    assert "scoring 3/3" in kit.without_styles(kit.terminal("objective", "in", "-f", "csv").text)
