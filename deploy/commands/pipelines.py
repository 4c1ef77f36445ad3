"""The command `headrace pipelines`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack


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
