"""The commands that make broker and registry agree with the contracts: `headrace contracts register`, `headrace topics create`."""

from __future__ import annotations

from collections.abc import Iterable

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
