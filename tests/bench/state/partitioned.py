"""`python -m tests.bench.state.partitioned PIPELINE N`: a pipeline with so many state partitions, over topics with as many partitions."""

from __future__ import annotations

import dataclasses
import sys

from contracts.definitions.catalog import load_catalog
from contracts.observe import configure_logging
from contracts.settings import read_settings
from spark.pipelines import load
from spark.queries.run import run_pipelines
from spark.runtime.settings import SparkSettings


def main() -> int:
    """As `python -m spark run` does it, by contracts that say another number of partitions."""
    name, partitions = sys.argv[1], int(sys.argv[2])
    settings = read_settings(SparkSettings)
    configure_logging(settings, service="live")
    pipeline, catalog = load(name), load_catalog()
    other = {
        each: catalog.topics[each].model_copy(update={"partitions": partitions})
        for each in (*pipeline.sources, *pipeline.targets)
    }
    run_pipelines([pipeline], settings, dataclasses.replace(catalog, topics={**catalog.topics, **other}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
