"""`Audit`: takes a cut, reads what lies before it and what became of it, compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from contracts.settings import Settings
from services.alerting.rules.rulebook import SERVICE as ALERTING
from services.alerting.rules.rulebook import Rulebook
from services.audit.counting import aggregation
from services.audit.cut import DAY_MS, Cut
from services.audit.hops.alerts import Alarm, by_topic, undecodable
from services.audit.hops.branches import Branches
from services.audit.hops.derived import Derivation, Made
from services.audit.hops.hop import HOPS, Hop
from services.audit.hops.landed import Landing
from services.audit.intake import Intake
from services.audit.plan import Plan, Source
from services.audit.records.rules_history import RulesHistory
from services.audit.records.window import Where
from services.audit.report import Report
from services.audit.sources.broker import Broker
from services.audit.sources.lake_table import LakeTable, Rows, TableReading, read_files, split
from services.audit.sources.state_position import state_position
from services.audit.state import State
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import concatenated, offset_of, partition_of
from services.audit.values.shape import Shape
from services.audit.workers import Workers

WAIT_SECONDS = 150.0
"""Longer than the interval of real-time mode, whose positions are committed at its ends."""

LAKE = "lake"
"""The deployable that writes the tables: connector name of its dead letters."""


def begun_since(broker: Broker, plan: Plan, since: State) -> list[str]:
    """The pipelines that have run, and had not when the last clean audit was made: of what they were to derive it saw nothing."""
    seen = {topic for topic, audited in since.topics.items() if audited.resume}
    with_records = {topic for topic, audited in since.topics.items() if any(audited.ends.values())}
    made = (*plan.derived, *(source for source in plan.aggregates if source.aggregate is not None))
    return [
        str(source.by)
        for source in made
        if source.name not in seen and source.made_of.name in with_records and has_run(broker, source)
    ]


def has_run(broker: Broker, source: Source) -> bool:
    """Whether the pipeline that makes this topic of another ever has, here."""
    return bool(broker.taken_in(str(source.by), source.made_of.name)) or any(broker.ends(source.name).values())


class Audit:
    """One audit. Sources are read in the order of the flow: what derives from a record is looked for after it."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        rulebook: Rulebook,
        workers: Workers,
        *,
        since: State | None = None,
        wait_seconds: float = WAIT_SECONDS,
        hops: Sequence[Hop] = HOPS,
        at_least_once: bool = False,
        say: Callable[[str], None],
    ) -> None:
        """`since`: the last clean audit's state; None audits everything that is there. `wait_seconds`: how long all that
        follow may take to reach the cut, each. `at_least_once`: see `Derivation`.
        """
        self._s3, self._workers, self._since, self._hops = settings.s3, workers, since, hops
        self._plan = plan
        self._broker = Broker(settings.kafka.client_config())
        self._at_least_once = at_least_once
        self._cut = Cut(self._broker, since, wait_seconds, say)
        self._intake = Intake(settings, self._broker, self._plan, self._cut, workers)
        by_file = {
            source.name: [compiled.rule for compiled in rulebook.by_topic.get(source.key, ())]
            for source in plan.sources
        }
        self._rules = RulesHistory(by_file if Hop.ALERTS in hops else {})
        self._resume: dict[str, dict[int, int]] = {}
        self._rows_before: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._tallies: list[Tally] = []

    def run(self) -> Report:
        """Raises CouldNotAudit if something can't be read, or lags behind the cut for too long."""
        began = time.monotonic()
        findings: list[Finding] = []
        if Hop.ALERTS in self._hops:
            self._rules = self._intake.read_rules(self._rules)
        self._intake.read(self._plan.raw, self._rules)
        self._tallies += [tally for source in self._plan.raw for tally in self._sent(source)]
        derived = [source for source in self._plan.derived if self._has_run(source, Hop.DERIVED)]
        aggregates = [source for source in self._plan.aggregates if self._has_run(source, Hop.AGGREGATES)]
        counted = [source for source in aggregates if self._is_counted(source)]
        if Hop.DERIVED in self._hops:
            for source in derived:
                self._await_group(str(source.by), source.coordinates_of.name)
        for source in counted:
            self._await_group(str(source.by), source.made_of.name)
            self._await_state(source)
        later = self._ends_at_the_cut_of(counted)
        self._intake.read((*self._plan.derived, *self._plan.aggregates), self._rules)
        self._intake.read_later(later)
        if Hop.ALERTS in self._hops:
            for source in self._asked():
                self._await_group(ALERTING, source.name)
            self._renew_rules()
        self._intake.read([self._plan.alerts], RulesHistory({}))
        tables = {source.name: self._await_lake(source) for source in self._landed()}
        self._intake.read_dead_letters()
        if Hop.DERIVED in self._hops:
            findings += [finding for source in derived for finding in self._derivation(source)]
            findings += self._branches(derived)
        findings += [finding for source in counted for finding in self._aggregation(source)]
        for source in self._landed():
            findings += self._landing(source, tables[source.name])
        if Hop.ALERTS in self._hops:
            findings += self._alarms()
        self._tallies += [tally for tally in self._intake.passed_over.values() if tally.notes]
        since = None if self._since is None else self._since.at
        return Report(self._cut.at, since, time.monotonic() - began, self._tallies, findings)

    def state(self) -> State:
        """What the next audit begins with, if this one has found nothing wrong."""
        return self._cut.state(self._resume, self._rows_before, self._newest)

    def _has_run(self, source: Source, hop: Hop) -> bool:
        """Whether the pipeline has. One that never has is no loss: it is noted what it would have to do."""
        if has_run(self._broker, source):
            return True
        if hop in self._hops:
            what = "derived" if hop == Hop.DERIVED else "counted"
            self._note_raw(source, f"not {what}, for {source.by} has never run here")
        return False

    def _ends_at_the_cut_of(self, aggregates: Sequence[Source]) -> dict[str, dict[int, int]]:
        """By raw topic how far it goes when the cuts of its aggregates are taken, which have no records beyond that."""
        for source in aggregates:
            self._cut.window(source.name)
        return {raw: self._broker.ends(raw) for raw in {source.made_of.name for source in aggregates}}

    def _is_counted(self, source: Source) -> bool:
        """Whether its groups are to be counted again, and something tells how."""
        if Hop.AGGREGATES in self._hops and source.aggregate is None:
            self._note_raw(source, "whose groups are not counted again, for no entry of the aggregates file tells how")
        return Hop.AGGREGATES in self._hops and source.aggregate is not None

    def _note_raw(self, source: Source, text: str) -> None:
        raw = source.made_of.name
        tally = Tally(f"{raw} → {source.name}", raw)
        tally.notes[text] += sum(map(len, self._intake.records.get(raw, [])))
        self._tallies.append(tally)

    def _landed(self) -> list[Source]:
        return [each for each in self._plan.sources if each.lake_table is not None] if Hop.LAKE in self._hops else []

    def _asked(self) -> list[Source]:
        topics = self._rules.topics()
        sources = (*self._plan.raw, *self._plan.derived, *self._plan.aggregates)
        return [source for source in sources if source.name in topics]

    def _await_group(self, group: str, topic: str) -> None:
        needed = self._intake.needed(topic)
        self._cut.until_reached(
            f"the consumer group {group}", topic, needed, lambda: self._broker.taken_in(group, topic)
        )

    def _await_state(self, source: Source) -> None:
        """Until the groups themselves have all records before the cut: see `state_position`."""
        raw, by = source.made_of.name, str(source.by)

        def taken() -> dict[int, int] | None:
            return state_position(self._broker, self._s3, by, raw, source.name)

        if taken() is not None:
            self._cut.until_reached(f"the state of {by}", raw, self._intake.needed(raw), lambda: taken() or {})

    def _await_lake(self, source: Source) -> LakeTable:
        """The table, as it is when it has all records before the cut."""
        name, partitions = str(source.lake_table), self._cut.window(source.name).spans
        self._cut.until_reached(
            f"the lake table {name}",
            source.name,
            self._intake.needed(source.name),
            lambda: LakeTable(self._s3, name).positions(source.name, partitions),
        )
        # Opened anew: what it says of itself may be newer than what was opened to ask.
        return LakeTable(self._s3, name)

    def _renew_rules(self) -> None:
        """Rules that took over while records before the cut were evaluated: those are read again, to be asked anew."""
        rules = self._intake.read_rules(self._rules)
        if rules != self._rules:
            self._rules = rules
            self._intake.read(self._asked(), rules)

    def _sent(self, source: Source) -> Iterator[Tally]:
        """Event ids that the producers, or a join, sent more than once; of an incremental audit, since the last one."""
        records = self._intake.records[source.name]
        events = concatenated([part.event for part in records], np.uint64)
        at = concatenated([part.at for part in records], np.int64)
        _, firsts = np.unique(events, return_index=True)
        again = np.ones(len(at), np.bool_)
        again[firsts] = False
        again &= events != 0
        for partition in self._cut.window(source.name).spans:
            of = partition_of(at) == partition
            tally = Tally(
                "joined, and not joined again" if source.contract.is_join else "sent by producers",
                f"{source.name}/{partition}",
                int(of.sum()),
            )
            tally.notes["event ids sent before"] = int((again & of).sum())
            yield tally

    def _derivation(self, source: Source) -> Iterator[Finding]:
        raw = next(each for each in self._plan.raw if each.contract == source.raw)
        window, records = self._cut.window(raw.name), self._intake.records[source.name]
        made = Made(
            self._cut.window(source.name),
            concatenated([part.at for part in records], np.int64),
            concatenated([part.source for part in records], np.int64),
            concatenated([part.part for part in records], np.int64),
        )
        dead = self._intake.set_aside(raw, raw, str(source.by))
        set_aside = Made(
            self._cut.window(raw.contract.dead_letter_topic),
            np.array([each.at for each, _ in dead], np.int64),
            np.array([place for _, place in dead], np.int64),
        )
        derivation = Derivation(
            window,
            self._intake.records[raw.name],
            made,
            records,
            set_aside,
            np.array([each.payload for each, _ in dead], np.uint64),
            self._intake.purged(raw, raw, str(source.by)),
            self._broker.ends(raw.name, stable=False),
            source.recomputed.lookups.fields if source.recomputed is not None else (),
            self._cut.at_ms - source.contract.retention_days * DAY_MS,
            redriven=self._intake.redriven(raw),
            at_least_once=self._at_least_once,
            is_filtered=source.contract.is_filtered,
            has_parts=source.contract.has_parts,
        )
        yield from derivation.findings()
        for tally in derivation.tallies.values():
            for name in source.unproven:
                tally.notes[f"values of {name} taken as they are: no lookup tells them"] += tally.records
        self._tallies += derivation.tallies.values()
        self._resume[source.name] = made.resume(window)

    def _branches(self, derived: Sequence[Source]) -> Iterator[Finding]:
        """Of each pipeline that has made several of these topics of a raw one."""
        by_pipeline: dict[tuple[str, str], list[Source]] = {}
        for source in derived:
            by_pipeline.setdefault((source.coordinates_of.name, str(source.by)), []).append(source)
        for (raw, _), made in by_pipeline.items():
            if len(made) < 2:
                continue
            records = self._intake.records
            at = concatenated([part.at for part in records[raw]], np.int64)
            of = {
                source.name: concatenated([part.source for part in records[source.name]], np.int64) for source in made
            }
            branches = Branches(self._cut.window(raw), at, of)
            yield from branches.findings()
            self._tallies += branches.tallies.values()

    def _aggregation(self, source: Source) -> Iterator[Finding]:
        since = None if self._since is None else self._since.newest.get(source.name)
        made = aggregation(source, self._plan, self._intake, self._cut, self._broker, since)
        yield from made.findings()
        for name, tally in made.tallies.items():
            for field in source.unproven if name.startswith(f"{source.name}/") else ():
                tally.notes[f"values of {field} taken as they are: they are not counts"] += tally.records
        self._tallies += made.tallies.values()
        # The newest record of a group may be any, so all are read each time.
        self._resume[source.name] = dict.fromkeys(self._cut.window(source.name).spans, 0)
        if made.newest is not None:
            self._newest[source.name] = made.newest

    def _landing(self, source: Source, table: LakeTable) -> Iterator[Finding]:
        window = self._cut.window(source.name)
        files = table.files({partition: span.audited for partition, span in window.spans.items()})
        readings = [
            TableReading(self._s3, group, source.schema, source.coordinates_of.name, source.contract.has_parts)
            for group in split(files, self._workers.processes)
        ]
        rows: list[Rows] = self._workers.run([(read_files, (each,)) for each in readings], sum(f.rows for f in files))
        landing = Landing(
            window,
            source.coordinates_of.name,
            str(source.lake_table),
            self._intake.records[source.name],
            rows,
            self._broker.ends(source.name, stable=False),
            own_coordinate="coordinate" not in Shape(source.schema).columns,
            is_compacted=source.contract.is_aggregate,
        )
        dead = np.array([place for _, place in self._intake.set_aside(source, source, LAKE)], np.int64)
        purged = self._intake.purged(source, source, LAKE)
        redriven = self._intake.redriven(source)
        yield from landing.findings(dead, purged, redriven, self._audited_before(source))
        before = None if self._since is None else self._since.rows.get(str(source.lake_table))
        yield from landing.row_count(table.rows(), before)
        self._rows_before[str(source.lake_table)] = landing.rows_before_the_cut(table.rows())
        for tally in landing.tallies.values():
            for name in Shape(source.schema).skipped:
                tally.notes[f"values of {name} not compared, for it has several types"] += tally.records
            self._tallies.append(tally)

    def _audited_before(self, source: Source) -> npt.NDArray[np.bool_]:
        """For each record whether it is a repeat of one that an earlier audit has seen."""
        records = self._intake.records[source.name]
        places = concatenated([part.source for part in records], np.int64)
        if source.raw is None:
            return np.zeros(len(places), np.bool_)
        revisions = concatenated([part.revision for part in records], np.int64)
        redriven = concatenated([part.redriven for part in records], np.bool_)
        before = self._cut.window(source.raw.name).where(places) == Where.BEFORE
        seen: npt.NDArray[np.bool_] = before & ((revisions == 0) | redriven)
        return seen

    def _alarms(self) -> Iterator[Finding]:
        topic = self._plan.alerts.name
        raised = self._intake.read_alerts()
        yield from undecodable(raised, topic)
        found = by_topic(raised)
        ahead: list[int] = []
        for source in self._asked():
            raw = source.coordinates_of.name
            alarm = Alarm(
                self._cut.window(source.name),
                self._cut.window(raw),
                self._intake.records[source.name],
                found.pop(source.name, []),
                self._rules,
                self._broker.ends(raw, stable=False),
                has_parts=source.contract.has_parts,
                is_compacted=source.contract.is_aggregate,
            )
            of = source, self._plan.alerts, ALERTING
            settled = {*self._intake.purged(*of).tolist(), *self._intake.redriven(source).tolist()}
            yield from alarm.findings({at for _, at in self._intake.set_aside(*of)}, settled)
            self._tallies += alarm.tallies.values()
            ahead += alarm.ahead
        for name, others in found.items():
            for each in others:
                assert each.alert is not None
                yield Finding("phantom", f"{name} → alerts", name, each.alert.coordinate, "no rule is about this topic")
        self._resume[topic] = {
            partition: min([span.end, *(offset_of(at) for at in ahead if partition_of(at) == partition)])
            for partition, span in self._cut.window(topic).spans.items()
        }
