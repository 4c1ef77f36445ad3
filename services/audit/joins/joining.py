"""`Joining`: each raw record of two topics has its pairs, each once, or is late, or a dead letter; one of the first topic without any is there alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.aggregates.letters import Letters
from services.audit.declared.joins import Join
from services.audit.hops.derived import CLOCKS_DIFFER_MS
from services.audit.joins.made import MadePairs
from services.audit.joins.named import Named
from services.audit.joins.partners import Partners, Rows, picked
from services.audit.joins.set_aside import SetAside
from services.audit.joins.sheet import Sheet
from services.audit.joins.side import Given, Mask, Side, first_offsets, not_before, watermark_at_most
from services.audit.records.groups import MINUTE, NEVER
from services.audit.records.pairs import nothing_said
from services.audit.records.records import Records
from services.audit.records.window import Window
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import coordinate

_MILLISECOND = 1000
"""In microseconds. Spark keeps instants to the microsecond, and its watermark to this."""
_MOST_LOOKED_AT = 1000
"""Partners of one record, to name one that is missing."""


class Joining:
    """Compares two raw topics with the pairs that were made of them. Pure: arrays in, findings and tallies out.

    Pairs may be ahead of the cut. Those of a record that came after it are looked at, and none of them has to be there.
    """

    def __init__(
        self,
        join: Join,
        given: tuple[Given, Given],
        target: Window,
        made: Sequence[Records],
        strangers: Letters,
        *,
        watermark: int = NEVER,
        begun_ms: int = 0,
        is_rebuilt: bool = False,
    ) -> None:
        """Of each topic the records are those that it still has, or those since that may have had pairs to come when an earlier audit found nothing
        wrong; the later ones up to an end that was asked for when `made` had an end.
        `strangers` are late records of neither topic. `watermark`: up to there the pipeline has written what has no pair, in microseconds since 1970; `begun_ms`: when
        its run began, milliseconds since 1970. `is_rebuilt`: it is known that an earlier run has written pairs, too.
        """
        self._sheet = Sheet([each.window for each in given], target)
        self.hop = self._sheet.hop
        self._join, self._strangers, self._watermark = join, strangers, watermark
        self._made = MadePairs(self._sheet, made, begun_ms)
        self.is_rebuilt = is_rebuilt or self._made.is_rebuilt
        first, second = (Side(target.topic, each, is_rebuilt=self.is_rebuilt) for each in given)
        self._first, self._second = first, second
        self._at_most = watermark_at_most(first, second)
        self._least, self._most = join.apart.least_minutes * MINUTE, join.apart.most_minutes * MINUTE
        self._named = Named(self._sheet, self._made, (first, second), nothing_said(join), (self._least, self._most))

    @property
    def tallies(self) -> Mapping[str, Tally]:
        """By topic and partition."""
        return self._sheet.tallies

    @property
    def newest(self) -> tuple[int, int]:
        """Of both topics: see `Side`."""
        return self._first.newest, self._second.newest

    def open(self) -> dict[str, dict[int, int]]:
        """By topic and partition the first offset of raw records that may have pairs to come, and of joined records of these."""
        over = NEVER if self._watermark == NEVER else self._watermark - _MILLISECOND
        sides = (self._first, self._most, self._second), (self._second, -self._least, self._first)
        found = {}
        for side, after, other in sides:
            # What is over by this watermark was not when the pipeline took in records of the other that this audit has not.
            upto = min(over, other.later_from - 1)
            found[side.window.topic] = side.open_from(upto if upto == NEVER else upto - after)
        pairs, target = self._made.pairs, self._sheet.target
        places = (pairs.first, self._first.window.topic), (pairs.second, self._second.window.topic)
        of_open = np.logical_or.reduce([not_before(at, found[topic]) for at, topic in places])
        return found | {target.topic: first_offsets(target, self._made.at[of_open])}

    def findings(self) -> Iterator[Finding]:
        """What is wrong; the tallies are full afterwards."""
        sheet, made = self._sheet, self._made
        for side in (self._first, self._second):
            sheet.note_deleted(side.window)
            yield from SetAside(sheet, side, self._at_most).findings(is_rebuilt=self.is_rebuilt)
        sheet.count(sheet.target, made.at, np.ones(len(made.at), np.bool_))
        yield from sheet.strange(self._strangers)
        yield from made.findings()
        yield from self._named.findings()
        partners = Partners(self._second.by, self._second.of, np.flatnonzero(self._second.must))
        found, behind = self._partners_of_all(partners)
        yield from self._missing_pairs(partners, found, behind)
        yield from self._alone(behind - found)

    def _partners_of_all(self, partners: Partners) -> tuple[Rows, Rows]:
        """For each record of the first topic which of the `partners` it must be paired with, as bounds in their rows; none of one that has no part."""
        first = self._first
        found, behind = np.zeros(len(first.at), np.int64), np.zeros(len(first.at), np.int64)
        rows = np.flatnonzero(first.takes_part)
        of = first.of[rows]
        found[rows], behind[rows] = partners.between(first.by[rows], of + self._least, of + self._most)
        return found, behind

    def _missing_pairs(self, partners: Partners, begin: Rows, end: Rows) -> Iterator[Finding]:
        """Counted first: which one it is, is looked for only where one is missing."""
        first, second, named = self._first, self._second, self._named
        rows = np.flatnonzero(named.holds & named.has_first & named.has_second & picked(second.must, named.second))
        # Both rows in one number, and each pair once.
        pairs = np.sort(named.first[rows] * len(second.at) + named.second[rows])
        of, partner = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(1, len(second.at)))
        there = np.bincount(of, minlength=len(first.at))
        lacking = np.flatnonzero(first.must & (there < end - begin))
        forgotten = np.zeros(len(first.at), np.bool_)
        begins = np.searchsorted(of, lacking), np.searchsorted(of, lacking, "right")
        for row, low, high in zip(lacking.tolist(), *(each.tolist() for each in begins), strict=True):
            upto = min(int(end[row]), int(begin[row]) + high - low + _MOST_LOOKED_AT)
            missing = partners.rows[int(begin[row]) : upto]
            missing = missing[~np.isin(missing, partner[low:high])]
            sent_ms = np.maximum(second.sent_ms[missing], first.sent_ms[row])
            missing = missing[~self._may_be_forgotten(sent_ms, second)]
            if not len(missing):
                forgotten[row] = True
                continue
            others = int(end[row] - begin[row]) - (high - low) - 1
            what = f"it has no pair with {coordinate(second.window.topic, int(second.at[missing[0]]))}"
            what += f", and {others:,} more are missing" if others else ""
            yield self._sheet.of_raw("lost", first.window, int(first.at[row]), what)
        self._sheet.count(first.window, first.at, forgotten, "whose pairs are deleted by now")
        self._sheet.count(first.window, first.at, first.must & (end > begin), "with pairs")

    def _may_be_forgotten(self, sent_ms: npt.NDArray[np.int64], side: Side) -> Mask:
        return self._made.may_be_forgotten(sent_ms, side.known.kept_since_ms, CLOCKS_DIFFER_MS)

    def _alone(self, due_pairs: Rows) -> Iterator[Finding]:
        """What stands alone and has a pair, or may still have one; and what should stand alone by now."""
        made, named, first = self._made, self._named, self._first
        alone = named.holds & named.has_first & made.is_alone
        if self._join.how == "inner":
            for row in np.flatnonzero(alone).tolist():
                yield self._sheet.of_made("phantom", int(made.at[row]), "it stands alone, and only pairs are joined")
            return
        paired = named.holds & named.has_first & ~made.is_alone
        has_pair, has_pair_of_run = self._with(paired), self._with(paired & ~made.is_old)
        with_pair = alone & ~made.is_old & picked(has_pair_of_run, named.first)
        for row in np.flatnonzero(with_pair).tolist():
            yield self._sheet.of_made(
                "doubled", int(made.at[row]), f"{self._raw(row)} has a pair, and stands alone as well"
            )
        wrongly = alone & picked(~has_pair & (due_pairs > 0), named.first)
        for row in np.flatnonzero(wrongly).tolist():
            what = f"{self._raw(row)} stands alone, and there is one to pair it with"
            yield self._sheet.of_made("phantom", int(made.at[row]), what)
        early = alone & ~wrongly & (picked(first.of, named.first) + self._most > self._at_most)
        for row in np.flatnonzero(early).tolist():
            what = f"{self._raw(row)} stands alone, and no events are so new that none can come for it"
            yield self._sheet.of_made("phantom", int(made.at[row]), what)
        yield from self._missing_alone(has_pair | self._with(alone), due_pairs)

    def _missing_alone(self, is_there: Mask, due_pairs: Rows) -> Iterator[Finding]:
        first = self._first
        without = first.must & (due_pairs == 0)
        self._sheet.count(first.window, first.at, without & is_there, "without a pair that must be there")
        without &= ~is_there
        over = first.of + (self._most + _MILLISECOND) <= self._watermark
        forgotten = over & self._may_be_forgotten(first.sent_ms, first)
        self._sheet.count(first.window, first.at, without & ~over, "without a pair as yet, for one may still come")
        self._sheet.count(first.window, first.at, without & forgotten, "whose pairs are deleted by now")
        for row in np.flatnonzero(without & over & ~forgotten).tolist():
            what = f"it has no pair, none can come, and it is not in {self._sheet.target.topic}"
            yield self._sheet.of_raw("lost", first.window, int(first.at[row]), what)

    def _with(self, made: Mask) -> Mask:
        """Which records of the first topic these joined ones are of."""
        found = np.zeros(len(self._first.at), np.bool_)
        found[self._named.first[made]] = True
        return found

    def _raw(self, row: int) -> str:
        return coordinate(self._first.window.topic, int(self._made.pairs.first[row]))
