"""`python -m services.hires`: publishes hires until it is stopped, twenty a second."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from itertools import count
from threading import Event
from uuid import uuid4

import structlog

from contracts import topics
from contracts.command_line import command_line, set_on_signals
from contracts.errors import HeadraceError
from contracts.observe import configure_logging, serve_health
from contracts.publisher import Publisher
from contracts.settings import Settings, read_settings
from services.hires.event import hire

_log = structlog.get_logger(__name__)

SERVICE = "hires"
_SECONDS = 0.05


def main() -> int:
    """Publish until SIGTERM or SIGINT; the exit status."""
    command_line("services.hires", __doc__).parse_args()
    settings = read_settings(Settings)
    configure_logging(settings, service=SERVICE)
    stop = Event()
    set_on_signals(stop)
    written = [topics.HIRES_STARTED, topics.HIRES_ENDED]
    try:
        with (
            serve_health(settings.http, service=SERVICE, healthy=lambda: None),
            Publisher(settings, service=SERVICE, topics=written) as publisher,
        ):
            for number in count():
                started, ended = hire(f"H-{uuid4()}", number, datetime.now(UTC))
                publisher.publish(topics.HIRES_STARTED, started, event_id=f"{started.hire_id}-started")
                publisher.publish(topics.HIRES_ENDED, ended, event_id=f"{ended.hire_id}-ended")
                if stop.wait(_SECONDS):
                    break
    except HeadraceError as error:
        _log.error("stopped", error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
