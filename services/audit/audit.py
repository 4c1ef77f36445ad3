"""`Audit`: takes a cut, reads what lies before it and what became of it, compares."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from contracts.settings import Settings
from services.alerting.rules.rulebook import SERVICE as ALERTING
from services.alerting.rules.rulebook import Rulebook
from services.audit.aggregates.letters import FOREVER
from services.audit.counting import aggregations, kept_as
from services.audit.cut import DAY_MS, Cut
from services.audit.folding import Foldings
from services.audit.followers import Followers, has_run
from services.audit.hops.alerts import Alarm, by_topic, undecodable
from services.audit.hops.branches import Branches
from services.audit.hops.derived import CLOCKS_DIFFER_MS, Derivation, Made
from services.audit.hops.hop import HOPS, Hop
from services.audit.hops.landed import Landing
from services.audit.hops.newest import NewestLanding
from services.audit.hops.sent import sent
from services.audit.intake import Intake
from services.audit.pairing import Pairing
from services.audit.plan import Plan, Source
from services.audit.ranking import Rankings, ranked_otherwise
from services.audit.records.rules_history import RulesHistory
from services.audit.records.window import Where
from services.audit.report import Report
from services.audit.sources.broker import Broker
from services.audit.sources.lake_table import LakeTable, Rows, TableReading, read_files, split
from services.audit.sources.state_position import noted_run
from services.audit.sources.workers import Workers
from services.audit.state import Paired, Ranked, State
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import concatenated, offset_of, partition_of
from services.audit.values.shape import Shape

WAIT_SECONDS = 150.0
"""Longer than the interval of real-time mode, whose positions are committed at its ends."""

LAKE = "lake"
"""The deployable that writes the tables: connector name of its dead letters."""


def begun_since(broker: Broker, plan: Plan, since: State) -> list[str]:
    """The pipelines that have run, and had not when the last clean audit was made, or not with all their topics: of what they were to derive it saw nothing. Those with an aggregate
    or a list of another run, which may have counted otherwise what that audit saw, or with a list that was told otherwise. And the tables that have the newest record of each key, of which it has not read the topic whole.
    """
    seen = {topic for topic, audited in since.topics.items() if audited.resume}
    with_records = {topic for topic, audited in since.topics.items() if any(audited.ends.values())}
    told = [
        *(each for each in plan.aggregates if each.aggregate),
        *(each for each in plan.joins if each.join),
        *plan.distinct,
        *(each for each in plan.rankings if each.ranking),
    ]
    made = (*plan.derived, *told)
    # Of these all was read, if their tables were there.
    whole = {topic for topic in seen if not any(since.topics[topic].resume.values())}
    newest = [
        each for each in plan.sources if each.contract.lands_newest and each.name in with_records.difference(whole)
    ]
    return [str(each.lake_table) for each in newest] + [
        str(source.by)
        for source in made
        if (
            source.name not in seen
            or (source in plan.aggregates and _has_another(broker, source, since))
            or (source.ranking is not None and ranked_otherwise(broker, source, source.ranking, since))
        )
        and any(each.name in with_records for each in source.origins)
        and has_run(broker, source)
    ]


def _has_another(broker: Broker, source: Source, since: State) -> bool:
    """Whether an aggregate counts a topic that it did not count at the last clean audit, or is of another run."""
    counts_another = any(kept_as(source, raw) not in since.newest for raw in source.origins)
    return counts_another or since.runs.get(source.name) != noted_run(broker, str(source.by), source.name).run


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
        last: State | None = None,
        wait_seconds: float = WAIT_SECONDS,
        hops: Sequence[Hop] = HOPS,
        at_least_once: bool = False,
        say: Callable[[str], None],
    ) -> None:
        """`since`: the last clean audit's state; None audits everything that is there. `last`: the same where lists are counted on from it all the same. `wait_seconds`: how long all that
        follow may take to reach the cut, each. `at_least_once`: see `Derivation`.
        """
        self._settings = settings
        self._s3, self._workers, self._since, self._hops = settings.s3, workers, since, hops
        self._plan, self._last = plan, since or last
        self._broker = Broker(settings.kafka.client_config())
        self._at_least_once = at_least_once
        self._cut = Cut(self._broker, since, wait_seconds, say)
        self._intake = Intake(settings, self._broker, self._plan, self._cut, workers)
        self._followers = Followers(self._broker, settings.s3, self._cut, self._intake)
        by_file = {
            source.name: [compiled.rule for compiled in rulebook.by_topic.get(source.key, ())]
            for source in plan.sources
        }
        self._rules = RulesHistory(by_file if Hop.ALERTS in hops else {})
        self._resume: dict[str, dict[int, int]] = {}
        self._rows_before: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        # Of one that begins while this audit goes on, the next one looks at everything.
        self._runs = {} if since is None else dict(since.runs)
        self._paired: dict[str, Paired] = {}
        self._ranked: dict[str, Ranked] = {}
        self._tallies: list[Tally] = []

    def run(self) -> Report:
        """Raises CouldNotAudit if something can't be read, or lags behind the cut for too long."""
        began = time.monotonic()
        findings: list[Finding] = []
        if Hop.ALERTS in self._hops:
            self._rules = self._intake.read_rules(self._rules)
        rankings = Rankings(
            self._settings,
            self._plan,
            self._intake,
            self._cut,
            self._broker,
            self._followers,
            self._last,
        )
        rankings.begin(self._hops)
        self._intake.read(self._plan.raw, self._rules)
        self._tallies += [
            tally
            for source in self._plan.raw
            for tally in sent("sent by producers", self._cut.window(source.name), self._intake.records[source.name])
        ]
        before = {} if self._since is None else self._since.pairs
        pairing = Pairing(self._plan, self._intake, self._cut, self._broker, self._followers, before)
        pairing.read(self._rules, self._hops)
        rankings.read(self._rules)
        derived = [source for source in self._plan.derived if self._has_run(source, Hop.DERIVED)]
        aggregates = [source for source in self._plan.aggregates if self._has_run(source, Hop.AGGREGATES)]
        counted = [source for source in aggregates if self._is_counted(source)]
        if Hop.DERIVED in self._hops:
            for source in derived:
                self._followers.await_group(str(source.by), source.coordinates_of.name)
        for source in counted:
            self._runs.setdefault(source.name, noted_run(self._broker, str(source.by), source.name).run)
            self._followers.await_stateful(source)
        later = self._cut.ends_behind(
            [source.name for source in counted], [each.name for source in counted for each in source.origins]
        )
        self._intake.read((*self._plan.derived, *self._plan.aggregates), self._rules)
        self._intake.read_later(later)
        if Hop.ALERTS in self._hops:
            for source in self._asked():
                self._followers.await_group(ALERTING, source.name)
            self._renew_rules()
        self._intake.read([self._plan.alerts], RulesHistory({}))
        tables = {source.name: self._followers.await_lake(source) for source in self._landed()}
        self._intake.read_dead_letters()
        if Hop.DERIVED in self._hops:
            findings += [finding for source in derived for finding in self._derivation(source)]
            findings += self._branches(derived)
            foldings = Foldings(self._settings, self._plan, self._broker, self._workers)
            findings += foldings.findings(part for source in derived for part in self._intake.records[source.name])
            self._tallies += foldings.tallies
        findings += [finding for source in counted for finding in self._aggregation(source)]
        findings += pairing.findings()
        self._tallies += pairing.tallies
        self._resume |= pairing.resume
        self._paired |= pairing.seen
        findings += rankings.findings()
        self._tallies += rankings.tallies
        self._resume |= rankings.resume
        self._ranked = rankings.seen
        for source in self._landed():
            landing = self._newest_landing if source.contract.lands_newest else self._landing
            findings += landing(source, tables[source.name])
        if Hop.ALERTS in self._hops:
            findings += self._alarms()
        self._tallies += [tally for tally in self._intake.passed_over.values() if tally.notes]
        since = None if self._since is None else self._since.at
        return Report(self._cut.at, since, time.monotonic() - began, self._tallies, findings)

    def state(self) -> State:
        """What the next audit begins with, if this one has found nothing wrong."""
        return self._cut.state(self._resume, self._rows_before, self._newest, self._runs, self._paired, self._ranked)

    def _has_run(self, source: Source, hop: Hop) -> bool:
        """Whether the pipeline has. One that never has is no loss: it is noted what it would have to do."""
        if self._followers.has_run(source):
            return True
        if hop in self._hops:
            what = "derived" if hop == Hop.DERIVED else "counted"
            self._tallies += self._intake.not_made(source, f"not {what}, for {source.by} has never run here")
        return False

    def _is_counted(self, source: Source) -> bool:
        """Whether its groups are to be counted again, and something tells how."""
        if Hop.AGGREGATES in self._hops and source.aggregate is None:
            why = "whose groups are not counted again, for no entry of the aggregates file tells how"
            self._tallies += self._intake.not_made(source, why)
        return Hop.AGGREGATES in self._hops and source.aggregate is not None

    def _landed(self) -> list[Source]:
        return [each for each in self._plan.sources if each.lake_table is not None] if Hop.LAKE in self._hops else []

    def _asked(self) -> list[Source]:
        topics = self._rules.topics()
        sources = (*self._plan.roots, *self._plan.derived, *self._plan.aggregates, *self._plan.rankings)
        return [source for source in sources if source.name in topics]

    def _renew_rules(self) -> None:
        """Rules that took over while records before the cut were evaluated: those are read again, to be asked anew."""
        rules = self._intake.read_rules(self._rules)
        if rules != self._rules:
            self._rules = rules
            self._intake.read(self._asked(), rules)

    def _derivation(self, source: Source) -> Iterator[Finding]:
        raw = next(each for each in self._plan.roots if each.contract == source.raw)
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
        since = {} if self._since is None else self._since.newest
        by_topic = aggregations(source, self._plan, self._intake, self._cut, self._broker, since)
        for raw, made in zip(source.origins, by_topic, strict=True):
            yield from made.findings()
            for name, tally in made.tallies.items():
                for field in source.unproven if name.startswith(f"{source.name}/") and made is by_topic[0] else ():
                    tally.notes[f"values of {field} taken as they are: they are not counts"] += tally.records
            self._tallies += made.tallies.values()
            # Even if nobody knows: what is not kept was never counted.
            self._newest[kept_as(source, raw)] = FOREVER if made.newest is None else made.newest
        # The newest record of a group may be any, so all are read each time.
        self._resume[source.name] = dict.fromkeys(self._cut.window(source.name).spans, 0)

    def _landing(self, source: Source, table: LakeTable) -> Iterator[Finding]:
        window = self._cut.window(source.name)
        rows = self._rows_of(source, table, {partition: span.audited for partition, span in window.spans.items()})
        landing = Landing(
            window,
            source.coordinates_of.name,
            str(source.lake_table),
            self._intake.records[source.name],
            rows,
            self._broker.ends(source.name, stable=False),
            own_coordinate="coordinate" not in Shape(source.schema).columns,
            is_compacted=source.contract.is_compacted,
            expired_ms=self._letters_expired_ms(source),
        )
        dead = np.array([place for _, place in self._intake.set_aside(source, source, LAKE)], np.int64)
        purged = self._intake.purged(source, source, LAKE)
        redriven = self._intake.redriven(source)
        yield from landing.findings(dead, purged, redriven, self._audited_before(source))
        before = None if self._since is None else self._since.rows.get(str(source.lake_table))
        yield from landing.row_count(table.rows(), before)
        self._rows_before[str(source.lake_table)] = landing.rows_before_the_cut(table.rows())
        self._told(source, landing.tallies.values())

    def _newest_landing(self, source: Source, table: LakeTable) -> Iterator[Finding]:
        """Of a table that has the newest record of each key, which may be any: all is read, and what came until the table's own position, too."""
        landing, found = self._newest_compared(source, table)
        if found:
            # Compaction may have gone over the topic while it was read: what is wrong is wrong a second time, as in `Foldings`.
            _, again = self._newest_compared(source, LakeTable(self._s3, str(source.lake_table)))
            wrong = {(each.kind, each.coordinate) for each in again}
            found = [each for each in found if (each.kind, each.coordinate) in wrong]
        yield from found
        self._told(source, landing.tallies.values())
        self._resume[source.name] = dict.fromkeys(self._cut.window(source.name).spans, 0)

    def _newest_compared(self, source: Source, table: LakeTable) -> tuple[NewestLanding, list[Finding]]:
        window = self._cut.window(source.name)
        ends = self._broker.ends(source.name)
        landing = NewestLanding(
            window,
            str(source.lake_table),
            [*self._intake.records[source.name], *self._intake.read_behind(source, ends)],
            self._rows_of(source, table, {}),
            table.positions(source.name, ends),
            own_coordinate="coordinate" not in Shape(source.schema).columns,
            expired_ms=self._letters_expired_ms(source),
        )
        dead = np.array([place for _, place in self._intake.set_aside(source, source, LAKE)], np.int64)
        purged, redriven = self._intake.purged(source, source, LAKE), self._intake.redriven(source)
        return landing, [*landing.findings(dead, purged, redriven)]

    def _letters_expired_ms(self, source: Source) -> int:
        """Up to when a record was sent whose dead letter may be deleted by now, while the record itself is kept without end."""
        letters = self._cut.window(source.contract.dead_letter_topic)
        if not source.contract.is_compacted or not any(span.low > 0 for span in letters.spans.values()):
            return 0
        return self._cut.at_ms - source.contract.dead_letters.retention_days * DAY_MS + CLOCKS_DIFFER_MS

    def _rows_of(self, source: Source, table: LakeTable, starts: Mapping[int, int]) -> list[Rows]:
        """At or after these offsets."""
        files = table.files(starts)
        readings = [
            TableReading(self._s3, group, source.schema, source.coordinates_of.name, source.contract.has_parts)
            for group in split(files, self._workers.processes)
        ]
        found: list[Rows] = self._workers.run([(read_files, (each,)) for each in readings], sum(f.rows for f in files))
        return found

    def _told(self, source: Source, tallies: Iterable[Tally]) -> None:
        for tally in tallies:
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
                is_compacted=source.contract.is_compacted,
            )
            of = source, self._plan.alerts, ALERTING
            dead = {at for _, at in self._intake.set_aside(*of)}
            # Whoever's letter it was, the record was sent back once. Where alerting had none, that excuses nothing. Its own may have expired.
            sent_back = dead.intersection(self._intake.redriven(source).tolist())
            sent_back |= {*self._intake.redriven_for(*of).tolist()}
            settled = {*self._intake.purged(*of).tolist(), *sent_back}
            yield from alarm.findings(dead, settled)
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
