"""The console script `headrace`. Every command imports what it needs itself, so that `--help` is there at once."""

from __future__ import annotations

import sys

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Headrace: events under contract, on one machine.")


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    print(installed("headrace"))


def main() -> None:
    """The entry point: an error that is the user's to cure is one sentence, not a traceback."""
    from deploy.errors import DeployError

    try:
        app()
    except DeployError as error:
        sys.exit(f"headrace: {error}")
