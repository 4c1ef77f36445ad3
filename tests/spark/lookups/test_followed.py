"""A pipeline that runs looks up in a dimension that is made of a topic."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.runtime.settings import SparkSettings
from tests.services.following import Place
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, events, running, wait_for


def test_what_a_topic_says_of_a_key_holds_for_the_records_that_come_behind_its_version(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    catalog: Catalog,
    topics: Topics,
    dimensions: Dimensions,
    stack: LocalStack,
    tmp_path: Path,
) -> None:
    dimensions.remove("couriers")
    place = Place(stack, tmp_path, location=f"{dimensions.place}-couriers".replace("test-dimensions/", "dimensions/"))
    dimensions.contracts["couriers"] = place.contract
    place.name("UA", "United")
    with place.following(), running(spark, settings, registry, topics.catalog, dimensions):
        topics.send_dispatches("first")
        wait_for("the first", lambda: len(events(topics)) == 1)
        place.name("UA", "United Anew")
        wait_for("its version", lambda: place.version() == 1)
        topics.send_dispatches("second")
        wait_for("the second", lambda: len(events(topics)) == 2)
        place.send(b"UA", None)
        wait_for("a version without rows", lambda: place.version() == 2)
        topics.send_dispatches("third")
        wait_for("the third", lambda: len(events(topics)) == 3)
    found = {
        event["parcel_id"]: (event["courier_name"], event["dimension_versions"]["couriers"])
        for event, _, _ in events(topics)
    }
    assert found == {"first": ("United", 0), "second": ("United Anew", 1), "third": (None, 2)}
