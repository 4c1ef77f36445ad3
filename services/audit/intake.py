"""`Intake`: everything that an audit reads from Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from contracts.events import DeadLetterSettled, RulesActivated
from contracts.handle import E
from contracts.servers.provision import AHEAD_MS
from contracts.settings import Settings
from services.audit.cut import Cut
from services.audit.hops.alerts import Raised, read_alerts
from services.audit.hops.dead_letters import DeadLetter, Settled, dead_letters, settled
from services.audit.plan import Plan, Source
from services.audit.records.records import Reading, Records, read
from services.audit.records.rules_history import RulesHistory, RuleUse
from services.audit.records.window import Where
from services.audit.sources.broker import Broker
from services.audit.sources.entries import Entries
from services.audit.sources.workers import Job, Workers
from services.audit.values.finding import Tally
from services.audit.values.place import NOWHERE, Codes, offset_of, partition_of, places

_PIECE_OFFSETS = 250_000
"""Longer ranges are read in pieces, side by side."""
_NEIGHBOURS = 5_000
"""So far apart records are read with what lies between them: a reader of its own costs more."""


class Intake:
    """Reads each source once, up to its cut."""

    def __init__(self, settings: Settings, broker: Broker, plan: Plan, cut: Cut, workers: Workers) -> None:
        self._registry, self._s3 = settings.registry, settings.s3
        self._kafka = settings.kafka.client_config()
        self._broker, self._plan, self._cut, self._workers = broker, plan, cut, workers
        self.records: dict[str, list[Records]] = {}
        """Of each topic that was read, in the order of partitions and offsets."""
        self.later: dict[str, list[Records]] = {}
        """Of topics that aggregates count, joins pair, or of which each event is let through once, what came after the cut."""
        self.counted_from: dict[str, Mapping[int, int]] = {}
        """By list's topic from which offsets on the records of its raw topic are counted for it."""
        self._dead: dict[str, list[DeadLetter]] = {}
        self._settled: list[Settled] = []
        self.passed_over: dict[str, Tally] = {}
        """Of topics with entries, what is on them besides."""

    def read(self, sources: Sequence[Source], rules: RulesHistory) -> None:
        """Every source up to its own end now, all side by side; `rules` are asked for the alerts that are due."""
        # For all pieces, so that not each of them waits for what the registry doesn't have. The windows are taken before.
        windows = [self._cut.window(source.name) for source in sources]
        known_by = time.monotonic() + self._registry.lag_seconds
        self.records |= self._read(
            self._reading(source, partition, span.read_from, span.end, known_by, rules.uses(source.name, partition))
            for source, window in zip(sources, windows, strict=True)
            for partition, span in window.spans.items()
        )

    def read_later(self, ends: Mapping[str, Mapping[int, int]]) -> None:
        """Of raw topics what came after the cut, up to these ends: only what it is to those that keep a state."""
        cuts = {topic: self._cut.window(topic).spans for topic in ends}
        # A partition may have been added since.
        starts = {
            topic: {partition: cuts[topic][partition].end if partition in cuts[topic] else 0 for partition in of}
            for topic, of in ends.items()
        }
        self.later |= self._read_bare(starts, ends)

    def read_behind(self, source: Source, ends: Mapping[int, int]) -> list[Records]:
        """What a source has after the cut, up to these ends."""
        spans = self._cut.window(source.name).spans
        known_by = time.monotonic() + self._registry.lag_seconds
        starts = {partition: spans[partition].end if partition in spans else 0 for partition in ends}
        readings = [
            self._reading(source, partition, starts[partition], end, known_by, ())
            for partition, end in sorted(ends.items())
        ]
        return self._read(readings).get(source.name, [])

    def read_earlier(self, starts: Mapping[str, Mapping[int, int]]) -> dict[str, list[Records]]:
        """Of topics that were read, what they have before that, from these offsets on: only what it is to joins and distinct events."""
        spans = {topic: self._cut.window(topic).spans for topic in starts}
        return self._read_bare(
            {
                topic: {partition: max(span.low, starts[topic].get(partition, 0)) for partition, span in of.items()}
                for topic, of in spans.items()
            },
            {topic: {partition: span.read_from for partition, span in of.items()} for topic, of in spans.items()},
        )

    def read_between(self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> Sequence[Records]:
        """Of a raw topic what lies between these offsets: only what it is to those that keep a state."""
        return self._read_bare({topic: starts}, {topic: ends}).get(topic, [])

    def read_alone(self, topic: str, places: Codes) -> list[Records]:
        """Of a raw topic what these records are to lists. The records between neighbours are read, too, and not counted."""
        source = next(each for each in self._plan.roots if each.name == topic)
        known_by = time.monotonic() + self._registry.lag_seconds
        found = np.sort(places)
        jobs: list[Job] = []
        for part in np.split(found, np.flatnonzero(np.diff(found) > _NEIGHBOURS) + 1) if len(found) else []:
            first, last = offset_of(int(part[0])), offset_of(int(part[-1]))
            reading = self._reading(source, partition_of(int(part[0])), first, last + 1, known_by, ())
            alone = frozenset(offset_of(part).tolist())
            bare = replace(reading, shared={}, filters={}, recomputed=None, s3=None, counted_alone=alone)
            jobs.append((read, (bare,)))
        records: list[Records] = self._workers.run(jobs, len(found))
        return records

    def read_late(self, topic: str) -> list[DeadLetter]:
        """What is on a late topic."""
        return [
            each
            for partition, span in self._cut.window(topic).spans.items()
            for each in dead_letters(self._kafka, topic, partition, span.low, span.end, strangers=True)
        ]

    def read_dead_letters(self) -> None:
        """Those of every source, and the ledger of what became of them."""
        for source in self._plan.sources:
            topic = source.contract.dead_letter_topic
            # Few, so all are read each time: those of records ahead of the last cut need no book-keeping then.
            self._dead[topic] = [
                each
                for partition, span in self._cut.window(topic).spans.items()
                for each in dead_letters(self._kafka, topic, partition, span.low, span.end)
            ]
        ledger = self._plan.ledger
        spans = self._cut.window(ledger.name).spans
        found = self._entries(
            ledger, DeadLetterSettled, {number: (each.low, each.end) for number, each in spans.items()}
        )
        self._settled = list(settled(found))

    def read_rules(self, by_file: RulesHistory) -> RulesHistory:
        """Which rules applied until now; those of the file where nothing is recorded."""
        activations = self._plan.activations
        starts, ends = self._broker.starts(activations.name), self._broker.ends(activations.name)
        ranges = {partition: (start, ends[partition]) for partition, start in starts.items()}
        return by_file.with_events(self._entries(activations, RulesActivated, ranges))

    def read_alerts(self) -> list[Raised]:
        """What is on the alerts' topic."""
        topic, schema = self._plan.alerts.name, self._plan.alerts.schema
        return [
            each
            for partition, span in self._cut.window(topic).spans.items()
            for each in read_alerts(self._kafka, self._registry, topic, schema, partition, span.read_from, span.end)
        ]

    def needed(self, topic: str, *, audited: bool = False) -> dict[int, int]:
        """For each partition with records in the window the offset after the last: whoever handled all has come so far. With `audited` also of
        what was read that an earlier audit has seen.

        The cut itself may lie behind transaction markers, which nobody handles.
        """
        window, of = self._cut.window(topic), (Where.INSIDE, *([Where.BEFORE] if audited else []))
        needed: dict[int, int] = {}
        for part in self.records[topic]:
            inside = part.at[np.isin(window.where(part.at), of)]
            if len(inside):
                needed[part.partition] = offset_of(int(inside[-1])) + 1
        return needed

    def set_aside(self, of: Source, on: Source, by: str) -> list[tuple[DeadLetter, int]]:
        """The dead letters of a source's records that `by` put on the dead-letter topic of `on`, with the records' places."""
        found = [each for each in self._dead[on.contract.dead_letter_topic] if each.by == by]
        return list(zip(found, places(of.name, (each.coordinate for each in found)).tolist(), strict=True))

    def purged(self, of: Source, on: Source, by: str) -> Codes:
        """Places of a source's records whose letters, which `by` put on the dead-letter topic of `on`, were given up."""
        return self._settled_as("purged", of, on, by)

    def redriven(self, of: Source) -> Codes:
        """Places of a source's records that were sent back: once for all letters of theirs, whoever put them where."""
        return self._known(of, [each for each in self._settled if each.action == "redriven"])

    def redriven_for(self, of: Source, on: Source, by: str) -> Codes:
        """Those of `redriven` whose letters, which `by` put on the dead-letter topic of `on`, are the ones that the ledger names."""
        return self._settled_as("redriven", of, on, by)

    def _settled_as(self, action: str, of: Source, on: Source, by: str) -> Codes:
        letters = on.contract.dead_letter_topic
        # An entry of before the ledger told whose letter it was may be of anybody's.
        found = [
            each for each in self._settled if (each.action, each.topic) == (action, letters) and each.by in (by, None)
        ]
        return self._known(of, found)

    def _known(self, of: Source, entries: Sequence[Settled]) -> Codes:
        """Places of the records that the entries are about. What was decided more than an hour before a record was sent, was about the one that had
        its place in the topic of before it was made anew: so far ahead brokers let a producer's clock be.
        """
        found = places(of.name, (each.coordinate for each in entries))
        decided_ms = np.array([each.at_ms for each in entries], np.int64)
        is_known = found != NOWHERE
        for part in self.records.get(of.name, ()):
            its = np.isin(found, part.at)
            sent_ms = part.sent_ms[np.searchsorted(part.at, found[its])]
            is_known[its] &= sent_ms <= decided_ms[its] + AHEAD_MS
        known: Codes = found[is_known]
        return known

    def not_made(self, of: Source, text: str) -> Iterator[Tally]:
        """A note for each topic that this one would be made of, with the records that were read of it."""
        for origin in of.origins:
            tally = Tally(f"{origin.name} → {of.name}", origin.name)
            tally.notes[text] += sum(map(len, self.records.get(origin.name, [])))
            yield tally

    def _entries(self, source: Source, model: type[E], ranges: Mapping[int, tuple[int, int]]) -> list[E]:
        entries = Entries[E](source.name)
        for partition, (start, end) in ranges.items():
            entries.read(self._kafka, self._registry, source.schema, model, partition, start, end)
        self.passed_over[source.name] = entries.tally()
        return entries.found

    def _read_bare(
        self, starts: Mapping[str, Mapping[int, int]], ends: Mapping[str, Mapping[int, int]]
    ) -> dict[str, list[Records]]:
        """By topic, from these offsets up to those: only what it is to those that keep a state."""
        known_by = time.monotonic() + self._registry.lag_seconds
        readings = (
            self._reading(source, partition, starts[source.name][partition], end, known_by, ())
            for source in self._plan.roots
            for partition, end in sorted(ends.get(source.name, {}).items())
        )
        return self._read(replace(each, shared={}, filters={}, recomputed=None, s3=None) for each in readings)

    def _read(self, readings: Iterable[Reading]) -> dict[str, list[Records]]:
        """By topic, in this order, all side by side, and long ones in pieces."""
        found: dict[str, list[Records]] = {}
        pieces = []
        for each in readings:
            found[each.topic] = []
            pieces += [replace(each, start=start, end=end) for start, end in _pieces(each.start, each.end)]
        jobs: list[Job] = [(read, (each,)) for each in pieces]
        results = self._workers.run(jobs, sum(each.end - each.start for each in pieces))
        for each, records in zip(pieces, results, strict=True):
            found[each.topic].append(records)
        return found

    def _reading(
        self, source: Source, partition: int, start: int, end: int, known_by: float, uses: tuple[RuleUse, ...]
    ) -> Reading:
        return Reading(
            kafka=self._kafka,
            registry=self._registry,
            topic=source.name,
            subject=source.contract.subject,
            partition=partition,
            start=start,
            end=end,
            known_by=known_by,
            schema=source.schema,
            source=None if source.raw is None else source.raw.name,
            parts=source.contract.has_parts,
            shared=source.shared,
            filters=source.filters,
            rules=uses,
            occurred_at=source.contract.occurred_at,
            recomputed=source.recomputed,
            s3=self._s3,
            partition_by=() if source.contract.lake is None else source.contract.lake.partition_by,
            members=source.members,
            groups=source.aggregate,
            key=source.contract.key,
            halves=source.halves,
            pairs=source.carried,
            made_of=tuple(each.name for each in source.origins),
            ranked=source.ranked,
            counted_from={each: self.counted_from.get(each, {}).get(partition, 0) for each in source.ranked},
            most_bytes=source.contract.most_record_bytes,
        )


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        yield start, min(end, start + _PIECE_OFFSETS)
        start += _PIECE_OFFSETS
