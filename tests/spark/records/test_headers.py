"""A record's headers as Spark's expressions read them, and as everybody else does."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contracts.records.headers import header_of
from spark.records.headers import HEADERS_TYPE, header

Headers = list[tuple[str, bytes | None]]

CASES: list[Headers | None] = [
    None,
    [],
    [("other", b"1")],
    [("ce_id", b"1")],
    [("ce_id", b"1"), ("other", b"2"), ("ce_id", b"3")],
    [("ce_id", b"1"), ("other", b"2")],
    [("other", b"2"), ("ce_id", b"")],
    [("ce_id", b"1"), ("ce_id", None)],
    [("", b"1"), ("CE_ID", b"2"), ("ce_id ", b"3")],
]


@pytest.mark.parametrize("name", ["ce_id", "", "none"])
def test_the_last_header_of_a_name_is_found_as_everybody_finds_it(spark: SparkSession, name: str) -> None:
    rows = [(at, headers) for at, headers in enumerate(CASES)]
    frame = spark.createDataFrame(rows, f"at int, headers {HEADERS_TYPE}")
    found = frame.orderBy("at").select(header(F.col("headers"), name).alias("value")).collect()
    expected = [header_of(headers or [], name) for headers in CASES]
    assert [None if row.value is None else bytes(row.value) for row in found] == expected
