"""`Broker`: what the brokers say of topics and groups."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from services.audit.errors import CouldNotAudit

_TIMEOUT_SECONDS = 30.0


class Broker:
    """Every method raises CouldNotAudit when the brokers don't answer."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        """`kafka` are librdkafka properties."""
        self._admin = AdminClient({**kafka, "log_level": 0})
        self._servers = kafka["bootstrap.servers"]

    def topic_id(self, topic: str) -> str | None:
        """The topic's identity: another one once it was deleted and made anew. None: there is no such topic."""
        try:
            description = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_SECONDS)[topic]
            return str(description.result(_TIMEOUT_SECONDS).topic_id)
        except KafkaException as error:
            if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                return None
            raise self._silence(error) from error

    def starts(self, topic: str) -> dict[int, int]:
        """For each partition the first offset that it still has."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        return self._offsets(topic, earliest, IsolationLevel.READ_UNCOMMITTED)

    def ends(self, topic: str, *, stable: bool = True) -> dict[int, int]:
        """For each partition the offset after the last one; `stable`: of those before the first open transaction."""
        isolation = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        return self._offsets(topic, latest, isolation)

    def taken_in(self, group: str, topic: str) -> dict[int, int]:
        """The group's committed offsets; a partition without any is left out."""
        asked = [TopicPartition(topic, partition) for partition in self._partitions(topic)]
        try:
            futures = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, asked)])
            found = futures[group].result(_TIMEOUT_SECONDS).topic_partitions
        except KafkaException as error:
            raise self._silence(error) from error
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def _offsets(self, topic: str, spec: OffsetSpec, isolation: IsolationLevel) -> dict[int, int]:
        asked = {TopicPartition(topic, partition): spec for partition in self._partitions(topic)}
        try:
            futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=_TIMEOUT_SECONDS)
            return {each.partition: future.result(_TIMEOUT_SECONDS).offset for each, future in futures.items()}
        except KafkaException as error:
            raise self._silence(error) from error

    def _partitions(self, topic: str) -> list[int]:
        try:
            found = self._admin.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
        except KafkaException as error:
            raise self._silence(error) from error
        if found.error is not None:
            raise CouldNotAudit(f"{topic}: {found.error.str()}: `headrace topics create` makes the contracts' topics")
        return sorted(found.partitions)

    def _silence(self, error: KafkaException) -> CouldNotAudit:
        return CouldNotAudit(f"the brokers at {self._servers} say: {error.args[0].str()}")
