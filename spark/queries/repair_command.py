"""`python -m spark repair`: options, and what it prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime

from confluent_kafka import KafkaException

from contracts.definitions.catalog import load_catalog
from contracts.servers.provision import check_limits
from contracts.servers.registry import Registry
from spark.pipeline import Pipeline
from spark.queries.repair import Progress, Repair, refuse_branch
from spark.runtime.errors import RepairFailed
from spark.runtime.session import start_session, stop_session
from spark.runtime.settings import SparkSettings


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of `run`."""
    parser.add_argument("--since", type=_instant, metavar="TIME", help="only rows of this event time or later")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be sent")
    parser.add_argument(
        "--wait", type=float, default=60, metavar="SECONDS", help="how long the lake may take to catch up (default 60)"
    )


def run(pipeline: Pipeline, settings: SparkSettings, options: argparse.Namespace) -> None:
    """Repair, or only look. Raises PipelineUnfit, RepairFailed, PositionsDisagree, RegistryError, ContractError, TopicUnfit or DimensionUnreadable."""
    refuse_branch(pipeline)
    catalog = load_catalog()
    check_limits(settings.kafka, catalog, [pipeline.target])
    _tell("starting Spark")
    spark = start_session(settings, "headrace-repair")
    done = False
    try:
        with Registry(settings.registry, retry_seconds=2.0) as registry:
            repair = Repair(spark, pipeline, settings, catalog, registry)
            _tell("reading the lake, when it has all that is in the topic now")
            if options.dry_run:
                _say(repair.look(options.since, options.wait), repair.added_later)
            else:
                _say(repair.run(options.since, options.wait, _say_how_far), repair.added_later)
                done = True
    except KafkaException as failure:
        raise RepairFailed(f"the brokers do not answer: {failure.args[0].str()}") from failure
    finally:
        stop_session(spark, settings, has_worked=done)


def _tell(text: str) -> None:
    """What takes a while; stdout is for what was found."""
    print(text, file=sys.stderr, flush=True)


def _say_how_far(progress: Progress) -> None:
    print(f"{progress.unmatched:,} rows looked at, {progress.sent:,} sent and committed", flush=True)


def _say(progress: Progress, added_later: Sequence[str]) -> None:
    print(f"{progress.unmatched:,} rows lack a lookup")
    if progress.untold:
        print(
            f"{progress.untold:,} of them are left as they are: they may be of before {', '.join(added_later)} came into the topic, and the lake "
            "does not have their raw records, which tell the value"
        )
    lookups = ", ".join(f"{name} {count:,}" for name, count in sorted(progress.by_lookup.items()))
    print(f"{progress.repairable:,} of them have it by now{f': {lookups}' if lookups else ''}")
    print(f"{progress.sent:,} sent and committed", flush=True)


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write it as 2026-01-08T00:00Z") from None
    if at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no zone: write it as 2026-01-08T00:00Z")
    return at
