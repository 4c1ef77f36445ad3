"""One Spark for all of these tests; the stack's addresses are put in when the stack is up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from contracts.settings import read_settings
from deploy.local.downloads.spark_env import spark_env
from deploy.local.servers.stack import LocalStack
from spark.runtime import session
from spark.runtime.session import start_session
from spark.runtime.settings import Cluster, SparkSettings
from tests import sample
from tests.jvm import SHORT_LIVED
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions
from tests.spark.takeover import Takeover


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    env = spark_env()
    os.environ["JAVA_HOME"] = env["JAVA_HOME"]
    cluster = Cluster(jars=env["HEADRACE_SPARK__JARS"], master="local[4]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "_COMPILER", SHORT_LIVED)
        started = start_session(SparkSettings(spark=cluster), "tests", delta=True)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return sample.catalog()


@pytest.fixture(scope="session")
def settings(stack: LocalStack, spark: SparkSession) -> SparkSettings:
    """The stack's settings, with which the session reaches its S3."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in stack.settings_env().items():
            environment.setenv(name, value)
        found = read_settings(SparkSettings)
    start_session(found, "tests")
    return found


@pytest.fixture(scope="session")
def registry(settings: SparkSettings) -> Iterator[Registry]:
    with Registry(settings.registry, retry_seconds=2.0) as client:
        yield client


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    """Topics of this test alone, in place of the contracts' own."""
    with Topics(settings, catalog, registry) as made:
        yield made


@pytest.fixture
def dimensions(settings: SparkSettings, catalog: Catalog) -> Dimensions:
    return Dimensions(settings, catalog)


@pytest.fixture(scope="session")
def published(settings: SparkSettings, catalog: Catalog) -> Dimensions:
    """Dimensions for tests that don't change them."""
    return Dimensions(settings, catalog)


@pytest.fixture
def takeover(spark: SparkSession, settings: SparkSettings, topics: Topics) -> Takeover:
    return Takeover(spark, settings, topics)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j leaves its sockets to the garbage collector."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
