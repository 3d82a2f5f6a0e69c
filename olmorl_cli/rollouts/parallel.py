"""Work on all cores, with results in order and a bounded number of items in flight; the memory that it takes."""

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

REMOTE_AT_ONCE = 16
"""Files and folders behind URIs that are asked for at a time."""
REMOTE_READERS = 4
"""Threads at least that read over a network: they wait more than they work."""


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> float:
    """Bytes of memory that this machine has; infinite where it does not tell."""
    names = ("SC_PAGE_SIZE", "SC_PHYS_PAGES")
    sizes = [os.sysconf(name) for name in names] if set(names) <= set(getattr(os, "sysconf_names", ())) else []
    return float(sizes[0] * sizes[1]) if sizes and min(sizes) > 0 else float("inf")


_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""What glibc's mallopt calls the settings."""


def keep_freed_memory() -> None:
    """Let this process use freed memory again for its next array; no effect where the C library is not glibc.

    Left alone, glibc gives a large array back to the system at once and asks for the next one anew, and on a virtual
    machine a fresh page costs more than the arithmetic on it. Nor does what one thread frees serve those that draw on
    another part of the memory, so there are no more parts than cores.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_M_MMAP_MAX, 0)
            library.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
            library.mallopt(_M_ARENA_MAX, cores())


def lots(items: Iterable[T], size_of: Callable[[T], int], enough: int) -> Iterator[list[T]]:
    """The items in lots that add up to `enough`, but for what is left at the end."""
    held: list[T] = []
    size = 0
    for item in items:
        held.append(item)
        size += size_of(item)
        if size >= enough:
            yield held
            held, size = [], 0
    if held:
        yield held


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, each made in another thread while the one before it is worked on."""
    end = object()
    with ExitStack() as stack:
        stack.callback(getattr(items, "close", lambda: None))  # a generator lets its file go
        pool = stack.enter_context(ThreadPoolExecutor(1))
        coming: Future[T | object] = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int | None = None) -> Iterator[R]:
    """`work` on every item, in threads, results in the items' order; NumPy and Arrow let threads run side by side.

    There are as many threads as cores, unless told otherwise.
    """
    threads = threads or cores()
    with ThreadPoolExecutor(threads) as pool:
        running: deque[Future[R]] = deque()
        try:
            for item in items:
                running.append(pool.submit(work, item))
                if len(running) > threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()
