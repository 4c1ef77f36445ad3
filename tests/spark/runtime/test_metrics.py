"""What is told of a query that runs."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from spark.runtime.metrics import Progress


def test_where_others_tell_whether_a_query_gets_on_its_progress_alone_says_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In real-time mode an interval ends, and with it comes progress, whether each partition was read or not."""
    session = spark.newSession()
    # That one is for S3 alone.
    session.conf.unset("spark.sql.streaming.checkpointFileManagerClass")
    rows = session.readStream.format("rate").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        heard, told = Progress(), Progress()
        for progress in (heard, told):
            progress.look(query, counts=progress is heard)
        while not query.recentProgress:
            time.sleep(0.1)
        for progress in (heard, told):
            progress.look(query, counts=progress is heard)
        assert heard.silent_seconds() < told.silent_seconds()
        told.hear(str(query.id))
        assert told.silent_seconds() < heard.silent_seconds()
    finally:
        query.stop()
