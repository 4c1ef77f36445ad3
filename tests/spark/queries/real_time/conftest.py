"""A pipeline in real-time mode while a test lasts."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from contracts.servers.registry import Registry
from spark.queries.real_time import renewals
from spark.runtime.settings import SparkSettings
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions
from tests.spark.real_time_query import LiveWith, running


@pytest.fixture
def live(live_with: LiveWith) -> Iterator[threading.Thread]:
    with live_with() as thread:
        yield thread


@pytest.fixture
def live_with(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions
) -> LiveWith:
    return functools.partial(running, spark, settings, registry, topics, dimensions)


@pytest.fixture
def no_practice(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes over does so for a new version."""
    monkeypatch.setattr(renewals, "_PRACTICE_RECORDS", 1_000_000)
