"""`headrace bench sinks`: the exactly-once sink beside Spark's own Kafka writer, over the same backlog in one run.

The same raw records, the same enrichment, each in a process of its own; only `HEADRACE_LIVE__MODE` differs. What came
out is counted in the enriched topic: committed records, none of the other's.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED
from tests.bench.measuring.hop import Hop, forget_positions, grown, measure

MODES = ("exactly-once", "at-least-once")


def run(events: int, say: Callable[[str], None]) -> list[Hop]:
    """One hop for each mode, over so many events."""
    hops = []
    with filled_stack(events, say) as (stack, env, settings):
        for mode in MODES:
            ours = env | {"HEADRACE_LIVE__MODE": mode}
            hops.append(measure(mode, "live", stack, ours, events, grown(settings, ENRICHED), say))
            if mode == "exactly-once":
                forget_positions(settings)
    return hops
