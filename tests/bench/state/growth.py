"""`headrace bench state --keys N`: what memory and a batch's time come to while the state of Headrace's windows grows to N keys.

All events fall into one window, which stays open, so nothing is dropped. Each of N origins comes twice, one after the other: first every event makes
a key, then every event changes one.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import fastavro
import psutil
from confluent_kafka import Consumer

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from contracts.settings import Settings
from spark.sinks.kafka.transaction import committed_offsets
from tests.bench.load.backlog import publish
from tests.bench.load.filled import bare_stack
from tests.bench.load.records import RAW, Record, constant_headers, raw_values
from tests.bench.measuring.plot import growth_svg
from tests.bench.measuring.results import as_line, conditions, save, save_text
from tests.bench.state.contender import CONTENDERS, Stage
from tests.bench.state.workloads.windows import WINDOWS

_BATCHES = 20
_ROUNDED = 8
"""Spark takes a record less of each partition than its share."""
_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 600
_AT = datetime(2013, 1, 1, 10, 20, tzinfo=UTC)
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """After a batch: seconds since the process started and since the batch before, events through, resident memory of `live` in MiB."""

    at_seconds: float
    batch_seconds: float
    events: int
    rss_mib: float


def run(keys: int, say: Callable[[str], None]) -> list[Sample]:
    """A sample of each batch. Raises ProcessFailed, TimeoutError."""
    with bare_stack(say) as (stack, env, settings):
        say(f"filling the raw topic with {2 * keys:,} events of {keys:,} keys")
        for _ in range(2):
            # Not kept for the second time: ten million need twelve gigabytes.
            publish(settings, RAW, _records(settings, keys), keys)
        env |= {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": str(2 * keys // _BATCHES + _ROUNDED)}
        headrace = CONTENDERS[0]
        process = headrace.process(WINDOWS, WINDOWS.target, Stage(stack, env, settings, say))
        consumer = Consumer(settings.kafka.client_config() | {"group.id": WINDOWS.pipeline})
        partitions = sorted(consumer.list_topics(RAW, 10).topics[RAW].partitions)

        def through() -> list[int]:
            return [each or 0 for each in committed_offsets(consumer, RAW, partitions).values()]

        try:
            process.start()
            assert process.pid is not None
            return list(_samples(psutil.Process(process.pid), process.check_running, through, 2 * keys, say))
        finally:
            process.stop(grace_seconds=30)


def report(keys: int, samples: Sequence[Sample], say: Callable[[str], None]) -> None:
    """Print the figures, write them to `bench-results/state-growth-<time>.json`, and draw both."""
    found = {**conditions("pyspark", "confluent-kafka"), "keys": keys}
    say(as_line(found))
    for each in samples:
        say(f"{each.events:>12,} events  {each.batch_seconds:6.2f} s of the batch  {each.rss_mib:8,.0f} MiB")
    seconds = [(each.events, each.batch_seconds) for each in samples[1:]]
    memory = [(each.events, each.rss_mib) for each in samples]
    save_text("state-growth-seconds", "svg", growth_svg("seconds of a batch against events", seconds), say)
    save_text("state-growth-memory", "svg", growth_svg("MiB resident against events", memory), say)
    save("state-growth", {"conditions": found, "samples": list(map(asdict, samples))}, say)


def _records(settings: Settings, keys: int) -> Iterator[Record]:
    with Registry(settings.registry) as registry:
        schema_id = registry.latest(f"{RAW}-value").id
    schema = fastavro.parse_schema(json.loads(load_catalog().schema(RAW)))
    _, value, _ = next(raw_values(schema_id))
    fields = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
    assert isinstance(fields, dict)
    constant = constant_headers(RAW, "/services/departures")
    for number in range(keys):
        body = io.BytesIO()
        body.write(value[:5])
        changed = {"origin": f"{number:08d}", "departed_at": _AT, "departure_delay_minutes": number % 100}
        fastavro.schemaless_writer(body, schema, fields | changed)
        key = str(number).encode()
        yield key, body.getvalue(), [("ce_id", key), ("ce_time", _AT.isoformat().encode()), *constant]


def _samples(
    process: psutil.Process,
    check_running: Callable[[], None],
    through: Callable[[], list[int]],
    events: int,
    say: Callable[[str], None],
) -> Iterator[Sample]:
    began = before = time.monotonic()
    last = [0] * len(through())
    while sum(last) < events:
        time.sleep(_POLL_SECONDS)
        check_running()
        now = through()
        at = time.monotonic()
        # The positions of a batch are committed one after the other.
        if sum(now) == events or all(each > past for each, past in zip(now, last, strict=True)):
            last = now
            say(f"{sum(now):,} of {events:,} events after {at - began:.0f} s")
            rss = sum(each.memory_info().rss for each in [process, *process.children(recursive=True)])
            yield Sample(at - began, at - before, sum(now), rss / _MIB)
            before = at
        if at - began > _LIMIT_SECONDS * max(1.0, events / 1_000_000):
            raise TimeoutError(f"{sum(now):,} of {events:,} events after {at - began:.0f} s")
