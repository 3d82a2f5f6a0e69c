"""Folders of parts, here or behind a URI: a part is whole or not there, and an output's parts replace those of the last."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from olmorl_cli.errors import OutputError, UsageError, shown_uri
from olmorl_cli.interrupts import held_back
from olmorl_cli.rollouts.sources import Source, is_uri, temporary_file
from olmorl_cli.rollouts.target import open_target, sync_folder

if TYPE_CHECKING:
    from olmorl_cli.rollouts.remote import RemoteFiles

PARTS = "part-*"
"""Names of parts, of which an output takes the place of all that are there."""


class Folder(Protocol):
    """Takes the parts of one output; can be sent to other processes, which write them."""

    @property
    def name(self) -> str:
        """The path or URI."""

    def check(self, inputs: Sequence[Source]) -> None:
        """Refuse to write where an input lies.

        Raises:
            UsageError: one is among the parts that would be replaced, or the folder cannot be made.
        """

    def sink(self, part: str) -> AbstractContextManager[IO[bytes]]:
        """A sink for the bytes of the part of this name, which is there only once all of them are.

        Raises:
            OutputError: they cannot be written.
        """

    def settle(self, parts: Sequence[str]) -> None:
        """Put the written parts in the place of all that were there before.

        Raises:
            OutputError: they cannot be put there.
        """

    def discard(self) -> None:
        """Take away what was written and not settled."""


def folder_of(path: str) -> Folder:
    """The folder that a path or URI names; nothing is made yet.

    Raises:
        InputError: a package that its URI needs is not installed.
    """
    if is_uri(path) and not os.path.isdir(path):
        return _There(path)
    return _Here(path, os.urandom(4).hex())


@dataclass(frozen=True)
class _Here:
    """A folder of this machine, or of a disk that all have. Parts stand under other names until all of them are there.

    Attributes:
        name: its path.
        run: tells this output's parts from those of another run.
    """

    name: str
    run: str

    def check(self, inputs: Sequence[Source]) -> None:
        folder = os.path.realpath(self.name)
        if os.path.lexists(folder) and not os.path.isdir(folder):
            raise UsageError(f"{self.name}: it is no folder. Leave the / at its end out to write a file")
        if not os.path.isdir(os.path.dirname(folder)):
            raise UsageError(f"{self.name}: the folder {os.path.dirname(folder)} does not exist. Make it first")
        for source in inputs:
            if os.path.dirname(os.path.realpath(source.path)) == folder:
                raise UsageError(f"{self.name}: it holds an input ({source.name}). Write to another folder")
        for part in fnmatch.filter(os.listdir(folder) if os.path.isdir(folder) else (), PARTS):
            if os.path.isdir(os.path.join(folder, part)):
                raise UsageError(f"{self.name}: {part} in it is a folder, where a part may go. Write to another folder")

    @contextmanager
    def sink(self, part: str) -> Iterator[IO[bytes]]:
        with suppress(FileExistsError):
            os.mkdir(self.name)
        with open_target(self._waiting(part), whole=True, name=os.path.join(self.name, part)) as sink:
            yield sink

    def _waiting(self, part: str) -> str:
        return os.path.join(os.path.abspath(self.name), f".{part}.olmorl-{self.run}.part")

    def settle(self, parts: Sequence[str]) -> None:
        if absent := [part for part in parts if not os.path.exists(self._waiting(part))]:
            raise OutputError(
                f"{self.name}: {len(absent)} of {len(parts)} parts are not there, but in other machines' folders so called."
                " Write to one that all machines share, or to a URI"
            )
        try:
            with held_back():
                for part in parts:
                    os.replace(self._waiting(part), os.path.join(self.name, part))
                for old in set(fnmatch.filter(os.listdir(self.name), PARTS)) - set(parts):
                    os.unlink(os.path.join(self.name, old))
            sync_folder(self.name)
        except OSError as error:
            raise OutputError(f"{self.name}: the parts cannot be put in place: {error.strerror}. Write elsewhere") from error

    def discard(self) -> None:
        with suppress(OSError):
            for left in fnmatch.filter(os.listdir(self.name), f".*.olmorl-{self.run}*"):  # of workers that were killed, too
                os.unlink(os.path.join(self.name, left))


@dataclass(frozen=True)
class _There:
    """A folder behind a URI, where nothing can be renamed: each part goes to its place as soon as it is whole."""

    name: str

    def check(self, inputs: Sequence[Source]) -> None:
        folder = self.name.rstrip("/")
        for source in inputs:
            if source.path.rpartition("/")[0] == folder:
                raise UsageError(f"{shown_uri(self.name)}: it holds an input ({source.name}). Write to another folder")
        if not self._files().takes_files:
            raise UsageError(f"{shown_uri(self.name)}: nothing can be written there. Write to a bucket or a folder")

    def _files(self) -> "RemoteFiles":
        from olmorl_cli.rollouts.remote import RemoteFiles

        return RemoteFiles(self.name)

    @contextmanager
    def sink(self, part: str) -> Iterator[IO[bytes]]:
        with temporary_file() as copy:
            yield copy
            copy.flush()
            self._files().put(copy, f"{self.name.rstrip('/')}/{part}")

    def settle(self, parts: Sequence[str]) -> None:
        files, folder = self._files(), self.name.rstrip("/")
        there = [uri.rpartition("/")[2] for uri in files.matching(f"{folder}/{PARTS}")]
        files.remove([f"{folder}/{old}" for old in there if old not in parts])

    def discard(self) -> None:
        """Nothing is to be taken away: what is there is whole."""
