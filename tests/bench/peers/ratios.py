"""Each contender's backlog beside the others': `ratios`."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.measuring.hop import Hop

_US = "headrace-exactly-once"


def ratios(hops: Sequence[Hop]) -> list[str]:
    """One line for each of the others, none without Headrace's exactly-once mode: its rate and its cost over theirs."""
    ours = next((hop for hop in hops if hop.name == _US), None)
    if ours is None:
        return []
    return [_line(ours, hop) for hop in hops if hop is not ours]


def _line(ours: Hop, theirs: Hop) -> str:
    rates = ours.sustained / theirs.sustained, ours.overall / theirs.overall
    costs = (
        ours.cpu_seconds_per_million_sustained / theirs.cpu_seconds_per_million_sustained,
        ours.cpu_seconds_per_million / theirs.cpu_seconds_per_million,
    )
    return (
        f"{ours.name} / {theirs.name}, after the first fifth and with the start: "
        f"{rates[0]:.2f} and {rates[1]:.2f} of its events/s, {costs[0]:.2f} and {costs[1]:.2f} of its CPU-seconds per million"
    )
