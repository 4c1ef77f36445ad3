"""A pipeline in real-time mode while a test lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from contracts.servers.registry import Registry
from spark.runtime.settings import SparkSettings
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions
from tests.spark.real_time_query import running


@pytest.fixture
def live(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions
) -> Iterator[threading.Thread]:
    with running(spark, settings, registry, topics, dimensions) as thread:
        yield thread
