"""What a stack needs for the parcels: `bring`; a stack with them: `new_stack`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from contracts.servers.provision import create_topics, register_contracts
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from tests import sample


def bring(stack: LocalStack) -> None:
    """Create the topics of the parcels and register their schemas, beside those of the tree."""
    settings = stack.settings()
    create_topics(settings, sample.catalog())
    with Registry(settings.registry) as registry:
        register_contracts(registry, sample.catalog())


@contextmanager
def new_stack(directory: Path) -> Iterator[LocalStack]:
    """Broker, registry and S3 server with the tree's contracts and the sample's."""
    with LocalStack(directory) as running:
        running.bootstrap()
        bring(running)
        yield running
