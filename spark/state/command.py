"""`python -m spark state`: options, and what it prints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from contracts.definitions.catalog import Catalog, load_catalog
from contracts.definitions.pipelines import declared_pipelines
from spark.derivation.derivation import is_stateful
from spark.pipeline import Pipeline
from spark.runtime.errors import StateUnreadable
from spark.runtime.session import start_session, stop_session, while_java_lives
from spark.runtime.settings import SparkSettings
from spark.state.checkpoint import StateCheckpoint
from spark.state.state import read

_MASTER = "local[2]"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `run`."""
    parser.add_argument("--batch", type=int, metavar="N", help="behind this batch; behind the last one by default")
    parser.add_argument(
        "--most", type=int, metavar="N", help="the first N rows, of a join those of each side; all by default"
    )


def run(pipeline: Pipeline, settings: SparkSettings, options: argparse.Namespace) -> None:
    """Print a `StateSummary`, then a line for each row: a JSON array of the number of its table and of the row. Raises StateUnreadable."""
    catalog = load_catalog()
    check_is_stateful(pipeline, catalog)
    checkpoint = StateCheckpoint(settings.s3, pipeline.name, catalog.topic(pipeline.target).name)
    # What is not there is told before Spark starts.
    checkpoint.at(options.batch)
    _tell("starting Spark")
    # The copy of the checkpoint lies on this machine.
    settings = settings.model_copy(update={"spark": settings.spark.model_copy(update={"master": _MASTER})})
    spark = start_session(settings, "headrace-state")
    done = False
    try:
        with TemporaryDirectory(prefix="headrace-state-") as folder, while_java_lives(spark):
            state = read(spark, pipeline, catalog, checkpoint, options.batch, Path(folder), _tell)
            print(state.summary().model_dump_json())
            for table, row in state.rows(options.most):
                print(f"[{table},{row}]")
        done = True
    finally:
        stop_session(spark, settings, has_worked=done)


def check_is_stateful(pipeline: Pipeline, catalog: Catalog) -> None:
    """Raises StateUnreadable if the pipeline keeps no state."""
    if not is_stateful(pipeline, catalog):
        declared, _ = declared_pipelines()
        stateful = [
            each.name
            for each in declared
            if any(topic in catalog.by_constant and catalog.by_constant[topic].is_stateful for topic in each.writes)
        ]
        raise StateUnreadable(
            f"{pipeline.name} keeps no state: it makes its records of one record each. Those that keep one: {', '.join(stateful) or 'none'}"
        )


def _tell(text: str) -> None:
    """What takes a while; stdout is for what was found."""
    print(text, file=sys.stderr, flush=True)
