"""`Pairing`: reads the joins and the distinct events of a plan, and what these may be of, and compares."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from services.audit.aggregates.letters import FOREVER, Known
from services.audit.counting import letters_of
from services.audit.cut import DAY_MS, Cut
from services.audit.distinct.deduplication import Deduplication
from services.audit.distinct.sequencing import Sequencing
from services.audit.followers import Followers
from services.audit.hops.dead_letters import DeadLetter
from services.audit.hops.hop import Hop
from services.audit.hops.sent import sent
from services.audit.intake import Intake
from services.audit.joins.joining import Joining
from services.audit.joins.side import Given
from services.audit.plan import Plan, Source
from services.audit.records.groups import NEVER
from services.audit.records.records import Records
from services.audit.records.rules_history import RulesHistory
from services.audit.records.window import Span, Window
from services.audit.sources.broker import Broker
from services.audit.sources.state_position import StatePosition
from services.audit.state import Paired
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import NOWHERE, places

_MADE = {Hop.JOINS: "joined", Hop.DISTINCT: "let through", Hop.SEQUENCES: "looked at"}
"""What became of a raw record that a record was made of."""
_NOT_COMPARED = {
    Hop.JOINS: "joined, and not joined again",
    Hop.DISTINCT: "let through, and not looked at",
    Hop.SEQUENCES: "made of one each, and not looked at",
}


class _Read(NamedTuple):
    """A join, or a topic of distinct events, that is to be made again: how far its run had come before the cut, what the last clean audit has seen, None if
    all is to be looked at, and what was read again, by topic.
    """

    source: Source
    position: StatePosition
    before: Paired | None
    earlier: Mapping[str, Sequence[Records]]


class Pairing:
    """First everything is to be read, the dead letters too, then come the findings."""

    def __init__(
        self,
        plan: Plan,
        intake: Intake,
        cut: Cut,
        broker: Broker,
        followers: Followers,
        before: Mapping[str, Paired],
    ) -> None:
        """`before`, by topic that is made: what the last clean audit has seen."""
        self._plan, self._intake, self._cut, self._broker, self._followers = plan, intake, cut, broker, followers
        self._roots = {each.name: each for each in plan.roots}
        self._before = before
        self._found: list[_Read] = []
        self.tallies: list[Tally] = []
        self.resume: dict[str, dict[int, int]] = {}
        """By topic that is made where the next audit begins to read."""
        self.seen: dict[str, Paired] = {}
        """For the next audit."""

    def read(self, rules: RulesHistory, hops: Collection[Hop]) -> None:
        """The topics that are made, each up to its end now. If its hop is among the `hops`, too, what those that can be made again may be of. Raises
        CouldNotAudit.
        """
        for source in (*self._plan.joins, *self._plan.distinct, *self._plan.sequences):
            hop = _hop(source)
            is_compared = hop in hops and self._can_be_made_again(source)
            origins = [each.name for each in source.origins] if is_compared else []
            if is_compared:
                self._followers.await_stateful(source)
            # Before the cut: what has no pair by this watermark is then there.
            position = self._followers.told_state(source) if is_compared else None
            later = self._cut.ends_behind([source.name], origins)
            self._intake.read([source], rules)
            self._intake.read_later(later)
            if is_compared:
                self._found.append(self._read_earlier(source, position or StatePosition({})))
            else:
                window, records = self._cut.window(source.name), self._intake.records[source.name]
                self.tallies += sent(_NOT_COMPARED[hop], window, records)

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        for read in self._found:
            source, made = read.source, self._made_again(read)
            yield from made.findings()
            for name, tally in made.tallies.items():
                for field in source.unproven if name.startswith(f"{source.name}/") else ():
                    tally.notes[f"values of {field} taken as they are: no raw record tells them"] += tally.records
            self.tallies += made.tallies.values()
            self.resume[source.name] = {at: span.end for at, span in self._cut.window(source.name).spans.items()}
            self.seen[source.name] = Paired(
                begun_ms=read.position.begun_ms,
                is_rebuilt=made.is_rebuilt,
                open=made.open(),
                newest=made.newest,
            )

    def _can_be_made_again(self, source: Source) -> bool:
        """Whether its pipeline has run, something tells which pairs there are, and its topics are not derived themselves. Notes why not."""
        derived = [each.name for each in source.origins if each.name not in self._roots]
        why = None
        if source.join is None and source.distinct is None:
            why = "whose pairs are not made again, for no entry of the joins file tells how"
        elif derived:
            why = f"whose pairs are not made again, for {' and '.join(derived)} is derived itself"
        elif not self._followers.has_run(source):
            why = f"not {_MADE[_hop(source)]}, for {source.by} has never run here"
        if why is not None:
            self.tallies += self._intake.not_made(source, why)
        return why is None

    def _read_earlier(self, source: Source, position: StatePosition) -> _Read:
        before = self._before.get(source.name)
        if before is not None and (not before.begun_ms or before.begun_ms != position.begun_ms):
            # Another run has written everything again.
            before = None
        if before is not None and FOREVER in before.newest:
            # An older version of the audit knew no bound where a partition had nothing left.
            before = None
        starts = {} if before is None else before.open
        names = [*(each.name for each in source.origins), source.name]
        earlier = self._intake.read_earlier({name: starts.get(name, {}) for name in names})
        return _Read(source, position, before, earlier)

    def _made_again(self, read: _Read) -> Joining | Deduplication | Sequencing:
        source, position, before = read.source, read.position, read.before
        late_topic = source.contract.late_topic
        assert late_topic is not None
        late = self._intake.read_late(late_topic)
        # What somebody else has put there is of no record.
        coordinates = [each.coordinate if each.by == str(source.by) else "" for each in late]
        of = [places(each.name, coordinates) for each in source.origins]
        given = [self._given(read, side, list(zip(late, own.tolist(), strict=True))) for side, own in enumerate(of)]
        is_strange = np.logical_and.reduce([own == NOWHERE for own in of])
        strange = [(late[row], NOWHERE) for row in np.flatnonzero(is_strange).tolist()]
        window = self._window(source.name, {} if before is None else None)
        made = [*read.earlier[source.name], *self._intake.records[source.name]]
        strangers = letters_of(self._cut, late_topic, strange, source.contract.dead_letters.retention_days)
        watermark = position.watermark_ms * 1000 if position.watermark_ms else NEVER
        begun_ms, is_rebuilt = position.begun_ms, before is not None and before.is_rebuilt
        if source.join is None:
            (raw,) = given
            kind = Sequencing if source.contract.is_sequence else Deduplication
            return kind(raw, window, made, strangers, watermark=watermark, begun_ms=begun_ms, is_rebuilt=is_rebuilt)
        first, second = given
        return Joining(
            source.join,
            (first, second),
            window,
            made,
            strangers,
            watermark=watermark,
            begun_ms=begun_ms,
            is_rebuilt=is_rebuilt,
        )

    def _given(self, read: _Read, side: int, late: Sequence[tuple[DeadLetter, int]]) -> Given:
        """One of the raw topics; the late records are those of all of them."""
        of, raw = read.source, self._roots[read.source.origins[side].name]
        contract, letters, by = of.contract, raw.contract.dead_letters, str(of.by)
        assert contract.derivation is not None and contract.late_topic is not None
        own = [each for each in late if each[1] != NOWHERE]
        return Given(
            self._window(raw.name, {} if read.before is None else read.before.open[raw.name]),
            [*read.earlier[raw.name], *self._intake.records[raw.name]],
            self._intake.later[raw.name],
            letters_of(
                self._cut,
                raw.contract.dead_letter_topic,
                self._intake.set_aside(raw, raw, by),
                letters.retention_days,
            ),
            letters_of(self._cut, contract.late_topic, own, contract.dead_letters.retention_days),
            Known(
                latest=self._broker.ends(raw.name, stable=False),
                late_after_minutes=contract.derivation.late_after_minutes or 0,
                watermark_of=contract.derivation.watermark_of,
                purged=self._intake.purged(raw, raw, by),
                redriven=self._intake.redriven(raw),
                newest_before=None if read.before is None else read.before.newest[side],
                kept_since_ms=self._cut.at_ms - contract.retention_days * DAY_MS,
                raw_kept_since_ms=self._cut.at_ms - raw.contract.retention_days * DAY_MS,
            ),
        )

    def _window(self, topic: str, starts: Mapping[int, int] | None) -> Window:
        """The topic's, up to where it was read again from: an earlier audit has looked at what lies before. None: as the cut has it."""
        window = self._cut.window(topic)
        if starts is None:
            return window
        spans = {at: Span(each.low, starts.get(at, 0), each.end, 0) for at, each in window.spans.items()}
        return Window(topic, spans)


def _hop(source: Source) -> Hop:
    if source.contract.is_sequence:
        return Hop.SEQUENCES
    return Hop.DISTINCT if source.contract.is_distinct else Hop.JOINS
