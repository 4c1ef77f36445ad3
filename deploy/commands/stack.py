"""The commands that start the stack, look at it and stop it: `headrace up`, `headrace status`, `headrace down`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from deploy.moment import moment
from deploy.options import DEFAULT_DIRECTORY, Directory

PortOffset = Annotated[int, typer.Option(min=0, max=46_000, help="Added to every default port, for a second stack.")]


def _port(text: str) -> Any:
    return typer.Option(min=1, max=65_535, help=text)


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


def status(
    directory: Directory = DEFAULT_DIRECTORY,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print once what `up` shows; exit 1 when no stack runs."""
    from deploy.local.once import status as look

    if not look(directory, as_json=as_json):
        raise typer.Exit(1)


def down(directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop a stack that was left running; its data stay."""
    from deploy.local.once import down as stop

    stop(directory)
