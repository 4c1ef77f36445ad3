"""Each contender's backlog beside the others': `ratios`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.hop import Hop

_US = "headrace-exactly-once"


def ratios(hops: Sequence[Hop]) -> list[str]:
    """One line for each of the others, none without Headrace's exactly-once mode: its rate and its cost over theirs."""
    ours = next((hop for hop in hops if hop.name == _US), None)
    if ours is None:
        return []
    return [
        f"{_US} / {hop.name}: {ours.sustained / hop.sustained:.2f} of its events/s sustained, {ours.overall / hop.overall:.2f} with the "
        f"start, {ours.cpu_seconds_per_million / hop.cpu_seconds_per_million:.2f} of its CPU-seconds per million"
        for hop in hops
        if hop is not ours
    ]
