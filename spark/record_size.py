"""How large a record is: `record_size`."""

from __future__ import annotations

import functools
import operator

from pyspark.sql import Column
from pyspark.sql import functions as F

from contracts.dead_letters.headers import REDRIVEN_FROM
from contracts.limits import HEADER_BYTES, REDRIVEN_FROM_BYTES
from spark.headers import header


def record_size() -> Column:
    """As `contracts.limits.record_size` counts, of the columns `key`, `value` and `headers` of Spark's Kafka source."""
    # Joined, since a lambda for each header would keep Spark from compiling the whole.
    names = F.octet_length(F.array_join(F.col("headers.key"), ""))
    contents = F.octet_length(F.array_join(F.col("headers.value").cast("array<string>"), ""))
    of_headers = F.size("headers") * HEADER_BYTES + names + contents
    note = F.octet_length(header(F.col("headers"), REDRIVEN_FROM)) + HEADER_BYTES + len(REDRIVEN_FROM)
    parts = (
        F.octet_length("key"),
        F.octet_length("value"),
        of_headers,
        -F.least(_or_none(note), F.lit(REDRIVEN_FROM_BYTES)),
    )
    return functools.reduce(operator.add, map(_or_none, parts))


def _or_none(size: Column) -> Column:
    return F.coalesce(size, F.lit(0))
