"""`python -m services.alerting`: raises alerts and notifies, until it is stopped."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

import structlog

from contracts import topics
from contracts.command_line import command_line
from contracts.definitions.catalog import load_catalog
from contracts.errors import HeadraceError
from contracts.observe import configure_logging, serve_health
from contracts.servers.provision import check_limits
from contracts.servers.registry import Registry
from contracts.settings import read_settings
from services.alerting.app import Alerting, new_publisher
from services.alerting.notifying.notifier import Notifier
from services.alerting.notifying.receiver import ReceiversError, load_receivers
from services.alerting.rules.rulebook import SERVICE, RulebookError
from services.alerting.rules.watch import RulesFile
from services.alerting.settings import AlertingSettings

_log = structlog.get_logger(__name__)

# Each try of the registry client; an intake tries again for as long as it takes.
_REGISTRY_RETRY_SECONDS = 5.0

_SWITCH_SECONDS = 0.0005
_GC_THRESHOLDS = (20_000, 20, 50)

# A receiver that is slow to answer may hold up the end for that long; the alert at hand comes again then.
_NOTIFIER_SECONDS = 5.0


def main() -> int:
    """Raise alerts and notify until SIGTERM or SIGINT; the exit status: 0, 1 when work can't go on, 2 for wrong settings."""
    command_line("services.alerting", __doc__).parse_args()
    settings = read_settings(AlertingSettings)
    # The client's thread takes turns with the one that evaluates; Python's 5 ms would be in every delay.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # A record is a dozen small objects that die young and in no cycle; what was imported lives on.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    configure_logging(settings, service=SERVICE)
    # faust tells at INFO of each of its parts that starts, and aiokafka of each step of joining a group.
    for library in ("faust", "mode", "aiokafka", "services.alerting.consuming.broker"):
        logging.getLogger(library).setLevel(logging.WARNING)
    catalog = load_catalog()
    try:
        rules = RulesFile(settings.rules_file, catalog)
        receivers = load_receivers(settings.receivers_file)
    except (RulebookError, ReceiversError) as error:
        print(error, file=sys.stderr)
        return 2
    alerts = catalog.topic(topics.ALERTS_RAISED.name)
    try:
        check_limits(settings.kafka, catalog, [alerts.name, alerts.dead_letter_topic, topics.RULES_ACTIVATED.name])
        with (
            Registry(settings.registry, retry_seconds=_REGISTRY_RETRY_SECONDS) as registry,
            new_publisher(settings, catalog, registry) as publisher,
        ):
            alerting = Alerting(settings, catalog, rules, registry, publisher)
            notifiers = [
                Notifier(each, settings, catalog, registry, publisher, receivers=len(receivers)) for each in receivers
            ]
            with serve_health(settings.http, service=SERVICE, healthy=alerting.health):
                for notifier in notifiers:
                    notifier.start()
                try:
                    asyncio.run(_run(alerting))
                finally:
                    for notifier in notifiers:
                        notifier.stop()
                    for notifier in notifiers:
                        notifier.join(_NOTIFIER_SECONDS)
    except HeadraceError as error:
        _log.error("alerting stops: it can't go on", error=str(error))
        return 1
    return 0


async def _run(alerting: Alerting) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await alerting.run(stop)


if __name__ == "__main__":
    sys.exit(main())
