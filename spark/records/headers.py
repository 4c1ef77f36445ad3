"""Kafka headers as Spark has them: array<struct<key: string, value: binary>>."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

HEADERS_TYPE = "array<struct<key:string,value:binary>>"


def coordinate(topic: Column, partition: Column, offset: Column, part: Column | None = None) -> Column:
    """`topic/partition/offset`, as the header `ce_id` of what comes of a record names it; with the number of a part, if there is one."""
    numbers = [partition, offset] if part is None else [partition, offset, part]
    return F.concat_ws("/", topic, *[number.cast("string") for number in numbers])


def header(headers: Column, key: str) -> Column:
    """The value, as bytes, of the last header with this key, as `contracts.records.headers` has it; null if there is none."""
    from_the_end = F.array_position(F.reverse(headers["key"]), F.lit(key)).cast("int")
    # Where there is none, this is one beyond the last. Whatever asked whether it is there would make Spark look for it twice.
    return F.get(headers, F.array_size(headers) - from_the_end)["value"]


def header_array(values: Mapping[str, Column]) -> Column:
    """Headers with these values (text or bytes), in this order. Of literals alone, Spark makes it one literal."""
    return F.array(
        *[F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value")) for key, value in values.items()]
    ).cast(HEADERS_TYPE)


def header_if_any(key: str, value: Column) -> Column:
    """One header, or none when the value is null."""
    return F.when(value.isNull(), F.array().cast(HEADERS_TYPE)).otherwise(header_array({key: value}))
