"""faust's Kafka transport, reading only what is committed.

faust reads uncommitted records unless its processing guarantee is exactly-once, which would put transactions around
everything that it does. So its consumer is made here, with the arguments that faust would give it (faust-streaming
0.15.3, transport/drivers/aiokafka.py, `_create_worker_consumer`) and the isolation level that we need.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, cast

import aiokafka
import faust
import structlog
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from faust.types.auth import CredentialsT
from mode import ServiceT
from mode.threads import WorkerThread
from yarl import URL

from contracts.settings import KafkaSettings
from services.alerting.consuming.assigned import Assigned, Records
from services.alerting.consuming.header_names import read_any_header_name
from services.alerting.consuming.loss import tell_loss, tell_made_anew

_log = structlog.get_logger(__name__)

_FEW = 250
"""Records that were fetched at once, below which the next fetch waits a little for more."""
_GATHER_SECONDS = 0.002
"""How long at most. Without it, a thousand records a second are nearly a thousand fetches, of almost half a millisecond of
computing here."""
_SHARED_SECONDS = 0.005
"""How long for all records of a fetch together: the more there were, the sooner the next fetch is worth its computing."""
_AGAIN_SECONDS = 0.05
_COMMIT_SECONDS = 5.0
"""A commit that takes longer may be of a topic that is gone: it is looked at again which are there."""
_NO_END_MS = 2**31 - 1


class Daemon(WorkerThread):
    """A thread for which the process does not wait: brokers may not answer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.daemon = True


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """Reads in a thread of its own, so heartbeats go on while records are evaluated."""

    Worker = Daemon

    def _create_worker_consumer(self, transport: driver.Transport) -> aiokafka.AIOKafkaConsumer:
        conf = self.app.conf
        read_any_header_name()
        # faust asks it for its metadata when it starts.
        self._assignor = RoundRobinPartitionAssignor
        return aiokafka.AIOKafkaConsumer(
            client_id=conf.broker_client_id,
            group_id=conf.id,
            bootstrap_servers=driver.server_list(transport.url, transport.default_port),
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            enable_auto_commit=False,
            # An error in place of a silent reset: `Consumer` decides where to go on, and tells.
            auto_offset_reset="none",
            max_poll_records=conf.broker_max_poll_records,
            # No end: a record may wait for the registry for as long as that is away, and whoever left the group would not join it again before
            # the next fetch, for which faust waits until it has joined. `Watchdog` looks whether anything is done.
            max_poll_interval_ms=_NO_END_MS,
            max_partition_fetch_bytes=conf.consumer_max_fetch_size,
            request_timeout_ms=int(conf.broker_request_timeout * 1000),
            session_timeout_ms=int(conf.broker_session_timeout * 1000),
            rebalance_timeout_ms=int(conf.broker_rebalance_timeout * 1000),
            heartbeat_interval_ms=int(conf.broker_heartbeat_interval * 1000),
            isolation_level="read_committed",
            metadata_max_age_ms=conf.consumer_metadata_max_age_ms,
            **driver.credentials_to_aiokafka_auth(conf.broker_credentials, conf.ssl_context),
        )

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """As faust has it; but aiokafka asks for ever to have an offset of a topic that is gone, and a rebalance would never end. False, too,
        if one of the partitions is not there, or not this worker's.
        """
        while there := self._there(offsets):
            try:
                is_done = await asyncio.wait_for(super()._commit(there), _COMMIT_SECONDS)
            except TimeoutError:
                await self._ensure_consumer()._client.force_metadata_update()
            else:
                return bool(is_done) and len(there) == len(offsets)
        return False

    def _there(self, offsets: Mapping[TP, int]) -> dict[TP, int]:
        consumer, assigned = self._ensure_consumer(), self.assignment()
        return {
            tp: at
            for tp, at in offsets.items()
            if tp in assigned and tp.partition in (consumer.partitions_for_topic(tp.topic) or ())
        }

    async def _fetch_records(
        self,
        consumer: aiokafka.AIOKafkaConsumer,
        active_partitions: set[TP],
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Mapping[TP, Records]:
        """As faust has it; but aiokafka, which fetches ahead as soon as its buffer is empty, is kept from it for a moment."""
        found: Mapping[TP, Records] = await super()._fetch_records(consumer, active_partitions, timeout, max_records)
        count = sum(map(len, found.values()))
        if 0 < count < _FEW:
            consumer.pause(*consumer.assignment())
            asyncio.get_running_loop().call_later(min(_GATHER_SECONDS, _SHARED_SECONDS / count), _resume, consumer)
        return found


class Consumer(driver.Consumer):
    """Hands whole batches of records to the transport's intake, and commits what the intake has handled.

    faust's own way wraps each record in an event, puts it through a channel, a queue and an agent's generator, and looks
    for gaps between acknowledged offsets (a transaction's end marker is an offset without a record, so they fill a tree
    that only grows). None of that is needed here. What stays faust's: the group,
    its rebalances, suspending and resuming, the commit timer, starting and stopping.
    """

    transport: ReadCommitted

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.assigned: dict[TP, Assigned] = {}
        self._former: set[TP] = set()
        # Topics that are to come back as others, and their partitions that have.
        self._made_anew: set[str] = set()
        self._back: set[TP] = set()

    def begin_anew(self, topic: str) -> None:
        """Go on with the first records of the topic, soon: it was deleted and made anew."""
        former = {tp for tp in self.assigned if tp.topic == topic}
        self._former |= former
        if not former:
            # The group has left it, and its offsets are gone with it: when it has come back, `_getmany` tells.
            self._made_anew.add(topic)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """The last chance to commit what has been handled; then the next owner begins there."""
        for tp in revoked & self.assigned.keys():
            self.assigned[tp].revoked = True
        await self.commit()
        for tp in revoked:
            self.assigned.pop(tp, None)
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Begin each partition anew, at its committed offset."""
        self._forget()
        self.assigned = {tp: self.transport.assign(tp.topic, tp.partition, generation_id) for tp in assigned}
        self._former &= assigned
        self._back = {tp for tp in assigned if tp in self._back or tp.topic in self._made_anew}
        self._made_anew -= {tp.topic for tp in assigned}
        await super().on_partitions_assigned(assigned, generation_id)

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """As faust has it; but aiokafka takes 0 for no offset, and would stay where it is."""
        committed: Mapping[TP, int] = await super().seek_to_committed()
        if at_zero := {tp: 0 for tp, offset in committed.items() if offset == 0}:
            await self.seek_wait(at_zero)
        return committed

    async def _getmany(self, active_partitions: set[TP] | None, timeout: float) -> Mapping[TP, Records]:
        """As faust has it; but a partition that doesn't have the next offset, of which none is known, or of a topic made anew, begins anew."""
        for tp in list(self._former):
            if await self._begin(tp, None):
                self._former.discard(tp)
                tell_made_anew(tp.topic, tp.partition)
        try:
            found: Mapping[TP, Records] = await super()._getmany(active_partitions, timeout)
        except NoOffsetForPartitionError as error:
            tp = error.args[0]
            if await self._begin(tp, None) and tp in self._back:
                self._back.discard(tp)
                tell_made_anew(tp.topic, tp.partition)
        except OffsetOutOfRangeError as error:
            [(tp, expected)] = error.args[0].items()
            await self._begin(tp, expected)
        else:
            return found
        return {}

    async def _begin(self, tp: TP, expected: int | None) -> bool:
        """Go on with the partition's first record; whether it does. Tell what is gone since `expected`, which is None where the
        group has no offset of this topic.

        The position is committed at once. A group takes it from a member only, so a worker that was frozen tells nothing of what
        others have handled; and of a partition that stays idle it is known later whether records are lost. Where it can't be
        done now, the next fetch fails as this one did.
        """
        assigned = self.assigned.get(tp)
        if assigned is None or not self.flow_active:
            return False
        try:
            first = (await self.earliest_offsets(tp))[tp]
        except KafkaError as error:
            _log.warning(
                "can't see where a partition begins", topic=tp.topic, partition=tp.partition, error=repr(error)
            )
            return False
        await assigned.window.settled()
        if assigned.revoked or not await self._commit({tp: first}):
            await asyncio.sleep(_AGAIN_SECONDS)
            return False
        if expected is not None:
            tell_loss(tp.topic, tp.partition, expected, first)
        assigned.handled = assigned.committed = first
        # In a topic made anew they apply from other offsets on.
        assigned.rules = None
        assigned.beats += 1
        # An assignment that has come meanwhile begins there anyway.
        with suppress(IllegalStateError):
            await self.seek_wait({tp: first})
        return True

    async def _drain_messages(self, fetcher: ServiceT) -> None:
        """faust's fetcher runs it as long as the consumer does."""
        fetched_in = self.assigned
        try:
            while not (self.should_stop or fetcher.should_stop):
                records, _ = await self._wait_next_records(timeout=1.0)
                # Those that were fetched before a rebalance are let go: of a partition that has come again, others before them are still to come.
                if self.flow_active and self.assigned is fetched_in:
                    await self._hand_over(records or {})
                elif not self.should_stop:
                    assigned = self.assigned
                    if await self._back_to_committed():
                        fetched_in = assigned
                await asyncio.sleep(0)
        except (ConsumerStoppedError, asyncio.CancelledError):
            if not self.app.should_stop:
                raise

    async def _back_to_committed(self) -> bool:
        """Whether the positions are those that are committed; where not, it is tried again before anything is handed over."""
        if not self.assignment():
            return True
        try:
            await self.perform_seek()
        except KafkaError as error:
            _log.warning("no way back to the committed offsets after a rebalance", error=repr(error))
            await asyncio.sleep(_AGAIN_SECONDS)
            return False
        return True

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Nothing: `Watchdog` looks. faust looks at streams, of which there is none here, and after five minutes under load calls every
        partition one that "has not started processing".
        """

    async def _hand_over(self, batches: Mapping[TP, Records]) -> None:
        # As they are assigned now: by the time that one is taken, another may have gone and come again.
        handed = [(self.assigned.get(tp), records) for tp, records in batches.items()]
        for assigned, records in handed:
            if assigned is not None:
                await self.transport.take(assigned, records)

    async def force_commit(self, topics: object = None, start_new_transaction: bool = True) -> bool:
        """Commit how far each partition has been handled; whether there was something new and the group took it."""
        # The same objects afterwards: another assignment knows nothing of this one's commit.
        assigned = self.assigned
        offsets = {
            tp: each.handled
            for tp, each in assigned.items()
            if each.handled is not None and each.handled != each.committed
        }
        if not offsets or not await self._commit(offsets):
            return False
        for tp, offset in offsets.items():
            if tp in assigned:
                assigned[tp].committed = offset
        return True

    async def confirm(self) -> bool:
        """Commit again what has been handled; whether the group took it, which it does from a member only."""
        offsets = {tp: each.handled for tp, each in self.assigned.items() if each.handled is not None}
        return not offsets or bool(await self._commit(offsets))

    async def on_stop(self) -> None:
        """Commit, and forget what was assigned."""
        await super().on_stop()
        self._forget()

    def _forget(self) -> None:
        for each in self.assigned.values():
            each.revoked = True
        self.assigned = {}


class ReadCommitted(driver.Transport):
    """A transport for `app.transport`. `assign` is told of each partition that comes to this worker, and of the
    group's generation; `take` gets its records.
    """

    Consumer: ClassVar[type[Consumer]] = Consumer

    def __init__(
        self,
        urls: list[URL],
        app: faust.App,
        assign: Callable[[str, int, int], Assigned],
        take: Callable[[Assigned, Records], Awaitable[None]],
        **kwargs: Any,
    ) -> None:
        super().__init__(urls, app, **kwargs)
        self.assign = assign
        self.take = take


def _resume(consumer: aiokafka.AIOKafkaConsumer) -> None:
    # A rebalance may have come in between: what is assigned since then is not paused.
    consumer.resume(*consumer.paused())


def broker_urls(kafka: KafkaSettings) -> list[URL]:
    """The bootstrap servers as faust takes them."""
    return [URL(f"kafka://{server.strip()}") for server in kafka.bootstrap_servers.split(",")]


def credentials(kafka: KafkaSettings) -> CredentialsT | None:
    """How to authenticate, as faust takes it; None for a plain connection."""
    context: ssl.SSLContext | None = None
    if kafka.security_protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=kafka.ssl_ca_file)
    if kafka.security_protocol.startswith("SASL"):
        password = kafka.sasl_password.get_secret_value() if kafka.sasl_password is not None else None
        arguments: dict[str, Any] = {
            "mechanism": kafka.sasl_mechanism,
            "username": kafka.sasl_username,
            "password": password,
            "ssl_context": context,
        }
        return cast(CredentialsT, faust.SASLCredentials(**arguments))
    return None if context is None else cast(CredentialsT, faust.SSLCredentials(context))
