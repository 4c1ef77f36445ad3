"""The union of two topics on the real stack, against an oracle in plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.records.missed_windows import MissedWindows
from contracts.servers.registry import Registry
from spark.runtime.settings import SparkSettings
from tests.spark.examples import DISPATCHED, LOST, Topics
from tests.spark.unions.losses import LOSSES, WINDOW, Losses, Parcel, groups_of, whole, windows_of

FIRST = [Parcel("NTH", 0, 5), Parcel("NTH", 14, 7), Parcel("STH", 3, -4), Parcel("NTH", 20, None)]
SECOND = [Parcel("NTH", 1, 300), Parcel("EST", 44, None), Parcel("EST", 45, None)]


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, LOST, LOSSES)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Losses:
    return Losses(spark, settings, registry, topics)


def _of_slower(query: Losses) -> None:
    """Let the topic that is behind hold the watermark."""
    catalog = query.topics.catalog
    contract = catalog.topics[LOSSES]
    assert contract.derivation is not None
    derivation = contract.derivation.model_copy(update={"watermark_of": "slower"})
    catalog.topics[LOSSES] = contract.model_copy(update={"derivation_section": derivation})


def _dropped(running: Any) -> int:
    """How many rows the operator with the state has left out as late: of the records of a batch in one window it gets one from each task, or more."""
    operators = [each for progress in running.recentProgress for each in progress["stateOperators"]]
    return sum(each["numRowsDroppedByWatermark"] for each in operators)


def _in_state(running: Any) -> int:
    return int(running.lastProgress["stateOperators"][0]["numRowsTotal"])


def test_each_window_holds_what_the_events_of_both_topics_say(query: Losses) -> None:
    query.parcels(*FIRST)
    query.parcels(*SECOND, partition=1)
    query.take_in()
    assert query.newest() == whole([*FIRST, *SECOND])
    assert query.newest()["EST/2013-01-01T10:30:00Z"]["delay_mean_minutes"] is None
    again = [Parcel("NTH", 2, None), Parcel("EST", 44, 9)]
    query.parcels(*again)
    query.take_in()
    assert query.newest() == whole([*FIRST, *SECOND, *again])
    ids = query.ids()
    assert len(set(ids)) == len(ids)
    assert query.late_ones() == []


def test_a_batch_that_runs_again_makes_the_same_records(query: Losses) -> None:
    query.parcels(*FIRST)
    query.take_in()
    query.parcels(*SECOND, partition=1)
    query.take_in()
    ids, written = query.ids(), query.written()
    query.forget_commit()
    query.take_in()
    assert (query.ids(), query.written()) == (ids, written)
    assert query.cut_off_while(lambda: query.parcels(*[Parcel(f"X{n}", 0, n % 2 or None) for n in range(40)])) > 0
    query.take_in()
    assert query.newest() == whole([*query.sent.values()])
    ids = query.ids()
    assert len(set(ids)) == len(ids)


def test_with_the_faster_topic_an_idle_one_holds_no_window_back(query: Losses) -> None:
    with query.running() as running:
        query.parcels(Parcel("NTH", 0, 1), Parcel("NTH", 0, None))
        running.processAllAvailable()
        assert _in_state(running) == 4
        query.parcels(Parcel("NTH", 600, 1))
        running.processAllAvailable()
        # The watermark is 480 minutes, that of the dispatches.
        assert _in_state(running) == 4, "the windows of before are forgotten"
        query.parcels(Parcel("STH", 30, None), Parcel("STH", 31, 1), Parcel("STH", 450, None), Parcel("STH", 600, None))
        running.processAllAvailable()
        late = [f"{query.names[LOST]}/0/1", f"{query.names[DISPATCHED]}/0/2"]
        # Of the loss at 450 the windows that end at 465 and 480 are over, two of four.
        assert query.late_ones() == sorted([*late, f"{query.names[LOST]}/0/2"])


def test_with_the_slower_topic_the_one_that_is_behind_holds_the_watermark(query: Losses) -> None:
    _of_slower(query)
    with query.running() as running:
        query.parcels(Parcel("NTH", 0, 1), Parcel("NTH", 0, None), Parcel("NTH", 600, 1))
        running.processAllAvailable()
        query.parcels(Parcel("STH", 1, 1), Parcel("STH", 1, None))
        running.processAllAvailable()
        assert query.late_ones() == []
        assert _in_state(running) == 12
        query.parcels(Parcel("NTH", 300, None))
        running.processAllAvailable()
        # The watermark is 180 minutes, that of the losses.
        assert _in_state(running) == 8
        query.parcels(Parcel("STH", 1, 1), Parcel("STH", 1, None), Parcel("STH", 200, 1))
        running.processAllAvailable()
    assert query.late_ones() == sorted([f"{query.names[DISPATCHED]}/0/3", f"{query.names[LOST]}/0/3"])


def _shuffled(seed: int) -> list[Parcel]:
    """In the order of arrival: two in a hundred come late, up to ten hours; one in eight was lost."""
    chance = random.Random(seed)
    parcels = []
    for minute in range(2400):
        delay = None if chance.random() < 0.125 else chance.randint(-10, 200)
        arrives = minute + (chance.randint(1, 600) if chance.random() < 0.02 else chance.randint(0, 20))
        parcels.append((arrives, Parcel(chance.choice(["NTH", "STH"]), minute, delay)))
    return [each for _, each in sorted(parcels, key=lambda each: each[0])]


@pytest.mark.long
@pytest.mark.parametrize("watermark_of", ["faster", "slower"])
def test_totals_add_up_and_what_is_dropped_is_told_of_either_topic(query: Losses, watermark_of: str) -> None:
    if watermark_of == "slower":
        _of_slower(query)
    parcels, dropped = _shuffled(11), 0
    pieces = [parcels[begin : begin + 400] for begin in range(0, len(parcels), 400)]
    for number, piece in enumerate(pieces):
        if number in (2, 4):
            # As after a kill between what a batch has written and its commit.
            query.forget_commit()
        query.parcels(*piece, partition=number % 2)
        with query.running() as running:
            running.processAllAvailable()
            dropped += _dropped(running)
    missed = {}
    for headers in query.late():
        of = (headers["ce_id"] or b"").decode()
        found = MissedWindows.of([*headers.items()])
        assert found is not None
        missed[of] = found.last
    counted = [
        (parcel, [begin for begin in windows_of(parcel) if of not in missed or begin + WINDOW > missed[of]])
        for of, parcel in query.sent.items()
    ]
    assert query.newest() == groups_of(counted)
    lost = [of for of in missed if of.startswith(f"{query.names[LOST]}/")]
    assert 0 < len(lost) < len(missed), "of both topics some are late"
    of_windows = sum(len([*windows_of(parcel)]) - len(begins) for parcel, begins in counted)
    assert 0 < dropped <= of_windows
