"""`Witness`: reads every hop anew, compares it with ledger and oracle, and counts what was sent or written twice."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Message, TopicPartition

from contracts.records.dead_letter_headers import ERRORS
from contracts.records.headers import header_of, headers_of
from spark.pipelines import load
from spark.pipelines.departures_enriched import departures_enriched
from tests.faults.groups import Groups, is_before
from tests.faults.stage.beside import FLIGHTS
from tests.faults.stage.cast import AGGREGATES, FOLLOWING, PIPELINE, STATEFUL
from tests.faults.stage.load import TABLE, departed_at, flight_of, group_of, of_a_ledger
from tests.faults.stage.positions import Offsets, added_files
from tests.faults.stage.stage import Stage
from tests.system.expected_alerts import RULES
from tests.system.oracle import enriched_flights
from tests.system.verify import ALERTS, coordinate, decoded, expected_alerts, lake_rows, records

RAW, ENRICHED = departures_enriched.source, departures_enriched.target
_DEAD = f"{RAW}.dlq"
_LANDED = {TABLE: ENRICHED, "flights_departed": RAW}
_SILENCE_SECONDS = 20.0


@dataclass
class Found:
    """What is wrong, in words, since the last look; and how much was looked at."""

    events: int = 0
    sent_again: int = 0
    written_again: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __add__(self, other: Found) -> Found:
        return Found(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})


class Witness:
    """Looks again and again, each time at what came since. Without `exactly_once`, what `live` repeats is only counted."""

    def __init__(self, stage: Stage, *, exactly_once: bool) -> None:
        self._stage, self._ledger, self._exactly_once = stage, stage.ledger, exactly_once
        self._positions = stage.positions
        self._settings = self._positions.settings
        self._registry = self._positions.registry
        self._oracle = enriched_flights(rows=FLIGHTS)
        self._schemas: dict[int, Any] = {}
        self._next: dict[tuple[str, str], dict[int, int]] = {}
        self._raw: dict[str, str | None] = {}  # event id by coordinate; None: not of the load
        self._event_ids: set[str] = set()
        self._acknowledged: set[str] = set()  # event ids that were found in the topic
        self._members: dict[str, list[str]] = {}  # coordinates of raw records by group
        self._odd_members: Counter[str] = Counter()  # how many others may be in a group
        self._open: set[str] = set()  # coordinates of raw records of which nothing was made yet
        self._made: set[str] = set()
        self._ahead: dict[str, dict[str, Any]] = {}  # enriched events by coordinate, not compared yet
        self._tried: set[str] = set()
        self._alerts: set[str] = set()
        self._versions = dict.fromkeys(_LANDED, -1)
        self._files: dict[str, set[str]] = {table: set() for table in _LANDED}  # counted or committed
        self._groups = [Groups(load(name)) for name in AGGREGATES if name in stage.pipelines]

    def look(self, seconds: float) -> Found:
        """Wait until all that follows has come as far as the raw topic is now, and compare. Raises TimeoutError."""
        found, positions, stage = Found(), self._positions, self._stage
        stage.wait("the broker to answer", positions.answers)
        raw_ends = positions.broker.ends(RAW)
        written = {table: positions.data_files(table) for table in _LANDED}
        stage.wait("live to catch up", lambda: positions.reached(raw_ends, PIPELINE, RAW), seconds)
        for name in stage.pipelines:
            if name in STATEFUL:
                stage.wait(f"{name} to catch up", partial(positions.has_counted, name, raw_ends), seconds)
            if name == FOLLOWING:
                stage.wait(f"{name} to catch up", partial(positions.reached, raw_ends, name, RAW), seconds)
        raw = self._read_raw(found)
        enriched = self._read_enriched(found)
        for topic in RULES:
            ends = enriched if topic == ENRICHED else positions.broker.ends(topic)
            stage.wait(
                f"alerting to catch up with {topic}",
                lambda ends=ends, topic=topic: positions.reached(ends, "alerting", topic),  # type: ignore[misc]
                seconds,
            )
        stage.wait(f"the table {TABLE} to catch up", lambda: self._landed(TABLE, enriched), seconds)
        stage.wait("the table flights_departed to catch up", lambda: self._landed("flights_departed", raw), seconds)
        self._read_alerts()
        stage.wait("every alert to be told", lambda: self._alerts <= stage.told(), seconds)
        self._compare(found, raw_ends)
        for each in self._groups:
            self._compare_groups(found, each, raw_ends)
        for table in _LANDED:
            found.written_again += self._written_in_vain(table, written[table])
        return found

    def look_at_everything(self) -> Found:
        """The lake's rows and the alerts, all of them, against the oracle; nothing may be on its way any more."""
        found = Found()
        rows: Counter[str] = Counter()
        good = {at: event for at, event in self._raw.items() if event is not None}
        for row in lake_rows(self._settings, TABLE):
            at = str(row["coordinate"])
            rows[at] += 1
            if at in good:
                self._check(found, f"lake {at}", row | {"flight_date": str(row["flight_date"])}, good[at])
        found.lost += [f"{at} is not in the lake" for at in good.keys() - rows.keys()]
        found.doubled += [f"{at} is in the lake {count} times" for at, count in rows.items() if count > 1]
        raised = [decoded(m, self._registry, self._schemas) for m in records(self._settings, ALERTS)]
        ids = {(str(each["rule"]), str(each["coordinate"])) for each in raised}
        expected = set(expected_alerts(self._settings, self._registry, self._schemas))
        found.lost += [f"no alert of {rule} for {at}" for rule, at in expected - ids]
        found.wrong += [f"an alert of {rule} for {at} that nothing asks for" for rule, at in ids - expected]
        return found

    def _read_raw(self, found: Found) -> Offsets:
        for message in self._new_records(RAW, "read_committed"):
            at, event_id = coordinate(message), _header(message, "ce_id")
            of_load = event_id is not None and of_a_ledger(event_id)
            self._raw[at] = event_id if of_load else None
            if of_load and event_id is not None:
                origin = str(self._oracle[flight_of(event_id)]["origin"])
                self._members.setdefault(group_of(origin, departed_at(event_id)), []).append(at)
            elif self._groups:
                # It may be good, and then it is counted.
                with suppress(Exception):
                    event = decoded(message, self._registry, self._schemas)
                    self._odd_members[group_of(str(event["origin"]), event["departed_at"])] += 1
            self._open.add(at)
            found.events += 1
            if event_id is not None and of_load:
                if event_id in self._event_ids:
                    found.doubled.append(f"the event {event_id} is in the raw topic again, at {at}")
                self._event_ids.add(event_id)
        self._ledger.renew()
        found.wrong += [f"{each} was never sent" for each in self._event_ids - self._ledger.attempted]
        return self._next[RAW, "read_committed"]

    def _read_enriched(self, found: Found) -> Offsets:
        """The offset after the last record of each partition."""
        for message in self._new_records(ENRICHED, "read_committed"):
            at = str(_header(message, "ce_id"))
            self._take(found, at)
            self._ahead[at] = decoded(message, self._registry, self._schemas)
        # Some may be of raw records that came after those that were read: the next look checks them.
        for at in self._ahead.keys() & self._raw.keys():
            event, event_id = self._ahead.pop(at), self._raw[at]
            if event_id is not None:
                self._check(found, f"enriched {at}", event, event_id)
        for message in self._new_records(_DEAD, "read_committed"):
            if _header(message, f"{ERRORS}connector.name") == PIPELINE:
                at = str(_header(message, "ce_id"))
                self._take(found, at)
                if self._raw.get(at) is not None:
                    found.lost.append(
                        f"{at} is good and among the dead letters: {_header(message, f'{ERRORS}exception.message')}"
                    )
        for message in self._new_records(ENRICHED, "read_uncommitted"):
            at = str(_header(message, "ce_id"))
            found.sent_again += at in self._tried
            self._tried.add(at)
        return self._next[ENRICHED, "read_committed"]

    def _read_alerts(self) -> None:
        for message in self._new_records(ALERTS, "read_committed"):
            self._alerts.add(str(decoded(message, self._registry, self._schemas)["alert_id"]))

    def _take(self, found: Found, at: str) -> None:
        if at in self._made and self._exactly_once:
            found.doubled.append(f"{at} was made into something twice")
        self._made.add(at)
        self._open.discard(at)

    def _compare(self, found: Found, ends: Offsets) -> None:
        """What was acknowledged is in the raw topic, where the brokers said; what is there was made into something."""
        for event_id in self._ledger.acknowledged.keys() - self._acknowledged:
            at = self._ledger.acknowledged[event_id]
            if at in self._raw:
                self._acknowledged.add(event_id)
                if self._raw[at] != event_id:
                    found.lost.append(f"{event_id} was acknowledged at {at}, where {self._raw[at]} is")
            elif is_before(at, ends):
                found.lost.append(f"{event_id} was acknowledged at {at}, where nothing is")
        # A record that was made into something before the raw topic was read so far is taken off at the next look.
        self._open -= self._made
        found.lost += [f"{at} was made into nothing" for at in self._open if is_before(at, ends)]

    def _compare_groups(self, found: Found, groups: Groups, ends: Offsets) -> None:
        """Each group counts what belongs to it. It may count what came after `ends`, too."""
        for message in self._new_records(groups.topic, "read_committed"):
            found.doubled += groups.take(
                str(_header(message, "ce_id")), decoded(message, self._registry, self._schemas)
            )
        for message in self._new_records(groups.late, "read_committed"):
            found.doubled += groups.take_late(str(_header(message, "ce_id")))
        # They may have counted these.
        self._read_raw(found)
        lost, doubled = groups.compared(self._members, self._odd_members, ends)
        found.lost += lost
        found.doubled += doubled

    def _check(self, found: Found, what: str, event: Mapping[str, Any], event_id: str) -> None:
        expected = self._oracle[flight_of(event_id)] | {"departed_at": departed_at(event_id)}
        if what.startswith("lake"):
            expected = expected | {"flight_date": str(expected["flight_date"])}
        different = {name: (event.get(name), value) for name, value in expected.items() if event.get(name) != value}
        if different:
            found.wrong.append(f"{what}: (found, expected) differ: {different}")

    def _landed(self, table: str, ends: Offsets) -> bool:
        return self._positions.has_landed(table, _LANDED[table], ends)

    def _written_in_vain(self, table: str, files: set[str]) -> int:
        """Rows in those files that no version has taken in: they were written again."""
        newest = self._positions.version(table)
        for version in range(self._versions[table] + 1, newest + 1):
            log = self._positions.read(f"lake/{table}/_delta_log/{version:020}.json")
            self._files[table] |= {unquote(path) for path in added_files(log)}
        self._versions[table] = newest
        rows = 0
        for name in files - self._files[table]:
            rows += pq.ParquetFile(io.BytesIO(self._positions.read(f"lake/{table}/{name}"))).metadata.num_rows
            self._files[table].add(name)
        return rows

    def _new_records(self, topic: str, isolation: str) -> Iterator[Message]:
        """What came since this was asked for last, up to the end now."""
        starts = self._next.setdefault((topic, isolation), {})
        consumer = Consumer(
            self._settings.kafka.client_config()
            | {
                "group.id": "witness",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, each, starts.get(each, 0)) for each in partitions])
            left = set(partitions)
            while left:
                message = consumer.poll(_SILENCE_SECONDS)
                if message is None:
                    raise TimeoutError(f"{topic}: the broker sent nothing for {_SILENCE_SECONDS:.0f} s")
                error = message.error()
                if error is None:
                    starts[message.partition() or 0] = (message.offset() or 0) + 1
                    yield message
                elif error.name() == "_PARTITION_EOF":
                    left.discard(message.partition() or 0)
                elif not error.retriable():
                    raise TimeoutError(f"{topic}: {error}")
        finally:
            consumer.close()


def _header(message: Message, name: str) -> str | None:
    value = header_of(headers_of(message), name)
    return None if value is None else value.decode(errors="replace")
