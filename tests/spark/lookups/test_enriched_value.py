"""`EnrichedValue`: the value made of parts is the one that the whole row would make."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from contracts.definitions.catalog import Catalog
from contracts.errors import ContractError
from contracts.records import wire
from contracts.records.wire import FRAME_BYTES
from spark.lookups.dimensions import stamped_versions
from spark.lookups.enriched_value import EnrichedValue
from spark.lookups.join import look_up, sides
from spark.records.decode import decode
from spark.records.schemas import WriterSchemas
from spark.records.wire import wire_value
from tests.sample.pipelines.dispatches_enriched import LOOKUPS
from tests.spark.examples import DISPATCHED, ENRICHED, SCHEMA, a_dispatch, body, framed, raw_frame
from tests.spark.lookups.test_enrich import held

ID = 300

DISPATCHES = (
    a_dispatch(),
    a_dispatch(van_id=None),
    a_dispatch(courier="XX", origin="XXX", destination="XXX", van_id="XXX"),
)
"""All lookups have a row; one has none; none has."""


def events(frame: DataFrame, value: Any, schema: str) -> list[Any]:
    """The event in each row's value, read by `schema`; every value has the header of `ID`."""
    values = frame.select(value.alias("value"))
    assert {bytes(row.value[:FRAME_BYTES]) for row in values.collect()} == {wire.frame(ID)}
    read = from_avro(F.substring("value", FRAME_BYTES + 1, 1 << 20), schema, {"mode": "FAILFAST"})
    return [row.event for row in values.select(read.alias("event")).collect()]


@pytest.mark.parametrize("order", ["as it is", "another"])
def test_it_is_the_value_of_the_whole_row(spark: SparkSession, catalog: Catalog, order: str) -> None:
    whole = json.loads(catalog.schema(ENRICHED))
    if order == "another":
        # As after many versions: runs of one field, lookups in several runs, the stamp between them, a named type in two of them.
        whole["fields"].sort(key=lambda field: field["name"][::-1])
        fields = {field["name"]: field for field in whole["fields"]}
        symbols = sorted({dispatch[end] for dispatch in DISPATCHES for end in ("origin", "destination")})
        depot = {"type": "enum", "name": "Depot", "symbols": symbols}
        fields["origin"]["type"], fields["destination"]["type"] = depot, "Depot"
    schema = json.dumps(whole)
    dimensions = held(spark, catalog)
    raw = raw_frame(spark, *[framed(7, body(dispatch)) for dispatch in DISPATCHES])
    dispatches = decode(raw, WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})).select("event.*")

    rows = look_up(dispatches, LOOKUPS, sides(LOOKUPS, dimensions)).withColumns(
        {"dimension_versions": stamped_versions(dimensions), "revision": F.lit(0)}
    )
    expected = events(rows, wire_value(schema, ID), schema)
    assert [event.unmatched for event in expected] == [
        [],
        ["vans"],
        ["couriers", "depots.origin", "depots.destination", "vans"],
    ]
    names = set(rows.columns)
    # What a pipeline computes with is there as it is; what it changes is encoded row by row.
    for unchanged, used in ((names, ()), (names, {"origin_name"}), (names - {"van_model"}, {"van_model"})):
        value = EnrichedValue(schema, ID, LOOKUPS, unchanged, used)
        joined = look_up(dispatches, LOOKUPS, value.sides(dimensions))
        assert events(joined, value.column(dimensions), schema) == expected


def test_a_field_that_a_lookup_fills_in_must_be_nullable(catalog: Catalog) -> None:
    schema = json.loads(catalog.schema(ENRICHED))
    (seats,) = [field for field in schema["fields"] if field["name"] == "van_seats"]
    seats["type"] = seats.pop("type")[1]
    del seats["default"]
    with pytest.raises(ContractError, match="van_seats, .*finds no row leaves them null"):
        EnrichedValue(json.dumps(schema), ID, LOOKUPS, [name for lookup in LOOKUPS for name in lookup.fields], ())
