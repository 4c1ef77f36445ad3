"""`headrace bench audit`: how long a million records take to audit, from the raw topic to its derived one to the lake.

A local stack of its own is filled with real events, which `live` enriches and `lake` lands, as in `headrace bench
enrich`; both are stopped before the audit begins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from deploy.local.servers.stack import LocalStack
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED, RAW, RAW_TABLE, TABLE
from tests.bench.measuring.hop import measure, table_size, taken_in
from tests.bench.measuring.meter import Meter
from tests.bench.measuring.results import as_line, conditions, save

HOPS = ("derived", "lake")
"""Alerting isn't started, so its hop is left out."""


def run(events: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Fill a new stack with so many events, enriched and landed, and audit all of it, as a process of its own."""
    with filled_stack(events, say) as (stack, env, settings):
        measure("live", "live", stack, env, events, taken_in(settings), say)
        landed = [RAW, ENRICHED]
        sizes = [table_size(settings.s3, table) for table in (RAW_TABLE, TABLE)]
        only = env | {"HEADRACE_LAKE__TOPICS": json.dumps(landed)}
        measure("lake", "lake", stack, only, events, lambda: min(size() for size in sizes), say)
        return {"events": events, "audit": _audit(stack, env, say)}


def _audit(stack: LocalStack, env: dict[str, str], say: Callable[[str], None]) -> dict[str, Any]:
    command = [sys.executable, "-m", "services.audit", "--json", *(part for each in HOPS for part in ("--hop", each))]
    began = time.monotonic()
    process = subprocess.Popen(command, env=os.environ | env, stdout=subprocess.PIPE)
    pids = {"audit": process.pid, "broker": stack.kafka.process.pid, "s3": stack.s3.process.pid}
    with Meter(pids) as meter:
        output, _ = process.communicate()
    seconds = time.monotonic() - began
    report = json.loads(output)
    compared = {each["hop"]: 0 for each in report["partitions"]}
    for each in report["partitions"]:
        compared[each["hop"]] += each["records"]
    say(f"audited in {seconds:.1f} s, exit status {process.returncode}: {compared}")
    return {
        "seconds": seconds,
        "exit_status": process.returncode,
        "compared": compared,
        "findings": len(report["findings"]),
        "cpu_seconds": {name: usage.cpu_seconds for name, usage in meter.usage.items()},
        "peak_rss_mib": {name: usage.peak_rss_mib for name, usage in meter.usage.items()},
    }


def report(figures: dict[str, Any], say: Callable[[str], None]) -> None:
    """Print the figures, and write them to a file."""
    found = conditions("confluent-kafka", "deltalake", "fastavro", "pyarrow", "numpy")
    say(as_line(found))
    say(json.dumps(figures, indent=1))
    save("audit", {"conditions": found, **figures}, say)
