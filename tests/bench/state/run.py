"""`headrace bench state`: work with state by Headrace and by Apache Flink, over one backlog, in turn, exactly once into Kafka.

All runs over one backlog are on one stack, and take turns in another order each time, because who always comes second would have what the first one
left in the caches. Of each run the rows are read back and compared with what they must be, which says an oracle that shares no code with either.
Only when all are right in every run is any figure told. A reader of committed records tells how far a run is: a record of a key stands for all
events before its time. So events are through when what they make is there to read.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter

from tests.bench.load.filled import bare_stack
from tests.bench.measuring.hop import Hop, run_through
from tests.bench.measuring.results import as_line, conditions, save
from tests.bench.peers.environment import locked_version
from tests.bench.peers.errors import PeerDiffers, UnknownContender
from tests.bench.state.contender import HEADRACE, Contender, Stage, chosen
from tests.bench.state.workloads.backlog import Backlog, fill
from tests.bench.state.workloads.join import JOIN
from tests.bench.state.workloads.sessions import SESSIONS
from tests.bench.state.workloads.windows import FINAL_WINDOWS, WINDOWS
from tests.bench.state.workloads.workload import Row, Workload
from tests.bench.state.written import Written

WORKLOADS: tuple[Workload, ...] = (WINDOWS, FINAL_WINDOWS, SESSIONS, JOIN)
_SEED = 1
_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Turn:
    """One run: how it went, and how many records of how many keys were written."""

    workload: str
    contender: str
    hop: Hop
    records: int
    keys: int


def run(
    workloads: Sequence[str], events: int, copies: int, rounds: int, only: Sequence[str], say: Callable[[str], None]
) -> list[Turn]:
    """`rounds` runs of each workload by each contender of these names (none: all), over so many events, each flight `copies` times.

    Raises UnknownContender, PeerUnavailable, JarsUnavailable; PeerDiffers when a row is wrong.
    """
    known = {each.name: each for each in WORKLOADS}
    for name in workloads:
        if name not in known:
            raise UnknownContender(f"no workload is called {name}: choose of {', '.join(known)}.")
    contenders = chosen(only)
    for each in contenders:
        each.fetch(say)
    turns = []
    for load, of_load in itertools.groupby([known[name] for name in workloads or known], key=attrgetter("load")):
        with bare_stack(say) as (stack, env, settings):
            say(f"filling the raw topics with {events:,} events")
            backlog = fill(settings, load, events, copies)
            stage = Stage(stack, env, settings, say)
            for workload in of_load:
                expected = workload.expected(backlog)
                say(f"{workload.name}: {backlog.size:,} events make {len(expected):,} keys")
                for number, contender in enumerate(_in_turn(contenders, rounds)):
                    turns.append(_turn(workload, contender, number, backlog, expected, stage))
    return turns


def medians(turns: Sequence[Turn]) -> Iterator[str]:
    """A line for each contender of each workload; and what Headrace's median is of each other's."""
    for name in dict.fromkeys(turn.workload for turn in turns):
        of = _by_contender([turn for turn in turns if turn.workload == name])
        figures = {contender: _figures(own) for contender, own in of.items()}
        for contender, own in of.items():
            found = figures[contender]
            yield (
                f"{name}, {contender}, median of {len(own)}: {found['sustained']:,.0f} events/s sustained, {found['overall']:,.0f} with "
                f"the start; CPU-seconds per million after the first fifth {found['cpu_sustained']:.1f}, start included {found['cpu']:.1f}; "
                f"largest peak RSS {max(turn.hop.usage[contender].peak_rss_mib for turn in own):.0f} MiB; "
                f"{statistics.median(turn.records for turn in own):,.0f} records of {own[0].keys:,} keys"
            )
        if HEADRACE not in figures:
            continue
        for contender, theirs in figures.items():
            if contender != HEADRACE:
                ours = figures[HEADRACE]
                ratio = {what: ours[what] / theirs[what] for what in ours}
                yield (
                    f"{name}, {HEADRACE} / {contender}, after the first fifth and with the start: {ratio['sustained']:.2f} and "
                    f"{ratio['overall']:.2f} of its events/s, {ratio['cpu_sustained']:.2f} and {ratio['cpu']:.2f} of its CPU-seconds per million"
                )


def report(turns: Sequence[Turn], copies: int, say: Callable[[str], None]) -> None:
    """Print the figures, and write them with their raw samples to `bench-results/state-<time>.json`."""
    found = {
        **conditions("pyspark", "confluent-kafka"),
        "apache-flink": locked_version("flink", "apache-flink"),
        "copies of a departure": copies,
    }
    say(as_line(found))
    for turn in turns:
        for line in turn.hop.lines():
            say(line)
    for line in medians(turns):
        say(line)
    save("state", {"conditions": found, "turns": [asdict(turn) for turn in turns]}, say)


def _turn(
    workload: Workload, contender: Contender, number: int, backlog: Backlog, expected: Mapping[str, Row], stage: Stage
) -> Turn:
    target = contender.target(workload, number)
    process = contender.process(workload, target, stage)
    written = Written(stage.settings, target, workload, backlog, expected)
    name = f"{workload.name}, {contender.name}"
    try:
        hop = run_through(name, process, stage.stack, backlog.size, written.events, stage.say)
        # It still runs: its last transaction may be open.
        found = written.differences()
    finally:
        process.stop(grace_seconds=_GRACE_SECONDS)
        written.close()
    if found:
        raise PeerDiffers(f"{name}: other rows than they must be, so no figure counts: {'; '.join(found)}")
    stage.say(f"{name}: all {len(expected):,} rows are right; {hop.overall:,.0f} events/s with the start")
    contender.forget(workload, stage)
    return Turn(workload.name, contender.name, hop, written.records, len(expected))


def _in_turn(contenders: Sequence[Contender], rounds: int) -> Iterator[Contender]:
    chance = random.Random(_SEED)
    for _ in range(rounds):
        yield from chance.sample(list(contenders), len(contenders))


def _by_contender(turns: Sequence[Turn]) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        found.setdefault(turn.contender, []).append(turn)
    return found


def _figures(turns: Sequence[Turn]) -> dict[str, float]:
    hops = [turn.hop for turn in turns]
    return {
        "sustained": statistics.median(hop.sustained for hop in hops),
        "overall": statistics.median(hop.overall for hop in hops),
        "cpu_sustained": statistics.median(hop.cpu_seconds_per_million_sustained for hop in hops),
        "cpu": statistics.median(hop.cpu_seconds_per_million for hop in hops),
    }
