"""`SourceTopic`: whether a topic is still the one that was read."""

from __future__ import annotations

import time

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from contracts.servers.brokers import topic_ids
from contracts.settings import KafkaSettings
from spark.runtime.errors import PositionsDisagree

_CHECK_SECONDS = 5.0
_TIMEOUT_SECONDS = 10.0
_RUNNING_SECONDS = 2.0
"""Shorter while a query runs, twice that at most: whoever checks has others to look at."""

_log = structlog.get_logger(__name__)


def topic_id(kafka: KafkaSettings, topic: str) -> str | None:
    """Another one once the topic was deleted and made anew; None without such a topic, or where nobody says: the controller has to be there."""
    return _id_of(_admin(kafka), topic, _TIMEOUT_SECONDS)


def _admin(kafka: KafkaSettings) -> AdminClient:
    return AdminClient({**kafka.client_config(), "log_level": 0})


def _id_of(admin: AdminClient, topic: str, seconds: float) -> str | None:
    try:
        return topic_ids(admin, [topic], seconds).get(topic)
    except KafkaException as error:
        _log.warning("no look whether the topic is the same", topic=topic, error=str(error))
        return None


class SourceTopic:
    """A topic while it is read: Spark goes on in one that was made anew if that is longer than what it has read."""

    def __init__(self, kafka: KafkaSettings, topic: str) -> None:
        self._admin, self._topic = _admin(kafka), topic
        self._id: str | None = None
        self._check_at = 0.0

    def expect(self, known: str | None) -> None:
        """That it has this id, which it had when it was found out where to go on; None: nobody knows."""
        self._id, self._check_at = known, 0.0

    def check(self) -> None:
        """Every 5 s at most, raise PositionsDisagree if it is another one than is expected, or than at the first look. Brokers that don't answer say
        nothing.
        """
        if time.monotonic() < self._check_at:
            return
        now = _id_of(self._admin, self._topic, _RUNNING_SECONDS)
        if now is not None and self._id is not None and now != self._id:
            raise PositionsDisagree(
                f"{self._topic} was made anew while it was read: its id was {self._id}, and is {now}. Start again, which says where "
                "to go on"
            )
        self._id = now or self._id
        self._check_at = time.monotonic() + _CHECK_SECONDS
