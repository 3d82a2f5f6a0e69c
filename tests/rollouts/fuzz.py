"""Damages small files of every kind at random, and runs olmorl on each.

`python -m tests.rollouts.fuzz --count 20000 --seed 1` runs thousands. Every case must end with exit code 0, 1 or 2, in
words, in time and in bounded memory; where page checksums cover all that was damaged, exit code 0 must come with the figures
of the whole file. The cases run in a child process, which writes down the number of each before it starts: where a child
dies, the parent knows by which file.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
COMMANDS = (
    ("objective",),
    ("inspect",),
    ("groups",),
    ("advantages", "-f", "parquet"),
    ("objective", "--invalid", "skip", "--by", "step"),
    ("compare", "--recipe", "olmorl", "--recipe", "grpo"),
)
SECONDS = 30
"""A case that takes longer is taken for a hang; the slowest sound one takes a tenth of a second."""
MEMORY = 6 << 30
"""Bytes of address space that a child may take."""
NUMBERS = (-1, 0, 1, 0x7F, 0x80, 0xFF, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
WORDS = (
    b"null",
    b"NaN",
    b"1e999",
    b'"x"',
    b"{",
    b"}",
    b"[]",
    b"[[1]]",
    b"-",
    b",",
    b"\n",
    b"\\",
    b'"',
    b"\x00",
    b"[" * 3000,
)


@dataclass(frozen=True)
class Whole:
    """A file before it is damaged.

    Attributes:
        name: says the kind.
        data: its bytes.
        sealed: the bytes, first and last, of each page that a checksum covers.
    """

    name: str
    data: bytes
    sealed: tuple[tuple[int, int], ...] = ()

    def covers(self, damaged: bytes) -> bool:
        """Whether all that differs lies where a checksum tells."""
        if not self.sealed or len(damaged) != len(self.data):
            return False
        pair = (np.frombuffer(data, dtype=np.uint8) for data in (self.data, damaged))
        return all(any(start <= at < stop for start, stop in self.sealed) for at in np.flatnonzero(np.not_equal(*pair)))


def rollouts() -> pa.Table:
    """Twelve answers over two steps with everything that the commands look at."""
    logps = pa.list_(pa.float32())
    return pa.table(
        {
            "step": pa.array([1] * 6 + [2] * 6, pa.int32()),
            "prompt_id": pa.array(list("aabbccaabbcc")).dictionary_encode(),
            "text": [f"answer {row} " * 3 for row in range(12)],
            "reward": [1.0, 0.0, 1.0, 1.0, 0.0, 0.5] * 2,
            "logp_new": pa.array([[-0.5, -1.0], [-0.25], [], [-1.0, -2.0, -3.0], [-0.125], [-0.375]] * 2, logps),
            "logp_old": pa.array([[-0.25, -1.5], [-0.5], [], [-1.0, -2.0, -3.0], [-0.25], [-0.25]] * 2, logps),
            "mask": pa.array([[1, 1], [1], [], [1, 0, 1], [1], [1]] * 2, pa.list_(pa.int8())),
        }
    )


def whole_files() -> list[Whole]:
    """A file of every kind: codecs, page versions, encodings, with checksums and without."""
    table, files = rollouts(), []
    for codec in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
        for version, checksums in (("1.0", True), ("2.0", True), ("1.0", False)):
            data = _parquet(table, compression=codec, data_page_version=version, write_page_checksum=checksums)
            name = f"parquet {codec} v{version[0]}{' checksums' if checksums else ''}"
            files.append(Whole(name, data, tuple(pages(data)) if checksums else ()))
    plain = [column.cast(column.type.value_type) if i == 1 else column for i, column in enumerate(table.columns)]
    table = pa.table(plain, names=table.column_names)
    files.append(Whole("parquet plain", _parquet(table, use_dictionary=False, compression="none", store_schema=False)))
    split = {"reward": "BYTE_STREAM_SPLIT", "step": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}
    files.append(Whole("parquet encodings", _parquet(table, use_dictionary=False, column_encoding=split)))
    for codec in (None, "lz4", "zstd"):
        for kind, new in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
            sink = pa.BufferOutputStream()
            with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
                writer.write_table(table, max_chunksize=5)
            files.append(Whole(f"arrow {kind} {codec}", sink.getvalue().to_pybytes()))
    lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
    return [*files, Whole("json lines", lines.encode())]


def _parquet(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=5, **options)
    return sink.getvalue().to_pybytes()


def pages(data: bytes) -> Iterator[tuple[int, int]]:
    """The bytes, first and last, of the pages' bodies; pages stand one after another from byte 4 to the footer."""
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = 4
    while at < footer:
        header = _Header(data, at)
        fields = header.fields()
        if 3 not in fields:
            return  # the indexes between the pages and the footer
        yield header.at, header.at + fields[3]
        at = header.at + fields[3]


class _Header:
    """A page's header, Thrift's compact protocol, as far as to find its end and the size of what follows."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def fields(self) -> dict[int, int]:
        """Number → value of the fields that are integers; those of inner structures are passed over."""
        found, number = {}, 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            if kind in (3, 4, 5, 6):
                found[number] = self._byte() if kind == 3 else self._zigzag()
            elif kind == 7:
                self.at += 8
            elif kind == 8:
                size = self._varint()
                self.at += size
            elif kind == 12:
                self.fields()
            elif kind not in (1, 2):
                return {}
        return found

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value, shift = value | (byte & 0x7F) << shift, shift + 7
        return value | byte << shift

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def damaged(draw: random.Random, files: Sequence[Whole], whole: Whole) -> bytes:
    """The file with one to three injuries."""
    data = bytearray(whole.data)
    if whole.sealed and draw.random() < 0.3:
        start, stop = draw.choice(whole.sealed)
        data[draw.randrange(start, stop)] ^= 1 << draw.randrange(8)
        return bytes(data)
    injuries = (_flip, _flip, _number, _number, _cut, _out, _splice, _repeat, _word if whole.name == "json lines" else _flip)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        if data:
            draw.choice(injuries)(draw, data, files)
    return bytes(data)


def _place(draw: random.Random, data: bytearray) -> int:
    """Anywhere, but every other time near the end or the beginning: the parts that tell how to read the rest."""
    size = len(data)
    where = draw.choice(("any", "any", "end", "beginning"))
    return {
        "any": lambda: draw.randrange(size),
        "end": lambda: draw.randrange(size * 2 // 3, size),
        "beginning": lambda: draw.randrange(min(size, 200)),
    }[where]()


def _flip(draw: random.Random, data: bytearray, _: Sequence[Whole]) -> None:
    for _ in range(draw.choice((1, 1, 2, 8))):
        data[_place(draw, data)] ^= 1 << draw.randrange(8)


def _number(draw: random.Random, data: bytearray, _: Sequence[Whole]) -> None:
    at, width = _place(draw, data), draw.choice((1, 2, 4, 8))
    number = (draw.choice(NUMBERS) & (1 << 8 * width) - 1).to_bytes(width, "little")
    data[at : at + width] = number[: len(data) - at]


def _cut(draw: random.Random, data: bytearray, _: Sequence[Whole]) -> None:
    del data[_place(draw, data) :]


def _out(draw: random.Random, data: bytearray, _: Sequence[Whole]) -> None:
    at = _place(draw, data)
    del data[at : at + draw.randrange(1, 60)]


def _splice(draw: random.Random, data: bytearray, files: Sequence[Whole]) -> None:
    other = draw.choice(files).data
    at, start = _place(draw, data), draw.randrange(len(other))
    data[at : at + draw.randrange(40)] = other[start : start + draw.randrange(40)]


def _repeat(draw: random.Random, data: bytearray, _: Sequence[Whole]) -> None:
    at, size = _place(draw, data), draw.randrange(1, 80)
    data[at:at] = data[at : at + size]


def _word(draw: random.Random, data: bytearray, _: Sequence[Whole]) -> None:
    at = _place(draw, data)
    data[at : at + draw.choice((0, 1, 4))] = draw.choice(WORDS)


def case_of(seed: int, number: int, files: Sequence[Whole]) -> tuple[Whole, bytes, tuple[str, ...]]:
    """The whole file, the damaged one and the command of a case; the same for ever."""
    draw = random.Random(f"{seed} {number}")
    whole = draw.choice(files)
    return whole, damaged(draw, files, whole), draw.choice(COMMANDS)


class Runner:
    """Runs commands in this process, on one file whose name stays the same."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - for the process's life

    def run(self, data: bytes, command: Sequence[str]) -> tuple[int, bytes, str]:
        """The exit code, standard output and standard error of the command on a file of these bytes."""
        from olmorl_cli.__main__ import main

        self.path.write_bytes(data)
        own = os.dup(1), os.dup(2)
        for file, stream in ((self.out, 1), (self.err, 2)):
            file.seek(0)
            file.truncate()
            os.dup2(file.fileno(), stream)
        try:
            name, *options = command
            code = main([name, str(self.path), *options])
        finally:
            for number, stream in zip(own, (1, 2), strict=True):
                os.dup2(number, stream)
                os.close(number)
        for file in (self.out, self.err):
            file.seek(0)
        return int(code), self.out.read(), self.err.read().decode(errors="replace")


def child(seed: int, first: int, last: int, folder: Path) -> None:
    """Run cases `first` to `last`: each number goes to the file `started`, what is wrong to `found`."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    files, runner = whole_files(), Runner(folder / "case")

    @functools.cache
    def truth(whole: Whole, command: Sequence[str]) -> tuple[int, bytes, str]:
        return runner.run(whole.data, command)

    with open(folder / "started", "ab", buffering=0) as started, open(folder / "found", "a", buffering=1) as found:
        for number in range(first, last):
            whole, data, command = case_of(seed, number, files)
            started.write(f"{number}\n".encode())
            if os.environ.get("OLMORL_FUZZ_DIES_AT") == str(number):  # to see that it is seen
                os.abort()
            signal.alarm(SECONDS)
            wrong = fault(runner, data, command, truth(whole, command) if whole.covers(data) else None)
            signal.alarm(0)
            if wrong:
                found.write(f"{number}: {whole.name}: {' '.join(command)}: {wrong}\n")


def fault(runner: Runner, data: bytes, command: Sequence[str], truth: tuple[int, bytes, str] | None = None) -> str | None:
    """What is wrong with how a command ends on a file of these bytes; None if nothing is."""
    try:
        code, out, err = runner.run(data, command)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    lines = [line for line in err.splitlines() if not line.startswith("olmorl: note: ")]
    if code not in (0, 1, 2) or "Traceback" in err or "fault of olmorl" in err:
        return f"exit code {code}: {err.strip()}"
    if any(not line.startswith("olmorl: error: ") for line in lines):
        return f"standard error: {err.strip()}"
    if bool(lines) != (code == 2 or (code == 1 and command[0] != "inspect")):
        return f"exit code {code} with: {err.strip() or 'no word'}"
    if code == 0 and truth is not None and (code, out) != truth[:2]:
        return f"other figures than the whole file's: {out!r}"
    return None


def run_cases(seed: int, first: int, last: int, folder: Path) -> list[str]:
    """Run cases `first` to `last` in child processes, a new one where one dies; what is wrong with which."""
    folder.mkdir(exist_ok=True)
    deaths: list[str] = []
    while first < last:
        done = subprocess.run(
            [sys.executable, "-m", __spec__.name, "--child", str(folder), "--seed", str(seed), "--cases", f"{first}:{last}"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            check=False,
        )
        started = (folder / "started").read_text().split() if (folder / "started").exists() else []
        if done.returncode == 0:
            break
        if not started or int(started[-1]) < first:
            return [*deaths, f"the child did not start: {done.stderr.decode()}"]
        first = int(started[-1]) + 1
        why = "it hangs" if done.returncode == -signal.SIGALRM else f"the process dies, {done.returncode}"
        deaths.append(f"{started[-1]}: {why}: {done.stderr.decode()[-300:]}")
    found = (folder / "found").read_text().splitlines() if (folder / "found").exists() else []
    return deaths + found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="cases to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=int, metavar="CASE", help="write the file of one case to ./case, and say its command")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cases", help=argparse.SUPPRESS)
    options = parser.parse_args()
    say: Callable[[str], object] = sys.stdout.write
    if options.child:
        child(options.seed, *map(int, options.cases.split(":")), options.child)
        return 0
    if options.keep is not None:
        whole, data, command = case_of(options.seed, options.keep, whole_files())
        Path("case").write_bytes(data)
        say(f"{whole.name}: olmorl {command[0]} case {' '.join(command[1:])}\n")
        return 0
    workers = os.cpu_count() or 1
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="olmorl-fuzz-")))
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        bounds = [options.count * part // workers for part in range(workers + 1)]
        parts = itertools.pairwise(bounds)
        runs = [pool.submit(run_cases, options.seed, first, last, folder / f"{first}") for first, last in parts]
        found = [line for run in runs for line in run.result()]
    say("".join(f"{line}\n" for line in found) + f"{options.count} cases, seed {options.seed}: {len(found)} faults\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
