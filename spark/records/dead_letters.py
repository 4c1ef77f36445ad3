"""Records that could not be decoded, as records of the dead-letter topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.records.dead_letter_headers import CAUSE, ERRORS, STUMP_BYTES, STUMP_SHA256, TEXT_CHARACTERS, TIMESTAMP
from contracts.records.limits import KEPT_BYTES
from spark.records.headers import HEADERS_TYPE, coordinate, header_array, header_if_any
from spark.records.record_size import record_size


def dead_letter_headers(connector: str, record: Column, reason: Column, error: Column) -> Column:
    """The headers of a dead letter, as `contracts.records.dead_letter_headers.dead_letter_headers` makes them, and the timestamp.

    `record` is what `kept` gives, of which key and value are not asked for.
    """
    original = F.coalesce(record["headers"], F.array().cast(HEADERS_TYPE))
    return F.concat(
        F.transform(original, _renamed).cast(HEADERS_TYPE),
        header_array(
            {
                "ce_id": coordinate(record["topic"], record["partition"], record["offset"]),
                f"{ERRORS}topic": record["topic"],
                f"{ERRORS}partition": record["partition"].cast("string"),
                f"{ERRORS}offset": record["offset"].cast("string"),
                f"{ERRORS}exception.class.name": reason,
                f"{ERRORS}exception.message": F.left(error, F.lit(TEXT_CHARACTERS)),
                TIMESTAMP: F.unix_millis(record["timestamp"]).cast("string"),
            }
        ),
        header_array({f"{ERRORS}connector.name": F.lit(connector), f"{ERRORS}stage": F.lit("VALUE_CONVERTER")}),
        header_if_any(STUMP_BYTES, record["stump"]["bytes"].cast("string")),
        header_if_any(STUMP_SHA256, record["stump"]["sha256"]),
    )


def kept(record: Column) -> Column:
    """The `record` of `spark.records.decode` as a dead letter holds it: with a further field `stump`, null but for one that is larger
    than a dead letter may be. Of that one, key, value and headers are null, and `stump` is a struct of its `bytes` and of its value's `sha256`.
    """
    size = record_size(record)
    fits = size <= KEPT_BYTES
    stump = F.struct(size.alias("bytes"), F.sha2(record["value"], 256).alias("sha256"))
    return F.struct(
        *[record[name].alias(name) for name in ("topic", "partition", "offset", "timestamp")],
        *[F.when(fits, record[name]).alias(name) for name in ("key", "value", "headers")],
        F.when(~fits, stump).alias("stump"),
    )


def _renamed(found: Column) -> Column:
    key = found["key"]
    name = F.when(key == "ce_id", "ce_causationid").when(key == "ce_causationid", CAUSE).otherwise(key)
    return F.struct(name.alias("key"), found["value"].alias("value"))


def dead_letters(decoded: DataFrame, topic: str, connector: str) -> DataFrame:
    """The bad rows of `spark.records.decode` as (topic, key, value, headers) of the dead-letter `topic`."""
    bad = decoded.where(F.col("reason").isNotNull()).withColumn("record", kept(F.col("record")))
    headers = dead_letter_headers(connector, F.col("record"), F.col("reason"), F.col("error"))
    return bad.select(F.lit(topic).alias("topic"), "record.key", "record.value", headers.alias("headers"))
