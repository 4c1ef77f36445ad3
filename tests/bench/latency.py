"""`headrace bench latency`: from a raw record's sending until a polling consumer has its enriched record, in each mode of `live`.

A stack of its own; evenly paced departures from another process (`tests.bench.pace`), each with the moment of its sending and
its number in the trace id, which the enriched record takes over. The first 20 s are left out. In real-time mode the worst
delay between two moments an interval apart is the pause at the interval's end, for there is one end in each.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition

from contracts import topics
from contracts.settings import Settings
from deploy.errors import ProcessFailed
from deploy.local.deployable import ROOT
from deploy.local.process import Process
from deploy.local.stack import LocalStack
from spark.mode import Mode
from tests.bench.filled import filled_stack
from tests.bench.meter import Meter, Usage
from tests.bench.pace import read_stamp
from tests.bench.plot import delays_svg
from tests.bench.results import as_line, conditions, save, save_samples, save_text

TARGET = topics.FLIGHTS_DEPARTED_ENRICHED.name
MODES: tuple[Mode, ...] = (Mode.EXACTLY_ONCE, Mode.REAL_TIME)
RATES = (1_000, 10_000)
SHARES = (50.0, 90.0, 99.0, 99.9)

_WARM_UP_SECONDS = 20.0
FIRST = 1000
"""Departures that are there when `live` starts; the load begins when they have come out."""
_START_SECONDS = 120.0
_SILENT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Latency:
    """One mode of `live`, or a peer, at one rate. `samples` are (number, sent at ns since 1970, delay in ns), in the order of arrival."""

    mode: str
    rate: int
    seconds: float
    interval_seconds: float
    sent: int
    usage: dict[str, Usage]
    samples: list[tuple[int, int, int]]

    @property
    def lost(self) -> int:
        """Records that never came out."""
        return self.sent - len({number for number, _, _ in self.samples})

    @property
    def repeated(self) -> int:
        """Records that came out again."""
        return len(self.samples) - len({number for number, _, _ in self.samples})

    def delays_ms(self) -> list[float]:
        """After the warm-up, least first."""
        return sorted(delay / 1e6 for _, sent_at, delay in self.samples if self._second(sent_at) >= _WARM_UP_SECONDS)

    def pauses_ms(self) -> list[float]:
        """The worst delay of each whole interval after the warm-up."""
        worst: dict[int, float] = {}
        for _, sent_at, delay in self.samples:
            interval = int((self._second(sent_at) - _WARM_UP_SECONDS) // self.interval_seconds)
            worst[interval] = max(worst.get(interval, 0.0), delay / 1e6)
        whole = int((self.seconds - _WARM_UP_SECONDS) // self.interval_seconds)
        return [worst[interval] for interval in range(whole) if interval in worst]

    def worst_ms(self) -> list[float]:
        """The worst delay of each second; 0 where nothing was sent."""
        worst = [0.0] * math.ceil(self.seconds + 1)
        for _, sent_at, delay in self.samples:
            second = min(int(self._second(sent_at)), len(worst) - 1)
            worst[second] = max(worst[second], delay / 1e6)
        return worst

    def figures(self) -> dict[str, float]:
        """Percentiles in ms, and the pause in the median where there are intervals."""
        ordered = self.delays_ms()
        found = {f"p{share:g}": ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] for share in SHARES}
        found["max"] = ordered[-1]
        if self.mode == Mode.REAL_TIME and (pauses := self.pauses_ms()):
            found["interval's end, median"] = statistics.median(pauses)
        return found

    def _second(self, sent_at: int) -> float:
        return (sent_at - min(self.samples[0][1], self.samples[-1][1])) / 1e9


def run(
    modes: Sequence[Mode], rates: Sequence[int], seconds: float, interval_seconds: float, say: Callable[[str], None]
) -> list[Latency]:
    """Measure each mode at each rate, one after the other on one stack."""
    found = []
    for mode in modes:
        with filled_stack(FIRST, say) as (stack, env, settings):
            ours = env | {
                "HEADRACE_LIVE__MODE": mode,
                "HEADRACE_LIVE__INTERVAL_SECONDS": str(interval_seconds),
                "PYTHONPATH": str(ROOT),
            }
            command = [sys.executable, "-m", "spark", "live"]
            live = Process("live", command, directory=stack.directory, env=ours)
            live.start()
            try:
                consumer = listen(settings, TARGET)
                wait_for_first(consumer, live)
                for rate in rates:
                    say(f"{mode}: {rate:,} events/s for {seconds:.0f} s")
                    found.append(measure(mode, rate, seconds, interval_seconds, consumer, live, stack, ours))
                consumer.close()
            finally:
                live.stop(grace_seconds=60)
    return found


def report(latencies: Sequence[Latency], say: Callable[[str], None]) -> None:
    """Print the figures, and write them and every sample to files."""
    found = conditions("pyspark", "confluent-kafka")
    say(as_line(found))
    results = [report_one(each, say) for each in latencies]
    for rate in sorted({each.rate for each in latencies}):
        lines = {each.mode: each.worst_ms() for each in latencies if each.rate == rate}
        save_text(f"latency-{rate}", "svg", delays_svg(f"raw → enriched at {rate:,} events/s", lines), say)
    save("latency", {"conditions": found, "results": results}, say)


def report_one(each: Latency, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the figures of one, write its samples to a file, and return what is to be kept of it."""
    figures = each.figures()
    cpu = ", ".join(f"{name} {usage.cpu_seconds / each.seconds:.2f}" for name, usage in each.usage.items())
    rss = ", ".join(f"{name} {usage.peak_rss_mib:.0f}" for name, usage in each.usage.items())
    say(
        f"{each.mode} at {each.rate:,} events/s, raw → enriched in ms: "
        + ", ".join(f"{name} {value:.1f}" for name, value in figures.items())
        + f"; lost {each.lost}, repeated {each.repeated}"
    )
    say(f"  cores busy: {cpu}; peak RSS in MiB: {rss}")
    save_samples(f"latency-{each.mode}-{each.rate}", ("number", "sent_at_ns", "delay_ns"), each.samples, say)
    kept = {"mode": each.mode, "rate": each.rate, "seconds": each.seconds, "figures": figures}
    usage = {name: asdict(used) for name, used in each.usage.items()}
    return kept | {"lost": each.lost, "repeated": each.repeated, "usage": usage}


def listen(settings: Settings, topic: str) -> Consumer:
    """A polling consumer of all committed records of a topic, from the first one on."""
    consumer = Consumer(
        settings.kafka.client_config()
        | {
            "group.id": f"bench-{uuid4()}",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    return consumer


def wait_for_first(consumer: Consumer, live: Process) -> None:
    """Wait until the departures of before have come out."""
    left, deadline = FIRST, time.monotonic() + _START_SECONDS
    while left:
        live.check_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{live.name} enriched nothing in {_START_SECONDS:.0f} s; see {live.log}")
        message = consumer.poll(0.5)
        left -= message is not None and message.error() is None


def measure(
    mode: str,
    rate: int,
    seconds: float,
    interval_seconds: float,
    consumer: Consumer,
    live: Process,
    stack: LocalStack,
    env: Mapping[str, str],
) -> Latency:
    """Send `rate` departures a second, and note when each one's enriched record comes; `live` is who enriches. Raises ProcessFailed."""
    sent = int(rate * seconds)
    samples: list[tuple[int, int, int]] = []
    pids = {live.name: live.pid, "broker": stack.kafka.process.pid}
    command = [sys.executable, "-m", "tests.bench.pace", str(rate), str(seconds)]
    with (
        Meter({name: pid for name, pid in pids.items() if pid is not None}) as meter,
        subprocess.Popen(command, env={**os.environ, **env}, cwd=ROOT) as load,
    ):
        heard_at = time.monotonic()
        # Whatever comes twice may come after the last one.
        while load.poll() is None or (len(samples) < sent and time.monotonic() < heard_at + _SILENT_SECONDS):
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            seen_at = time.time_ns()
            heard_at = time.monotonic()
            stamp = dict(message.headers() or []).get("traceparent")
            if isinstance(stamp, bytes):
                sent_at, number = read_stamp(stamp)
                samples.append((number, sent_at, seen_at - sent_at))
    if not samples:
        raise ProcessFailed(f"no record came out; see {live.log}")
    return Latency(mode, rate, seconds, interval_seconds, sent, meter.usage, samples)
