"""Runs that are killed or interrupted at random moments, and runs that race: the target is one file or the other."""

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from olmorl_cli.__main__ import _run as run_arguments
from tests.cli import kit

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

LEFT_OVER = re.compile(r"\.o\.\w+\.olmorl-\d+-[0-9a-f]{8}\.part")
"""What a killed run may leave: hidden, with a suffix that no input has, and it says whose it is."""

STRUCK = """
import json, os, random, signal, sys, time
from olmorl_cli.__main__ import main
from olmorl_cli.interrupts import leave
from olmorl_cli.start import run

signal.signal(signal.SIGINT, signal.SIG_DFL)  # a child that is struck before its first line ends without a word

def start(args):
    process = os.fork()
    if process == 0:
        sys.argv = ["olmorl", *args]
        try:
            run()
        except SystemExit as stop:
            os._exit(int(stop.code))
    return process

def end(process):
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

def whole(args):
    begin = time.perf_counter()
    assert end(start(args)) == 0
    return time.perf_counter() - begin

def struck(args, number, times, seed, target):
    draw, usual, seen = random.Random(seed), min(whole(args) for _ in range(3)), []
    new = open(target, "rb").read()
    for _ in range(times):
        with open(target, "wb") as file:
            file.write(b"old")
        process = start(args)
        time.sleep(draw.uniform(0, 1.1 * usual))
        os.kill(process, number)
        code, now = end(process), open(target, "rb").read()
        left = [name for name in os.listdir() if name.endswith(".part")]
        seen.append((code, "old" if now == b"old" else "new" if now == new else "other", left))
        for name in left:
            os.rename(name, os.path.join("left", name))
    return seen

def raced(both, times, target):
    alone = []
    for args in both:
        whole(args)
        alone.append(open(target, "rb").read())
    seen = []
    for _ in range(times):
        processes = [start(args) for args in both]
        codes = [end(process) for process in processes]
        now = open(target, "rb").read()
        seen.append((codes, alone.index(now) if now in alone else "other", sorted(os.listdir())))
    return seen

assert main(["advantages", "r.parquet", "-o", os.devnull, "-f", "parquet"]) == 0  # all that it imports is there now
signal.signal(signal.SIGINT, leave)  # for the children's first moments
print(json.dumps(eval(sys.argv[1])))
"""


def struck(call: str) -> list[list[object]]:
    """What a call in the program above gives; the processes that it starts say nothing."""
    done = kit.run(call, python=(sys.executable, "-c", STRUCK))
    assert (done.code, done.err) == (0, ""), done.err
    seen: list[list[object]] = json.loads(done.out)
    return seen


@pytest.mark.parametrize("format", kit.FORMATS)
def test_a_run_that_is_killed_leaves_the_old_file_or_the_new_one(format: str, folder: Path) -> None:
    kit.many("r.parquet", 1_000)
    (folder / "left").mkdir()
    target = f"o.{format}"
    args = ["advantages", "r.parquet", "-o", target]
    seen = struck(f"struck({args}, signal.SIGKILL, 50, {format!r}, {target!r})")
    assert {code for code, _, _ in seen} <= {0, -9}
    assert {now for _, now, _ in seen} <= {"old", "new"}
    assert all(code == -9 or now == "new" for code, now, _ in seen)
    assert sum(code == -9 for code, _, _ in seen) > 5, "on a machine at rest, most are killed at work"
    left = [name for _, _, names in seen for name in names]
    assert [name for name in left if not LEFT_OVER.fullmatch(name)] == []
    kit.write("left/r.parquet")
    assert len(kit.run("groups", "left").rows) == 4, "what was left is no input"


def test_a_run_that_is_interrupted_leaves_nothing(folder: Path) -> None:
    kit.many("r.parquet", 1_000)
    (folder / "left").mkdir()
    for command, target in (("advantages", "o.parquet"), ("groups", "o.jsonl")):
        seen = struck(f"struck({[command, 'r.parquet', '-o', target]}, signal.SIGINT, 40, {target!r}, {target!r})")
        assert {code for code, _, _ in seen} <= {0, 130}
        assert {now for _, now, _ in seen} <= {"old", "new"}
        assert [left for _, _, left in seen if left] == []
        assert sum(code == 130 for code, _, _ in seen) > 4, "on a machine at rest, most are interrupted at work"


def test_two_runs_to_one_target_do_not_mix(folder: Path) -> None:
    kit.many("r.parquet", 1_000)
    kit.many("s.parquet", 900)
    both = [["advantages", name, "-o", "o.jsonl"] for name in ("r.parquet", "s.parquet")]
    seen = struck(f"raced({both}, 15, 'o.jsonl')")
    assert [codes for codes, _, _ in seen] == [[0, 0]] * 15
    assert {now for _, now, _ in seen} <= {0, 1}
    assert [names for _, _, names in seen] == [["o.jsonl", "r.parquet", "s.parquet"]] * 15


STARTED = """
import os, signal
from olmorl_cli import interrupts, start
signal.signal(signal.SIGINT, interrupts.leave)
os.write(1, b".")
start.run()
"""


def test_ctrl_c_while_the_program_is_loaded_is_quiet(rollouts: str, folder: Path) -> None:
    """From where Python hands over; before, it ends by the signal."""
    (folder / "o.csv").write_text("old")
    command = [sys.executable, "-c", STARTED, "advantages", rollouts, "-o", "o.csv"]
    draw, pipe, codes = random.Random(1), subprocess.PIPE, []
    for _ in range(8):
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=kit.environment()) as process:
            assert process.stdout is not None
            assert process.stdout.read(1) == b"."
            time.sleep(draw.uniform(0, 0.15))
            code, said = kit.interrupt(process)
            assert said == b""
            codes.append(code)
    assert set(codes) <= {0, 130}
    assert 130 in codes
    assert not any(name.endswith(".part") for name in os.listdir(folder))


def test_a_disk_of_a_few_blocks(folder: Path) -> None:
    """A real file system that fills up while the result is written."""
    kit.many("r.parquet", 20_000)
    (folder / "disk").mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "disk"], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (folder / "disk" / "o.jsonl").write_text("old")
        for done in kit.run_in_turn([("advantages", "r.parquet", "-f", f, "-o", "disk/o.jsonl") for f in kit.FORMATS]):
            assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)
            assert "disk/o.jsonl: cannot be written: No space left on device" in done.err
        assert os.listdir("disk") == ["o.jsonl"]
        assert (folder / "disk" / "o.jsonl").read_text() == "old"
    finally:
        subprocess.run(["umount", "disk"], check=True)


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143), (ValueError(), 2)])
def test_a_signal_that_comes_out_as_another_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], raised: BaseException, code: int
) -> None:
    """Between two steps of a lock it makes the lock complain; only an error that came of none is said to be a fault."""

    def app(**_: object) -> int:
        lock = threading.Lock()
        with lock:
            lock.release()
            raise raised

    monkeypatch.setattr("olmorl_cli.cli.app", app)
    assert run_arguments(["objective"]) == code
    assert ("release unlocked lock" in capfd.readouterr().err) == (code == 2)
