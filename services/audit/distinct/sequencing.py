"""`Sequencing`: of a raw record at most one is made, by what the events before it were, or it is late, or a dead letter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from services.audit.distinct.deduplication import Deduplication
from services.audit.joins.partners import picked
from services.audit.joins.side import first_offsets, not_before
from services.audit.records.groups import NEVER
from services.audit.values.digest import NULL
from services.audit.values.finding import Finding

_MILLISECOND = 1_000
"""In microseconds: watermarks are told to the millisecond."""


class Sequencing(Deduplication):
    """Compares a raw topic with the records of a sequence. What is remembered is not counted again, so nobody tells whether one is missing.

    An event waits until the watermark has passed it: its record may come after an audit that has seen the event.
    """

    def open(self) -> dict[str, dict[int, int]]:
        """By topic and partition from where on an audit reads that looks at what comes after the cut: of the raw topic what still waits; of the other what
        was made of that, and of what came after the cut.
        """
        raw, target = self._raw, self._sheet.target
        starts = raw.open_from(NEVER if self._watermark == NEVER else self._watermark - _MILLISECOND)
        return {
            raw.window.topic: starts,
            target.topic: first_offsets(target, self._made.at[not_before(self._made.pairs.first, starts)]),
        }

    def among_each_other(self) -> Iterator[Finding]:
        """Records of one key that are not in the order of their events' times."""
        made, rows = self._made, self.by_this_run()
        rows = rows[(made.key[rows] != NULL) & self._named.has_first[rows]]
        first, of = made.pairs.first, picked(self._raw.of, self._named.first)
        rows = rows[np.lexsort((made.at[rows], made.key[rows]))]
        one, other = rows[:-1], rows[1:]
        # Those of one time by partition and offset.
        is_later = (of[one] > of[other]) | ((of[one] == of[other]) & (first[one] > first[other]))
        for index in np.flatnonzero((made.key[one] == made.key[other]) & is_later).tolist():
            what = f"{made.own(int(one[index]))} has its key, and is of a later event"
            yield self._sheet.of_made("out of order", int(made.at[other[index]]), what)

    def missing(self) -> Iterator[Finding]:
        """None. The tallies say of how many raw records there is one."""
        raw, is_named = self._raw, self.is_named()
        self._sheet.count(raw.window, raw.at, raw.must & is_named, "of which a record was made")
        waits = raw.must & ~is_named & (raw.of > self._watermark)
        self._sheet.count(raw.window, raw.at, waits, "that the watermark has not passed")
        self._sheet.count(raw.window, raw.at, raw.must & ~is_named & ~waits, "left out by the pipeline, not proven")
        yield from ()
