"""Files behind URIs: found like those of this machine, and read by ranges, only as far as they are needed."""

import dataclasses
import functools
import importlib
import io
import logging
import os
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import IO, Any, Literal, TypeVar, cast
from urllib.parse import unquote

from olmorl_cli.errors import InputError, OutputError, UsageError, shown_uri
from olmorl_cli.rollouts.parallel import REMOTE_AT_ONCE, in_order
from olmorl_cli.rollouts.remote_errors import NOT_FOUND, RemoteError, failure_of, secrets_of
from olmorl_cli.rollouts.sources import Source, descriptor_path, held, keeping, partition_of, temporary_file

R = TypeVar("R")

PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub", "https": "aiohttp", "http": "aiohttp"}
"""Schemes, and what each needs beside fsspec."""
ALIASES = {"s3a": "s3", "gcs": "gs"}
EXTRA = "pip install 'olmorl-cli[remote]'"

CONNECT_SECONDS = 10
READ_SECONDS = 20
"""How long a silent host is waited for."""
PAUSES = (0.2, 1.0)
"""Seconds before another try of what may go better then."""
PATIENCE = 30
"""Seconds after which nothing is tried another time."""

LEAST = 1 << 16
"""Bytes that are fetched at least: fewer take as long."""
REMEMBERED = 16 << 20
"""Bytes fetched of late that an open file holds."""

_LOGGERS = ("aiobotocore", "aiohttp", "asyncio", "botocore", "fsspec", "gcsfs", "google", "httpx", "s3fs", "urllib3")


class RemoteFiles:
    """The files of one bucket, repository or host, through fsspec; their paths are URIs.

    Whatever goes wrong is a `RemoteError`, which shows neither password nor query.
    """

    def __init__(self, uri: str) -> None:
        """Take the file system that the URI's scheme stands for; nothing is asked over the network yet.

        Raises:
            InputError: the scheme is unknown, or needs a package that is not installed.
            UsageError: the URI names nothing, or has credentials where none can stand.
        """
        scheme = _scheme(uri)
        self._given = uri
        self._prefix, self._secrets = f"{uri.partition('://')[0]}://", secrets_of(uri)
        self._web = scheme in ("http", "https")
        """Whether any path may be a file, and folders are pages of links."""
        self._known: dict[str, dict[str, Any]] = {}
        """What listings have said of files and folders."""
        _load(PACKAGES[scheme], shown_uri(uri))
        self._fs = self.tried(shown_uri(uri), lambda: _file_system(scheme, uri))

    def __reduce__(self) -> tuple[type["RemoteFiles"], tuple[str]]:
        """In another process the connection is made anew, from what the environment says there."""
        return RemoteFiles, (self._given,)

    def kind(self, path: str) -> Literal["file", "folder"] | None:
        if path.endswith("/") and not self.has_magic(path):
            return "folder"
        try:
            return "folder" if self._described(path)["type"] == "directory" else "file"
        except RemoteError as error:
            if error.failure is NOT_FOUND:
                return None
            raise

    def has_magic(self, path: str) -> bool:
        rest = path.removeprefix(self._prefix).partition("/")[2]
        return re.search(r"[*[]", rest.partition("?")[0]) is not None if self._web else re.search(r"[*?[]", rest) is not None

    def matching(self, pattern: str) -> list[str]:
        start = pattern.removeprefix(self._prefix).rstrip("/").split("/")
        parts: list[str] = []
        while any(self.has_magic(f"{self._prefix}/{part}") for part in start):
            parts.insert(0, start.pop())
        if not start:
            raise UsageError(f"{shown_uri(pattern)}: a pattern can stand after the bucket or host only. Name that")
        found = [self._prefix + "/".join(start)]
        for number, part in enumerate(parts, 1):
            if part != "**":
                children = chain.from_iterable(in_order(self._children, found, REMOTE_AT_ONCE))
                found = [each for each in children if _fits(self._plain(each.rpartition("/")[2]), part)]
            elif number < len(parts):
                found = [each for folder in found for each in (folder, *self._folders_below(folder))]
            if number < len(parts):
                found = [each for each in found if self.kind(each) == "folder"]
        return list(dict.fromkeys(found))

    def below(self, folder: str) -> list[str]:
        folder = folder.rstrip("/")
        if self._web:
            return list(self._linked(folder))
        listed = self.tried(shown_uri(folder), lambda: self._fs.find(folder, detail=True))
        self._known |= {self._uri(path): described for path, described in listed.items()}
        return [uri for uri in map(self._uri, listed) if not _has_dot(uri.removeprefix(folder))]

    def _linked(self, folder: str) -> Iterator[str]:
        """Files that the page of a folder, and those of the folders that it links to, have links to."""
        for child in self._children(folder):
            if not _has_dot(child.removeprefix(folder)):
                if self.kind(child) == "folder":
                    yield from self._linked(child)
                else:
                    yield child

    def _folders_below(self, folder: str) -> list[str]:
        inner = {path.removeprefix(f"{folder}/").rpartition("/")[0] for path in self.below(folder)} - {""}
        every = {"/".join(each.split("/")[:depth]) for each in inner for depth in range(1, each.count("/") + 2)}
        return [f"{folder}/{each}" for each in every]

    def _children(self, folder: str) -> list[str]:
        """Files and folders straight below a folder; none where there is no such folder."""
        try:
            listed = self.tried(shown_uri(folder), lambda: self._fs.ls(f"{folder}/" if self._web else folder, detail=True))
        except RemoteError as error:
            if error.failure is NOT_FOUND:
                return []
            raise
        children = {self._uri(described["name"]): described for described in listed}
        children = {uri: described for uri, described in children.items() if uri.startswith(f"{folder}/")}
        self._known |= children
        return list(children)

    def source(self, path: str) -> Source:
        name, size = shown_uri(path), self._described(path).get("size")
        if self._web and size is None:  # it was but linked to
            size = self._described(path, anew=True).get("size")
        partition = partition_of(self._plain(name))
        if self._web and not (size and self._has_ranges(path, size)):
            return dataclasses.replace(self._copied(path, name), partition=partition)
        return RemoteSource(path, name, partition, files=self, size=size or 0)

    def _described(self, path: str, *, anew: bool = False) -> dict[str, Any]:
        """What is known of the file or folder: its type and size.

        Raises:
            RemoteError: there is none, or it cannot be asked for.
        """
        if anew or path not in self._known:
            self._known[path] = self.tried(shown_uri(path), lambda: self._fs.info(path))
        return self._known[path]

    def _plain(self, path: str) -> str:
        """The path without the codes that links on pages have for some characters."""
        return unquote(path) if self._web else path

    def _uri(self, path: str) -> str:
        """The URI of a path as fsspec gives it."""
        path = path.rstrip("/")
        return path if "://" in path else self._prefix + path.removeprefix("/")

    def _has_ranges(self, path: str, size: int) -> bool:
        """Whether the server gives a part of the file without what stands before it."""

        def last_byte() -> bool:
            with closing(self.handle(path, size)) as file:
                file.seek(size - 1)
                try:
                    return len(file.read(1)) == 1
                except ValueError:
                    return False

        return self.tried(shown_uri(path), last_byte)

    def _copied(self, path: str, name: str) -> Source:
        """The file in a temporary copy, where the server gives it only as a whole."""
        with temporary_file() as copy:

            def whole() -> None:
                copy.seek(0)
                copy.truncate()
                with closing(self._fs.open(path, "rb", block_size=0)) as file, keeping(name):
                    shutil.copyfileobj(file, copy, 1 << 20)
                    copy.flush()

            self.tried(name, whole)
            return held(copy, name)

    def handle(self, path: str, size: int) -> Any:
        """fsspec's open file, which fetches what is read of it and no more. For one thread."""
        return self._fs.open(path, "rb", cache_type="none", size=size)

    @property
    def takes_files(self) -> bool:
        """Whether files can be written there."""
        return not self._web

    def put(self, copy: IO[bytes], path: str) -> None:
        """Write the bytes of a temporary file to a path, where they are all at once or not at all.

        Raises:
            OutputError: they cannot be written.
        """
        self._written(path, lambda: self._fs.put_file(descriptor_path(copy.fileno()), path))

    def remove(self, paths: list[str]) -> None:
        """Remove files.

        Raises:
            OutputError: one cannot be removed.
        """
        for path in paths:
            self._written(path, functools.partial(self._fs.rm_file, path))

    def _written(self, path: str, what: Callable[[], object]) -> None:
        try:
            self.tried(shown_uri(path), what)
        except RemoteError as error:
            failure = error.failure
            raise OutputError(f"{shown_uri(path)}: cannot be written: {failure.what}. {failure.action}") from error

    def tried(self, name: str, what: Callable[[], R]) -> R:
        """What a function gives that asks over the network; it is asked again a few times where that may help.

        Raises:
            RemoteError: it failed.
        """
        start = time.monotonic()
        for pause in (*PAUSES, None):
            try:
                return what()
            except (InputError, MemoryError):
                raise
            except Exception as error:  # the packages' errors have no base in common
                failure, shown = failure_of(error, self._secrets)
                if pause is None or not failure.passing or time.monotonic() - start > PATIENCE:
                    raise RemoteError(name, failure) from shown
            time.sleep(pause)
        raise AssertionError


@dataclass(frozen=True, kw_only=True)
class RemoteSource(Source):
    """A file behind a URI.

    Attributes:
        files: give its bytes.
        size: in bytes.
    """

    files: RemoteFiles
    size: int

    remote = True

    def open(self) -> IO[bytes]:
        return cast("IO[bytes]", RangedFile(self))

    @property
    def identity(self) -> str:
        return self.path


class RangedFile(io.RawIOBase):
    """A remote file's bytes, fetched as they are read; those fetched last are remembered. For one thread."""

    def __init__(self, source: RemoteSource) -> None:
        self._source, self._at = source, 0
        self._handle: Any = None
        self._recent: deque[tuple[int, bytes]] = deque()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._source.size)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        start, end = self._at, self._source.size
        stop = end if size is None or size < 0 else min(start + size, end)
        if stop <= start:
            return b""
        self._at = stop
        for first, data in self._recent:
            if first <= start and stop <= first + len(data):
                return data[start - first : stop - first]
        first, last = (0, end) if end <= LEAST else (start, min(end, max(stop, start + LEAST)))
        data = self._source.files.tried(self._source.name, lambda: self._fetched(first, last))
        self._recent.append((first, data))
        while sum(len(each) for _, each in self._recent) > REMEMBERED:
            self._recent.popleft()
        return data[start - first : stop - first]

    def _fetched(self, start: int, stop: int) -> bytes:
        if self._handle is None:
            self._handle = self._source.files.handle(self._source.path, self._source.size)
        self._handle.seek(start)
        data: bytes = self._handle.read(stop - start)
        if len(data) != stop - start:
            raise ConnectionResetError
        return data

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
        super().close()


def _scheme(uri: str) -> str:
    """The URI's scheme, one of `PACKAGES`.

    Raises:
        InputError: it is unknown.
        UsageError: the URI names nothing, or has credentials where none can stand.
    """
    name, (given, _, rest) = shown_uri(uri), uri.partition("://")
    scheme, host = ALIASES.get(given.lower(), given.lower()), rest.partition("/")[0]
    if scheme not in PACKAGES:
        known = ", ".join(f"{each}://" for each in PACKAGES)
        raise InputError(f"{name}: the scheme is unknown. Known are {known}; files of this machine go by their paths")
    if not host:
        raise UsageError(f"{name}: the URI names nothing. Write a bucket or a host after {given}://")
    if scheme in ("s3", "gs", "hf") and re.search(":" if scheme == "hf" else "[:@]", host):
        raise UsageError(f"{name}: credentials cannot stand in such a URI. Set them in the environment")
    return scheme


def _file_system(scheme: str, uri: str) -> Any:
    """fsspec's file system for the scheme: short waits, and no tries of its own where that can be said."""
    options: dict[str, Any] = {}
    if scheme == "s3":
        client = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS, "retries": {"total_max_attempts": 1}}
        options = {"config_kwargs": client}
    elif scheme == "gs":
        options = {"requests_timeout": READ_SECONDS}
    elif scheme in ("http", "https"):
        aiohttp = importlib.import_module("aiohttp")
        waits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        signed = "%" in uri.partition("?")[2]  # what a signature covers must not be encoded anew
        options = {"client_kwargs": {"timeout": waits, "trust_env": True}, "encoded": signed}
    made = importlib.import_module("fsspec").filesystem(scheme, **options)
    made.invalidate_cache()
    if scheme == "s3":
        made.retries = 1
    return made


def _load(package: str, name: str) -> None:
    """Import fsspec and what it needs to read `name`, and keep them from printing.

    Raises:
        InputError: one is not installed.
    """
    for each in ("fsspec", package):
        try:
            importlib.import_module(each)
        except ImportError as error:
            missing = error.name or each
            raise InputError(f"{name}: to read it, the package {missing} is needed. Install it with {EXTRA}") from error
    for logger in _LOGGERS:  # without a handler Python prints their warnings, URIs and all
        logging.getLogger(logger).addHandler(logging.NullHandler())
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and (pattern.startswith(".") or not name.startswith("."))


def _has_dot(path: str) -> bool:
    """Whether a name in the path starts with a dot."""
    return "/." in path
