"""Events to Kafka record values: the Confluent wire format."""

from __future__ import annotations

import json

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from spark.decode import wire_header


def wire_value(schema: str, schema_id: int) -> Column:
    """The record value of the event that the row's columns make: header and Avro body. `schema` is JSON text."""
    fields = [field["name"] for field in json.loads(schema)["fields"]]
    return F.concat(F.lit(wire_header(schema_id)), to_avro(F.struct(*fields), schema))
