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
from spark.runtime.settings import SparkSettings
from spark.trial.comparison import compared
from spark.trial.trial import Trial
from tests.sample.pipelines import load
from tests.spark.examples import DISPATCHED, ENRICHED, Topics, a_delivery, a_dispatch, body, framed
from tests.spark.live_query import Dimensions, running

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


HEAVY = "parcels.dispatched.heavy.v1"
VANS = ("N1", 1999, "Panel van", "FERROL", "F-824", 2, 149, "diesel")


@pytest.fixture
def dispatches(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, ENRICHED, HEAVY)) as made:
        yield made


def louder(dispatches: DataFrame) -> DataFrame:
    loud = dispatches.withColumn("loud", F.upper("courier_name"))
    return loud.drop("courier_name").withColumnRenamed("loud", "courier_name")


def far(dispatches: DataFrame) -> DataFrame:
    return dispatches.where(F.col("weight_grams").between(1000, 3000))


def test_what_ran_is_compared_with_what_would_run_and_nothing_is_written(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    dispatches: Topics,
    dimensions: Dimensions,
) -> None:
    own = dataclasses.replace(dispatches.catalog, dimensions=dimensions.contracts)

    def send(partition: int = 0, **fields: Any) -> None:
        dispatches.send(framed(dispatches.schema_ids[DISPATCHED], body(a_dispatch(**fields))), partition=partition)

    def trial(name: str, function: Callable[[DataFrame], DataFrame] | None = None, most: int = 100) -> Retained:
        pipeline = load(name)
        changed = pipeline if function is None else dataclasses.replace(pipeline, function=function)
        return Trial(spark, changed, settings, own, registry).run(most)

    def counts(found: Retained) -> dict[tuple[str, str], int]:
        return {(each.what, each.name): each.count for each in found.outcomes}

    def at(partition: int, offset: int) -> str:
        return f"{dispatches.dispatched.name}/{partition}/{offset}"

    def run(pipeline: Pipeline) -> None:
        with running(spark, settings, registry, dispatches.catalog, dimensions, pipeline, mode="exactly-once") as query:
            query.processAllAvailable()

    send(weight_grams=900)
    send(weight_grams=1000, courier="ZZ")
    send(1, weight_grams=2000, van_id="N1")
    send(1, weight_grams=4000)
    dispatches.send(b"junk")
    run(load("dispatches_enriched"))
    run(load("heavy_parcels"))
    send(weight_grams=2500)
    before = [len(dispatches.read(each)) for each in dispatches.names]

    assert counts(trial("dispatches_enriched")) == {
        ("same", ""): 4,
        ("still a dead letter", "WrongMagic"): 1,
        ("not handled yet", ""): 1,
    }
    found = trial("dispatches_enriched", louder)
    assert counts(found)["changed", ""] == counts(found)["field", "courier_name"] == 3
    (field,) = (each for each in found.outcomes if each.what == "field")
    assert (field.coordinate, field.before, field.after) == (
        at(0, 0),
        "Umber Couriers Ltd.",
        "UMBER COURIERS LTD.",
    )
    assert counts(trial("heavy_parcels", far)) == {
        ("same", ""): 1,
        ("still a dead letter", "WrongMagic"): 1,
        ("appears", ""): 1,
        ("vanishes", ""): 1,
        ("not handled yet", ""): 1,
        ("left out", ""): 1,
    }
    newest = trial("dispatches_enriched", most=1)
    assert (newest.records, newest.older) == (2, 4)
    assert counts(newest) == {("same", ""): 1, ("not handled yet", ""): 1}
    # By the dimension versions of now: a van that came late is found.
    dimensions.publish("vans", VANS)
    late = {each.name for each in trial("dispatches_enriched").outcomes if each.what == "field"}
    assert {"van_seats", "unmatched"} <= late
    assert before == [len(dispatches.read(each)) for each in dispatches.names]


def test_parts_are_compared_by_their_numbers(
    spark: SparkSession, settings: SparkSettings, catalog: Catalog, registry: Registry, dimensions: Dimensions
) -> None:
    pipeline = load("depots_served")

    def only_the_origin(deliveries: DataFrame) -> DataFrame:
        origin = F.struct(F.lit("origin").alias("served_as"), F.col("origin").alias("depot"))
        return deliveries.select("*", F.inline(F.array(origin)))

    with Topics(settings, catalog, registry, names=(pipeline.source, pipeline.target)) as topics:
        value = body(a_delivery(), catalog.schema(pipeline.source))
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
    spark: SparkSession, settings: SparkSettings, registry: Registry, dispatches: Topics
) -> None:
    dispatches.send(framed(dispatches.schema_ids[DISPATCHED], body(a_dispatch(weight_grams=2000))))
    target = dispatches.catalog.topic(HEAVY).model_copy(update={"name": f"{dispatches.tag}.later.v1"})
    topics = dispatches.catalog.topics | {HEAVY: target}
    own = dataclasses.replace(dispatches.catalog, topics=topics)
    found = Trial(spark, load("heavy_parcels"), settings, own, registry).run(100)
    assert [(each.what, each.count) for each in found.outcomes] == [("not handled yet", 1)]


def test_a_topic_that_is_not_there_is_told(
    spark: SparkSession, settings: SparkSettings, registry: Registry, dispatches: Topics
) -> None:
    source = dispatches.dispatched.model_copy(update={"name": f"{dispatches.tag}.nobodys.v1"})
    own = dataclasses.replace(dispatches.catalog, topics=dispatches.catalog.topics | {DISPATCHED: source})
    target = own.topic(HEAVY)
    made_of = target.derivation_section
    assert made_of != "none"
    made_of = made_of.model_copy(update={"topic": source.name})
    own.topics[HEAVY] = target.model_copy(update={"derivation_section": made_of})
    found = Trial(spark, load("heavy_parcels"), settings, own, registry).run(100)
    assert found.problem == f"there is no topic {source.name}: headrace topics create makes it"
