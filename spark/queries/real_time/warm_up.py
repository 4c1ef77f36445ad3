"""Practice before the first record: `warm_up`."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_RECORDS = 40_000
_log = structlog.get_logger(__name__)


def warm_up(records: DataFrame, count: int, make: Callable[[DataFrame], DataFrame]) -> None:
    """Make of some raw records, which are `count`, what the query will make of them, some ten thousand times, and write it nowhere: the JVM compiles meanwhile
    what it would run slowly for the first records.
    """
    began = time.monotonic()
    often = records.withColumn("again", F.explode(F.sequence(F.lit(1), F.lit(_RECORDS // count + 1)))).drop("again")
    try:
        make(often).write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        # A record that can't be decoded yet: the query finds it, too.
        _log.info("no practice before the first record", reason=str(error).splitlines()[0])
    _log.info("warmed up", seconds=round(time.monotonic() - began, 1))
