"""`Sheet`: what an audit says of the hop from a raw topic to an aggregate."""

from __future__ import annotations

from services.audit.records.window import Window
from services.audit.values.finding import Finding, Kind, Tally
from services.audit.values.place import coordinate, partition_of


class Sheet:
    """The tallies of each partition of `raw` and `target`, and findings of raw records and groups."""

    def __init__(self, raw: Window, target: Window) -> None:
        self.hop = f"{raw.topic} → {target.topic}"
        self.raw, self.target = raw, target
        self.tallies = {
            f"{window.topic}/{partition}": Tally(self.hop, f"{window.topic}/{partition}")
            for window in (raw, target)
            for partition in window.spans
        }

    def tally(self, window: Window, partition: int) -> Tally:
        """That of one partition."""
        return self.tallies[f"{window.topic}/{partition}"]

    def of_group(self, kind: Kind, at: int, named: str, detail: str) -> Finding:
        """About the group whose key is `named`, by its record at a place."""
        place = f"{self.target.topic}/{partition_of(at)}"
        return Finding(kind, self.hop, place, coordinate(self.target.topic, at), f"{named}: {detail}")

    def of_place(self, kind: Kind, source: int, detail: str) -> Finding:
        """About the raw record at a place."""
        return self.of_raw(kind, source, coordinate(self.raw.topic, source), detail)

    def of_raw(self, kind: Kind, source: int, named: str, detail: str) -> Finding:
        """About a raw record under another name than its coordinate."""
        partition = partition_of(source)
        place = f"{self.raw.topic}/{partition}" if partition in self.raw.spans else self.raw.topic
        return Finding(kind, self.hop, place, named, detail)
