"""`Report`: what an audit found, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from services.audit.values.finding import KINDS, Finding, Tally

_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Report:
    """`cut_at`: when the cut was taken; `since`: when the last clean audit took its cut, None for an audit of everything."""

    cut_at: str
    since: str | None
    seconds: float
    tallies: Sequence[Tally]
    findings: Sequence[Finding]

    @property
    def is_clean(self) -> bool:
        """Nothing is wrong."""
        return not self.findings

    def json(self) -> dict[str, Any]:
        """Everything, every finding included."""
        counts = Counter((each.hop, each.partition, each.kind) for each in self.findings)
        return {
            "clean": self.is_clean,
            "cut_at": self.cut_at,
            "since": self.since,
            "seconds": round(self.seconds, 3),
            "partitions": [
                {
                    "hop": each.hop,
                    "partition": each.partition,
                    "records": each.records,
                    **{kind: counts[each.hop, each.partition, kind] for kind in KINDS},
                    "notes": {text: count for text, count in each.notes.items() if count},
                }
                for each in self.tallies
            ],
            "findings": [each._asdict() for each in self.findings],
        }

    def lines(self) -> Iterator[str]:
        """A table of the partitions, the first findings, the verdict."""
        since = f"since the clean audit of {self.since}" if self.since else "everything that is there"
        yield f"up to the cut of {self.cut_at}, {since}"
        counts = Counter((each.hop, each.partition, each.kind) for each in self.findings)
        rows = [("hop", "partition", "records", *KINDS, "notes")]
        for each in self.tallies:
            notes = "; ".join(f"{count:,} {text}" for text, count in each.notes.items() if count)
            found = [f"{counts[each.hop, each.partition, kind]:,}" for kind in KINDS]
            rows.append((each.hop, each.partition, f"{each.records:,}", *found, notes))
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        for row in rows:
            cells = [
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=False))
            ]
            yield "  ".join([*cells, row[-1]]).rstrip()
        for finding in self.findings[:_SHOWN]:
            yield _printable(f"{finding.kind}: {finding.coordinate}: {finding.detail}")
        if len(self.findings) > _SHOWN:
            yield f"… and {len(self.findings) - _SHOWN:,} more: --json lists them all"
        looked_at = sum(each.records for each in self.tallies)
        verdict = "clean" if self.is_clean else f"{len(self.findings):,} findings"
        yield f"{verdict}: {looked_at:,} records compared in {self.seconds:.1f} s"


def _printable(text: str) -> str:
    """What a record says of itself may hold anything, commands to the terminal too."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
