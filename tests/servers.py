"""Servers on the loopback interface that give a test's files: one that speaks S3, and one of HTTP with every fault."""

import http.server
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEYS = {"AWS_ACCESS_KEY_ID": "someone", "AWS_SECRET_ACCESS_KEY": "s3cret-key", "AWS_DEFAULT_REGION": "us-east-1"}
"""What any S3 server here takes for credentials."""


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def object_store() -> Iterator[str]:
    """A server that speaks S3, in a process of its own; its address. It is an error if it does not start."""
    port = free_port()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=said, stderr=said)
        try:
            for _ in range(600):
                if process.poll() is not None:
                    break
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    yield f"http://127.0.0.1:{port}"
                    return
                except OSError:
                    time.sleep(0.1)
            said.seek(0)
            raise AssertionError(f"the S3 server does not start: {said.read().decode()}")
        finally:
            process.kill()
            process.wait()


class WebServer(http.server.ThreadingHTTPServer):
    """Gives the files of a folder, as `with WebServer(folder) as server`.

    Attributes:
        ranges: it gives parts of files; else always the whole.
        length: it says how long files are.
        status: it answers everything with this.
        cuts: answers with parts of files, but those of a few bytes, that still break off in the middle.
        requests: method, path, Range and Authorization of each.
        sent: bytes of file contents, in all.
    """

    daemon_threads = True

    def __init__(self, folder: Path, *, ranges: bool = True, length: bool = True, status: int = 200, cuts: int = 0) -> None:
        self.folder, self.ranges, self.length, self.status, self.cuts = folder, ranges, length, status, cuts
        self.requests: list[tuple[str, str, str | None, str | None]] = []
        self.sent = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    def __enter__(self) -> "WebServer":
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """A client that leaves early is none."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        server, path = self.server, self.server.folder / self.path.partition("?")[0].strip("/")
        wanted = self.headers.get("Range")
        server.requests.append((self.command, self.path, wanted, self.headers.get("Authorization")))
        if server.status != 200 or not path.exists():
            self._send(404 if server.status == 200 else server.status, {"Content-Length": "0"})
        elif path.is_dir():
            names = [each.name + ("/" if each.is_dir() else "") for each in path.iterdir()]
            page = "".join(f'<a href="{name.replace("=", "%3D")}">{name}</a>' for name in names).encode()
            self._send(200, {"Content-Type": "text/html", "Content-Length": str(len(page))}, page * with_body)
        else:
            self._send_file(path.read_bytes(), wanted, with_body)

    def _send_file(self, data: bytes, wanted: str | None, with_body: bool) -> None:
        size, status, headers = len(data), 200, {}
        if wanted and self.server.ranges:
            first, last = map(int, re.findall(r"\d+", wanted))
            data, status = data[first : last + 1], 206
            headers["Content-Range"] = f"bytes {first}-{first + len(data) - 1}/{size}"
        if self.server.length:
            headers["Content-Length"] = str(len(data))
        else:
            headers["Connection"] = "close"
            self.close_connection = True
        if status == 206 and self.server.cuts and len(data) > 64:
            self.server.cuts -= 1
            data, self.close_connection = data[: len(data) // 2], True
        self.server.sent += len(data) * with_body
        self._send(status, headers, data * with_body)

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def environment_of(address: str) -> dict[str, str]:
    """Variables with which s3:// leads to this address, and to nobody's real keys."""
    return KEYS | {"AWS_ENDPOINT_URL": address, "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true"}
