"""Every pipeline here in every mode, against an oracle in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.servers.registry import Registry
from spark.derivation.derivation import Derivation
from spark.derivation.fitness import check
from spark.pipeline import Pipeline
from spark.pipelines import load
from spark.pipelines.departures_enriched import LOOKUPS
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit, SinkRefused
from spark.runtime.internals.plans import FILTER, expressions, items
from spark.runtime.settings import SparkSettings
from tests.spark.examples import DEPARTED, Topics, a_departure, body, framed, raw_frame
from tests.spark.live_query import Dimensions, events, running, wait_for
from tests.spark.lookups.test_enrich import ROWS
from tests.spark.queries import test_real_time

MODES = ("exactly-once", "at-least-once", "real-time")
LONG_HAUL = "flights.departed.longhaul.v1"
_STAMPED = ("dimension_versions", "revision")


def an_arrival(**overrides: Any) -> dict[str, Any]:
    departure = a_departure()
    shared = {name: departure[name] for name in departure if name not in ("departed_at", "departure_delay_minutes")}
    return {
        **shared,
        "scheduled_arrival_at": datetime(2013, 1, 1, 14, 19, tzinfo=UTC),
        "arrived_at": datetime(2013, 1, 1, 14, 30, tzinfo=UTC),
        "arrival_delay_minutes": 11,
        "air_time_minutes": 227,
    } | overrides


RECORDS = {
    "flights.departed.v1": [
        a_departure(flight_id="a", distance_miles=1999),
        a_departure(flight_id="b", distance_miles=2000, carrier="ZZ"),
        a_departure(flight_id="c", distance_miles=4983, tail_number=None),
        a_departure(flight_id="d", distance_miles=80, destination="XXX"),
    ],
    "flights.arrived.v1": [
        an_arrival(flight_id="a"),
        an_arrival(flight_id="b", air_time_minutes=None, carrier="ZZ"),
        an_arrival(flight_id="c", air_time_minutes=0, destination="XXX"),
        an_arrival(flight_id="d", tail_number="N0"),
    ],
}


def looked_up(catalog: Catalog, dimension: str, key: str | None) -> Mapping[str, Any]:
    columns = catalog.dimension(dimension).columns
    rows = [dict(zip([column.name for column in columns], row, strict=True)) for row in ROWS[dimension]]
    found = [row for row in rows if row[catalog.dimension(dimension).key[0]] == key]
    return found[0] if found else {}


Made = Mapping[str, Mapping[str, Any]]
"""What comes of a record, by the number of its part, "" where there is none."""


def departed_enriched(catalog: Catalog, flight: Mapping[str, Any]) -> Made:
    airline, origin, destination, plane = (
        looked_up(catalog, dimension, flight[by])
        for dimension, by in (
            ("airlines", "carrier"),
            ("airports", "origin"),
            ("airports", "destination"),
            ("planes", "tail_number"),
        )
    )
    found = {"airlines": airline, "airports.origin": origin, "airports.destination": destination, "planes": plane}
    of_plane = ("built_year", "manufacturer", "model", "engines", "seats", "engine_type")
    of_destination = ("name", "timezone", "latitude_degrees", "longitude_degrees", "altitude_feet")
    made = {
        **flight,
        "airline_name": airline.get("name"),
        "origin_name": origin.get("name"),
        "origin_timezone": origin.get("timezone"),
        **{f"destination_{name}": destination.get(name) for name in of_destination},
        **{f"plane_{name}": plane.get(name) for name in of_plane},
        "unmatched": [name for name, row in found.items() if not row],
    }
    return {"": made}


def arrived_enriched(catalog: Catalog, flight: Mapping[str, Any]) -> Made:
    airline = looked_up(catalog, "airlines", flight["carrier"])
    destination = looked_up(catalog, "airports", flight["destination"])
    plane = looked_up(catalog, "planes", flight["tail_number"])
    found = {"airlines": airline, "airports.destination": destination, "planes": plane}
    minutes = flight["air_time_minutes"]
    made = {
        **flight,
        "airline_name": airline.get("name"),
        "destination_name": destination.get("name"),
        "destination_timezone": destination.get("timezone"),
        "plane_model": plane.get("model"),
        "plane_seats": plane.get("seats"),
        "ground_speed_miles_per_hour": flight["distance_miles"] / (minutes / 60) if minutes else None,
        "unmatched": [name for name, row in found.items() if not row],
    }
    return {"": made}


def long_haul(catalog: Catalog, flight: Mapping[str, Any]) -> Made:
    fields = [field["name"] for field in json.loads(catalog.schema("flights.departed.longhaul.v1"))["fields"]]
    return {"": {name: flight[name] for name in fields}} if flight["distance_miles"] >= 2000 else {}


def served(catalog: Catalog, flight: Mapping[str, Any]) -> Made:
    names = ("flight_id", "carrier", "arrived_at", "arrival_delay_minutes", "distance_miles")
    carried = {name: flight[name] for name in names}
    return {
        f"/{number}": {**carried, "served_as": role, "airport": flight[role]}
        for number, role in enumerate(("origin", "destination"))
    }


ORACLES = {
    "airports_served": served,
    "departures_enriched": departed_enriched,
    "arrivals_enriched": arrived_enriched,
    "long_haul_departures": long_haul,
}


_PLAIN = dict.fromkeys(("keep_broadcasts", "encode_once", "plan_once"), False)
"""By Spark's public ways alone."""


@contextmanager
def topics_of(pipeline: Pipeline, settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(pipeline.source, pipeline.target)) as made:
        yield made


def test_there_is_an_oracle_of_each() -> None:
    in_test_stateful = {"delays_by_origin", "final_delays_by_origin"}
    assert ORACLES.keys() | in_test_stateful == pipeline_files().keys()


@pytest.mark.parametrize("name", ORACLES)
def test_what_a_pipeline_makes_is_what_its_contract_says(spark: SparkSession, catalog: Catalog, name: str) -> None:
    check(spark, load(name), catalog)


@pytest.mark.parametrize("mode", [*MODES, "plain"])
@pytest.mark.parametrize("name", ORACLES)
def test_every_record_comes_out_as_the_oracle_says_or_as_a_dead_letter(
    spark: SparkSession,
    settings: SparkSettings,
    catalog: Catalog,
    registry: Registry,
    published: Dimensions,
    name: str,
    mode: str,
) -> None:
    pipeline = load(name)
    flights = RECORDS[pipeline.source]
    with topics_of(pipeline, settings, catalog, registry) as topics, ExitStack() as ending:
        schema = catalog.schema(pipeline.source)
        expected: dict[bytes, Mapping[str, Any]] = {}
        for number, flight in enumerate(flights):
            value = framed(topics.schema_ids[pipeline.source], body(flight, schema))
            # A bad one behind each: offsets are 0, 2, 4, …
            topics.send(value, b"junk", partition=number % 2, topic=pipeline.source, key=flight["flight_id"].encode())
            coordinate = f"{topics.catalog.topic(pipeline.source).name}/{number % 2}/{number // 2 * 2}"
            expected |= {f"{coordinate}{part}".encode(): made for part, made in ORACLES[name](catalog, flight).items()}
        letters = topics.catalog.topic(pipeline.source).dead_letter_topic

        def found() -> dict[bytes, dict[str, Any]]:
            return {headers["ce_id"]: event for event, headers, _ in events(topics, pipeline.target)}

        def is_through() -> bool:
            return len(found()) == len(expected) and len(topics.read(letters)) == len(flights)

        if mode == "real-time":
            ending.enter_context(
                test_real_time.running(spark, settings, registry, topics, published, pipeline, interval_seconds=5.0)
            )
            wait_for("every record", is_through)
        else:
            live: dict[str, object] = {"mode": "exactly-once", **_PLAIN} if mode == "plain" else {"mode": mode}
            query = ending.enter_context(
                running(spark, settings, registry, topics.catalog, published, pipeline, **live)
            )
            query.processAllAvailable()
        assert {
            at: {name: value for name, value in event.items() if name not in _STAMPED} for at, event in found().items()
        } == expected
        sources = {headers["ce_source"] for _, headers, _ in events(topics, pipeline.target)}
        assert sources == {f"/spark/{name}".encode()}
        assert [message.value() for message in topics.read(letters)] == [b"junk"] * len(flights)


def large_planes(departures: DataFrame) -> DataFrame:
    return departures.where(F.col("plane_seats") > 100)


@pytest.fixture
def departures(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DEPARTED, LONG_HAUL)) as made:
        yield made


def _send(topics: Topics, count: int, **fields: Any) -> None:
    value = framed(topics.schema_ids[DEPARTED], body(a_departure(**fields)))
    topics.send(*[value] * count)


def test_a_filter_may_ask_for_what_is_looked_up(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, departures: Topics
) -> None:
    pipeline = Pipeline("long_haul_departures", DEPARTED, LONG_HAUL, LOOKUPS, large_planes)
    with running(spark, settings, registry, departures.catalog, published, pipeline, mode="exactly-once") as query:
        for _ in range(3):  # the first batch makes the plan, and the others use it again
            _send(departures, 1)
            _send(departures, 1, tail_number="N0")
            query.processAllAvailable()
    assert [headers["ce_id"][-2:] for _, headers, _ in events(departures, LONG_HAUL)] == [b"/0", b"/2", b"/4"]


def test_a_filter_decodes_a_record_once(spark: SparkSession, catalog: Catalog) -> None:
    schema = catalog.schema(DEPARTED)
    derivation = Derivation(spark, load("long_haul_departures"), catalog, 300)
    raw = raw_frame(spark, framed(7, body(a_departure())))
    rows = derivation.to_rows(WriterSchemas(f"{DEPARTED}-value", schema, {7: schema}), [], {})(raw)
    node, filters = rows._jdf.queryExecution().optimizedPlan(), []
    while children := items(node.children()):
        filters += [node] if node.nodeName() == FILTER else []
        (node,) = children
    (found,) = filters
    assert not [each for each in expressions(found) if each.getClass().getSimpleName() == "AvroDataToCatalyst"]


def test_behind_a_filter_the_share_of_bad_records_is_one_of_all_that_came(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, departures: Topics
) -> None:
    few, many = [b"junk"] * 150, [b"junk"] * 600
    pipeline = load("long_haul_departures")
    with running(spark, settings, registry, departures.catalog, published, pipeline, mode="exactly-once") as query:
        _send(departures, 850)
        departures.send(*few)
        query.processAllAvailable()
        assert len(departures.read(departures.departed.dead_letter_topic)) == 150
        departures.send(*many)
        with pytest.raises(StreamingQueryException, match="600 of 600 records .* are bad"):
            query.processAllAvailable()


def test_the_same_in_real_time_mode(
    spark: SparkSession, settings: SparkSettings, registry: Registry, published: Dimensions, departures: Topics
) -> None:
    _send(departures, 5_000)
    departures.send(*[b"junk"] * 150)
    _send(departures, 1, distance_miles=2000)
    pipeline = load("long_haul_departures")
    with test_real_time.running(spark, settings, registry, departures, published, pipeline, interval_seconds=5.0):
        wait_for("the one that is let through", lambda: len(events(departures, LONG_HAUL)) == 1)
    assert len(departures.read(departures.departed.dead_letter_topic)) == 150
    with (
        pytest.raises(SinkRefused, match=r"are bad, more than the share of 0\.2"),
        test_real_time.running(
            spark, settings, registry, departures, published, pipeline, interval_seconds=5.0
        ) as thread,
    ):
        departures.send(*[b"junk"] * 2_000)
        thread.join(120)


def test_a_pipeline_that_is_not_there_or_fails_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        PipelineUnfit, match="there is no pipeline mine; there are: airports_served, arrivals_enriched, "
    ):
        load("mine")
    monkeypatch.setattr("spark.pipelines.pipeline_files", lambda: {"mine": "spark/pipelines/mine.py"})
    with pytest.raises(PipelineUnfit, match=r"spark/pipelines/mine\.py: ModuleNotFoundError"):
        load("mine")
