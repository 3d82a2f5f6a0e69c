"""Runs olmorl as its users do: as a process, in a shell's line, on a terminal. And small rollouts with visible results."""

import base64
import csv
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PROGRAM = (sys.executable, "-m", "olmorl_cli")
FORMATS = ("jsonl", "csv", "parquet", "arrow")
"""The machine formats."""
TIMEOUT = 120

GROUPED = {
    "step": [1, 1, 1, 1, 2, 2, 2, 2],
    "prompt_id": ["a", "b", "a", "b", "a", "a", "c", "c"],
    "reward": [1.0, 1.0, 0.0, 1.0, 3.0, 1.0, 0.5, 0.25],
}
TOKENS = {
    "logp_new": [[-1.0, -1.0], [-1.0], [-1.0, -5.0, -9.0], [-2.0, -2.0], [-1.0, -1.0], [-3.0], [-1.0], [-1.0]],
    "logp_old": [[-1.0, -5.0], [-1.0], [-1.0, -1.0, -1.0], [-2.0, -2.0], [-1.0, -1.0], [-3.0], [-1.0], [-1.0]],
    "mask": [[1, 1], [1], [1, 1, 0], [1, 1], [1, 1], [1], [1], [1]],
}
ADVANTAGES = [0.5, 0.0, -0.5, 0.0, 1.0, -1.0, 0.125, -0.125]
KEPT = [True, False, True, False, True, True, True, True]


@dataclass(frozen=True)
class Done:
    """How a process ended, and what it wrote."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The JSON Lines of standard output, which must be nothing else, of a run that ended well."""
        assert self.code == 0, self.err
        return [json.loads(line, parse_constant=_no_json) for line in self.text.split("\n")[:-1]]

    @property
    def row(self) -> dict[str, Any]:
        (row,) = self.rows
        return row


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def rollouts(**columns: Any) -> pa.Table:
    """Eight answers in four groups over two steps, groups (1, a), (1, b), (2, a), (2, c); all but (1, b) are kept.

    Columns given replace these or are added; None drops one. At real tokens every ratio is 1, but for one of e^4 where
    the advantage is 0.5 (row 0) and one of e^-4 where it is -0.5 (row 2): under OlmoRL's bounds these are 1.272 and 0.8.
    """
    return pa.table({name: value for name, value in (GROUPED | TOKENS | columns).items() if value is not None})


def write(path: str, table: pa.Table | None = None, **columns: Any) -> str:
    """Write a table, by default `rollouts(**columns)`, as Parquet in row groups of three; its path."""
    with open(path, "wb") as file:  # pyarrow takes some names for addresses
        pq.write_table(rollouts(**columns) if table is None else table, file, row_group_size=3)
    return path


def many(path: str, groups: int) -> str:
    """Write rollouts of `groups` groups of two, rewards 1 and 0; the file's path."""
    ids = pa.array([f"prompt {group // 2}" for group in range(2 * groups)])
    pq.write_table(pa.table({"prompt_id": ids, "reward": [1.0, 0.0] * groups}), path, row_group_size=max(1, groups // 2))
    return path


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """An environment that nothing of the caller's shows in."""
    return {"PATH": os.environ["PATH"], "HOME": os.devnull, "PYTHON": sys.executable, "TERM": "xterm-256color"} | (
        more or {}
    )


def run(
    *args: str,
    stdin: bytes | int | None = None,
    env: dict[str, str] | None = None,
    cwd: str | None = None,
    python: tuple[str, ...] = PROGRAM,
) -> Done:
    """Run `olmorl args`; `stdin` is piped into it, or is a descriptor, or nothing (/dev/null)."""
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": subprocess.DEVNULL if stdin is None else stdin}
    done = subprocess.run(
        [*python, *args], capture_output=True, env=environment(env), cwd=cwd, timeout=TIMEOUT, check=False, **given
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def at_once(what: Callable[..., Done], calls: Iterable[tuple[str, ...]]) -> list[Done]:
    """`what` (a function of this file) called with each of `calls`, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda args: what(*args), calls))


_IN_TURN = """
import base64, json, os, sys, tempfile
from olmorl_cli.__main__ import main
done = []
for args, folder in json.load(sys.stdin):
    os.chdir(folder)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        own = os.dup(1), os.dup(2)
        os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
        code = main(args)
        os.dup2(own[0], 1), os.dup2(own[1], 2)
        os.close(own[0]), os.close(own[1])
        for file in out, err:
            file.seek(0)
        done.append((int(code), base64.b64encode(out.read()).decode(), err.read().decode()))
print(json.dumps(done))
"""


def run_in_turn(
    commands: list[tuple[str, ...]], env: dict[str, str] | None = None, folders: list[str] | None = None
) -> list[Done]:
    """Run many commands one after another in a single process, for their results alone; standard input is used up.

    Each runs in its folder, the current one by default.
    """
    runs = list(zip(commands, folders or [os.curdir] * len(commands), strict=True))
    done = run(stdin=json.dumps(runs).encode(), python=(sys.executable, "-c", _IN_TURN), env=env)
    assert (done.code, done.err) == (0, "")
    return [Done(code, base64.b64decode(out), err) for code, out, err in json.loads(done.out)]


def shell(line: str, env: dict[str, str] | None = None) -> Done:
    """Run a line of bash in which `olmorl` is the program; standard input is /dev/null."""
    line = f'olmorl() {{ "$PYTHON" -m olmorl_cli "$@"; }}\n{line}'
    done = subprocess.run(
        ["bash", "-c", line],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(env),
        timeout=TIMEOUT,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


def terminal(*args: str, width: int = 80, env: dict[str, str] | None = None, apart: bool = False) -> Done:
    """Run `olmorl args` on a pseudo-terminal: standard input, output and error.

    Args:
        args: of the command.
        width: columns of the terminal.
        env: variables to add.
        apart: standard error is a pipe instead; without this, what goes there is in `out` as well.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    error = subprocess.PIPE if apart else theirs
    with subprocess.Popen(
        [*PROGRAM, *args], stdin=theirs, stdout=theirs, stderr=error, env=environment(env), start_new_session=True
    ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _shown(ours), b""))
        err = process.stderr.read().decode() if process.stderr else ""
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
    os.close(ours)
    return Done(process.returncode, shown.replace(b"\r\n", b"\n"), err)


def _shown(descriptor: int) -> bytes:
    """What the terminal shows next; nothing once every program has left it."""
    try:
        return os.read(descriptor, 1 << 16) if select.select([descriptor], [], [], TIMEOUT)[0] else b""
    except OSError:
        return b""


def interrupt(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Ctrl-C for a process at work; its exit code, and what it then says on standard error.

    A signal that falls just before a system call is seen after that call only, so it is sent again, as a person would.
    """
    try:
        for _ in range(20):
            process.send_signal(signal.SIGINT)
            try:
                return process.wait(1), process.stderr.read() if process.stderr else b""
            except subprocess.TimeoutExpired:
                continue
    finally:
        process.kill()
    raise AssertionError("Ctrl-C does not end it")


def without_styles(text: str) -> str:
    """Terminal output without the sequences that set colour and weight; other sequences stay."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def table_of(data: bytes, format: str) -> pa.Table:
    """Parquet or an Arrow stream, read."""
    return pq.read_table(io.BytesIO(data)) if format == "parquet" else pa.ipc.open_stream(data).read_all()


def keys_of(done: Done, format: str) -> list[str]:
    """The columns of an output, in order."""
    if format == "jsonl":
        (keys,) = {tuple(row) for row in done.rows}
        return list(keys)
    if format == "csv":
        return next(csv.reader(io.StringIO(done.text)))
    return table_of(done.out, format).column_names


def values_of(done: Done, format: str) -> list[dict[str, Any]]:
    """The rows of an output: CSV cells as the numbers and flags that they write, JSON texts as what they write."""
    assert done.code == 0, done.err
    if format == "jsonl":
        return done.rows
    if format == "csv":
        return [{key: _cell(cell) for key, cell in row.items()} for row in csv.DictReader(io.StringIO(done.text))]
    rows = table_of(done.out, format).to_pylist()
    return [{key: _cell(cell) if key == "columns" else cell for key, cell in row.items()} for row in rows]


def _cell(text: str) -> Any:
    if text == "":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
