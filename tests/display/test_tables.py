"""Tables and lists of facts at every width: whole cells, the columns that matter most, and a word on those left out."""

import io
import re
from collections.abc import Sequence

import pytest
from rich.console import RenderableType
from rich.text import Text

from olmorl_cli.display.tables import FAIR_TEXT, LAST, Column, bars_column, columns_table, cut_line, facts, hanging, rank_in
from olmorl_cli.display.text import VisibleConsole, beginning, plain

WIDTHS = (40, 60, 80, 100, 120, 160, 200)


def console_of(width: int) -> VisibleConsole:
    return VisibleConsole(file=io.StringIO(), width=width, highlight=False, emoji=False, markup=False)


def drawn(renderable: RenderableType, console: VisibleConsole) -> list[str]:
    """The lines that a console shows, none of them wider than it is."""
    with console.capture() as captured:
        console.print(renderable)
    lines = captured.get().split("\n")[:-1]
    assert max(map(len, lines)) <= console.width
    return lines


def words(lines: Sequence[str]) -> str:
    """The lines as one, a space between words."""
    return " ".join(" ".join(lines).split())


def column(name: str, cells: Sequence[str], rank: int = 0, *, numeric: bool = True, written: bool = True) -> Column:
    return Column(name, [Text(cell) for cell in cells], numeric, rank, written=written)


def figures() -> list[Column]:
    """An id, and eight columns of numbers of which the first two are essential."""
    ids = column("batch", ["first", "second"], numeric=False)
    numbers = [column(f"figure {at} here", [f"{at}.123456", f"-{at}.654321"], max(at - 1, 0)) for at in range(8)]
    return [ids, *numbers, bars_column("bars", ["████", "██  "], "cyan")]


@pytest.mark.parametrize("width", WIDTHS)
def test_columns_are_left_out_from_the_last_rank_on(width: int) -> None:
    lines = drawn(columns_table(figures(), console_of(width)), console_of(width))
    text = words(lines)
    shown = [at for at in range(8) if f" {at}.123456" in text]
    left = [at for at in range(8) if re.search(rf"left out for want of room:.*figure {at} here", text)]
    assert shown == list(range(len(shown)))
    assert shown + left == list(range(8))
    assert len(shown) == min(8, (width - len("second")) // (2 + len("-0.654321")))
    assert all(f"-{at}.654321" in text for at in shown), "no cell is cut"
    assert ("████" in text) == (width >= 6 + 8 * 11 + 2 + 4)
    assert ("left out" in text) == (width < 6 + 8 * 11)


def test_long_texts_and_words_are_cut_and_say_so() -> None:
    assert beginning("x" * 500) == "x" * 500
    assert beginning("x y" * 200) == f"{('x y' * 200)[:499]}… (600 characters)"
    assert plain(f"id {'x' * 1_234}, step 3").plain == f"id {'x' * 499}… (1,235 characters) step 3"
    assert plain("one word " * 100).plain == "one word " * 100


def test_bars_are_left_out_unsaid() -> None:
    columns = [column("n", ["1"]), bars_column("bars", ["#" * 50], "cyan")]
    assert drawn(columns_table(columns, console_of(40)), console_of(40)) == ["n", "1"]


def test_columns_of_one_rank_stay_together() -> None:
    columns = [column("n", ["1"]), column("low", ["2" * 20], 1), column("high", ["3" * 20], 1), column("less", ["4"], 2)]
    lines = drawn(columns_table(columns, console_of(42)), console_of(42))
    assert lines[:2] == ["n", "1"]
    assert words(lines[2:]).startswith("left out for want of room: low, high, less; a wider terminal or")
    assert rank_in(("a", "b c"), "c") == rank_in(("a", "b c"), "b") == 2
    assert rank_in(("a", "b c"), "id") == 0


def test_where_what_is_left_out_stands() -> None:
    for written, where in ((True, "; a wider terminal or -f jsonl shows it"), (False, "; a wider terminal shows it")):
        columns = [column("n", ["1"]), column("wide", ["2" * 50], 1, written=written)]
        said = words(drawn(columns_table(columns, console_of(40)), console_of(40))[2:])
        assert said == f"left out for want of room: wide{where}"


def test_a_heading_takes_two_lines_only_where_room_is_short() -> None:
    columns = [column("objective all groups", ["0.1", "-0.25"]), column("n", ["1", "2"])]
    assert drawn(columns_table(columns, console_of(23)), console_of(23))[0].split() == ["objective", "all", "groups", "n"]
    assert [line.split() for line in drawn(columns_table(columns, console_of(22)), console_of(22))] == [
        ["objective"],
        ["all", "groups", "n"],
        ["0.1", "1"],
        ["-0.25", "2"],
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_texts_are_folded_before_a_column_is_left_out_but_not_below_what_is_read(width: int) -> None:
    letters = "".join(f"<{number}>" for number in range(100, 120))
    columns = [column("id", [letters], numeric=False), column("value", ["0.123456"]), column("more", ["1" * 10], 1)]
    lines = drawn(columns_table(columns, console_of(width)), console_of(width))
    assert re.sub(r"[^<>\d]", "", "".join(line[: width - 10].split(" ")[0] for line in lines[1:])).count("<") == 20
    assert ("1" * 10 in " ".join(lines)) == (width >= FAIR_TEXT + 2 + 8 + 2 + 10)


def test_blocks_are_the_last_resort() -> None:
    columns = [column("a", ["1" * 30]), column("b", ["2" * 30]), column("c", ["3"], 1), bars_column("d", ["##"], "cyan")]
    lines = drawn(columns_table(columns, console_of(40)), console_of(40))
    assert lines == [f"a: {'1' * 30}", f"b: {'2' * 30}", "c: 3", ""], "bars are in none"


@pytest.mark.parametrize("width", WIDTHS)
def test_facts_are_aligned(width: int) -> None:
    lines = [
        (Text("objective"), Text("0.003386353568"), Text("over the 28,858 counted tokens, and more words to be folded")),
        (Text("sampler ratio mean"), Text("1"), Text("")),
        (Text("group"), Text(""), Text("prompt_id")),
    ]
    shown = drawn(facts(lines, console_of(width), [Text("█" * 10), Text(""), Text("")]), console_of(width))
    at = len("sampler ratio mean") + 2
    values = [line for line in shown if line[:1].isalpha()]
    assert [line[:at].strip() for line in values] == ["objective", "sampler ratio mean", "group"]
    assert [line[at : at + 14].strip() for line in values[:2]] == ["0.003386353568", "1"]
    assert "prompt_id" in values[2]
    text = words(shown).replace("█", "")
    assert "folded" in text
    assert "over the 28,858" in text
    assert ("█" in "".join(shown)) == (width >= 120)


def test_a_hanging_text_is_indented_but_for_its_first_line() -> None:
    lines = drawn(hanging(Text("one two three four five six seven eight nine ten eleven"), console_of(24)), console_of(24))
    assert [line.rstrip() for line in lines] == ["one two three four", "    five six seven eight", "    nine ten eleven"]


def test_a_cut_says_what_is_shown() -> None:
    assert list(cut_line(20, 20, "groups")) == []
    (line,) = cut_line(640, 20, "groups, in input order")
    assert str(line) == "the first 20 of 640 groups, in input order; all of them with -f jsonl, or -o FILE"
    assert bars_column("x", [], "cyan").rank == LAST
