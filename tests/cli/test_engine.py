"""Engines by name, and output in parts, as a command line asks for them; no cluster is needed for either."""

import os
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli import kit

NO_RAY = ("-c", "import sys; sys.modules['ray'] = None; from olmorl_cli.start import run; run()")
"""Python without the package ray."""


def refused(*args: str, env: dict[str, str] | None = None) -> str:
    done = kit.run(*args, env=env)
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
    return done.err.removeprefix("olmorl: error: ").removesuffix("\n")


def test_engines_go_by_name(folder: Path) -> None:
    path = kit.write("r.parquet")
    assert kit.run("objective", path, "--engine", "local").out == kit.run("objective", path).out
    assert refused("objective", path, "--engine", "spark") == "--engine takes one of local, ray, got 'spark'"
    assert refused("objective", path, env={"OLMORL_ENGINE": "x"}) == "$OLMORL_ENGINE takes one of local, ray, got 'x'"
    assert kit.run("objective", path, env={"OLMORL_ENGINE": "", "RAY_ADDRESS": "nobody:1"}).code == 0
    assert refused("objective", path, "--ray-address", "a:1").startswith("--ray-address is for --engine ray")
    lost = refused("groups", path, "--engine", "ray", "--ray-address", "me:s3cret@127.0.0.1:1", env=kit.environment())
    assert "127.0.0.1:1" in lost or "package ray" in lost
    assert "s3cret" not in lost
    assert refused("groups", path, "--engine", "ray", "--ray-address", "").endswith("the address of a cluster, got ''")


def test_without_the_package_it_says_how_to_get_it(folder: Path) -> None:
    path = kit.write("r.parquet")
    done = kit.run("objective", path, "--engine", "ray", python=(kit.PROGRAM[0], *NO_RAY))
    assert (done.code, done.out) == (2, b"")
    assert done.err == (
        "olmorl: error: --engine ray: the package ray is needed. Install it with pip install 'olmorl-cli[ray]'\n"
    )
    assert kit.run("objective", path, python=(kit.PROGRAM[0], *NO_RAY)).out == kit.run("objective", path).out


def parts(folder: str) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_parts_are_the_single_file_in_order(format: str, folder: Path) -> None:
    os.mkdir("in")
    table = kit.rollouts()
    for number, first in enumerate((0, 3, 5)):
        kit.write(f"in/{number}.parquet", table.slice(first, (3, 2, 3)[number]))
    done = kit.run("advantages", "in", "-o", "out/", "-f", format)
    assert (done.code, done.out, done.err) == (0, b"", "olmorl: note: 3 parts written to out/\n")
    assert parts("out") == [f"part-0000{number}.{format}" for number in range(3)]
    read = pq.read_table if format == "parquet" else lambda path: pa.ipc.open_file(path).read_all()
    whole = pa.concat_tables([read(f"out/{name}") for name in parts("out")])
    assert (whole["advantage"].to_pylist(), whole["kept"].to_pylist()) == (kit.ADVANTAGES, kit.KEPT)
    assert whole.drop_columns(["advantage", "kept"]).equals(table)
    again, before = kit.run("objective", "out").row, kit.run("objective", "in").row
    assert again.pop("columns") == before.pop("columns") | {"advantage": "advantage"}
    assert again == before


def test_parts_replace_those_of_the_run_before(folder: Path) -> None:
    path = kit.write("r.parquet")
    os.mkdir("out")
    for name in ("part-00000.parquet", "part-00007.parquet", "part-00001.arrow", "notes.txt"):
        Path("out", name).write_text("old")
    assert kit.run("advantages", path, "-o", "out/", "-q").err == ""
    assert parts("out") == ["notes.txt", "part-00000.parquet"]
    assert pq.read_table("out/part-00000.parquet")["advantage"].to_pylist() == kit.ADVANTAGES


def test_a_failure_leaves_the_parts_of_the_run_before(folder: Path) -> None:
    """The second file is damaged where only the output's columns are read, after the first part is written."""
    kit.write("a.parquet")
    os.mkdir("out")
    Path("out/part-00000.parquet").write_text("old")
    pq.write_table(kit.rollouts(step=[3] * 4 + [4] * 4, text=["xyz" * 9000] * 8), "b.parquet", write_page_checksum=True)
    data = bytearray(Path("b.parquet").read_bytes())
    at = data.index(b"xyz")
    data[at : at + 8] = b"damaged!"
    Path("b.parquet").write_bytes(data)
    done = kit.run("advantages", "a.parquet", "b.parquet", "-o", "out/")
    assert done.code == 2
    assert done.err.startswith("olmorl: error: b.parquet: cannot be read")
    assert parts("out") == ["part-00000.parquet"]
    assert Path("out/part-00000.parquet").read_text() == "old"


def test_the_moment_of_the_renames_is_not_interrupted(folder: Path) -> None:
    """Ctrl-C in the middle of them is held back: all parts are new, or all are old."""
    table = pa.concat_tables([kit.rollouts(prompt_id=[f"{number}-{row}" for row in range(8)]) for number in range(60)])
    os.mkdir("in")
    for number in range(60):
        kit.write(f"in/{number}.parquet", table.slice(8 * number, 8))
    assert kit.run("advantages", "in", "-o", "out/").code == 0
    old = {name: os.stat(f"out/{name}").st_ino for name in parts("out")}
    seen = set()
    for _ in range(3):
        command = [*kit.PROGRAM, "advantages", "in", "-o", "out/", "-q"]
        process = subprocess.Popen(command, env=kit.environment(), stderr=subprocess.PIPE)
        while process.poll() is None and os.stat("out/part-00000.parquet").st_ino == old["part-00000.parquet"]:
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=kit.TIMEOUT)
        new = {name: os.stat(f"out/{name}").st_ino for name in parts("out")}
        assert (set(new), err) == (set(old), b"")
        assert not set(new.values()) & set(old.values())
        seen.add(process.returncode)
        old = new
    assert seen <= {0, 130}


def test_no_answers_make_one_part_without_rows(folder: Path) -> None:
    path = kit.write("none.parquet", kit.rollouts().slice(0, 0))
    assert kit.run("advantages", path, "-o", "out/").err == "olmorl: note: 1 part written to out/\n"
    assert pq.read_table("out").num_rows == 0
    assert kit.run("advantages", "out").rows == []


def test_folders_that_take_no_parts(folder: Path) -> None:
    path = kit.write("r.parquet")
    os.makedirs("in")
    kit.write("in/r.parquet")
    assert refused("advantages", "in", "-o", "in/") == "in/: it holds an input (in/r.parquet). Write to another folder"
    assert refused("advantages", path, "-o", "in/", "-f", "csv").startswith("--format, for a folder, takes one of parquet")
    assert refused("advantages", path, "-o", "no/where/").startswith("no/where/: the folder ")
    assert refused("advantages", path, "-o", f"{path}/").startswith(f"{path}/: it is no folder")
    for command in ("advantages", "groups"):
        assert refused(command, path, "-o", "in").startswith("in: it is a folder. Name a file to write")
    for name in ("in/", "new/"):
        for more in ((), ("-f", "csv")):
            assert refused("groups", path, "-o", name, *more).startswith(f"{name}: it is a folder")
    assert not os.path.exists("new")
    assert refused("advantages", path, "-o", "https://127.0.0.1:1/x/").endswith("Write to a bucket or a folder")
    assert refused("advantages", path, "-o", "s3://bucket/x.parquet").startswith("s3://bucket/x.parquet: a single file")
    assert parts("in") == ["r.parquet"]
