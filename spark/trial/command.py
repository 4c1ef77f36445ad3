"""`python -m spark trial`: options, and what it prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from contracts.checks.retained import Retained
from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import declared_pipelines
from contracts.errors import ContractError
from contracts.servers.registry import Registry
from spark.pipelines import load
from spark.runtime.errors import DimensionUnreadable, PipelineUnfit, TrialFailed
from spark.runtime.lifecycle import in_a_line
from spark.runtime.session import start_session, stop_session, while_java_lives
from spark.runtime.settings import SparkSettings
from spark.trial.trial import Trial

_UNFIT = (PipelineUnfit, ContractError, DimensionUnreadable)
"""What says that a pipeline would not start."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `run`."""
    parser.add_argument(
        "--most",
        type=_positive,
        default=25_000,
        metavar="N",
        help="the newest records of each partition (default 25,000)",
    )


def run(names: Sequence[str], settings: SparkSettings, options: argparse.Namespace) -> None:
    """Print a `Retained` of each of these pipelines, one JSON object a line. Raises RegistryError, QueryFailed or TrialFailed."""
    catalog = load_catalog()
    declared, _ = declared_pipelines()
    targets = {
        each.name: [topic.name for topic in map(catalog.by_constant.get, each.writes) if topic is not None]
        for each in declared
    }
    _tell("starting Spark")
    spark = start_session(settings, "headrace-trial")
    done = False
    try:
        with Registry(settings.registry, retry_seconds=2.0) as registry, while_java_lives(spark):
            for name in names:
                try:
                    pipeline = load(name)
                    trials = [
                        Trial(spark, pipeline, settings, catalog, registry, branch)
                        for branch in pipeline.branches or (None,)
                    ]
                    found = [trial.run(options.most, _tell) for trial in trials]
                except _UNFIT as error:
                    found = [
                        Retained(topic=topic, pipeline=name, problem=str(error))
                        for topic in targets.get(name) or [name]
                    ]
                for each in found:
                    print(each.model_dump_json(), flush=True)
        done = True
    except KafkaException as failure:
        raise TrialFailed(f"the brokers do not answer: {failure.args[0].str()}") from failure
    except PySparkException as failure:
        raise TrialFailed(in_a_line(failure)) from failure
    except Py4JJavaError as failure:
        raise TrialFailed("a job of Spark's failed: why stands above") from failure
    finally:
        stop_session(spark, settings, has_worked=done)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _tell(text: str) -> None:
    """What takes a while; stdout is for what was found."""
    print(text, file=sys.stderr, flush=True)
