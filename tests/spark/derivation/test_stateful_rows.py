"""What a pipeline with state makes that can't be a record."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contracts.records.limits import DERIVED_BYTES
from spark.derivation.stateful.stateful_rows import stateful_rows

SCHEMA = json.dumps({"type": "record", "name": "Remark", "fields": [{"name": "text", "type": "string"}]})


@pytest.mark.parametrize("key", [None, "k"])
def test_what_is_too_long_for_a_record_is_named_with_a_key_and_without(spark: SparkSession, key: str | None) -> None:
    at = datetime(2024, 1, 1, tzinfo=UTC)
    made = spark.createDataFrame([("short", at), ("x" * DERIVED_BYTES, at)], "text string, at timestamp")
    rows = stateful_rows(made, SCHEMA, 7, F.lit(key).cast("string"), "at", F.lit("raw/0/1"))
    short, long = [str(row["fault"]) for row in rows.collect()]
    assert short == ""
    assert f"bytes, and at most {DERIVED_BYTES} fit" in long
