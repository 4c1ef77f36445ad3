"""What a pipeline with state makes, as rows for its sink: `stateful_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.definitions.topic import TopicContract
from contracts.records.limits import DERIVED_BYTES
from spark.records.record_size import octets
from spark.records.schemas import WriterSchemas, never_null
from spark.records.wire import wire_value
from spark.sinks.kafka.sink import ToRows


class Read(NamedTuple):
    """Raw records of a topic, and by which schemas they are decoded; by how many minutes more than the contract says its events may be late."""

    raw: DataFrame
    schemas: WriterSchemas
    more_minutes: int = 0


class StatefulDerivation(Protocol):
    """What a pipeline with state makes of raw records."""

    plan: str
    """A hash of what the state depends on."""

    def stream(self, reads: Sequence[Read]) -> DataFrame:
        """Streams of raw records, one of each source, to one of what the function makes. Raises PipelineUnfit if it can't be made of streams."""

    def to_rows(self, made: DataFrame) -> DataFrame:
        """A batch of that to rows of `stateful_rows`."""

    def aside(self, topic: str, schemas: WriterSchemas, watermark_ms: int) -> ToRows:
        """Raw records of a source, named as in the contracts, to rows of `spark.sinks.kafka.sink.outgoing`: the bad ones, and with the reason
        LATE those that the watermark, milliseconds since 1970, had passed.
        """


def coordinate(topic: str, place: Column) -> Column:
    """That of the raw record of the topic at a place, a struct of `partition` and `offset`."""
    return F.concat(F.lit(f"{topic}/"), place["partition"].cast("string"), F.lit("/"), place["offset"].cast("string"))


def key_of(target: TopicContract) -> Column:
    """The field that is the key of a record, null where there is none."""
    return F.lit(None).cast("string") if target.key is None else F.col(target.key)


def stateful_rows(
    made: DataFrame,
    schema: str,
    schema_id: int,
    key: Column,
    occurred_at: str,
    record_id: Column | None = None,
    known_fault: Column | None = None,
) -> DataFrame:
    """What the function made to `key` binary, `value` binary, `ce_time` string, `id` string: the record's own, null where key, run and
    batch are it; and `fault` string: why it can't be a record, empty if it can. A `known_fault` is null where there is none.
    """
    lacking = F.concat_ws(", ", *[F.when(F.col(name).isNull(), name) for name in never_null(schema)])
    value = F.when(lacking == "", wire_value(schema, schema_id))
    rows = made.select(
        key.cast("binary").alias("key"),
        value.alias("value"),
        F.date_format(occurred_at, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("ce_time"),
        (F.lit(None).cast("string") if record_id is None else record_id).alias("id"),
        lacking.alias("lacking"),
        (F.lit(None).cast("string") if known_fault is None else known_fault).alias("known"),
    )
    own = F.octet_length(F.coalesce("id", F.col("key").cast("string")))
    # Some topics have no key.
    size = octets("key") + own + F.octet_length("value")
    fault = F.when(F.col("known").isNotNull(), F.col("known"))
    fault = fault.when(F.col("lacking") != "", F.concat(F.lit("the schema has no null for "), "lacking")).when(
        size > DERIVED_BYTES,
        F.concat(F.lit("key, id and value have "), size, F.lit(f" bytes, and at most {DERIVED_BYTES} fit")),
    )
    return rows.withColumn("fault", F.coalesce(fault, F.lit(""))).drop("lacking", "known")
