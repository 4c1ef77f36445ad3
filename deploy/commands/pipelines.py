"""The commands `headrace pipelines` and `headrace state`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack


def list_pipelines(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """List the pipelines: what each reads and writes, and how many records come of one; where a stack runs, also their lag and who runs them.

    Lag is in records of the topic that it reads, by its consumer group; in real-time mode that is some seconds old.
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


def state(
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="One of spark/pipelines that keeps a state.")],
    where: Annotated[
        str | None, typer.Option(metavar="CEL", help="Only rows for which this holds, e.g. '!matched'.")
    ] = None,
    limit: Annotated[int, typer.Option("-n", min=1, help="So many rows, of a join of each side.")] = 20,
    batch: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Behind this batch, one of the last 20; the last by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Show what the state of a pipeline holds: open groups or sessions, the rows of a join that wait, or names of events.

    The oldest come first. It reads the pipeline's checkpoint and writes nothing, so the pipeline may run meanwhile. Exit status 1: there is no
    state, or it can't be read.
    """
    import json

    from deploy.local.spark_command import lines
    from deploy.records import state as shown
    from services.alerting.rules.condition import Condition

    try:
        condition = None if where is None else Condition(where)
    except ValueError as error:
        raise typer.BadParameter(f"{where}: {error}", param_hint="--where") from None
    options = [
        pipeline,
        *(["--batch", str(batch)] if batch is not None else []),
        # Which of them are the first that it holds for is found out here.
        *(["--most", str(limit)] if condition is None else []),
    ]
    summary, rows = shown.state(lines("state", options, directory), condition, limit)
    if as_json:
        typer.echo(json.dumps(shown.as_json(summary, rows), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(shown.text(summary, rows)))
