"""`python -m tests.alerting.consuming.stalling`: the alerting service, whose Kafka client stops fetching on SIGUSR1."""

from __future__ import annotations

import asyncio
import signal
import sys

from services.alerting import __main__ as service
from services.alerting.app import Alerting


class Stalling(Alerting):
    """Pauses every partition in the client itself, so nobody else knows."""

    async def run(self, stop: asyncio.Event) -> None:
        """As the service does."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._pause)
        await super().run(stop)

    def _pause(self) -> None:
        client = self._consumer._thread._ensure_consumer()
        client.pause(*client.assignment())


if __name__ == "__main__":
    vars(service)["Alerting"] = Stalling
    sys.exit(service.main())
