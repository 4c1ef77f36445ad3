"""`headrace bench enrich`: the backlog throughput of raw → enriched, and of enriched → Delta."""

from __future__ import annotations

import json
from collections.abc import Callable

from contracts.settings import Settings
from deploy.local.servers.stack import LocalStack
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED, TABLE
from tests.bench.measuring.hop import Hop, measure, table_size, taken_in

LAKE_ALONE = {
    "HEADRACE_LAKE__TOPICS": json.dumps([ENRICHED]),
    # The few records that the full batches leave over need not wait for more: it is throughput that counts.
    "HEADRACE_LAKE__TRIGGER_SECONDS": "1",
}
"""Settings with which `lake` lands the enriched topic alone."""


def run(events: int, say: Callable[[str], None]) -> list[Hop]:
    """Fill a new stack with so many events, enrich them, land them in the lake."""
    with filled_stack(events, say) as (stack, env, settings):
        return spark_hops(events, stack, env, settings, say)


def spark_hops(
    events: int, stack: LocalStack, env: dict[str, str], settings: Settings, say: Callable[[str], None]
) -> list[Hop]:
    """Enrich the `events` that are there, land them in the lake."""
    enriched = measure("raw → enriched", "live", stack, env, events, taken_in(settings), say)
    rows = table_size(settings.s3, TABLE)
    return [enriched, measure("enriched → Delta", "lake", stack, env | LAKE_ALONE, events, rows, say)]
