"""What `live` and `lake` take for an event, the audit takes for one."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from spark.decode import decode
from spark.schemas import WriterSchemas
from tests.audit.bodies import records
from tests.spark.records import framed, raw_frame


def test_spark_takes_the_bodies_that_the_audit_takes(spark: SparkSession) -> None:
    by_schema: dict[str, list[tuple[bytes, bool]]] = {}
    for schema, body, is_event in records():
        by_schema.setdefault(schema, []).append((body, is_event))
    for schema, bodies in by_schema.items():
        raw = raw_frame(spark, *(framed(7, body) for body, _ in bodies))
        rows = decode(raw, WriterSchemas("s", schema, {7: schema})).orderBy("record.offset").collect()
        found = [row.reason is None for row in rows]
        assert found == [is_event for _, is_event in bodies], json.loads(schema)["fields"][1]
