"""What a memory may be, and what is made by it, batch by batch, of files in place of a topic; each refusal says what to change."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from http import HTTPMethod
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import check
from spark.derivation.stateful.memory_processor import checked, sequence
from spark.derivation.stateful.remembering import Remembering
from spark.derivation.stateful.stateful_rows import Read
from spark.pipeline import Event, Lookup, Memory, Remembered
from spark.runtime.errors import PipelineUnfit
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.sample.pipelines.late_parcels_of_vans import MEMORY, after, late_parcels_of_vans
from tests.spark.derivation.test_deduplication import SCHEMAS, TEN
from tests.spark.examples import DISPATCHED, RAW, a_dispatch, body, framed

COUNTED = late_parcels_of_vans.target
Function = Callable[[DataFrame], DataFrame]
Sent = tuple[int, int, str | None, float, int]
"""Partition, offset, van, minutes after ten, minutes late."""


def _with(catalog: Catalog, **changes: Any) -> Catalog:
    topic = catalog.topic(COUNTED)
    derivation = topic.derivation_section
    assert derivation != "none"
    changes["derivation_section"] = derivation.model_copy(update=changes.pop("derivation", {}))
    return dataclasses.replace(catalog, topics={**catalog.topics, COUNTED: topic.model_copy(update=changes)})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"of": "van"}, "has a memory of the field van, which parcels.dispatched.v1 has not: name one of courier"),
        ({"of": "due_at"}, "remembers events by due_at, a timestamp: take a text"),
        ({"of": "courier"}, "remembers events by courier, and .* has the key van_id, so records of one key .*: write key: courier, or none"),
        ({"reads": ("gate",)}, "has a memory of the field gate, which"),
        ({"reads": ("due_at",)}, "reads due_at, a timestamp, and can read texts, numbers and booleans only"),
        ({"fields": {"late_minutes": "int"}}, "has a field late_minutes, which parcels.dispatched.v1 has, too: give it a name of its own"),
    ],
)  # fmt: skip
def test_a_memory_that_cannot_be_kept_is_refused(
    spark: SparkSession, catalog: Catalog, changes: dict[str, Any], told: str
) -> None:
    memory = dataclasses.replace(MEMORY, **changes)
    with pytest.raises(PipelineUnfit, match=told):
        Remembering(spark, dataclasses.replace(late_parcels_of_vans, memory=memory), catalog, 300)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"fields": {}}, "a memory without fields remembers nothing"),
        ({"fields": {"at": "timestamp"}}, "can have fields of type boolean, int, long, double, string, and not at: timestamp"),
        ({"fields": {"Seen": "int"}}, "a memory's field can't be called Seen: take lower case letters"),
        ({"fields": {"waiting": "int"}}, "can't be called waiting: .* and none of cls, of, waiting, last_event_at"),
        ({"reads": "courier"}, r"reads is a text: name fields in a tuple, as in reads=\(\"courier\",\)"),
        ({"forgets_after": timedelta(0)}, "forgets_after is 0:00:00, and must be a time that passes"),
    ],
)  # fmt: skip
def test_a_memory_says_at_once_what_it_cannot_be(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        dataclasses.replace(MEMORY, **changes)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda of: of.groupBy("van_id").count(), "Aggregate"),
        (lambda of: of.where("dispatched_at < current_timestamp()"), "is another value each time"),
        (lambda of: of.withColumn("courier", F.lower("courier")), "changes courier: an event's own fields"),
        (lambda of: of.drop("late_in_a_row"), "makes no late_in_a_row"),
    ],
)
def test_the_function_goes_record_by_record(
    spark: SparkSession, catalog: Catalog, function: Function, told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        Remembering(spark, dataclasses.replace(late_parcels_of_vans, function=function), catalog, 300)


def test_what_it_is_not_for_is_refused(spark: SparkSession, catalog: Catalog) -> None:
    lookup = Lookup("couriers", dimension="couriers", by="courier", fields={"courier_name": "name"})
    with pytest.raises(PipelineUnfit, match="has a memory and lookups, which it can't: leave the lookups out"):
        Remembering(spark, dataclasses.replace(late_parcels_of_vans, lookups=(lookup,)), catalog, 300)
    with pytest.raises(PipelineUnfit, match="remembers the events before each, and what it makes of one record"):
        check(spark, late_parcels_of_vans, catalog)
    without = dataclasses.replace(late_parcels_of_vans, memory=None)
    with pytest.raises(PipelineUnfit, match="has no memory, and the contract of .* says records: sequence"):
        Remembering(spark, without, catalog, 300)
    with pytest.raises(PipelineUnfit, match="says records: distinct: write records: sequence"):
        Remembering(spark, dataclasses.replace(dispatches_once, memory=MEMORY), catalog, 300)
    some = _with(catalog, derivation={"records": "some", "late_after_minutes": None})
    with pytest.raises(
        PipelineUnfit, match="has a memory, and the contract of .* says records: some: write records: seq"
    ):
        check(spark, late_parcels_of_vans, some)
    with pytest.raises(PipelineUnfit, match="has events of due_at, and parcels.dispatched.v1 of dispatched_at"):
        Remembering(spark, late_parcels_of_vans, _with(catalog, occurred_at="due_at"), 300)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (None, "it returned None, and not a mapping of late_in_a_row, late_mean_minutes"),
        ({"late_in_a_row": 1}, "it returned late_in_a_row, and not late_in_a_row, late_mean_minutes"),
        ({"late_in_a_row": 1 << 31, "late_mean_minutes": 0.0}, "late_in_a_row=2147483648, which is no int that fits"),
        ({"late_in_a_row": True, "late_mean_minutes": 0.0}, "late_in_a_row=True, which is no int that fits"),
        ({"late_in_a_row": 1, "late_mean_minutes": "x"}, "late_mean_minutes='x', which is no double that fits"),
    ],
)
def test_what_after_returns_is_what_was_said(made: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match=told):
        checked(MEMORY, made)


def test_a_memory_can_be_tried_without_spark() -> None:
    parcels = [{"van_id": "V", "late_minutes": late, "dispatched_at": TEN + timedelta(hours=at)} for at, late in ((0, 3), (4, 5), (9, 7))]  # fmt: skip
    told = [fields["late_in_a_row"] for _, fields in sequence(MEMORY, "dispatched_at", parcels)]
    # It is forgotten after more than four hours.
    assert told == [1, 2, 1]


class Stream:
    """The pipeline over files in place of a topic, each of which is a batch."""

    def __init__(
        self, spark: SparkSession, catalog: Catalog, folder: Path, memory: Memory = MEMORY, function: Function | None = None
    ) -> None:  # fmt: skip
        self.spark = spark.newSession()
        # That one is for S3 alone.
        self.spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
        self.spark.conf.set(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        # Not as many as other sessions have.
        self.spark.conf.set("spark.sql.shuffle.partitions", "2")
        own = function or late_parcels_of_vans.function
        pipeline = dataclasses.replace(late_parcels_of_vans, memory=memory, function=own)
        self.derivation = Remembering(self.spark, pipeline, catalog, 300)
        self._folder = folder
        (folder / "in").mkdir(parents=True)
        self.made: list[tuple[str, str]] = []
        """The id of each record, and why it can't be one, empty if it can."""
        self._query: StreamingQuery | None = None

    @contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        raw = self.spark.readStream.schema(RAW).option("maxFilesPerTrigger", 1).parquet(str(self._folder / "in"))
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
        rows: list[Any] = []
        for partition, offset, van, minute, late in sent:
            at = TEN + timedelta(minutes=minute)
            value = framed(7, body(a_dispatch(parcel_id=f"{partition}/{offset}", van_id=van, dispatched_at=at, late_minutes=late)))  # fmt: skip
            sent_at = max(at, datetime(2026, 1, 1, tzinfo=TEN.tzinfo))
            rows.append((bytearray(b"key"), bytearray(value), DISPATCHED, partition, offset, sent_at, []))
        number = len(list((self._folder / "in").iterdir()))
        aside = self._folder / f"aside{number}"
        self.spark.createDataFrame(rows, RAW).coalesce(1).write.parquet(str(aside))
        (file,) = aside.glob("*.parquet")
        file.rename(self._folder / "in" / f"{number}.parquet")
        self._query.processAllAvailable()

    def _take(self, batch: DataFrame, number: int) -> None:
        rows = self.derivation.to_rows(batch).toArrow().to_pylist()
        self.made += [(row["id"].removeprefix(f"{DISPATCHED}/"), row["fault"]) for row in rows]


def test_events_are_counted_in_the_order_of_their_times_when_the_watermark_has_passed_them(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    stream = Stream(spark, catalog, tmp_path)
    with stream.running():
        stream.take((0, 0, "V", 20, 1), (0, 1, "V", 0, 1), (1, 0, None, 0, 1))
        assert stream.made == []
        # The earlier one comes in a later batch; of one time, by partition and offset.
        stream.take((1, 1, "V", 10, 1), (0, 2, "V", 20, 1), (0, 3, "W", 140, 1))
        assert stream.made == [("0/1", ""), ("1/1", ""), ("0/0", ""), ("0/2", "")]
        # A new one of the key that has something to be forgotten, and one that stays.
        stream.take((0, 4, "V", 30, 0), (0, 5, "W", 150, 1), (0, 6, "X", 600, 0))
    assert stream.made[4:] == [("0/3", ""), ("0/5", "")]


def test_an_event_for_which_after_fails_is_told_and_stops_no_other(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    stream = Stream(spark, catalog, tmp_path)
    with stream.running():
        stream.take((0, 0, "V", 0, 1), (0, 1, "V", 1, 1_000_000), (0, 2, "V", 2, 1), (0, 3, "X", 600, 0))
        stream.take((0, 4, "X", 601, 0))
    assert stream.made == [("0/0", ""), ("0/1", "after: ArithmeticError: late by 1000000 minutes"), ("0/2", "")]


class _Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("not to be told")


def _odd_after(event: Event, before: Remembered | None) -> Remembered:
    """Whatever Python may do."""
    match event["late_minutes"]:
        case 1:
            raise ValueError("\ud800")
        case 2:
            raise _Odd
        case 3:
            raise SystemExit(1)
        case 4:
            return {"said": "\ud800"}
        case 5:
            return {"said": Decimal(1)}
        case _:
            return {"said": HTTPMethod.GET}


def test_whatever_after_does_it_stops_no_other_event(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    memory = Memory("van_id", ("late_minutes",), {"said": "string"}, _odd_after, timedelta(hours=1))
    stream = Stream(
        *(spark, catalog, tmp_path, memory),
        lambda of: of.where("said = 'GET'").withColumns({"late_in_a_row": F.lit(1), "late_mean_minutes": F.lit(0.0)}),
    )
    with stream.running():
        stream.take(*[(0, number, "V", number, number) for number in range(7)], (0, 9, "X", 600, 9))
        stream.take((0, 10, "X", 601, 9))
    told = dict(stream.made)
    assert [told[f"0/{number}"].split(":")[:2] for number in range(1, 6)] == [
        ["after", " ValueError"],
        ["after", " _Odd"],
        ["after", " SystemExit"],
        ["after", " UnicodeEncodeError"],
        ["after", " ValueError"],
    ]
    assert [told["0/0"], told["0/6"]] == ["", ""]


def test_after_goes_to_the_workers_as_it_was_when_the_pipeline_began(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts later would import the file as it is by then."""
    name = f"memory_{tmp_path.name.replace('-', '_')}"
    file = tmp_path / f"{name}.py"
    file.write_text(
        "from tests.sample.pipelines.late_parcels_of_vans import after as _other\n\n\ndef after(event, before):\n    return _other(event, before)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    memory = dataclasses.replace(MEMORY, after=importlib.import_module(name).after)
    Remembering(spark, dataclasses.replace(late_parcels_of_vans, memory=memory), catalog, 300)
    shipped = cloudpickle.dumps(memory.after)  # type: ignore[no-untyped-call]
    file.unlink()
    monkeypatch.delitem(sys.modules, name)
    event = {"van_id": "V", "late_minutes": 20, "dispatched_at": TEN}
    assert cloudpickle.loads(shipped)(event, None) == after(event, None)


def test_an_after_that_can_not_be_sent_so_is_read_by_the_workers_as_before(
    spark: SparkSession, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"locked_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "import threading\n\nLOCK = threading.Lock()\n\n\ndef after(event, before):\n    with LOCK:\n        return {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for odd in (importlib.import_module(name).after, functools.partial(after)):
        memory = dataclasses.replace(MEMORY, after=odd)
        Remembering(spark, dataclasses.replace(late_parcels_of_vans, memory=memory), catalog, 300)
        for shipped in (odd, functools.partial(sorted)):
            assert cloudpickle.loads(cloudpickle.dumps(shipped)) is not None  # type: ignore[no-untyped-call]


def test_a_key_has_one_timer_however_often_its_events_have_all_been_counted(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    stream = Stream(spark, catalog, tmp_path, dataclasses.replace(MEMORY, forgets_after=timedelta(days=30)))
    with stream.running() as query:
        for number in range(3):
            stream.take((0, number, "V", number * 240, 1), (1, number, "X", number * 240 + 130, 0))
        batch = query.recentProgress[-1]["batchId"]
    assert len(stream.made) == 3
    timers = (
        stream.spark.read.format("statestore")
        .options(path=str(tmp_path / "checkpoint"), batchId=batch, readRegisteredTimers=True)
        .load()
    )
    found = timers.groupBy("key").count().toArrow().to_pylist()
    assert [each["count"] for each in found] == [1, 1]


def test_without_a_value_to_remember_it_by_an_event_has_null_fields(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    stream = Stream(spark, catalog, tmp_path, function=lambda of: of.where("van_id IS NULL OR late_in_a_row > 0"))
    with stream.running():
        stream.take((0, 0, None, 0, 1), (0, 1, "V", 1, 1), (0, 2, "X", 600, 0))
        stream.take((0, 3, "X", 601, 0))
    assert stream.made[0] == ("0/0", "the schema has no null for van_id, late_in_a_row, late_mean_minutes")
    assert stream.made[1:] == [("0/1", "")]


def test_the_plan_tells_what_the_state_depends_on_and_nothing_else(spark: SparkSession, catalog: Catalog) -> None:
    def plan(contracts: Catalog = catalog, function: Function | None = None, **changes: Any) -> str:
        pipeline = dataclasses.replace(late_parcels_of_vans, memory=dataclasses.replace(MEMORY, **changes))
        if function is not None:
            pipeline = dataclasses.replace(pipeline, function=function)
        return Remembering(spark, pipeline, contracts, 300).plan

    same = plan()
    assert plan(function=lambda of: of.where("late_in_a_row = 3")) == same
    assert plan(reads=("dispatched_at", "late_minutes", "late_minutes")) == same, (
        "the time is given anyway, and order says nothing"
    )
    assert plan(after=lambda event, before: after(event, before)) == same
    others = [
        plan(reads=("late_minutes", "courier")),
        plan(fields={"late_in_a_row": "int", "late_mean_minutes": "double", "seen": "boolean"}),
        plan(forgets_after=timedelta(hours=5)),
        plan(_with(catalog, key_field="none"), of="courier"),
        plan(_with(catalog, derivation={"late_after_minutes": 60})),
    ]
    assert len({same, *others}) == 1 + len(others)
