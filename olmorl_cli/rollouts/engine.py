"""Who works on the parts of the input: threads of this process, or anything else that maps a function over them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from olmorl_cli.rollouts.parallel import REMOTE_READERS, cores, in_order

R = TypeVar("R")
Item = tuple[Any, ...]
"""What the work on one part of the input takes. The first is often that of the item before it: the file of a fragment."""


class Engine(Protocol):
    """Maps work over parts of the input: fragments, or shares of the answers."""

    away: bool
    """Whether the work is done in other processes: these must be able to open the files, and the work, what it needs and
    what it makes of it must be ones that can be sent there and back."""

    def start(self) -> None:
        """Be ready for work.

        Raises:
            InputError: it cannot be.
        """

    def map(self, work: Callable[..., R], items: Iterable[Item], remote: bool = False) -> Iterator[R]:
        """`work` on every item, results in the items' order, a bounded number of them in flight.

        Args:
            work: takes what an item holds.
            items: what is to be done.
            remote: it is done to files that come over a network.

        Raises:
            OlmorlError: what the work raises; an item is done wholly or not at all.
        """


class Threads:
    """As many threads of this process as it has cores; a few at least where files come over a network."""

    away = False

    def start(self) -> None:
        """Nothing is to be done."""

    def map(self, work: Callable[..., R], items: Iterable[Item], remote: bool = False) -> Iterator[R]:
        threads = max(cores(), REMOTE_READERS) if remote else cores()
        return in_order(lambda item: work(*item), items, threads)


class OneThread:
    """The thread that asks: for work inside of other work."""

    away = False

    def start(self) -> None:
        """Nothing is to be done."""

    def map(self, work: Callable[..., R], items: Iterable[Item], remote: bool = False) -> Iterator[R]:  # noqa: ARG002
        return (work(*item) for item in items)
