"""The commands `headrace rules …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

rules_app = typer.Typer(no_args_is_help=True, help="The rules of alerting.")


@rules_app.callback()
def _group() -> None:
    """Typer makes an app with one command that command itself; with this it stays a group."""


@rules_app.command("check")
def check(
    file: Annotated[Path | None, typer.Argument(help="A rules file; default: the one that alerting reads.")] = None,
) -> None:
    """Check a rules file against the contracts, without a stack; list every problem. Exit 1: alerting would refuse it."""
    from contracts.definitions.catalog import load_catalog
    from contracts.settings import read_settings
    from services.alerting.rules.rulebook import RulebookError, load_rulebook
    from services.alerting.settings import AlertingSettings

    try:
        found = load_rulebook(file or read_settings(AlertingSettings).rules_file, load_catalog())
    except RulebookError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    topics = ", ".join(f"{len(rules)} about {topic}" for topic, rules in found.by_topic.items())
    typer.echo(f"{len(found.rules)} rules: {topics}" if topics else "no rules")
