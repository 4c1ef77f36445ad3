"""What may stand between a client and the registry: answers of its own at first, then it lets everything through.

Or it is a node of the registry that lags behind.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

HANG_UP = 0
"""In place of a status: close the connection without an answer."""
HANG = -1
"""In place of a status: no answer while this outage lasts."""


@dataclass
class Gateway:
    """Answers with each of `answers` (status, body) once, or with the last one for ever if there is nothing behind; between
    `fail` and `heal` with that failure alone.
    """

    behind: str | None
    answers: list[tuple[int, str]]
    seen: list[httpx.Headers] = field(default_factory=list)
    url: str = ""
    _failure: tuple[int, str] | None = None
    _healed: threading.Event = field(default_factory=threading.Event)
    _copy: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    _behind_for: int = 0

    def fail(self, status: int, body: str = "") -> None:
        self._healed.clear()
        self._failure = (status, body)

    def lag(self, answers: int) -> None:
        """Give so many answers as those were before; what was not asked for before is not there yet."""
        self._behind_for = answers

    def heal(self) -> None:
        self._failure = None
        self._healed.set()

    def answer(self, method: str, path: str, headers: httpx.Headers, body: bytes) -> tuple[int, bytes]:
        self.seen.append(headers)
        if self._failure is not None:
            status, text = self._failure
            if status == HANG:
                self._healed.wait(60)
                return HANG_UP, b""
            return status, text.encode()
        if self.answers and (self.behind is None or len(self.seen) <= len(self.answers)):
            status, text = self.answers[min(len(self.seen), len(self.answers)) - 1]
            return status, text.encode()
        if method == "GET" and self._behind_for:
            self._behind_for -= 1
            code = 40403 if path.startswith("/schemas/ids/") else 40402
            nothing = 404, json.dumps({"error_code": code, "message": "not found"}).encode()
            return self._copy.get(path, nothing)
        response = httpx.request(
            method, f"{self.behind}{path}", content=body, headers={"Content-Type": headers["content-type"]}
        )
        if method == "GET":
            self._copy[path] = response.status_code, response.content
        return response.status_code, response.content


@contextmanager
def a_gateway(
    behind: str | None, *, answers: Sequence[tuple[int, str]] = (), tls: ssl.SSLContext | None = None
) -> Iterator[Gateway]:
    """A gateway on a free port, to the registry at the URL `behind` or to nothing."""
    gateway = Gateway(behind, list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = httpx.Headers(list(self.headers.items()))
            status, answer = gateway.answer(self.command, self.path, headers, body)
            if status == HANG_UP:
                return
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_POST = do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    gateway.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield gateway
    finally:
        gateway.heal()
        server.shutdown()
        server.server_close()
        thread.join()
