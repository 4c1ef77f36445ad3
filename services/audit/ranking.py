"""`Rankings`: reads the lists of a plan, and what they are made of, and ranks again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from contracts.settings import Settings
from services.audit.counting import letters_of
from services.audit.cut import Cut
from services.audit.declared.rankings import Ranking
from services.audit.followers import Followers
from services.audit.hops.hop import Hop
from services.audit.hops.sent import sent
from services.audit.intake import Intake
from services.audit.plan import Plan, Source
from services.audit.rankings.bad_records import BadRecords
from services.audit.rankings.newest_list import newest_list
from services.audit.rankings.ranked_list import Place, RankedList
from services.audit.records.records import Records
from services.audit.records.rules_history import RulesHistory
from services.audit.records.totals import Totals
from services.audit.sources.broker import Broker
from services.audit.sources.state_position import NotedRun, noted_run, position_behind
from services.audit.state import Ranked
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import Codes, concatenated, coordinate, offset_of, partition_of


class _Read(NamedTuple):
    """A list that is to be ranked again: the `places` of its newest batch, up to which offsets of the raw topic that goes, None if nobody tells, and
    what came between the cut and there; what its pipeline had noted `before` and `after` the list was read.
    """

    source: Source
    ranking: Ranking
    places: Sequence[Place]
    taken: Mapping[int, int] | None
    between: Sequence[Records]
    before: NotedRun
    after: NotedRun


class Rankings:
    """First everything is to be read, the dead letters too, then come the findings."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        intake: Intake,
        cut: Cut,
        broker: Broker,
        followers: Followers,
        before: Mapping[str, Ranked] | None,
    ) -> None:
        """`before`, by topic: the totals of the last clean audit; None without one."""
        self._settings, self._kafka = settings, settings.kafka.client_config()
        self._plan, self._intake, self._cut, self._broker, self._followers = plan, intake, cut, broker, followers
        self._before = before
        self._found: list[_Read] = []
        self.tallies: list[Tally] = []
        self.resume: dict[str, dict[int, int]] = {}
        """By list's topic where the next audit begins to read."""
        self.seen: dict[str, Ranked] = {}
        """For the next audit."""

    def read(self, rules: RulesHistory, hops: Collection[Hop]) -> None:
        """The lists' topics, each up to its end now, and, if their hop is among the `hops`, what their newest lists are made of. Raises CouldNotAudit."""
        for source in self._plan.rankings:
            is_compared = Hop.RANKINGS in hops and self._can_be_ranked(source)
            if is_compared:
                self._followers.await_stateful(source)
            before = self._noted(source)
            self._intake.read([source], rules)
            if is_compared and source.ranking is not None:
                self._found.append(self._read(source, source.ranking, before))
            else:
                window, records = self._cut.window(source.name), self._intake.records[source.name]
                self.tallies += sent("ranked, and not ranked again", window, records)

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        for read in self._found:
            yield from self._of(read)

    def _can_be_ranked(self, source: Source) -> bool:
        if not self._followers.has_run(source):
            self.tallies += self._intake.not_made(source, f"not ranked, for {source.by} has never run here")
            return False
        if source.ranking is None:
            why = "which are not ranked again, for no entry of the rankings file tells how"
            self.tallies += self._intake.not_made(source, why)
        return source.ranking is not None

    def _read(self, source: Source, ranking: Ranking, before: NotedRun) -> _Read:
        registry, raw = self._settings.registry, source.made_of.name
        places = newest_list(
            self._kafka,
            registry,
            source.name,
            source.contract.subject,
            source.schema,
            self._places(source),
            self._broker.starts(source.name)[0],
            self._cut.window(source.name).spans[0].end,
            time.monotonic() + registry.lag_seconds,
        )
        newest = next((each for each in places if each.batch >= 0), None)
        taken = None
        if newest is not None:
            folder = f"checkpoints/{source.by}/{source.name}/{newest.run}"
            taken = position_behind(self._settings.s3, folder, newest.batch).taken.get(raw)
        ends = {each: span.end for each, span in self._cut.window(raw).spans.items()}
        behind = {each: max(offset, ends.get(each, 0)) for each, offset in (taken or {}).items()}
        between = self._intake.read_between(raw, {each: ends.get(each, 0) for each in behind}, behind)
        return _Read(source, ranking, places, taken, between, before, self._noted(source))

    def _of(self, read: _Read) -> Iterator[Finding]:
        source, raw = read.source, next(each for each in self._plan.roots if each.contract == read.source.made_of)
        by, key = str(source.by), str(source.contract.key)
        dead = self._intake.set_aside(raw, raw, by)
        bad = BadRecords(
            self._cut.window(raw.name),
            self._intake.records[raw.name],
            self._cut.window(source.name),
            letters_of(self._cut, raw.contract.dead_letter_topic, dead, raw.contract.dead_letters.retention_days),
            self._intake.purged(raw, raw, by),
            self._intake.redriven(raw),
            self._broker.ends(raw.name, stable=False),
        )
        run, begins, _ = read.after
        yield from bad.findings(is_rebuilt=begins != "first")
        at_cut = self._at_cut(read, raw, run, begins, bad.not_counted)
        totals = at_cut
        if at_cut is not None:
            not_counted = self._alone(read, raw.name, bad.not_counted, is_later=True)
            totals = Totals.joined([at_cut, *[part.totals[source.name] for part in read.between]]).minus(not_counted)
            self.seen[source.name] = Ranked(run=run, totals=at_cut.rows())
        self.resume[source.name] = {at: span.end for at, span in self._cut.window(source.name).spans.items()}
        yield from self._twice(source)
        ranked = RankedList(read.ranking, raw.name, source.name, key, self._places(source))
        yield from self._of_no_batch(read, ranked.hop)
        is_known = not read.places or read.taken is not None
        yield from ranked.findings(read.places, totals if is_known else None)
        for name in source.unproven:
            ranked.tally.notes[f"values of {name} taken as they are: they are no totals"] += ranked.tally.records
        tallies = [each for name, each in bad.sheet.tallies.items() if name != f"{source.name}/0"]
        self.tallies += [*tallies, ranked.tally]

    def _at_cut(self, read: _Read, raw: Source, run: str, begins: str, not_counted: Codes) -> Totals | None:
        """Of all raw records before the cut; None if some are not there any more, or nobody tells with which the run has begun."""
        spans = self._cut.window(raw.name).spans.values()
        parts = [part.totals[read.source.name] for part in self._intake.records[raw.name]]
        base = Totals()
        if self._before is not None:
            before = self._before.get(read.source.name)
            if before is None or before.run != run or any(span.low > span.audited for span in spans):
                return None
            base = Totals.of_saved(before.totals)
        elif begins == "group" or any(span.low > 0 for span in spans) or (begins != "first" and len(not_counted)):
            # A run that computes everything again may have counted what was a dead letter before.
            return None
        return Totals.joined([base, *parts]).minus(self._alone(read, raw.name, not_counted, is_later=False))

    def _alone(self, read: _Read, raw: str, places: Codes, *, is_later: bool) -> Totals:
        """The totals of raw records at these places, before the cut or between that and where the list goes to; few."""
        spans, taken = self._cut.window(raw).spans, read.taken or {}
        found: list[Records] = []
        for at in places.tolist():
            partition, offset = partition_of(at), offset_of(at)
            end = spans[partition].end if partition in spans else 0
            if (end <= offset < taken.get(partition, 0)) if is_later else offset < end:
                found += self._intake.read_between(raw, {partition: offset}, {partition: offset + 1})
        return Totals.joined(part.totals[read.source.name] for part in found)

    def _of_no_batch(self, read: _Read, hop: str) -> Iterator[Finding]:
        """Records that the pipeline has not written by its own word, and a newest batch that lacks: each writes the whole list, and its number with it."""
        place, last = f"{read.source.name}/0", -1
        for each in read.places:
            if each.batch < 0:
                yield Finding("phantom", hop, place, each.coordinate, "its id names no run and batch")
            elif each.run not in (read.before.run, read.after.run):
                what = f"it is of the run {each.run}, and the pipeline's is {read.after.run or 'unknown'}"
                yield Finding("phantom", hop, place, each.coordinate, what)
            elif each.run == read.after.run and each.batch > read.after.batch:
                what = f"it is of batch {each.batch}, and the pipeline has written batch {read.after.batch}"
                yield Finding("phantom", hop, place, each.coordinate, what)
            last = each.batch if each.run == read.before.run else last
        if read.places and read.before.run == read.places[-1].run and last < read.before.batch:
            what = f"the newest list is of batch {last}, and the pipeline has written batch {read.before.batch}"
            yield Finding("lost", hop, place, read.places[-1].coordinate, what)

    def _noted(self, source: Source) -> NotedRun:
        return noted_run(self._broker, str(source.by), source.name)

    def _twice(self, source: Source) -> Iterator[Finding]:
        """Records with the id of another."""
        parts = self._intake.records[source.name]
        at = concatenated([part.at for part in parts], np.int64)
        _, firsts, of, counts = np.unique(
            concatenated([part.event for part in parts], np.uint64),
            return_index=True,
            return_inverse=True,
            return_counts=True,
        )
        for row in np.flatnonzero((counts[of] > 1) & (firsts[of] != np.arange(len(of)))).tolist():
            first = coordinate(source.name, int(at[firsts[of[row]]]))
            hop, place = f"{source.made_of.name} → {source.name}", f"{source.name}/{partition_of(int(at[row]))}"
            yield Finding(
                "doubled", hop, place, coordinate(source.name, int(at[row])), f"it has the id of {first}, too"
            )

    def _places(self, source: Source) -> int:
        derivation = source.contract.derivation
        assert derivation is not None and derivation.places is not None
        return derivation.places
