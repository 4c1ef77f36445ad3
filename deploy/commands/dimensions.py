"""The commands `headrace dimensions …`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.options import DEFAULT_DIRECTORY, RunningStack

dimensions_app = typer.Typer(no_args_is_help=True, help="The dimensions, and the files that they are made of.")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="A CSV file.")]
_Dimension = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of this dimension; default: the one whose contract has `source: FILE`."),
]


@dimensions_app.command("list")
def list_dimensions(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """List the dimensions: the version in force, its rows, when it was published, and who looks up in it."""
    import json

    from contracts.definitions.catalog import load_catalog
    from deploy import dimensions
    from deploy.local.client import client_settings

    catalog = load_catalog()
    found = dimensions.in_force(client_settings(directory).s3, catalog)
    if as_json:
        typer.echo(json.dumps(dimensions.as_json(catalog, found), indent=2))
    else:
        typer.echo("\n".join(dimensions.lines(catalog, found)))


@dimensions_app.command("check")
def check(file: _File, dimension: _Dimension = None) -> None:
    """Check a file against the contract of its dimension, without a stack. Exit 1: it would be set aside."""
    from contracts.definitions.catalog import load_catalog
    from deploy.dimensions import read_source

    source = read_source(file, load_catalog(), dimension)
    typer.echo(f"{file}: {source.rows:,} rows for {source.contract.name}, as its contract says")


@dimensions_app.command("put")
def put(
    file: _File,
    dimension: _Dimension = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Wait so long for `dimensions` to publish it.")
    ] = 60.0,
    directory: RunningStack = DEFAULT_DIRECTORY,
) -> None:
    """Check a file, upload it, and wait until it is the version in force. Exit 1: it was refused, or nobody took it."""
    from contracts.definitions.catalog import load_catalog
    from deploy.dimensions import Upload, read_source
    from deploy.local.client import client_settings

    source = read_source(file, load_catalog(), dimension)
    upload = Upload(client_settings(directory).s3, source)
    where = upload.send()
    if upload.before is not None and upload.is_in_force:
        typer.echo(
            f"{where}: version {upload.before.version} of {source.contract.name}, which is in force, was made of the same file"
        )
        return
    typer.echo(f"{source.rows:,} rows are uploaded to {where}; waiting for dimensions", err=True)
    found = upload.outcome(wait)
    before = "the first" if upload.before is None else f"version {upload.before.version} had {upload.before.rows:,}"
    typer.echo(f"version {found.version} of {source.contract.name} is in force: {found.rows:,} rows; {before}")
