"""From what stands on the command line to files: paths, folders, patterns, URIs, standard input."""

import errno
import glob
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Literal, Protocol
from urllib.parse import unquote

from olmorl_cli.errors import InputError, UsageError, shown_uri

ENVIRONMENT = "OLMORL_ROLLOUTS"
DEFAULT = "rollouts.parquet"
SUFFIXES = (".parquet", ".pq", ".arrow", ".arrows", ".feather", ".ipc", ".jsonl", ".ndjson", ".json")
"""What a data file's name ends in, in a folder; a file that is named outright may be called anything."""

_OTHER_FILES = 128
"""Files that are open beside those of the input."""
NO_INPUT = (
    f"no input: name files or folders, pipe rollouts into standard input, set ${ENVIRONMENT}, or put them into ./{DEFAULT}"
)


@dataclass(frozen=True)
class Source:
    """One file of the input.

    Attributes:
        path: where it is read from.
        name: what messages and results call it.
        partition: the `key=value` folders of its path (Hive's way of columns).
        hold: keeps a temporary file alive as long as the source.
    """

    path: str
    name: str
    partition: Mapping[str, str] = field(default_factory=dict)
    hold: "Descriptor | None" = None

    remote = False
    """Whether its bytes come over a network."""

    @property
    def portable(self) -> bool:
        """Whether other processes can open it: not a file that is but open here."""
        return self.hold is None and not self.path.startswith(("/proc/", "/dev/"))

    def open(self) -> IO[bytes]:
        """The file's bytes, from the first, at any place."""
        return open(self.path, "rb")

    @property
    def identity(self) -> Hashable:
        """What tells the file from others: device and inode; None for what has none."""
        try:
            return identity_of(os.stat(self.path))
        except OSError:
            return None


def identity_of(status: os.stat_result) -> Hashable:
    """What tells a file from others, by its status."""
    return status.st_dev, status.st_ino


def find_sources(arguments: Sequence[str]) -> list[Source]:
    """The files that the command's FILES stand for, in order; without FILES, the default input.

    Raises:
        InputError: one does not exist, a folder or pattern holds no data file.
        UsageError: standard input is asked for twice, or nothing at all is there to read.
    """
    if not arguments:
        return _default_sources()
    if sum(argument == "-" for argument in arguments) > 1:
        raise UsageError("standard input can be read once: give - a single time")
    return [source for argument in arguments for source in _named(argument)]


def _default_sources() -> list[Source]:
    if _standard_input_is_data():
        return [standard_input()]
    if os.environ.get(ENVIRONMENT):
        return _named(os.environ[ENVIRONMENT])
    if os.path.lexists(DEFAULT):
        return _named(DEFAULT)
    raise UsageError(NO_INPUT)


def _standard_input_is_data() -> bool:
    """Whether standard input is a pipe, a socket or a redirected file (not a terminal, /dev/null or closed)."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def standard_input() -> Source:
    """Standard input as a file that can be read twice: the redirected file itself, or a temporary copy of a pipe.

    Raises:
        InputError: it is a terminal, closed or empty.
    """
    name = "standard input"
    try:
        status = os.fstat(0)
    except OSError:
        raise InputError(f"{name}: it is closed. Name a file instead of -") from None
    if os.isatty(0):
        raise InputError(f"{name}: it is a terminal, rollouts come from a file or a pipe. Name a file instead of -")
    if stat.S_ISREG(status.st_mode) and os.lseek(0, 0, os.SEEK_CUR) == 0:
        if status.st_size == 0:
            raise InputError(f"{name}: it is empty. Check the program before the pipe")
        return Source(descriptor_path(0), name)
    with temporary_file() as copy, open(0, "rb", buffering=0, closefd=False) as pipe:
        _copy(pipe, copy, name)
        if copy.tell() == 0:
            raise InputError(f"{name}: it is empty. Check the program before the pipe")
        return held(copy, name)


def _copy(pipe: IO[bytes], copy: IO[bytes], name: str) -> None:
    with keeping(name):
        shutil.copyfileobj(pipe, copy, 1 << 20)
        copy.flush()


@contextmanager
def keeping(name: str) -> Iterator[None]:
    """Turns the lack of room for a temporary copy of `name` into an `InputError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        raise InputError(
            f"{name}: cannot be kept in a temporary file: {error.strerror}. Make room in {tempfile.gettempdir()}, or set"
            " TMPDIR"
        ) from error


class Descriptor:
    """An open file without a name: it lives as long as this does."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


@contextmanager
def temporary_file() -> Iterator[IO[bytes]]:
    """A file without a name, gone when it is closed or the process ends, however it ends; `held` keeps it."""
    copy = tempfile.TemporaryFile(prefix="olmorl-")  # noqa: SIM115 - closing may fail, see below
    try:
        yield copy
    finally:
        with suppress(OSError):  # closing fails again where writing has
            copy.close()


def held(copy: IO[bytes], name: str) -> Source:
    """A source that reads a temporary file, called `name`, and keeps it alive when `copy` is closed."""
    copy.flush()
    descriptor = Descriptor(os.dup(copy.fileno()))
    return Source(descriptor_path(descriptor.number), name, hold=descriptor)


def allow_open_files(number: int) -> None:
    """Let this process have so many more files open, as far as the system lets it have them."""
    with suppress(ImportError, ValueError, OSError):  # not Unix, or not allowed
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = number + _OTHER_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def descriptor_path(descriptor: int) -> str:
    """A path that opens the descriptor's file anew."""
    for folder in ("/proc/self/fd", "/dev/fd"):
        if os.path.exists(f"{folder}/{descriptor}"):
            return f"{folder}/{descriptor}"
    raise InputError("standard input: this system gives it no path. Name a file instead")


class Files(Protocol):
    """What is asked of the place where files are: this machine, or what a URI leads to."""

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        """What stands under this very name, if anything."""

    def has_magic(self, path: str) -> bool:
        """Whether the path can be a pattern."""

    def matching(self, pattern: str) -> list[str]:
        """Files and folders that match the pattern; names that start with a dot only where it has the dot."""

    def below(self, folder: str) -> list[str]:
        """All files below the folder, but for names that start with a dot."""

    def source(self, path: str) -> Source:
        """The file, ready to be opened."""


def is_uri(text: str) -> bool:
    """Whether it has the form of a URI."""
    return re.match(r"[a-zA-Z][a-zA-Z0-9+.-]+://", text) is not None


def _named(argument: str) -> list[Source]:
    """The files of one argument: a literal path wins over a URI and over a pattern."""
    if argument == "-":
        return [standard_input()]
    if not argument:
        raise UsageError("'' is no name of a file. Leave it out, or name one")
    files: Files = _Here()
    if is_uri(argument) and not os.path.lexists(argument):
        from olmorl_cli.rollouts.remote import RemoteFiles

        files = RemoteFiles(argument)
    kind = files.kind(argument)
    if kind == "folder":
        return _in_folder(files, argument)
    if kind == "file":
        return [files.source(argument)]
    if files.has_magic(argument):
        return _matching(files, argument)
    raise InputError(f"{shown_uri(argument)}: no such file or folder. Check the path")


def _matching(files: Files, pattern: str) -> list[Source]:
    """Data files that match the pattern, or lie below folders that do, in natural order, each once."""
    sources: dict[Hashable, Source] = {}
    for match in sorted(files.matching(pattern), key=_natural):
        if files.kind(match) == "folder":
            found = _in_folder(files, match, empty=True)
        else:
            found = [files.source(match)] if match.lower().endswith(SUFFIXES) else []
        for source in found:
            sources.setdefault(source.identity, source)
    if not sources:
        raise InputError(
            f"{shown_uri(pattern)}: no data file matches this pattern (by suffix: {', '.join(SUFFIXES)}). Check it, and"
            " quote it"
        )
    return sorted(sources.values(), key=lambda source: _natural(source.name))


def _in_folder(files: Files, folder: str, *, empty: bool = False) -> list[Source]:
    """Data files below a folder, in natural order of their paths.

    Raises:
        InputError: there is none, unless it may be `empty`.
    """
    found = [path for path in files.below(folder) if path.lower().endswith(SUFFIXES)]
    if not found and not empty:
        raise InputError(
            f"{shown_uri(folder)}: no data file in this folder (by suffix: {', '.join(SUFFIXES)}). Name another"
        )
    return [files.source(path) for path in sorted(found, key=_natural)]


class _Here:
    """The files of this machine."""

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        if os.path.isdir(path):
            return "folder"
        return "file" if os.path.lexists(path) else None

    def has_magic(self, path: str) -> bool:
        return glob.has_magic(path)

    def matching(self, pattern: str) -> list[str]:
        return glob.glob(pattern, recursive=True)

    def below(self, folder: str) -> list[str]:
        return list(_walked(folder))

    def source(self, path: str) -> Source:
        if not os.path.exists(path):
            raise InputError(f"{path}: it is a link to nothing. Mend the link or name another file")
        return _file(path)


def _file(path: str) -> Source:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISCHR(status.st_mode):
        return _spooled(path)
    try:
        path.encode()
    except UnicodeEncodeError:  # pyarrow takes names in UTF-8 only
        descriptor = Descriptor(os.open(path, os.O_RDONLY))
        return Source(descriptor_path(descriptor.number), path, partition_of(path), descriptor)
    return Source(os.path.abspath(path), path, partition_of(path))


def _spooled(path: str) -> Source:
    """A named pipe or socket, copied so that it can be read twice."""
    with temporary_file() as copy, open(path, "rb") as pipe:
        _copy(pipe, copy, path)
        return held(copy, path)


def _walked(folder: str) -> Iterator[str]:
    """Paths of the files below a folder, links followed; names that start with a dot do not count."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_unreadable_folder):
        status = os.stat(parent)
        if (status.st_dev, status.st_ino) in seen:  # a link back to a folder already walked
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (os.path.join(parent, name) for name in names if not name.startswith("."))


def partition_of(path: str) -> dict[str, str]:
    """The `key=value` folders of a path as it was given or found, percent-encoding undone."""
    parts = (part.partition("=") for part in os.path.dirname(path).split(os.sep))
    return {unquote(key): unquote(value) for key, equals, value in parts if equals and key}


def _unreadable_folder(error: OSError) -> None:
    raise InputError(f"{error.filename}: {error.strerror}. Check the folder's permissions")


def _natural(path: str) -> tuple[list[tuple[int, int, str]], str]:
    """A sort key that puts step_2 before step_10."""
    parts = re.split(r"(\d+)", path, flags=re.ASCII)
    return [(1, int(part), "") if part.isdigit() and part.isascii() else (0, 0, part) for part in parts], path
