"""A pipeline in real-time mode over a test's topics: `running`, and what is seen of it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession

from contracts.errors import HeadraceError
from contracts.servers.brokers import ends_of
from contracts.servers.registry import Registry
from spark.derivation.derivation import route
from spark.pipeline import Pipeline
from spark.queries.real_time.real_time import RealTime
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.mode import Mode
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.transaction import committed_offsets, position_reader
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions, parcels, wait_for

LiveWith = Callable[..., AbstractContextManager[threading.Thread]]
"""`running` with what `settings.live` is to hold, all other things chosen."""


@contextmanager
def running(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    dimensions: Dimensions,
    pipeline: Pipeline = dispatches_enriched,
    lifecycle: Lifecycle | None = None,
    **live: object,
) -> Iterator[threading.Thread]:
    """A pipeline over the test's topics, until the block ends; its error is raised there."""
    lifecycle = lifecycle or Lifecycle()
    catalog = dataclasses.replace(topics.catalog, dimensions=dimensions.contracts)
    chosen = settings.model_copy(update={"live": settings.live.model_copy(update={"mode": Mode.REAL_TIME} | live)})
    errors: list[HeadraceError] = []

    def run() -> None:
        try:
            RealTime(spark, pipeline, chosen, catalog, registry, lifecycle).run()
        except HeadraceError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield thread
    finally:
        lifecycle.stopping.set()
        thread.join()
        # Though the block has failed: it may have waited for what an ended pipeline does no more.
        if errors:
            raise errors[0]


def send_before(topics: Topics) -> None:
    """The first record, "before", which has come out when this returns."""
    topics.send_dispatches("before")
    wait_for("the first record", lambda: parcels(topics) == ["before"])


def positions(
    settings: SparkSettings, topics: Topics, pipeline: Pipeline = dispatches_enriched
) -> dict[int, int | None]:
    """Those that the group has."""
    there = route(pipeline, topics.catalog)
    reader = position_reader(settings.kafka.client_config(), there)
    try:
        return committed_offsets(reader, there.source, [0, 1])
    finally:
        reader.close()


def counted(what: str) -> float:
    """By a counter of the pipeline's."""
    return gauge(f"headrace_{what}_total", query="dispatches_enriched") or 0


def gauge(name: str, **labels: str) -> float | None:
    """A metric's value of now."""
    return REGISTRY.get_sample_value(name, labels)


def is_away(*_: object) -> Any:
    """In place of a question to brokers: none answers."""
    raise KafkaException(KafkaError(KafkaError._TRANSPORT))


def ends_without(*away: int) -> Callable[..., tuple[dict[int, int], dict[int, KafkaException]]]:
    """`ends_of`, but these partitions have no leader."""

    def some(consumer: Consumer, topic: str, partitions: Iterable[int], seconds: float) -> Any:
        asked = [*partitions]
        ends, untold = ends_of(consumer, topic, [p for p in asked if p not in away], seconds)
        error = KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        return ends, untold | {p: error for p in asked if p in away}

    return some
