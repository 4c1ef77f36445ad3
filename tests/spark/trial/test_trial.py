"""What a pipeline would make of the records that are there, beside what is there: each kind of difference, and on a real stack."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.checks.retained import Outcome, Retained
from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from spark.pipeline import Pipeline
from spark.pipelines import load
from spark.runtime.settings import SparkSettings
from spark.trial.comparison import compared
from spark.trial.trial import Trial
from tests.spark.examples import DEPARTED, ENRICHED, Topics, a_departure, body, framed
from tests.spark.live_query import Dimensions, running
from tests.spark.pipelines.test_pipelines import an_arrival

EVENT = "struct<id: string, miles: int, tags: map<string, int>>"


def outcomes(
    spark: SparkSession,
    made: list[tuple[Any, ...]],
    was: list[tuple[Any, ...]],
    letters: tuple[str, ...] = (),
    handled: int | None = 100,
) -> list[Outcome]:
    """`made`: offset, reason, error and event of each; `was`: offset and event."""
    now = spark.createDataFrame(
        [(at := f"t/0/{offset}", at, 0, offset, reason, error, event, True) for offset, reason, error, event in made],
        f"record string, coordinate string, partition int, offset long, reason string, error string, now {EVENT}, is_made boolean",
    )
    there = spark.createDataFrame(
        [(f"t/0/{offset}", event, True) for offset, event in was],
        f"coordinate string, was {EVENT}, is_there boolean",
    )
    dead = spark.createDataFrame([(each, True) for each in letters], "record string, is_letter boolean")
    return compared(now, there, dead, ["id", "miles", "tags"], {0: handled})


def test_what_is_as_it_was_is_told_from_what_changes(spark: SparkSession) -> None:
    a, b = ("a", 1, {"x": 1}), ("b", None, {"x": 1})
    found = outcomes(
        spark,
        [(0, None, None, a), (1, None, None, ("b", 2, {"x": 2})), (2, None, None, ("b", 3, {"x": 1}))],
        [(0, a), (1, b), (2, b)],
    )
    assert sorted(found, key=lambda each: (each.what, each.name)) == [
        Outcome(what="changed", count=2, coordinate="t/0/1"),
        Outcome(what="field", name="miles", count=2, coordinate="t/0/1", before=None, after=2),
        Outcome(what="field", name="tags", count=1, coordinate="t/0/1", before={"x": 1}, after={"x": 2}),
        Outcome(what="same", count=1, coordinate="t/0/0"),
    ]


@pytest.mark.parametrize(
    ("made", "was", "letters", "handled", "expected"),
    [
        ([(0, "NullField", "it is null", None)], [(0, ("a", 1, {}))], (), 100, ("dead letter", "NullField")),
        ([(0, "NullField", "it is null", None)], [], (), 100, ("dead letter", "NullField")),
        ([(0, "NullField", "it is null", None)], [], ("t/0/0",), 100, ("still a dead letter", "NullField")),
        ([(0, None, None, ("a", 1, {}))], [], ("t/0/0",), None, ("appears", "")),
        ([(0, None, None, ("a", 1, {}))], [], (), 1, ("appears", "")),
        ([(0, None, None, ("a", 1, {}))], [], (), 0, ("not handled yet", "")),
        ([(0, None, None, ("a", 1, {}))], [], (), None, ("not handled yet", "")),
        ([], [(0, ("a", 1, {}))], (), 100, ("vanishes", "")),
        ([(0, None, None, ("a", 1, {}))], [(0, None)], (), 100, ("not compared", "")),
    ],
)
def test_what_becomes_of_a_record(
    spark: SparkSession,
    made: list[tuple[Any, ...]],
    was: list[tuple[Any, ...]],
    letters: tuple[str, ...],
    handled: int | None,
    expected: tuple[str, str],
) -> None:
    (found,) = outcomes(spark, made, was, letters, handled)
    assert (found.what, found.name, found.count, found.coordinate) == (*expected, 1, "t/0/0")
    assert found.after == ("it is null" if expected[1] else None)


LONG_HAUL = "flights.departed.longhaul.v1"
PLANES = ("N1", 1999, "Fixed wing multi engine", "BOEING", "737-824", 2, 149, "Turbo-fan")


@pytest.fixture
def departures(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DEPARTED, ENRICHED, LONG_HAUL)) as made:
        yield made


def louder(departures: DataFrame) -> DataFrame:
    loud = departures.withColumn("loud", F.upper("airline_name"))
    return loud.drop("airline_name").withColumnRenamed("loud", "airline_name")


def far(departures: DataFrame) -> DataFrame:
    return departures.where(F.col("distance_miles").between(1000, 3000))


def test_what_ran_is_compared_with_what_would_run_and_nothing_is_written(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    departures: Topics,
    dimensions: Dimensions,
) -> None:
    own = dataclasses.replace(departures.catalog, dimensions=dimensions.contracts)

    def send(partition: int = 0, **fields: Any) -> None:
        departures.send(framed(departures.schema_ids[DEPARTED], body(a_departure(**fields))), partition=partition)

    def trial(name: str, function: Callable[[DataFrame], DataFrame] | None = None, most: int = 100) -> Retained:
        pipeline = load(name)
        changed = pipeline if function is None else dataclasses.replace(pipeline, function=function)
        return Trial(spark, changed, settings, own, registry).run(most)

    def counts(found: Retained) -> dict[tuple[str, str], int]:
        return {(each.what, each.name): each.count for each in found.outcomes}

    def at(partition: int, offset: int) -> str:
        return f"{departures.departed.name}/{partition}/{offset}"

    def run(pipeline: Pipeline) -> None:
        with running(spark, settings, registry, departures.catalog, dimensions, pipeline, mode="exactly-once") as query:
            query.processAllAvailable()

    send(distance_miles=900)
    send(distance_miles=1000, carrier="ZZ")
    send(1, distance_miles=2000, tail_number="N1")
    send(1, distance_miles=4000)
    departures.send(b"junk")
    run(load("departures_enriched"))
    run(load("long_haul_departures"))
    send(distance_miles=2500)
    before = [len(departures.read(each)) for each in departures.names]

    assert counts(trial("departures_enriched")) == {
        ("same", ""): 4,
        ("still a dead letter", "WrongMagic"): 1,
        ("not handled yet", ""): 1,
    }
    found = trial("departures_enriched", louder)
    assert counts(found)["changed", ""] == counts(found)["field", "airline_name"] == 3
    (field,) = (each for each in found.outcomes if each.what == "field")
    assert (field.coordinate, field.before, field.after) == (
        at(0, 0),
        "United Air Lines Inc.",
        "UNITED AIR LINES INC.",
    )
    assert counts(trial("long_haul_departures", far)) == {
        ("same", ""): 1,
        ("still a dead letter", "WrongMagic"): 1,
        ("appears", ""): 1,
        ("vanishes", ""): 1,
        ("not handled yet", ""): 1,
        ("left out", ""): 1,
    }
    newest = trial("departures_enriched", most=1)
    assert (newest.records, newest.older) == (2, 4)
    assert counts(newest) == {("same", ""): 1, ("not handled yet", ""): 1}
    # By the dimension versions of now: a plane that came late is found.
    dimensions.publish("planes", PLANES)
    late = {each.name for each in trial("departures_enriched").outcomes if each.what == "field"}
    assert {"plane_seats", "unmatched"} <= late
    assert before == [len(departures.read(each)) for each in departures.names]


def test_parts_are_compared_by_their_numbers(
    spark: SparkSession, settings: SparkSettings, catalog: Catalog, registry: Registry, dimensions: Dimensions
) -> None:
    pipeline = load("airports_served")

    def only_the_origin(arrivals: DataFrame) -> DataFrame:
        origin = F.struct(F.lit("origin").alias("served_as"), F.col("origin").alias("airport"))
        return arrivals.select("*", F.inline(F.array(origin)))

    with Topics(settings, catalog, registry, names=(pipeline.source, pipeline.target)) as topics:
        value = body(an_arrival(), catalog.schema(pipeline.source))
        topics.send(framed(topics.schema_ids[pipeline.source], value), b"junk", topic=pipeline.source)
        with running(spark, settings, registry, topics.catalog, dimensions, pipeline, mode="exactly-once") as query:
            query.processAllAvailable()
        raw = topics.catalog.topic(pipeline.source).name
        found = {}
        for changed in (pipeline, dataclasses.replace(pipeline, function=only_the_origin)):
            outcomes = Trial(spark, changed, settings, topics.catalog, registry).run(100).outcomes
            found[changed] = [(each.what, each.count, each.coordinate) for each in outcomes]
    assert found[pipeline] == [("same", 2, f"{raw}/0/0/0"), ("still a dead letter", 1, f"{raw}/0/1")]
    assert list(found.values())[1] == [
        ("same", 1, f"{raw}/0/0/0"),
        ("still a dead letter", 1, f"{raw}/0/1"),
        ("vanishes", 1, f"{raw}/0/0/1"),
    ]


def test_of_a_topic_that_is_not_there_yet_nothing_is_compared(
    spark: SparkSession, settings: SparkSettings, registry: Registry, departures: Topics
) -> None:
    departures.send(framed(departures.schema_ids[DEPARTED], body(a_departure(distance_miles=2000))))
    target = departures.catalog.topic(LONG_HAUL).model_copy(update={"name": f"{departures.tag}.later.v1"})
    topics = departures.catalog.topics | {LONG_HAUL: target}
    own = dataclasses.replace(departures.catalog, topics=topics)
    found = Trial(spark, load("long_haul_departures"), settings, own, registry).run(100)
    assert [(each.what, each.count) for each in found.outcomes] == [("not handled yet", 1)]


def test_a_topic_that_is_not_there_is_told(
    spark: SparkSession, settings: SparkSettings, registry: Registry, departures: Topics
) -> None:
    source = departures.departed.model_copy(update={"name": f"{departures.tag}.nobodys.v1"})
    own = dataclasses.replace(departures.catalog, topics=departures.catalog.topics | {DEPARTED: source})
    target = own.topic(LONG_HAUL)
    made_of = target.derivation_section
    assert made_of != "none"
    made_of = made_of.model_copy(update={"topic": source.name})
    own.topics[LONG_HAUL] = target.model_copy(update={"derivation_section": made_of})
    found = Trial(spark, load("long_haul_departures"), settings, own, registry).run(100)
    assert found.problem == f"there is no topic {source.name}: headrace topics create makes it"
