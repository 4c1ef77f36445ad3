"""`Alerting`: the faust worker around `evaluate`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faust
from aiokafka.errors import KafkaError

from contracts import topics
from contracts.catalog import Catalog
from contracts.codec import Codec
from contracts.errors import ConsumeError
from contracts.publisher import Publisher
from contracts.registry import Registry
from services.alerting.broker import ReadCommitted, broker_urls, credentials
from services.alerting.rulebook import SERVICE
from services.alerting.settings import AlertingSettings
from services.alerting.topic_agent import TopicAgent
from services.alerting.watch import RulesFile
from services.alerting.window import Window

_POLL_SECONDS = 1.0
"""How often the rules file is looked at."""


class Alerting:
    """Reads every topic whose contract lists alerting as a consumer, and raises the alerts of the rules in force.

    At-least-once: a record is acknowledged when its alerts, or its dead letter, are on the broker. A repeat raises the
    same alert ids. A dead letter or alert that the broker doesn't take stops the worker.
    """

    def __init__(
        self, settings: AlertingSettings, catalog: Catalog, rules: RulesFile, registry: Registry, publisher: Publisher
    ) -> None:
        self._settings = settings
        self._catalog = catalog
        self._rules = rules
        self._registry = registry
        self._publisher = publisher
        self._failure: asyncio.Future[None] | None = None
        self._state: str | None = "starting"

    def health(self) -> str | None:
        """What is wrong, or None."""
        return self._state

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. Raises what made it impossible to go on."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        with TemporaryDirectory(prefix="headrace-alerting-") as folder:
            app = self._app(Path(folder), loop)
            waits: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(stop.wait()),
                asyncio.ensure_future(app.wait()),
                asyncio.ensure_future(self._watch_rules()),
                self._failure,
            ]
            try:
                try:
                    await app.start()
                except KafkaError as error:
                    raise ConsumeError(f"no start at {self._settings.kafka.bootstrap_servers}: {error}") from error
                self._state = None
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if app.crashed:
                    raise app.crash_reason or RuntimeError("faust crashed without a reason")
                for wait in waits:
                    if wait.done():
                        wait.result()
            except BaseException as error:
                self._state = f"stopped by {type(error).__name__}"
                raise
            finally:
                for wait in waits:
                    wait.cancel()
                await app.stop()

    async def _watch_rules(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self._rules.refresh()

    def _app(self, folder: Path, loop: asyncio.AbstractEventLoop) -> faust.App:
        kafka = self._settings.kafka
        app = faust.App(
            SERVICE,
            broker=broker_urls(kafka),
            broker_credentials=credentials(kafka),
            broker_commit_interval=1.0,
            # How long the partitions of a killed worker lie idle; faust's default is a minute. Heartbeats come from a
            # thread of their own.
            broker_session_timeout=10.0,
            broker_heartbeat_interval=3.0,
            consumer_auto_offset_reset="earliest",
            datadir=folder,
            store="memory://",
            autodiscover=False,
            # Stopping would wait for the records that a failed delivery leaves unacknowledged, that is for ever.
            stream_wait_empty=False,
            web_enabled=False,
            topic_allow_declare=False,
            topic_disable_leader=True,
            loop=loop,
        )
        app.transport = ReadCommitted(broker_urls(kafka), app, loop=loop)
        for topic, contract in self._catalog.topics.items():
            if SERVICE in contract.consumers and topic != topics.ALERTS_RAISED.name:
                channel = app.topic(
                    topic, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
                )
                agent = TopicAgent(
                    contract,
                    Codec(self._registry.by_id, reader_schema=self._catalog.schema(topic)),
                    self._rules,
                    self._publisher,
                    Window(self._settings.window_records),
                    self._fail,
                )
                app.agent(channel, name=f"alerts of {topic}", concurrency=1)(agent.run)
        return app

    def _fail(self, error: BaseException) -> None:
        """Stop the worker; what has not been acknowledged is read again by the next one."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
