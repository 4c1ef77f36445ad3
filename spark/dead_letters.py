"""Records that could not be decoded, as records of the dead-letter topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.headers import HEADERS_TYPE, header, header_array, header_if_any

_ERRORS = "__connect.errors"


def dead_letter_headers(connector: str, record: Column, reason: Column, error: Column) -> Column:
    """The original headers, the record's own ce_id as ce_causationid, then the coordinate as ce_id and Kafka Connect's
    names for what went wrong; as `contracts.publisher` writes them.
    """
    original = F.coalesce(record["headers"], F.array().cast(HEADERS_TYPE))
    return F.concat(
        F.filter(original, lambda found: found["key"] != "ce_id"),
        header_if_any("ce_causationid", header(original, "ce_id")),
        header_array({f"{_ERRORS}.connector.name": F.lit(connector), f"{_ERRORS}.stage": F.lit("VALUE_CONVERTER")}),
        header_array(
            {
                "ce_id": record["coordinate"],
                f"{_ERRORS}.topic": record["topic"],
                f"{_ERRORS}.partition": record["partition"].cast("string"),
                f"{_ERRORS}.offset": record["offset"].cast("string"),
                f"{_ERRORS}.exception.class.name": reason,
                f"{_ERRORS}.exception.message": error,
            }
        ),
    )


def dead_letters(decoded: DataFrame, topic: str, connector: str) -> DataFrame:
    """The bad rows of `spark.decode` as (topic, key, value, headers) of the dead-letter `topic`."""
    headers = dead_letter_headers(connector, F.col("record"), F.col("reason"), F.col("error"))
    return decoded.where(F.col("reason").isNotNull()).select(
        F.lit(topic).alias("topic"), "record.key", "record.value", headers.alias("headers")
    )
