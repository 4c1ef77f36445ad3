"""`Endpoint`: a real HTTP server that notifications are posted to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class Endpoint:
    """Answers each POST with the next of `answers` (the last one from then on) and keeps what it got.

    A status is answered at once, `hang` never, `drop` by closing the connection, `trickle` with hints that an answer comes, one after the
    other, `endless` with 200 and a body that doesn't end; 301 to 308 redirect to `location`.
    """

    def __init__(self, *answers: int | str, location: str = "") -> None:
        self.posts: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        left = list(answers or (200,))
        endpoint = self
        self._closing = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.posts.append(json.loads(body))
                endpoint.headers.append(dict(self.headers.items()))
                answer = left.pop(0) if len(left) > 1 else left[0]
                if answer == "hang":
                    endpoint._closing.wait(30)
                elif answer == "trickle":
                    while not endpoint._closing.wait(0.1):
                        self.send_response_only(103)
                        self.end_headers()
                elif answer == "endless":
                    self.send_response(200)
                    self.end_headers()
                    while not endpoint._closing.is_set():
                        self.wfile.write(b"x" * 65_536)
                elif isinstance(answer, int):
                    self.send_response(answer)
                    if 300 < answer < 400:
                        self.send_header("Location", location)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """The test says what matters."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that goes away is part of the tests."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
