"""`python -m spark run` with several pipelines: side by side in one process, and stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.runtime.settings import SparkSettings
from tests.spark.examples import DEPARTED, ENRICHED, Topics, a_departure, body, framed
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.queries.test_processes import Running

LONG_HAUL = "flights.departed.longhaul.v1"
BOTH = "departures_enriched,long_haul_departures"

Start = Callable[[], Running]


@pytest.fixture
def both(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DEPARTED, ENRICHED, LONG_HAUL)) as made:
        yield made


@pytest.fixture
def start(stack: LocalStack, both: Topics, published: Dimensions, tmp_path: Path) -> Iterator[Start]:
    env = {**os.environ, **stack.settings_env(), "HEADRACE_LIVE__LEASE_SECONDS": "2", "HEADRACE_HTTP__PORT": "0"}
    with ExitStack() as ending:
        count = iter(range(9))

        def start() -> Running:
            log = tmp_path / f"log-{next(count)}"
            command = [sys.executable, "-m", "tests.spark.queries.deployed", BOTH, both.tag, published.place]
            with log.open("wb") as file:
                process = subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True)
            ending.callback(_end, process)
            return Running(BOTH, process, log)

        yield start


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _depart(topics: Topics, *numbers: int) -> None:
    for number in numbers:
        event = a_departure(flight_id=str(number), distance_miles=number)
        topics.send(framed(topics.schema_ids[DEPARTED], body(event)), partition=number % 2)


def _flights(topics: Topics, name: str) -> list[int]:
    return sorted(int(event["flight_id"]) for event, _, _ in events(topics, name))


def test_two_pipelines_take_the_same_records_in_one_process_and_end_together(start: Start, both: Topics) -> None:
    first, second = range(1990, 2010), range(2490, 2500)
    process = start()
    _depart(both, *first)
    wait_for(
        "both to take them in", lambda: (len(_flights(both, ENRICHED)), len(_flights(both, LONG_HAUL))) == (20, 10)
    )
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(60) == 0, process.last_words()
    _depart(both, *second)
    process = start()
    wait_for("both to go on", lambda: (len(_flights(both, ENRICHED)), len(_flights(both, LONG_HAUL))) == (30, 20))
    assert _flights(both, ENRICHED) == [*first, *second]
    assert _flights(both, LONG_HAUL) == [*range(2000, 2010), *second]


def test_one_that_can_not_go_on_ends_the_process(start: Start, both: Topics, settings: SparkSettings) -> None:
    _depart(both, *range(10))
    group = Consumer({**settings.kafka.client_config(), "group.id": "long_haul_departures"})
    group.commit(offsets=[TopicPartition(both.departed.name, 0, 1_000)], asynchronous=False)
    group.close()
    process = start()
    assert "1000" in process.last_words()
