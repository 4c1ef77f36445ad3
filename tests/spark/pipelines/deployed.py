"""`python -m tests.spark.pipelines.deployed NAME,… TAG PLACE`: pipelines of the tree over topics and dimensions of a test's own."""

from __future__ import annotations

import sys

from contracts.definitions.catalog import load_catalog
from spark.pipelines import load
from tests.spark.queries.deployed import main

if __name__ == "__main__":
    sys.exit(main(load_catalog(), load))
