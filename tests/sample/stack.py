"""`bring`: what a stack needs for the parcels."""

from __future__ import annotations

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
