"""`python -m tests.spark.deployed live|lake TAG PLACE`: a deployable as it is, over topics and dimensions of a test's own."""

from __future__ import annotations

import dataclasses
import sys

import structlog

from contracts.catalog import load_catalog
from contracts.errors import HeadraceError
from contracts.observe import configure_logging
from contracts.settings import read_settings
from spark.__main__ import run
from spark.runtime.settings import SparkSettings
from tests.spark.live_query import moved
from tests.spark.records import renamed


def main() -> int:
    name, tag, place = sys.argv[1:]
    settings, catalog = read_settings(SparkSettings), load_catalog()
    configure_logging(settings, service=name)
    own = dataclasses.replace(catalog, topics=renamed(catalog, tag), dimensions=moved(catalog, place))
    try:
        run(name, settings, own)
    except HeadraceError as error:
        structlog.get_logger().error("stopped by a failure", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
