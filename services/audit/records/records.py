"""`Records`: what the audit keeps of one partition's records: digests and places, some 80 bytes for each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from contracts.records import coordinates
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.records.headers import as_bytes, header_of, headers_of
from contracts.records.limits import DERIVED_BYTES, RAW_BYTES, fits
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings, S3Settings
from services.alerting.rules.condition import Condition
from services.audit.declared.aggregates import Aggregate
from services.audit.declared.brings import Brings
from services.audit.declared.filters import wanted
from services.audit.declared.lookups import Recomputed
from services.audit.declared.rankings import Ranking
from services.audit.records.decoding import Decoder
from services.audit.records.expect import Expectation, Expected
from services.audit.records.groups import Groups, Members
from services.audit.records.pairs import Halves, Pairs
from services.audit.records.recompute import RIGHT, Recomputation, Verdicts
from services.audit.records.rules_history import RuleUse
from services.audit.records.totals import Totals
from services.audit.records.writers import Writers
from services.audit.sources.consume import consume
from services.audit.sources.progress import advance
from services.audit.values.digest import NULL, Digests, digests, mix
from services.audit.values.field_sets import FieldSets, set_for
from services.audit.values.place import WHOLE, Codes, Parts, codes, concatenated, offset_of, parsed_parts
from services.audit.values.shape import Shape, in_calendar, row_digests

_NONE = frozenset[str]()
_EMPTY = digests(pa.array([""]))[0]
"""The digest of an empty text: of another value it is by chance only."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What to read, and how.

    `kafka` are librdkafka properties, secrets in clear. `subject` has the versions that count, which the whole registry knows by
    `known_by` (of `time.monotonic`), `schema` is the topic's current one; None: only keys, ids and raw
    bytes are looked at. `source`: the topic that the records derive from, None for a raw one; `parts`: of one of its records there may be several. `shared`, by derived topic: fields that are to be
    equal in source and derived records, by the version of its schema; `filters`, by derived topic: which records it holds. `rules`: those whose alerts are to be recomputed, `occurred_at` the field with the event time. `recomputed`: fields to be
    looked up again, in dimensions in `s3`. `partition_by`: columns that the lake table is partitioned by. `members`, by aggregate: what that
    makes of these records; `groups`, of an aggregate: what it is itself, with the contract's field `key`. `halves`, by topic that joins these
    records, or lets each event through once: what they bring to it; `pairs`, of such a topic: the fields that come of each of the topics `made_of`. `ranked`, by topic
    with a list: what that ranks of these records, `counted_from` an offset on, or of those with the offsets `counted_alone` only. `most_bytes`: the largest
    record, by default that of a raw or derived topic.
    """

    kafka: Mapping[str, str]
    registry: RegistrySettings
    topic: str
    subject: str
    partition: int
    start: int
    end: int
    known_by: float
    schema: str | None = None
    source: str | None = None
    parts: bool = False
    shared: Mapping[str, FieldSets] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[RuleUse, ...] = ()
    occurred_at: str = ""
    recomputed: Recomputed | None = None
    s3: S3Settings | None = None
    partition_by: tuple[str, ...] = ()
    members: Mapping[str, Aggregate] = field(default_factory=dict)
    groups: Aggregate | None = None
    key: str | None = None
    halves: Mapping[str, Brings] = field(default_factory=dict)
    pairs: tuple[tuple[str, ...], ...] = ()
    made_of: tuple[str, ...] = ()
    ranked: Mapping[str, Ranking] = field(default_factory=dict)
    counted_from: Mapping[str, int] = field(default_factory=dict)
    counted_alone: frozenset[int] | None = None
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Records:
    """One entry of each array for each record, in the topic's order.

    `at` is the record's own place, `source` that of the raw record which it goes back to (NOWHERE if it names none), `part` which part of
    that it is, and `parts` how many there are by its own word (0: it does not say).
    `sent_ms` is its timestamp. `event` is the digest of its ce_id, `payload` that of key and value as bytes, `row` that of all fields and the time of
    sending, `shared`, by derived topic, those of the key and of each set of fields which source and derived records share, a column each; 0 where the
    value can't be decoded. `compared`, of a derived record: the number of the set that its version has; of one that is joined, or distinct: 0 if
    that has all carried fields, else UNKNOWN.
    `wanted`, by derived topic with a filter: whether it holds. `verdict` is about the fields that were looked up. `redriven`: it says that it was sent back.
    `members`, by aggregate: to which group each belongs; `groups`: what the records of an aggregate say. `halves` and `pairs`: the same for joins and distinct
    events. `totals`, by topic with a list: of its groups, all records together.
    """

    topic: str
    partition: int
    at: Codes
    source: Codes
    part: Parts
    parts: Parts
    sent_ms: np.ndarray[Any, np.dtype[np.int64]]
    revision: np.ndarray[Any, np.dtype[np.int64]]
    event: Digests
    key: Digests
    payload: Digests
    row: Digests
    shared: Mapping[str, Digests]
    compared: np.ndarray[Any, np.dtype[np.int8]]
    wanted: Mapping[str, np.ndarray[Any, np.dtype[np.bool_]]]
    readable: np.ndarray[Any, np.dtype[np.bool_]]
    redriven: np.ndarray[Any, np.dtype[np.bool_]]
    verdict: Verdicts
    expected: tuple[Expected, ...] = ()
    unevaluable: tuple[int, ...] = field(default=())
    """Places of the records about which a rule that has to be asked gives no answer."""
    unasked: frozenset[str] = _NONE
    """Versions of rules that can't be asked any more."""
    members: Mapping[str, Members] = field(default_factory=dict)
    groups: Groups | None = None
    halves: Mapping[str, Halves] = field(default_factory=dict)
    pairs: Pairs | None = None
    totals: Mapping[str, Totals] = field(default_factory=dict)
    named: frozenset[tuple[str, int]] = frozenset()
    """Dimensions and versions in which fields were looked up again."""

    def __len__(self) -> int:
        return len(self.at)

    @property
    def has_value(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which ones do not only have a key."""
        found: np.ndarray[Any, np.dtype[np.bool_]] = self.payload != mix(self.key)
        return found


def payload_digests(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Digests:
    """Of records as they lie on a topic."""
    return mix(digests(pa.array(keys, pa.binary()))) ^ digests(pa.array(values, pa.binary()))


def read(reading: Reading) -> Records:
    """Read one partition. Raises CouldNotAudit, RegistryUnavailable."""
    with Registry(reading.registry) as registry:
        reader = _Reader(reading, registry)
        for batch in consume(reading.kafka, reading.topic, reading.partition, reading.start, reading.end):
            reader.take(batch)
            advance(len(batch))
    return reader.records()


def _count(headers: Sequence[tuple[str, bytes | None]]) -> int:
    """How many parts the raw record has, by the header that says so; 0: it does not say."""
    told = header_of(headers, coordinates.PARTS)
    return int(told) if told is not None and re.fullmatch(rb"[1-9][0-9]{0,8}", told) else 0


class _Reader:
    def __init__(self, reading: Reading, registry: Registry) -> None:
        self._reading = reading
        self._shape = self._decoder = None
        if reading.schema is not None:
            writers = Writers(registry, reading.subject, reading.known_by)
            self._shape, self._decoder = Shape(reading.schema), Decoder(writers, reading.schema)
        self._expectation = Expectation(reading, registry) if reading.rules else None
        self._recomputation = (
            Recomputation(reading.s3, reading.recomputed, self._shape)
            if reading.recomputed is not None and reading.s3 is not None and self._shape is not None
            else None
        )
        self._filters = {topic: Condition(text) for topic, text in reading.filters.items()}
        self._conditions = {
            topic: None if where is None else Condition(where)
            for topic, where in [
                *((topic, each.where) for topic, each in reading.members.items()),
                *((topic, each.where) for topic, each in reading.ranked.items()),
            ]
        }
        self._having_a_part = {
            topic: None if brings.where is None else Condition(brings.where) for topic, brings in reading.halves.items()
        }
        self._parts: list[dict[str, Any]] = []
        self._expected: list[Expected] = []
        self._unevaluable: list[int] = []

    def take(self, batch: list[Message]) -> None:
        reading = self._reading
        keys, values = [as_bytes(message.key()) for message in batch], [as_bytes(message.value()) for message in batch]
        headers = [headers_of(message) for message in batch]
        ids = pa.array([header_of(each, "ce_id") for each in headers], pa.binary())
        at = codes(np.full(len(batch), reading.partition), np.array([message.offset() for message in batch]))
        key = digests(pa.array(keys, pa.binary()))
        source, numbers = at, np.full(len(batch), WHOLE)
        if reading.source is not None:
            source, numbers = parsed_parts(reading.source, ids, parts=reading.parts)
        part = {
            "at": at,
            "sent_ms": np.array([message.timestamp()[1] for message in batch], np.int64),
            "source": source,
            "part": numbers,
            "parts": np.array([_count(each) for each in headers] if reading.parts else np.zeros(len(batch)), np.int64),
            "event": digests(ids),
            "key": key,
            "payload": payload_digests(keys, values),
            "redriven": np.array([header_of(each, REDRIVEN_FROM) is not None for each in headers]),
        }
        most = reading.most_bytes or (RAW_BYTES if reading.source is None else DERIVED_BYTES)
        fitting = [value if fits(each, value, most) else None for each, value in zip(keys, values, strict=True)]
        self._parts.append(part | self._decoded(batch, fitting, part, keys, ids))

    def records(self) -> Records:
        kinds: dict[str, Any] = {"at": np.int64, "source": np.int64, "sent_ms": np.int64, "revision": np.int64}
        kinds |= {"part": np.int64, "parts": np.int64, "readable": np.bool_, "redriven": np.bool_, "verdict": np.int16}
        kinds["compared"] = np.int8
        names = (*kinds, "event", "key", "payload", "row")
        arrays = {
            name: concatenated([part[name] for part in self._parts], kinds.get(name, np.uint64)) for name in names
        }
        return Records(
            self._reading.topic,
            self._reading.partition,
            **arrays,
            shared={
                topic: np.concatenate(
                    [np.zeros((0, len(sets)), np.uint64), *(part["shared"][topic] for part in self._parts)]
                )
                for topic, sets in self._reading.shared.items()
            },
            wanted={
                topic: concatenated([part["wanted"][topic] for part in self._parts], np.bool_)
                for topic in self._filters
            },
            expected=tuple(self._expected),
            unevaluable=tuple(self._unevaluable),
            unasked=_NONE if self._expectation is None else self._expectation.unasked,
            members={
                topic: Members.joined([part["members"][topic] for part in self._parts])
                for topic in self._reading.members
            },
            groups=None
            if self._reading.groups is None
            else Groups.joined([part["groups"] for part in self._parts if "groups" in part]),
            halves={
                topic: Halves.joined([part["halves"][topic] for part in self._parts]) for topic in self._reading.halves
            },
            pairs=Pairs.joined([part["pairs"] for part in self._parts]) if self._reading.pairs else None,
            totals={
                topic: Totals.joined(part["totals"][topic] for part in self._parts) for topic in self._reading.ranked
            },
            named=frozenset() if self._recomputation is None else frozenset(self._recomputation.named),
        )

    def _decoded(
        self,
        batch: list[Message],
        values: Sequence[bytes | None],
        part: Mapping[str, Any],
        keys: Sequence[bytes | None],
        ids: pa.Array,
    ) -> dict[str, Any]:
        rows, at, key = len(batch), part["at"], part["key"]
        found: dict[str, Any] = {
            "revision": np.zeros(rows, np.int64),
            "row": np.zeros(rows, np.uint64),
            "shared": {topic: np.zeros((rows, len(sets)), np.uint64) for topic, sets in self._reading.shared.items()},
            "compared": np.zeros(rows, np.int8),
            "wanted": {topic: np.zeros(rows, np.bool_) for topic in self._filters},
            "readable": np.zeros(rows, np.bool_),
            "verdict": np.full(rows, RIGHT, np.int16),
        }
        if self._shape is None or self._decoder is None:
            return found
        events = [self._decoder.event(value) for value in values]
        try:
            columns = self._shape.table([event.fields for event in events if event is not None])
        except pa.ArrowInvalid:
            events = [event if event is not None and self._shape.held(event.fields) else None for event in events]
            columns = self._shape.table([event.fields for event in events if event is not None])
        inside = [in_calendar(column) for column in columns.values()]
        if not all(each.all() for each in inside):
            left = iter(np.logical_and.reduce(inside).tolist())
            events = [event if event is not None and next(left) else None for event in events]
            columns = self._shape.table([event.fields for event in events if event is not None])
        good = np.array([event is not None for event in events])
        count = int(good.sum())
        fields = self._shape.field_digests(columns, count)
        found["readable"] = good
        absent = [event.absent for event in events if event is not None]
        for topic, sets in self._reading.shared.items():
            for number, names in enumerate(sets):
                of_set = row_digests({name: fields[name] for name in names}, count)
                found["shared"][topic][good, number] = of_set + mix(key[good])
        own = self._reading.shared.get(self._reading.topic)
        if self._reading.pairs:
            own = (tuple(chain.from_iterable(self._reading.pairs)),)
        if own is not None:
            numbers = {each: set_for(own, each) for each in {*absent}}
            found["compared"][good] = [numbers[each] for each in absent]
        for topic, condition in self._filters.items():
            found["wanted"][topic][good] = wanted(condition, columns, count)
        found["members"] = {
            topic: Members.of_rows(aggregate, self._conditions[topic], columns, good)
            for topic, aggregate in self._reading.members.items()
        }
        offsets, alone = offset_of(at[good]), self._reading.counted_alone
        is_asked = np.ones(count, np.bool_) if alone is None else np.isin(offsets, list(alone))
        found["totals"] = {
            topic: Totals.of_rows(
                ranking,
                self._conditions[topic],
                columns,
                is_asked & (offsets >= self._reading.counted_from.get(topic, 0)),
            )
            for topic, ranking in self._reading.ranked.items()
        }
        if self._reading.groups is not None and self._reading.key is not None:
            found["groups"] = Groups.of_rows(
                self._reading.groups, self._reading.key, keys, ids.to_pylist(), columns, good
            )
        found["halves"] = {
            topic: Halves.of_rows(brings, self._reading.occurred_at, self._having_a_part[topic], columns, good)
            for topic, brings in self._reading.halves.items()
        }
        if self._reading.pairs:
            found["pairs"] = Pairs.of_rows(
                self._reading.pairs, self._reading.made_of, self._reading.key, key, ids.to_pylist(), columns, good
            )
        if self._recomputation is not None:
            found["verdict"][good] = self._recomputation.verdicts(columns, fields, absent)
        sent = pa.array(part["sent_ms"], pa.int64()).cast(pa.timestamp("ms"))
        if "recorded_at" not in self._shape.columns:
            fields = fields | {"recorded_at": digests(sent)[good]}
        found["row"][good] = row_digests(fields | self._in_partitions(fields), count)
        if "revision" in self._shape.columns and self._reading.source is not None:
            found["revision"][good] = columns["revision"].to_numpy()
        if self._expectation is not None:
            expected, unevaluable = self._expectation.of(batch, columns, np.flatnonzero(good))
            self._expected += expected
            self._unevaluable += [int(at[row]) for row in unevaluable]
        return found

    def _in_partitions(self, fields: Mapping[str, Digests]) -> dict[str, Digests]:
        """What the lake has of the fields that its table is partitioned by: Delta takes an empty text for null."""
        return {
            name: np.where(fields[name] == _EMPTY, NULL, fields[name])
            for name in self._reading.partition_by
            if name in fields
        }
