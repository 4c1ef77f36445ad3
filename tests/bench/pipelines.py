"""`headrace bench pipelines`: what each further pipeline in one process costs, in memory and processor time.

One process with the first pipeline, then another with the first two, and so on, each on a new stack under the same evenly paced load, in
rounds. Memory is proportional (PSS): a page that several processes share, such as the interpreter's, is counted once.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from deploy.local.processes.deployable import deployables
from deploy.local.processes.process import Process
from spark.pipelines import load
from tests.bench.load import pace
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED, PIPELINE, RAW, SECOND_PIPELINE
from tests.bench.measuring.latency import FIRST, wait_for_first
from tests.bench.measuring.listen import listen
from tests.bench.measuring.meter import SELDOM_SECONDS, Meter, proportional_mib
from tests.bench.measuring.results import as_line, conditions, save

_WARM_SECONDS = 30.0
"""Of each load, before memory is looked at."""


@dataclass(frozen=True, slots=True)
class Shared:
    """One run of a process with these pipelines: its memory in MiB, a figure every few seconds, and the cores that it kept busy."""

    pipelines: list[str]
    memory_mib: list[float]
    cores: float


def run(further: Sequence[str], rate: int, seconds: float, rounds: int, say: Callable[[str], None]) -> list[Shared]:
    """The first pipeline alone and with each of `further` (none: a filter) added in turn, `rounds` times. Raises PipelineUnfit, ProcessFailed, TimeoutError."""
    names = [PIPELINE, *(further or [SECOND_PIPELINE])]
    for name in names:
        load(name)
    steps = [names[:count] for count in range(1, len(names) + 1)]
    found = []
    for _, pipelines in itertools.product(range(rounds), steps):
        found.append(_measured(pipelines, rate, seconds, say))
        say(_line(found[-1:]))
    return found


def report(found: Sequence[Shared], rate: int, seconds: float, say: Callable[[str], None]) -> None:
    """Print the medians of the runs, and write every figure to a file."""
    under = conditions("pyspark", "confluent-kafka") | {"events per second": rate, "seconds": seconds}
    say(as_line(under))
    for line in differences(found):
        say(line)
    save("pipelines", {"conditions": under, "runs": [asdict(each) for each in found]}, say)


def differences(found: Sequence[Shared]) -> Iterator[str]:
    """A line for each number of pipelines: its medians, and what they are above those of one pipeline less."""
    by_count = [list(runs) for _, runs in itertools.groupby(sorted(found, key=_count), key=_count)]
    before: Sequence[Shared] = ()
    for runs in by_count:
        line = _line(runs)
        if before:
            more = _memory(runs) - _memory(before)
            line += f"; {more:+.0f} MiB and {_cores(runs) - _cores(before):+.2f} cores"
        yield line
        before = runs


def _measured(pipelines: Sequence[str], rate: int, seconds: float, say: Callable[[str], None]) -> Shared:
    with filled_stack(FIRST, say) as (stack, env, settings):
        words = deployables().live(pipelines).command
        process = Process("live", [sys.executable, "-m", *words], directory=stack.directory, env=env)
        process.start()
        try:
            consumer = listen(settings, ENRICHED)
            wait_for_first(consumer, process)
            consumer.close()
            say(f"{', '.join(pipelines)}: {rate:,} events/s for {seconds:.0f} s")
            memory = []
            with (
                Meter({process.name: process.pid}, every_seconds=SELDOM_SECONDS) as meter,
                pace.start(RAW, rate, seconds, env) as sending,
            ):
                warm_at = time.monotonic() + _WARM_SECONDS
                while sending.poll() is None:
                    time.sleep(SELDOM_SECONDS)
                    process.check_running()
                    if time.monotonic() >= warm_at:
                        memory.append(proportional_mib(process.pid))
            return Shared(list(pipelines), memory, meter.usage[process.name].cpu_seconds / seconds)
        finally:
            process.stop(grace_seconds=60)


def _line(runs: Sequence[Shared]) -> str:
    lowest, highest = (pick(statistics.median(run.memory_mib) for run in runs) for pick in (min, max))
    return (
        f"{', '.join(runs[0].pipelines)}, median of {len(runs)}: {_memory(runs):,.0f} MiB (runs from {lowest:,.0f} to {highest:,.0f}), "
        f"{_cores(runs):.2f} cores"
    )


def _memory(runs: Sequence[Shared]) -> float:
    return statistics.median(statistics.median(run.memory_mib) for run in runs)


def _cores(runs: Sequence[Shared]) -> float:
    return statistics.median(run.cores for run in runs)


def _count(run: Shared) -> int:
    return len(run.pipelines)
