"""`Audit`: takes a cut, reads what lies before it and what became of it, compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from contracts.catalog import Catalog
from contracts.settings import Settings
from services.alerting.rulebook import SERVICE as ALERTING
from services.alerting.rulebook import Rulebook
from services.audit.alerts import Alarm, Raised, by_topic, read_alerts, undecodable
from services.audit.broker import Broker
from services.audit.dead_letters import DeadLetter, dead_letters, purged
from services.audit.derived import Derivation, Made
from services.audit.errors import CouldNotAudit
from services.audit.finding import Finding, Tally
from services.audit.hop import HOPS, Hop
from services.audit.lake_table import LakeTable, Rows, TableReading, read_files, split
from services.audit.landed import Landing
from services.audit.place import NOWHERE, Codes, concatenated, offset_of, parsed_one, partition_of
from services.audit.plan import Plan, Source, plan
from services.audit.records import Reading, Records, read
from services.audit.report import Report
from services.audit.rules_history import RulesHistory, read_activations
from services.audit.shape import Shape
from services.audit.state import Audited, State
from services.audit.window import Span, Where, Window
from services.audit.workers import Job, Workers

LAKE = "lake"
"""The deployable that writes the tables: connector name of its dead letters."""

_PIECE_OFFSETS = 250_000
"""Longer ranges are read in pieces, side by side."""

_LOOK_SECONDS = 0.2


class Audit:
    """One audit. Sources are read once each, in the order of the flow: what derives from a record is looked for after it."""

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        rulebook: Rulebook,
        workers: Workers,
        *,
        since: State | None = None,
        wait_seconds: float = 60.0,
        hops: Sequence[Hop] = HOPS,
    ) -> None:
        """`since`: the last clean audit's state; None audits everything that is there. `wait_seconds`: how long all that
        follow may take to reach the cut, each.
        """
        self._settings, self._workers, self._since, self._hops = settings, workers, since, hops
        self._kafka = settings.kafka.client_config()
        self._broker = Broker(self._kafka)
        self._plan: Plan = plan(catalog)
        self._rules = {
            topic.name: [compiled.rule for compiled in rulebook.by_topic.get(key, ())]
            for key, topic in catalog.topics.items()
        }
        self._history = RulesHistory([], self._rules)
        self._wait_seconds = wait_seconds
        self._ids: dict[str, str] = {}
        self._windows: dict[str, Window] = {}
        self._records: dict[str, list[Records]] = {}
        self._resume: dict[str, dict[int, int]] = {}
        self._rows_before: dict[str, int] = {}
        self._purged: list[str] = []
        self._dead: dict[str, list[DeadLetter]] = {}
        self._tallies: list[Tally] = []

    def run(self) -> Report:
        """Raises CouldNotAudit if something can't be read, or lags behind the cut for too long."""
        began, cut_at = time.monotonic(), _now()
        findings: list[Finding] = []
        self._history = self._read_history()
        self._read(self._plan.raw)
        self._tallies += [tally for source in self._plan.raw for tally in self._sent(source)]
        if Hop.DERIVED in self._hops:
            for source in self._plan.derived:
                self._await_group(str(source.by), source.coordinates_of.name)
        self._read(self._plan.derived)
        if Hop.ALERTS in self._hops:
            for source in self._asked():
                self._await_group(ALERTING, source.name)
            self._renew_history()
        self._read([self._plan.alerts])
        tables = {source.name: self._await_lake(source) for source in self._landed()}
        self._read_dead_letters()
        if Hop.DERIVED in self._hops:
            for source in self._plan.derived:
                findings += self._derivation(source)
        for source in self._landed():
            findings += self._landing(source, tables[source.name])
        if Hop.ALERTS in self._hops:
            findings += self._alarms()
        since = None if self._since is None else self._since.at
        self.state = self._state(cut_at)
        return Report(cut_at, since, time.monotonic() - began, self._tallies, findings)

    def _landed(self) -> list[Source]:
        return [each for each in self._plan.sources if each.lake_table is not None] if Hop.LAKE in self._hops else []

    def _asked(self) -> list[Source]:
        topics = self._history.topics()
        return [source for source in (*self._plan.raw, *self._plan.derived) if source.name in topics]

    def _read_history(self) -> RulesHistory:
        topic = self._plan.activations.name
        starts, ends = self._broker.starts(topic), self._broker.ends(topic)
        events = [
            event
            for partition, start in starts.items()
            for event in read_activations(
                self._kafka, self._settings.registry, topic, partition, start, ends[partition]
            )
        ]
        return RulesHistory(events, self._rules)

    def _renew_history(self) -> None:
        """Rules that took over while records before the cut were evaluated: those are read again, to be asked anew."""
        history = self._read_history()
        if history != self._history:
            self._history = history
            self._read(self._asked())

    # Cuts

    def _window(self, topic: str) -> Window:
        """The topic's window, up to its end at the first call."""
        if topic not in self._windows:
            topic_id = self._broker.topic_id(topic)
            if topic_id is None:
                raise CouldNotAudit(f"there is no topic {topic}: `headrace topics create` makes the contracts' topics")
            self._ids[topic] = topic_id
            before = self._since.topics.get(topic) if self._since is not None else None
            if before is not None and before.topic_id != topic_id:
                raise CouldNotAudit(f"{topic} was made anew since the last clean audit: run with --full")
            starts, ends = self._broker.starts(topic), self._broker.ends(topic)
            spans = {}
            for partition, low in starts.items():
                audited = before.ends.get(partition, 0) if before is not None else 0
                reread = before.resume.get(partition, audited) if before is not None else 0
                spans[partition] = Span(low, audited, ends[partition], reread)
            self._windows[topic] = Window(topic, dict(sorted(spans.items())))
        return self._windows[topic]

    def _needed(self, topic: str) -> dict[int, int]:
        """For each partition with records in the window the offset after the last: whoever handled all has come so far.

        The cut itself may lie behind transaction markers, which nobody handles.
        """
        window = self._windows[topic]
        needed: dict[int, int] = {}
        for part in self._records[topic]:
            inside = part.at[window.where(part.at) == Where.INSIDE]
            if len(inside):
                needed[part.partition] = offset_of(int(inside[-1])) + 1
        return needed

    def _await_group(self, group: str, topic: str) -> None:
        self._await(f"the consumer group {group}", topic, lambda: self._broker.taken_in(group, topic))

    def _await_lake(self, source: Source) -> LakeTable:
        """The table, as it is when it has all records before the cut."""
        opened: list[LakeTable] = []

        def positions() -> dict[int, int]:
            opened[:] = [LakeTable(self._settings.s3, str(source.lake_table))]
            return opened[0].positions(source.name, self._windows[source.name].spans)

        self._await(f"the lake table {source.lake_table}", source.name, positions)
        return opened[0]

    def _await(self, who: str, topic: str, taken: Callable[[], Mapping[int, int]]) -> None:
        """Only to wait: what is there is judged by the records."""
        needed = self._needed(topic)
        until = time.monotonic() + self._wait_seconds
        while True:
            found = taken()
            behind = {p: offset for p, offset in needed.items() if found.get(p, 0) < offset}
            if not behind:
                return
            if time.monotonic() > until:
                where = ", ".join(
                    f"{topic}/{p} at offset {found.get(p, 'none')} of {offset}" for p, offset in behind.items()
                )
                raise CouldNotAudit(
                    f"{who} has not reached the cut after {self._wait_seconds:g} s: {where}. Is it running? "
                    "--wait SECONDS waits longer, --hop leaves it out"
                )
            time.sleep(_LOOK_SECONDS)

    # Reading

    def _read(self, sources: Sequence[Source]) -> None:
        """Every source up to its own end now, all side by side."""
        jobs: list[Job] = []
        owners: list[str] = []
        offsets = 0
        for source in sources:
            self._records[source.name] = []
            for partition, span in self._window(source.name).spans.items():
                for start, end in _pieces(span.read_from, span.end):
                    jobs.append((read, (self._reading(source, partition, start, end),)))
                    owners.append(source.name)
                    offsets += end - start
        for name, found in zip(owners, self._workers.run(jobs, offsets), strict=True):
            self._records[name].append(found)

    def _reading(self, source: Source, partition: int, start: int, end: int) -> Reading:
        rules = self._history.uses(source.name, partition) if Hop.ALERTS in self._hops else ()
        decoded = source.shared or rules or source.lake_table is not None
        return Reading(
            kafka=self._kafka,
            registry=self._settings.registry,
            topic=source.name,
            partition=partition,
            start=start,
            end=end,
            schema=source.schema if decoded else None,
            source=None if source.raw is None else source.raw.name,
            shared=source.shared,
            rules=rules,
            occurred_at=source.contract.occurred_at,
        )

    def _read_dead_letters(self) -> None:
        for source in self._plan.sources:
            topic = source.contract.dead_letter_topic
            # Few, so all are read each time: those of records ahead of the last cut need no book-keeping then.
            self._dead[topic] = [
                each
                for partition, span in self._window(topic).spans.items()
                for each in dead_letters(self._kafka, topic, partition, span.low, span.end)
            ]
        ledger = self._plan.ledger.name
        for partition, span in self._window(ledger).spans.items():
            self._purged += purged(self._kafka, self._settings.registry, ledger, partition, span.low, span.end)

    def _set_aside(self, source: Source, by: str) -> list[tuple[DeadLetter, int]]:
        """The dead letters that `by` put on the topic's dead-letter topic, with the places of their records."""
        found = (each for each in self._dead[source.contract.dead_letter_topic] if each.by == by)
        return [(each, parsed_one(source.name, each.coordinate)) for each in found]

    def _purged_of(self, topic: str) -> Codes:
        places = (parsed_one(topic, coordinate) for coordinate in self._purged if coordinate.startswith(f"{topic}/"))
        return np.array([place for place in places if place != NOWHERE], np.int64)

    # Comparing

    def _sent(self, source: Source) -> Iterator[Tally]:
        """Event ids that the producers sent more than once; of an incremental audit, since the last one."""
        records = self._records[source.name]
        events = concatenated([part.event for part in records], np.uint64)
        at = concatenated([part.at for part in records], np.int64)
        _, firsts = np.unique(events, return_index=True)
        again = np.ones(len(at), np.bool_)
        again[firsts] = False
        again &= events != 0
        for partition in self._windows[source.name].spans:
            of = at >> 44 == partition
            tally = Tally("sent by producers", f"{source.name}/{partition}", int(of.sum()))
            tally.notes["event ids sent before"] = int((again & of).sum())
            yield tally

    def _derivation(self, source: Source) -> Iterator[Finding]:
        raw = next(each for each in self._plan.raw if each.contract == source.raw)
        records = self._records[source.name]
        made = Made(
            self._windows[source.name],
            concatenated([part.at for part in records], np.int64),
            concatenated([part.source for part in records], np.int64),
        )
        dead = self._set_aside(raw, str(source.by))
        set_aside = Made(
            self._windows[raw.contract.dead_letter_topic],
            np.array([each.at for each, _ in dead], np.int64),
            np.array([place for _, place in dead], np.int64),
        )
        derivation = Derivation(
            self._windows[raw.name],
            self._records[raw.name],
            made,
            records,
            set_aside,
            np.array([each.payload for each, _ in dead], np.uint64),
            self._purged_of(raw.name),
            self._broker.ends(raw.name, stable=False),
        )
        yield from derivation.findings()
        self._tallies += derivation.tallies.values()
        self._resume[source.name] = made.resume(self._windows[raw.name])

    def _landing(self, source: Source, table: LakeTable) -> Iterator[Finding]:
        window = self._windows[source.name]
        starts = {partition: span.audited for partition, span in window.spans.items()}
        files = table.files(starts)
        readings = [
            TableReading(self._settings.s3, group, source.schema, source.coordinates_of.name)
            for group in split(files, self._workers.processes)
        ]
        rows: list[Rows] = self._workers.run([(read_files, (each,)) for each in readings], sum(f.rows for f in files))
        landing = Landing(
            window,
            source.coordinates_of.name,
            str(source.lake_table),
            self._records[source.name],
            rows,
            self._broker.ends(source.name, stable=False),
            own_coordinate="coordinate" not in Shape(source.schema).columns,
        )
        dead = np.array([place for _, place in self._set_aside(source, LAKE)], np.int64)
        yield from landing.findings(dead, self._purged_of(source.name), self._audited_before(source))
        yield from self._row_count(source, table, rows)
        self._tallies += landing.tallies.values()

    def _audited_before(self, source: Source) -> Any:
        """For each record whether it is a repeat of one that an earlier audit has seen."""
        records = self._records[source.name]
        places = concatenated([part.source for part in records], np.int64)
        if source.raw is None:
            return np.zeros(len(places), np.bool_)
        revisions = concatenated([part.revision for part in records], np.int64)
        return (self._windows[source.raw.name].where(places) == Where.BEFORE) & (revisions == 0)

    def _row_count(self, source: Source, table: LakeTable, rows: Sequence[Rows]) -> Iterator[Finding]:
        """Rows that an earlier audit has seen are not compared again, but must still be as many."""
        window, name = self._windows[source.name], str(source.lake_table)
        at = concatenated([part.at for part in rows], np.int64)
        beyond = np.zeros(len(at), np.bool_)
        fresh = np.zeros(len(at), np.bool_)
        for partition, span in window.spans.items():
            of = at >> 44 == partition
            offsets = at & (1 << 44) - 1
            fresh |= of & (offsets >= span.audited)
            beyond |= of & (offsets >= span.end)
        total = table.rows()
        expected = None if self._since is None else self._since.rows.get(name)
        found = total - int(fresh.sum())
        if expected is not None and found != expected:
            yield Finding(
                "lost" if found < expected else "doubled",
                f"{source.name} → lake",
                source.name,
                name,
                f"{found:,} rows of records that the last clean audit has seen, and there were {expected:,}: "
                "--full says which",
            )
        self._rows_before[name] = total - int(beyond.sum())

    def _alarms(self) -> Iterator[Finding]:
        topic = self._plan.alerts.name
        raised: list[Raised] = [
            each
            for partition, span in self._windows[topic].spans.items()
            for each in read_alerts(self._kafka, self._settings.registry, topic, partition, span.read_from, span.end)
        ]
        yield from undecodable(raised, topic)
        found = by_topic(raised)
        set_aside = [each for each in self._dead[self._plan.alerts.contract.dead_letter_topic] if each.by == ALERTING]
        ahead: list[int] = []
        for source in self._asked():
            alarm = Alarm(
                self._windows[source.name],
                self._windows[source.coordinates_of.name],
                self._records[source.name],
                found.pop(source.name, []),
                self._history,
                self._broker.ends(source.coordinates_of.name, stable=False),
            )
            dead = {parsed_one(source.name, each.coordinate) for each in set_aside}
            yield from alarm.findings(dead)
            self._tallies += alarm.tallies.values()
            ahead += alarm.ahead
        for name, others in found.items():
            for each in others:
                assert each.alert is not None
                yield Finding("phantom", f"{name} → alerts", name, each.alert.coordinate, "no rule is about this topic")
        self._resume[topic] = {
            partition: min([span.end, *(offset_of(at) for at in ahead if partition_of(at) == partition)])
            for partition, span in self._windows[topic].spans.items()
        }

    def _state(self, cut_at: str) -> State:
        return State(
            at=cut_at,
            topics={
                topic: Audited(
                    topic_id=self._ids[topic],
                    ends={partition: span.end for partition, span in window.spans.items()},
                    resume=self._resume.get(topic, {}),
                )
                for topic, window in self._windows.items()
            },
            rows=self._rows_before,
        )


def _pieces(start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        yield start, min(end, start + _PIECE_OFFSETS)
        start += _PIECE_OFFSETS


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
