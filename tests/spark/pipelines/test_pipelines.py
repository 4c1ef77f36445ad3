"""Every pipeline here in every mode, against an oracle in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog, load_catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.servers.registry import Registry
from services.audit.declared.aggregates import load_aggregates
from services.audit.declared.joins import load_joins
from services.audit.declared.rankings import load_rankings
from services.audit.settings import AuditSettings
from spark.derivation.fitness import check
from spark.pipeline import Pipeline
from spark.pipelines import load
from spark.runtime.settings import SparkSettings
from tests.spark import real_time_query
from tests.spark.examples import Topics, body, framed
from tests.spark.live_query import Dimensions, events, running, wait_for

MODES = ("exactly-once", "at-least-once", "real-time")
_STAMPED = ("dimension_versions", "revision")


ROWS: dict[str, list[tuple[Any, ...]]] = {
    "airlines": [("UA", "United Air Lines Inc.")],
    "airports": [
        ("EWR", "Newark Liberty Intl", 40.69, -74.17, 18, "America/New_York"),
        ("IAH", "George Bush Intercontinental", 29.98, -95.34, 97, None),
    ],
    "planes": [("N14228", 1999, "Fixed wing multi engine", "BOEING", "737-824", 2, 149, "Turbo-fan")],
    "gates": [("UA", 1545, "EWR", "A5", "a"), ("UA", 1545, "JFK", "T5", "b"), ("ZZ", 1, "EWR", "B1", "c")],
}


def a_departure(**overrides: Any) -> dict[str, Any]:
    return {
        "flight_id": "UA1545-EWR-20130101T1015Z",
        "carrier": "UA",
        "flight_number": 1545,
        "tail_number": "N14228",
        "origin": "EWR",
        "destination": "IAH",
        "flight_date": date(2013, 1, 1),
        "scheduled_departure_at": datetime(2013, 1, 1, 10, 15, tzinfo=UTC),
        "departed_at": datetime(2013, 1, 1, 10, 17, tzinfo=UTC),
        "departure_delay_minutes": 2,
        "distance_miles": 1400,
    } | overrides


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


def a_reading(**overrides: Any) -> dict[str, Any]:
    return {
        "station": "EWR",
        "observed_at": datetime(2013, 1, 1, 10, 0, tzinfo=UTC),
        "temperature_fahrenheit": 39.02,
        "dew_point_fahrenheit": 28.04,
        "relative_humidity_percent": 64.43,
        "wind_direction_degrees": None,
        "wind_speed_mph": 12.66,
        "wind_gust_mph": None,
        "precipitation_inches": Decimal("0.13"),
        "pressure_millibars": 1011.9,
        "visibility_miles": 10.0,
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


def looked_up(catalog: Catalog, dimension: str, *key: str | int | None) -> Mapping[str, Any]:
    columns = catalog.dimension(dimension).columns
    rows = [dict(zip([column.name for column in columns], row, strict=True)) for row in ROWS[dimension]]
    found = [row for row in rows if tuple(row[name] for name in catalog.dimension(dimension).key) == key]
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


def with_gate(catalog: Catalog, flight: Mapping[str, Any]) -> Made:
    gate = looked_up(catalog, "gates", flight["carrier"], flight["flight_number"], flight["origin"])
    told = {"gate": gate.get("gate"), "gate_announced_for": gate.get("flight_id")}
    return {"": {**flight, **told, "unmatched": [] if gate else ["gates"]}}


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
    "departure_gates": with_gate,
    "departures_enriched": departed_enriched,
    "arrivals_enriched": arrived_enriched,
    "long_haul_departures": long_haul,
}


_PLAIN = dict.fromkeys(("keep_broadcasts", "encode_once", "plan_once"), False)
"""By Spark's public ways alone."""


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """That of the flights, which these pipelines are of."""
    return load_catalog()


@pytest.fixture(scope="module")
def published(settings: SparkSettings, catalog: Catalog) -> Dimensions:
    return Dimensions(settings, catalog, ROWS)


@contextmanager
def topics_of(pipeline: Pipeline, settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(pipeline.source, pipeline.target)) as made:
        yield made


def test_there_is_an_oracle_of_each() -> None:
    elsewhere = {
        "aircraft_rotations",
        "chronic_delays",
        "delays_by_origin",
        "departure_weather",
        "departures_once",
        "final_delays_by_origin",
        "punctuality_by_origin",
    }
    elsewhere |= {"flight_legs", "worst_routes"}
    assert ORACLES.keys() | elsewhere == pipeline_files().keys()


def test_the_audit_is_told_of_every_aggregate_what_its_pipeline_does() -> None:
    catalog, pipelines = (
        load_catalog(),
        {target: each for each in map(load, pipeline_files()) for target in each.targets},
    )
    found = load_aggregates(AuditSettings().aggregates_file, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_aggregate}
    assert {name: each.output for name, each in found.items()} == {name: pipelines[name].output for name in found}


def test_the_audit_is_told_of_every_list_how_it_is_ranked() -> None:
    catalog = load_catalog()
    found = load_rankings(AuditSettings().rankings_file, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_ranking}


def test_the_audit_is_told_of_every_join_which_pairs_it_has() -> None:
    catalog = load_catalog()
    found = load_joins(AuditSettings().joins_file, catalog)
    assert found.keys() == {topic.name for topic in catalog.topics.values() if topic.is_join}


@pytest.mark.parametrize("name", ORACLES)
def test_what_a_pipeline_makes_is_what_its_contract_says(spark: SparkSession, catalog: Catalog, name: str) -> None:
    check(spark, load(name), catalog)


def test_the_speed_is_that_of_the_time_in_the_air(spark: SparkSession) -> None:
    arrivals = spark.createDataFrame([(500, 60), (500, None)], "distance_miles int, air_time_minutes int")
    found = load("arrivals_enriched")(arrivals).collect()
    assert [row.ground_speed_miles_per_hour for row in found] == [500.0, None]


def in_modes() -> Iterator[Any]:
    """Each in the default mode; only one in all of them, for a mode makes no difference to what a function does."""
    for name in ORACLES:
        for mode in (*MODES, "plain"):
            is_a_variant = mode != "exactly-once" and name != "departures_enriched"
            yield pytest.param(name, mode, marks=[pytest.mark.long] if is_a_variant else [])


@pytest.mark.parametrize(("name", "mode"), list(in_modes()))
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
    flights, key = RECORDS[pipeline.source], catalog.topic(pipeline.source).key
    assert key is not None
    with topics_of(pipeline, settings, catalog, registry) as topics, ExitStack() as ending:
        schema = catalog.schema(pipeline.source)
        expected: dict[bytes, Mapping[str, Any]] = {}
        for number, flight in enumerate(flights):
            value = framed(topics.schema_ids[pipeline.source], body(flight, schema))
            # A bad one behind each: offsets are 0, 2, 4, …
            topics.send(value, b"junk", partition=number % 2, topic=pipeline.source, key=str(flight[key]).encode())
            coordinate = f"{topics.catalog.topic(pipeline.source).name}/{number % 2}/{number // 2 * 2}"
            expected |= {f"{coordinate}{part}".encode(): made for part, made in ORACLES[name](catalog, flight).items()}
        letters = topics.catalog.topic(pipeline.source).dead_letter_topic

        def found() -> dict[bytes, dict[str, Any]]:
            return {headers["ce_id"]: event for event, headers, _ in events(topics, pipeline.target)}

        def is_through() -> bool:
            return len(found()) == len(expected) and len(topics.read(letters)) == len(flights)

        if mode == "real-time":
            ending.enter_context(
                real_time_query.running(spark, settings, registry, topics, published, pipeline, interval_seconds=5.0)
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
