"""What the state of a pipeline holds, as rows with the pipeline's own names: `State`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField, TimestampType

from contracts.definitions.catalog import Catalog
from spark.derivation.fitness import event_type
from spark.derivation.stateful.joining import PLACES
from spark.derivation.stateful.kinds import stateful
from spark.derivation.stateful.memory_processor import VARIABLE
from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit, StateUnreadable
from spark.runtime.internals.joins import WATERMARK
from spark.runtime.internals.plans import NotRowByRow
from spark.runtime.internals.stored import of_groups
from spark.runtime.lifecycle import in_a_line
from spark.sinks.stateful.run import OTHERWISE
from spark.state.checkpoint import StateCheckpoint, StoredState
from spark.state.summary import StatePartition, StateSummary, StateTable

_SESSION = "sessionWindowStateStoreSaveExec"
"""Spark's operator that keeps sessions."""
_SIDES = ("left-keyWithIndexToValue", "right-keyWithIndexToValue")
"""Spark's stores with the rows of a join."""
_UNTIL = "expiresAtMicros"
"""Spark's name of the watermark, in microseconds since 1970, that an event is remembered until."""
_MATCHED = "matched"
"""Spark's column in those: whether the row was part of a pair."""


class _Table(NamedTuple):
    name: str
    rows: DataFrame
    order: list[Column]


class State:
    """What is stored, by a copy of its checkpoint: Spark makes folders where it finds none, and would do so in a checkpoint that is removed meanwhile."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, catalog: Catalog, stored: StoredState, folder: Path
    ) -> None:
        """`folder` has the copy. Raises StateUnreadable."""
        self._spark = spark.newSession()
        # That one is for S3 alone.
        self._spark.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
        # Whoever loads a state reports to what the first use of this starts (SPARK-58973).
        _ = self._spark.streams
        self._pipeline, self._catalog, self._stored, self._location = pipeline, catalog, stored, folder.as_uri()
        self._target = catalog.topic(pipeline.target)
        self._unfit = self._other_plan()
        self._rows = Counter[int]()
        try:
            metadata = self._spark.read.format("state-metadata").load(self._location).toArrow().to_pylist()
            stores = {each["stateStoreName"]: each["operatorName"] for each in metadata}
            # A partition that is not there, Spark takes for none.
            there = {int(each.name) for each in folder.glob("state/0/*") if each.name.isdigit()}
            if lacking := {*range(max((each["numPartitions"] for each in metadata), default=0))} - there:
                raise StateUnreadable(
                    f"the state of {pipeline.name} lacks the files of the partitions {sorted(lacking)}"
                )
            if self._target.is_join:
                self._tables = self._of_join(stores)
            elif self._target.is_sequence:
                self._tables = [self._of_memories(stores)]
            else:
                self._tables = [(self._of_events if self._target.is_distinct else self._of_groups)(stores)]
        except (PySparkException, Py4JJavaError) as failure:
            raise StateUnreadable(
                f"the state of {pipeline.name} behind batch {stored.behind.batch} can't be read: {in_a_line(failure)}. Its files are kept for "
                "some batches only: ask for a newer one"
            ) from failure

    def summary(self) -> StateSummary:
        """What is to be said before the rows."""
        stored, behind = self._stored, self._stored.behind
        sizes = behind.stored_bytes
        at = datetime.fromtimestamp(stored.watermark_ms / 1000, UTC) if stored.watermark_ms else None
        return StateSummary(
            pipeline=self._pipeline.name,
            topic=self._target.name,
            run=behind.run,
            batch=behind.batch,
            committed_at=behind.committed_at,
            coming=behind.coming,
            watermark=at,
            unfit=self._unfit,
            partitions=tuple(
                StatePartition(number=each, rows=self._rows[each], stored_bytes=sizes.get(each, 0))
                for each in sorted({*sizes, *self._rows})
            ),
            tables=tuple(
                StateTable(
                    name=name,
                    rows=rows.count(),
                    columns=tuple(rows.columns),
                    instants=tuple(each.name for each in rows.schema if isinstance(each.dataType, TimestampType)),
                )
                for name, rows, _ in self._tables
            ),
        )

    def rows(self, most: int | None) -> Iterator[tuple[int, str]]:
        """The first so many rows of each table, in the order of their times: its number, and the row as JSON."""
        for number, (_, rows, order) in enumerate(self._tables):
            ordered = rows.orderBy(*order)
            limited = ordered if most is None else ordered.limit(most)
            made = limited.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"})).toArrow()
            for text in made.column(0).to_pylist():
                yield number, text

    def _other_plan(self) -> str | None:
        """Why the pipeline can't go on with the state; None if it can."""
        name, run, note = self._pipeline.name, self._stored.behind.run, self._stored.note
        try:
            plan = stateful(self._spark, self._pipeline, self._catalog, 0).plan
        except PipelineUnfit as error:
            return str(error)
        if note is None:
            return f"the run {run} has lost its note of how it groups, joins or tells events apart"
        return None if note.plan == plan else f"{name} {OTHERWISE} than the run {run} did"

    def _of_join(self, stores: dict[str, str]) -> list[_Table]:
        found = []
        for source, store, place in zip(self._pipeline.sources, _SIDES, PLACES, strict=True):
            topic = self._catalog.topic(source).name
            value = self._read(store, stores).select("value.*")
            fields = [each for each in value.columns if each not in (place, _MATCHED)]
            coordinate = F.concat(F.lit(f"{topic}/"), F.col(place)).alias("coordinate")
            times = [F.col(each.name) for each in value.schema if WATERMARK in each.metadata]
            found.append(_Table(topic, value.select(coordinate, _MATCHED, *fields), [*times, F.col("coordinate")]))
        return found

    def _of_events(self, stores: dict[str, str]) -> _Table:
        until = F.timestamp_micros(f"value.{_UNTIL}").alias("remembered_until")
        rows = self._read("default", stores).select("key.*", until)
        # Not what the contract names them by: it may do so since then.
        *named_by, until_when = rows.columns
        return _Table("events", rows, [*map(F.col, (until_when, *named_by))])

    def _of_memories(self, stores: dict[str, str]) -> _Table:
        stored = self._read("default", stores, stateVarName=VARIABLE)
        # Not what the pipeline says: it may do so since then.
        last = F.timestamp_micros("value.last").alias("last_event_at")
        waiting = F.size("value.waiting").alias("waiting")
        rows = stored.select("key.of", "value.fields.*", last, waiting)
        if self._pipeline.memory is not None:
            rows = rows.withColumnRenamed("of", self._pipeline.memory.of)
        return _Table("memories", rows, [F.col("last_event_at"), F.col(rows.columns[0])])

    def _of_groups(self, stores: dict[str, str]) -> _Table:
        stored = self._read("default", stores)
        # A session's key is part of its value.
        is_session = stores["default"] == _SESSION
        found = stored.select("value.*") if is_session else stored.select("key.*", "value.*")
        # Two averages have a `sum` each.
        parts = found.toDF(*_apart(found.columns))
        name = "open sessions" if is_session else "open groups"
        if self._unfit is None:
            try:
                return self._made(name, parts)
            except NotRowByRow as error:
                self._unfit = str(error)
        return _Table(name, parts.select(*map(_shown, parts.schema)), [_column(parts.columns[0])])

    def _made(self, name: str, parts: DataFrame) -> _Table:
        """What the function makes of the groups now."""
        pipeline, target = self._pipeline, self._target
        kinds = [event_type(self._spark, self._catalog.schema(source)) for source in pipeline.sources]
        frames = [self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), kind) for kind in kinds]
        made = of_groups(pipeline(*frames), parts)
        wanted = event_type(self._spark, self._catalog.schema(pipeline.target)).fieldNames()
        rows = made.select([each for each in wanted if each in made.columns])
        order = [target.occurred_at] if target.is_ranking else [target.occurred_at, str(target.key)]
        return _Table(name, rows, [*map(F.col, order)])

    def _read(self, store: str, stores: dict[str, str], **options: str) -> DataFrame:
        """What a store holds, kept on this machine's disk. `options`: further ones of Spark's reader."""
        if store not in stores:
            raise StateUnreadable(
                f"the state of {self._pipeline.name} has {', '.join(sorted(stores)) or 'no metadata'}, and not the store {store}: files of it were "
                "removed, or another version wrote it. Ask again, or with the version that wrote it"
            )
        found = (
            self._spark.read.format("statestore")
            .option("path", self._location)
            .option("batchId", self._stored.behind.batch)
            .options(storeName=store, **options)
            .load()
            .persist(StorageLevel.DISK_ONLY)
        )
        for each in found.groupBy("partition_id").count().toArrow().to_pylist():
            self._rows[each["partition_id"]] += each["count"]
        return found


def read(
    spark: SparkSession,
    pipeline: Pipeline,
    catalog: Catalog,
    checkpoint: StateCheckpoint,
    batch: int | None,
    folder: Path,
    tell: Callable[[str], None],
) -> State:
    """The state behind this batch, or behind the last. If that can't be read, and another is the last by now, behind that one.

    `folder` is where copies of checkpoints go. Raises StateUnreadable.
    """
    stored = checkpoint.at(batch)
    try:
        return _copied(spark, pipeline, catalog, checkpoint, stored, folder / "first")
    except StateUnreadable as failure:
        newest = checkpoint.at(None)
        if batch is not None or (newest.behind.run, newest.behind.batch) == (stored.behind.run, stored.behind.batch):
            raise
        tell(f"{failure}. The pipeline has gone on: reading batch {newest.behind.batch} of the run {newest.behind.run}")
        return _copied(spark, pipeline, catalog, checkpoint, newest, folder / "second")


def _copied(
    spark: SparkSession,
    pipeline: Pipeline,
    catalog: Catalog,
    checkpoint: StateCheckpoint,
    stored: StoredState,
    folder: Path,
) -> State:
    folder.mkdir()
    checkpoint.copy(stored, folder)
    return State(spark, pipeline, catalog, stored, folder)


def _apart(names: Sequence[str]) -> list[str]:
    """The same, with numbers behind those that were there before."""
    seen = Counter[str]()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def _shown(field: StructField) -> Column:
    """A part of a value that only Spark can read is told by its size."""
    column = _column(field.name)
    is_binary = isinstance(field.dataType, BinaryType)
    return F.concat(F.octet_length(column), F.lit(" bytes")).alias(field.name) if is_binary else column


def _column(name: str) -> Column:
    """Spark calls a part `MS[0]`, too."""
    return F.col(f"`{name}`")
