"""`headrace bench latency`: from a raw record's sending until a polling consumer has its enriched record, or its alert.

In each mode of `live`, on a stack of its own, with the alerting service and the ten rules of `bench alerting`. Evenly paced events
come from another process (`tests.bench.load.pace`), each with the moment of its sending and its number in the trace id, which the
enriched record and the alert take over. The first 20 s are left out. In real-time mode the worst delay between two moments an
interval apart is the pause at the interval's end, for there is one end in each.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from contracts import topics
from deploy.errors import ProcessFailed
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from spark.runtime.mode import Mode
from tests.bench.alerting import alerting_process
from tests.bench.load import changes, pace
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED, RAW
from tests.bench.measuring.delays import COLUMNS, Delays, as_text, undisturbed
from tests.bench.measuring.listen import listen
from tests.bench.measuring.meter import SELDOM_SECONDS, Meter, Usage
from tests.bench.measuring.plot import delays_svg
from tests.bench.measuring.results import as_line, conditions, save, save_samples, save_text
from tests.bench.measuring.trees import compared, program

MODES: tuple[Mode, ...] = (Mode.EXACTLY_ONCE, Mode.REAL_TIME)
RATES = (1_000, 10_000)

FIRST = 1000
"""Events that are there when `live` starts; the load begins when they have come out."""
_ALERTS = topics.ALERTS_RAISED.name
_START_SECONDS = 120.0
_SILENT_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Latency:
    """One mode of `live`, or a peer, at one rate."""

    mode: str
    rate: int
    seconds: float
    interval_seconds: float
    sent: int
    usage: dict[str, Usage]
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
        """Of raw → enriched: percentiles in ms, and the pause in the median where there are intervals."""
        found = self.enriched.figures()
        if self.mode == Mode.REAL_TIME and (pauses := self.enriched.pauses_ms(self.seconds, self.interval_seconds)):
            found["interval's end, median"] = statistics.median(pauses)
        return found


def run(
    modes: Sequence[Mode],
    rates: Sequence[int],
    seconds: float,
    interval_seconds: float,
    say: Callable[[str], None],
    tree: Path = ROOT,
    *,
    changing: bool = False,
) -> list[Latency]:
    """Measure each mode of a tree's programs at each rate, one after the other; each mode on a new stack."""
    found = []
    for mode in modes:
        with filled_stack(FIRST, say) as (stack, env, settings):
            ours = env | {
                "HEADRACE_LIVE__MODE": mode,
                "HEADRACE_LIVE__INTERVAL_SECONDS": str(interval_seconds),
            }
            command, own = program(tree, deployables().named("live").command)
            live = Process("live", command, directory=stack.directory, env=ours | own)
            alerting = alerting_process(stack, env, tree=tree)
            live.start()
            alerting.start()
            try:
                consumer = listen(settings, ENRICHED, _ALERTS)
                wait_for_first(consumer, live)
                for rate in rates:
                    say(f"{mode}: {rate:,} events/s for {seconds:.0f} s")
                    found.append(
                        measure(
                            mode,
                            rate,
                            seconds,
                            interval_seconds,
                            consumer,
                            [live, alerting],
                            stack,
                            ours,
                            changing=changing,
                        )
                    )
                consumer.close()
            finally:
                live.stop(grace_seconds=60)
                alerting.stop(grace_seconds=30)
    return found


def run_beside(
    commit: str,
    modes: Sequence[Mode],
    rates: Sequence[int],
    seconds: float,
    interval_seconds: float,
    rounds: int,
    say: Callable[[str], None],
    *,
    changing: bool = False,
) -> dict[str, list[Latency]]:
    """What was measured of this tree and of a commit's, in turn, by name. Raises NoSuchCommit."""

    def measured(tree: Path) -> list[Latency]:
        return run(modes, rates, seconds, interval_seconds, say, tree, changing=changing)

    return compared(commit, rounds, measured, medians, say)


def medians(found: Mapping[str, Sequence[Latency]]) -> Iterator[str]:
    """A line for each mode, rate and tree: the medians of its runs, and the range of their p50, which tells how much runs of one tree differ."""
    for mode, rate in dict.fromkeys((each.mode, each.rate) for runs in found.values() for each in runs):
        for name, runs in found.items():
            own = [each for each in runs if (each.mode, each.rate) == (mode, rate)]
            figures = [each.figures() for each in own]
            middle = {what: statistics.median(run[what] for run in figures) for what in figures[0]}
            p50s = [run["p50"] for run in figures]
            cores = statistics.median(each.usage["live"].cpu_seconds / each.seconds for each in own)
            rss = max(each.usage["live"].peak_rss_mib for each in own)
            yield (
                f"{name}, {mode} at {rate:,} events/s, raw → enriched in ms, median of {len(own)}: {as_text(middle)}; "
                f"p50 from {min(p50s):.1f} to {max(p50s):.1f}; live: {cores:.2f} cores, largest peak RSS {rss:.0f} MiB; "
                f"lost {sum(each.lost for each in own)}, repeated {sum(each.repeated for each in own)}"
            )


def report_beside(found: Mapping[str, Sequence[Latency]], say: Callable[[str], None]) -> None:
    """Print the medians, and write each run's figures to a file."""
    kept = conditions("pyspark", "confluent-kafka")
    say(as_line(kept))
    for line in medians(found):
        say(line)
    runs = [
        {"of": name, "mode": each.mode, "rate": each.rate, "figures": each.figures(), "seconds": each.seconds}
        for name, measured in found.items()
        for each in measured
    ]
    save("latency-beside", {"conditions": kept, "results": runs}, say)


def report(latencies: Sequence[Latency], say: Callable[[str], None]) -> None:
    """Print the figures, and write them and every sample to files."""
    found = conditions("pyspark", "confluent-kafka")
    say(as_line(found))
    results = [report_one(each, say) for each in latencies]
    save_plots(latencies, "latency", say)
    save("latency", {"conditions": found, "results": results}, say)


def save_plots(latencies: Sequence[Latency], name: str, say: Callable[[str], None]) -> None:
    """Draw what was measured at the same rate over time, to a file."""
    for rate in sorted({each.rate for each in latencies}):
        lines = {each.mode: each.enriched.worst_ms(each.seconds) for each in latencies if each.rate == rate}
        save_text(f"{name}-{rate}", "svg", delays_svg(f"raw → enriched at {rate:,} events/s", lines), say)


def report_one(each: Latency, say: Callable[[str], None]) -> dict[str, Any]:
    """Print the figures of one, write its samples to files, and return what is to be kept of it."""
    figures = each.figures()
    alerts = each.alerts.figures() if each.alerts.samples else {}
    cpu = ", ".join(f"{name} {usage.cpu_seconds / each.seconds:.2f}" for name, usage in each.usage.items())
    rss = ", ".join(f"{name} {usage.peak_rss_mib:.0f}" for name, usage in each.usage.items())
    of = f"{each.mode} at {each.rate:,} events/s"
    say(f"{of}, raw → enriched in ms: {as_text(figures)}; lost {each.lost}, repeated {each.repeated}")
    if alerts:
        say(f"{of}, raw → alert in ms: {as_text(alerts)} ({each.alerts.different:,} alerts)")
    say(f"  cores busy: {cpu}; peak RSS in MiB: {rss}")
    for what, delays in (("", each.enriched), ("-alerts", each.alerts)):
        if delays.samples:
            save_samples(f"latency{what}-{each.mode}-{each.rate}", COLUMNS, delays.samples, say)
    kept = {"mode": each.mode, "rate": each.rate, "seconds": each.seconds, "figures": figures, "alerts": alerts}
    usage = {name: asdict(used) for name, used in each.usage.items()}
    return kept | {"lost": each.lost, "repeated": each.repeated, "usage": usage}


def wait_for_first(consumer: Consumer, live: Process) -> None:
    """Wait until the events of before have come out."""
    left, deadline = FIRST, time.monotonic() + _START_SECONDS
    while left:
        live.check_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"{live.name} enriched nothing in {_START_SECONDS:.0f} s; see {live.log}")
        message = consumer.poll(0.5)
        left -= message is not None and message.error() is None and message.topic() != _ALERTS


def measure(
    mode: str,
    rate: int,
    seconds: float,
    interval_seconds: float,
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
            (alerts if message.topic() == _ALERTS else enriched).add(message, time.time_ns())
            heard_at = time.monotonic()
    if not enriched.samples:
        raise ProcessFailed(f"no record came out; see {processes[0].log}")
    return Latency(mode, rate, seconds, interval_seconds, sent, meter.usage, enriched, alerts)
