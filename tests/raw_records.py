"""Records as the protocol has them, bytes in every place: header names, negative timestamps, batches as large as brokers take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from contracts.settings import KafkaSettings

NO_TEXT = b"caf\xe9"
"""A header's name in Latin-1, as an old client might have it."""

_MOST_BYTES = 32 << 20
_CODECS = {None: 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_TOGETHER_BYTES = 200_000


@dataclass(frozen=True, slots=True)
class RawRecord:
    """`timestamp_ms` is the current time where it is None."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    @property
    def size(self) -> int:
        """Bytes of what is in it, framing apart."""
        return sum(
            len(each or b"") for each in (self.key, self.value, *(part for header in self.headers for part in header))
        )


class Refusal(str):
    """Why the brokers did not take a record: the error's name in Kafka."""


def send_raw(
    kafka: KafkaSettings, topic: str, partition: int, records: Iterable[RawRecord], *, compression: str | None = None
) -> list[int | Refusal]:
    """Offsets of the records, in their order, or why the brokers refused one. `compression` of each batch: gzip, snappy, lz4 or zstd."""
    return asyncio.run(_send(kafka.bootstrap_servers, topic, partition, list(records), _CODECS[compression]))


async def _send(servers: str, topic: str, partition: int, records: list[RawRecord], codec: int) -> list[int | Refusal]:
    found: list[int | Refusal] = []
    async with _producer(servers) as producer:
        for together in _batches(records):
            found += await _sent(producer, topic, partition, together, codec)
    return found


async def _sent(
    producer: AIOKafkaProducer, topic: str, partition: int, records: list[RawRecord], codec: int
) -> list[int | Refusal]:
    """The brokers refuse a batch as a whole, such as for one record without a key in a compacted topic: then each is sent by itself."""
    try:
        first = await _send_batch(producer, topic, partition, records, codec)
    except KafkaError as error:
        if len(records) == 1:
            return [Refusal(type(error).__name__)]
        if error.retriable:
            raise
        return [each for record in records for each in await _sent(producer, topic, partition, [record], codec)]
    return [*range(first, first + len(records))]


def _batches(records: list[RawRecord]) -> Iterable[list[RawRecord]]:
    """What brokers may refuse in any topic is a batch of its own."""
    batch: list[RawRecord] = []
    size = 0
    for record in records:
        alone = record.timestamp_ms is not None or record.size > _TOGETHER_BYTES
        if batch and (alone or size + record.size > _TOGETHER_BYTES):
            yield batch
            batch, size = [], 0
        if alone:
            yield [record]
        else:
            batch.append(record)
            size += record.size
    if batch:
        yield batch


@asynccontextmanager
async def _producer(servers: str) -> AsyncIterator[AIOKafkaProducer]:
    async with AIOKafkaProducer(
        bootstrap_servers=servers, max_batch_size=_MOST_BYTES, max_request_size=_MOST_BYTES
    ) as producer:
        yield producer


async def _send_batch(
    producer: AIOKafkaProducer, topic: str, partition: int, records: list[RawRecord], codec: int
) -> int:
    batch = producer.create_batch()
    # The one in C takes text alone for a header's name.
    batch._builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, 0, _MOST_BYTES)
    for record in records:
        headers = [(_Name.of(name), value) for name, value in record.headers]
        assert batch.append(key=record.key, value=record.value, timestamp=record.timestamp_ms, headers=headers)
    batch.close()
    sent = await producer.send_batch(batch, topic, partition=partition)
    return int((await sent).offset)


class _Name(str):
    """A header's name that is sent as `raw`, whatever encoding is asked for."""

    raw: bytes

    @classmethod
    def of(cls, raw: bytes) -> _Name:
        name = cls(raw.decode("latin-1"))
        name.raw = raw
        return name

    def encode(self, *_: object, **__: object) -> bytes:
        return self.raw
