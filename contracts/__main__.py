"""`python -m contracts`: makes the broker and the registry agree with the contracts, once, before the deployables start."""

from __future__ import annotations

import sys

import structlog
from confluent_kafka import KafkaException

from contracts.command_line import command_line
from contracts.definitions.catalog import load_catalog
from contracts.errors import HeadraceError
from contracts.observe import configure_logging
from contracts.servers.provision import create_topics, register_contracts
from contracts.servers.registry import Registry
from contracts.settings import Settings, read_settings

_log = structlog.get_logger(__name__)


def main() -> int:
    """Create the topics and register the schemas that are missing; the exit status."""
    command_line("contracts", __doc__).parse_args()
    settings = read_settings(Settings)
    configure_logging(settings, service="contracts")
    catalog = load_catalog()
    try:
        with Registry(settings.registry) as registry:
            done = [*create_topics(settings, catalog), *register_contracts(registry, catalog)]
    except (HeadraceError, KafkaException) as error:
        _log.error("the contracts are not in force, try again when this is cured", error=str(error))
        return 1
    _log.info("contracts in force", done=done)
    return 0


if __name__ == "__main__":
    sys.exit(main())
