"""What one query passes on to the next, partition by partition and between two records: `Baton`.

Spark can't tell a query that runs where to stop, nor one that waits when to begin. But tasks and driver are threads of one Java process
(`local[N]`), which have its system properties in common. So each record asks there first whether it is this query's turn.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.runtime.internals.java import java_property, set_java_property

_WAIT_MS = 30_000
"""How long a record waits for the query before; then its task fails."""


class Baton:
    """Between two queries that read the same partitions. Until it is asked for, the first one keeps all records, and the second one none: its first record
    of each partition waits. Afterwards the first query's next record of a partition is where it gives that partition away, and the second one goes on there.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._name = f"headrace.baton.{uuid.uuid4().hex}"
        self._partitions: set[int] = set()

    def kept(self, records: DataFrame) -> DataFrame:
        """Of raw records those that the query before takes."""
        asked, given = _property(F.lit(self._name)), _property(self._given())
        # What was set before is null, and null is the text null.
        give = _static("java.lang.System", "setProperty", self._given(), F.col("offset").cast("string")) == ""
        return records.where(F.when(asked == "", F.lit(True)).when(given != "", F.lit(False)).otherwise(give))

    def taken(self, records: DataFrame) -> DataFrame:
        """Of raw records those that the query behind takes."""
        given = _property(self._given())
        slept = _static("java.lang.Thread", "sleep", F.lit(1).cast("bigint")).isNotNull()
        waits = _static("java.lang.System", "setProperty", self._waiting(), F.lit("yes")).isNotNull()
        told = F.aggregate(
            F.sequence(F.lit(1), F.lit(_WAIT_MS)),
            F.when(waits, F.lit("")),
            lambda found, _: F.when(found != "", found).when(slept, _property(self._given())).otherwise(""),
        )
        place = F.when(given != "", given).otherwise(told)
        late = F.raise_error(F.lit(f"the query before has not said in {_WAIT_MS // 1000} s where it ends"))
        return records.where(F.col("offset") >= F.coalesce(place.try_cast("bigint"), late.cast("bigint")))

    def ask(self) -> None:
        """From now on the query before gives each partition away at its next record."""
        set_java_property(self._spark, self._name, "asked")

    def given(self, partitions: Iterable[int]) -> dict[int, int]:
        """Of these partitions those that have been given away, with the first offset of the query behind."""
        found = {partition: java_property(self._spark, f"{self._name}.{partition}") for partition in partitions}
        return {partition: int(offset) for partition, offset in found.items() if offset is not None}

    def waiting(self, partitions: Iterable[int]) -> set[int]:
        """Of these partitions those of which a record waits, or has waited."""
        return {p for p in partitions if java_property(self._spark, f"{self._name}.waiting.{p}") is not None}

    def give(self, places: Mapping[int, int]) -> None:
        """Give partitions away in the place of the query before, which has written all below these offsets, and was asked when there was nothing behind them."""
        for partition, offset in places.items():
            set_java_property(self._spark, f"{self._name}.{partition}", str(offset))

    def _given(self) -> Column:
        return F.concat(F.lit(f"{self._name}."), F.col("partition").cast("string"))

    def _waiting(self) -> Column:
        return F.concat(F.lit(f"{self._name}.waiting."), F.col("partition").cast("string"))


def _property(name: Column) -> Column:
    return _static("java.lang.System", "getProperty", name, F.lit(""))


def _static(of: str, method: str, *arguments: Column) -> Column:
    return F.reflect(F.lit(of), F.lit(method), *arguments)
