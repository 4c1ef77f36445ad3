"""What a function may be that lets each event through once; each refusal says what to change."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import check
from spark.derivation.stateful.deduplication import PLACE, Deduplication
from spark.derivation.stateful.stateful_rows import Read
from spark.pipeline import Lookup
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.scans import executed
from spark.sinks.kafka.sink import LATE
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.spark.examples import DISPATCHED, RAW, SCHEMA, a_dispatch, body, framed

Function = Callable[[DataFrame], DataFrame]

ONCE = dispatches_once.target
SCHEMAS = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})
TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
LATE_AFTER = timedelta(hours=2)


def _once(dispatches: DataFrame) -> DataFrame:
    return dispatches.dropDuplicatesWithinWatermark(["parcel_id"])


def _of_the_moment(dispatches: DataFrame) -> DataFrame:
    return _once(dispatches.where("dispatched_at < current_timestamp()"))


def _counted(dispatches: DataFrame) -> DataFrame:
    made = _once(dispatches).groupBy(*dispatches.columns).count()
    return made.select(dispatches.columns)


def _other_id(dispatches: DataFrame) -> DataFrame:
    return _once(dispatches.withColumn("parcel_id", F.upper("parcel_id")))


def _collated(dispatches: DataFrame) -> DataFrame:
    same = F.collate(F.col("parcel_id"), "UTF8_LCASE")
    return _once(dispatches.withColumn("parcel_id", same)).withColumn("parcel_id", F.col("parcel_id").cast("string"))


def _renamed(dispatches: DataFrame) -> DataFrame:
    once = dispatches.withColumnRenamed("parcel_id", "id").dropDuplicatesWithinWatermark(["id"])
    return once.withColumnRenamed("id", "parcel_id")


def _without_time(dispatches: DataFrame) -> DataFrame:
    others = [each for each in dispatches.columns if each != "dispatched_at"]
    return _once(dispatches.select(others)).withColumn("dispatched_at", F.col("due_at"))


def _time_twice(dispatches: DataFrame) -> DataFrame:
    return _once(dispatches.withColumn("left_at", F.col("dispatched_at")))


def _name_twice(dispatches: DataFrame) -> DataFrame:
    return _once(dispatches.select("*", F.col("parcel_id"))).select(dispatches.columns[1:])


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda of: of, "calls dropDuplicatesWithinWatermark 0 times.* says records: distinct: call it once"),
        (lambda of: _once(_once(of)), "calls dropDuplicatesWithinWatermark 2 times"),
        (
            lambda of: of.dropDuplicates(["parcel_id"]),
            "calls dropDuplicates, which keeps every event for ever: use drop",
        ),
        (
            lambda of: of.distinct(),
            "which keeps every event for ever: use dropDuplicatesWithinWatermark, with the fields",
        ),
        (
            lambda of: _once(of).where("late_minutes > 0"),
            "filters behind .* the first alone decides.*: filter before it",
        ),
        (_counted, "has a step Aggregate, which dropDuplicatesWithinWatermark can't have beside it"),
        (lambda of: _once(of.union(of)), "has a step Union"),
        (lambda of: _once(of.orderBy("late_minutes")), "has a step Sort"),
        (
            lambda of: of.dropDuplicatesWithinWatermark(["parcel_id", "courier"]),
            r"tells events apart by courier, parcel_id, and the contract of .* says named_by: \[parcel_id\]",
        ),
        (
            lambda of: of.dropDuplicatesWithinWatermark(),
            "tells events apart by courier, destination, dispatched_at, .*, and the contract of",
        ),
        (_renamed, r"tells events apart by id, and the contract"),
        (_other_id, "changes parcel_id before dropDuplicatesWithinWatermark"),
        (_collated, "changes parcel_id before dropDuplicatesWithinWatermark"),
        (_without_time, "does not bring dispatched_at, the time of the events of parcels.dispatched.v1, to drop"),
        (_time_twice, "does not bring dispatched_at, the time of the events"),
        (_name_twice, "makes no parcel_id|has parcel_id twice"),
        (_of_the_moment, "is another value each time"),
        (lambda of: _once(of).withColumn("courier", F.lower("courier")), "changes courier: an event's own fields"),
    ],
)
def test_a_function_that_would_not_let_each_event_through_once_is_refused(
    spark: SparkSession, catalog: Catalog, function: Function, told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        Deduplication(spark, dataclasses.replace(dispatches_once, function=function), catalog, 300)


def _with(catalog: Catalog, **changes: Any) -> Catalog:
    """The target's contract says otherwise; what `derivation` says, its derivation."""
    topic = catalog.topic(ONCE)
    derivation = topic.derivation_section
    assert derivation != "none"
    changes["derivation_section"] = derivation.model_copy(update=changes.pop("derivation", {}))
    return dataclasses.replace(catalog, topics={**catalog.topics, ONCE: topic.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"derivation": {"named_by": ("van_id",)}}, "named by van_id, which in parcels.dispatched.v1 is of type string.: .* never null and have no default"),
        ({"derivation": {"named_by": ("gate",)}}, "named by gate, which in parcels.dispatched.v1 is not there"),
        ({"key_field": "courier"}, "has the key courier, parcels.dispatched.v1 has parcel_id: a record keeps its key, and its order"),
        ({"occurred_at": "due_at"}, "has events of due_at, and parcels.dispatched.v1 of dispatched_at: an event keeps its time"),
        ({"derivation": {"topic": "parcels.delivered.v1"}}, "is not derived from it by its contract"),
    ],
)  # fmt: skip
def test_what_the_contract_says_must_name_events_and_keep_their_key_and_time(
    spark: SparkSession, catalog: Catalog, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        Deduplication(spark, dispatches_once, _with(catalog, **changes), 300)


def test_what_it_is_not_for_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    lookup = Lookup("couriers", dimension="couriers", by="courier", fields={"courier_name": "name"})
    with pytest.raises(PipelineUnfit, match="has lookups, and a pipeline that lets each event through once can't"):
        Deduplication(spark, dataclasses.replace(dispatches_once, lookups=(lookup,)), catalog, 300)
    with pytest.raises(PipelineUnfit, match="lets each event through once, and what it makes of one record depends"):
        check(spark, dispatches_once, catalog)


def test_an_event_may_keep_no_key(spark: SparkSession, catalog: Catalog) -> None:
    Deduplication(spark, dispatches_once, _with(catalog, key_field="none"), 300)


def test_the_plan_tells_what_the_state_depends_on_and_nothing_else(spark: SparkSession, catalog: Catalog) -> None:
    def plan(function: Function, of: Catalog = catalog) -> str:
        return Deduplication(spark, dataclasses.replace(dispatches_once, function=function), of, 300).plan

    def filtered(by: str, made: str = "late_minutes * 2") -> Function:
        return lambda of: _once(of.withColumn("twice", F.expr(made)).where(by))

    same = plan(_once)
    assert plan(lambda of: _once(of.withColumn("half", F.col("late_minutes") / 2)).drop("half")) == same
    assert plan(lambda of: _once(of).withColumn("half", F.col("late_minutes") / 2)) == same
    others = [
        plan(filtered("late_minutes > 0")),
        plan(filtered("late_minutes > 1")),
        plan(filtered("twice > 1")),
        plan(filtered("twice > 1", "late_minutes * 3")),
        plan(_once, _with(catalog, derivation={"late_after_minutes": 60})),
        plan(
            lambda of: of.dropDuplicatesWithinWatermark(["parcel_id", "courier"]),
            _with(catalog, derivation={"named_by": ("courier", "parcel_id")}),
        ),
        plan(
            lambda of: of.dropDuplicatesWithinWatermark(["parcel_id", "courier"]),
            _with(catalog, derivation={"named_by": ("courier", "parcel_id")}, key_field="none"),
        ),
    ]
    assert len({same, *others}) == 1 + len(others)


class Sent(NamedTuple):
    """A record of a dispatch, so many minutes after ten."""

    partition: int
    offset: int
    parcel: str
    minute: int
    late_minutes: int = 2

    @property
    def place(self) -> tuple[int, int]:
        return self.partition, self.offset


def _raw(spark: SparkSession, *sent: Sent) -> DataFrame:
    """As Spark's Kafka source gives them, in this order and in one task."""
    rows: list[Any] = []
    for each in sent:
        at = TEN + timedelta(minutes=each.minute)
        event = a_dispatch(parcel_id=each.parcel, dispatched_at=at, late_minutes=each.late_minutes)
        value = framed(7, body(event))
        row: Any = (bytearray(b"key"), bytearray(value), DISPATCHED, each.partition, each.offset, at, [])
        rows.append(row)
    return spark.createDataFrame(rows, RAW).coalesce(1)


class Stream:
    """The pipeline over files in place of a topic, each of which is a batch."""

    def __init__(self, spark: SparkSession, catalog: Catalog, folder: Path, function: Function = _once) -> None:
        self._spark = spark.newSession()
        # That one is for S3 alone.
        self._spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
        self._spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
        # Not as many as other sessions have.
        self._spark.conf.set("spark.sql.shuffle.partitions", "3")
        pipeline = dataclasses.replace(dispatches_once, function=function)
        self.derivation = Deduplication(self._spark, pipeline, catalog, 300)
        self._folder = folder
        (folder / "in").mkdir(parents=True)
        self.let_through: list[tuple[int, int]] = []
        self._query: StreamingQuery | None = None

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        raw = self._spark.readStream.schema(RAW).option("maxFilesPerTrigger", 1).parquet(str(self._folder / "in"))
        made = self.derivation.stream([Read(raw, SCHEMAS)])
        location = str(self._folder / "checkpoint")
        self._query = made.writeStream.option("checkpointLocation", location).foreachBatch(self._take).start()
        try:
            yield self._query
        finally:
            self._query.stop()

    def take(self, *sent: Sent) -> None:
        """One batch of these records, and that which only moves the watermark on."""
        assert self._query is not None
        number = len(list((self._folder / "in").iterdir()))
        aside = self._folder / f"aside{number}"
        _raw(self._spark, *sent).write.parquet(str(aside))
        (file,) = aside.glob("*.parquet")
        file.rename(self._folder / "in" / f"{number}.parquet")
        self._query.processAllAvailable()

    def _take(self, batch: DataFrame, number: int) -> None:
        ids = [row["id"] for row in self.derivation.to_rows(batch).toArrow().to_pylist()]
        places = [each.rsplit("/", 2)[1:] for each in ids]
        self.let_through += [(int(partition), int(offset)) for partition, offset in places]


def test_in_whatever_order_the_records_of_a_batch_come_the_one_with_the_least_place_is_let_through(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    sent = [Sent(partition, offset, f"P{offset % 5}", 0) for partition in (0, 1) for offset in (*range(3, 12), 100)]
    random.Random(1).shuffle(sent)
    stream = Stream(spark, catalog, tmp_path)
    with stream.running() as query:
        stream.take(*sent)
        steps = executed(query)
    assert sorted(stream.let_through) == [(0, 3), (0, 4), (0, 5), (0, 6), (0, 7)]
    # One shuffle, and behind it nothing moves the rows that are sorted.
    names = [str(each.nodeName()) for each in steps]
    at = names.index("StreamingDeduplicateWithinWatermark")
    behind = [each for each in names[at + 1 :] if not each.startswith(("WholeStageCodegen", "InputAdapter"))]
    assert behind[:2] == ["Sort", "Exchange"]
    assert names.count("Exchange") == 1
    assert "hashpartitioning(parcel_id" in str(steps[names.index("Exchange")].simpleString(100))
    assert ", 3), REPARTITION" in str(steps[names.index("Exchange")].simpleString(100))


def test_an_event_is_left_out_until_the_watermark_is_beyond_its_time_and_the_lateness(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    stream = Stream(spark, catalog, tmp_path)
    with stream.running():
        stream.take(Sent(0, 0, "A", 0))
        stream.take(Sent(0, 1, "A", 0), Sent(1, 0, "A", 5), Sent(0, 2, "B", 239))
        # The watermark is 119 minutes, and A was at 0. On a quiet topic a later one of its name is left out, too.
        stream.take(Sent(0, 3, "A", 238), Sent(0, 4, "A", 120), Sent(0, 5, "A", 119))
        stream.take(Sent(0, 6, "C", 240))
        # It is 120.
        stream.take(Sent(0, 7, "A", 121), Sent(0, 8, "A", 120), Sent(0, 9, "A", 241))
    assert stream.let_through == [(0, 0), (0, 2), (0, 6), (0, 7)]


def test_what_is_set_aside_as_late_is_what_spark_leaves_out_as_late(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    def late_ones(of: DataFrame) -> DataFrame:
        # What is late by chance is computed, and left out, before.
        return _once(of.withColumn("twice", F.col("late_minutes") * 2).where("twice > 2")).drop("twice")

    chance = random.Random(3)
    stream = Stream(spark, catalog, tmp_path, late_ones)
    watermark, newest, late, dropped = 0, 0, Counter[tuple[int, int]](), dict[int, int]()
    expected: list[tuple[int, int]] = []
    with stream.running() as query:
        for number in range(4):
            begin = number * 60
            sent = [
                Sent(0, number * 10 + each, f"P{chance.randrange(4)}", chance.randrange(begin + 200), each % 3 + 1)
                for each in range(10)
            ]
            stream.take(*sent)
            before = TEN + timedelta(minutes=watermark) if number else datetime.fromtimestamp(0, UTC)
            aside = stream.derivation.aside(DISPATCHED, SCHEMAS, round(before.timestamp() * 1000))
            made = aside(_raw(spark, *sent))
            late.update((row["partition"], row["offset"]) for row in _letters(made))
            expected += [each.place for each in sent if number and each.late_minutes > 1 and each.minute <= watermark]
            # By Spark's counting the time of what a filter leaves out counts, too: it is there before.
            newest = max([newest, *(each.minute for each in sent)])
            watermark = newest - 120
            for progress in query.recentProgress:
                # Progress of a batch that is under way has none.
                of_batch = sum(each["numRowsDroppedByWatermark"] for each in progress["stateOperators"])
                dropped[progress["batchId"]] = max(of_batch, dropped.get(progress["batchId"], 0))
    assert expected, "a scenario without a late record shows little"
    assert sorted(late.elements()) == sorted(expected)
    assert sum(dropped.values()) == len(expected)


def _letters(made: DataFrame) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        made.where(F.col("reason") == LATE).select("partition", "offset").toArrow().to_pylist()
    )
    return found


def test_events_of_one_key_are_written_by_one_task_in_the_order_of_their_records(
    spark: SparkSession, catalog: Catalog
) -> None:
    named_by = ("courier", "parcel_id")
    pipeline = dataclasses.replace(dispatches_once, function=lambda of: of.dropDuplicatesWithinWatermark([*named_by]))
    derivation = Deduplication(spark, pipeline, _with(catalog, derivation={"named_by": named_by}), 300)
    sent = [Sent(partition, offset, f"P{offset % 4}", 0) for partition in (0, 1) for offset in range(30)]
    random.Random(1).shuffle(sent)
    record = F.col("__record")
    place = F.struct(record["partition"], record["offset"]).alias(PLACE)
    made = events(_raw(spark, *sent), SCHEMAS).select("*", place).repartition(3)
    rows = derivation.to_rows(made).select("key", "id", F.spark_partition_id().alias("task"))
    found = rows.withColumn("number", F.monotonically_increasing_id()).orderBy("number").toArrow().to_pylist()
    for parcel in ("P0", "P1", "P2", "P3"):
        own = [each for each in found if each["key"] == parcel.encode()]
        assert len({each["task"] for each in own}) == 1
        places = [tuple(map(int, each["id"].rsplit("/", 2)[1:])) for each in own]
        assert places == sorted(each.place for each in sent if each.parcel == parcel)
