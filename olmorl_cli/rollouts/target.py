"""Where results go: a file that is whole or not there, a device, or standard output."""

import errno
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from olmorl_cli.errors import OlmorlError, OutputError, ReaderGone, UsageError, shown_uri
from olmorl_cli.interrupts import PuttingBack
from olmorl_cli.rollouts.sources import Source, identity_of, is_uri

FORMATS = ("table", "jsonl", "csv", "parquet", "arrow")
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}


def format_of(path: str, format: str | None) -> str:
    """The format of an output file: the one asked for, else by the suffix of its name.

    Raises:
        UsageError: the suffix tells none.
    """
    suffix = os.path.splitext(path)[1].lower()
    if format is None and suffix not in SUFFIXES:
        raise UsageError(f"{path}: the suffix tells no format. Add --format, one of {', '.join(FORMATS)}")
    return format or SUFFIXES[suffix]


def check_target(path: str | None, inputs: Sequence[Source], option: str = "-o") -> None:
    """Refuse to write over an input, by whatever name, and where nothing can be written; `option` has named the path.

    Raises:
        UsageError: the target is an input, a folder, or in a folder that does not exist.
    """
    known = {source.identity: source.name for source in inputs if source.identity is not None}
    if _is_standard_output(path):
        status = _standard_output()
        if stat.S_ISREG(status.st_mode) and identity_of(status) in known:
            name = known[identity_of(status)]
            raise UsageError(f"{name}: standard output is redirected into this input. Write to another file")
        return
    if not path:
        raise UsageError(f"{option} takes the name of a file, got ''")
    if os.path.isdir(path) or (path.endswith("/") and not is_uri(path)):
        raise UsageError(f"{path}: it is a folder. Name a file to write (advantages writes parts to a name that ends in /)")
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder) and is_uri(path):
        raise UsageError(
            f"{shown_uri(path)}: a single file is written on this machine only. Write it here and copy it there"
            " (advantages writes parts to a URI that ends in /)"
        )
    if not os.path.isdir(folder):
        raise UsageError(f"{path}: the folder {folder} does not exist. Make it first")
    if os.path.exists(path):
        status = os.stat(path)
        if identity_of(status) in known:
            raise UsageError(f"{path}: it is an input ({known[identity_of(status)]}). Write to another file")


def same_target(path: str, output: str | None) -> bool:
    """Whether both name one file, which need not be there yet, or standard output; None is standard output."""
    if output is None:
        return _is_standard_output(path) or (os.path.exists(path) and os.path.samestat(os.stat(path), _standard_output()))
    if os.path.exists(path) and os.path.exists(output):
        return os.path.samefile(path, output)
    return os.path.realpath(path) == os.path.realpath(output)


def _standard_output() -> os.stat_result:
    if sys.stdout is None:
        raise OutputError("standard output: it is closed. Open it, or write to a file with -o")
    return os.fstat(1)


def _is_standard_output(path: str | None) -> bool:
    """Whether the path is a name of standard output, /dev/stdout say, that must not be opened anew."""
    if path is None or not path.startswith(("/dev/", "/proc/")) or not os.path.exists(path):
        return path is None
    return sys.stdout is not None and os.path.samestat(os.stat(path), os.fstat(1))


@contextmanager
def open_target(path: str | None, *, whole: bool, name: str | None = None) -> Iterator[IO[bytes]]:
    """A sink for bytes.

    A file is written beside its name, synced and renamed over it at the end; on any failure nothing is left and an old
    file is as it was. Devices and pipes are written straight.

    Args:
        path: of the file, None for standard output.
        whole: standard output gets its bytes only once all of them are known.
        name: what messages call the file, if not by its path.

    Raises:
        OutputError: they cannot be written.
    """
    name = name or ("standard output" if path is None else path)
    try:
        if path is None or _is_standard_output(path):
            _standard_output()
            with _whole(sys.stdout.buffer) if whole else _straight(sys.stdout.buffer) as sink:
                yield sink
        elif os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            with open(path, "wb") as device, _whole(device) if whole else _straight(device) as sink:
                yield sink
        else:
            with _beside(os.path.realpath(path)) as sink:
                yield sink
    except OlmorlError:
        raise
    except BrokenPipeError as error:
        raise ReaderGone from error
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise OutputError(f"{name}: cannot be written: {reason}. Make room, or write elsewhere") from error


@contextmanager
def _straight(sink: IO[bytes]) -> Iterator[IO[bytes]]:
    yield sink
    sink.flush()


@contextmanager
def _whole(sink: IO[bytes]) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(prefix="olmorl-") as copy:
        yield copy
        copy.seek(0)
        shutil.copyfileobj(copy, sink, 1 << 20)
        sink.flush()


@contextmanager
def _beside(path: str) -> Iterator[IO[bytes]]:
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name[:50]}.olmorl-{os.getpid()}-{os.urandom(4).hex()}.part")
    with PuttingBack():
        try:
            with open(beside, "xb") as sink:
                yield sink
                sink.flush()
                os.fsync(sink.fileno())
            os.replace(beside, path)
            sync_folder(folder)
        except BaseException:
            with _ignored(errno.ENOENT):
                os.unlink(beside)
            raise


@contextmanager
def _ignored(number: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != number:
            raise


def sync_folder(folder: str) -> None:
    """Have the names of a folder's files written to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
