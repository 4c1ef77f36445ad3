"""The command `headrace plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack


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
