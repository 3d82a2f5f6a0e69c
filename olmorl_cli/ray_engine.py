"""Work on fragments as tasks of a Ray cluster, which schedules them, moves what they need, and does them again where a
worker or a node is lost."""

import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from olmorl_cli import __version__
from olmorl_cli.errors import InputError, OlmorlError, OutputError
from olmorl_cli.rollouts.engine import Item
from olmorl_cli.rollouts.parallel import cores

R = TypeVar("R")

TRIES = 3
"""Times that is tried what cannot be read: another worker, or another moment, may have more luck."""
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent anywhere
    "RAY_NUM_REDIS_GET_RETRIES": "3",  # tries to reach the head
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning, once for each process
}
"""Environment of Ray, where the user's own does not set it."""
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""With which HTTP/2 begins: its preface and empty settings."""
CONNECT_SECONDS = 10
"""How long the head of a cluster is waited for."""
IN_FLIGHT = 2
"""Tasks for each core of the cluster that are given out at a time."""


@dataclass(frozen=True)
class _Done:
    """What a task made of its item, or the error that it ended with."""

    value: Any = None
    error: OlmorlError | None = None


class RayEngine:
    """Tasks on a Ray cluster, one for each part of the input.

    A cluster that is started here ends with this process.
    """

    away = True

    def __init__(self, address: str | None) -> None:
        """Take the cluster at an address as `ray.init` knows them; None starts one on this machine."""
        self._address = address
        self._task: Any = None

    def map(self, work: Callable[..., R], items: Iterable[Item], remote: bool = False) -> Iterator[R]:  # noqa: ARG002
        import ray

        shared, task = ray.put(work), self._task
        most = IN_FLIGHT * max(int(ray.cluster_resources().get("CPU", 1)), 1)
        laid = _LaidDown()
        running: deque[tuple[Any, Callable[[], Any]]] = deque()

        def give(item: Item) -> None:
            first = laid.put(item[0])

            def again() -> Any:
                return task.remote(shared, first, item[1:], __version__)

            running.append((again(), again))

        try:
            for item in items:
                give(item)
                if len(running) >= most:
                    yield self._result(*running.popleft())
            while running:
                yield self._result(*running.popleft())
        finally:
            for reference, _ in running:
                with suppress(Exception):
                    ray.cancel(reference, force=True)

    def _result(self, reference: Any, again: Callable[[], Any]) -> Any:
        """What a task has made, done again where it could not read.

        Raises:
            OlmorlError: it could not read in the end, or the data are wrong.
        """
        import ray

        for left in range(TRIES - 1, -1, -1):
            try:
                done: _Done = ray.get(reference)
            except ray.exceptions.RayError as error:
                raise _failure(error) from error
            if done.error is None:
                return done.value
            if left == 0 or not isinstance(done.error, InputError | OutputError):
                raise done.error
            reference = again()
        raise AssertionError

    def start(self) -> None:
        """Reach the cluster, or start one.

        Raises:
            InputError: it cannot be reached.
        """
        for name, value in SETTINGS.items():
            os.environ.setdefault(name, value)
        import ray

        here = {"address": "local", "num_cpus": cores(), "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        options: dict[str, Any] = here if self._address is None else {"address": self._address}
        try:
            _reach(self._address)
            with _silenced(), _plain_signals():
                ray.init(**options, logging_level=logging.CRITICAL, log_to_driver=False)
        except Exception as error:  # many kinds, from connection errors to assertions
            shown = (self._address or "").rpartition("@")[2]  # before it stand secrets
            where = f"no Ray cluster at {shown}" if self._address else "a Ray cluster cannot be started here"
            said = _first_line(error).replace(self._address or shown, shown)
            raise InputError(
                f"--engine ray: {where}: {said}. Check the address, that versions of Ray are the same, and"
                " whether the cluster wants a token (RAY_AUTH_MODE=token)"
            ) from error
        # On lost workers Ray prints a message to standard output, which is for the result.
        ray._private.worker.print_to_stdstream = lambda *_, **__: None
        self._task = ray.remote(num_cpus=1, max_retries=-1)(_work)


class _LaidDown:
    """What items begin with, a file mostly, laid into the cluster's store once for all that follow each other."""

    def __init__(self) -> None:
        self._first: Any = None
        self._reference: Any = None

    def put(self, first: Any) -> Any:
        import ray

        if first is not self._first:
            self._first, self._reference = first, ray.put(first)
        return self._reference


def _work(work: Callable[..., Any], first: Any, others: tuple[Any, ...], version: str) -> _Done:
    """On a worker: the work on an item. What a user can mend is returned, not raised, so that it comes back as it is."""
    if version != __version__:
        return _Done(error=OlmorlError(f"--engine ray: a worker has olmorl {__version__}, this is {version}. Install one"))
    try:
        return _Done(work(first, *others))
    except OlmorlError as error:
        return _Done(error=error)


def _reach(address: str | None) -> None:
    """Ask whether anybody listens at HOST:PORT and answers to HTTP/2, which Ray's head speaks: Ray itself would wait for
    minutes, and fill the screen with warnings.

    Raises:
        OSError, OverflowError: nobody does.
    """
    host, _, port = (address or "").rpartition(":")
    if port.isdigit() and "://" not in host:
        with socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS) as head:
            head.sendall(HELLO)
            head.recv(1)


@contextmanager
def _silenced() -> Iterator[None]:
    """Keeps what Ray's libraries write to standard error from it: what matters comes as an error."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextmanager
def _plain_signals() -> Iterator[None]:
    """Lets signals end the process at once while Ray waits in its own code, and keeps what they do here after that."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with suppress(ValueError):  # not in the main thread
        for number in handlers:
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            with suppress(ValueError):
                signal.signal(number, handler)


def _failure(error: Exception) -> OlmorlError:
    """What is said of a task that Ray could not bring to an end."""
    cause = getattr(error, "cause", None) or error
    said = _first_line(cause)
    if isinstance(cause, ModuleNotFoundError) or "ModuleNotFoundError" in str(error):
        return InputError(
            f"--engine ray: a worker lacks what it needs: {said}. Install olmorl-cli {__version__} on every node"
        )
    return InputError(f"--engine ray: a task could not be done: {said}. Look into the cluster's logs")


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
