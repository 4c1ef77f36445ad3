"""The command `headrace state`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack


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
