"""The schema ids of records that wait to be taken: `ids_ahead`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing

from confluent_kafka import KafkaError, TopicPartition

from contracts.records.wire import FRAME_BYTES, schema_id_of
from contracts.settings import KafkaSettings
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import raw_reader

_SECONDS, _POLL_SECONDS = 1.0, 0.1
_BATCH = 1_000
_NO_MORE = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)


def ids_ahead(kafka: KafkaSettings, route: Route, positions: Mapping[int, int]) -> list[int]:
    """Those that the source's records name from these positions on, each once and in their order, as far as they can be read in a second. Errors are left to the query,
    which reads the same.
    """
    found: dict[int, None] = {}
    left = set(positions)
    until = time.monotonic() + _SECONDS
    with closing(raw_reader(kafka, route)) as consumer:
        consumer.assign([TopicPartition(route.source, partition, at) for partition, at in positions.items()])
        while left and time.monotonic() < until:
            for message in consumer.consume(_BATCH, _POLL_SECONDS):
                error, value = message.error(), message.value() or b""
                if error is None:
                    if len(value) > FRAME_BYTES and (schema_id := schema_id_of(value)) is not None:
                        found[schema_id] = None
                elif error.code() in _NO_MORE:
                    left -= {message.partition()}
    return [*found]
