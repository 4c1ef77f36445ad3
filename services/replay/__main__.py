"""`python -m services.replay`: sets the replay clock, once."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import structlog

from contracts import topics
from contracts.command_line import command_line
from contracts.definitions.catalog import Catalog, load_catalog
from contracts.errors import HeadraceError
from contracts.events import ReplayStarted
from contracts.observe import configure_logging
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from contracts.settings import read_settings
from services.replay.position import START
from services.replay.settings import ClockSettings
from services.replay.tails import Tails

_log = structlog.get_logger(__name__)

SERVICE = "replay"


def main() -> int:
    """Publish the clock that the arguments and the environment describe; the exit status."""
    settings = read_settings(ClockSettings, **_arguments())
    configure_logging(settings, service=SERVICE)
    catalog = load_catalog()
    try:
        with (
            Registry(settings.registry) as registry,
            Publisher(
                settings, catalog=catalog, registry=registry, service=SERVICE, topics=[topics.REPLAY_STARTED]
            ) as publisher,
        ):
            with Tails(settings.kafka) as tails:
                event_at = settings.from_at or furthest(catalog, tails) or settings.data_start_at
            if event_at is None:
                _log.error(
                    "nothing is replayed yet: say where the data begin by --data-start, or where to begin by --from"
                )
                return 1
            clock = ReplayStarted(
                event_at=event_at, wall_at=datetime.now(UTC), speed=settings.speed, until_at=settings.until_at
            )
            publisher.publish(topics.REPLAY_STARTED, clock, event_id=f"{clock.wall_at:%Y%m%dT%H%M%S.%fZ}")
    except HeadraceError as error:
        _log.error("the replay clock is not set, try again when this is cured", error=str(error))
        return 1
    _log.info("replay clock set", event_at=event_at, speed=settings.speed, until_at=settings.until_at)
    return 0


def furthest(catalog: Catalog, tails: Tails) -> datetime | None:
    """The latest event time that a replaying service has published; None if none has published anything.

    Raises ConsumeError.
    """
    services = catalog.topic(topics.REPLAY_STARTED.name).consumers
    newest = [
        next(tails.positions(contract.name, partition, service))
        for contract in catalog.topics.values()
        for service in contract.producers
        if service in services
        for partition in tails.partitions(contract.name)
    ]
    latest = max(newest, default=START)
    return None if latest == START else latest.occurred_at


def _arguments() -> dict[str, str]:
    parser = command_line("services.replay", __doc__)
    parser.add_argument("--speed", help="seconds of event time per second (default: a week in ten minutes)")
    parser.add_argument("--from", dest="from_at", help="event time to begin at, e.g. 2026-06-01T00:00Z")
    parser.add_argument("--data-start", dest="data_start_at", help="event time to begin at if nothing is replayed yet")
    parser.add_argument("--until", dest="until_at", help="event time to end at (default: the end of the data)")
    return {name: value for name, value in vars(parser.parse_args()).items() if value is not None}


if __name__ == "__main__":
    sys.exit(main())
