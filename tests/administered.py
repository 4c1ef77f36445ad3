"""Topics that tests change: `limit_batches`, `add_partitions`. The controller answers at once, and the brokers have it a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType  # type: ignore[attr-defined]

from contracts.servers.provision import set_config

_SECONDS = 60.0


def limit_batches(admin: AdminClient, topic: str, size: int) -> None:
    """The topic takes no batch larger than this (bytes) when this returns."""
    set_config(admin, {topic: {"max.message.bytes": str(size)}})

    def is_there() -> bool:
        (config,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return bool(config.result(_SECONDS)["max.message.bytes"].value == str(size))

    _wait_for(is_there)


def add_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """The topic has so many when this returns."""
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result(_SECONDS)
    _wait_for(lambda: len(admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions) == count)


def _wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + _SECONDS
    while not holds():
        assert time.monotonic() < until, f"the brokers don't have it after {_SECONDS:g} s"
        time.sleep(0.05)
