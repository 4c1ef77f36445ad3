"""`headrace bench alerting`: throughput and delay of the alerting service.

A local stack of its own; ten threshold rules (alerting.yaml), two of them with a CEL filter. First a backlog of enriched
real departures: records handled per second after the first sight of any, by the service's own counter. Then evenly paced
load: the delay of each alert, once in the service (from the moment that the record was sent to the moment that its alert
was handed to the producer, by the alert's timestamp, whole milliseconds) and once as a polling consumer of the alerts sees
it. The moment of sending travels in the trace id, which the alert takes over.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import httpx
from confluent_kafka import Consumer, Producer, TopicPartition

from contracts import topics
from contracts.catalog import load_catalog
from contracts.codec import Codec
from contracts.registry import Registry
from contracts.settings import KafkaSettings, RegistrySettings, Settings
from deploy.errors import ProcessFailed
from deploy.local.process import Process
from deploy.local.stack import LocalStack
from tests.bench.backlog import Record, constant_headers, publish
from tests.bench.meter import Meter, Usage
from tests.bench.results import as_line, conditions, save
from tests.system.oracle import enriched_flights

RULES = Path(__file__).with_suffix(".yaml")
TOPIC = topics.FLIGHTS_DEPARTED_ENRICHED.name

_FLIGHTS = 100_000
"""Different records; a backlog repeats them."""
_POLL_SECONDS = 0.1
_LIMIT_SECONDS = 150
_WARM_UP_SECONDS = 5.0
_ALERTS_SECONDS = 5.0
"""How long after the load alerts are still waited for."""


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
    """Milliseconds of each alert's delay; `rate` is records per second, `usage` the service's."""

    rate: int
    seconds: float
    in_service: list[float]
    polling: list[float]
    usage: dict[str, Usage]


def run(events: int, rate: int, seconds: float, say: Callable[[str], None]) -> tuple[Throughput, Delay]:
    """Measure both on a new stack."""
    with TemporaryDirectory(prefix="headrace-bench-") as folder, LocalStack(Path(folder), say=say) as stack:
        stack.bootstrap()
        env = stack.settings_env() | {"HEADRACE_RULES_FILE": str(RULES)}
        settings = Settings(
            kafka=KafkaSettings(bootstrap_servers=env["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"]),
            registry=RegistrySettings.model_validate({"url": env["HEADRACE_REGISTRY__URL"]}),
        )
        records = enriched_departures(settings)
        say(f"filling {TOPIC} with {events:,} enriched departures")
        publish(settings, TOPIC, records, events)
        service = Process("alerting", [sys.executable, "-m", "services.alerting"], directory=stack.directory, env=env)
        service.start()
        try:
            throughput = _throughput(events, stack, service, say)
            say(f"{rate:,} events/s, evenly paced, for {seconds:.0f} s")
            delay = _delay(settings, records, rate, seconds, service)
        finally:
            service.stop(grace_seconds=30)
    return throughput, delay


def report(throughput: Throughput, delay: Delay, say: Callable[[str], None]) -> None:
    """Print the figures, and write them with their raw samples to a file."""
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
    for name, values in (("in the service", delay.in_service), ("as a polling consumer sees it", delay.polling)):
        ordered = sorted(values)
        shares = {
            f"p{share:g}": ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))]
            for share in (50, 90, 99, 99.9)
        }
        say(
            f"record → alert {name} at {delay.rate:,} events/s, ms: "
            + ", ".join(f"{share} {value:.1f}" for share, value in shares.items())
            + f", max {ordered[-1]:.1f} ({len(ordered):,} alerts)"
        )
    say(f"  peak RSS in MiB: alerting {delay.usage['alerting'].peak_rss_mib:.0f}")
    save("alerting", {"conditions": found, "throughput": asdict(throughput), "delay": asdict(delay)}, say)


def enriched_departures(settings: Settings) -> list[Record]:
    """Key, value and headers of enriched departures, as `live` writes them."""
    schema = load_catalog().schema(TOPIC)
    with Registry(settings.registry) as registry:
        schema_id = registry.latest(f"{TOPIC}-value").id
    codec = Codec({schema_id: schema}.__getitem__)
    versions = {"dimension_versions": {"airlines": 0, "airports": 0, "planes": 0}}
    constant = constant_headers(TOPIC, "/spark/live")
    found: list[Record] = []
    for number, fields in enumerate(itertools.islice(enriched_flights().values(), _FLIGHTS)):
        coordinate = f"{topics.FLIGHTS_DEPARTED.name}/{number % 4}/{number}".encode()
        headers = [("ce_id", coordinate), ("ce_time", fields["departed_at"].isoformat().encode()), *constant]
        found.append((fields["flight_id"].encode(), codec.encode(schema_id, fields | versions), list(headers)))
    return found


def _throughput(events: int, stack: LocalStack, service: Process, say: Callable[[str], None]) -> Throughput:
    began = time.monotonic()
    samples = [(0.0, 0.0)]
    counted = re.compile(rf'^headrace_alerting_records_total{{topic="{re.escape(TOPIC)}"}} (\S+)$', re.MULTILINE)
    raised = re.compile(r'^headrace_alerting_alerts_total{rule="(\w+)"} (\S+)$', re.MULTILINE)
    text = ""
    pids = {"alerting": service.pid, "broker": stack.kafka.process.pid}
    with Meter({each: pid for each, pid in pids.items() if pid is not None}) as meter, httpx.Client() as client:
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


def _port(service: Process) -> int | None:
    for line in service.log.read_text(encoding="utf-8").splitlines():
        if '"serving"' in line:
            port: int = json.loads(line)["port"]
            return port
    return None


def _delay(settings: Settings, records: list[Record], rate: int, seconds: float, service: Process) -> Delay:
    """Load in one thread, alerts in this one."""
    in_service: list[float] = []
    polling: list[float] = []
    consumer = Consumer(
        {
            **settings.kafka.client_config(),
            "group.id": f"bench-{uuid4()}",
            "fetch.wait.max.ms": 100,
            "fetch.queue.backoff.ms": 1,
        }
    )
    partition = TopicPartition(topics.ALERTS_RAISED.name, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=10)
    consumer.assign([TopicPartition(partition.topic, 0, end)])
    load = threading.Thread(target=_load, args=(settings, records, rate, seconds), daemon=True)
    begin = time.time() + _WARM_UP_SECONDS
    assert service.pid is not None
    with Meter({"alerting": service.pid}) as meter:
        load.start()
        until = time.time() + seconds + _ALERTS_SECONDS
        while time.time() < until:
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now = time.time()
            headers = dict(message.headers() or [])
            sent = int(bytes(headers.get("traceparent", b""))[3:35] or b"0", 16) / 1e9  # type: ignore[arg-type]
            if sent >= begin:
                polling.append((now - sent) * 1000)
                in_service.append(message.timestamp()[1] - sent * 1000)
    load.join()
    consumer.close()
    if not polling:
        raise ProcessFailed("no alert came")
    return Delay(rate, seconds, in_service, polling, meter.usage)


def _load(settings: Settings, records: list[Record], rate: int, seconds: float) -> None:
    producer = Producer(settings.kafka.client_config() | {"linger.ms": 1, "partitioner": "murmur2_random"})
    began = time.perf_counter()
    source = itertools.cycle(records)
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (left := due - time.perf_counter()) > 0:
            time.sleep(min(left, 0.001))
        key, value, headers = next(source)
        trace = f"00-{time.time_ns():032x}-00f067aa0ba902b7-01".encode()
        producer.produce(TOPIC, key=key, value=value, headers=[*headers, ("traceparent", trace)])
        producer.poll(0)
    producer.flush(30)
