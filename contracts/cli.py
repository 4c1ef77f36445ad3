"""The commands `headrace contracts …` that need no server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from contracts.errors import HeadraceError

contracts_app = typer.Typer(no_args_is_help=True, help="Check, generate, release, register and document the contracts.")


@contracts_app.command("check")
def check_contracts() -> None:
    """Check every rule of the contract files, without a server; list every problem."""
    from contracts.definitions.catalog import load_catalog

    _stop_on_problems()
    catalog = load_catalog()
    typer.echo(f"{len(catalog.topics)} topics and {len(catalog.dimensions)} dimensions keep every rule")


@contracts_app.command("generate")
def generate_code() -> None:
    """Write the event models and topic handles that the schemas ask for."""
    from contracts.definitions.catalog import load_catalog
    from contracts.documents.python import generate

    with _sentences():
        _report("wrote", generate(load_catalog()).write(), nothing="the generated code is up to date")


@contracts_app.command("release")
def release_schemas(
    topics: Annotated[list[str] | None, typer.Argument(metavar="TOPIC…", help="Whose schemas to freeze.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Freeze those of all topics.")] = False,
) -> None:
    """Freeze the schema files of topics: from now on, a change is a new version file."""
    from contracts.checks.release import release
    from contracts.definitions.catalog import load_catalog

    if bool(topics) == every:
        raise typer.BadParameter("name the topics, or say --all")
    _stop_on_problems(for_release=True)
    with _sentences():
        _report("released", release(load_catalog(), topics or None), nothing="these schemas are released already")


@contracts_app.command("docs")
def write_documents(
    only_check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 when a document is stale.")
    ] = False,
) -> None:
    """Write the flow diagram, the ODCS files and the AsyncAPI file under docs/."""
    from contracts.definitions.catalog import load_catalog
    from contracts.documents.files import documents

    with _sentences():
        files = documents(load_catalog())
        if not only_check:
            _report("wrote", files.write(), nothing="the documents are up to date")
        elif stale := files.stale():
            _fail(f"{path}: stale: run `headrace contracts docs`" for path in stale)


@contextmanager
def _sentences() -> Iterator[None]:
    """What the user can cure is said in sentences, without a traceback."""
    try:
        yield
    except HeadraceError as error:
        _fail([str(error)])


def _stop_on_problems(*, for_release: bool = False) -> None:
    from contracts.checks.check import check

    if problems := check(for_release=for_release):
        _fail(map(str, problems))


def _report(verb: str, done: Iterable[object], *, nothing: str) -> None:
    lines = [f"{verb} {item}" for item in done]
    typer.echo("\n".join(lines) or nothing)


def _fail(lines: Iterable[str]) -> NoReturn:
    typer.echo("\n".join(lines), err=True)
    raise typer.Exit(1)
