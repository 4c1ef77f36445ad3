"""`headrace bench latency`: from a raw record's sending until a polling consumer has its enriched record, or its alert.

In each mode of `live`, on a stack of its own, with the alerting service and the ten rules of `bench alerting`. Evenly paced events
come from another process (`tests.bench.load.pace`), each with the moment of its sending and its number in the trace id, which the
enriched record and the alert take over. The first 20 s are left out. In real-time mode the worst delay between two moments an
interval apart is the pause at the interval's end. To see it, give an `--interval` shorter than the load: by default no interval ends
in it. With changes none is looked for: every changeover begins a new interval.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process
from spark.runtime.mode import Mode
from tests.bench.alerting import alerting_process
from tests.bench.load.filled import filled_stack
from tests.bench.load.records import ENRICHED
from tests.bench.measuring.delays import as_text
from tests.bench.measuring.latency import ALERTS, FIRST, Latency, measure, report_one, save_plots, wait_for_first
from tests.bench.measuring.listen import listen
from tests.bench.measuring.results import as_line, conditions, save
from tests.bench.measuring.trees import compared, program

MODES: tuple[Mode, ...] = (Mode.EXACTLY_ONCE, Mode.REAL_TIME)
RATES = (1_000, 10_000)


def run(
    modes: Sequence[Mode],
    rates: Sequence[int],
    seconds: float,
    interval_seconds: float,
    say: Callable[[str], None],
    tree: Path = ROOT,
    *,
    changing: bool = False,
) -> list[Latency]:
    """Measure each mode of a tree's programs at each rate, one after the other; each mode on a new stack."""
    found = []
    for mode in modes:
        with filled_stack(FIRST, say) as (stack, env, settings):
            ours = env | {
                "HEADRACE_LIVE__MODE": mode,
                "HEADRACE_LIVE__INTERVAL_SECONDS": str(interval_seconds),
            }
            command, own = program(tree, deployables().named("live").command)
            live = Process("live", command, directory=stack.directory, env=ours | own)
            alerting = alerting_process(stack, env, tree=tree)
            live.start()
            alerting.start()
            try:
                consumer = listen(settings, ENRICHED, ALERTS)
                wait_for_first(consumer, live)
                for rate in rates:
                    say(f"{mode}: {rate:,} events/s for {seconds:.0f} s")
                    found.append(
                        measure(
                            mode,
                            rate,
                            seconds,
                            interval_seconds if mode == Mode.REAL_TIME and not changing else None,
                            consumer,
                            [live, alerting],
                            stack,
                            ours,
                            changing=changing,
                        )
                    )
                consumer.close()
            finally:
                live.stop(grace_seconds=60)
                alerting.stop(grace_seconds=30)
    return found


def run_beside(
    commit: str,
    modes: Sequence[Mode],
    rates: Sequence[int],
    seconds: float,
    interval_seconds: float,
    rounds: int,
    say: Callable[[str], None],
    *,
    changing: bool = False,
) -> dict[str, list[Latency]]:
    """What was measured of this tree and of a commit's, in turn, by name. Raises NoSuchCommit."""

    def measured(tree: Path) -> list[Latency]:
        return run(modes, rates, seconds, interval_seconds, say, tree, changing=changing)

    return compared(commit, rounds, measured, medians, say)


def medians(found: Mapping[str, Sequence[Latency]]) -> Iterator[str]:
    """A line for each mode, rate and tree: the medians of its runs, and the range of their p50, which tells how much runs of one tree differ."""
    for mode, rate in dict.fromkeys((each.name, each.rate) for runs in found.values() for each in runs):
        for name, runs in found.items():
            own = [each for each in runs if (each.name, each.rate) == (mode, rate)]
            figures = [each.figures() for each in own]
            middle = {what: statistics.median(run[what] for run in figures) for what in figures[0]}
            p50s = [run["p50"] for run in figures]
            cores = statistics.median(each.usage["live"].cpu_seconds / each.seconds for each in own)
            rss = max(each.usage["live"].peak_rss_mib for each in own)
            yield (
                f"{name}, {mode} at {rate:,} events/s, raw → enriched in ms, median of {len(own)}: {as_text(middle)}; "
                f"p50 from {min(p50s):.1f} to {max(p50s):.1f}; live: {cores:.2f} cores, largest peak RSS {rss:.0f} MiB; "
                f"lost {sum(each.lost for each in own)}, repeated {sum(each.repeated for each in own)}"
            )


def report_beside(found: Mapping[str, Sequence[Latency]], say: Callable[[str], None]) -> None:
    """Print the medians, and write each run's figures to a file."""
    kept = conditions("pyspark", "confluent-kafka")
    say(as_line(kept))
    for line in medians(found):
        say(line)
    runs = [{"of": name, **each.kept()} for name, measured in found.items() for each in measured]
    save("latency-beside", {"conditions": kept, "results": runs}, say)


def report(latencies: Sequence[Latency], say: Callable[[str], None]) -> None:
    """Print the figures, and write them and every sample to files."""
    found = conditions("pyspark", "confluent-kafka")
    say(as_line(found))
    results = [report_one(each, say) for each in latencies]
    save_plots(latencies, "latency", say)
    save("latency", {"conditions": found, "results": results}, say)
