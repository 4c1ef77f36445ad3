"""Records that could not be decoded, as records of the dead-letter topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.dead_letters.headers import CAUSE, ERRORS, STUMP_BYTES, STUMP_SHA256, TEXT_CHARACTERS, TIMESTAMP
from spark.records.headers import HEADERS_TYPE, coordinate, header_array, header_if_any


def dead_letter_headers(connector: str, record: Column, reason: Column, error: Column) -> Column:
    """The headers of a dead letter, as `contracts.dead_letters.headers.dead_letter_headers` makes them, and the timestamp.

    `record` is that of `spark.records.decode`, of which key and value are not asked for; of a stump it has what takes their place.
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


def _renamed(found: Column) -> Column:
    key = found["key"]
    name = F.when(key == "ce_id", "ce_causationid").when(key == "ce_causationid", CAUSE).otherwise(key)
    return F.struct(name.alias("key"), found["value"].alias("value"))


def dead_letters(decoded: DataFrame, topic: str, connector: str) -> DataFrame:
    """The bad rows of `spark.records.decode` as (topic, key, value, headers) of the dead-letter `topic`."""
    headers = dead_letter_headers(connector, F.col("record"), F.col("reason"), F.col("error"))
    return decoded.where(F.col("reason").isNotNull()).select(
        F.lit(topic).alias("topic"), "record.key", "record.value", headers.alias("headers")
    )
