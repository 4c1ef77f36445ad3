"""Records whose header names are not UTF-8: bytes as the protocol has them, which no Python client sends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from contracts.settings import KafkaSettings

NAME = b"caf\xe9"
"""Latin-1, as an old client might have it."""


class _Name(str):
    """A header's name that is sent as `raw`, whatever encoding is asked for."""

    raw: bytes

    def encode(self, *_: object, **__: object) -> bytes:
        return self.raw


def send_bare(
    kafka: KafkaSettings,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> int:
    """Send one record; returns its offset."""
    return asyncio.run(_send(kafka.bootstrap_servers, topic, partition, key, value, headers))


async def _send(
    servers: str,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[bytes, bytes | None]],
) -> int:
    async with AIOKafkaProducer(bootstrap_servers=servers, max_batch_size=4 << 20) as producer:
        batch = producer.create_batch()
        # The one in C takes the name's own characters.
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, 0, 4 << 20)
        assert batch.append(
            key=key, value=value, timestamp=None, headers=[(_name(name), text) for name, text in headers]
        )
        batch.close()
        sent = await producer.send_batch(batch, topic, partition=partition)
        return int((await sent).offset)


def _name(raw: bytes) -> _Name:
    name = _Name(raw.decode("latin-1"))
    name.raw = raw
    return name
