"""`headrace state` as it is called, over the checkpoint of a pipeline of the tree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import pipeline_files
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from deploy.local.servers.stack import LocalStack
from spark.derivation.derivation import is_stateful
from spark.pipelines import load
from spark.pipelines.delays_by_origin import delays_by_origin
from spark.runtime.settings import SparkSettings
from tests.spark.aggregates.test_stateful import Query
from tests.spark.examples import Topics, body, framed
from tests.spark.pipelines.test_pipelines import a_departure

HEADRACE = str(Path(sys.executable).parent / "headrace")
DEPARTED, DELAYS = delays_by_origin.source, delays_by_origin.target
TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def topics(settings: SparkSettings, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, load_catalog(), registry, names=(DEPARTED, DELAYS)) as made:
        yield made


def _called(stack: LocalStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **stack.settings_env()}
    return subprocess.run([HEADRACE, "state", *arguments], env=env, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_state_is_shown_and_what_can_not_be_shown_is_told(
    stack: LocalStack, spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> None:
    said = _called(stack, "delays_by_origin")
    assert said.returncode == 1
    assert "delays_by_origin has no state in s3://" in said.stderr
    said = _called(stack, "departures_enriched")
    assert said.returncode == 1
    assert "departures_enriched keeps no state" in said.stderr
    stateful = [name for name in pipeline_files() if is_stateful(load(name), load_catalog())]
    assert {"delays_by_origin", "flight_legs"} <= {*stateful}
    assert f"Those that keep one: {', '.join(stateful)}" in said.stderr
    said = _called(stack, "nobodys")
    assert said.returncode == 1
    assert "choose from" in said.stderr

    query = Query(spark, settings, registry, topics, delays_by_origin)
    schema = topics.catalog.schema(DEPARTED)
    for origin, minutes, delay in (("EWR", 0, 6), ("EWR", 14, 6), ("JFK", 15, 60)):
        event = a_departure(origin=origin, departed_at=TEN + timedelta(minutes=minutes), departure_delay_minutes=delay)
        topics.send(framed(topics.schema_ids[DEPARTED], body(event, schema)), topic=DEPARTED)
    query.take_in()
    # The command knows no topics of a test's own.
    s3, bucket = s3_client(settings.s3), settings.s3.bucket
    theirs = [key.replace(topics.catalog.topic(DELAYS).name, DELAYS) for key in query.files()]
    try:
        for key, copy in zip(query.files(), theirs, strict=True):
            s3.copy_object(Bucket=bucket, Key=copy, CopySource={"Bucket": bucket, "Key": key})
        said = _called(
            stack,
            "delays_by_origin",
            "--json",
            "--where",
            "departures > 1 && begins_at < timestamp('2013-01-01T10:01:00Z')",
        )
        assert said.returncode == 0, said.stderr
        told = json.loads(said.stdout)
        shown = _called(stack, "delays_by_origin", "-n", "1")
    finally:
        query.remove(theirs)
    assert (told["run"], told["unfit"]) == (theirs[0].split("/")[3], None)
    (table,) = told["tables"]
    assert (table["rows"], table["holding"]) == (2, 1)
    assert table["first"] == [
        {
            "window_id": "EWR/2013-01-01T10:00:00Z",
            "origin": "EWR",
            "begins_at": "2013-01-01T10:00:00.000Z",
            "ends_at": "2013-01-01T10:15:00.000Z",
            "departures": 2,
            "delay_mean_minutes": 6.0,
            "delay_p95_minutes": 6.0,
        }
    ]
    assert shown.stdout.splitlines()[-4:] == [
        "open groups: 2",
        "window_id                 origin  begins_at                 ends_at                   departures  delay_mean_minutes  delay_p95_minutes",
        "EWR/2013-01-01T10:00:00Z  EWR     2013-01-01T10:00:00.000Z  2013-01-01T10:15:00.000Z  2           6.0                 6.0",
        "… and 1 more: -n shows them",
    ]
