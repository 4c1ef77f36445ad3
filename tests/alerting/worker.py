"""`Worker`: the alerting service as a process of its own, and the other ends of its topics."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID, uuid4

import httpx
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.delivery import Delivered
from contracts.handle import E, Topic
from contracts.publisher import Publisher
from contracts.records.limits import DEAD_LETTER_BYTES, batch_limit
from contracts.servers.registry import Registry
from contracts.settings import Settings
from contracts.subscriber import Record, Subscriber
from deploy.local.servers.stack import LocalStack
from tests import sample
from tests.administered import limit_batches
from tests.producers import ordered
from tests.sample import topics
from tests.sample.events import AlertRaised, DepotObserved

SECONDS = 120
"""How long anything may take on a busy machine."""
_LINES = 200
"""So many of a worker's log are shown where a test fails."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> None:
    """Until `condition` holds; fails with `what` otherwise."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


class Worker:
    """`python -m services.alerting` on the sample; leaving the block ends it by SIGTERM and expects exit status 0."""

    def __init__(self, stack: LocalStack, *, module: str = "services.alerting", **settings: str | Path) -> None:
        env = {**os.environ, **stack.settings_env(), **{name: str(value) for name, value in settings.items()}}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.sample.run", module], env=env, stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        try:
            wait_for(lambda: self._port() and self.health() == 200, "the worker to be healthy")
        except AssertionError:
            self.kill()
            raise AssertionError("\n".join(self.log)) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            status = self.wait()
            assert error is not None or status == 0, "\n".join(self.log)
        if error is not None:
            # pytest shows it with the failure.
            print(*self.log[-_LINES:], sep="\n")

    def freeze(self) -> None:
        """SIGSTOP, until `thaw`."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.wait()

    def wait(self, seconds: float = SECONDS) -> int:
        """The exit status."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def health(self) -> int | None:
        """The status of `/health`, None without answer."""
        try:
            return httpx.get(f"http://127.0.0.1:{self._port()}/health").status_code
        except httpx.HTTPError:
            return None

    def metric(self, name: str) -> float:
        """A sample of `/metrics` by its whole name, labels included; 0 if it has none."""
        text = httpx.get(f"http://127.0.0.1:{self._port()}/metrics").text
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of that event."""
        lines = [json.loads(line) for line in list(self.log) if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def _port(self) -> int | None:
        serving = self.logged("serving")
        return serving[0]["port"] if serving else None

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(line.rstrip() for line in iter(self.process.stderr.readline, ""))


def settings_of(stack: LocalStack) -> Settings:
    """The stack's settings, for this process."""
    env = stack.settings_env()
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": env["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"]},
            "registry": {"url": env["HEADRACE_REGISTRY__URL"]},
        }
    )


def publish_readings(
    stack: LocalStack, readings: Iterable[DepotObserved], headers: Mapping[str, bytes] | None = None
) -> dict[str, DepotObserved]:
    """The readings by the coordinate that each got."""
    return publish(stack, "readings", topics.DEPOTS_OBSERVED, readings, headers)


def publish(
    stack: LocalStack, service: str, topic: Topic[E], events: Iterable[E], headers: Mapping[str, bytes] | None = None
) -> dict[str, E]:
    """The events by the coordinate that each got."""
    settings = settings_of(stack)
    placed: dict[str, E] = {}
    with (
        Registry(settings.registry) as registry,
        Publisher(settings, catalog=sample.catalog(), registry=registry, service=service, topics=[topic]) as publisher,
    ):
        for event in events:

            def place(outcome: object, event: E = event) -> None:
                assert isinstance(outcome, Delivered), outcome
                placed[outcome.coordinate] = event

            publisher.publish(topic, event, event_id=str(uuid4()), headers=headers, on_delivery=place)
    return placed


def producer(stack: LocalStack, **config: str) -> Producer:
    """A producer of any bytes."""
    return ordered({"bootstrap.servers": stack.kafka.bootstrap_servers, **config})


def alerts_of(stack: LocalStack, coordinates: Collection[str], count: int | None = None) -> list[Record[AlertRaised]]:
    """The alerts on the topic, read afresh, until `count` different ones (default: one each) go back to these records.

    Alerts of other records that came before those are among them.
    """
    wanted = len(coordinates) if count is None else count
    found: list[Record[AlertRaised]] = []
    seen: set[UUID] = set()
    deadline = time.monotonic() + SECONDS
    with Subscriber(topics.ALERTS_RAISED, f"test-{uuid4()}", settings_of(stack), idle_seconds=1) as alerts:
        while len(seen) < wanted:
            for record in alerts:
                assert isinstance(record, Record)
                found.append(record)
                if record.event.coordinate in coordinates:
                    seen.add(record.event.alert_id)
                if len(seen) == wanted:
                    break
            assert time.monotonic() < deadline, f"waited {SECONDS} s for {wanted} alerts; there are {len(seen)}"
    return found


def read_all(stack: LocalStack, topic: str) -> list[Message]:
    """Every record that now lies in the topic's partition 0."""
    consumer = Consumer({"bootstrap.servers": stack.kafka.bootstrap_servers, "group.id": f"test-{uuid4()}"})
    try:
        partition = TopicPartition(topic, 0, 0)
        low, high = consumer.get_watermark_offsets(partition, timeout=SECONDS)
        consumer.assign([TopicPartition(topic, 0, low)])
        messages: list[Message] = []
        deadline = time.monotonic() + SECONDS
        while low + len(messages) < high:
            message = consumer.poll(0.5)
            if message is not None:
                assert message.error() is None, message.error()
                messages.append(message)
            assert time.monotonic() < deadline, f"waited {SECONDS} s for {high} records of {topic}"
        return messages
    finally:
        consumer.close()


class tiny:
    """While it lasts, the topic of dead letters takes no record of more than 500 bytes."""

    def __init__(self, stack: LocalStack, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
        self._topic = topic

    def __enter__(self) -> None:
        self._set(500)

    def __exit__(self, *_: object) -> None:
        self._set(batch_limit(DEAD_LETTER_BYTES))

    def _set(self, size: int) -> None:
        limit_batches(self._admin, self._topic, size)


def committed(stack: LocalStack, topic: str, partition: int) -> int:
    """The position of the group `alerting`; negative without one."""
    consumer = Consumer({"bootstrap.servers": stack.kafka.bootstrap_servers, "group.id": "alerting"})
    try:
        [place] = consumer.committed([TopicPartition(topic, partition)], timeout=SECONDS)
        return place.offset
    finally:
        consumer.close()
