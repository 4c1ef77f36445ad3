"""`headrace bench soak`: all that `headrace up` starts, under evenly paced load for a long time: does anything grow?

Beside the replay of `up`, departures are sent at a rate. Every half minute it is noted how far behind each reader is, how much memory
each process has, and how many files there are in each place. What these are in the last third of the time
stands beside the second one (the first is for caches to fill and code to be compiled); what is bounded is about the same in both, or
falls again in between. What the load sent must be in the enriched topic and in the lake at the end, counted.
"""

from __future__ import annotations

import itertools
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from confluent_kafka import Consumer, TopicPartition
from dotenv import dotenv_values
from prometheus_client.parser import text_string_to_metric_families

from deploy.errors import ProcessFailed
from deploy.local.deployable import ROOT
from deploy.local.folder import Folder
from deploy.local.ports import HOST, Ports
from deploy.local.process import Process
from spark.transaction import committed_offsets
from tests.bench import pace
from tests.bench.filled import settings_of
from tests.bench.hop import table_size
from tests.bench.records import ENRICHED, RAW
from tests.bench.results import as_line, conditions, save

EVERY_SECONDS = 30.0
_START_SECONDS = 600.0
_CATCH_UP_SECONDS = 180.0
_STOP_SECONDS = 180.0

Look = dict[str, float]
"""What was seen at one moment, by name: `lag of live`, `MB of lake`, `files of kafka`."""


@dataclass(frozen=True, slots=True)
class Soak:
    """`looks`: (seconds since the load began, what was seen). `sent` are departures, those of the replay with them, `landed` their
    enriched rows in the lake.
    """

    rate: int
    seconds: float
    looks: list[tuple[float, Look]]
    sent: int
    landed: int

    def thirds(self, name: str) -> tuple[float, float]:
        """Medians of the second and the last third; what was never seen in one of them is 0 there."""
        ends = (self.seconds / 3, self.seconds * 2 / 3, float("inf"))
        parts = [
            [look[name] for at, look in self.looks if begin <= at < end and name in look]
            for begin, end in itertools.pairwise(ends)
        ]
        second, last = (statistics.median(part) if part else 0.0 for part in parts)
        return second, last


def run(rate: int, seconds: float, say: Callable[[str], None]) -> Soak:
    """Start everything, load it, look at it, stop it.

    Raises ProcessFailed if `up` or the load fails, TimeoutError if the lake doesn't catch up with the load's end.
    """
    with TemporaryDirectory(prefix="headrace-bench-") as name:
        directory, offset = Path(name), Ports.free_offset()
        up = Process(
            "up",
            [str(ROOT / "headrace"), "up", "--dir", str(directory), "--port-offset", str(offset)],
            directory=directory / "bench",
        )
        up.start()
        try:
            up.wait_until(
                lambda: "the first new alert is there" in up.log.read_text(),
                what="everything ran",
                timeout_seconds=_START_SECONDS,
            )
            return _loaded(rate, seconds, directory, up, say)
        finally:
            up.stop(grace_seconds=_STOP_SECONDS)


def report(soak: Soak, say: Callable[[str], None]) -> None:
    """Print the figures, and write them with every look to a file."""
    found = conditions("pyspark", "delta-spark", "deltalake", "faust-streaming", "confluent-kafka")
    say(as_line(found))
    say(f"{soak.rate:,} events/s for {soak.seconds:.0f} s; second third, last third, highest:")
    for name in sorted({name for _, look in soak.looks for name in look}):
        second, last = soak.thirds(name)
        highest = max(look.get(name, 0.0) for _, look in soak.looks)
        say(f"  {name:<40} {second:>10,.0f} {last:>10,.0f} {highest:>10,.0f}")
    say(f"departures sent {soak.sent:,}, enriched rows in the lake {soak.landed:,}")
    save("soak", {"conditions": found, **asdict(soak)}, say)


def _loaded(rate: int, seconds: float, directory: Path, up: Process, say: Callable[[str], None]) -> Soak:
    # Not what this process has in its environment: its load is for this stack alone.
    env = {name: value or "" for name, value in dotenv_values(directory / "env").items()}
    watch = _Watch(Folder(directory), env)
    looks: list[tuple[float, Look]] = []
    say(f"{rate:,} events/s for {seconds:.0f} s beside the replay of up")
    began = time.monotonic()
    with pace.start(RAW, rate, seconds, env) as load:
        try:
            while load.poll() is None:
                time.sleep(EVERY_SECONDS)
                up.check_running()
                looks.append((time.monotonic() - began, watch.look()))
                say(
                    f"{looks[-1][0]:5.0f} s  " + ", ".join(f"{name} {seen:,.0f}" for name, seen in looks[-1][1].items())
                )
        finally:
            load.terminate()
    if load.returncode:
        raise ProcessFailed(f"the load ended with exit code {load.returncode}")
    sent, deadline = watch.sent(), time.monotonic() + _CATCH_UP_SECONDS
    while (landed := watch.landed()) < sent:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{landed:,} of {sent:,} rows are in the lake {_CATCH_UP_SECONDS:.0f} s after the load")
        time.sleep(1)
    return Soak(rate, seconds, looks, sent, landed)


class _Watch:
    """Looks at a running `up` from outside."""

    def __init__(self, folder: Folder, env: dict[str, str]) -> None:
        self._folder = folder
        settings = settings_of(env)
        self._consumer = Consumer(settings.kafka.client_config() | {"group.id": "alerting"})
        known = self._consumer.list_topics(timeout=10).topics
        self._raw, self._enriched = (
            [TopicPartition(name, each) for each in known[name].partitions] for name in (RAW, ENRICHED)
        )
        self.landed = table_size(settings.s3, "flights_departed_enriched")
        """How many enriched departures are in the lake."""

    def look(self) -> Look:
        """Lag in records, memory in MB, files, and how often a process was started again."""
        ports, processes = self._folder.read_state() or (Ports(), [])
        look: Look = {
            f"lag of {name}": _metric(getattr(ports, name), "headrace_lag_records") for name in ("live", "lake")
        }
        look["lag of alerting"] = self._alerting_lag()
        look |= {f"MB of {each['name']}": each["resident_mb"] for each in processes}
        look |= {f"files of {name}": count for name, count in _files(self._folder.path).items()}
        look["restarts"] = sum(each["restarts"] for each in processes)
        return look

    def sent(self) -> int:
        """How many departures there are."""
        return sum(map(self._end, self._raw))

    def _alerting_lag(self) -> int:
        partitions = [each.partition for each in self._enriched]
        committed = committed_offsets(self._consumer, ENRICHED, partitions)
        return sum(self._end(each) - (committed[each.partition] or 0) for each in self._enriched)

    def _end(self, partition: TopicPartition) -> int:
        return self._consumer.get_watermark_offsets(partition, timeout=10)[1]


def _metric(port: int, name: str) -> float:
    """The sum of a metric's samples."""
    text = httpx.get(f"http://{HOST}:{port}/metrics", trust_env=False).text
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def _files(directory: Path) -> Counter[str]:
    """How many there are in each place: the broker's, the lake's by table and log, checkpoints, the others."""
    found: Counter[str] = Counter()
    for folder, _, names in os.walk(directory):
        parts = Path(folder).relative_to(directory).parts
        if parts[:4] == ("s3", "data", "headrace", "lake"):
            place = "/".join(("lake", *parts[4:5], *(("log",) if "_delta_log" in parts else ())))
        elif parts[:3] == ("s3", "data", "headrace"):
            place = "/".join(parts[3:4]) or "bucket"
        else:
            place = "/".join(parts[:1]) or "folder"
        found[place] += len(names)
    return found
