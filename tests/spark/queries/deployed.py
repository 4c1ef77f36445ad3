"""`python -m tests.spark.queries.deployed lake|NAME,… TAG PLACE`: `lake`, or pipelines, over topics and dimensions of a test's own."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import structlog

from contracts.definitions.catalog import Catalog
from contracts.errors import HeadraceError
from contracts.observe import configure_logging
from contracts.settings import read_settings
from spark.pipeline import Pipeline
from spark.queries.lake import run_lake
from spark.queries.run import run_pipelines
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.sample.pipelines import load
from tests.spark.examples import DISPATCHED, ENRICHED, renamed
from tests.spark.live_query import moved


def main(catalog: Catalog, load: Callable[[str], Pipeline]) -> int:
    """Until it ends; the exit status. `load` gives a pipeline by its name."""
    name, tag, place = sys.argv[1:]
    settings = read_settings(SparkSettings)
    configure_logging(settings, service=name)
    pipelines = [] if name == "lake" else [load(each) for each in name.split(",")]
    names = {topic for each in pipelines for topic in (*each.sources, *each.targets)} or {DISPATCHED, ENRICHED}
    own = dataclasses.replace(catalog, topics=renamed(catalog, tag, sorted(names)), dimensions=moved(catalog, place))
    try:
        if pipelines:
            run_pipelines(pipelines, settings, own)
        else:
            run_lake(settings, own)
    except HeadraceError as error:
        structlog.get_logger().error("stopped by a failure", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sample.catalog(), load))
