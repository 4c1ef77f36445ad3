"""The commands about single records: `headrace tail`, `headrace trace`, `headrace send`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack

_OTHERS = 5
"""So many records of the same key are named."""


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
    import sys

    from contracts.definitions.catalog import load_catalog
    from contracts.records.coordinates import Coordinate
    from contracts.servers.registry import Registry
    from deploy.local.client import client_settings
    from deploy.records import trace as following

    settings = client_settings(directory)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    with Registry(settings.registry) as registry:
        found = following.Trace(settings, load_catalog(), registry, say)
        coordinate = Coordinate.parse(event)
        coordinates = found.coordinates_of(event) if coordinate is None else [coordinate]
        if not coordinates:
            say(f"there is no record with the key {event!r}")
            raise typer.Exit(1)
        if len(coordinates) > 1:
            others = ", ".join(map(str, coordinates[-_OTHERS - 1 : -1]))
            say(
                f"{len(coordinates)} records have this key; the newest is {coordinates[-1]}. To follow another, give it in place of the key: {others}"
            )
        steps = found.steps(coordinates[-1])
    if as_json:
        typer.echo(json.dumps(following.as_json(steps), indent=2))
    else:
        columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        typer.echo("\n".join(following.lines(steps, columns)))


def send(
    topic: Annotated[str, typer.Argument(help="A topic that is not derived.")],
    file: Annotated[typer.FileText, typer.Argument(help="One event in JSON a line; - for standard input.")],
    service: Annotated[
        str | None, typer.Option("--as", metavar="SERVICE", help="One of the topic's producers; the first by default.")
    ] = None,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Check events against their contract, and publish them.

    Of a file nothing is sent unless every line is an event; standard input is sent as it comes, up to the first line that is none or that brokers refuse.
    The same line has the same event id, so a Subscriber takes what was sent twice once.
    """
    from contracts.definitions.catalog import load_catalog
    from deploy.local.client import client_settings
    from deploy.records.send import handle_of, read_events
    from deploy.records.send import send as publish

    catalog = load_catalog()
    handle = handle_of(catalog, topic)
    lines = read_events(handle, file)
    events = lines if file.name == "<stdin>" else list(lines)
    producer = service or catalog.topic(topic).producers[0]
    count = publish(client_settings(directory), catalog, handle, producer, events)
    typer.echo(f"{count} events published to {topic} as {producer}")
