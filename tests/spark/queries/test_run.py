"""`python -m spark run` with several pipelines: side by side in one process, and stopped together."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.runtime.settings import SparkSettings
from tests.spark.examples import DISPATCHED, ENRICHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import Dimensions, events, wait_for
from tests.spark.queries.test_processes import Place

# They start processes one after the other.
pytestmark = pytest.mark.timeout(900)

HEAVY = "parcels.dispatched.heavy.v1"
BOTH = "dispatches_enriched,heavy_parcels"


@pytest.fixture
def both(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, ENRICHED, HEAVY)) as made:
        yield made


@pytest.fixture
def place(
    stack: LocalStack, settings: SparkSettings, both: Topics, published: Dimensions, tmp_path: Path
) -> Iterator[Place]:
    with Place(stack, settings, both, published, tmp_path) as place:
        yield place


def _send(topics: Topics, *numbers: int) -> None:
    for number in numbers:
        event = a_dispatch(parcel_id=str(number), weight_grams=number)
        topics.send(framed(topics.schema_ids[DISPATCHED], body(event)), partition=number % 2)


def _parcels(topics: Topics, name: str) -> list[int]:
    return sorted(int(event["parcel_id"]) for event, _, _ in events(topics, name))


def test_two_pipelines_take_the_same_records_in_one_process_and_end_together(place: Place, both: Topics) -> None:
    first, second = range(1990, 2010), range(2490, 2500)
    process = place.start(BOTH)
    _send(both, *first)
    wait_for("both to take them in", lambda: (len(_parcels(both, ENRICHED)), len(_parcels(both, HEAVY))) == (20, 10))
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(240) == 0, process.last_words()
    _send(both, *second)
    process = place.start(BOTH)
    wait_for("both to go on", lambda: (len(_parcels(both, ENRICHED)), len(_parcels(both, HEAVY))) == (30, 20))
    assert _parcels(both, ENRICHED) == [*first, *second]
    assert _parcels(both, HEAVY) == [*range(2000, 2010), *second]


def test_one_that_can_not_go_on_ends_the_process(place: Place, both: Topics, settings: SparkSettings) -> None:
    _send(both, *range(10))
    group = Consumer({**settings.kafka.client_config(), "group.id": "heavy_parcels"})
    group.commit(offsets=[TopicPartition(both.dispatched.name, 0, 1_000)], asynchronous=False)
    group.close()
    process = place.start(BOTH)
    assert "1000" in process.last_words()


def test_with_the_trigger_available_now_they_take_what_is_there_and_end(place: Place, both: Topics) -> None:
    _send(both, *range(1990, 2010))
    several_batches = {"HEADRACE_LIVE__TRIGGER": "available-now", "HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "7"}
    process = place.start(BOTH, **several_batches)
    assert process.process.wait(240) == 0, process.lines()
    # One that is in every log is read by nobody.
    assert [line for line in process.lines() if '"level": "warning"' in line] == []
    assert _parcels(both, ENRICHED) == [*range(1990, 2010)]
    assert _parcels(both, HEAVY) == [*range(2000, 2010)]
