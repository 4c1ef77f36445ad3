"""Whole processes against each other: two `live`s at once, and a `live` and a `lake` that slept while others took over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from deploy.local.servers.ports import HOST
from deploy.local.servers.stack import LocalStack
from spark.runtime.settings import SparkSettings
from tests.faults.stage.proxy import Proxy
from tests.jvm import SHORT_LIVED_ENV
from tests.spark.examples import ENRICHED, Topics
from tests.spark.live_query import Dimensions, events, wait_for

LEASE_SECONDS = 4.0
"""Long enough for a busy machine to renew in time."""


class Running:
    """A deployable as a process, and what it logs."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self.process, self._log = name, process, log

    def lines(self) -> list[str]:
        return self._log.read_text().splitlines()

    def has_started(self) -> bool:
        return self.has_said("started")

    def has_said(self, event: str) -> bool:
        return any(f'"event": "{event}"' in line for line in self.lines())

    def kill(self) -> None:
        """The whole of it, JVM and workers too."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def last_words(self) -> str:
        """The reason that it gives when it ends by itself, with status 1."""
        assert self.process.wait(240) == 1
        line = next(line for line in self.lines() if "stopped by a failure" in line)
        # The JVM writes to the same place, and may be in the middle of a line.
        return str(json.loads(line[line.index('{"reason"') :])["reason"])


class Place:
    """Processes over the topics, the tables and the dimensions of a test, for as long as it is open."""

    def __init__(
        self, stack: LocalStack, settings: SparkSettings, topics: Topics, published: Dimensions, folder: Path
    ) -> None:
        self._env = {
            **os.environ,
            **stack.settings_env(),
            **SHORT_LIVED_ENV,
            "HEADRACE_LIVE__LEASE_SECONDS": str(LEASE_SECONDS),
            "HEADRACE_LAKE__LEASE_SECONDS": str(LEASE_SECONDS),
            "HEADRACE_LAKE__TRIGGER_SECONDS": "0.5",
            "HEADRACE_LAKE__TOPICS": json.dumps([ENRICHED]),
            "HEADRACE_HTTP__PORT": "0",
        }
        self._arguments = (topics.tag, published.place)
        self._folder, self._settings, self._topics = folder, settings, topics
        self._number = 0
        self.processes: list[Running] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.processes:
            each.kill()

    def start(self, name: str, module: str = "tests.spark.queries.deployed", **settings: str) -> Running:
        log = self._folder / f"{len(self.processes)}-{name}"
        command = [sys.executable, "-m", module, name, *self._arguments]
        with log.open("wb") as file:
            # A group of its own: what is stopped is the whole of it, JVM and workers too.
            process = subprocess.Popen(
                command, env=self._env | settings, stderr=file, stdout=file, start_new_session=True
            )
        self.processes.append(Running(name, process, log))
        return self.processes[-1]

    def dispatch(self, count: int) -> None:
        for partition in (0, 1):
            ids = [f"{partition}-{self._number + each}" for each in range(count)]
            self._topics.send_dispatches(*ids, partition=partition)
        self._number += count

    def expected(self) -> Counter[str]:
        return Counter(f"{partition}-{number}" for partition in (0, 1) for number in range(self._number))

    def enriched(self) -> Counter[str]:
        return Counter(event["parcel_id"] for event, _, _ in events(self._topics))

    def landed(self) -> Counter[str]:
        lake = self._topics.enriched.lake
        assert lake is not None
        s3 = self._settings.s3
        try:
            table = DeltaTable(f"s3://{s3.bucket}/lake/{lake.table}", storage_options=s3.delta_options())
        except TableNotFoundError:
            return Counter()
        found = QueryBuilder().register("rows", table).execute("select parcel_id from rows")
        return Counter(pa.table(found).column("parcel_id").to_pylist())


@pytest.fixture
def place(
    stack: LocalStack, settings: SparkSettings, topics: Topics, published: Dimensions, tmp_path: Path
) -> Iterator[Place]:
    with Place(stack, settings, topics, published, tmp_path) as place:
        yield place


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_of_several_processes_one_runs_at_a_time_and_nothing_is_lost_or_doubled(place: Place) -> None:
    place.dispatch(20)
    rivals = [place.start("dispatches_enriched"), place.start("dispatches_enriched")]
    first_lake = place.start("lake")
    wait_for("a live to start", lambda: any(each.has_started() for each in rivals))
    winner, loser = sorted(rivals, key=Running.has_started, reverse=True)
    assert (
        f"/{winner.process.pid} holds leases/dispatches_enriched " in loser.last_words()
        or "taken a moment ago by" in loser.last_words()
    )
    wait_for("the lake to take in what the winner enriched", lambda: place.landed() == place.expected())

    # Several batches: what the sleepers are about to write has a number that their successors come to later.
    for _ in range(5):
        place.dispatch(1)
        wait_for("the winner to go on", lambda: place.landed() == place.expected())

    sleepers = (winner, first_lake)
    for each in sleepers:
        os.killpg(each.process.pid, signal.SIGSTOP)
    place.dispatch(20)
    successors = (place.start("dispatches_enriched"), place.start("lake"))
    wait_for("their successors to take in what came since", lambda: place.landed() == place.expected())
    for each in sleepers:
        os.killpg(each.process.pid, signal.SIGCONT)
    place.dispatch(20)
    for slept, successor in zip(sleepers, successors, strict=True):
        said = slept.last_words()
        assert f"/{successor.process.pid} has taken leases/" in said or "has not renewed its lease" in said
    for _ in range(12):
        wait_for("the successors to go on", lambda: place.landed() == place.expected())
        place.dispatch(1)
    wait_for("the successors to go on", lambda: place.landed() == place.expected())
    assert place.enriched() == place.expected()
    assert [each.process.poll() for each in successors] == [None, None]
    for each in successors:
        _jvm(each).kill()
        assert "Spark's Java process ended" in each.last_words()


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "successor_mode",
    ["real-time", *(pytest.param(each, marks=pytest.mark.long) for each in ("exactly-once", "at-least-once"))],
)
def test_one_that_is_cut_off_from_the_store_finds_its_successor_by_the_brokers(
    place: Place, stack: LocalStack, successor_mode: str
) -> None:
    real_time = {"HEADRACE_LIVE__MODE": "real-time", "HEADRACE_LIVE__INTERVAL_SECONDS": "5"}
    place.dispatch(20)
    with Proxy(stack.ports.s3) as proxy:
        first = place.start("dispatches_enriched", **real_time, HEADRACE_S3__ENDPOINT=f"http://{HOST}:{proxy.port}")
        wait_for("the first live to enrich", lambda: place.enriched() == place.expected())
        with proxy.refusing():
            # Longer than the lease lasts: alone, it goes on.
            successor = place.start("dispatches_enriched", **real_time | {"HEADRACE_LIVE__MODE": successor_mode})
            wait_for("the successor to take the lease", lambda: successor.has_said("lease taken"))
            place.dispatch(5)
            wait_for("the first live to go on", lambda: place.enriched() == place.expected())
            # Other tests' processes had the lease before.
            told = re.search(
                r"has taken dispatches_enriched over \(epoch (\d+) of the lease, .*; this one has (\d+)\)",
                first.last_words(),
            )
            assert told is not None
            assert int(told[1]) == int(told[2]) + 1
        wait_for("the successor to start", successor.has_started)
        place.dispatch(20)
        wait_for("the successor to go on", lambda: place.enriched() == place.expected())
    assert successor.process.poll() is None


def _jvm(running: Running) -> psutil.Process:
    family = psutil.Process(running.process.pid).children(recursive=True)
    return next(each for each in family if each.name() == "java")
