"""Which events are behind their time, or ahead of it: `without_future`, `late_or_bad`, `check_watermarks`, and how an instant is told."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.joins import WATERMARK, all_nodes
from spark.sinks.kafka.sink import LATE, outgoing

REASON = "__reason"
"""The column by whose filter bad records are left out of a stream."""

_AHEAD_MINUTES = 60
"""As far as the brokers let the time of a record be ahead of theirs; half of what an event may be late, if that is less."""


def without_future(decoded: DataFrame, occurred_at: str, late_after_minutes: int) -> DataFrame:
    """`events` of `spark.records.decode`, where an event from the future is bad: by it alone all others would be late. `occurred_at` is the field
    with an event's time.
    """
    happened_at, sent_at = F.col(occurred_at), F.col("__record.timestamp")
    ahead = f"{max(1, min(_AHEAD_MINUTES, late_after_minutes // 2))} minutes"
    is_ahead = F.col(REASON).isNull() & (happened_at > sent_at + F.expr(f"INTERVAL {ahead}"))
    error = F.concat(
        F.lit(f"{occurred_at} is "), told(happened_at), F.lit(f", more than {ahead} after the time of the record, "), told(sent_at)
    )  # fmt: skip
    return decoded.withColumns(
        {
            REASON: F.when(is_ahead, "FromTheFuture").otherwise(F.col(REASON)),
            "__error": F.when(is_ahead, error).otherwise(F.col("__error")),
        }
    )


def watermarked(spark: SparkSession, kind: StructType, occurred_at: str, late_after_minutes: int) -> DataFrame:
    """A frame with these fields and without rows, whose field with an event's time has the watermark that a stream has."""
    delay = {WATERMARK: late_after_minutes * 60_000}
    fields = [
        StructField(each.name, each.dataType, each.nullable, delay if each.name == occurred_at else {}) for each in kind
    ]
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), StructType(fields))


def check_watermarks(pipeline: Pipeline, made: DataFrame) -> None:
    """Whether what a function makes of streams, each of which has its watermark, has no other one. Of a frame that is no stream Spark leaves them out.

    Raises PipelineUnfit.
    """
    if watermarks(made) != len(pipeline.sources):
        raise PipelineUnfit(
            f"{pipeline.name} calls withWatermark, and the contract of {pipeline.target} says how late an event may be: leave it out"
        )


def watermarks(made: DataFrame) -> int:
    """How many of its steps give a stream a watermark."""
    return sum(node.nodeName() == "EventTimeWatermark" for node in all_nodes(made))


def late_or_bad(decoded: DataFrame, occurred_at: Column, watermark_ms: int) -> DataFrame:
    """Of `events` those that have a reason, and with the reason LATE those that are not newer than the watermark, milliseconds since 1970, as rows of
    `spark.sinks.kafka.sink.outgoing`.
    """
    watermark = F.timestamp_millis(F.lit(watermark_ms))
    is_late = F.col(REASON).isNull() & (occurred_at <= watermark)
    late = F.concat(F.lit("it is of "), told(occurred_at), F.lit(", and the watermark was "), told(watermark))
    marked = decoded.withColumns(
        {
            "__error": F.when(is_late, late).otherwise(F.col("__error")),
            REASON: F.when(is_late, LATE).otherwise(F.col(REASON)),
        }
    ).where(F.col(REASON).isNotNull())
    return outgoing(marked, F.lit(None).cast("binary"), F.lit(""))


def told(instant: Column) -> Column:
    """As text, to the second."""
    return F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss'Z'")
