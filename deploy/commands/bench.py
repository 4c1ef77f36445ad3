"""The commands `headrace bench …`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from spark.runtime.mode import Mode

_SHORTEST_WITH_CHANGES = 120.0
"""Seconds: three tenths of it are more than the half minute from a schema to its first record."""

_Beside = Annotated[
    str | None, typer.Option(metavar="COMMIT", help="Compare with this commit: runs of both in turn, and medians.")
]
_Changes = Annotated[
    bool, typer.Option("--changes", help="With two new dimension versions and one new schema version in each load.")
]
_Rounds = Annotated[int, typer.Option(min=1, help="With --beside: runs of each.")]

bench_app = typer.Typer(no_args_is_help=True, help="Measure Headrace on this machine.")


@bench_app.callback()
def _bench() -> None:
    from deploy.local.checks import need_clone

    need_clone()
    # As with Ctrl-C: a benchmark has processes of its own to stop.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@bench_app.command("audit")
def bench_audit(
    events: Annotated[int, typer.Option(min=1000, help="How many records there are.")] = 1_000_000,
) -> None:
    """Time to audit raw, derived and lake records, on a stack of its own; about four minutes, most of them to make the records."""
    from tests.bench.audit import report, run

    report(run(events, typer.echo), typer.echo)


@bench_app.command("enrich")
def bench_enrich(
    events: Annotated[int, typer.Option(min=1000, help="How many records the backlog holds.")] = 1_000_000,
    beside: _Beside = None,
    rounds: _Rounds = 5,
) -> None:
    """Backlog throughput of raw → enriched and of enriched → Delta, on a stack of its own; about three minutes."""
    from tests.bench.enrich import medians, run, run_beside
    from tests.bench.measuring.hop import report

    if beside is None:
        report("enrich", run(events, typer.echo), typer.echo)
        return
    with _known_commit():
        hops = run_beside(beside, events, rounds, typer.echo)
    report("enrich-beside", hops, typer.echo)
    for line in medians(hops):
        typer.echo(line)


@bench_app.command("throughput")
def bench_throughput(
    events: Annotated[
        list[int] | None,
        typer.Option(min=1000, help="How many records the backlog holds; 1,000,000 and 5,000,000 by default."),
    ] = None,
) -> None:
    """Every hop alone over backlogs, one publisher process and alerting included; about ten minutes."""
    from tests.bench.measuring.hop import report
    from tests.bench.throughput import SIZES, run

    report("throughput", run(events or SIZES, typer.echo), typer.echo)


@bench_app.command("growth")
def bench_growth(
    axes: Annotated[
        list[str] | None,
        typer.Argument(
            help="partitions, state-partitions, dimension-rows, event-bytes, schema-versions, rules; all by default.",
            metavar="[AXIS…]",
        ),
    ] = None,
    events: Annotated[int, typer.Option(min=1000, help="How many records each point's backlog holds.")] = 500_000,
) -> None:
    """Throughput against what grows, with a plot each; a minute for each of 24 points."""
    from tests.bench.growth import AXES, report, run

    known = {axis.name: axis for axis in AXES}
    if unknown := set(axes or ()) - known.keys():
        raise typer.BadParameter(f"there is no axis {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    report(run([known[name] for name in axes] if axes else AXES, events, typer.echo), typer.echo)


@bench_app.command("sinks")
def bench_sinks(
    events: Annotated[int, typer.Option(min=1000, help="How many records the backlog holds.")] = 1_000_000,
) -> None:
    """The exactly-once sink beside Spark's own Kafka writer, on one backlog; about three minutes."""
    from tests.bench.measuring.hop import report
    from tests.bench.sinks import run

    report("sinks", run(events, typer.echo), typer.echo)


@bench_app.command("latency")
def bench_latency(
    mode: Annotated[
        list[Mode] | None, typer.Option(help="Of live; may be given more than once. All but at-least-once by default.")
    ] = None,
    rate: Annotated[
        list[int] | None,
        typer.Option(min=100, help="Events per second; 1,000 and 10,000 by default, with --changes 1,000 alone."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=30, help="How long each load lasts; 20 s of it are left out.")] = 600.0,
    interval: Annotated[
        float, typer.Option(min=5, max=3600, help="The real-time mode's interval in seconds.")
    ] = 3600.0,
    changes: _Changes = False,
    beside: _Beside = None,
    rounds: _Rounds = 5,
) -> None:
    """Raw → enriched and raw → alert as a polling consumer sees them, under evenly paced load, in each mode; as long as the loads take."""
    if changes and len(rate or ()) > 1:
        raise typer.BadParameter(
            "with --changes there is one load for each mode: a second one would begin with the new schema",
            param_hint="--rate",
        )
    _need_time_for(changes, seconds)
    from tests.bench.latency import MODES, RATES, report, report_beside, run, run_beside

    modes, rates = mode or MODES, rate or (RATES[:1] if changes else RATES)
    if beside is None:
        report(run(modes, rates, seconds, interval, typer.echo, changing=changes), typer.echo)
        return
    with _known_commit():
        found = run_beside(beside, modes, rates, seconds, interval, rounds, typer.echo, changing=changes)
    report_beside(found, typer.echo)


@bench_app.command("cores")
def bench_cores(
    cores: Annotated[int, typer.Option(min=1, help="Processors that live and the broker have.")] = 1,
    rate: Annotated[
        list[int] | None, typer.Option(min=100, help="Events per second; 1,000, 2,500, 5,000 and 10,000 by default.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=30, help="How long each load lasts; 20 s of it are left out.")] = 60.0,
) -> None:
    """Raw → enriched in real-time mode, while live and the broker have so many processors, and the load has the others.

    With all of the machine's processors the load shares them. Nothing else
    runs: the delay is read from the topics when a load is over.
    """
    import os

    there = len(os.sched_getaffinity(0))
    if cores > there:
        raise typer.BadParameter(f"this machine has {there}", param_hint="--cores")
    from tests.bench.cores import RATES, report, run

    report(run(cores, rate or RATES, seconds, typer.echo), typer.echo)


@bench_app.command("soak")
def bench_soak(
    rate: Annotated[int, typer.Option(min=100, help="Events per second, evenly paced.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=90, help="How long the load lasts.")] = 1800.0,
    version_every: Annotated[
        float, typer.Option(min=0, help="Seconds from one new version of a dimension to the next; 0: none.")
    ] = 0.0,
) -> None:
    """All that `up` starts, in a folder of its own, under load for half an hour: lag, memory and files over time.

    It takes 1 GB of disk for a million events.
    """
    from tests.bench.soak import EVERY_SECONDS, report, run

    if 0 < version_every < EVERY_SECONDS:
        raise typer.BadParameter(
            f"a version comes with a look at most, and those are {EVERY_SECONDS:.0f} s apart: 0, or {EVERY_SECONDS:.0f} or more",
            param_hint="--version-every",
        )
    report(run(rate, seconds, typer.echo, version_every), typer.echo)


@bench_app.command("peers")
def bench_peers(
    events: Annotated[int, typer.Option(min=0, help="How many records the backlog holds; 0: no backlog.")] = 1_000_000,
    rate: Annotated[int, typer.Option(min=100, help="Events per second of the paced load.")] = 1_000,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long each paced load lasts; 20 s of it are left out; 0: no latencies.")
    ] = 150.0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this contender; may be given more than once.")
    ] = None,
    changes: _Changes = False,
) -> None:
    """Headrace beside Flink, Quix Streams and textbook Spark: the same enrichment by each, in turn, its rows compared first.

    A backlog, then the latency under evenly paced load: about fifty minutes
    with the defaults, a fifth of it for the backlogs. The first run
    downloads Flink (430 MB) and Quix Streams (30 MB) into environments of
    their own and five jars (37 MB), by locks with checksums, into
    ~/.cache/headrace, where they take 850 MB.

    Names: headrace-exactly-once, headrace-at-least-once, headrace-real-time
    (latency only), spark-textbook, flink-exactly-once, flink-at-least-once,
    flink-untuned-exactly-once, flink-untuned-at-least-once,
    quix-exactly-once, quix-at-least-once.
    """
    if 0 < seconds < 30:
        raise typer.BadParameter("20 s are left out, so it must be 30 or more, or 0.", param_hint="--seconds")
    _need_time_for(changes, seconds)
    from tests.bench.peers.run import report, run

    report(run(events, rate, seconds, only or [], typer.echo, changing=changes), typer.echo)


@bench_app.command("state")
def bench_state(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(help="windows, final-windows, sessions, join; all by default.", metavar="[WORKLOAD…]"),
    ] = None,
    events: Annotated[int, typer.Option(min=1000, help="How many records the backlog holds.")] = 1_000_000,
    copies: Annotated[
        int, typer.Option(min=1, help="How often each event is there; a window has some four different ones.")
    ] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this contender; may be given more than once.")
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option(min=1000, help="Instead: Headrace's memory and batches while its state grows to so many keys."),
    ] = None,
) -> None:
    """Windows, sessions and a join of two streams by Headrace and by Flink SQL, exactly once, their rows compared first; about half an hour.

    Runs over the same events take turns on one stack, and medians are
    told. The first run downloads Flink (430 MB) as `bench peers` does.

    Names: headrace, flink, flink-rocksdb.
    """
    if keys is not None:
        from tests.bench.state import growth

        growth.report(keys, growth.run(keys, typer.echo), typer.echo)
        return
    from tests.bench.state.run import report, run

    report(run(workloads or [], events, copies, rounds, only or [], typer.echo), copies, typer.echo)


@bench_app.command("pipelines")
def bench_pipelines(
    further: Annotated[
        list[str] | None, typer.Argument(help="Added in this order; a filter by default.", metavar="[NAME…]")
    ] = None,
    rate: Annotated[int, typer.Option(min=100, help="Events per second, evenly paced.")] = 1_000,
    seconds: Annotated[float, typer.Option(min=60, help="How long each load lasts; 30 s of it are left out.")] = 120.0,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
) -> None:
    """Memory and processor time of one process with the first pipeline, and with each further one; about a quarter of an hour."""
    from tests.bench.pipelines import report, run

    report(run(further or [], rate, seconds, rounds, typer.echo), rate, seconds, typer.echo)


@bench_app.command("alerting")
def bench_alerting(
    events: Annotated[int, typer.Option(min=1000, help="How many enriched records the backlog holds.")] = 2_000_000,
    rate: Annotated[int, typer.Option(min=100, help="Events per second of the paced load.")] = 5_000,
    seconds: Annotated[
        float, typer.Option(min=30, help="How long the paced load lasts; 20 s of it are left out.")
    ] = 90.0,
    beside: _Beside = None,
    rounds: _Rounds = 5,
) -> None:
    """Throughput of the alerting service on a backlog, and its delay under paced load; about three minutes."""
    from tests.bench.alerting import report, report_beside, run, run_beside

    if beside is None:
        report(*run(events, rate, seconds, typer.echo), typer.echo)
        return
    with _known_commit():
        found = run_beside(beside, events, rate, seconds, rounds, typer.echo)
    report_beside(found, typer.echo)


def _need_time_for(changes: bool, seconds: float) -> None:
    """Raise BadParameter where a load with changes is so short that the last one comes too late for it."""
    if changes and 0 < seconds < _SHORTEST_WITH_CHANGES:
        raise typer.BadParameter(
            f"with --changes it must be {_SHORTEST_WITH_CHANGES:.0f} or more: a schema is registered after seven tenths of the load, "
            "and records have it half a minute later",
            param_hint="--seconds",
        )


@contextmanager
def _known_commit() -> Iterator[None]:
    """A commit that git does not know is a wrong value of --beside."""
    from tests.bench.measuring.trees import NoSuchCommit

    try:
        yield
    except NoSuchCommit as error:
        raise typer.BadParameter(str(error), param_hint="--beside") from error
