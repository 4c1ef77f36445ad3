"""Records that could not be decoded, as records of the dead-letter topic."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.headers import HEADERS_TYPE, header, header_array, header_if_any


def dead_letter_headers(connector: str, record: Column, reason: Column, error: Column) -> Column:
    """The original headers, the record's own ce_id as ce_causationid, then the coordinate as ce_id and Kafka Connect's
    names for what went wrong; as `contracts.publisher` writes them.
    """
    original = F.coalesce(record["headers"], F.array().cast(HEADERS_TYPE))
    own_id = header(original, "ce_id")
    own_id_header = F.struct(F.lit("ce_id").alias("key"), own_id.alias("value"))
    return F.concat(
        F.when(own_id.isNull(), original).otherwise(F.array_remove(original, own_id_header)),
        header_if_any("ce_causationid", own_id),
        header_array(
            {
                "ce_id": record["coordinate"],
                "__connect.errors.topic": record["topic"],
                "__connect.errors.partition": record["partition"].cast("string"),
                "__connect.errors.offset": record["offset"].cast("string"),
                "__connect.errors.connector.name": F.lit(connector),
                "__connect.errors.stage": F.lit("VALUE_CONVERTER"),
                "__connect.errors.exception.class.name": reason,
                "__connect.errors.exception.message": error,
            }
        ),
    )


def dead_letters(decoded: DataFrame, topic: str, connector: str) -> DataFrame:
    """The bad rows of `spark.decode` as (topic, key, value, headers) of the dead-letter `topic`."""
    headers = dead_letter_headers(connector, F.col("record"), F.col("reason"), F.col("error"))
    return decoded.where(F.col("reason").isNotNull()).select(
        F.lit(topic).alias("topic"), "record.key", "record.value", headers.alias("headers")
    )
