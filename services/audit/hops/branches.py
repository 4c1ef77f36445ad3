"""The topics that one pipeline writes by a condition: no raw record is in two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from services.audit.records.window import Where, Window
from services.audit.values.finding import Finding, Tally
from services.audit.values.place import Codes, concatenated, coordinate, partition_of


class Branches:
    """Compares what one pipeline made of a raw topic's window, by the topics that it wrote it to. Each hop alone is `Derivation`'s."""

    def __init__(self, raw: Window, at: Codes, made: Mapping[str, Codes]) -> None:
        """`at`: the raw records; `made`, by derived topic: the raw record of each of its records."""
        self._raw, self._made = raw, made
        hop = f"{raw.topic} → one of {len(made)}"
        self.tallies = {
            partition: Tally(hop, f"{raw.topic}/{partition}", int(np.sum(partition_of(at) == partition)))
            for partition in raw.spans
        }

    def findings(self) -> Iterator[Finding]:
        """Of each raw record that is in several topics."""
        inside = {topic: np.unique(at[self._raw.where(at) == Where.INSIDE]) for topic, at in self._made.items()}
        sources, counts = np.unique(concatenated(list(inside.values()), np.int64), return_counts=True)
        for source in sources[counts > 1].tolist():
            tally = self.tallies[partition_of(source)]
            where = " and ".join(topic for topic, at in inside.items() if source in at)
            named = coordinate(self._raw.topic, source)
            yield Finding(
                "doubled", tally.hop, tally.partition, named, f"in {where}: a branch writes it to one of them"
            )
