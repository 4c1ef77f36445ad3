"""`sent`: what lies on a topic that nothing is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from services.audit.records.records import Records
from services.audit.records.window import Window
from services.audit.values.finding import Tally
from services.audit.values.place import concatenated, partition_of


def sent(how: str, window: Window, records: Sequence[Records]) -> Iterator[Tally]:
    """For each partition the event ids that were sent more than once; of an incremental audit, since the last one. `how` names the hop."""
    events = concatenated([part.event for part in records], np.uint64)
    at = concatenated([part.at for part in records], np.int64)
    _, firsts = np.unique(events, return_index=True)
    again = np.ones(len(at), np.bool_)
    again[firsts] = False
    again &= events != 0
    for partition in window.spans:
        of = partition_of(at) == partition
        tally = Tally(how, f"{window.topic}/{partition}", int(of.sum()))
        tally.notes["event ids sent before"] = int((again & of).sum())
        yield tally
