"""The console script `headrace`. Every command imports what it needs itself, so that `--help` is there at once."""

from __future__ import annotations

import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from deploy.moment import moment
from deploy.options import DEFAULT_DIRECTORY, RunningStack
from services.audit.hops.hop import HOPS, Hop
from spark.runtime.mode import Mode

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Headrace: events under contract, on one machine.")
bench_app = typer.Typer(no_args_is_help=True, help="Measure Headrace on this machine.")
app.add_typer(bench_app, name="bench")


@bench_app.callback()
def _bench() -> None:
    from deploy.local.checks import need_clone

    need_clone()
    # As with Ctrl-C: a benchmark has processes of its own to stop.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


Directory = Annotated[Path, typer.Option("--dir", help="Where the stack keeps data and logs.")]
PortOffset = Annotated[int, typer.Option(min=0, max=46_000, help="Added to every default port, for a second stack.")]


def _port(text: str) -> Any:
    return typer.Option(min=1, max=65_535, help=text)


@app.command()
def up(
    directory: Directory = DEFAULT_DIRECTORY,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the stack's data first.")] = False,
    speed: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds of event time per second; 1008 (default) is a week in ten minutes."),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="End the replay at this event time, e.g. 2026-01-08T00:00Z.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="End the replay after so many events of each producer.")
    ] = None,
    producers: Annotated[bool, typer.Option("--producers/--no-producers", help="Start the producers.")] = True,
    pipelines: Annotated[
        str | None,
        typer.Option(metavar="NAME,…|all", help="The pipelines that run; those of deploy/deployables.yaml by default."),
    ] = None,
    port_offset: PortOffset = 0,
    kafka_port: Annotated[int | None, _port("The broker's port (default 19092).")] = None,
    registry_port: Annotated[int | None, _port("The registry's port (default 18081).")] = None,
    s3_port: Annotated[int | None, _port("The S3 server's port (default 19000).")] = None,
) -> None:
    """Start the stack and everything on it, and show it until Ctrl-C; the next `up` goes on where it stopped."""
    from dataclasses import replace

    from contracts.settings import read_settings
    from deploy.local.servers.ports import Ports
    from deploy.local.up import Options
    from deploy.local.up import up as run
    from deploy.pipelines import chosen_pipelines
    from spark.runtime.settings import SparkSettings

    # Before anything starts: what is wrong with these would show when the half of it runs.
    moment("--until", until)
    running = chosen_pipelines(pipelines, read_settings(SparkSettings).live)
    ports = Ports().offset(port_offset)
    ports = replace(
        ports, kafka=kafka_port or ports.kafka, registry=registry_port or ports.registry, s3=s3_port or ports.s3
    )
    run(Options(directory, ports, fresh, speed, until, limit, producers, running))


@app.command()
def status(
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print once what `up` shows; exit 1 when no stack runs."""
    from deploy.local.once import status as look

    if not look(directory, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def down(directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop a stack that was left running; its data stay."""
    from deploy.local.once import down as stop

    stop(directory)


@app.command()
def audit(
    directory: Directory = DEFAULT_DIRECTORY,
    full: Annotated[
        bool, typer.Option("--full", help="Everything that is there, not only what came since the last clean audit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, with every finding.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long whoever lags may take to reach the cut, each.")
    ] = 150,
    at_least_once: Annotated[
        bool,
        typer.Option(
            "--at-least-once",
            help="live runs in real-time mode: what came again after a failure is noted, not found fault with.",
        ),
    ] = False,
    hop: Annotated[
        list[Hop] | None,
        typer.Option(help="Only this one; may be given more than once. Such an audit is not remembered."),
    ] = None,
) -> None:
    """Prove by the records that nothing was lost, doubled, reordered, changed or made up, from raw topics to lake and alerts.

    Audits what the HEADRACE_ variables name, or, where they name no brokers, the stack in --dir; it may be running: what comes
    after the start of the audit is left to the next one. Exit status 0: clean, 1: findings, 2: no verdict.
    """
    from contracts.definitions.catalog import load_catalog
    from contracts.settings import read_settings
    from deploy.errors import DeployError
    from deploy.local.client import env_file
    from services.audit.__main__ import NO_VERDICT, run
    from services.audit.settings import AuditSettings

    try:
        settings = read_settings(AuditSettings, _env_file=env_file(directory))
    except DeployError as error:
        typer.echo(f"no verdict: {error}", err=True)
        raise typer.Exit(NO_VERDICT) from None
    raise typer.Exit(
        run(
            settings,
            load_catalog(),
            full=full,
            as_json=as_json,
            wait_seconds=wait,
            hops=hop or HOPS,
            at_least_once=at_least_once,
        )
    )


@app.command()
def repair(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="Whose rows: a file of spark/pipelines.")],
    directory: RunningStack = DEFAULT_DIRECTORY,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only rows of this event time or later, e.g. 2026-01-08T00:00Z.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long the lake may take to catch up with the topic.")
    ] = 60,
) -> None:
    """Enrich rows of a pipeline again whose dimension row came late, and send each once as its next revision.

    The lake takes the revisions in beside the rows that are there. Killed in the middle, run it again: what was sent is
    not sent twice. Uses what the HEADRACE_ variables name, or, where they name no brokers, the stack that runs in --dir.
    Exit status 0: all was sent and committed; 1: not all, or nothing; 2: wrong options or settings.
    """
    from deploy.local.spark_command import run

    options = [
        pipeline,
        "--wait",
        str(wait),
        *(["--since", since] if since else []),
        *(["--dry-run"] if dry_run else []),
    ]
    raise typer.Exit(run("repair", options, directory))


@app.command("pipelines")
def list_pipelines(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """List the pipelines: what each reads and writes, and how many records come of one; where a stack runs, also their lag and who runs them.

    Lag is in records of the topic that it reads, by its consumer group; in real-time mode that is up to an interval old.
    """
    import json

    from contracts.definitions.catalog import load_catalog
    from deploy import pipelines
    from deploy.errors import DeployError
    from deploy.local.client import client_settings

    found = pipelines.pipelines(load_catalog())
    try:
        settings = client_settings(directory)
    except DeployError:
        settings = None
    if settings is not None:
        found = pipelines.running(settings, found)
    if as_json:
        typer.echo(json.dumps(pipelines.as_json(found), indent=2))
    else:
        typer.echo("\n".join(pipelines.lines(found, asked=settings is not None)))


@app.command()
def plan(
    against: Annotated[
        str,
        typer.Option(
            metavar="REVISION",
            help="A commit, branch or tag, e.g. origin/main: compares with where this branch left it.",
        ),
    ] = "HEAD",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown, for a pull request.")] = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 if a contract breaks, whatever --records finds.")
    ] = False,
    records: Annotated[
        bool,
        typer.Option("--records", help="Also count what becomes of the records that the running stack retains."),
    ] = False,
    most: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --records: the newest N of each partition; 25,000 by default."),
    ] = None,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Say what the contracts' files here change, beside a git revision: what is new, what changed, what breaks, and for whom.

    With --records, the records of each changed topic are decoded with its new schema, and those that a changed pipeline reads are made anew
    by it, with the current dimension versions; both are compared with what is there. It takes a minute. Nothing is written or registered.
    """
    import json

    from deploy import plan as planned

    if most is not None and not records:
        raise typer.BadParameter("it is of the records: say --records", param_hint="--most")
    found = planned.plan(against)
    if records:
        found = planned.with_records(found, directory, most or 25_000, lambda text: typer.echo(text, err=True))
    if as_json:
        typer.echo(json.dumps(planned.as_json(found), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join((planned.markdown if as_markdown else planned.lines)(found)))
    if exit_code and any(change.weight == "breaking" for change in found.changes):
        raise typer.Exit(1)


@app.command()
def tail(
    topic: Annotated[str, typer.Argument(help="A topic, also one of dead letters, e.g. alerts.raised.v1.dlq.")],
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="WHERE", help="earliest, latest, a time, or how many records before each partition's end."
        ),
    ] = "10",
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="Only events for which this holds, e.g. 'amount > 2000'.")
    ] = None,
    limit: Annotated[int | None, typer.Option("-n", min=1, help="End after so many records.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for further records, until Ctrl-C.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, one line each, with headers.")] = False,
    headers: Annotated[bool, typer.Option("-v", "--headers", help="With the headers of each record.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Print the records of a topic, decoded, as they come: time, coordinate, key and event. Nothing is committed."""
    from contextlib import suppress
    from itertools import islice

    from contracts.definitions.catalog import load_catalog
    from deploy.local.client import client_settings
    from deploy.records.tail import Start, unknown_fields
    from deploy.records.tail import tail as lines_of
    from services.alerting.rules.condition import Condition

    begin, catalog = Start.of(start), load_catalog()
    try:
        condition = None if where is None else Condition(where)
    except ValueError as error:
        raise typer.BadParameter(f"{where}: {error}", param_hint="--where") from None
    if condition is not None and (unknown := unknown_fields(catalog, topic, condition)):
        raise typer.BadParameter(f"{topic} has no field {', '.join(unknown)}", param_hint="--where")
    lines = lines_of(client_settings(directory), topic, begin, condition, follow=follow)
    with suppress(KeyboardInterrupt):
        for line in islice(lines, limit):
            typer.echo(line.json() if as_json else line.text(headers=headers))


@app.command()
def trace(
    event: Annotated[
        str,
        typer.Argument(metavar="KEY|COORDINATE", help="A record's key, or topic/partition/offset of any record of it."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Follow one event through every hop: raw record, derived records, dead letters, rows, alerts, with their delays.

    A key is looked for in all topics with keys, from their first record on; of several records with it the newest is followed. Exit 1: there
    is none.
    """
    import json
    import shutil

    from contracts.definitions.catalog import load_catalog
    from contracts.records.coordinates import is_coordinate
    from contracts.servers.registry import Registry
    from deploy.local.client import client_settings
    from deploy.records import trace as following

    settings = client_settings(directory)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    with Registry(settings.registry) as registry:
        found = following.Trace(settings, load_catalog(), registry, say)
        coordinates = [event] if is_coordinate(event) else found.coordinates_of(event)
        if not coordinates:
            say(f"there is no record with the key {event!r}")
            raise typer.Exit(1)
        if len(coordinates) > 1:
            say(f"{len(coordinates)} records have this key; the newest is {coordinates[-1]}")
        steps = found.steps(coordinates[-1])
    if as_json:
        typer.echo(json.dumps(following.as_json(steps), indent=2))
    else:
        columns = shutil.get_terminal_size((200, 24)).columns
        typer.echo("\n".join(following.lines(steps, columns)))


@app.command()
def send(
    topic: Annotated[str, typer.Argument(help="A topic that is not derived.")],
    file: Annotated[typer.FileText, typer.Argument(help="One event in JSON a line; - for standard input.")],
    service: Annotated[
        str | None, typer.Option("--as", metavar="SERVICE", help="One of the topic's producers; the first by default.")
    ] = None,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Check events against their contract, and publish them.

    Of a file nothing is sent unless every line is an event; standard input is sent as it comes, up to the first line that is none.
    The same line has the same event id, so a Subscriber takes what was sent twice once.
    """
    from contracts.definitions.catalog import load_catalog
    from deploy.local.client import client_settings
    from deploy.records.send import handle_of, read_events
    from deploy.records.send import send as publish

    catalog = load_catalog()
    handle = handle_of(catalog, topic)
    events = read_events(handle, file)
    if file.name != "<stdin>":
        events = iter(list(events))
    producer = service or catalog.topic(topic).producers[0]
    count = publish(client_settings(directory), catalog, handle, producer, events)
    typer.echo(f"{count} events published to {topic} as {producer}")


@app.command()
def test(
    unit: Annotated[bool, typer.Option("--unit", help="Only the quick part, without the stack.")] = False,
    images: Annotated[bool, typer.Option("--images", help="Only the container images: build and run them.")] = False,
    expression: Annotated[str | None, typer.Option("-k", help="Only tests whose names match, as in pytest.")] = None,
    faults: Annotated[
        bool, typer.Option("--faults", help="Only the fault campaign, or the faults named; finished ones are kept.")
    ] = False,
    short: Annotated[bool, typer.Option("--short", help="With --faults: the few of them that CI runs.")] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="With --faults: of their chance; 1 by default.")] = None,
    mode: Annotated[
        Literal["exactly-once", "real-time"] | None,
        typer.Option(help="With --faults: of live; exactly-once by default."),
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(help="For pytest, after `--`; or names of faults.")] = None,
) -> None:
    """Run the tests: the quick ones, then those on a real stack of their own."""
    from deploy.local.checks import need_clone, run_faults, run_short_faults, run_tests

    need_clone()
    of_faults = {"--short": short, "--seed": seed is not None, "--mode": mode is not None}
    of_tests = {"--unit": unit, "--images": images, "-k": expression is not None}
    for option, is_given in (of_tests if faults else of_faults).items():
        if is_given:
            why = "leave it or --faults out" if faults else "it is of the fault campaign: say --faults"
            raise typer.BadParameter(why, param_hint=option)
    rest = arguments or []
    is_named = bool(rest) and not rest[0].startswith("-")
    if short and (of_faults["--seed"] or of_faults["--mode"] or is_named):
        why = "its faults, their seed and modes are chosen: leave --seed, --mode and NAME out"
        raise typer.BadParameter(why, param_hint="--short")
    if short:
        raise typer.Exit(run_short_faults(rest))
    if faults:
        raise typer.Exit(run_faults(rest, seed, mode))
    raise typer.Exit(run_tests(unit=unit, images=images, expression=expression, arguments=rest))


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
    beside: Annotated[
        str | None, typer.Option(metavar="COMMIT", help="Compare with this commit: runs of both in turn, and medians.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="With --beside: runs of each.")] = 5,
) -> None:
    """Backlog throughput of raw → enriched and of enriched → Delta, on a stack of its own; about three minutes."""
    from tests.bench import beside as comparison
    from tests.bench import enrich
    from tests.bench.hop import report

    if beside is None:
        report("enrich", enrich.run(events, typer.echo), typer.echo)
        return
    try:
        hops = comparison.run(beside, events, rounds, typer.echo)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--beside") from error
    report("enrich-beside", hops, typer.echo)
    for line in comparison.medians(hops):
        typer.echo(line)


@bench_app.command("throughput")
def bench_throughput(
    events: Annotated[
        list[int] | None,
        typer.Option(min=1000, help="How many records the backlog holds; 1,000,000 and 5,000,000 by default."),
    ] = None,
) -> None:
    """Every hop alone over backlogs, one publisher process and alerting included; about ten minutes."""
    from tests.bench.hop import report
    from tests.bench.throughput import SIZES, run

    report("throughput", run(events or SIZES, typer.echo), typer.echo)


@bench_app.command("growth")
def bench_growth(
    axes: Annotated[
        list[str] | None,
        typer.Argument(
            help="partitions, dimension-rows, event-bytes, schema-versions, rules; all by default.", metavar="[AXIS…]"
        ),
    ] = None,
    events: Annotated[int, typer.Option(min=1000, help="How many records each point's backlog holds.")] = 500_000,
) -> None:
    """Throughput against what grows, with a plot each; a minute for each of twenty points."""
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
    from tests.bench.hop import report
    from tests.bench.sinks import run

    report("sinks", run(events, typer.echo), typer.echo)


@bench_app.command("latency")
def bench_latency(
    mode: Annotated[
        list[Mode] | None, typer.Option(help="Of live; may be given more than once. All but at-least-once by default.")
    ] = None,
    rate: Annotated[
        list[int] | None, typer.Option(min=100, help="Events per second; 1,000 and 10,000 by default.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=30, help="How long each load lasts; 20 s of it are left out.")] = 600.0,
    interval: Annotated[float, typer.Option(min=5, help="The real-time mode's interval in seconds.")] = 120.0,
) -> None:
    """Raw → enriched and raw → alert as a polling consumer sees them, under evenly paced load, in each mode; as long as the loads take."""
    from tests.bench.latency import MODES, RATES, report, run

    report(run(mode or MODES, rate or RATES, seconds, interval, typer.echo), typer.echo)


@bench_app.command("soak")
def bench_soak(
    rate: Annotated[int, typer.Option(min=100, help="Events per second, evenly paced.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=90, help="How long the load lasts.")] = 1800.0,
) -> None:
    """All that `up` starts, in a folder of its own, under load for half an hour: lag, memory and files over time.

    It takes 1 GB of disk for a million events.
    """
    from tests.bench.soak import report, run

    report(run(rate, seconds, typer.echo), typer.echo)


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
    from tests.bench.peers.run import report, run

    report(run(events, rate, seconds, only or [], typer.echo), typer.echo)


@bench_app.command("alerting")
def bench_alerting(
    events: Annotated[int, typer.Option(min=1000, help="How many enriched records the backlog holds.")] = 2_000_000,
    rate: Annotated[int, typer.Option(min=100, help="Events per second of the paced load.")] = 5_000,
    seconds: Annotated[
        float, typer.Option(min=30, help="How long the paced load lasts; 20 s of it are left out.")
    ] = 90.0,
) -> None:
    """Throughput of the alerting service on a backlog, and its delay under paced load; about three minutes."""
    from tests.bench.alerting import report, run

    report(*run(events, rate, seconds, typer.echo), typer.echo)


def main() -> None:
    """The entry point: an error that is the user's to cure is one sentence, not a traceback."""
    import structlog

    from contracts.cli import contracts_app
    from contracts.errors import HeadraceError
    from deploy.dead_letters import dlq_app
    from deploy.errors import DeployError
    from deploy.new.commands import new_app
    from deploy.provisioning import topics_app
    from deploy.rules import rules_app

    # What clients log of an outage belongs into a service's log: commands say it themselves, and their stdout may be JSON.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    app.add_typer(dlq_app, name="dlq")
    app.add_typer(contracts_app, name="contracts")
    app.add_typer(topics_app, name="topics")
    app.add_typer(rules_app, name="rules")
    app.add_typer(new_app, name="new")
    try:
        app()
    except (DeployError, HeadraceError) as error:
        sys.exit(f"headrace: {error}")
    except KeyboardInterrupt:
        sys.exit("headrace: interrupted")
