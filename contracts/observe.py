"""What a deployable shows of itself: structured logs, `/health` and `/metrics`."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from structlog.typing import Processor

from contracts.errors import HeadraceError
from contracts.settings import HttpSettings, Settings

_log = structlog.get_logger(__name__)


def configure_logging(settings: Settings, *, service: str) -> None:
    """Send every log line, those of libraries too, to stderr as `settings` say, stamped with `service` and UTC time."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]

    def stamp(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        event["service"] = service
        return event

    shared.append(stamp)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    rendered: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if settings.log_format == "json":
        rendered += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    else:
        rendered += [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendered))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level)
    # One line for each request at INFO, which is noise.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


class HealthServer:
    """Serves `GET /health` and `GET /metrics` until it is closed; `serve_health` makes it."""

    def __init__(self, http: HttpSettings, healthy: Callable[[], str | None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # seconds that a client may take for its request

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                if path == "/health":
                    reason = _reason(healthy)
                    self._answer(200 if reason is None else 503, "text/plain; charset=utf-8", reason or "ok")
                elif path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest().decode())
                else:
                    self._answer(404, "text/plain; charset=utf-8", "there are /health and /metrics")

            def _answer(self, status: int, media_type: str, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes come every few seconds: no line for each."""

        try:
            self._server = ThreadingHTTPServer((http.host, http.port), Handler)
        except OSError as error:
            raise HeadraceError(f"cannot serve /health on {http.host}:{http.port}: {error.strerror}") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that it listens on; a free one if the settings said 0."""
        return self._server.server_port

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_health(http: HttpSettings, *, service: str, healthy: Callable[[], str | None]) -> HealthServer:
    """Serve `/health` (200, or 503 with the reason that `healthy` gives) and Prometheus' `/metrics` in the background.

    `healthy` is called from other threads and returns None when all is well. Raises HeadraceError if the port is taken.
    """
    server = HealthServer(http, healthy)
    _log.info("serving", port=server.port, service=service)
    return server


def _reason(healthy: Callable[[], str | None]) -> str | None:
    try:
        return healthy()
    except Exception as error:  # noqa: BLE001  a check that cannot be made is not a healthy one
        return f"{type(error).__name__}: {error}"
