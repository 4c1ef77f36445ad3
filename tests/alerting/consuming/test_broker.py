"""What faust's consumer, as alerting has it, hands over, on a real broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from confluent_kafka import Consumer as Member
from faust.types import TP

from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.alerting.app import Alerting, new_publisher
from services.alerting.consuming.assigned import Assigned, Records
from services.alerting.consuming.broker import Consumer
from services.alerting.rules.rulebook import SERVICE
from services.alerting.rules.watch import RulesFile
from services.alerting.settings import AlertingSettings
from tests import sample
from tests.alerting.worker import SECONDS, producer, settings_of
from tests.sample import topics

READINGS = topics.DEPOTS_OBSERVED.name


def test_faust_does_not_look_for_streams_that_are_not_there() -> None:
    # With nothing of it started, faust's own look fails; what it logs comes after five minutes under load.
    consumer = Consumer.__new__(Consumer)
    consumer.verify_event_path(time.monotonic(), TP("t", 0))


class Slow(Alerting):
    """Handles nothing, as if all alerts were on their way, and is held up at two of the batches that it gets."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.taken: list[tuple[Assigned, int]] = []
        """Each batch of readings: for which assignment, and where it begins."""
        self.gates: dict[int, asyncio.Event] = {}
        """What the batches with these numbers, from 1, wait for."""

    def has(self, count: int) -> bool:
        """Whether it has so many partitions of the readings."""
        return [each.topic for each in self.assigned()].count(READINGS) == count

    async def _take(self, assigned: Assigned, records: Records) -> None:
        if assigned.topic != READINGS or assigned.revoked:
            return
        self.taken.append((assigned, records[0].offset))
        if (gate := self.gates.get(len(self.taken))) is not None:
            await gate.wait()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {SECONDS} s for {what}"
        await asyncio.sleep(0.05)


class Members:
    """Other members of the group; what they read is not handled. By their names they come before alerting, or after it."""

    def __init__(self, stack: LocalStack, count: int, *, topics: list[str], client_id: str) -> None:
        config = {
            "bootstrap.servers": stack.kafka.bootstrap_servers,
            "group.id": SERVICE,
            "client.id": client_id,
            "partition.assignment.strategy": "roundrobin",
            "enable.auto.commit": False,
        }
        self._members = [Member(config) for _ in range(count)]
        for each in self._members:
            each.subscribe(topics)
        self._leaves = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def have_some(self) -> bool:
        """Whether each has a partition."""
        return all(each.assignment() for each in self._members)

    def leave(self) -> None:
        """All of them."""
        self._leaves.set()
        self._thread.join()
        for each in self._members:
            each.close()

    def _poll(self) -> None:
        while not self._leaves.wait(0.05):
            for each in self._members:
                each.poll(0)


@pytest.mark.system
def test_a_worker_without_a_partition_goes_on_through_rebalances(stack: LocalStack) -> None:
    async def scenario(alerting: Slow) -> None:
        await until(lambda: alerting.health() is None and alerting.has(2), "the partitions")
        names = sorted({each.topic for each in alerting.assigned()})
        count = len(alerting.assigned())
        others = Members(stack, count, topics=names, client_id="a")
        await until(lambda: others.have_some() and not alerting.assigned(), "others to have all partitions")
        more = Members(stack, 1, topics=names, client_id="z")
        await asyncio.sleep(10)
        assert (alerting.health(), alerting.assigned()) == (None, [])
        await asyncio.to_thread(more.leave)
        await asyncio.to_thread(others.leave)
        await until(lambda: len(alerting.assigned()) == count, "the partitions again")
        assert alerting.health() is None

    run(stack, scenario)


def run(stack: LocalStack, scenario: Callable[[Slow], Awaitable[None]]) -> None:
    """While a worker in this process works."""
    given, catalog = settings_of(stack), sample.catalog()
    settings = AlertingSettings(kafka=given.kafka, registry=given.registry, session_timeout_seconds=6)

    async def whole(alerting: Slow) -> None:
        stop = asyncio.Event()
        running = asyncio.ensure_future(alerting.run(stop))
        try:
            await scenario(alerting)
        finally:
            for gate in alerting.gates.values():
                gate.set()
            stop.set()
            await running

    with (
        Registry(settings.registry) as registry,
        new_publisher(settings, catalog, registry) as publisher,
    ):
        asyncio.run(whole(Slow(settings, catalog, RulesFile(sample.RULES, catalog), registry, publisher)))


@pytest.mark.system
def test_records_that_were_fetched_before_a_rebalance_are_not_taken_for_the_next_ones(stack: LocalStack) -> None:
    """A partition that has come again begins where the group is, though a batch of it, from further on, is at hand."""
    sender = producer(stack)

    def send(*partitions: int) -> None:
        for partition in partitions:
            sender.produce(READINGS, b"\x00", partition=partition)
        assert sender.flush(SECONDS) == 0

    async def scenario(alerting: Slow) -> None:
        await until(lambda: alerting.health() is None and alerting.has(2), "the partitions")
        await asyncio.sleep(2)  # what other tests have left
        there = len(alerting.taken)
        await asyncio.to_thread(send, 0, 1)
        await until(lambda: {each.partition for each, _ in alerting.taken[there:]} == {0, 1}, "the first records")
        firsts = {each.partition: offset for each, offset in alerting.taken[there:]}
        there, before = len(alerting.taken), set(alerting.assigned())
        held, of_two = asyncio.Event(), asyncio.Event()
        alerting.gates = {there + 1: held, there + 2: of_two}
        await asyncio.to_thread(send, 0)
        await until(lambda: len(alerting.taken) == there + 1, "the next one")
        # While that is held up, the client fetches these, so that both are handed over together.
        await asyncio.to_thread(send, 0, 1)
        await asyncio.sleep(2)
        held.set()
        await until(lambda: len(alerting.taken) == there + 2, "the first of the two")
        other = Members(stack, 1, topics=[READINGS], client_id="z")
        await until(other.have_some, "another member to have a partition")
        await asyncio.to_thread(other.leave)
        await until(lambda: alerting.has(2) and not before & set(alerting.assigned()), "the partitions again")
        of_two.set()
        anew = {each for each in alerting.assigned() if each.topic == READINGS}
        await until(lambda: anew <= {each for each, _ in alerting.taken}, "the first records again")
        began = {each.partition: offset for each, offset in reversed(alerting.taken) if each in anew}
        assert all(began[partition] <= first for partition, first in firsts.items())

    run(stack, scenario)
