"""Kafka records to events: `decode`."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fastavro.schema import expand_schema
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts.records.evolution import resolve
from contracts.records.wire import FRAME_BYTES, MAGIC, frame
from spark.records.cases import first_of
from spark.records.readable import is_in_calendar, is_text
from spark.records.record_size import octets
from spark.records.schemas import WriterSchemas, never_null

_UNKNOWN = "headrace: schema id not known to the running query, of "


def decode(raw: DataFrame, schemas: WriterSchemas, *beside: str) -> DataFrame:
    """Decode Kafka records, good and bad, into one row each.

    `raw` has the columns of Spark's Kafka source, headers included. The result, with the columns of `raw` that go on `beside`:

    * `event`: struct, in `schemas.reader`; null for a bad record
    * `reason`: null for a good record, else TooLong, EmptyBody, TooShort, WrongMagic, UnknownSchemaId or Undecodable
    * `error`: what is wrong in words, null for a good record
    * `record`: struct of topic, partition, offset, timestamp, key, value, headers

    Bytes after a complete body pass unseen: Spark's from_avro doesn't look at them. An id that is not known fails the task, unless
    `schemas` take it for foreign.
    """
    if schemas.foreign is not None:
        raw = raw.where(_fails_on_other_ids(schemas.subject, schemas.foreign.union(schemas.writers)))
    writers = tuple(sorted(schemas.writers.items(), reverse=True))
    first, then = _columns(schemas.subject, schemas.reader, writers, schemas.most_bytes)
    return raw.select(*first, *beside).select(*then, *beside)


def events(raw: DataFrame, schemas: WriterSchemas, *beside: str) -> DataFrame:
    """`decode` with the fields of the event as columns, and beside them `__reason`, `__error` and `__record`."""
    told = [F.col(name).alias(f"__{name}") for name in ("reason", "error", "record")]
    return decode(raw, schemas, *beside).select("event.*", *told, *beside)


class UnknownId(NamedTuple):
    """A schema id that no version of the subject has which a query knows."""

    subject: str
    schema_id: int


def unknown_id(failure: str) -> UnknownId | None:
    """What failed a task of `decode`; None if it failed of something else."""
    found = re.search(re.escape(_UNKNOWN) + r"(\S+): (\d+)", failure)
    return UnknownId(found[1], int(found[2])) if found else None


def has_other_ids(raw: DataFrame, schemas: WriterSchemas) -> bool:
    """Whether a record of `raw` names a schema id that is not among the `schemas`. Reads the records: a job."""
    return not raw.where(_has_other_id(F.col("value"), schemas.writers)).isEmpty()


@functools.lru_cache(maxsize=32)
def _columns(
    subject: str, reader: str, writers: tuple[tuple[int, str], ...], most_bytes: int
) -> tuple[list[Column], list[Column]]:
    """The two selects of `decode`. Kept, because making them is hundreds of calls into the JVM: too many for each batch."""
    body = F.col("record.value")
    # from_avro gives a struct of nulls where it fails, so a field that can't be null tells.
    fits = F.col(f"event.{_required_field(reader)}").isNotNull()
    kind = expand_schema(json.loads(reader))
    checks = [
        ("a text in the body is not UTF-8", is_text(F.col("event"), kind)),
        ("an instant or a date in the body lies outside the years 1 to 9999", is_in_calendar(F.col("event"), kind)),
    ]
    asked = [(error, is_so) for error, is_so in checks if is_so is not None]
    size = octets(F.col("record.key")) + octets(body)
    good = functools.reduce(operator.and_, [is_so for _, is_so in asked], (size <= most_bytes) & fits)
    schema_id = _id_of(body)
    too_long = F.concat(
        F.lit("key and value have "), size, F.lit(f" bytes, and those of its topic at most {most_bytes}")
    )
    faults = [
        ("TooLong", size > most_bytes, too_long),
        ("EmptyBody", body.isNull() | (F.length(body) == 0), F.lit("the record has no value")),
        ("WrongMagic", F.substring(body, 1, 1) != F.lit(MAGIC), F.lit("the value does not begin with the byte 0x00")),
        ("TooShort", F.length(body) <= FRAME_BYTES, F.lit("the value ends before its Avro body begins")),
        (
            "UnknownSchemaId",
            ~_is_known(body, [schema_id for schema_id, _ in writers]),
            F.concat(F.lit(f"{subject} has no version with schema id "), schema_id),
        ),
        *(("Undecodable", fits & ~is_so, F.lit(error)) for error, is_so in asked),
        ("Undecodable", F.lit(True), F.concat(F.lit("the body does not fit its schema, id "), schema_id)),
    ]
    return [_event(reader, writers).alias("event"), _record().alias("record")], [
        F.when(good, F.col("event")).alias("event"),
        F.when(~good, first_of([(is_so, F.lit(reason)) for reason, is_so, _ in faults])).alias("reason"),
        F.when(~good, first_of([(is_so, error) for _, is_so, error in faults])).alias("error"),
        F.col("record"),
    ]


@functools.lru_cache(maxsize=32)
def _fails_on_other_ids(subject: str, known: frozenset[int]) -> Column:
    """True of every record, but fails on the first that names a schema id which is not `known`."""
    value = F.col("value")
    fail = F.raise_error(F.concat(F.lit(f"{_UNKNOWN}{subject}: "), _id_of(value))).cast("boolean")
    return F.when(_has_other_id(value, known), fail).otherwise(F.lit(True))


def _has_other_id(value: Column, schema_ids: Iterable[int]) -> Column:
    framed = (F.substring(value, 1, 1) == F.lit(MAGIC)) & (F.length(value) > FRAME_BYTES)
    return framed & ~_is_known(value, schema_ids)


def _id_of(value: Column) -> Column:
    return F.conv(F.hex(F.substring(value, 2, FRAME_BYTES - 1)), 16, 10)


def _is_known(value: Column, schema_ids: Iterable[int]) -> Column:
    return F.substring(value, 1, FRAME_BYTES).isin([F.lit(frame(schema_id)) for schema_id in schema_ids])


def _event(reader: str, writers: Sequence[tuple[int, str]]) -> Column:
    header, body = F.expr(f"substring(value, 1, {FRAME_BYTES})"), F.expr(f"substring(value, {FRAME_BYTES + 1})")
    if not writers:
        return F.when(F.lit(False), from_avro(body, reader))
    return first_of([(header == F.lit(frame(schema_id)), _read(body, writer, reader)) for schema_id, writer in writers])


def _read(body: Column, writer: str, reader: str) -> Column:
    """The event in a body; a struct of nulls, or null, if it does not fit."""
    how = resolve(reader, writer)
    event = from_avro(body, writer, {"mode": "PERMISSIVE", "avroSchema": how.schema})
    if not how.widened:
        return event
    names = [field["name"] for field in json.loads(reader)["fields"]]

    def narrowed(wide: Column) -> Column:
        fields = {name: _narrow(wide[name], how.widened.get(name)) for name in names}
        fits = F.lit(True)
        for name, kind in how.widened.items():
            # A float takes what is near, an integer only what it is.
            same = (
                fields[name].isNotNull() | wide[name].isNull()
                if kind == "float"
                else fields[name].eqNullSafe(wide[name])
            )
            fits = fits & same
        return F.when(fits, F.struct(*[value.alias(name) for name, value in fields.items()]))

    # The lambda makes Spark decode once, not once for each field.
    return F.get(F.transform(F.array(event), narrowed), F.lit(0))


def _narrow(value: Column, kind: str | None) -> Column:
    return value if kind is None else value.try_cast({"int": "int", "long": "bigint", "float": "float"}[kind])


def _record() -> Column:
    return F.struct("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def _required_field(schema: str) -> str:
    for name in never_null(schema):
        return name
    raise ValueError("a schema whose fields may all be null: a bad body can't be told from a good one")
