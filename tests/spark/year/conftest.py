"""A passage of any pipeline through a year, with events in order and in disorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import pytest

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from spark.pipeline import Pipeline
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM
from tests.spark.examples import Topics
from tests.spark.live_query import Dimensions
from tests.spark.queries.test_processes import Place
from tests.spark.year.events import ARRANGEMENTS
from tests.spark.year.passage import Passage

Beside = Callable[[Passage, str], AbstractContextManager[None]]
Passed = Callable[..., Passage]


@pytest.fixture(params=ARRANGEMENTS)
def passed(
    request: pytest.FixtureRequest, stack: LocalStack, settings: SparkSettings, registry: Registry, tmp_path: Path
) -> Iterator[Passed]:
    """Of a pipeline its passage, which is over."""
    with ExitStack() as ending:

        def through(pipeline: Pipeline, *others: str, beside: Beside = lambda *_: nullcontext()) -> Passage:
            """`others` are topics that it needs besides, `beside` is what goes on meanwhile, over dimensions at that place."""
            catalog = load_catalog()
            names = (*pipeline.sources, pipeline.target, *others, *PLATFORM)
            topics = ending.enter_context(Topics(settings, catalog, registry, names=names))
            dimensions = Dimensions(settings, catalog, {})
            place = ending.enter_context(Place(stack, settings, topics, dimensions, tmp_path))
            passage = Passage(pipeline, settings, topics, place, tmp_path, request.param)
            with beside(passage, dimensions.place):
                passage.run()
            return passage

        yield through
