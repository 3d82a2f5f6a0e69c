"""Clusters of Ray on the loopback interface, made of real processes: a head, and nodes that come and go."""

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.servers import free_port

STARTED = 60
"""Seconds that a node has to come up."""


class Cluster:
    """A head and as many further nodes as are added, one core each.

    Attributes:
        address: of the head.
        environment: variables with which commands reach it.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
        self.environment = {**token, "RAY_ADDRESS": self.address, **variables}
        self._folder = tempfile.mkdtemp(prefix="ray")  # short: sockets' paths have little room
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._said = Path(self._folder, "said")

    def __enter__(self) -> "Cluster":
        port = self.address.rpartition(":")[2]
        self._start("--head", "--port", port, "--include-dashboard", "false", "--temp-dir", self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        for node in reversed(self._nodes):
            _end(node)
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self) -> subprocess.Popen[bytes]:
        """One more node."""
        return self._start("--address", self.address)

    def remove(self, node: subprocess.Popen[bytes]) -> None:
        """The node and all that runs on it die at once."""
        self._nodes.remove(node)
        _end(node)

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [os.path.join(os.path.dirname(sys.executable), "ray"), "start", "--block", "--num-cpus", "1", *options]
        command += ["--node-ip-address", "127.0.0.1", "--disable-usage-stats", "--object-store-memory", str(200 << 20)]
        known = self._alive()
        with self._said.open("ab") as said:
            node = subprocess.Popen(
                command, stdout=said, stderr=said, env={**os.environ, **self.environment}, start_new_session=True
            )
        self._nodes.append(node)
        for _ in range(STARTED * 10):
            if node.poll() is not None:
                break
            if self._alive() > known:
                return node
            time.sleep(0.1)
        raise AssertionError(f"a node does not come up: {self._said.read_text(errors='replace')[-2000:]}")

    def _alive(self) -> int:
        """How many nodes have said that they run."""
        said = self._said.read_text(errors="replace") if self._said.exists() else ""
        return len(re.findall("Ray runtime started", said))

    def workers(self) -> list[int]:
        """Processes that do, or wait for, tasks of this cluster."""
        nodes, found = {node.pid for node in self._nodes}, []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                named = (entry / "cmdline").read_bytes().startswith((b"ray::_work", b"ray::IDLE"))
                if named and os.getsid(int(entry.name)) in nodes:
                    found.append(int(entry.name))
        return found


def _end(node: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()
