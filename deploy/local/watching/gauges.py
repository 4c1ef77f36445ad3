"""Reads the state of a stack from outside: broker, lake and every process's health and metrics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import httpx
from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from prometheus_client.parser import text_string_to_metric_families

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.errors import DecodeError, RegistryError
from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.settings import Settings
from deploy.local.processes.deployable import deployables
from deploy.local.servers.ports import HOST, Ports
from deploy.local.watching.record_counts import RecordCounts
from deploy.local.watching.snapshot import AlertState, Snapshot, TopicState
from services.dimensions.rejected import UNKNOWN_FILE

_TIMEOUT_SECONDS = 3.0
_ALERTS = 8
NOT_LISTENING = "not listening yet"
"""What `health` says of a process that hasn't opened its port."""


class Gauges:
    """Takes snapshots; rates are those since the one before."""

    def __init__(self, settings: Settings, ports: Ports, catalog: Catalog) -> None:
        self._settings = settings
        self._ports = ports
        self._catalog = catalog
        self._quiet: dict[str, str | int | float | bool] = {**settings.kafka.client_config(), "log_level": 0}
        self._admin = AdminClient(self._quiet)
        self._groups: dict[str, Consumer] = {}
        """By group a client that asks for its offsets, and never subscribes."""
        self._alerts = Consumer({**self._quiet, "group.id": "headrace-view", "enable.auto.commit": False})
        # One client: each httpx.get would read the certificate authorities anew, for plain HTTP on the loopback address.
        self._http = httpx.Client(timeout=_TIMEOUT_SECONDS, trust_env=False, verify=False)
        self._registry = Registry(settings.registry, retry_seconds=_TIMEOUT_SECONDS)
        self._codec = Codec(self._registry.by_id, reader_schema=catalog.schema(topics.ALERTS_RAISED.name))
        # Pipelines write in transactions: into what they derive, and into the dead letters of what that is made from.
        made = {topic.name: topic.sources for topic in catalog.topics.values() if topic.sources}
        letters = {catalog.topic(raw).dead_letter_topic for sources in made.values() for raw in sources}
        self._counts = RecordCounts(settings.kafka, [*made, *sorted(letters)])
        self._tables: dict[str, DeltaTable] = {}
        self._before: tuple[float, dict[str, int]] = (time.monotonic(), {})

    def close(self) -> None:
        """Close the connections."""
        self._forget_groups()
        self._alerts.close()
        self._counts.close()
        self._registry.close()
        self._http.close()

    def _forget_groups(self) -> None:
        for reader in self._groups.values():
            reader.close()
        self._groups.clear()

    def snapshot(self) -> Snapshot:
        """Ask everybody; who doesn't answer is named in `unavailable`. Processes are left to whoever knows them."""
        unavailable: list[str] = []
        snapshot = Snapshot(datetime.now(UTC), unavailable=unavailable)
        try:
            ends = self._ends()
            snapshot.topics.extend(self._topics(ends))
            snapshot.lag.update(self._group_lag(self._counts.without_markers(ends)))
            snapshot.alerts.extend(self._latest_alerts(ends))
        except KafkaException as error:
            unavailable.append(f"kafka: {error.args[0].str()}")
            # A client that saw a group's coordinator go may wait for it for good (confluentinc/librdkafka#5511).
            self._forget_groups()
        except RegistryError as error:
            unavailable.append(f"registry: {error}")
        for each in deployables().deployables:
            if each.role != "producer":
                self._read_metrics(each.name, snapshot)
        try:
            snapshot.lake_rows.update(self._lake_rows())
        except (OSError, DeltaError) as error:
            unavailable.append(f"s3: {error}")
        return snapshot

    def health(self, names: list[str]) -> dict[str, str | None]:
        """For each deployable None when it is healthy, else why not."""
        with ThreadPoolExecutor(len(names) or 1) as pool:
            return dict(zip(names, pool.map(self._health, names), strict=True))

    def _health(self, name: str) -> str | None:
        try:
            answer = self._http.get(self._address(name, "health"))
        except httpx.TransportError as error:
            return "doesn't answer" if isinstance(error, httpx.TimeoutException) else NOT_LISTENING
        return None if answer.status_code == httpx.codes.OK else answer.text.strip()

    def _address(self, name: str, path: str) -> str:
        return f"http://{HOST}:{self._ports.of(name)}/{path}"

    def _ends(self) -> dict[TopicPartition, int]:
        names = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        partitions = [
            TopicPartition(name, partition)
            for topic in self._catalog.topics.values()
            for name in (topic.name, topic.dead_letter_topic)
            if name in names
            for partition in names[name].partitions
        ]
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        latest = dict.fromkeys(partitions, newest)
        # What an open transaction has written is no record yet.
        isolation = IsolationLevel.READ_COMMITTED
        answers = self._admin.list_offsets(latest, isolation_level=isolation, request_timeout=_TIMEOUT_SECONDS)
        return {partition: future.result().offset for partition, future in answers.items()}

    def _topics(self, ends: Mapping[TopicPartition, int]) -> list[TopicState]:
        totals: dict[str, int] = {}
        for partition, end in ends.items():
            totals[partition.topic] = totals.get(partition.topic, 0) + end
        self._counts.read(ends)
        counted = self._counts.totals(ends)
        totals |= {name: total for name, total in counted.items() if total is not None}
        uncounted = {name for name, total in counted.items() if total is None}
        now = time.monotonic()
        before_at, before = self._before
        # Of one that is still being counted nothing is kept: the difference to a count would be no rate.
        self._before = (now, {name: total for name, total in totals.items() if name not in uncounted})
        states = []
        for topic in self._catalog.topics.values():
            name, letters = topic.name, topic.dead_letter_topic
            total = totals.get(name, 0)
            come = 0 if name in uncounted else max(0, total - before.get(name, total))
            states.append(
                TopicState(
                    name,
                    total,
                    come / (now - before_at),
                    totals.get(letters, 0),
                    counted=uncounted.isdisjoint((name, letters)),
                )
            )
        return states

    def _group_lag(self, ends: Mapping[TopicPartition, int]) -> dict[str, int]:
        """Of the contracts' consumers that have committed offsets; Spark's queries tell theirs by their metrics as well."""
        read: dict[str, set[str]] = {}
        for topic in self._catalog.topics.values():
            for group in topic.consumers:
                read.setdefault(group, set()).add(topic.name)
        lag = {}
        for group in sorted(read):
            asked = [TopicPartition(each.topic, each.partition) for each in ends if each.topic in read[group]]
            if known := [each for each in self._committed(group, asked) if each.offset >= 0]:
                lag[group] = sum(max(0, ends[each] - each.offset) for each in known)
        return lag

    def _committed(self, group: str, asked: list[TopicPartition]) -> list[TopicPartition]:
        # Not by an admin client: that ends the process by a segmentation fault when the group's coordinator is away.
        if group not in self._groups:
            # As they stand by now: a transaction that is left open holds up no view.
            self._groups[group] = Consumer({**self._quiet, "group.id": group, "isolation.level": "read_uncommitted"})
        return self._groups[group].committed(asked, timeout=_TIMEOUT_SECONDS) if asked else []

    def _latest_alerts(self, ends: Mapping[TopicPartition, int]) -> list[AlertState]:
        name = topics.ALERTS_RAISED.name
        tails = [
            TopicPartition(name, each.partition, max(0, end - _ALERTS))
            for each, end in ends.items()
            if each.topic == name and end
        ]
        if not tails:
            return []
        self._alerts.assign(tails)
        wanted = sum(min(end, _ALERTS) for each, end in ends.items() if each.topic == name)
        found = []
        for message in self._alerts.consume(wanted, timeout=1.0):
            body = message.value()
            if message.error() is None and isinstance(body, bytes):
                try:
                    event = self._codec.decode(body)
                except DecodeError:
                    continue  # the view shows alerts; what isn't one is for whoever consumes the topic
                at = message.timestamp()[1]
                found.append((at, AlertState(*(event[key] for key in ("occurred_at", "severity", "rule", "message")))))
        self._alerts.unassign()
        return [alert for _, alert in sorted(found, key=lambda each: each[0])][-_ALERTS:]

    def _read_metrics(self, name: str, snapshot: Snapshot) -> None:
        try:
            families = list(text_string_to_metric_families(self._http.get(self._address(name, "metrics")).text))
        except (httpx.TransportError, ValueError):
            return  # its health says so already, or somebody else's server is at its port
        lag: Counter[str] = Counter()
        for family in families:
            for sample in family.samples:
                if sample.name == "headrace_lag_records":
                    lag[sample.labels["query"]] += int(sample.value)
                elif sample.name == "headrace_end_to_end_latency_seconds":
                    of, milliseconds = sample.labels["of"], sample.value * 1000
                    snapshot.latency_ms[of] = max(milliseconds, snapshot.latency_ms.get(of, 0.0))
                elif sample.name == "headrace_dimensions_to_be_corrected" and sample.value:
                    snapshot.alarms.append(
                        f"the last source file of {sample.labels['dimension']} was set aside, and the version before is in force: "
                        "logs/dimensions.log says why; upload a corrected one with ./headrace dimensions put"
                    )
                elif (
                    sample.name == "headrace_dimensions_rejected_total"
                    and sample.value
                    and sample.labels["reason"] == UNKNOWN_FILE
                ):
                    files = f"{sample.value:.0f} source files of no dimension were set aside since its start"
                    snapshot.alarms.append(f"{files}: logs/dimensions.log says which")
                elif sample.name == "headrace_alerting_rules_refused" and sample.value:
                    snapshot.alarms.append(
                        "alerting refuses the changed rules file, the rules before it stay in force: logs/alerting.log says why"
                    )
                elif sample.name == "headrace_alerting_records_lost_total" and sample.value:
                    records = (
                        f"{sample.value:.0f} offsets of {sample.labels['topic']} deleted before alerting read them"
                    )
                    snapshot.alarms.append(f"{records}, since its start: logs/alerting.log says which")
                elif sample.name == "headrace_alerting_topics_cut_total" and sample.value:
                    snapshot.alarms.append(
                        f"{sample.labels['topic']} ended before alerting's next record and is read from its first: "
                        "logs/alerting.log says which partition"
                    )
                elif sample.name == "headrace_dimensions_topic_lost" and sample.value:
                    snapshot.alarms.append(
                        f"the topic of {sample.labels['dimension']} was made anew, and the version before is in force: "
                        "logs/dimensions.log says what to do"
                    )
                elif sample.name == "headrace_dimension_unreadable" and sample.value:
                    snapshot.alarms.append(
                        f"the dimension {sample.labels['dimension']} can't be read: pipelines keep the version before it, or wait for a "
                        "first one: ./headrace dimensions put uploads its source file, if it is made of one; logs/dimensions.log and logs/live.log say more"
                    )
        # In place of the group's, which is some seconds old in real-time mode.
        snapshot.lag.update(lag)

    def _lake_rows(self) -> dict[str, int]:
        """From the tables' own logs, which count the rows of every file."""
        s3 = self._settings.s3
        rows = {}
        for topic in self._catalog.topics.values():
            if topic.lake is None:
                continue
            name = topic.lake.table
            try:
                if name in self._tables:
                    self._tables[name].update_incremental()
                else:
                    self._tables[name] = DeltaTable(f"s3://{s3.bucket}/lake/{name}", storage_options=s3.delta_options())
            except TableNotFoundError:
                rows[name] = 0
                continue
            actions = self._tables[name].get_add_actions(flatten=True)
            rows[name] = sum(actions.column("num_records").to_pylist())
        return rows
