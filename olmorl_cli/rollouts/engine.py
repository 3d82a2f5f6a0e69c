"""Who works on the fragments of the input: threads of this process, or anything else that maps a function over them."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from olmorl_cli.rollouts.files import DataFile, Fragment
from olmorl_cli.rollouts.parallel import REMOTE_READERS, cores, in_order

R = TypeVar("R")
Item = tuple[DataFile, Fragment, tuple[Any, ...]]
"""A fragment, its file, and what else the work on it needs."""


class Engine(Protocol):
    """Maps work over fragments."""

    away: bool
    """Whether the work is done in other processes: these must be able to open the files, and the work, what it needs and
    what it makes of it must be ones that can be sent there and back."""

    def start(self) -> None:
        """Be ready for work.

        Raises:
            InputError: it cannot be.
        """

    def map(self, work: Callable[..., R], items: Iterable[Item]) -> Iterator[R]:
        """`work` on every item, results in the items' order, a bounded number of them in flight.

        Raises:
            OlmorlError: what the work raises; a fragment is done wholly or not at all.
        """


class Threads:
    """As many threads of this process as it has cores; a few at least where files come over a network."""

    away = False

    def start(self) -> None:
        """Nothing is to be done."""

    def map(self, work: Callable[..., R], items: Iterable[Item]) -> Iterator[R]:
        items = iter(items)
        first = list(itertools.islice(items, 1))
        remote = any(file.source.remote for file, _, _ in first)
        threads = max(cores(), REMOTE_READERS) if remote else cores()
        return in_order(lambda item: work(item[0], item[1], *item[2]), itertools.chain(first, items), threads)
