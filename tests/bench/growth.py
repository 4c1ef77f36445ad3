"""`headrace bench growth`: what each hop costs against partitions, those of a state, dimension rows, event size, schema versions and rules.

Each point is a stack of its own with a backlog, and a new process that gets through it. A point that the process does not get
through is a result too: it is told with its last words.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import CalledProcessError

import fastavro
import yaml
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts.definitions.catalog import load_catalog
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from contracts.settings import Settings
from deploy.errors import ProcessFailed
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from services.dimensions.landing import PREFIX
from services.nycflights.tables import data_folder
from tests.bench.alerting import alerting_process
from tests.bench.load.backlog import publish
from tests.bench.load.filled import bare_stack, publish_dimensions
from tests.bench.load.records import ENRICHED, RAW, Record, constant_headers, enriched_records, raw_values
from tests.bench.measuring.hop import Hop, measure, measure_process, taken_in
from tests.bench.measuring.plot import growth_svg
from tests.bench.measuring.results import as_line, conditions, save, save_text
from tests.bench.state.workloads.backlog import fill
from tests.bench.state.workloads.windows import WINDOWS

_RECORDS = 100_000
"""Different ones; a backlog repeats them."""
_COPIES = 10
"""Of each departure in a backlog of windows."""

Stacked = tuple[LocalStack, dict[str, str], Settings]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of an axis; without a `hop` where the process did not get through, and `trouble` says how it ended."""

    value: int
    hop: Hop | None
    trouble: str | None = None

    def line(self) -> str:
        """What is printed of it."""
        if self.hop is None:
            return f"{self.value:>10,}  did not get through: {self.trouble}"
        cpu = sum(each.cpu_seconds for each in self.hop.usage.values()) * 1e6 / self.hop.events
        process, usage = next(iter(self.hop.usage.items()))
        return (
            f"{self.value:>10,}  {self.hop.sustained:>9,.0f} events/s sustained, {self.hop.overall:>7,.0f} with the start, "
            f"{cpu:.1f} CPU-seconds per million, peak RSS of {process} {usage.peak_rss_mib:,.0f} MiB"
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows, its values, and how a point is measured."""

    name: str
    what: str
    values: Sequence[int]
    measure: Callable[[int, int, Stacked, Say], Hop]


def run(axes: Sequence[Axis], events: int, say: Say) -> dict[str, list[Point]]:
    """The points of each axis, over `events` records each."""
    found: dict[str, list[Point]] = {}
    for axis in axes:
        found[axis.name] = []
        for value in axis.values:
            say(f"{axis.name}: {value:,}")
            with bare_stack(say) as stacked:
                try:
                    point = Point(value, axis.measure(value, events, stacked, say))
                except (ProcessFailed, TimeoutError, CalledProcessError) as error:
                    point = Point(value, None, str(error))
            say(point.line())
            found[axis.name].append(point)
    return found


def report(found: Mapping[str, Sequence[Point]], say: Say) -> None:
    """Print the figures, write them with their raw samples to a file, and draw each axis."""
    under = conditions("pyspark", "confluent-kafka", "faust-streaming")
    say(as_line(under))
    for name, points in found.items():
        axis = next(each for each in AXES if each.name == name)
        say(f"{name}: {axis.what}")
        for point in points:
            say(point.line())
        rates = [(point.value, point.hop.sustained) for point in points if point.hop is not None]
        save_text(f"growth-{name}", "svg", growth_svg(f"{axis.what}, events/s against {name}", rates), say)
    save(
        "growth",
        {"conditions": under, "axes": {name: list(map(asdict, points)) for name, points in found.items()}},
        say,
    )


def _partitions(value: int, events: int, stacked: Stacked, say: Say) -> Hop:
    _made_anew(stacked[2], [RAW, ENRICHED], value)
    return _enriched(events, stacked, say)


def _made_anew(settings: Settings, names: list[str], partitions: int) -> None:
    """Topics with so many partitions."""
    admin = AdminClient({**settings.kafka.client_config()})
    for future in admin.delete_topics(names, operation_timeout=30).values():
        future.result(30)
    for future in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        future.result(30)


def _state_partitions(value: int, events: int, stacked: Stacked, say: Say) -> Hop:
    """Of the raw topic as many as of the state, and of the windows' topic."""
    stack, env, settings = stacked
    _made_anew(settings, [RAW, WINDOWS.target], value)
    size = fill(settings, WINDOWS.load, events, _COPIES).size
    batches = {"HEADRACE_LIVE__MAX_OFFSETS_PER_TRIGGER": "100000"}
    command = [sys.executable, "-m", "tests.bench.state.partitioned", WINDOWS.pipeline, str(value)]
    process = Process("live", command, directory=stack.directory, env=env | batches)
    return measure_process("raw → windows", process, stack, size, taken_in(settings, group=WINDOWS.pipeline), say)


def _dimension_rows(value: int, events: int, stacked: Stacked, say: Say) -> Hop:
    """Planes: those of the data set first, then others that no flight has."""
    with (data_folder() / "planes.csv").open(encoding="utf-8", newline="") as file:
        known = list(csv.reader(file))
    header, *rows = known
    others = ([f"X{number:06d}", *rows[number % len(rows)][1:]] for number in itertools.count())
    text = io.StringIO()
    csv.writer(text).writerows([header, *itertools.islice(itertools.chain(rows, others), value)])
    return _enriched(events, stacked, say, planes=text.getvalue())


def _event_bytes(value: int, events: int, stacked: Stacked, say: Say) -> Hop:
    """The tail number is as long as it takes, and random, so that no compression makes it short."""
    schema = json.loads(load_catalog().schema(RAW))

    def longer(fields: dict[str, object], size: int) -> dict[str, object]:
        return fields | {"tail_number": secrets.token_hex((value - size) // 2)} if value > size else fields

    return _enriched(events, stacked, say, records=_rewritten(stacked[2], [schema], longer))


def _schema_versions(value: int, events: int, stacked: Stacked, say: Say) -> Hop:
    """Each adds one optional field; the records are of all of them in turn."""
    schema = json.loads(load_catalog().schema(RAW))
    versions = []
    for number in range(value):
        added = [{"name": f"added_{each}", "type": ["null", "string"], "default": None} for each in range(number)]
        versions.append(schema | {"fields": schema["fields"] + added})
    return _enriched(events, stacked, say, records=_rewritten(stacked[2], versions, lambda fields, size: fields))


def _rules(value: int, events: int, stacked: Stacked, say: Say) -> Hop:
    """Thresholds on five fields in turn, few of which a record reaches."""
    stack, env, settings = stacked
    fields = [
        ("departure_delay_minutes", ">=", 900),
        ("distance_miles", ">=", 4_990),
        ("plane_seats", ">=", 450),
        ("destination_altitude_feet", ">=", 7_000),
        ("destination_latitude_degrees", ">=", 61),
    ]
    rules = []
    for number in range(value):
        field, operator, threshold = fields[number % len(fields)]
        rules.append(
            {
                "name": f"rule_{number}",
                "description": "One of many.",
                "topic": ENRICHED,
                "field": field,
                "operator": operator,
                "threshold": threshold + number // len(fields),
                "severity": "info",
                "message": "{flight_id}",
            }
        )
    file = Path(stack.directory) / "rules.yaml"
    file.write_text(yaml.safe_dump({"rules": rules}), encoding="utf-8")
    publish(settings, ENRICHED, enriched_records(settings, _RECORDS), events)
    process = alerting_process(stack, env, file)
    return measure_process("rules", process, stack, events, taken_in(settings, ENRICHED, "alerting"), say)


AXES: tuple[Axis, ...] = (
    Axis("partitions", "raw → enriched", (1, 2, 4, 8), _partitions),
    Axis("state-partitions", "raw → windows", (1, 2, 4, 8), _state_partitions),
    Axis("dimension-rows", "raw → enriched", (16, 1_000, 10_000, 100_000, 1_000_000), _dimension_rows),
    Axis("event-bytes", "raw → enriched", (200, 1_000, 3_000, 10_000), _event_bytes),
    Axis("schema-versions", "raw → enriched", (1, 10, 50), _schema_versions),
    Axis("rules", "enriched → alerts", (1, 10, 100, 1_000), _rules),
)


def _enriched(
    events: int, stacked: Stacked, say: Say, *, planes: str | None = None, records: list[Record] | None = None
) -> Hop:
    stack, env, settings = stacked
    if planes is not None:
        key = f"{PREFIX}planes.csv"
        s3_client(settings.s3).put_object(Bucket=settings.s3.bucket, Key=key, Body=planes.encode())
    large = {"HEADRACE_MAX_FILE_BYTES": str(256 << 20)}
    publish_dimensions(stack, env | large, besides=() if planes is None else ("planes",))
    publish(settings, RAW, records or _rewritten(settings, None, lambda fields, size: fields), events)
    return measure("raw → enriched", "live", stack, env, events, taken_in(settings), say)


def _rewritten(
    settings: Settings,
    schemas: Sequence[dict[str, object]] | None,
    change: Callable[[dict[str, object], int], dict[str, object]],
) -> list[Record]:
    """Departures whose fields went through `change(fields, bytes)`, written by these schemas in turn, else by the current one."""
    with Registry(settings.registry) as registry:
        current = registry.latest(f"{RAW}-value").id
        ids = [registry.register(f"{RAW}-value", json.dumps(schema)) for schema in schemas or ()] or [current]
    parsed = [fastavro.parse_schema(schema) for schema in schemas or ()]
    plain = fastavro.parse_schema(json.loads(load_catalog().schema(RAW)))
    constant = constant_headers(RAW, "/services/departures")
    found: list[Record] = []
    for number, (key, value, occurred_at) in enumerate(itertools.islice(raw_values(current), _RECORDS)):
        if schemas:
            fields = fastavro.schemaless_reader(io.BytesIO(value[5:]), plain, None)
            assert isinstance(fields, dict)
            body = io.BytesIO()
            body.write(b"\x00" + ids[number % len(ids)].to_bytes(4, "big"))
            fastavro.schemaless_writer(body, parsed[number % len(parsed)], change(fields, len(value)))
            value = body.getvalue()
        found.append((key, value, [("ce_id", key), ("ce_time", occurred_at), *constant]))
    return found
