"""`Sheet`: what an audit says of the hop from raw topics to a join, or to distinct events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from services.audit.aggregates.letters import Letters
from services.audit.records.window import Window
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import NOWHERE, Codes, coordinate, partition_of


class Sheet:
    """The tallies of each partition of the `sources` and of the `target`, and findings of their records."""

    def __init__(self, sources: Sequence[Window], target: Window) -> None:
        self.hop = f"{' + '.join(each.topic for each in sources)} → {target.topic}"
        self.sources, self.target = tuple(sources), target
        self.tallies = {
            f"{window.topic}/{partition}": Tally(self.hop, f"{window.topic}/{partition}")
            for window in (*sources, target)
            for partition in window.spans
        }

    def count(self, window: Window, at: Codes, mask: npt.NDArray[np.bool_], note: str | None = None) -> None:
        """Add the records at these places for which `mask` holds to a note of their partitions; without one to the records looked at."""
        for partition in window.spans:
            number = int(np.sum(mask & (partition_of(at) == partition)))
            tally = self.tallies[f"{window.topic}/{partition}"]
            if note is None:
                tally.records += number
            elif number:
                tally.notes[note] += number

    def note_deleted(self, window: Window) -> None:
        """In the tallies of a topic what of it is deleted and was never audited."""
        for partition in window.spans:
            self.tallies[f"{window.topic}/{partition}"].notes.update(window.notes(partition))

    def strange(self, letters: Letters) -> Iterator[Finding]:
        """About late records that are of none of the sources."""
        why = f"names no record of {' or '.join(each.topic for each in self.sources)}"
        for at in letters.at.tolist():
            yield self.of_raw("phantom", self.sources[0], NOWHERE, why, coordinate(letters.topic, at))

    def of_made(self, kind: Kind, at: int, detail: str) -> Finding:
        """About the made record at a place."""
        return self.of_raw(kind, self.target, at, detail)

    def of_raw(self, kind: Kind, window: Window, at: int, detail: str, named: str | None = None) -> Finding:
        """About the record at a place of any of the topics; `named` is its name, if that is not its coordinate."""
        partition = partition_of(at)
        place = f"{window.topic}/{partition}" if partition in window.spans else window.topic
        return Finding(kind, self.hop, place, named or coordinate(window.topic, at), detail)
