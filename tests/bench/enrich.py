"""`headrace bench enrich`: the backlog throughput of raw → enriched, and of enriched → Delta.

A local stack of its own is filled with real departures before Spark starts. Two rates of each hop: sustained, the rows
that came out after the first sight of any, over the time since then; and overall, all rows over the time since its process
was started, JVM and query start included. CPU and memory are of whole process trees from the process's start on, broker and
S3 server included.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pydantic import HttpUrl

from contracts import topics
from contracts.catalog import load_catalog
from contracts.settings import KafkaSettings, RegistrySettings, Settings
from deploy.errors import ProcessFailed
from deploy.local.landing import upload_dimensions
from deploy.local.process import Process, describe_exit
from deploy.local.stack import BUCKET, LocalStack
from tests.bench.backlog import fill
from tests.bench.meter import Meter, Usage

RESULTS = Path("bench-results")
_POLL_SECONDS = 0.25
_LIMIT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop's figures; `samples` are (seconds since the process started, rows out so far)."""

    name: str
    events: int
    usage: dict[str, Usage]
    samples: list[tuple[float, int]]

    @property
    def sustained(self) -> float:
        """Rows per second after the first sight of any; `overall` where the first sight is of all."""
        first_at, first_rows = next(sample for sample in self.samples if sample[1])
        last_at, last_rows = self.samples[-1]
        return (last_rows - first_rows) / (last_at - first_at) if last_at > first_at else self.overall

    @property
    def overall(self) -> float:
        """Rows per second since the process was started."""
        return self.events / self.samples[-1][0]

    def lines(self) -> list[str]:
        """What is printed of it."""
        cpu = sum(usage.cpu_seconds for usage in self.usage.values()) * 1e6 / self.events
        rss = ", ".join(f"{name} {usage.peak_rss_mib:.0f}" for name, usage in self.usage.items())
        per_process = ", ".join(
            f"{name} {usage.cpu_seconds * 1e6 / self.events:.1f}" for name, usage in self.usage.items()
        )
        return [
            (
                f"{self.name}: {self.sustained:,.0f} events/s sustained, {self.overall:,.0f} events/s with the process's start "
                f"({self.events:,} in {self.samples[-1][0]:.1f} s)"
            ),
            f"  CPU-seconds per million, start included: {cpu:.1f} ({per_process})",
            f"  peak RSS in MiB: {rss}",
        ]


def run(events: int, say: Callable[[str], None]) -> list[Hop]:
    """Fill a new stack with `events` departures, enrich them, land them in the lake."""
    with TemporaryDirectory(prefix="headrace-bench-") as folder, LocalStack(Path(folder), say=say) as stack:
        stack.bootstrap()
        env = stack.settings_env()
        settings = settings_of(env)
        say("publishing the dimensions")
        publish_dimensions(stack, env)
        say(f"filling {topics.FLIGHTS_DEPARTED.name} with {events:,} departures")
        fill(settings, events)
        enriched = hop(
            "raw → enriched",
            stack,
            Process("live", [sys.executable, "-m", "spark", "live"], directory=stack.directory, env=env),
            events,
            taken_in(settings),
            say,
        )
        only = env | {
            "HEADRACE_LAKE__TOPICS": json.dumps([topics.FLIGHTS_DEPARTED_ENRICHED.name]),
            # The few records that the full batches leave over need not wait for more: it is throughput that counts.
            "HEADRACE_LAKE__TRIGGER_SECONDS": "1",
        }
        landed = hop(
            "enriched → Delta",
            stack,
            Process("lake", [sys.executable, "-m", "spark", "lake"], directory=stack.directory, env=only),
            events,
            table_size(env, "flights_departed_enriched"),
            say,
        )
    return [enriched, landed]


def report(hops: list[Hop], say: Callable[[str], None]) -> None:
    """Print the figures, and write them with their raw samples to a file."""
    conditions = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: version(name) for name in ("pyspark", "delta-spark", "confluent-kafka")},
    }
    say(", ".join(f"{name} {value}" for name, value in conditions.items()))
    for hop in hops:
        for line in hop.lines():
            say(line)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"enrich-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    path.write_text(json.dumps({"conditions": conditions, "hops": [asdict(hop) for hop in hops]}, indent=1))
    say(f"raw samples: {path}")


def publish_dimensions(stack: LocalStack, env: dict[str, str]) -> None:
    upload_dimensions(stack.s3, BUCKET, load_catalog())
    subprocess.run([sys.executable, "-m", "services.dimensions", "--once"], env=os.environ | env, check=True)


def settings_of(env: dict[str, str]) -> Settings:
    return Settings(
        kafka=KafkaSettings(bootstrap_servers=env["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"]),
        registry=RegistrySettings(url=HttpUrl(env["HEADRACE_REGISTRY__URL"])),
    )


def hop(
    name: str, stack: LocalStack, process: Process, events: int, rows_out: Callable[[], int], say: Callable[[str], None]
) -> Hop:
    process.start()
    began = time.monotonic()
    pids = {process.name: process.pid, "broker": stack.kafka.process.pid, "s3": stack.s3.process.pid}
    samples = [(0.0, 0)]
    try:
        with Meter({each: pid for each, pid in pids.items() if pid is not None}) as meter:
            while samples[-1][1] < events:
                time.sleep(_POLL_SECONDS)
                if (code := process.exit_code()) is not None:
                    raise ProcessFailed(
                        "\n".join([f"{process.name} ended with {describe_exit(code)}:", *process.last_log_lines()])
                    )
                at, rows = time.monotonic() - began, rows_out()
                if at // 5 > samples[-1][0] // 5:
                    say(f"{name}: {rows:,} of {events:,} after {at:.0f} s")
                samples.append((at, rows))
                if at > _LIMIT_SECONDS:
                    raise TimeoutError(f"{name}: {rows:,} of {events:,} after {_LIMIT_SECONDS} s; see {process.log}")
    finally:
        process.stop(grace_seconds=30)
    return Hop(name, events, meter.usage, samples)


def taken_in(settings: Settings) -> Callable[[], int]:
    """The group's offsets, which are committed with the rows; every record of the backlog is good."""
    topic = topics.FLIGHTS_DEPARTED.name
    consumer = Consumer(settings.kafka.client_config() | {"group.id": "live"})
    partitions = [TopicPartition(topic, each) for each in consumer.list_topics(topic, 10).topics[topic].partitions]

    def rows() -> int:
        return sum(max(0, each.offset) for each in consumer.committed(partitions, timeout=10))

    return rows


def table_size(env: dict[str, str], table: str) -> Callable[[], int]:
    options = {
        "AWS_ENDPOINT_URL": env["HEADRACE_S3__ENDPOINT"],
        "AWS_ACCESS_KEY_ID": env["HEADRACE_S3__ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": env["HEADRACE_S3__SECRET_KEY"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    uri = f"s3://{env['HEADRACE_S3__BUCKET']}/lake/{table}"

    def rows() -> int:
        try:
            actions = DeltaTable(uri, storage_options=options).get_add_actions(flatten=True)
        except TableNotFoundError:
            return 0
        return sum(actions.column("num_records").to_pylist())

    return rows
