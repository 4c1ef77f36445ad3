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
from services.audit.sources.state_position import NotedRun, began_at, noted_run, position_behind
from services.audit.state import Ranked, State
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import Codes, concatenated, coordinate, offset_of, partition_of

_TRIES = 5
"""To find the newest list, and its offsets before Spark forgets those."""


class _Begins(NamedTuple):
    """Where counting begins for a list: of which `run`, by offsets of its raw topic, with the totals of before; None where nobody knows those.
    `is_gone`: nor would an audit that looks at everything.
    """

    noted: NotedRun
    offsets: Mapping[int, int]
    totals: Totals | None
    is_gone: bool = False


class _Read(NamedTuple):
    """A list that is to be ranked again: the `places` of its newest batch, up to which offsets of the raw topic that goes, None if nobody tells, and
    what came between the cut and there; what its pipeline had noted `before` and `after` the list was read; `older` records that lie behind the list.
    """

    source: Source
    ranking: Ranking
    begins: _Begins
    places: Sequence[Place]
    taken: Mapping[int, int] | None
    between: Sequence[Records]
    before: NotedRun
    after: NotedRun
    older: Sequence[Place]


def ranked_otherwise(broker: Broker, source: Source, ranking: Ranking, since: State) -> bool:
    """Whether a list is of another run than that which the last clean audit looked at, or is told otherwise: totals of before are of other records."""
    before = since.rankings.get(source.name)
    run = noted_run(broker, str(source.by), source.name).run
    return before is None or (before.run, before.told) != (run, ranking.counted)


class Rankings:
    """First `begin`, then everything is to be read, the dead letters too, then come the findings."""

    def __init__(
        self,
        settings: Settings,
        plan: Plan,
        intake: Intake,
        cut: Cut,
        broker: Broker,
        followers: Followers,
        last: State | None,
    ) -> None:
        """`last`: what the last clean audit has left, also where this one looks at everything."""
        self._settings, self._kafka = settings, settings.kafka.client_config()
        self._plan, self._intake, self._cut, self._broker, self._followers = plan, intake, cut, broker, followers
        self._last = last
        self._begins: dict[str, _Begins] = {}
        self._found: list[_Read] = []
        self.tallies: list[Tally] = []
        self.resume: dict[str, dict[int, int]] = {}
        """By list's topic where the next audit begins to read."""
        self.seen: dict[str, Ranked] = {}
        """For the next audit."""

    def begin(self, hops: Collection[Hop]) -> None:
        """Take the cuts of the raw topics, and tell the intake from which offsets on their records are to be counted."""
        for source in self._plan.rankings:
            if Hop.RANKINGS in hops and source.ranking is not None:
                self._begins[source.name] = begins = self._where(source, source.ranking)
                self._intake.counted_from[source.name] = begins.offsets

    def read(self, rules: RulesHistory) -> None:
        """The lists' topics, each up to its end now, and what their newest lists are made of. Raises CouldNotAudit."""
        for source in self._plan.rankings:
            begins, ranking = self._begins.get(source.name), source.ranking
            has_run = begins is not None and self._followers.has_run(source)
            if has_run:
                self._followers.await_stateful(source)
            before = self._noted(source)
            self._intake.read([source], rules)
            if begins is not None and ranking is not None and has_run:
                self._found.append(self._read(source, ranking, begins, before))
                continue
            if begins is not None:
                self.tallies += self._intake.not_made(source, f"not ranked, for {source.by} has never run here")
            elif ranking is None:
                why = "which are not ranked again, for no entry of the rankings file tells how"
                self.tallies += self._intake.not_made(source, why)
            window, records = self._cut.window(source.name), self._intake.records[source.name]
            self.tallies += sent("ranked, and not ranked again", window, records)

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        for read in self._found:
            yield from self._of(read)

    def _where(self, source: Source, ranking: Ranking) -> _Begins:
        """At the run's own first records, if they are there, or where the totals of the last clean audit end."""
        raw, noted = source.made_of.name, self._noted(source)
        window = self._cut.window(raw)
        began = began_at(self._settings.s3, self._folder(source, noted.run), raw) if noted.run else None
        first = {each: (began or {}).get(each, 0) for each in window.spans}
        if began is not None and all(span.start <= first[each] for each, span in window.spans.items()):
            return _Begins(noted, first, Totals())
        last = None if self._last is None else self._last.rankings.get(source.name)
        if last is not None and (last.run, last.told) != (noted.run, ranking.counted):
            last = None
        before = None if self._last is None else self._last.topics.get(raw)
        if (
            last is not None
            and last.totals is not None
            and before is not None
            and before.topic_id == self._broker.topic_id(raw)
        ):
            ends = {each: before.ends.get(each, 0) for each in window.spans}
            is_whole = all(span.low <= ends[each] for each, span in window.spans.items())
            if is_whole:
                return _Begins(noted, ends, Totals.of_saved(last.totals))
        # Known by the last audit to be so; else each second one would look at everything.
        is_known = last is not None and last.totals is None
        is_gone = is_known or (began is not None and any(first[each] < span.low for each, span in window.spans.items()))
        return _Begins(noted, {}, None, is_gone)

    def _read(self, source: Source, ranking: Ranking, begins: _Begins, before: NotedRun) -> _Read:
        raw = source.made_of.name
        places, older, taken = self._newest(source, raw)
        needed = self._intake.needed(raw)
        if taken is not None and any(taken.get(each, 0) < offset for each, offset in needed.items()):
            # A run that has begun anew meanwhile, or a list that is older than what its pipeline has taken in.
            taken = None
        ends = {each: span.end for each, span in self._cut.window(raw).spans.items()}
        behind = {each: max(offset, ends.get(each, 0)) for each, offset in (taken or {}).items()}
        between = self._intake.read_between(raw, {each: ends.get(each, 0) for each in behind}, behind)
        return _Read(source, ranking, begins, places, taken, between, before, self._noted(source), older)

    def _newest(self, source: Source, raw: str) -> tuple[Sequence[Place], Sequence[Place], Mapping[int, int] | None]:
        """The newest list, older records behind it, and up to where it goes: at once, for Spark forgets the offsets of all batches but the last ones."""
        registry, derivation = self._settings.registry, source.contract.derivation
        assert derivation is not None and derivation.places is not None
        places: Sequence[Place] = ()
        older: Sequence[Place] = ()
        for _ in range(_TRIES):
            places, older = newest_list(
                self._kafka,
                registry,
                source.name,
                source.contract.subject,
                source.schema,
                derivation.places,
                self._broker.starts(source.name)[0],
                self._broker.ends(source.name)[0],
                time.monotonic() + registry.lag_seconds,
            )
            newest = next((each for each in places if each.batch >= 0), None)
            if newest is None:
                break
            folder = self._folder(source, newest.run)
            if (taken := position_behind(self._settings.s3, folder, newest.batch).taken.get(raw)) is not None:
                return places, older, taken
        return places, older, None

    def _of(self, read: _Read) -> Iterator[Finding]:
        source, raw = read.source, next(each for each in self._plan.roots if each.contract == read.source.made_of)
        by = str(source.by)
        dead = self._intake.set_aside(raw, raw, by)
        bad = BadRecords(
            self._cut.window(raw.name),
            self._intake.records[raw.name],
            self._cut.window(source.name),
            letters_of(self._cut, raw.contract.dead_letter_topic, dead, raw.contract.dead_letters.retention_days),
            self._intake.purged(raw, raw, by),
            self._intake.redriven(raw),
            self._intake.redriven_for(raw, raw, by),
            self._broker.ends(raw.name, stable=False),
        )
        yield from bad.findings(is_rebuilt=read.after.begins != "first")
        totals = self._at_cut(read, raw.name, bad.not_counted)
        if read.begins.noted.run == read.after.run and (read.begins.totals is not None or read.begins.is_gone):
            rows = None if totals is None else totals.rows()
            self.seen[source.name] = Ranked(run=read.after.run, told=read.ranking.counted, totals=rows)
        if totals is not None:
            taken = read.taken or {}
            ahead = [each for each in bad.ahead.tolist() if offset_of(each) < taken.get(partition_of(each), 0)]
            later = Totals.joined(part.totals[source.name] for part in read.between)
            totals = Totals.joined([totals, later]).minus(self._alone(read, raw.name, np.array(ahead, np.int64)))
        self.resume[source.name] = {at: span.end for at, span in self._cut.window(source.name).spans.items()}
        yield from self._twice(source)
        derivation = source.contract.derivation
        assert derivation is not None and derivation.places is not None
        ranked = RankedList(read.ranking, raw.name, source.name, str(source.contract.key), derivation.places)
        yield from self._of_no_batch(read, ranked.hop)
        is_deleted = any(span.low > 0 for span in self._cut.window(source.name).spans.values())
        unknown = "their totals can't be known: raw records are gone, or the run or the rankings file is another one"
        if read.taken is None and (read.places or is_deleted):
            totals, unknown = None, "nobody tells up to where their batch goes"
        yield from ranked.findings(read.places, totals, unknown)
        for name in source.unproven:
            ranked.tally.notes[f"values of {name} taken as they are: they are no totals"] += ranked.tally.records
        tallies = [each for name, each in bad.sheet.tallies.items() if name != f"{source.name}/0"]
        self.tallies += [*tallies, ranked.tally]

    def _at_cut(self, read: _Read, raw: str, not_counted: Codes) -> Totals | None:
        """Of all raw records before the cut; None if nobody knows."""
        begins, (run, how, _) = read.begins, read.after
        counted = np.array(
            [at for at in not_counted.tolist() if offset_of(at) >= begins.offsets.get(partition_of(at), 0)], np.int64
        )
        # A run that computes everything again may have counted what was a dead letter before.
        is_open = how == "again" and not begins.totals and len(counted) > 0
        if begins.totals is None or begins.noted.run != run or is_open:
            return None
        parts = [part.totals[read.source.name] for part in self._intake.records[raw]]
        return Totals.joined([begins.totals, *parts]).minus(self._alone(read, raw, counted))

    def _alone(self, read: _Read, raw: str, places: Codes) -> Totals:
        """The totals of raw records at these places; few."""
        return Totals.joined(part.totals[read.source.name] for part in self._intake.read_alone(raw, places))

    def _of_no_batch(self, read: _Read, hop: str) -> Iterator[Finding]:
        """Records that the pipeline has not written by its own word, those that a redrive has put behind the list, and a newest batch that lacks: each
        writes the whole list, and its number with it.
        """
        place, before, after = f"{read.source.name}/0", read.before, read.after
        for each in read.places:
            if each.batch < 0:
                yield Finding("phantom", hop, place, each.coordinate, "its id names no run and batch")
            elif each.run not in (before.run, after.run) and before.batch >= 0:
                what = f"it is of the run {each.run}, and the pipeline's is {after.run}"
                yield Finding("phantom", hop, place, each.coordinate, what)
            elif each.run == after.run and each.batch > after.batch:
                what = f"it is of batch {each.batch}, and the pipeline has written batch {after.batch}"
                yield Finding("phantom", hop, place, each.coordinate, what)
        for each in read.older:
            what = f"it is of batch {each.batch}, behind a newer list, and a redrive has sent it again: the next list puts it right"
            yield Finding("out of order", hop, place, each.coordinate, what)
        last = max((each.batch for each in read.places if each.run == before.run), default=-1)
        if 0 <= last < before.batch:
            what = f"the newest list is of batch {last}, and the pipeline has written batch {before.batch}"
            yield Finding("lost", hop, place, read.places[-1].coordinate, what)

    def _twice(self, source: Source) -> Iterator[Finding]:
        """Records with the id of another, but for what a redrive sent again."""
        parts = self._intake.records[source.name]
        at = concatenated([part.at[~part.redriven] for part in parts], np.int64)
        _, firsts, of, counts = np.unique(
            concatenated([part.event[~part.redriven] for part in parts], np.uint64),
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

    def _folder(self, source: Source, run: str) -> str:
        return f"checkpoints/{source.by}/{source.name}/{run}"

    def _noted(self, source: Source) -> NotedRun:
        return noted_run(self._broker, str(source.by), source.name)
