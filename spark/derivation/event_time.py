"""Which events are behind their time, or ahead of it: `without_future`, and how an instant is told."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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


def told(instant: Column) -> Column:
    """As text, to the second."""
    return F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss'Z'")
