"""How large a record is: `record_size`."""

from __future__ import annotations

import functools
import operator

from pyspark.sql import Column
from pyspark.sql import functions as F

from contracts.dead_letters.headers import REDRIVEN_FROM
from contracts.limits import HEADER_BYTES, RAW_BYTES, REDRIVEN_FROM_BYTES
from spark.headers import header


def record_size() -> Column:
    """As `contracts.limits.record_size` counts, of the columns `key`, `value` and `headers` of Spark's Kafka source; of less than RAW_BYTES,
    which are within every limit, with the header of a redrive."""
    # Joined, since a lambda for each header would keep Spark from compiling the whole; by concat_ws, which joins bytes, not characters.
    of_headers = F.size("headers") * HEADER_BYTES + F.octet_length(
        F.concat_ws("", F.col("headers.key"), F.col("headers.value").cast("array<string>"))
    )
    size = functools.reduce(operator.add, map(_or_none, (F.octet_length("key"), F.octet_length("value"), of_headers)))
    # Of most records nobody needs to know whether they were sent back: to look for that header takes longer than all else.
    note = F.octet_length(header(F.col("headers"), REDRIVEN_FROM)) + HEADER_BYTES + len(REDRIVEN_FROM)
    sent_back = F.least(_or_none(note), F.lit(REDRIVEN_FROM_BYTES))
    return F.when(size > RAW_BYTES, size - sent_back).otherwise(size)


def _or_none(size: Column) -> Column:
    return F.coalesce(size, F.lit(0))
