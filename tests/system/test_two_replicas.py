"""Topics with a follower: what it lacks is not below any end, but whoever goes on after a killed producer finds it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from contracts.servers.brokers import retried, watermarks
from contracts.servers.replication import wait_for_replication
from services.replay.position import HEADER, Position
from services.replay.progress import read_progress
from services.replay.tails import Tails
from spark.sinks.kafka.offset_note import Mark, OffsetNote
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.tail import read_known
from spark.sinks.kafka.transaction import position_reader
from tests.producers import ordered
from tests.system.two_brokers import TwoBrokers

pytestmark = pytest.mark.system
PARTITIONS = 3
"""Each takes a request of its own, so the broker holds back all but one of them until its follower has that one."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoBrokers]:
    with TwoBrokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


def test_a_replay_finds_all_that_ever_comes_from_the_one_before_it(
    brokers: TwoBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    topic, dead_letters = brokers.topic(PARTITIONS), brokers.topic(1)
    positions = [Position(1, row) for row in range(PARTITIONS)]
    headers = [{"ce_source": "/services/dispatches", HEADER: str(each)} for each in positions]

    def found() -> list[Position]:
        with Tails(brokers.settings) as tails:
            progress = read_progress([topic, dead_letters], tails, "dispatches", frozenset)
        return [each for each in positions if each <= progress.upto[topic] or each in progress.beyond[topic]]

    there = _after_a_kill(brokers, topic, headers, found, caplog)
    assert there() == [positions[partition] for partition in _partitions_with_records(brokers, topic)]


def test_real_time_mode_finds_all_that_ever_comes_from_the_one_before_it(
    brokers: TwoBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    source, target, dead_letters = brokers.topic(1), brokers.topic(PARTITIONS), brokers.topic(1)
    route = Route(f"q-{source}", source, target, dead_letters)
    own = {"ce_source": route.ce_source}
    headers = [{"ce_id": f"{source}/0/{offset}"} | own for offset in range(1, PARTITIONS + 1)]
    before = OffsetNote(1, Mark({target: (0,) * PARTITIONS, dead_letters: (0,)})).as_metadata()
    with closing(ordered(brokers.settings.client_config())) as producer:
        for _ in range(PARTITIONS + 1):
            producer.produce(source, b"raw")
        assert producer.flush(30) == 0

    def found() -> list[int]:
        with closing(position_reader(brokers.settings.client_config(), route)) as reader:
            retried(lambda: reader.commit(offsets=[TopicPartition(source, 0, 0, before)], asynchronous=False), 60)
            taken = read_known(brokers.settings, route, reader, [0], "stop", threading.Event()).taken[0]
        assert taken.position == 0
        return [offset for run in taken.beyond for offset in run]

    there = _after_a_kill(brokers, target, headers, found, caplog)
    assert there() == [partition + 1 for partition in _partitions_with_records(brokers, target)]


@pytest.mark.long
def test_others_that_write_without_a_pause_hold_nobody_back(brokers: TwoBrokers) -> None:
    topic = brokers.topic(1)
    enough = threading.Event()

    def write() -> None:
        hasty = {"linger.ms": 0, "batch.num.messages": 10}
        with closing(Producer({**brokers.settings.client_config(), "acks": 1, **hasty})) as producer:
            while not enough.is_set():
                try:
                    producer.produce(topic, b"another")
                except BufferError:
                    producer.poll(0.001)
            producer.flush(30)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with closing(_reader(brokers)) as reader:
            wait_for_replication(brokers.settings, reader, [topic])
    finally:
        enough.set()
        writer.join()


def _after_a_kill(
    brokers: TwoBrokers,
    topic: str,
    headers: list[dict[str, str]],
    find: Callable[[], Any],
    caplog: pytest.LogCaptureFixture,
) -> Callable[[], Any]:
    """What `find` found, which was asked when a producer was killed and the follower had nothing of what it had sent.

    Nothing more comes from that producer when this returns.
    """
    caplog.set_level(logging.INFO)
    command = [sys.executable, "-m", "tests.system.killed_producer", brokers.settings.bootstrap_servers, topic]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer,
        ThreadPoolExecutor(1) as successor,
    ):
        assert producer.stdin is not None and producer.stdout is not None
        assert producer.stdout.readline() == "ready\n"
        with brokers.follower_stopped():
            print(json.dumps(headers), file=producer.stdin, flush=True)
            assert producer.stdout.readline() == "on their way\n"
            ports = {each.laddr.port for each in psutil.Process(producer.pid).net_connections()}
            producer.kill()
            producer.wait()
            assert _partitions_with_records(brokers, topic) == []
            found = successor.submit(find)
            _wait_for("the successor", lambda: found.done() or "waiting for its followers" in caplog.text)
        found.result(120)
    _wait_for("the leader to close the dead one's connections", lambda: not ports & brokers.ports_of_clients())
    _wait_for("what it had sent", lambda: _partitions_with_records(brokers, topic))
    return found.result


def _partitions_with_records(brokers: TwoBrokers, topic: str) -> list[int]:
    with closing(_reader(brokers)) as reader:
        return [each for each in range(PARTITIONS) if watermarks(reader, topic, each, 30)[1]]


def _reader(brokers: TwoBrokers) -> Consumer:
    return Consumer({**brokers.settings.client_config(), "group.id": "tests", "log_level": 0})


def _wait_for(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.05)
