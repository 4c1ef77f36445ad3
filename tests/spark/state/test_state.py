"""What is told of a state, against what plain Python says is open, on the real stack."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from contracts.servers.s3 import objects, s3_client
from contracts.settings import S3Settings
from spark.pipeline import Pipeline
from spark.runtime.errors import StateUnreadable
from spark.runtime.settings import SparkSettings
from spark.state.checkpoint import StateCheckpoint, StoredState
from spark.state.command import check_is_stateful
from spark.state.state import State, read
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.sample.pipelines.heavy_parcels import heavy_parcels
from tests.sample.pipelines.late_parcels_of_vans import late_parcels_of_vans
from tests.sample.pipelines.losses_by_origin import losses_by_origin
from tests.sample.pipelines.parcel_trips import parcel_trips
from tests.sample.pipelines.rounds_of_vans import rounds_of_vans
from tests.sample.pipelines.slowest_lines import slowest_lines
from tests.spark.aggregates.test_sessions import Oracle, Parcel, send_parcels
from tests.spark.aggregates.test_stateful import FIRST, SECOND, Dispatch, Query, groups_of
from tests.spark.distinct.once import LATE_AFTER, Once
from tests.spark.examples import DELIVERED, DISPATCHED, LOST, Topics
from tests.spark.joins.trips import TEN, Trips
from tests.spark.rankings.test_rankings import FIRST as OF_LINES
from tests.spark.rankings.test_rankings import Lines, ranked
from tests.spark.sequences.counted import Counted
from tests.spark.unions import losses

PIPELINES = (
    delays_by_origin,
    losses_by_origin,
    rounds_of_vans,
    parcel_trips,
    dispatches_once,
    late_parcels_of_vans,
    slowest_lines,
)


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    names = (DISPATCHED, DELIVERED, LOST, *[each.target for each in PIPELINES])
    with Topics(settings, catalog, registry, names=names) as made:
        yield made


class Reader:
    """Reads the state of a query as the command does."""

    def __init__(self, spark: SparkSession, s3: S3Settings, query: Query, folder: Path) -> None:
        self._spark, self._s3, self._query, self._folder = spark, s3, query, folder
        self.checkpoint = StateCheckpoint(
            s3, query.pipeline.name, query.topics.catalog.topic(query.pipeline.target).name
        )
        self.told: list[str] = []

    def __call__(
        self, batch: int | None = None, pipeline: Pipeline | None = None, checkpoint: StateCheckpoint | None = None
    ) -> State:
        before = self.objects()
        state = read(
            self._spark,
            pipeline or self._query.pipeline,
            self._query.topics.catalog,
            checkpoint or self.checkpoint,
            batch,
            Path(mkdtemp(dir=self._folder)),
            self.told.append,
        )
        assert self.objects() == before, "nothing is written"
        return state

    def objects(self) -> list[Any]:
        found = objects(s3_client(self._s3), self._s3.bucket, f"{self._query.prefix}/")
        return [(each["Key"], each["ETag"], each["LastModified"]) for each in found]


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Query:
    return Query(spark, settings, registry, topics)


@pytest.fixture
def reader(spark: SparkSession, settings: SparkSettings, query: Query, tmp_path: Path) -> Reader:
    return Reader(spark, settings.s3, query, tmp_path)


def rows(state: State, most: int | None = None) -> list[list[dict[str, Any]]]:
    """Of each table, with instants as the summary says that there are."""
    tables = state.summary().tables
    found: list[list[dict[str, Any]]] = [[] for _ in tables]
    for number, text in state.rows(most):
        row = json.loads(text)
        instants = {name: datetime.fromisoformat(row[name]) for name in tables[number].instants if row[name]}
        assert tuple(row) == tables[number].columns
        found[number].append(row | instants)
    return found


def without_finality(groups: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Whether a group is final is not in the state."""
    return [{name: value for name, value in each.items() if name != "is_final"} for each in groups.values()]


def in_order(groups: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return sorted(groups, key=lambda each: (each["ends_at"], each[key]))


def test_open_groups_of_two_topics_are_shown_as_the_function_makes_them(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    query = losses.Losses(spark, settings, registry, topics)
    parcels = [losses.Parcel("NTH", 0, 5), losses.Parcel("NTH", 1, None), losses.Parcel("STH", 3, None)]
    query.parcels(*parcels)
    query.take_in()
    state = Reader(spark, settings.s3, query, tmp_path)()
    assert state.summary().unfit is None
    (found,) = rows(state)
    assert found == in_order(without_finality(losses.whole(parcels)), "window_id")


def test_the_groups_of_an_aggregate_that_are_open(query: Query, reader: Reader) -> None:
    later: list[Dispatch] = [("NTH", 150, 3), ("STH", 151, 4), ("STH", 152, 5)]
    with query.running() as running:
        query.send(*FIRST)
        running.processAllAvailable()
        first = query.last("/commits/")
        query.send(*SECOND, partition=1)
        query.send(*later)
        running.processAllAvailable()
        state = reader()
        summary = state.summary()
        # The newest is of 12:32, less two hours.
        watermark = TEN + timedelta(minutes=32)
        assert (summary.watermark, summary.batch, summary.unfit) == (watermark, query.last("/commits/"), None)
        expected = groups_of([*FIRST, *SECOND, *later])
        still = {name: each for name, each in expected.items() if each["ends_at"] > watermark}
        assert 0 < len(still) < len(expected)
        (found,) = rows(state)
        assert found == in_order(without_finality(still), "window_id")
        assert rows(state, most=2) == [found[:2]]
        (before,) = rows(reader(batch=first))
    assert before == in_order(without_finality(groups_of(FIRST)), "window_id")
    assert summary.run == query.files("/offsets/")[0].split("/")[3]
    assert [(each.number, each.stored_bytes > 0) for each in summary.partitions] == [(0, True), (1, True)]
    assert sum(each.rows for each in summary.partitions) == len(still) == summary.tables[0].rows


def test_what_is_remembered_of_each_key_and_how_much_waits(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    query = Counted(spark, settings, registry, topics)
    query.dispatch(("V", 0, 1), ("V", 10, 1), ("W", 140, 1), ("W", 150, 0))
    query.take_in()
    reader = Reader(spark, settings.s3, query, tmp_path)
    (found,) = rows(reader())
    nothing = {"late_in_a_row": None, "late_mean_minutes": None, "last_event_at": None}
    remembered = {"late_in_a_row": 2, "late_mean_minutes": 1.0, "last_event_at": TEN + timedelta(minutes=10)}
    assert found == [{"van_id": "W", **nothing, "waiting": 2}, {"van_id": "V", **remembered, "waiting": 0}]


@pytest.mark.long
def test_the_state_of_another_grouping_is_told_as_spark_keeps_it(query: Query, reader: Reader) -> None:
    def another(dispatches: DataFrame) -> DataFrame:
        counts: DataFrame = delays_by_origin.function(dispatches.where("late_minutes > 0"))
        return counts

    query.send(*FIRST)
    query.take_in()
    query.forget_commit()
    state = reader(pipeline=dataclasses.replace(delays_by_origin, function=another))
    summary = state.summary()
    assert (
        summary.unfit
        == f"delays_by_origin groups, joins or tells events apart otherwise than the run {summary.run} did"
    )
    assert summary.coming == summary.batch + 1
    (found,) = rows(state)
    assert sorted((each["origin"], each["count"], each["sum"], each["count_2"]) for each in found) == sorted(
        [("NTH", 2, 12.0, 2), ("NTH", 1, 60.0, 1), ("STH", 1, -4.0, 1), ("EST", 1, 0.0, 1)]
    )
    assert all(each["buf"].endswith(" bytes") for each in found)


@pytest.mark.long
def test_the_sessions_that_are_open(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    query, oracle = Query(spark, settings, registry, topics, rounds_of_vans), Oracle()
    batches: list[list[Parcel]] = [
        [("A", "EST", 0, 1), ("A", "EST", 20, 2), ("B", "STH", 0, 1), ("B", "EST", 50, 9), ("C", "EST", 0, 5)],
        [("C", "EST", 180, 7), ("A", "EST", 40, 3), ("B", "EST", 100, 2)],
        [("C", "STH", 200, -3), ("D", "EST", 150, 8)],
    ]
    with query.running() as running:
        for batch in batches:
            send_parcels(query, *batch)
            running.processAllAvailable()
            oracle.take(batch)
        state = Reader(spark, settings.s3, query, tmp_path)()
    opened = {each.event()["round_id"]: each.event() for sessions in oracle.open.values() for each in sessions}
    assert len(oracle.written) > 0 < len(opened)
    assert state.summary().tables[0].name == "open sessions"
    assert rows(state) == [in_order(without_finality(opened), "round_id")]


@pytest.mark.long
def test_the_rows_of_each_side_of_a_join_that_wait(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    query = Trips(spark, settings, registry, topics)
    dispatched = {"A": 0, "B": 1, "C": 21, "D": 25, "E": 30}
    delivered = {"A": 2, "C": 24, "D": 31, "X": 32}
    with query.running() as running:
        for dispatches, deliveries in ((["A", "B"], ["A"]), (["C", "D"], ["C"]), (["E"], ["D", "X"])):
            query.dispatch(*[(name, dispatched[name]) for name in dispatches])
            query.deliver(*[(name, delivered[name]) for name in deliveries], partition=1)
            running.processAllAvailable()
        state = Reader(spark, settings.s3, query, tmp_path)()
    # A dispatch waits for twenty hours; a delivery for dispatches that are not late, and come before it.
    watermark = 28
    left = {name: at for name, at in dispatched.items() if at + 20 >= watermark}
    right = {name: at for name, at in delivered.items() if at > watermark}
    assert 0 < len(left) < len(dispatched) and 0 < len(right) < len(delivered)
    summary, (of_left, of_right) = state.summary(), rows(state)
    assert summary.watermark == TEN + timedelta(hours=watermark)
    assert [each.name for each in summary.tables] == [query.names[DISPATCHED], query.names[DELIVERED]]
    assert [(each["parcel_id"], each["dispatched_at"], each["matched"]) for each in of_left] == [
        (name, TEN + timedelta(hours=at), name in delivered) for name, at in sorted(left.items(), key=lambda of: of[1])
    ]
    assert [(each["delivered_parcel_id"], each["delivered_at"], each["matched"]) for each in of_right] == [
        (name, TEN + timedelta(hours=at), name in dispatched) for name, at in right.items()
    ]
    assert [each["coordinate"] for each in of_right] == [f"{query.names[DELIVERED]}/1/{offset}" for offset in (2, 3)]


@pytest.mark.long
def test_the_events_that_are_remembered_and_until_when(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    query = Once(spark, settings, registry, topics)
    reader = Reader(spark, settings.s3, query, tmp_path)
    query.dispatch(("A", 0), ("B", 200), ("C", 100), ("B", 201))
    query.take_in()
    state = reader()
    # The watermark is 81 minutes: nothing is forgotten yet.
    remembered = [("A", 0), ("C", 100), ("B", 200)]
    expected = [
        {"parcel_id": name, "remembered_until": TEN + timedelta(minutes=minute + LATE_AFTER)}
        for name, minute in remembered
    ]
    assert rows(state) == [expected]
    assert (state.summary().tables[0].name, state.summary().unfit) == ("events", None)
    query.dispatch(("D", 240))
    query.take_in()
    ((first, *_),) = rows(reader())
    assert first["parcel_id"] == "C", "A was forgotten at 120 minutes"


class Slow(StateCheckpoint):
    """Tells what was there a while ago, then what is there."""

    def __init__(self, of: Reader) -> None:
        vars(self).update(vars(of.checkpoint))
        self._first: StoredState | None = of.checkpoint.at(None)

    def at(self, batch: int | None) -> StoredState:
        first, self._first = self._first, None
        return first or super().at(batch)


@pytest.mark.long
def test_the_places_of_a_list(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    lines = Lines(spark, settings, registry, topics, slowest_lines)
    reader = Reader(spark, settings.s3, lines, tmp_path)
    lines.send(*OF_LINES)
    lines.take_in()
    state = reader()
    assert (state.summary().unfit, state.summary().watermark) == (None, None)
    expected = [{name: value for name, value in each.items() if name != "place"} for each in ranked(OF_LINES)]
    (found,) = rows(state)
    assert found == sorted(expected, key=lambda each: each["last_dispatched_at"])


def test_a_state_whose_files_go_meanwhile_is_read_as_it_is_then(query: Query, reader: Reader) -> None:
    query.send(*FIRST)
    query.take_in()
    slow, lost = Slow(reader), Slow(reader)
    run = reader.checkpoint.at(None).behind.run
    query.remove(query.files())
    with pytest.raises(
        StateUnreadable,
        match="has no state in s3://.*/checkpoints/delays_by_origin/.*--pipelines OTHERS,delays_by_origin",
    ):
        reader(checkpoint=lost)
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    state = reader(checkpoint=slow)
    assert state.summary().run != run
    assert rows(state) == [in_order(without_finality(groups_of(FIRST)), "window_id")]
    (told,) = reader.told
    assert "files of it were removed" in told
    assert "The pipeline has gone on: reading batch" in told


def test_what_is_not_there_is_told_with_its_cure(query: Query, reader: Reader, settings: SparkSettings) -> None:
    with pytest.raises(StateUnreadable, match="delays_by_origin has no state in s3://"):
        reader()
    query.send(*FIRST)
    query.take_in()
    last = query.last("/commits/")
    with pytest.raises(StateUnreadable, match=rf"the run \w{{8}} has no batch 99: its checkpoint has 0 to {last}"):
        reader(batch=99)
    query.remove([each for each in query.files("/state/0/1/") if each.endswith("/1.changelog")])
    with pytest.raises(StateUnreadable, match=f"the state of delays_by_origin behind batch {last} can't be read: .*"):
        reader()
    query.remove(query.files("/state/0/1/"))
    with pytest.raises(StateUnreadable, match=r"the state of delays_by_origin lacks the files of the partitions \[1\]"):
        reader()
    nowhere = S3Settings.model_validate(settings.s3.model_dump() | {"endpoint": "http://127.0.0.1:1"})
    with pytest.raises(
        StateUnreadable, match="the object store at http://127.0.0.1:1/ does not give the checkpoint: .*"
    ):
        StateCheckpoint(nowhere, "delays_by_origin", "any").at(None)


def test_a_pipeline_without_a_state_is_told_which_have_one(catalog: Catalog) -> None:
    check_is_stateful(delays_by_origin, catalog)
    with pytest.raises(StateUnreadable, match="heavy_parcels keeps no state: it makes its records of one record each"):
        check_is_stateful(heavy_parcels, catalog)
