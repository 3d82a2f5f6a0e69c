"""Ctrl-C: ends the process at once, but where something has to be put back first. Imports next to nothing."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130


def leave(number: int, frame: object) -> None:  # noqa: ARG001
    """The handler of Ctrl-C while nothing has to be put back; an exception could be lost, or come out as another."""
    os._exit(INTERRUPTED)


@contextmanager
def held_back() -> Iterator[None]:
    """A block that Ctrl-C and SIGTERM wait for, where stopping in the middle would leave a half."""
    if threading.current_thread() is not threading.main_thread():  # which alone gets signals
        yield
        return
    came: list[int] = []
    # To block them would not do: another thread would take them, and their handlers run here all the same.
    handlers = {number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for each in came:
            signal.raise_signal(each)


class PuttingBack:
    """A block in which Ctrl-C raises KeyboardInterrupt, so that what it has begun is put back."""

    def __enter__(self) -> None:
        self._ours = signal.getsignal(signal.SIGINT) is leave
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, leave)
