"""`headrace bench throughput`: every hop alone, over backlogs: publisher → raw → enriched → Delta, and enriched → alerts.

One stack for each size; what a hop has written is the next one's backlog.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from contracts.settings import Settings
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.alerting import alerting_process
from tests.bench.enrich import spark_hops
from tests.bench.load.filled import empty_stack
from tests.bench.load.records import ENRICHED
from tests.bench.measuring.hop import Hop, measure_process, sent_to, taken_in

SIZES = (1_000_000, 5_000_000)


def run(sizes: Sequence[int], say: Callable[[str], None]) -> list[Hop]:
    """The hops of each size."""
    hops = []
    for events in sizes:
        with empty_stack(say) as (stack, env, settings):
            hops.append(_published(events, stack, env, settings, say))
            hops += spark_hops(events, stack, env, settings, say)
            hops.append(_watched(events, stack, env, settings, say))
    return hops


def _published(
    events: int, stack: LocalStack, env: dict[str, str], settings: Settings, say: Callable[[str], None]
) -> Hop:
    command = [sys.executable, "-m", "tests.bench.load.publishing", str(events)]
    process = Process("publisher", command, directory=stack.directory, env=env)
    return measure_process("publisher → raw", process, stack, events, sent_to(settings), say)


def _watched(
    events: int, stack: LocalStack, env: dict[str, str], settings: Settings, say: Callable[[str], None]
) -> Hop:
    """With the ten rules of `bench alerting`. The end markers of transactions are offsets too, a handful."""
    process = alerting_process(stack, env)
    taken = taken_in(settings, ENRICHED, "alerting")
    return measure_process("enriched → alerts", process, stack, events, taken, say)
