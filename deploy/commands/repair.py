"""The command `headrace repair`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack


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
