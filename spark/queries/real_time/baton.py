"""What one query passes on to the next, partition by partition and between two records: `Baton`.

Spark can't tell a query that runs where to stop, nor one that waits where to begin. But driver and tasks are threads of one Java process
(`local[N]`) and share its system properties. So each record asks there whether it is its query's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.runtime.internals.java import clear_java_property, java_property, set_java_property

_STEPS, _SHORT = 2_000, 1_500
"""A record that waits looks so often: first once a millisecond, then ever more seldom, for two minutes in all. Then its task fails."""
_WATCHED, _ASKED = "watched", "asked"
_NO_OFFSET = str((1 << 63) - 1)
"""One that no record has: the first query has the record that asked, so the second one leaves it out."""
_AT_THE_HEELS = 1_000
"""So many offsets behind the first query at most."""


class Baton:
    """Between two queries that read these partitions. At first the first query takes each record. Watched, it notes how far it is: the second query skips
    the records before, and holds the next one. Asked, the first query gives each partition away at its next record, and the second one goes on there.
    """

    def __init__(self, spark: SparkSession, partitions: Collection[int]) -> None:
        self._spark = spark
        self.partitions = frozenset(partitions)
        self._name = f"headrace.baton.{uuid.uuid4().hex}"
        self.is_asked = False
        """Whether the first query was asked for its partitions."""

    def of_first(self, records: DataFrame) -> DataFrame:
        """The raw records, which have `partition` and `offset`, that the first query takes."""
        state, given = _property(F.lit(self._name)), _of_partition(self._given)
        # Both are there for what they set. `setProperty` returns what was there before, never the empty text: so the first is always true, the second never.
        notes_and_keeps = _set(_of_partition(self._first), F.col("offset") + 1) != ""
        gives_away = _set(given, F.col("offset")) == ""
        asked = F.when(_property(given) != "", F.lit(False)).otherwise(gives_away)
        # Each mention of the state reads it. Whatever it changes to between two of them, the record is kept.
        keeps = F.lit(True)
        return records.where(
            F.when(state == "", keeps)
            .when(state == _ASKED, asked)
            .when(state == _WATCHED, notes_and_keeps)
            .otherwise(keeps)
        )

    def of_second(self, records: DataFrame) -> DataFrame:
        """The raw records that the second query takes. For partitions that were added since, it waits for nothing."""
        given, first = _property(_of_partition(self._given)), _property(_of_partition(self._first)).try_cast("bigint")
        is_behind = (_set(_of_partition(self._second), F.col("offset")) != "") & (first > F.col("offset"))

        def told(otherwise: Column) -> Column:
            return F.when(given != "", given).when(is_behind, F.lit(_NO_OFFSET)).otherwise(otherwise)

        waited = F.aggregate(
            F.sequence(F.lit(1), F.lit(_STEPS)),
            F.lit(""),
            lambda found, step: F.when(found != "", found).when(_slept(step), told(F.lit(""))).otherwise(""),
        )
        late = F.raise_error(
            F.concat(
                F.lit("waited two minutes for the first query to give away partition "),
                F.col("partition").cast("string"),
                F.lit(", at offset "),
                F.col("offset").cast("string"),
                F.lit(": the process hung"),
            )
        ).cast("bigint")
        is_here = F.col("offset") >= F.coalesce(told(waited).try_cast("bigint"), late)
        # Spark adds partitions at an interval's end. Of those the first query has mostly had nothing; else it has given them away, too.
        is_added = ~F.col("partition").isin(*self.partitions)
        is_left = F.col("offset") >= F.coalesce(given.try_cast("bigint"), F.lit(0))
        return records.where(F.when(is_added, is_left).otherwise(is_here))

    def watch(self) -> None:
        """Have the first query note how far it is."""
        # A task may have noted something after an attempt that failed was dropped.
        self.drop()
        set_java_property(self._spark, self._name, _WATCHED)

    def ask(self) -> None:
        """Ask the first query for all of its partitions."""
        self.is_asked = True
        set_java_property(self._spark, self._name, _ASKED)

    def given(self) -> dict[int, int]:
        """The partitions that have been given away, each with the offset at which the second query goes on."""
        return self._offsets(self._given)

    def first_at(self) -> dict[int, int]:
        """How far the first query is, watched, in each partition that has got a record since: the offset after that."""
        return self._offsets(self._first)

    def second_at(self) -> dict[int, int]:
        """How far the second query is in each partition of which it has had a record."""
        return self._offsets(self._second)

    def is_at_the_heels(self) -> bool:
        """Whether the second query is close behind the first, in each partition that got a record since that is watched."""
        second = self.second_at()
        return all(p in second and at - second[p] <= _AT_THE_HEELS for p, at in self.first_at().items())

    def give(self, places: Mapping[int, int]) -> None:
        """Give partitions away at these offsets, in place of a first query that has written all before them, or that there never was."""
        for partition, offset in places.items():
            set_java_property(self._spark, self._given(partition), str(offset))

    def drop(self) -> None:
        """Leave nothing behind, and have the first query take each record. If that was asked, it may not run any more."""
        clear_java_property(self._spark, self._name)
        for partition in self.partitions:
            for name in (self._given, self._first, self._second):
                clear_java_property(self._spark, name(partition))

    def _offsets(self, name: Callable[[object], str]) -> dict[int, int]:
        found = {partition: java_property(self._spark, name(partition)) for partition in self.partitions}
        return {partition: int(offset) for partition, offset in found.items() if offset is not None}

    def _given(self, partition: object) -> str:
        return f"{self._name}.{partition}"

    def _first(self, partition: object) -> str:
        return f"{self._name}.first.{partition}"

    def _second(self, partition: object) -> str:
        return f"{self._name}.second.{partition}"


def _of_partition(name: Callable[[object], str]) -> Column:
    """What the property of a record's partition is called."""
    return F.concat(F.lit(name("")), F.col("partition").cast("string"))


def _property(name: Column) -> Column:
    """Its value now, or the empty text."""
    return _java("System", "getProperty", name, F.lit(""))


def _set(name: Column, value: Column) -> Column:
    """What it was before; the text null if it was not there."""
    return _java("System", "setProperty", name, value.cast("string"))


def _slept(step: Column) -> Column:
    """True, after a while."""
    pause_ms = F.greatest(F.lit(1), step - _SHORT)
    return _java("Thread", "sleep", pause_ms.cast("bigint")).isNotNull()


def _java(of: str, method: str, *arguments: Column) -> Column:
    """What a static method of `java.lang` returns, as text; called for each record."""
    return F.reflect(F.lit(f"java.lang.{of}"), F.lit(method), *arguments)
