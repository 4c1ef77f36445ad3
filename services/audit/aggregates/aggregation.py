"""`Aggregation`: each raw record is in exactly one of {its group, the late ones, the dead letters}."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from services.audit.aggregates.expected import Expected
from services.audit.aggregates.letters import Known, Letters
from services.audit.aggregates.made import MadeGroups
from services.audit.aggregates.raw import RawRecords
from services.audit.aggregates.recount import Recount
from services.audit.aggregates.sessions import Sessions
from services.audit.aggregates.set_aside import SetAside
from services.audit.aggregates.sheet import Sheet
from services.audit.records.records import Records
from services.audit.records.window import Window
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import partition_of


class Aggregation:
    """Compares a raw topic's window with the groups that were made of it. Pure: arrays in, findings and tallies out.

    Groups may be ahead of the cut, so some raw records only *may* be in their group: those that came after the cut are such, and a few
    others that nobody can tell of. A group's count is right between the number of those that must be in it and that with the others.
    """

    def __init__(
        self,
        raw: Window,
        records: Sequence[Records],
        later: Sequence[Records],
        target: Window,
        made: Sequence[Records],
        dead: Letters,
        late: Letters,
        known: Known,
        *,
        counts: str = "count",
        appends: bool = False,
        longest_gap: int | None = None,
        beside: Self | None = None,
    ) -> None:
        """`records` in the order of partitions, `later` those from the cut to an end that was asked for when `made`, the aggregate's records from
        its first one on, had an end. `counts` is the name of the field; `appends`: a group is written when its window is over;
        `longest_gap`: windows end a gap behind their last record, of so many minutes at most. `beside`: the same of the first of two topics whose records the groups count; it
        tells what is wrong with groups by themselves.
        """
        self._sheet = Sheet(raw, target)
        self.hop = self._sheet.hop
        self._dead, self._late = dead, late
        self._raw = RawRecords(target.topic, raw, records, later, known)
        self._beside = beside
        if beside is not None:
            self._raw.unite(beside._raw)
        self._made = MadeGroups(self._sheet, made, appends=appends, is_second=beside is not None)
        self._recount: Recount | Sessions = (
            Recount(self._sheet, self._raw, self._made, late, counts=counts, appends=appends)
            if longest_gap is None
            else Sessions(self._sheet, self._raw, self._made, counts=counts, longest_gap=longest_gap)
        )

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """By topic and partition."""
        return self._sheet.tallies

    @property
    def newest(self) -> int | None:
        """For the next audit: no raw record up to this cut has a later event time; None: nobody knows."""
        return self._raw.newest

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        sheet, raw, is_rebuilt = self._sheet, self._raw, self._made.is_rebuilt
        for partition in raw.window.spans:
            tally = sheet.tally(raw.window, partition)
            tally.records += int((partition_of(raw.at) == partition).sum())
            tally.notes.update(raw.window.notes(partition))
        if self._beside is None:
            yield from self._made.wrong_ids()
            yield from self._made.wrong_groups()
        yield from SetAside(sheet, raw, self._dead, self._late).findings(is_rebuilt=is_rebuilt)
        expected = Expected.of(sheet, raw, self._dead, self._late, is_rebuilt=is_rebuilt)
        yield from self._recount.findings(expected)
