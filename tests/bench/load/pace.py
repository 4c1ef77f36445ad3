"""Evenly paced load: records sent at a rate, each with the moment of its sending and its number in the trace id.

`python -m tests.bench.load.pace RATE SECONDS`: events for the stack that the environment's `HEADRACE_` variables name, from a
process of its own, so that whoever measures does not hold it up.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from confluent_kafka import Producer

from contracts.servers.producer_config import PRODUCER_CONFIG
from contracts.servers.registry import Registry
from contracts.settings import Settings, read_settings
from tests.bench.load.changes import renewed
from tests.bench.load.records import ENRICHED, RAW, Record, enriched_records, raw_records
from tests.bench.load.started import started

_DIFFERENT = 50_000
"""Different records; the load repeats them."""

_ALONE = 1_000
"""Records a second up to which each one travels alone. Above, a request for each would be most of the broker's work, and they
wait for others as long as they do in every publisher of ours."""

_UNDER_WAY = 5
"""Requests: after a pause of the broker's, records travel together, where a thousand requests of one record each would keep it
busy for a second. Idempotence would limit them, too, but librdkafka's thread then takes a core while it waits for the broker."""


def start(
    topic: str, rate: int, seconds: float, env: Mapping[str, str], *, renewed_at: float = math.inf
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """The load as a process; `env`: where the stack is. From `renewed_at` on its records have the newest schema (`changes`). Raises as `started`."""
    command = [sys.executable, "-m", "tests.bench.load.pace", str(rate), str(seconds), "--topic", topic]
    command += ["--renewed-at", str(renewed_at)]
    return started("the load", command, env)


def pace(
    settings: Settings,
    topic: str,
    records: Sequence[Record],
    rate: int,
    seconds: float,
    renewed_at: float = math.inf,
) -> None:
    """Send `rate` records a second for so many seconds, and wait until the broker has them all."""
    config = {name: PRODUCER_CONFIG[name] for name in ("partitioner", "linger.ms")}
    config["max.in.flight.requests.per.connection"] = _UNDER_WAY
    if rate <= _ALONE:
        config["linger.ms"] = 0
    producer = Producer(settings.kafka.client_config() | {"acks": PRODUCER_CONFIG["acks"]} | config)
    renewed_from = rate * renewed_at
    newest: int | None = None
    began = time.perf_counter()
    for number, (key, value, headers) in enumerate(itertools.islice(itertools.cycle(records), int(rate * seconds))):
        due = began + number / rate
        if newest is None and number >= renewed_from:
            newest = _newest_id(settings, topic)
        while (left := due - time.perf_counter()) > 0:
            time.sleep(min(left, 0.001))
        if newest is not None:
            value = renewed(value, newest)
        producer.produce(topic, key=key, value=value, headers=[*headers, ("traceparent", stamp(number))])
        producer.poll(0)
    if producer.flush(30):
        raise TimeoutError(f"the broker did not take all records of {topic} in 30 s")


def _newest_id(settings: Settings, topic: str) -> int:
    with Registry(settings.registry) as registry:
        # Not by the catalog, which takes long to read: the load waits.
        return registry.latest(f"{topic}-value").id


def stamp(number: int) -> bytes:
    """A W3C traceparent that says when (nanoseconds since 1970) and as which record it was sent, from 0 on."""
    return f"00-{time.time_ns():032x}-{number + 1:016x}-01".encode()


def read_stamp(traceparent: bytes) -> tuple[int, int]:
    """When and as which a stamped record was sent."""
    return int(traceparent[3:35], 16), int(traceparent[36:52], 16) - 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rate", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--topic", choices=(RAW, ENRICHED), default=RAW)
    parser.add_argument("--renewed-at", type=float, default=math.inf)
    arguments = parser.parse_args()
    found = read_settings(Settings)
    records = (raw_records if arguments.topic == RAW else enriched_records)(found, _DIFFERENT)
    # What a collection takes would be a hiccup in the load.
    gc.disable()
    pace(found, arguments.topic, records, arguments.rate, arguments.seconds, arguments.renewed_at)
