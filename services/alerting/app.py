"""`Alerting`: the faust worker around `evaluate`."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import faust
import structlog
from aiokafka.errors import KafkaError
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from contracts import topics
from contracts.definitions.catalog import Catalog
from contracts.errors import ConsumeError
from contracts.publisher import Publisher
from contracts.servers.brokers import topic_ids
from contracts.servers.registry import Registry
from services.alerting import metrics
from services.alerting.consuming.assigned import Assigned, Records
from services.alerting.consuming.broker import Consumer, ReadCommitted, broker_urls, credentials
from services.alerting.consuming.intake import Intake
from services.alerting.consuming.membership import Membership
from services.alerting.consuming.takeover import RulesTakeover
from services.alerting.consuming.watchdog import Stalled, Watchdog
from services.alerting.consuming.window import Window
from services.alerting.rules.rulebook import SERVICE
from services.alerting.rules.watch import RulesFile
from services.alerting.settings import AlertingSettings

_log = structlog.get_logger(__name__)

_POLL_SECONDS = 1.0
"""How often the rules file is looked at."""
_TOPICS_SECONDS = 5.0
"""How often the topics are looked at: whether they are those that they were."""
_SETTLE_SECONDS = 5.0
_LEAVE_SECONDS = 10.0
"""How long the end waits for brokers that don't answer: to take the positions, and to let this worker leave its group."""


def new_publisher(settings: AlertingSettings, catalog: Catalog, registry: Registry) -> Publisher:
    """Of all that alerting publishes."""
    return Publisher(
        settings,
        catalog=catalog,
        registry=registry,
        service=SERVICE,
        topics=[topics.ALERTS_RAISED, topics.RULES_ACTIVATED],
        linger_ms=0,  # few, and each is urgent
    )


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
        self._takeover = RulesTakeover(publisher, self._commit)
        membership = Membership(settings.session_timeout_seconds, self._confirm)
        self._intakes = {
            topic: Intake(
                contract,
                catalog.schema(topic),
                partial(registry.by_id_of, contract.subject),
                rules,
                publisher,
                self._takeover,
                membership,
            )
            for topic, contract in catalog.topics.items()
            if SERVICE in contract.consumers and topic != topics.ALERTS_RAISED.name
        }
        self._app: faust.App | None = None
        self._failure: asyncio.Future[None] | None = None
        self._topic_ids: dict[str, str] = {}
        self._state: str | None = "starting"
        metrics.WAITING.set_function(lambda: sum(len(each.window) for each in self.assigned()))

    def health(self) -> str | None:
        """What is wrong, or None."""
        return self._state or next((each.refusal for each in self._intakes.values() if each.refusal is not None), None)

    def assigned(self) -> list[Assigned]:
        """The partitions that this worker has now."""
        return list(self._consumer.assigned.values()) if self._app is not None else []

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. Raises what made it impossible to go on."""
        try:
            while not stop.is_set():
                try:
                    await self._work(stop)
                except Stalled as stall:
                    metrics.RESTARTS.inc()
                    _log.error("the consumer makes no progress and begins anew: find out why", stall=str(stall))
        finally:
            Watchdog.rest()

    async def _work(self, stop: asyncio.Event) -> None:
        """Until `stop` is set, or the consumer stalls, which raises Stalled."""
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        watchdog = Watchdog(self._settings, self.assigned)
        with TemporaryDirectory(prefix="headrace-alerting-") as folder:
            self._app = app = self._new_app(Path(folder), loop)
            waits: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(stop.wait()),
                asyncio.ensure_future(app.wait()),
                asyncio.ensure_future(self._watch_rules()),
                asyncio.ensure_future(self._watch_topics()),
                asyncio.ensure_future(watchdog.watch()),
                self._failure,
            ]
            try:
                if not await self._started(app, stop):
                    return
                self._state = None
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if app.crashed:
                    raise app.crash_reason or RuntimeError("faust crashed without a reason")
                for wait in waits:
                    if wait.done():
                        wait.result()
                await self._settle()
            except BaseException as error:
                self._state = f"stopped by {type(error).__name__}"
                raise
            finally:
                for wait in waits:
                    wait.cancel()
                await self._leave(app, stop)

    async def _leave(self, app: faust.App, stop: asyncio.Event) -> None:
        """Leave the group. For as long as it takes, since another app is to follow; once `stop` is set, for `_LEAVE_SECONDS` more."""
        left, end = asyncio.ensure_future(app.stop()), asyncio.ensure_future(stop.wait())
        await asyncio.wait([left, end], return_when=asyncio.FIRST_COMPLETED)
        if not left.done():
            await asyncio.wait([left], timeout=_LEAVE_SECONDS)
        end.cancel()
        if left.done():
            left.result()
        else:
            _log.warning("ends without an answer of the brokers; others take over when its session has expired")

    async def _started(self, app: faust.App, stop: asyncio.Event) -> bool:
        """Whether it has, which takes until brokers answer, or was asked to end before."""
        start, end = asyncio.ensure_future(app.start()), asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([start, end], return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                start.result()
            return start.done()
        except KafkaError as error:
            raise ConsumeError(f"no start at {self._settings.kafka.bootstrap_servers}: {error}") from error
        finally:
            start.cancel()
            end.cancel()

    async def _settle(self) -> None:
        """Before the end: let what is on its way arrive, so that the next worker repeats nothing."""
        assigned = self.assigned()
        self._consumer.stop_flow()
        for each in assigned:
            each.revoked = True
        arrived = asyncio.gather(*(each.window.settled() for each in assigned))
        try:
            await asyncio.wait_for(arrived, _SETTLE_SECONDS)
        except TimeoutError:
            _log.warning("alerts are still on their way; the next worker raises them again")

    @property
    def _consumer(self) -> Consumer:
        assert self._app is not None
        return cast(Consumer, self._app.consumer)

    async def _commit(self) -> bool:
        return bool(await self._consumer.commit())

    async def _confirm(self) -> bool:
        return await self._consumer.confirm()

    async def _watch_rules(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self._rules.refresh()

    async def _watch_topics(self) -> None:
        """An offset means another record in a topic that was deleted and made anew, and may be there as well."""
        admin = AdminClient({**self._settings.kafka.client_config(), "log_level": 0})
        while True:
            try:
                found = await asyncio.to_thread(topic_ids, admin, list(self._intakes), _TOPICS_SECONDS)
            except KafkaException as error:
                _log.warning("can't see whether the topics are those that they were", error=str(error))
            else:
                for topic, topic_id in found.items():
                    if self._topic_ids.get(topic, topic_id) != topic_id:
                        self._consumer.begin_anew(topic)
                self._topic_ids |= found
            await asyncio.sleep(_TOPICS_SECONDS)

    def _new_app(self, folder: Path, loop: asyncio.AbstractEventLoop) -> faust.App:
        kafka = self._settings.kafka
        app = faust.App(
            SERVICE,
            broker=broker_urls(kafka),
            broker_credentials=credentials(kafka),
            broker_commit_interval=1.0,
            # How long the partitions of a killed worker lie idle; faust's default is a minute. Heartbeats come from a
            # thread of their own.
            broker_session_timeout=self._settings.session_timeout_seconds,
            broker_heartbeat_interval=self._settings.session_timeout_seconds / 3,
            # What is unpacked at once takes memory: 177 MiB at the peak of a backlog without these two limits, 120 with them.
            broker_max_poll_records=2_000,
            consumer_max_fetch_size=512 * 1024,
            # How long until a topic or a partition that is new is seen; by default five minutes.
            consumer_metadata_max_age_ms=10_000,
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
        app.transport = ReadCommitted(broker_urls(kafka), app, self._assign, self._take, loop=loop)
        for topic in self._intakes:
            app.topics.add(app.topic(topic, key_serializer="raw", value_serializer="raw"))
        return app

    def _assign(self, topic: str, partition: int, generation: int) -> Assigned:
        return Assigned(topic, partition, Window(self._settings.window_records, self._fail), generation)

    async def _take(self, assigned: Assigned, records: Records) -> None:
        await self._intakes[assigned.topic].take(assigned, records)

    def _fail(self, error: BaseException) -> None:
        """Stop the worker; what has not been acknowledged is read again by the next one."""
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)
