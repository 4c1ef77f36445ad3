"""`headrace bench alerting`: throughput and delay of the alerting service.

A local stack of its own; ten threshold rules (alerting.yaml), two of them with a CEL filter. First a backlog of enriched
real events: records handled per second after the first sight of any, by the service's own counter. Then evenly paced
load: the delay of each alert, once in the service (from the moment that the broker has the record, which the topic's timestamps
tell here, to the moment that its alert is handed to the producer, by the alert's timestamp; both are whole milliseconds) and
once from the record's sending until a polling consumer has the alert. The moment of sending travels in the trace id, which the
alert takes over.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from contracts import topics
from contracts.servers.provision import set_config
from contracts.settings import Settings
from deploy.errors import ProcessFailed
from deploy.local.processes.deployable import ROOT
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.load import pace
from tests.bench.load.backlog import publish
from tests.bench.load.filled import bare_stack
from tests.bench.load.records import ENRICHED, enriched_records
from tests.bench.measuring.delays import COLUMNS, Delays, as_text, stamp_of, undisturbed
from tests.bench.measuring.listen import listen
from tests.bench.measuring.meter import SELDOM_SECONDS, Meter, Usage
from tests.bench.measuring.results import as_line, conditions, save, save_samples
from tests.bench.measuring.trees import compared, program

RULES = Path(__file__).with_suffix(".yaml")

_DIFFERENT = 100_000
"""Different records; a backlog repeats them."""
_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 150
_ALERTS_SECONDS = 5.0
"""How long after the load alerts are still waited for."""
_NS_IN_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Throughput:
    """`samples` are (seconds since the service was started, records handled); `alerts` counts by rule."""

    events: int
    usage: dict[str, Usage]
    samples: list[tuple[float, float]]
    alerts: dict[str, int]

    @property
    def sustained(self) -> float:
        """Records per second after the first sight of any."""
        first_at, first = next(sample for sample in self.samples if sample[1])
        last_at, last = self.samples[-1]
        return (last - first) / (last_at - first_at) if last_at > first_at else last / last_at


@dataclass(frozen=True, slots=True)
class Delay:
    """Of each alert, in the service and as a polling consumer sees it; `rate` is records per second, `usage` by process."""

    rate: int
    seconds: float
    in_service: Delays
    polling: Delays
    usage: dict[str, Usage]


Measured = tuple[Throughput, Delay]


def run(events: int, rate: int, seconds: float, say: Callable[[str], None], tree: Path = ROOT) -> Measured:
    """Measure both of a tree's service on a new stack."""
    with bare_stack(say) as (stack, env, settings):
        say(f"filling {ENRICHED} with {events:,} enriched events")
        publish(settings, ENRICHED, enriched_records(settings, _DIFFERENT), events)
        service = alerting_process(stack, env, tree=tree)
        service.start()
        try:
            throughput = _throughput(events, stack, service, say)
            say(f"{rate:,} events/s, evenly paced, for {seconds:.0f} s")
            delay = _delay(rate, seconds, settings, stack, service, env)
        finally:
            service.stop(grace_seconds=30)
    return throughput, delay


def run_beside(
    commit: str, events: int, rate: int, seconds: float, rounds: int, say: Callable[[str], None]
) -> dict[str, list[Measured]]:
    """What was measured of this tree and of a commit's, in turn, by name. Raises NoSuchCommit."""
    return compared(commit, rounds, lambda tree: [run(events, rate, seconds, say, tree)], medians, say)


def medians(found: Mapping[str, Sequence[Measured]]) -> Iterator[str]:
    """A line for each tree: the medians of its runs."""
    for name, runs in found.items():
        backlogs, delays = [each for each, _ in runs], [each.polling.figures() for _, each in runs]
        middle = {what: statistics.median(run[what] for run in delays) for what in delays[0]}
        rate = statistics.median(each.sustained for each in backlogs)
        cpu = statistics.median(each.usage["alerting"].cpu_seconds * 1e6 / each.events for each in backlogs)
        rss = max(each.usage["alerting"].peak_rss_mib for run in runs for each in run)
        yield (
            f"{name}, median of {len(runs)}: {rate:,.0f} events/s sustained; CPU-seconds per million {cpu:.1f}; record → alert in ms: "
            f"{as_text(middle)}; largest peak RSS {rss:.0f} MiB"
        )


def report_beside(found: Mapping[str, Sequence[Measured]], say: Callable[[str], None]) -> None:
    """Print the medians, and write each run's figures to a file."""
    kept = conditions("faust-streaming", "aiokafka", "fastavro", "confluent-kafka")
    say(as_line(kept))
    for line in medians(found):
        say(line)
    runs = [
        {"of": name, "sustained": backlog.sustained, "figures": delay.polling.figures()}
        for name, measured in found.items()
        for backlog, delay in measured
    ]
    save("alerting-beside", {"conditions": kept, "results": runs}, say)


def report(throughput: Throughput, delay: Delay, say: Callable[[str], None]) -> None:
    """Print the figures, and write them with their raw samples to files."""
    found = conditions("faust-streaming", "aiokafka", "fastavro", "confluent-kafka")
    say(as_line(found))
    alerts = sum(throughput.alerts.values())
    cpu = {name: usage.cpu_seconds * 1e6 / throughput.events for name, usage in throughput.usage.items()}
    say(
        f"backlog: {throughput.sustained:,.0f} events/s sustained ({throughput.events:,} events, {alerts:,} alerts, "
        f"{len(throughput.alerts)} of ten rules)"
    )
    say("  CPU-seconds per million, start included: " + ", ".join(f"{name} {each:.1f}" for name, each in cpu.items()))
    say(f"  peak RSS in MiB: alerting {throughput.usage['alerting'].peak_rss_mib:.0f}")
    figures = {}
    for name, delays in (("in the service", delay.in_service), ("as a polling consumer sees it", delay.polling)):
        figures[name] = delays.figures()
        say(
            f"record → alert {name} at {delay.rate:,} events/s, ms: {as_text(figures[name])} ({delays.different:,} alerts)"
        )
    cores = ", ".join(f"{name} {used.cpu_seconds / delay.seconds:.2f}" for name, used in delay.usage.items())
    say(f"  cores used meanwhile: {cores}; peak RSS in MiB: alerting {delay.usage['alerting'].peak_rss_mib:.0f}")
    save_samples("alerting-delay", COLUMNS, delay.polling.samples, say)
    save_samples("alerting-delay-in-service", COLUMNS, delay.in_service.samples, say)
    kept = {
        "rate": delay.rate,
        "seconds": delay.seconds,
        "figures": figures,
        "usage": {name: asdict(used) for name, used in delay.usage.items()},
    }
    save("alerting", {"conditions": found, "throughput": asdict(throughput), "delay": kept}, say)


def alerting_process(stack: LocalStack, env: Mapping[str, str], rules: Path = RULES, *, tree: Path = ROOT) -> Process:
    """A tree's service, to be started and stopped; with the ten rules unless told otherwise."""
    command, own = program(tree, ["services.alerting"])
    ours = {**env, "HEADRACE_RULES_FILE": str(rules), **own}
    return Process("alerting", command, directory=stack.directory, env=ours)


def _throughput(events: int, stack: LocalStack, service: Process, say: Callable[[str], None]) -> Throughput:
    began = time.monotonic()
    samples = [(0.0, 0.0)]
    counted = re.compile(rf'^headrace_alerting_records_total{{topic="{re.escape(ENRICHED)}"}} (\S+)$', re.MULTILINE)
    raised = re.compile(r'^headrace_alerting_alerts_total{rule="(\w+)"} (\S+)$', re.MULTILINE)
    text = ""
    with Meter(_pids(stack, service)) as meter, httpx.Client() as client:
        while samples[-1][1] < events:
            time.sleep(_POLL_SECONDS)
            service.check_running()
            at = time.monotonic() - began
            if at > _LIMIT_SECONDS:
                raise TimeoutError(f"{samples[-1][1]:,.0f} of {events:,} after {_LIMIT_SECONDS} s; see {service.log}")
            if (port := _port(service)) is not None:
                text = client.get(f"http://127.0.0.1:{port}/metrics").text
                found = counted.search(text)
                if found and float(found[1]) != samples[-1][1]:
                    samples.append((time.monotonic() - began, float(found[1])))
    alerts = Counter({rule: int(float(count)) for rule, count in raised.findall(text)})
    return Throughput(events, meter.usage, samples, dict(alerts))


def _pids(stack: LocalStack, service: Process) -> dict[str, int | None]:
    return {"alerting": service.pid, "broker": stack.kafka.process.pid}


def _port(service: Process) -> int | None:
    for line in service.log.read_text(encoding="utf-8").splitlines():
        if '"serving"' in line:
            port: int = json.loads(line)["port"]
            return port
    return None


def _delay(
    rate: int, seconds: float, settings: Settings, stack: LocalStack, service: Process, env: Mapping[str, str]
) -> Delay:
    """Load in another process, alerts in this one."""
    # Timestamps say when the broker took a record, whatever its producer says.
    set_config(AdminClient({**settings.kafka.client_config()}), {ENRICHED: {"message.timestamp.type": "LogAppendTime"}})
    handed_over, polling = Delays(), Delays()
    alerts, records = (listen(settings, name, only_new=True) for name in (topics.ALERTS_RAISED.name, ENRICHED))
    # It would fetch ahead, beside what is measured.
    records.pause(records.assignment())
    with (
        undisturbed(),
        Meter(_pids(stack, service), every_seconds=SELDOM_SECONDS) as meter,
        pace.start(ENRICHED, rate, seconds, env) as load,
    ):
        until = math.inf
        while time.monotonic() < until:
            message = alerts.poll(0.1)
            if message is not None and message.error() is None:
                polling.add(message, time.time_ns())
                handed_over.add(message, message.timestamp()[1] * _NS_IN_MS)
            if until == math.inf and load.poll() is not None:
                until = time.monotonic() + _ALERTS_SECONDS
    alerts.close()
    if not polling.samples:
        raise ProcessFailed("no alert came")
    records.resume(records.assignment())
    in_service = handed_over.since(_moments(records, int(rate * seconds)))
    records.close()
    return Delay(rate, seconds, in_service, polling, meter.usage)


def _moments(consumer: Consumer, count: int) -> dict[int, int]:
    """When the broker took each of the load's records, in ns since 1970, by number."""
    moments: dict[int, int] = {}
    while len(moments) < count:
        found = consumer.consume(10_000, timeout=_ALERTS_SECONDS)
        if not found:
            raise ProcessFailed(f"{ENRICHED} has {len(moments):,} of the load's {count:,} records")
        for message in found:
            if (stamp := stamp_of(message)) is not None:
                moments[stamp[1]] = message.timestamp()[1] * _NS_IN_MS
    return moments
