"""Events to Kafka record values: the Confluent wire format."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from io import BytesIO
from typing import Any

from fastavro import parse_schema, schemaless_writer
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from contracts.records.wire import frame


def wire_value(schema: str, schema_id: int) -> Column:
    """The record value of the event that the row's columns make: header and Avro body. `schema` is JSON text."""
    fields = [field["name"] for field in json.loads(schema)["fields"]]
    return F.concat(F.lit(frame(schema_id)), encoded(schema, fields))


def encoded(schema: str, fields: Collection[str]) -> Column:
    """The part of an Avro body that the row's columns of these names make; they stand side by side in `schema`, JSON text."""
    return to_avro(F.struct(*fields), json.dumps(_part(schema, fields)))


def encoding(schema: str, values: Mapping[str, Any]) -> bytes:
    """The same part of values that are known now. Raises TypeError or ValueError if one does not fit."""
    body = BytesIO()
    schemaless_writer(body, parse_schema(_part(schema, values)), values)
    return body.getvalue()


def _part(schema: str, fields: Collection[str]) -> dict[str, Any]:
    """A record of these fields alone, whose encoding is a part of the whole one's: a record is its fields, one after another."""
    named: dict[str, Any] = {}
    whole: Any = parse_schema(json.loads(schema), named)
    own = [field for field in whole["fields"] if field["name"] in fields]
    part: dict[str, Any] = _written_out({"type": "record", "name": whole["name"], "fields": own}, named)
    return part


def _written_out(kind: Any, named: dict[str, Any]) -> Any:
    """An Avro type, each of `named` written out where it stands first, and named where it stands again; those are taken from `named`.

    What defines it may stand in a field that the part lacks.
    """
    if isinstance(kind, list):
        return [_written_out(each, named) for each in kind]
    if isinstance(kind, str):
        return _written_out(named[kind], named) if kind in named else kind
    if "name" in kind and named.pop(kind["name"], None) is None:
        return kind["name"]
    inner: dict[str, Any] = {each: _written_out(kind[each], named) for each in ("items", "values") if each in kind}
    if "fields" in kind:
        inner["fields"] = [field | {"type": _written_out(field["type"], named)} for field in kind["fields"]]
    return kind | inner
