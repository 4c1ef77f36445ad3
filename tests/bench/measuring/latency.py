"""`Latency`: the delays of one evenly paced load, from a raw record's sending until a polling consumer has what came of it, and how it is told."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import Consumer

from contracts import topics
from deploy.errors import ProcessFailed
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.load import changes, pace
from tests.bench.load.records import RAW
from tests.bench.measuring.delays import COLUMNS, Delays, as_text, undisturbed
from tests.bench.measuring.meter import SELDOM_SECONDS, Machine, Meter, Usage
from tests.bench.measuring.plot import delays_svg
from tests.bench.measuring.results import save_samples, save_text

FIRST = 1000
"""Events that are there when the program starts; the load begins when they have come out."""
ALERTS = topics.ALERTS_RAISED.name

_START_SECONDS = 120.0
_SILENT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Latency:
    """One mode of `live`, or a peer, by its name, at one rate (records a second).

    `interval_seconds` is the time between two ends of intervals; None where none are looked for: of a peer, in a mode without intervals, and while
    things change (`changing`), for each changeover begins a new interval.
    """

    name: str
    rate: int
    seconds: float
    interval_seconds: float | None
    changing: bool
    sent: int
    usage: dict[str, Usage]
    machine: Machine
    enriched: Delays
    alerts: Delays

    @property
    def lost(self) -> int:
        """Records that never came out."""
        return self.sent - self.enriched.different

    @property
    def repeated(self) -> int:
        """Records that came out again."""
        return len(self.enriched.samples) - self.enriched.different

    def figures(self) -> dict[str, float]:
        """Of raw → enriched: percentiles in ms, and the pause in the median where there are intervals' ends."""
        found = self.enriched.figures()
        if self.interval_seconds is not None and (
            pauses := self.enriched.pauses_ms(self.seconds, self.interval_seconds)
        ):
            found["interval's end, median"] = statistics.median(pauses)
        return found

    def kept(self) -> dict[str, Any]:
        """What it is and its figures, as they are saved."""
        return {
            "name": self.name,
            "rate": self.rate,
            "seconds": self.seconds,
            "interval_seconds": self.interval_seconds,
            "changes": self.changing,
            "figures": self.figures(),
        }


def wait_for_first(consumer: Consumer, process: Process) -> None:
    """Wait until the events of before have come out. Raises ProcessFailed, TimeoutError."""
    left, deadline = FIRST, time.monotonic() + _START_SECONDS
    while left:
        process.check_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{process.name} enriched nothing in {_START_SECONDS:.0f} s; see {process.log}")
        message = consumer.poll(0.5)
        left -= message is not None and message.error() is None and message.topic() != ALERTS


def measure(
    name: str,
    rate: int,
    seconds: float,
    interval_seconds: float | None,
    consumer: Consumer,
    processes: Sequence[Process],
    stack: LocalStack,
    env: Mapping[str, str],
    *,
    changing: bool = False,
) -> Latency:
    """Send `rate` events a second, and note when each one's enriched record and alert come; the first of `processes` is who enriches. If `changing`, its
    dimensions and schemas get new versions meanwhile.

    Raises ProcessFailed, also if the load or the changes failed.
    """
    sent = int(rate * seconds)
    enriched, alerts = Delays(), Delays()
    pids = {each.name: each.pid for each in (*processes, stack.kafka.process)}
    with (
        undisturbed(),
        Meter(pids, every_seconds=SELDOM_SECONDS) as meter,
        changes.start(seconds, env) if changing else nullcontext(),
        pace.start(RAW, rate, seconds, env, renewed_at=changes.renewed_at(seconds) if changing else math.inf) as load,
    ):
        heard_at = time.monotonic()
        # Whatever comes twice may come after the last one.
        while load.poll() is None or (len(enriched.samples) < sent and time.monotonic() < heard_at + _SILENT_SECONDS):
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            (alerts if message.topic() == ALERTS else enriched).add(message, time.time_ns())
            heard_at = time.monotonic()
    if not enriched.samples:
        raise ProcessFailed(f"no record came out; see {processes[0].log}")
    return Latency(name, rate, seconds, interval_seconds, changing, sent, meter.usage, meter.machine, enriched, alerts)


def report_one(each: Latency, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the figures of one, write its samples to files, and return what is to be kept of it."""
    kept = each.kept()
    alerts = each.alerts.figures() if each.alerts.samples else {}
    cpu = ", ".join(f"{name} {usage.cpu_seconds / each.seconds:.2f}" for name, usage in each.usage.items())
    rss = ", ".join(f"{name} {usage.peak_rss_mib:.0f}" for name, usage in each.usage.items())
    of = f"{each.name} at {each.rate:,} events/s"
    say(f"{of}, raw → enriched in ms: {as_text(kept['figures'])}; lost {each.lost}, repeated {each.repeated}")
    if alerts:
        say(f"{of}, raw → alert in ms: {as_text(alerts)} ({each.alerts.different:,} alerts)")
    machine = each.machine
    say(
        f"  cores busy: {cpu}; of {machine.cores} idle: {machine.idle:.2f}, stolen: {machine.stolen:.2f}; peak RSS in MiB: {rss}"
    )
    for what, delays in (("", each.enriched), ("-alerts", each.alerts)):
        if delays.samples:
            save_samples(f"latency{what}-{each.name}-{each.rate}", COLUMNS, delays.samples, say)
    usage = {name: asdict(used) for name, used in each.usage.items()}
    return kept | {
        "alerts": alerts,
        "lost": each.lost,
        "repeated": each.repeated,
        "usage": usage,
        "machine": asdict(machine),
    }


def save_plots(latencies: Sequence[Latency], name: str, say: Callable[[str], None]) -> None:
    """Draw what was measured at the same rate over time, to a file."""
    for rate in sorted({each.rate for each in latencies}):
        lines = {each.name: each.enriched.worst_ms(each.seconds) for each in latencies if each.rate == rate}
        save_text(f"{name}-{rate}", "svg", delays_svg(f"raw → enriched at {rate:,} events/s", lines), say)
