"""`headrace bench enrich --beside COMMIT`: the code as it is and that of a commit, over the same backlog on one stack, in turn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from contracts.servers.s3 import keys, s3_client
from contracts.settings import S3Settings
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.enrich import LAKE_ALONE
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import PIPELINE, TABLE
from tests.bench.measuring.hop import Hop, forget_positions, measure_process, table_size, taken_in
from tests.bench.measuring.trees import in_turn, program, trees


def run(commit: str, events: int, rounds: int, say: Callable[[str], None]) -> list[Hop]:
    """The hops of `rounds` runs of each of both over so many events. Raises NoSuchCommit."""
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
        for measure in (land, enrich):
            in_turn(measure, both, rounds)
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
