"""The audit reads what Spark reads, in time and memory that the body's size bounds, and makes columns of whatever it read."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest

from services.audit.records.decoding import Decoding
from services.audit.values.shape import Shape, in_calendar
from tests.audit.bodies import BODIES, records, text, unscaled
from tests.contracts.records.test_codec import HOSTILE, a_record

FRAME = bytes([0, 0, 0, 0, 7])


def decoding(writer: str, current: str) -> Decoding:
    found = Decoding.of(writer, current)
    assert found is not None
    return found


@pytest.mark.parametrize(("schema", "body", "is_event"), list(records()), ids=range(len(BODIES)))
def test_it_reads_what_spark_reads_and_every_value_has_a_digest(schema: str, body: bytes, is_event: bool) -> None:
    event, shape = decoding(schema, schema).event(FRAME + body), Shape(schema)
    columns = {} if event is None else shape.table([event.fields])
    assert (event is not None and all(in_calendar(each).all() for each in columns.values())) == is_event
    assert all(len(each) == 1 for each in shape.field_digests(columns, 1).values())


ENDLESS = [
    name for name in HOSTILE if "nulls" in name or "empty records" in name or "decimal of" in name or "tree" in name
]


@pytest.mark.parametrize("name", ENDLESS)
def test_a_body_that_claims_more_than_it_has_takes_no_longer(name: str) -> None:
    schema, body = HOSTILE[name]
    taken, began = decoding(schema, schema), time.process_time()
    taken.event(FRAME + body)
    assert time.process_time() - began < 20


def test_a_decimal_with_more_digits_than_the_current_schema_gives_it_is_not_held() -> None:
    def schema(precision: int) -> str:
        return a_record({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2})

    older, shape = decoding(schema(9), schema(6)), Shape(schema(6))
    small, large = (older.event(FRAME + unscaled(value, 4)) for value in (999_999, 1_000_000))
    assert small is not None and large is not None
    assert (shape.held(small.fields), shape.held(large.fields)) == (True, False)


@pytest.mark.parametrize("writer", ['"string"', "{}", '{"type": "record"}'])
def test_a_schema_of_no_record_has_no_decoding(writer: str) -> None:
    assert Decoding.of(writer, a_record("int")) is None


def test_a_precision_that_a_stranger_claims_costs_nothing() -> None:
    claimed: Any = {"type": "bytes", "logicalType": "decimal", "precision": 10**9, "scale": 0}
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": claimed}]})
    assert decoding(schema, schema).event(FRAME + text(b"\x01")) is not None


def test_a_local_instant_counts_as_one() -> None:
    column = Shape(a_record({"type": "long", "logicalType": "local-timestamp-millis"})).table([{"f0": 5}])["f0"]
    assert np.array(column)[0] == np.datetime64(5, "ms")
