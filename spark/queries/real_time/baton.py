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

_STEPS = 2_000
_SHORT, _LONG_MS = 1_000, 120
"""A record that waits looks so often once a millisecond, then seldom: for two minutes in all. Then its task fails."""


class Baton:
    """Between two queries that read these partitions. Until it is asked for, the query before keeps each record, and the first record of the query behind
    waits, in each partition. From then on the query before gives each partition away at its next record, and the one behind goes on with that.
    """

    def __init__(self, spark: SparkSession, partitions: Collection[int]) -> None:
        self._spark = spark
        self._partitions = partitions
        self._name = f"headrace.baton.{uuid.uuid4().hex}"

    def kept(self, records: DataFrame) -> DataFrame:
        """Of raw records, which have `partition` and `offset`, those that the query before takes."""
        given = _of_partition(self._given)
        # What it was before is the text null: so it is given away, and never kept.
        give = _java("System", "setProperty", given, F.col("offset").cast("string")) == ""
        asked = F.when(_property(given) != "", F.lit(False)).otherwise(give)
        return records.where(F.when(_property(F.lit(self._name)) == "", F.lit(True)).otherwise(asked))

    def taken(self, records: DataFrame) -> DataFrame:
        """Of raw records those that the query behind takes."""
        given = _property(_of_partition(self._given))
        waits = _java("System", "setProperty", _of_partition(self._waiting), F.lit("yes")).isNotNull()
        told = F.aggregate(
            F.sequence(F.lit(1), F.lit(_STEPS)),
            F.when(waits, F.lit("")),
            lambda found, step: F.when(found != "", found).when(_slept(step), given).otherwise(""),
        )
        place = F.when(given != "", given).otherwise(told).try_cast("bigint")
        late = F.raise_error(F.lit("the query before has not said where it ends")).cast("bigint")
        return records.where(F.col("offset") >= F.coalesce(place, late))

    def ask(self) -> None:
        """Ask the query before for all of its partitions."""
        set_java_property(self._spark, self._name, "asked")

    def given(self) -> dict[int, int]:
        """The partitions that have been given away, each with the offset at which the query behind goes on."""
        found = {partition: java_property(self._spark, self._given(partition)) for partition in self._partitions}
        return {partition: int(offset) for partition, offset in found.items() if offset is not None}

    def waiting(self) -> set[int]:
        """The partitions of which a record waits, or has waited."""
        return {p for p in self._partitions if java_property(self._spark, self._waiting(p)) is not None}

    def give(self, places: Mapping[int, int]) -> None:
        """Give partitions away at these offsets in place of the query before, which was asked, and has written all before them."""
        for partition, offset in places.items():
            set_java_property(self._spark, self._given(partition), str(offset))

    def drop(self) -> None:
        """Leave nothing behind. Neither query may run any more."""
        for partition in self._partitions:
            clear_java_property(self._spark, self._given(partition))
            clear_java_property(self._spark, self._waiting(partition))
        clear_java_property(self._spark, self._name)

    def _given(self, partition: object) -> str:
        return f"{self._name}.{partition}"

    def _waiting(self, partition: object) -> str:
        return f"{self._name}.waiting.{partition}"


def _of_partition(name: Callable[[object], str]) -> Column:
    """What the property of a record's partition is called."""
    return F.concat(F.lit(name("")), F.col("partition").cast("string"))


def _property(name: Column) -> Column:
    """Its value now, or the empty text."""
    return _java("System", "getProperty", name, F.lit(""))


def _slept(step: Column) -> Column:
    """True, after a while."""
    pause_ms = F.when(step <= _SHORT, F.lit(1)).otherwise(F.lit(_LONG_MS))
    return _java("Thread", "sleep", pause_ms.cast("bigint")).isNotNull()


def _java(of: str, method: str, *arguments: Column) -> Column:
    """What a static method of `java.lang` returns, as text; called for each record."""
    return F.reflect(F.lit(f"java.lang.{of}"), F.lit(method), *arguments)
