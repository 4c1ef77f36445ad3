"""How every replaying service runs: from its settings to its exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import structlog

from contracts.command_line import set_on_signals
from contracts.dead_letters.topic import DeadLetterTopic
from contracts.definitions.catalog import load_catalog
from contracts.errors import HeadraceError
from contracts.handle import Topic
from contracts.observe import configure_logging, serve_health
from contracts.publisher import Publisher
from contracts.servers.provision import check_limits
from contracts.servers.registry import Registry
from contracts.settings import read_settings
from services.replay.clock_topic import ClockTopic
from services.replay.position import START
from services.replay.progress import read_progress
from services.replay.replayer import Replayer
from services.replay.settings import ReplayingSettings
from services.replay.table import Row, Table
from services.replay.tails import Tails
from services.replay.timeline import Timeline, Told

_log = structlog.get_logger(__name__)


def run_service(
    service: str,
    table: Callable[[], Table],
    convert: Callable[[Row], Told | Sequence[Told]],
    identify: Callable[[Any], str],
    topics: Sequence[Topic[Any]],
) -> int:
    """Replay `table` to `topics`, each row as `convert` says, until the end of the replay, SIGTERM or SIGINT.

    `identify` gives an event's id. Unfit rows go to the dead letters of the first topic. Returns the exit status: 0
    also when stopped, 1 when Kafka or the registry refuse.
    """
    settings = read_settings(ReplayingSettings)
    configure_logging(settings, service=service)
    stop = Event()
    set_on_signals(stop)
    try:
        with serve_health(settings.http, service=service, healthy=lambda: None):
            catalog = load_catalog()
            contracts = [catalog.topic(each.name) for each in topics]
            written = [name for each in contracts for name in (each.name, each.dead_letter_topic)]
            check_limits(settings.kafka, catalog, written)
            timeline = Timeline(table(), convert, identify, topics, catalog)
            with (
                Registry(settings.registry) as registry,
                # The next run goes on behind the newest record that is there.
                Publisher(
                    settings,
                    catalog=catalog,
                    registry=registry,
                    service=service,
                    topics=topics,
                    gapless=True,
                    stop=stop,
                ) as publisher,
                ClockTopic(settings.kafka, registry, catalog) as clocks,
            ):
                with Tails(settings.kafka) as tails:
                    letters = DeadLetterTopic(settings.kafka, catalog, registry, topics[0].name)
                    progress = read_progress(timeline.streams, tails, service, letters.settled_digests)
                for stream, upto in progress.upto.items():
                    _log.info("resuming", topic=stream, after=None if upto == START else upto.occurred_at)
                ended = Replayer(timeline, progress, clocks, publisher).run(stop, limit=settings.limit)
            _log.info("ended", why=ended)
    except HeadraceError as error:
        _log.error("the service ends, start it again when this is cured", error=str(error))
        return 1
    return 0
