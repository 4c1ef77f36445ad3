"""`headrace bench enrich`: the backlog throughput of raw → enriched, and of enriched → Delta; with `--beside COMMIT` also that of a commit's code."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from contracts.servers.s3 import keys, s3_client
from contracts.settings import S3Settings, Settings
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED, PIPELINE, TABLE
from tests.bench.measuring.hop import Hop, forget_positions, measure, measure_process, table_size, taken_in
from tests.bench.measuring.trees import in_turn, program, trees

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


def run_beside(commit: str, events: int, rounds: int, say: Callable[[str], None]) -> list[Hop]:
    """The hops of `rounds` runs of this tree and of a commit's over the same backlog on one stack, in turn. Raises NoSuchCommit."""
    with trees(commit) as both, filled_stack(events, say) as (stack, env, settings):
        hops: list[Hop] = []

        def enrich(name: str, tree: Path) -> None:
            process = _process("live", tree, stack, env)
            told(measure_process(f"raw → enriched, {name}", process, stack, events, taken_in(settings), say))
            forget_positions(settings)

        def land(name: str, tree: Path) -> None:
            process = _process("lake", tree, stack, env | LAKE_ALONE)
            rows = table_size(settings.s3, TABLE)
            told(measure_process(f"enriched → Delta, {name}", process, stack, events, rows, say))
            _remove(settings.s3, f"lake/{TABLE}/", f"checkpoints/lake/{TABLE}/", f"leases/lake/{TABLE}")

        def told(hop: Hop) -> None:
            hops.append(hop)
            for line in medians([hop]):
                say(line)

        # Fills the enriched topic, and is no part of the comparison.
        enrich("before", ROOT)
        hops.clear()
        for hop in (land, enrich):
            in_turn(hop, both, rounds)
        return hops


def medians(hops: Sequence[Hop]) -> Iterator[str]:
    """A line for each name: the medians of its runs."""
    for name in dict.fromkeys(hop.name for hop in hops):
        own = [hop for hop in hops if hop.name == name]
        rate = statistics.median(hop.sustained for hop in own)
        cpu = statistics.median(hop.cpu_seconds_per_million_sustained for hop in own)
        whole = statistics.median(hop.cpu_seconds_per_million for hop in own)
        rss = max(next(iter(hop.usage.values())).peak_rss_mib for hop in own)
        yield (
            f"{name}, median of {len(own)}: {rate:,.0f} events/s sustained; CPU-seconds per million after the first fifth "
            f"{cpu:.1f}, start included {whole:.1f}; largest peak RSS {rss:.0f} MiB"
        )


def _process(deployable: str, tree: Path, stack: LocalStack, env: dict[str, str]) -> Process:
    found = deployables()
    words = (found.live([PIPELINE]) if deployable == "live" else found.named(deployable)).command
    argv, own = program(tree, words)
    return Process(deployable, argv, directory=stack.directory, env=env | own)


def _remove(s3: S3Settings, *prefixes: str) -> None:
    client = s3_client(s3)
    for prefix in prefixes:
        for key in keys(client, s3.bucket, prefix):
            client.delete_object(Bucket=s3.bucket, Key=key)
