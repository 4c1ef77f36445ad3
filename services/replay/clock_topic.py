"""`ClockTopic`: the shared replay clock, as its topic tells it."""

from __future__ import annotations

import time
from datetime import datetime
from types import TracebackType
from typing import Self

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError, DecodeError
from contracts.events import ReplayStarted
from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.settings import KafkaSettings
from services.replay.clock import ReplayClock

_log = structlog.get_logger(__name__)


class ClockTopic:
    """Reads the one partition of `replay.started.v1` from its beginning and goes on reading; use it in a `with`."""

    def __init__(self, kafka: KafkaSettings, registry: Registry, catalog: Catalog) -> None:
        self._codec = Codec(registry.by_id, reader_schema=catalog.schema(topics.REPLAY_STARTED.name))
        self._newest: ReplayClock | None = None
        self._begins_at: datetime | None = None
        self._consumer = Consumer(
            kafka.client_config()
            | {
                "group.id": "headrace-replay-clock",  # the client wants one; no group is joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        self._consumer.assign([TopicPartition(topics.REPLAY_STARTED.name, 0, OFFSET_BEGINNING)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    @property
    def begins_at(self) -> datetime | None:
        """The earliest event time that any clock was set to: what happened before it is not part of the replay."""
        return self._begins_at

    def newest(self, wait_seconds: float = 0.0) -> ReplayClock | None:
        """The clock in force; None if none was set yet. Reads to the end of the topic, waiting for it if asked to."""
        deadline = time.monotonic() + wait_seconds
        while (message := self._consumer.poll(max(0.0, deadline - time.monotonic()))) is not None:
            if self._is_end(message):
                break
            self._take(message)
        return self._newest

    def _is_end(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        raise ConsumeError(f"{topics.REPLAY_STARTED.name}: {error.str()}")

    def _take(self, message: Message) -> None:
        try:
            started = ReplayStarted.model_validate(self._codec.decode(message.value() or b""))
        except (DecodeError, ValueError) as error:
            _log.error("clock record passed over: set the clock anew", offset=message.offset(), error=str(error))
            return
        if started.speed <= 0:
            _log.error("clock record passed over: set the clock anew", offset=message.offset(), error="speed <= 0")
            return
        self._newest = ReplayClock.of(started)
        self._begins_at = started.event_at if self._begins_at is None else min(self._begins_at, started.event_at)
        _log.info("replay clock", event_at=started.event_at, speed=started.speed, until_at=started.until_at)
