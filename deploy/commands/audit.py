"""The command `headrace audit`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, Directory
from services.audit.hops.hop import HOPS, Hop


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
