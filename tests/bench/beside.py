"""`headrace bench enrich --beside COMMIT`: the code as it is and that of a commit, over the same backlog, in turn.

On a shared machine one run differs from the next by a tenth. So what is compared are the medians of runs that take turns, on one stack.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from contracts.servers.s3 import keys, s3_client
from contracts.settings import S3Settings
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from deploy.local.servers.stack import LocalStack
from tests.bench.enrich import LAKE_ALONE
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import PIPELINE, TABLE
from tests.bench.measuring.hop import Hop, forget_positions, measure_process, table_size, taken_in

_SEED = 1

# A program of another tree: what `-m` finds lies in the working directory first.
_ELSEWHERE = "import os, runpy, sys; os.chdir(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__')"


def run(commit: str, events: int, rounds: int, say: Callable[[str], None]) -> list[Hop]:
    """The hops of `rounds` runs of each of both over so many events. Raises ValueError if there is no such commit."""
    with _tree_of(commit) as other, filled_stack(events, say) as (stack, env, settings):
        trees = {"now": ROOT, commit: other}
        # A group without an offset begins anew, though records of it are there.
        env |= {"HEADRACE_LIVE__RESUME_FROM": "group"}

        def enrich(name: str, tree: Path) -> Hop:
            process = _process("live", tree, stack, env)
            hop = measure_process(f"raw → enriched, {name}", process, stack, events, taken_in(settings), say)
            forget_positions(settings)
            return hop

        def land(name: str, tree: Path) -> Hop:
            process = _process("lake", tree, stack, env | LAKE_ALONE)
            rows = table_size(settings.s3, TABLE)
            hop = measure_process(f"enriched → Delta, {name}", process, stack, events, rows, say)
            _remove(settings.s3, f"lake/{TABLE}/", f"checkpoints/lake/{TABLE}/", f"leases/lake/{TABLE}")
            return hop

        # Fills the enriched topic, and is no part of the comparison.
        enrich("before", ROOT)
        hops = []
        for measure in (land, enrich):
            for hop in _in_turn(measure, trees, rounds):
                hops.append(hop)
                for line in medians([hop]):
                    say(line)
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


def _in_turn(measure: Callable[[str, Path], Hop], trees: dict[str, Path], rounds: int) -> Iterator[Hop]:
    chance = random.Random(_SEED)
    for _ in range(rounds):
        # Whoever is always the second one would have what the first one left in the caches.
        for name in chance.sample(list(trees), len(trees)):
            yield measure(name, trees[name])


def _process(deployable: str, tree: Path, stack: LocalStack, env: dict[str, str]) -> Process:
    found = deployables()
    words = (found.live([PIPELINE]) if deployable == "live" else found.named(deployable)).command
    argv = [sys.executable, "-c", _ELSEWHERE, str(tree), *words]
    return Process(deployable, argv, directory=stack.directory, env=env | {"PYTHONPATH": str(tree)})


def _remove(s3: S3Settings, *prefixes: str) -> None:
    client = s3_client(s3)
    for prefix in prefixes:
        for key in keys(client, s3.bucket, prefix):
            client.delete_object(Bucket=s3.bucket, Key=key)


@contextmanager
def _tree_of(commit: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix="headrace-beside-") as folder:
        for words in (
            ["clone", "--quiet", "--shared", str(ROOT), folder],
            ["-C", folder, "checkout", "--quiet", commit],
        ):
            done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
            if done.returncode:
                raise ValueError(f"git has no {commit} here: {done.stderr.strip()}")
        yield Path(folder)
