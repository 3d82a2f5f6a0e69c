"""What is promised: files are data and never code, no network, nothing written but what was asked for."""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.cli import kit

WATCHED = """
import json, os, sys
sys.dont_write_bytecode = True
from olmorl_cli.__main__ import main

warm, commands = json.load(sys.stdin)
out = os.dup(1)
os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT), 1)
assert [main(args) for args in warm] == [0] * len(warm)  # all modules that are needed are there now

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEVER = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pickle.", "ctypes.",
         "urllib.", "http.", "ftplib.", "shutil.", "os.mkdir", "os.chmod", "os.link", "os.symlink", "webbrowser.")
seen, codes = [], []

def watch(event, args):
    if event == "open":
        path, mode, flags = args
        if isinstance(path, (str, bytes)) and path != os.devnull and (flags & WRITING or (mode and set(mode) & set("wax+"))):
            seen.append([event, os.fsdecode(path)])
    elif event in ("os.rename", "os.remove"):
        seen.append([event, *map(os.fsdecode, args[:2 if event == "os.rename" else 1])])
    elif event in ("exec", "compile"):
        seen.append([event, str(args[0].co_filename if event == "exec" else args[1])])
    elif event.startswith(NEVER):
        seen.append([event, repr(args)[:200]])

sys.addaudithook(watch)
for args in commands:
    codes.append(int(main(args)))
found = list(seen)
os.write(out, json.dumps([codes, found]).encode())
"""
CODE = "$(touch ran); `touch ran` | touch ran; __import__('os').mkdir('ran')"
"""Text that would leave a trace wherever somebody ran it."""


class Traitor:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("ran",)


def is_memory_setting(event: str, *args: str) -> bool:
    """Whether this is the C library's mallopt being looked up, the one thing that is asked of C."""
    looked_up = event == "ctypes.dlsym" and args[0].endswith(", 'mallopt')")
    return looked_up or (event == "ctypes.dlopen" and args[0] == "(None,)")


def hostile(name: str) -> pa.Table:
    """Rollouts with code in names, ids, metadata and types."""
    carried = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickle.dumps(Traitor())}
    table = kit.rollouts(**{"prompt_id": [CODE] * 4 + [name] * 4, CODE: [CODE] * 8, "step": None})
    fields = [field.with_metadata(carried) if field.name == "reward" else field for field in table.schema]
    return table.cast(pa.schema(fields, metadata={"olmorl": CODE, "pandas": CODE, CODE: CODE}))


def watched(warm: list[list[str]], commands: list[list[str]], env: dict[str, str]) -> tuple[list[int], list[list[str]]]:
    """The exit codes of the commands, and what they did besides reading and computing."""
    done = kit.run(stdin=json.dumps([warm, commands]).encode(), env=env, python=(sys.executable, "-c", WATCHED))
    assert done.code == 0, done.err
    codes, seen = json.loads(done.out)
    return codes, seen


def commands(path: str, suffix: str) -> list[list[str]]:
    """Every command, with a result in the file `out` of every kind."""
    kinds = [["-o", f"out.{suffix}.{format}"] for format in kit.FORMATS]
    plain = [[command, path, *kind] for kind in kinds for command in ("advantages", "groups")]
    others = [
        ["objective", path, "--recipe", "r.toml", *kinds[0]],
        ["compare", path, *kinds[1], "--problems", f"out.{suffix}.problems"],
        ["inspect", path, "-f", "table", "-o", f"out.{suffix}.table"],
    ]
    return [*plain, *others]


def test_files_are_data_and_nothing_else_is_touched(folder: Path) -> None:
    for name in ("home", "temporary"):
        (folder / name).mkdir()
    (folder / "r.toml").write_text("eps_high = 0.3\n")
    table = hostile("b")
    odd = "$(touch ran).parquet"
    pq.write_table(table, odd)
    with pa.OSFile("r.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    (folder / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    runs = [run for number, path in enumerate((odd, "r.arrow", "r.jsonl")) for run in commands(path, str(number))]
    env = {"HOME": str(folder / "home"), "TMPDIR": str(folder / "temporary")}
    codes, seen = watched(runs, runs, env)
    assert codes == [0] * len(runs)
    written = {path for event, path, *_ in seen if event == "open"} - {str(folder / "temporary")}
    renamed = {(old, new) for event, *both in seen if event == "os.rename" for old, new in [both]}
    assert [each for each in seen if each[0] not in ("open", "os.rename") and not is_memory_setting(*each)] == []
    assert {old for old, _ in renamed} == written, "only files beside the target"
    targets = {
        os.path.realpath(run[run.index(option) + 1]) for run in runs for option in ("-o", "--problems") if option in run
    }
    assert {new for _, new in renamed} == targets
    after = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.name.startswith("out.")
    }
    assert after == before | {"said": b""}
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["home", "temporary"]
    assert os.listdir("home") == os.listdir("temporary") == []


def test_a_recipe_is_data_too(folder: Path) -> None:
    kit.write("r.parquet")
    (folder / "good.toml").write_text("eps_high = 0.3\n")
    recipes = {"a.toml": f'center = """{CODE}"""\n', "b.toml": f'"{CODE}" = 1\n', "c.toml": pickle.dumps(Traitor())}
    for name, text in recipes.items():
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    before = sorted(os.listdir(folder))
    bad = [["objective", "r.parquet", "--recipe", name] for name in recipes]
    codes, seen = watched([["objective", "r.parquet", "--recipe", "good.toml"]], bad, {})
    assert (codes, seen) == ([2, 2, 2], [])
    assert sorted(os.listdir(folder)) == sorted([*before, "said"])


def test_addresses_are_not_followed_and_keep_their_secrets(folder: Path) -> None:
    kit.write("r.parquet")
    addresses = ["https://user:secret@127.0.0.1:9/r.parquet", "ftp://user:secret@127.0.0.1:9/x.jsonl"]
    done = kit.run_in_turn([("groups", address) for address in addresses])
    for each in done:
        assert (each.code, each.out) == (2, b"")
        assert "secret" not in each.err


def test_the_watch_sees_what_it_looks_for(folder: Path) -> None:
    """The hook is no blind one: it tells of a file that is written, and of code that is run."""
    kit.write("r.parquet")
    deeds = "open('ran', 'w').close(); eval('1'); os.fork() or os._exit(0); found = seen"
    program = WATCHED.replace("found = list(seen)", deeds)
    done = kit.run(stdin=json.dumps([[["groups", "r.parquet"]], []]).encode(), python=(sys.executable, "-c", program))
    assert done.code == 0, done.err
    _, seen = json.loads(done.out)
    assert {event for event, *_ in seen} >= {"open", "exec", "compile", "os.fork"}
