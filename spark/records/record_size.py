"""How large a record is: `record_size`, `octets`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.records.limits import HEADER_BYTES, REDRIVEN_FROM_BYTES
from spark.records.headers import header


def record_size(record: Column) -> Column:
    """As `contracts.records.limits.record_size` counts, of a struct with `key`, `value` and `headers` of Spark's Kafka source."""
    # Joined, since a lambda for each header would keep Spark from compiling the whole; by concat_ws, which joins bytes, not characters.
    headers = record["headers"]
    texts = F.concat_ws("", headers["key"], headers["value"].cast("array<string>"))
    note = F.octet_length(header(headers, REDRIVEN_FROM)) + HEADER_BYTES + len(REDRIVEN_FROM)
    size = octets(record["key"]) + octets(record["value"]) + octets(texts) + _or_none(F.size(headers) * HEADER_BYTES)
    return size - F.least(_or_none(note), F.lit(REDRIVEN_FROM_BYTES))


def octets(part: Column | str) -> Column:
    """How many bytes it has; none where it is null."""
    return _or_none(F.octet_length(part))


def _or_none(size: Column) -> Column:
    return F.coalesce(size, F.lit(0))
