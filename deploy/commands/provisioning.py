"""Commands that take the contracts elsewhere: `headrace contracts register`, `headrace contracts package`, `headrace topics create`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from contracts.cli import contracts_app
from deploy.options import DEFAULT_DIRECTORY, RunningStack

topics_app = typer.Typer(no_args_is_help=True, help="The Kafka topics that the contracts ask for.")


@topics_app.callback()
def _group() -> None:
    """Typer makes an app with one command that command itself; with this it stays a group."""


@contracts_app.command("register")
def register(directory: RunningStack = DEFAULT_DIRECTORY) -> None:
    """Register every schema version at the registry, oldest first; refuse an incompatible one."""
    from contracts.definitions.catalog import load_catalog
    from contracts.servers.provision import register_contracts
    from contracts.servers.registry import Registry
    from deploy.local.client import client_settings

    with Registry(client_settings(directory).registry) as registry:
        _report(register_contracts(registry, load_catalog()), nothing="the registry has every schema already")


@contracts_app.command("package")
def package(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Whose events the package has.")],
    directory: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the wheel goes.")] = Path("dist"),
    version: Annotated[
        str | None, typer.Option("--version", metavar="TEXT", help="Of the package; Headrace's own by default.")
    ] = None,
) -> None:
    """Build a wheel for a repository of its own: these events, typed, Publisher and Subscriber; no Spark.

    It installs the package headrace_client, and nothing else: `from headrace_client import Subscriber, topics`.
    """
    from importlib.metadata import version as installed

    from contracts.definitions.catalog import load_catalog
    from deploy import package as packaged

    typer.echo(f"wrote {packaged.package(load_catalog(), topics, directory, version or installed('headrace'))}")


@topics_app.command("create")
def create(directory: RunningStack = DEFAULT_DIRECTORY) -> None:
    """Create the topics and dead-letter topics that are missing; bring partitions and retention up to the contracts."""
    from confluent_kafka import KafkaException

    from contracts.definitions.catalog import load_catalog
    from contracts.servers.provision import create_topics
    from deploy.errors import DeployError
    from deploy.local.client import client_settings

    settings = client_settings(directory)
    try:
        done = create_topics(settings, load_catalog())
    except KafkaException as error:
        raise DeployError(f"the brokers at {settings.kafka.bootstrap_servers} say: {error.args[0].str()}") from error
    _report(done, nothing="every topic is as its contract says")


def _report(done: Iterable[object], *, nothing: str) -> None:
    typer.echo("\n".join(map(str, done)) or nothing)
