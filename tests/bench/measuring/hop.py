"""`Hop`: how fast one Spark deployable gets through a backlog, and what that costs.

Two rates: sustained, the rows that came out after the first fifth of the backlog, over the time since then; and overall, all
rows over the time since the process was started, JVM and query start included. A fifth, because who commits seldom is first seen
when its JVM has compiled what it needs, and who commits often when it has compiled nothing. CPU and memory are of whole process
trees from the process's start on, broker and S3 server included.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from contracts.settings import S3Settings, Settings
from deploy.local.processes.deployable import deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from spark.sinks.kafka.transaction import committed_offsets
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from tests.bench.load.records import PIPELINE, RAW
from tests.bench.measuring.meter import Meter, Usage
from tests.bench.measuring.results import as_line, conditions, save

_POLL_SECONDS = 0.25
_LIMIT_SECONDS = 300
"""For a million events."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop's figures; `samples` are (seconds since the process started, rows out so far), `cpu_seconds` all used at each of them."""

    name: str
    events: int
    usage: dict[str, Usage]
    samples: list[tuple[float, int]]
    cpu_seconds: list[float]

    @property
    def sustained(self) -> float:
        """Rows per second after the first fifth; `overall` if all came at once."""
        first_at, first_rows = self.samples[self._warm]
        last_at, last_rows = self.samples[-1]
        return (last_rows - first_rows) / (last_at - first_at) if last_at > first_at else self.overall

    @property
    def cpu_seconds_per_million(self) -> float:
        """Of all processes together, broker and S3 server included."""
        return sum(usage.cpu_seconds for usage in self.usage.values()) * 1e6 / self.events

    @property
    def cpu_seconds_per_million_sustained(self) -> float:
        """The same after the first fifth; start included if all came at once."""
        rows = self.samples[-1][1] - self.samples[self._warm][1]
        used = self.cpu_seconds[-1] - self.cpu_seconds[self._warm]
        return used * 1e6 / rows if rows else self.cpu_seconds_per_million

    @property
    def _warm(self) -> int:
        """The first sample with a fifth of the events."""
        return next(number for number, (_, rows) in enumerate(self.samples) if rows * 5 >= self.events)

    @property
    def overall(self) -> float:
        """Rows per second since the process was started."""
        return self.events / self.samples[-1][0]

    def lines(self) -> list[str]:
        """What is printed of it."""
        rss = ", ".join(f"{name} {usage.peak_rss_mib:.0f}" for name, usage in self.usage.items())
        per_process = ", ".join(
            f"{name} {usage.cpu_seconds * 1e6 / self.events:.1f}" for name, usage in self.usage.items()
        )
        return [
            (
                f"{self.name}: {self.sustained:,.0f} events/s sustained, {self.overall:,.0f} events/s with the process's start "
                f"({self.events:,} in {self.samples[-1][0]:.1f} s)"
            ),
            (
                f"  CPU-seconds per million, start included: {self.cpu_seconds_per_million:.1f} ({per_process}); "
                f"after the first fifth {self.cpu_seconds_per_million_sustained:.1f}"
            ),
            f"  peak RSS in MiB: {rss}",
        ]


def measure(
    name: str,
    deployable: str,
    stack: LocalStack,
    env: Mapping[str, str],
    events: int,
    rows_out: Callable[[], int],
    say: Callable[[str], None],
) -> Hop:
    """Start `live` or `lake`, and stop it when `events` rows are out.

    Raises ProcessFailed if it ends before, TimeoutError if it takes more than five minutes, or as long for each million.
    """
    arguments = deployables().named(deployable).command
    process = Process(deployable, [sys.executable, "-m", *arguments], directory=stack.directory, env=dict(env))
    return measure_process(name, process, stack, events, rows_out, say)


def measure_process(
    name: str,
    process: Process,
    stack: LocalStack,
    events: int,
    rows_out: Callable[[], int],
    say: Callable[[str], None],
) -> Hop:
    """Start a process, and stop it when `events` rows are out; raises as `measure` does."""
    try:
        return run_through(name, process, stack, events, rows_out, say)
    finally:
        process.stop(grace_seconds=30)


def run_through(
    name: str,
    process: Process,
    stack: LocalStack,
    events: int,
    rows_out: Callable[[], int],
    say: Callable[[str], None],
) -> Hop:
    """Start a process, and watch it until `events` rows are out; it is left running. Raises as `measure` does."""
    process.start()
    began = time.monotonic()
    pids = {process.name: process.pid, "broker": stack.kafka.process.pid, "s3": stack.s3.process.pid}
    samples, cpu_seconds = [(0.0, 0)], [0.0]
    limit = _LIMIT_SECONDS * max(1.0, events / 1_000_000)
    with Meter(pids) as meter:
        while samples[-1][1] < events:
            time.sleep(_POLL_SECONDS)
            process.check_running()
            at, rows = time.monotonic() - began, rows_out()
            if at // 5 > samples[-1][0] // 5:
                say(f"{name}: {rows:,} of {events:,} after {at:.0f} s")
            samples.append((at, rows))
            cpu_seconds.append(meter.cpu_seconds())
            if at > limit:
                raise TimeoutError(f"{name}: {rows:,} of {events:,} after {limit:.0f} s; see {process.log}")
    return Hop(name, events, meter.usage, samples, cpu_seconds)


def taken_in(settings: Settings, topic: str = RAW, group: str = PIPELINE) -> Callable[[], int]:
    """The group's offsets, by default those of the pipeline, which are committed with the rows; every record of the backlog is good."""
    consumer = Consumer(settings.kafka.client_config() | {"group.id": group})
    partitions = sorted(consumer.list_topics(topic, 10).topics[topic].partitions)

    def rows() -> int:
        return sum(offset or 0 for offset in committed_offsets(consumer, topic, partitions).values())

    return rows


def forget_positions(settings: Settings) -> None:
    """The next `live` begins with the first record, whatever its mode: its checkpoint is gone, and its group is set back."""
    CheckpointOffsets(settings.s3, checkpoint_folder(PIPELINE)).remove()
    with closing(Consumer(settings.kafka.client_config() | {"group.id": PIPELINE})) as group:
        partitions = group.list_topics(RAW, 10).topics[RAW].partitions
        group.commit(offsets=[TopicPartition(RAW, each, 0) for each in partitions], asynchronous=False)


def sent_to(settings: Settings, topic: str = RAW) -> Callable[[], int]:
    """How far a topic's committed records go, by default those of the raw one; markers of transactions count too."""
    consumer = Consumer(settings.kafka.client_config() | {"group.id": "bench"})
    partitions = [TopicPartition(topic, each) for each in consumer.list_topics(topic, 10).topics[topic].partitions]
    return lambda: sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions)


def grown(settings: Settings, topic: str) -> Callable[[], int]:
    """How much further it goes than now."""
    sent = sent_to(settings, topic)
    before = sent()
    return lambda: sent() - before


def table_size(s3: S3Settings, table: str) -> Callable[[], int]:
    """The rows of a lake table, by its log."""
    uri, options = f"s3://{s3.bucket}/lake/{table}", s3.delta_options()

    def rows() -> int:
        try:
            actions = DeltaTable(uri, storage_options=options).get_add_actions(flatten=True)
        except TableNotFoundError:
            return 0
        return sum(actions.column("num_records").to_pylist())

    return rows


def report(name: str, hops: Sequence[Hop], say: Callable[[str], None]) -> None:
    """Print the figures, and write them with their raw samples to `bench-results/<name>-<time>.json`."""
    found = conditions("pyspark", "delta-spark", "confluent-kafka")
    say(as_line(found))
    for hop in hops:
        for line in hop.lines():
            say(line)
    save(name, {"conditions": found, "hops": [asdict(hop) for hop in hops]}, say)
