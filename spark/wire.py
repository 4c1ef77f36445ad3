"""Events to Kafka records: the Confluent wire format and the CloudEvents headers."""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from spark.decode import wire_header
from spark.headers import header, header_array, header_if_any


def wire_value(schema: str, schema_id: int) -> Column:
    """The record value of the event that the row's columns make: header and Avro body. `schema` is JSON text."""
    fields = [field["name"] for field in json.loads(schema)["fields"]]
    return F.concat(F.lit(wire_header(schema_id)), to_avro(F.struct(*fields), schema))


def derived_headers(topic: str, source: str, record: Column) -> Column:
    """Headers of an event of `topic` that `source` derived from the raw `record` (see `spark.decode`).

    Its id is the raw record's coordinate; the raw event's own id goes on as ce_causationid.
    """
    headers = record["headers"]
    always = header_array(
        {
            "ce_id": record["coordinate"],
            "ce_type": F.lit(topic),
            "ce_source": F.lit(source),
            "ce_specversion": F.lit("1.0"),
            "content-type": F.lit("application/avro"),
        }
    )
    passed_on = {"ce_time": "ce_time", "ce_causationid": "ce_id", "traceparent": "traceparent"}
    return F.concat(always, *[header_if_any(key, header(headers, origin)) for key, origin in passed_on.items()])
