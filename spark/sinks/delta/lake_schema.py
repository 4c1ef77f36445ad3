"""The columns of a lake table: the event's fields, and what says where a row comes from."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from contracts.definitions.topic import TopicContract

OWN_COLUMNS = (
    StructField(
        "coordinate",
        StringType(),
        metadata={"comment": "topic/partition/offset of the raw record; /part, too, where it has several."},
    ),
    StructField("record_partition", IntegerType(), metadata={"comment": "Partition of the record in this topic."}),
    StructField("record_offset", LongType(), metadata={"comment": "Offset of the record in its partition."}),
    StructField("recorded_at", TimestampType(), metadata={"comment": "Timestamp of the record: when it was sent."}),
    StructField("raw_offset", LongType(), metadata={"comment": "The offset in `coordinate`, to find rows by."}),
)
"""What a row has beside the event's fields. An event's own `coordinate` is the raw record's already."""

KEY_COLUMN = StructField(
    "record_key", BinaryType(), metadata={"comment": "Key of the record, of which this is the newest."}
)
"""Further, where a table has the newest record of each key."""


def row_schema(spark: SparkSession, schema: str, *, newest: bool = False) -> StructType:
    """The columns for events of this Avro schema, their docs as comments; `newest`: of a table with the newest record of each key."""
    fields = {field["name"]: field for field in json.loads(schema)["fields"]}
    events = spark.range(0).select(from_avro(F.lit(b""), schema).alias("event")).schema["event"].dataType
    assert isinstance(events, StructType)
    columns = [
        StructField(name, events[name].dataType, metadata={"comment": field.get("doc", "")})
        for name, field in fields.items()
    ]
    return StructType([*columns, *_own_columns(list(fields)), *([KEY_COLUMN] if newest else [])])


def statistics(topic: TopicContract, fields: Sequence[str]) -> list[str]:
    """The columns whose least and greatest value the log has of each file: those that grow, the time of the event first."""
    return [topic.occurred_at, *(column.name for column in _own_columns(fields) if column.name != "coordinate")]


def _own_columns(fields: Sequence[str]) -> list[StructField]:
    own = [column for column in OWN_COLUMNS if column.name not in fields]
    # An event that has a coordinate itself says where it comes from; its record's id is none.
    return [column for column in own if column.name != "raw_offset"] if "coordinate" in fields else own
