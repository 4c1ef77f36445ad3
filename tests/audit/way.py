"""`Way`: topics and tables of a test's own, filled by hand as the deployables fill them, so that faults can be planted."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from deltalake import CommitProperties, DeltaTable, write_deltalake

from contracts.definitions.dimension import Column, Validity
from contracts.definitions.topic import TopicContract
from contracts.events import AlertRaised, Severity
from contracts.records.codec import Codec
from contracts.records.coordinates import PARTS
from contracts.records.dead_letter_headers import ERRORS, REDRIVEN_FROM, Header, dead_letter_headers, stump_headers
from contracts.records.limits import record_size
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from contracts.settings import Settings
from deploy.local.servers.stack import LocalStack
from services.alerting.rules.evaluate import compile_rule, evaluate
from services.alerting.rules.record import Record
from services.alerting.rules.rule import Rule
from services.audit.__main__ import audit
from services.audit.hops.hop import HOPS, Hop
from services.audit.report import Report
from services.audit.settings import AuditSettings
from services.audit.values.shape import Shape
from tests import sample
from tests.producers import ordered
from tests.sample import topics

RAW, DERIVED, ALERTS = (
    each.name for each in (topics.PARCELS_DISPATCHED, topics.PARCELS_DISPATCHED_ENRICHED, topics.ALERTS_RAISED)
)
HEAVY = topics.PARCELS_DISPATCHED_HEAVY.name
OVERDUE, PUNCTUAL = topics.PARCELS_DISPATCHED_OVERDUE.name, topics.PARCELS_DISPATCHED_PUNCTUAL.name
DELIVERED, SERVED = topics.PARCELS_DELIVERED.name, topics.DEPOTS_SERVED.name
LEDGER, ACTIVATIONS = topics.DEADLETTERS_SETTLED.name, topics.RULES_ACTIVATED.name

RULES = """\
rules:
  - name: late
    description: Planted.
    topic: parcels.dispatched.enriched.v1
    field: late_minutes
    operator: ">="
    threshold: 60
    severity: warning
    message: "{parcel_id} is late"
"""

DIMENSIONS: dict[str, list[dict[str, Any]]] = {
    "couriers": [{"courier": "UA", "name": "Umber Couriers Ltd."}],
    "depots": [
        {
            "depot": "EST",
            "name": "East Yard",
            "timezone": "America/New_York",
            "latitude_degrees": 40.6925,
            "longitude_degrees": -74.168667,
            "altitude_feet": 18,
        },
        {
            "depot": "IAH",
            "name": "Ivy Hill",
            "timezone": "America/Chicago",
            "latitude_degrees": 29.984433,
            "longitude_degrees": -95.341442,
            "altitude_feet": 97,
        },
    ],
    "vans": [
        {
            "van_id": "N14228",
            "built_year": 1999,
            "manufacturer": "FERROL",
            "model": "F-824",
            "engines": 2,
            "seats": 149,
            "engine_type": "diesel",
        }
    ],
}
"""What the examples of the derived topic were looked up in, as version 0."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A record on a topic; `ce_id` is its event id, the coordinate of the raw record if it is derived. With a `body`, that is
    its value in place of the fields. `parts`: how many of the raw record there are, by its own word. `redriven_from`: the dead letter that it says it was sent back from. `timestamp_ms`: 0 is now.
    """

    partition: int
    key: str
    fields: Mapping[str, Any]
    ce_id: str
    offset: int = -1
    sent_at: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    body: bytes | None = None
    redriven_from: str | None = None
    timestamp_ms: int = 0
    parts: int | None = None


class Way:
    """What the deployables would do, step by step; between the steps a test changes what they would do."""

    def __init__(self, stack: LocalStack, registry: Registry, folder: Path, more: Sequence[str] = ()) -> None:
        """`more` topics than those of dispatches."""
        tag = f"a{uuid.uuid4().hex[:8]}"
        catalog = sample.catalog()
        used = (RAW, DERIVED, ALERTS, LEDGER, ACTIVATIONS, *more)
        self.catalog = dataclasses.replace(
            catalog,
            topics={name: _renamed(catalog.topic(name), tag) for name in used},
            dimensions={
                name: each.model_copy(update={"location": f"dimensions/{tag}_{name}"})
                for name, each in catalog.dimensions.items()
            },
        )
        rules_file = folder / "rules.yaml"
        rules_file.write_text(RULES)
        plain: Settings = stack.settings()
        shipped = AuditSettings(
            kafka=plain.kafka,
            registry=plain.registry,
            s3=plain.s3,
            rules_file=rules_file,
            lookups_file=sample.LOOKUPS,
            filters_file=sample.FILTERS,
            aggregates_file=sample.AGGREGATES,
            joins_file=sample.JOINS,
            rankings_file=sample.RANKINGS,
        )
        told = ("lookups_file", "filters_file", "aggregates_file", "joins_file", "rankings_file")
        files = {name: folder / f"{name}.yaml" for name in told}
        for name, path in files.items():
            said = yaml.safe_load(getattr(shipped, name).read_text())
            path.write_text(yaml.safe_dump({topic: each for topic, each in said.items() if topic in used}))
        self.settings = shipped.model_copy(update=files)
        self._kafka = plain.kafka.client_config()
        self._admin = AdminClient({**self._kafka, "log_level": 0})
        self._registry = registry
        self._codec = Codec(registry.by_id)
        self._ids = {
            name: registry.register(topic.subject, catalog.schema(name)) for name, topic in self.catalog.topics.items()
        }
        self._new_names: dict[str, dict[str, str]] = {}
        self._landed: dict[str, dict[str, int]] = {}
        self._names = [each for topic in self.catalog.topics.values() for each in (topic.name, topic.dead_letter_topic)]
        self._names += [topic.late_topic for topic in self.catalog.topics.values() if topic.late_topic is not None]

    def __enter__(self) -> Self:
        for future in self._admin.create_topics(
            [NewTopic(name, 2, config={"retention.ms": "-1"}) for name in self._names]
        ).values():
            future.result()
        for name, rows in DIMENSIONS.items():
            write_deltalake(
                f"s3://{self.settings.s3.bucket}/{self.catalog.dimension(name).location}",
                pa.Table.from_pylist(rows),
                storage_options=self.settings.s3.delta_options(),
            )
        return self

    def __exit__(self, *_: object) -> None:
        for future in self._admin.delete_topics(self._names).values():
            future.result()

    def name(self, topic: str) -> str:
        """The topic's name in this test."""
        return self.catalog.topic(topic).name

    def at(self, partition: int, offset: int, topic: str = RAW) -> str:
        """A coordinate."""
        return f"{self.name(topic)}/{partition}/{offset}"

    def audit(self, *hops: Hop, full: bool = True, wait_seconds: float = 0, at_least_once: bool = False) -> Report:
        """Audit these hops (default: all), in this process."""
        return audit(
            self.settings,
            self.catalog,
            full=full,
            hops=hops or HOPS,
            processes=1,
            wait_seconds=wait_seconds,
            at_least_once=at_least_once,
        )

    # What the deployables do

    def key_by(
        self, dimension: str, key: Mapping[str, str], *rows: Mapping[str, Any], as_of: str | None = None
    ) -> None:
        """The dimension has another `key`, each text column with the event's field that is looked up in it, and these rows as its
        version 0. Those of its columns that it had not are added. With `as_of` they hold from `since` until `until`.
        """
        contract = self.catalog.dimension(dimension)
        told = {column.name: column for column in contract.columns}
        told |= {
            name: Column(name=name, source=name, type="string", nullable=False, description="Planted.")
            for name in key
            if name not in told
        }
        changed: dict[str, Any] = {"key": tuple(key), "location": f"{contract.location}_keyed"}
        if as_of is not None:
            changed["valid"] = Validity.model_validate({"from": "since", "until": "until"})
            for name in ("since", "until"):
                told[name] = Column(name=name, source=name, type="timestamp", nullable=True, description="Planted.")
        changed["columns"] = tuple(told.values())
        contract = contract.model_copy(update=changed)
        self.catalog = dataclasses.replace(self.catalog, dimensions={**self.catalog.dimensions, dimension: contract})
        write_deltalake(
            f"s3://{self.settings.s3.bucket}/{contract.location}",
            pa.Table.from_pylist([dict(row) for row in rows]),
            storage_options=self.settings.s3.delta_options(),
        )
        said = yaml.safe_load(self.settings.lookups_file.read_text())
        for join in said[DERIVED]["joins"]:
            if join["dimension"] == dimension:
                join["by"] = list(key.values())
                join |= {} if as_of is None else {"as_of": as_of}
        self.settings.lookups_file.write_text(yaml.safe_dump(said))

    def widen(self, topic: str, field: str, kind: str) -> None:
        """Producers of a topic have a newer version than its contract: this number is of a wider type."""
        schema = json.loads(self.catalog.schema(topic))
        for each in schema["fields"]:
            each["type"] = kind if each["name"] == field else each["type"]
        self._write_by(topic, schema)

    def rename(self, topic: str, field: str) -> None:
        """Producers of a topic have a newer version than its contract: this field has another name."""
        schema = json.loads(self.catalog.schema(topic))
        for each in schema["fields"]:
            if each["name"] == field:
                each |= {"name": f"new_{field}", "aliases": [field]}
        self._new_names[topic] = {field: f"new_{field}"}
        self._write_by(topic, schema)

    def before(self, topic: str, *fields: str, is_known: bool = True) -> None:
        """Producers of a topic have an older version than its contract's current one, which lacks these fields; nor `is_known` to the contract."""
        schema = json.loads(self.catalog.schema(topic))
        schema["fields"] = [each for each in schema["fields"] if each["name"] not in fields]
        self._write_by(topic, schema)
        if is_known:
            versions = (json.dumps(schema), *self.catalog.schemas(topic))
            self.catalog = dataclasses.replace(self.catalog, _schemas={**self.catalog._schemas, topic: versions})

    def send(self, topic: str, records: Iterable[Sent], *, transactional: bool = False) -> list[Sent]:
        """Append records; returns them with their offsets."""
        made: dict[int, Sent] = {}
        config: dict[str, Any] = {**self._kafka, "linger.ms": 1}
        if transactional:
            config["transactional.id"] = f"way-{uuid.uuid4().hex}"
        producer = ordered(config)
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        for number, record in enumerate(records):

            def delivered(error: Any, message: Any, number: int = number, record: Sent = record) -> None:
                assert error is None, error
                sent_at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=message.timestamp()[1])
                made[number] = replace(record, offset=message.offset(), sent_at=sent_at)

            headers: list[tuple[str, str | bytes | None]] = [("ce_id", record.ce_id)]
            if record.redriven_from is not None:
                headers.append((REDRIVEN_FROM, record.redriven_from))
            if record.parts is not None:
                headers.append((PARTS, str(record.parts)))
            producer.produce(
                self.name(topic),
                key=record.key,
                value=self._body(topic, record),
                partition=record.partition,
                headers=headers,
                timestamp=record.timestamp_ms,
                on_delivery=delivered,
            )
        assert producer.flush(30) == 0
        if transactional:
            producer.commit_transaction(30)
        producer.close()
        return [made[number] for number in sorted(made)]

    def dispatch(self, count: int, partition: int = 0, timestamp_ms: int = 0, **fields: Any) -> list[Sent]:
        """The dispatches service: so many parcels, each tenth an hour late."""
        parcels = []
        for number in range(count):
            parcel_id = f"UA{number}-EST-{uuid.uuid4().hex[:6]}"
            event = _example(RAW) | {"parcel_id": parcel_id, "late_minutes": 60 if number % 10 == 4 else 2}
            parcels.append(Sent(partition, parcel_id, event | fields, parcel_id, timestamp_ms=timestamp_ms))
        return self.send(RAW, parcels)

    def enriched(self, parcels: Iterable[Sent]) -> list[Sent]:
        """What `live` makes of parcels, not yet sent."""
        return [
            replace(
                parcel, fields={**_example(DERIVED), **parcel.fields}, ce_id=self.at(parcel.partition, parcel.offset)
            )
            for parcel in parcels
        ]

    def derive(self, records: Iterable[Sent], topic: str = DERIVED) -> list[Sent]:
        """A pipeline sends them, in a transaction."""
        return self.send(topic, records, transactional=True)

    def far(self, parcels: Iterable[Sent]) -> list[Sent]:
        """What `heavy_parcels` makes of parcels, not yet sent: of each, whatever its weight."""
        names = topics.PARCELS_DISPATCHED_HEAVY.model.model_fields
        return [
            replace(
                parcel,
                fields={name: parcel.fields[name] for name in names},
                ce_id=self.at(parcel.partition, parcel.offset),
            )
            for parcel in parcels
        ]

    def punctual(self, parcels: Iterable[Sent], topic: str) -> list[Sent]:
        """What `dispatches_by_punctuality` makes of parcels for one of its topics, not yet sent: of each, however late."""
        names = Shape(sample.catalog().schema(topic)).columns
        return [
            replace(
                parcel,
                fields={name: {**parcel.fields, "late_hours": 0.5}[name] for name in names},
                ce_id=self.at(parcel.partition, parcel.offset),
            )
            for parcel in parcels
        ]

    def deliver(self, count: int) -> list[Sent]:
        """The deliveries service: so many parcels."""
        example = json.loads((sample.catalog().root / "examples" / DELIVERED / "delivered_early.json").read_text())
        parcels = []
        for number in range(count):
            parcel_id = f"UA{number}-EST-{uuid.uuid4().hex[:6]}"
            event = topics.PARCELS_DELIVERED.model.model_validate(example | {"parcel_id": parcel_id}).model_dump()
            parcels.append(Sent(0, parcel_id, event, parcel_id))
        return self.send(DELIVERED, parcels)

    def served(self, parcels: Iterable[Sent]) -> list[Sent]:
        """What `depots_served` makes of deliveries, not yet sent: two of each."""
        names = topics.DEPOTS_SERVED.model.model_fields
        return [
            replace(
                parcel,
                fields={
                    **{n: v for n, v in parcel.fields.items() if n in names},
                    "served_as": role,
                    "depot": parcel.fields[role],
                },
                ce_id=f"{self.at(parcel.partition, parcel.offset, DELIVERED)}/{part}",
                parts=2,
            )
            for parcel in parcels
            for part, role in enumerate(("origin", "destination"))
        ]

    def set_aside(
        self,
        *parcels: Sent,
        by: str = "dispatches_enriched",
        topic: str = RAW,
        on: str | None = None,
        value: bytes | None = None,
        named: str | None = None,
        stump_of: Sent | None = None,
    ) -> None:
        """Dead letters of these records of `topic`, beside those of `on` (their own), with the original bytes unless there is a
        `value`; the record itself had been `named` the dead letter of somebody. Or stumps, which tell of another record.
        """
        own: list[Header] = [] if named is None else [(f"{ERRORS}connector.name", named)]
        producer = ordered({**self._kafka, "linger.ms": 1})
        for parcel in parcels:
            coordinate = self.at(parcel.partition, parcel.offset, topic)
            headers = dead_letter_headers(
                [("ce_id", parcel.ce_id), *own],
                self.name(topic),
                by,
                "VALUE_CONVERTER",
                "Planted",
                "planted",
                coordinate,
            )
            body: bytes | None = self._body(topic, parcel) if value is None else value
            key: str | None = parcel.key
            if stump_of is not None:
                told = self._body(topic, stump_of)
                size = record_size(stump_of.key.encode(), told, [("ce_id", stump_of.ce_id)])
                headers = [*headers, *stump_headers(size, hashlib.sha256(told).hexdigest())]
                key, body = None, None
            of = self.catalog.topic(on or topic)
            producer.produce(
                of.late_topic or of.dead_letter_topic,
                key=key,
                value=body,
                headers=headers,
                partition=0,
            )
        assert producer.flush(30) == 0
        producer.close()

    def _write_by(self, topic: str, schema: Any) -> None:
        self._ids[topic] = self._registry.register(self.catalog.topic(topic).subject, json.dumps(schema))

    def _body(self, topic: str, record: Sent) -> bytes:
        names = self._new_names.get(topic, {})
        fields = {names.get(name, name): value for name, value in record.fields.items()}
        return record.body or self._codec.encode(self._ids[topic], fields)

    def settle(
        self,
        record: Sent,
        of: str = RAW,
        on: str = RAW,
        *,
        action: str = "purged",
        by: str | None = "dispatches_enriched",
        ago: timedelta = timedelta(0),
    ) -> None:
        """An entry of the ledger: the dead letter of this record of a topic, which lay with those of another, was given up so long `ago`, or its
        record sent back.
        """
        dead_letter = f"{self.catalog.topic(on).dead_letter_topic}/0/0"
        entry = {
            "dead_letter": dead_letter,
            "coordinate": self.at(record.partition, record.offset, of),
            "service": by,
            "action": action,
            "reason": "Planted",
            "value_sha256": None,
            "settled_at": datetime.now(UTC) - ago,
        }
        self.send(LEDGER, [Sent(0, dead_letter, entry, "1")])

    def activate(
        self,
        threshold: float,
        from_offset: int,
        partition: int = 0,
        *,
        generation: int | None = None,
        second: int = 0,
        **others: Any,
    ) -> Rule:
        """Alerting takes the rule with another threshold, or `others` of its settings, into use."""
        rule = self.rule(threshold, **others)
        event = {
            "topic": self.name(DERIVED),
            "partition": partition,
            "from_offset": from_offset,
            "activated_at": datetime(2026, 1, 1, second=second, tzinfo=UTC),
            "rules_version": "1" * 12,
            "rules": {rule.version: rule.model_dump_json()},
            "generation": generation,
        }
        self.send(ACTIVATIONS, [Sent(0, self.name(DERIVED), event, "1")])
        return rule

    def rule(self, threshold: float = 60, **others: Any) -> Rule:
        """The one rule, or one with other settings."""
        settings: dict[str, Any] = {
            "name": "late",
            "description": "Planted.",
            "topic": DERIVED,
            "field": "late_minutes",
            "operator": ">=",
            "threshold": threshold,
            "severity": Severity.warning,
            "message": "{parcel_id} is late",
        }
        return Rule.model_validate(settings | others)

    def alerts(self, records: Iterable[Sent], rule: Rule | None = None, topic: str = DERIVED) -> list[AlertRaised]:
        """What alerting makes of records of a derived topic, not yet sent."""
        compiled = [compile_rule(rule or self.rule())]
        return [
            alert
            for each in records
            for alert in evaluate(
                compiled,
                Record(self.name(topic), each.ce_id, each.fields[self.catalog.topic(topic).occurred_at], each.fields),
            )
        ]

    def alarm(self, alerts: Iterable[AlertRaised]) -> list[Sent]:
        """Alerting sends them."""
        return self.send(
            ALERTS,
            [
                Sent(0, each.rule, each.model_dump() | {"severity": str(each.severity)}, str(each.alert_id))
                for each in alerts
            ],
        )

    def taken_in(self, group: str, topic: str, *records: Sent) -> None:
        """The group has handled the topic up to the last of these records."""
        ends = {each.partition: each.offset + 1 for each in sorted(records, key=lambda each: each.offset)}
        consumer = Consumer({**self._kafka, "group.id": group})
        offsets = [TopicPartition(self.name(topic), partition, end) for partition, end in ends.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    def run_on(self, by: str, topic: str, run: str, batch: int, *records: Sent, begins: Mapping[int, int]) -> None:
        """A pipeline with a state has written a batch of its `run`, which took in parcels up to the last of these records, and says so; `begins`: the
        offsets of the parcels with which the run began.
        """
        ends = {each.partition: each.offset + 1 for each in sorted(records, key=lambda each: each.offset)}
        raw, s3 = self.name(RAW), s3_client(self.settings.s3)
        told = {
            "metadata": ["{}"],
            "sources/0/0": ["v1", json.dumps({raw: begins})],
            f"offsets/{batch}": ["v1", json.dumps({"batchWatermarkMs": 0}), json.dumps({raw: ends})],
        }
        for name, lines in told.items():
            key = f"checkpoints/{by}/{self.name(topic)}/{run}/{name}"
            s3.put_object(Bucket=self.settings.s3.bucket, Key=key, Body="\n".join(lines).encode())
        note = json.dumps({"run": run, "batch": batch, "partitions": 1, "begins": "first"})
        consumer = Consumer({**self._kafka, "group.id": f"{by}.state"})
        consumer.commit(offsets=[TopicPartition(self.name(topic), 0, batch + 1, note)], asynchronous=False)
        consumer.close()
        self.taken_in(by, RAW, *records)

    def vacuum(self, dimension: str) -> int:
        """A version of a dimension that was, and can't be read any more."""
        place = f"s3://{self.settings.s3.bucket}/{self.catalog.dimension(dimension).location}"
        options = self.settings.s3.delta_options()
        for _ in range(2):
            old = DeltaTable(place, storage_options=options)
            write_deltalake(place, old.to_pyarrow_table(), mode="overwrite", storage_options=options)
        gone = DeltaTable(place, version=old.version(), storage_options=options)
        s3 = s3_client(self.settings.s3)
        for uri in gone.file_uris():
            s3.delete_object(Bucket=self.settings.s3.bucket, Key=uri.removeprefix(f"s3://{self.settings.s3.bucket}/"))
        return gone.version()

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Retention deletes the records before an offset."""
        place = TopicPartition(self.name(topic), partition, before)
        for future in self._admin.delete_records([place]).values():
            future.result()

    def rows(self, topic: str, records: Iterable[Sent]) -> list[dict[str, Any]]:
        """The lake's rows of records, not yet written."""
        return [
            {
                "coordinate": each.ce_id
                if each.ce_id.count("/") in (2, 3)
                else self.at(each.partition, each.offset, topic),
                "record_partition": each.partition,
                "record_offset": each.offset,
                "recorded_at": each.sent_at,
                **each.fields,
            }
            for each in records
        ]

    def land(self, topic: str, rows: Sequence[Mapping[str, Any]], *records: Sent) -> None:
        """The lake writes rows, and says that it has taken in the topic up to the last of the records."""
        contract = self.catalog.topic(topic)
        assert contract.lake is not None
        types = {
            "coordinate": pa.string(),
            "record_partition": pa.int32(),
            "record_offset": pa.int64(),
            "recorded_at": pa.timestamp("us", "UTC"),
        } | Shape(self.catalog.schema(topic)).columns
        ends = {str(each.partition): each.offset + 1 for each in sorted(records, key=lambda each: each.offset)}
        self._landed.setdefault(topic, {}).update(ends)
        said = json.dumps({"topic": contract.name, "positions": self._landed[topic]})
        schema = pa.schema({name: _in_delta(kind) for name, kind in types.items()})
        write_deltalake(
            f"s3://{self.settings.s3.bucket}/lake/{contract.lake.table}",
            pa.Table.from_pylist([_plain(row) for row in rows], schema),
            mode="append",
            partition_by=list(contract.lake.partition_by),
            storage_options=self.settings.s3.delta_options(),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": said}),
        )

    def run(self, parcels: Sequence[Sent]) -> list[Sent]:
        """All of them, as they should: the derived records of these parcels."""
        derived = self.derive(self.enriched(parcels))
        self.taken_in("dispatches_enriched", RAW, *parcels)
        self.land(RAW, self.rows(RAW, parcels), *parcels)
        self.land(DERIVED, self.rows(DERIVED, derived), *derived)
        raised = self.alarm(self.alerts(derived))
        self.taken_in("alerting", DERIVED, *derived)
        self.land(ALERTS, self.rows(ALERTS, raised), *raised)
        return derived


def _renamed(topic: TopicContract, tag: str) -> TopicContract:
    section = topic.lake_section
    lake = section if section == "none" else section.model_copy(update={"table": f"{tag}_{section.table}"})
    made_of = topic.derivation_section
    derivation = made_of
    if made_of != "none":
        names = {field: getattr(made_of, field) for field in ("topic", "joined_with", "united_with")}
        derivation = made_of.model_copy(update={field: f"{tag}.{name}" for field, name in names.items() if name})
    new = {"name": f"{tag}.{topic.name}", "derivation_section": derivation, "lake_section": lake}
    return topic.model_copy(update=new)


def _example(topic: str) -> dict[str, Any]:
    """The fields of the derived topic's example, or of the raw record that it is of."""
    file = sample.catalog().root / "examples" / DERIVED / "all_matched.json"
    derived = topics.PARCELS_DISPATCHED_ENRICHED.model.model_validate_json(file.read_text()).model_dump()
    return {name: derived[name] for name in topics.PARCELS_DISPATCHED.model.model_fields} if topic == RAW else derived


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, uuid.UUID) else value for name, value in row.items()}


def _in_delta(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind
