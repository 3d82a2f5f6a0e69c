"""`olmorl report` as a command: where the page goes, and what is refused."""

import sys
from pathlib import Path

import pytest

from tests.cli import kit
from tests.cli.test_start import loaded

WITHOUT = "import sys; sys.modules['vl_convert'] = None; from olmorl_cli.__main__ import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_is_refused_leaves_nothing(folder: Path) -> None:
    kit.write("r.parquet")
    kit.write("bad.parquet", reward=[1.0, None] * 4)
    kit.write("in.html")
    (folder / "old.html").write_text("old")
    cases = {
        ("report", "r.parquet"): (2, "-o"),
        ("report", "r.parquet", "-o", "p.parquet"): (2, "report writes a page. Call the file NAME.html"),
        ("report", "r.parquet", "-o", "-"): (2, "Call the file NAME.html"),
        ("report", "in.html", "-o", "in.html"): (2, "it is an input"),
        ("report", "r.parquet", "-o", "nowhere/p.html"): (2, "does not exist"),
        ("report", "r.parquet", "-o", "p.html", "--problems", "p.html"): (2, "Write the problems to another file"),
        ("report", "r.parquet", "-o", "p.html", "--recipe", "nope"): (2, "nope"),
        ("report", "bad.parquet", "-o", "old.html", "--problems", "p.jsonl"): (1, "rows 1, 3, 5, 7 (4 in all)"),
        ("report", "r.parquet", "-o", "new.html", "-q", "--problems", "none.jsonl"): (0, ""),
    }
    for (command, (code, said)), done in zip(cases.items(), kit.run_in_turn(list(cases)), strict=True):
        assert (done.code, done.out) == (code, b""), command
        assert said in done.err, command
        assert len(done.err.splitlines()) == (code > 0), command
    assert (folder / "old.html").read_text() == "old"
    there = {"r.parquet", "bad.parquet", "in.html", "old.html", "new.html", "p.jsonl", "none.jsonl"}
    assert {path.name for path in folder.iterdir()} == there


def test_without_the_extra_it_says_how_to_get_it(folder: Path) -> None:
    done = kit.run("report", kit.write("r.parquet"), "-o", "p.html", python=(sys.executable, "-c", WITHOUT))
    assert (done.code, done.out) == (2, b"")
    assert done.err == (
        "olmorl: error: report: to draw it, the package vl_convert is needed. Install it with pip install"
        " 'olmorl-cli[report]'\n"
    )
    assert [path.name for path in folder.iterdir()] == ["r.parquet"]


def test_other_commands_do_not_load_what_draws() -> None:
    kit.write("r.parquet")
    codes, modules = loaded([("objective", "r.parquet", "-f", "csv"), ("inspect", "r.parquet"), ("report", "--help")])
    assert set(codes.values()) == {0}
    assert [name for name in modules if name.startswith(("altair", "vl_convert", "olmorl_cli.report"))] == []
