"""`Broker`: what the brokers say of topics and groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from contracts.servers.brokers import list_offsets, retried, topic_ids
from services.audit.errors import CouldNotAudit

_TIMEOUT_SECONDS = 10.0
_STABLE_SECONDS = 30.0
"""Until the successor of a pipeline that was killed in the middle of a commit has ended its transaction."""

T = TypeVar("T")


class Broker:
    """Every method raises CouldNotAudit when the brokers don't answer."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        """`kafka` are librdkafka properties."""
        self._config: dict[str, str | int | float | bool] = {**kafka, "log_level": 0}
        self._admin = AdminClient(self._config)
        self._servers = kafka["bootstrap.servers"]

    def topic_id(self, topic: str) -> str | None:
        """The topic's identity: another one once it was deleted and made anew. None: there is no such topic."""
        return self._answer(lambda: topic_ids(self._admin, [topic], _TIMEOUT_SECONDS)).get(topic)

    def starts(self, topic: str) -> dict[int, int]:
        """For each partition the first offset that it still has."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._offsets(topic, earliest, IsolationLevel.READ_UNCOMMITTED)

    def ends(self, topic: str, *, stable: bool = True) -> dict[int, int]:
        """For each partition the offset after the last one; `stable`: of those before the first open transaction."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(
            topic, latest, IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        )

    def taken_in(self, group: str, topic: str) -> dict[int, int]:
        """The group's committed offsets; a partition without any is left out."""
        found = self._committed(group, topic, "read_uncommitted", _TIMEOUT_SECONDS)
        return {each.partition: each.offset for each in found}

    def _committed(self, group: str, topic: str, isolation: str, seconds: float) -> list[TopicPartition]:
        asked = [TopicPartition(topic, each) for each in self._partitions(topic)]

        def committed() -> list[TopicPartition]:
            # Not by an admin client: that ends the process by a segmentation fault when the group's coordinator is away.
            with closing(Consumer({**self._config, "group.id": group, "isolation.level": isolation})) as reader:
                return [each for each in reader.committed(asked, timeout=seconds) if each.offset >= 0]

        return self._answer(committed)

    def notes(self, group: str, topic: str) -> dict[int, str]:
        """What stands beside the group's committed offsets, none that an open transaction may still change; a partition without any is left out."""
        return {
            each.partition: each.metadata or ""
            for each in self._committed(group, topic, "read_committed", _STABLE_SECONDS)
        }

    def _offsets(self, topic: str, spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, int]:
        partitions = self._partitions(topic)
        return self._answer(lambda: list_offsets(self._admin, topic, partitions, spec, isolation, _TIMEOUT_SECONDS))

    def _partitions(self, topic: str) -> list[int]:
        def described() -> list[int]:
            # Not `list_topics`, which makes a topic where the brokers let it.
            asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_SECONDS)[topic]
            try:
                return sorted(each.id for each in asked.result().partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
                return []

        if found := self._answer(described):
            return found
        raise CouldNotAudit(f"{topic}: there is no such topic: `headrace topics create` makes the contracts' topics")

    def _answer(self, ask: Callable[[], T]) -> T:
        try:
            return retried(ask, _TIMEOUT_SECONDS)
        except KafkaException as error:
            raise CouldNotAudit(f"the brokers at {self._servers} say: {error.args[0].str()}") from error
