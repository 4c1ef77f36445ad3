"""`Subscriber`: the typed events of a topic, for whoever wants them."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import Generic, Literal, Self

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from pydantic import ValidationError

from contracts.definitions.catalog import Catalog, load_catalog
from contracts.errors import ConsumeError, DecodeError, Malformed, RegistryUnavailable, Truncated
from contracts.handle import E, Topic
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes, header_of, headers_of
from contracts.records.limits import check_size
from contracts.servers.brokers import partitions_of, retried, topic_ids, watermarks
from contracts.servers.registry import Registry
from contracts.settings import Settings

_CONFIG = {
    "isolation.level": "read_committed",
    "enable.auto.commit": True,  # commits what is stored: periodically, when partitions go elsewhere, and on close
    "auto.commit.interval.ms": 1000,
    "enable.auto.offset.store": False,  # a position is stored when its record has been handled
    "queued.max.messages.kbytes": 16_384,
    "enable.partition.eof": True,  # how far a partition goes, the markers of transactions included
}
_OURS = {
    "partition.assignment.strategy": "a Subscriber takes its partitions all at once",
    "group.protocol": "a Subscriber takes its partitions all at once",
    "group.id": "say group",
    "auto.offset.reset": "say start, and on_data_loss",
    "isolation.level": "records of aborted transactions are no events",
    "enable.partition.eof": "say idle_seconds",
    **dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store"),
        "an offset is committed when the loop asks for the next record",
    ),
}
"""Properties that are not to be set, and what to do instead, or why."""
_SERVED = 3
"""More than a group has for a member at once."""
_OF_CONNECTIONS = ("ssl.", "sasl.", "security.", "socket.", "broker.")
"""How names of properties begin that are about how to reach brokers."""
_POLL_SECONDS = 0.2
_BROKER_SECONDS = 30.0
_REGISTRY_SECONDS = 5.0
"""How long one try to look up a schema may hold up the loop, which must also notice `stop`."""

_AGAIN_SECONDS = 1.0
"""How long until a group that could not begin tries again."""

_LOOK_SECONDS = 5.0
"""How often the loop looks whether the topic is the one it was."""
_TOPIC_ID = "topic_id="
"""Begins the metadata of what is committed: an offset means other records in a topic that was made anew."""

_LOST = (KafkaError._STATE, KafkaError._UNKNOWN_PARTITION, KafkaError._PREV_IN_PROGRESS, KafkaError._OUTDATED)
"""What the client says of a partition that it has no more, or is just giving up."""
_HOPELESS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}

_IDENTITY_BYTES = 16
"""The chance that two of 100,000 events have the same is 1 in 10^28."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Raw:
    """A record as it lies on its topic; `timestamp_ms` is when it was sent, in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def coordinate(self) -> str:
        """`topic/partition/offset`."""
        return str(Coordinate(self.topic, self.partition, self.offset))

    @property
    def event_id(self) -> str:
        """The header `ce_id`, or the coordinate of a record that has none."""
        value = header_of(self.headers, "ce_id")
        return self.coordinate if value is None else value.decode(errors="replace")

    @property
    def source(self) -> str:
        """The header `ce_source`, who gave it that id; empty of a record that has none."""
        return (header_of(self.headers, "ce_source") or b"").decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Record(_Raw, Generic[E]):
    """A record and its event."""

    event: E


@dataclass(frozen=True, slots=True)
class Undecodable(_Raw):
    """A record that is not an event of its topic, untouched, and why."""

    error: DecodeError


class Subscriber(Generic[E]):
    """Iterates over a topic's records, decoded with the current schema of its contract, whichever version wrote them.

        with Subscriber(topics.ALERTS_RAISED, group="my-team", settings=Settings()) as alerts:
            for record in alerts:
                if isinstance(record, Undecodable):
                    ...
                else:
                    print(record.event)

    At least once: a record counts as handled, and its offset is committed within a second, when the loop asks for the
    next one; so a list of them, or a queue to other threads, makes it at most once. The record at hand when the loop is left comes again, in the next
    loop or from the next object of the group. Of records with the same `ce_source`, `ce_id` and `revision` (a field
    of derived events, which a repair counts up) only the first is given among the last `repeats_window` handled of a partition, as long as this object lives; `repeats` counts the
    others. 100,000 take about 20 MB. Aborted and open transactions are not seen. While the registry is away the loop waits.

    `consumer_config` are librdkafka properties besides, but for those of assignment, such as how long handling one record may take before the group
    gives the partitions to another member (`max.poll.interval.ms`, five minutes by default). One loop at a time, in one thread; no fork.

    A new group begins at `start` in every partition that there is then; one that is added later it reads from the first
    record. When records are deleted before the group has had them, or the topic was deleted and made anew (looked at every few seconds, and
    kept beside each offset), it raises ConsumeError; with `on_data_loss="continue"` it logs an error, goes on at the first record there is, and
    counts in `lost` those that are gone, as far as anybody can tell. A
    group whose offsets the broker has deleted, with the topic or because it had no member for long, is a new one. With `idle_seconds` the iteration ends when no record has come for so long since the
    partitions were assigned, the last one was handled or the iteration began; otherwise it goes on until `stop`.
    """

    def __init__(
        self,
        topic: Topic[E],
        group: str,
        settings: Settings,
        *,
        registry: Registry | None = None,
        catalog: Catalog | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        on_data_loss: Literal["fail", "continue"] = "fail",
        idle_seconds: float | None = None,
        repeats_window: int = 100_000,
        consumer_config: Mapping[str, str | int] | None = None,
    ) -> None:
        given = consumer_config or {}
        if refused := [name for name in _OURS if name in given]:
            raise ValueError(f"leave {refused[0]} out of consumer_config: {_OURS[refused[0]]}")
        contracts = catalog or load_catalog()
        self._topic = topic
        self._most_bytes = contracts.topic(topic.name).most_record_bytes
        self._group = group
        self._start = start
        self._on_data_loss = on_data_loss
        self._idle_seconds = idle_seconds
        self._repeats_window = repeats_window
        self._registry = registry or Registry(settings.registry, retry_seconds=_REGISTRY_SECONDS)
        self._owns_registry = registry is None
        schema_by_id = partial(self._registry.by_id_of, contracts.topic(topic.name).subject)
        self._codec = Codec(schema_by_id, reader_schema=contracts.schema(topic.name))
        self._handled: dict[int, OrderedDict[bytes, None]] = {}
        self._forgotten: set[bytes] = set()
        # Of each partition that is assigned, where its first record lies that is not handled.
        self._due: dict[int, int] = {}
        self._loop: object = None
        self._stopping = threading.Event()
        self._active_at: float | None = None
        self._topic_id: str | None = None
        self._is_begun = self._is_closing = False
        self._looked_at = time.monotonic()
        self.repeats = 0
        self.lost = 0
        self._consumer = Consumer(
            {
                **_CONFIG,
                **given,
                **settings.kafka.client_config(),
                "group.id": group,
                # Where to begin is committed before anything is read, so there is nothing to reset to.
                "auto.offset.reset": "error",
            },
            logger=_log,
        )
        reach = {name: value for name, value in given.items() if name.startswith(_OF_CONNECTIONS)}
        self._admin = AdminClient({**reach, **settings.kafka.client_config(), "log_level": 0})
        self._subscribe()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record[E] | Undecodable]:
        """The records, in order within each partition.

        Raises ConsumeError if the topic does not exist, this client has no right to it or to the group, it was made anew, or records are gone
        unread; RegistryRefused if the registry lets it ask for nothing.
        """
        self._loop = mine = object()
        self._go_back()
        if self._active_at is not None:
            # What an earlier loop waited for in vain may have come since.
            self._active_at = time.monotonic()
        try:
            while not self._stopping.is_set() and not self._idle():
                self._look()
                message = self._consumer.poll(_POLL_SECONDS)
                if message is None or self._ends(message):
                    continue
                self._active_at = time.monotonic()
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._AUTO_OFFSET_RESET:
                        self._find_place(message.partition() or 0)
                    else:
                        self._judge(error)
                    continue
                try:
                    record = self._decoded(message)
                except RegistryUnavailable as outage:
                    _log.warning("waiting for the schema registry: %s", outage)
                    self._seek(*_place(message)[1:])
                    self._active_at = time.monotonic()  # the wait was the registry's
                    continue
                if isinstance(record, Record) and self._is_repeat(record):
                    self.repeats += 1
                else:
                    if isinstance(record, Record):
                        self._forgotten.clear()
                    yield record
                    if self._loop is not mine:
                        raise RuntimeError(
                            f"{self._topic.name}: another loop over this Subscriber has begun; this one has ended"
                        )
                    if isinstance(record, Record):
                        self._remember(record)
                self._store(message)
                self._active_at = time.monotonic()  # handling may have taken any time
        except (ConsumeError, KeyboardInterrupt):
            # Of a loss the client tells once: another loop joins anew, and hears of it as well.
            self._is_begun = False
            raise

    def stop(self) -> None:
        """End the iteration after the record at hand, and each later one, for good; may be called from a signal handler or another thread."""
        self._stopping.set()

    def forget(self, record: Record[E]) -> None:
        """Let a later record with the same identity be given, for this one was set aside as a dead letter, which may be sent again. It may
        be the record at hand, or one before.
        """
        self._forgotten.add(_identity(record))
        if (handled := self._handled.get(record.partition)) is not None:
            handled.pop(_identity(record), None)

    def close(self) -> None:
        """Commit what was handled and leave the group. Where another thread has the loop, `stop` it and join it first."""
        self._is_closing = True
        try:
            with suppress(RuntimeError, KafkaException):  # it is closed already, or can't go on
                # What the group has for this member is served now: by its source, the client may wait for ever for what it serves when it has left.
                for _ in range(_SERVED):
                    self._consumer.poll(0)
            self._consumer.close()
        finally:
            # The consumer refers to this object by its callbacks, so that both live on for a while; this client need not.
            vars(self).pop("_admin", None)
            if self._owns_registry:
                self._registry.close()

    def _decoded(self, message: Message) -> Record[E] | Undecodable:
        topic, partition, offset = _place(message)
        headers = tuple(headers_of(message))
        raw = (
            topic,
            partition,
            offset,
            message.timestamp()[1],
            as_bytes(message.key()),
            as_bytes(message.value()),
            headers,
        )
        key, value = raw[4:6]
        try:
            check_size(key, value, self._most_bytes)
            if value is None:
                raise Truncated("the record has no value")
            return Record(*raw, event=self._topic.model.model_validate(self._codec.decode(value)))
        except DecodeError as error:
            return Undecodable(*raw, error=error)
        except ValidationError as error:
            return Undecodable(*raw, error=Malformed(f"{self._topic.model.__name__} does not take it: {error}"))

    def _is_repeat(self, record: Record[E]) -> bool:
        return _identity(record) in self._handled.get(record.partition, ())

    def _remember(self, record: Record[E]) -> None:
        identity, handled = _identity(record), self._handled.setdefault(record.partition, OrderedDict())
        if identity in self._forgotten:
            return
        handled[identity] = None
        if len(handled) > self._repeats_window:
            handled.popitem(last=False)

    def _ends(self, message: Message) -> bool:
        """Whether it is a partition's end and no record. The position goes there: markers of transactions have offsets, too, and once retention
        has deleted one behind the last record, nobody can tell that it was none.
        """
        if (error := message.error()) is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        topic, partition, offset = _place(message)
        if offset > self._due.get(partition, offset):
            self._go_behind(topic, partition, offset, None)
        return True

    def _store(self, message: Message) -> None:
        topic, partition, offset = _place(message)
        self._go_behind(topic, partition, offset + 1, message.leader_epoch())

    def _go_behind(self, topic: str, partition: int, offset: int, epoch: int | None) -> None:
        self._due[partition] = offset
        behind = TopicPartition(topic, partition, offset, _metadata(self._topic_id), -1 if epoch is None else epoch)
        try:
            self._consumer.store_offsets(offsets=[behind])
        except KafkaException as error:
            _forgive_lost_partition(error)

    def _go_back(self) -> None:
        """To the first record of each partition that is not handled: a loop that was left had one at hand, or was just taking one."""
        for at in self._consumer.position(self._consumer.assignment()):
            due = self._due.get(at.partition)
            if due is not None and at.offset not in (due, OFFSET_INVALID):
                self._seek(at.partition, due)

    def _seek(self, partition: int, offset: int) -> None:
        try:
            self._consumer.seek(TopicPartition(self._topic.name, partition, offset))
        except KafkaException as error:
            _forgive_lost_partition(error)

    def _idle(self) -> bool:
        if self._idle_seconds is None or self._active_at is None or not self._is_begun:
            return False
        return time.monotonic() - self._active_at > self._idle_seconds

    def _subscribe(self) -> None:
        self._consumer.subscribe([self._topic.name], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Until partitions are assigned, however long others take to join, it is not idle.
        self._active_at = None

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._due = {}
        if self._is_closing:
            return
        try:
            self._begin([each.partition for each in partitions])
        except (KafkaException, ConsumeError) as error:
            self._is_begun = False
            # What is committed may be an offset of a topic that is no more. Nothing is read from it.
            consumer.assign([])
            if isinstance(error, ConsumeError):
                raise
            self._judge(error.args[0])
            # An outage, or a rebalance meanwhile.
            _log.warning("%s: where to begin is not committed yet, and is asked again", self._topic.name)
        except BaseException:
            self._is_begun = False
            consumer.assign([])
            raise
        finally:
            self._active_at = self._looked_at = time.monotonic()

    def _begin(self, assigned: Sequence[int]) -> None:
        """Commit where to begin in partitions of which the group has no offset yet: also one that stays idle has a place then."""
        name = self._topic.name
        found = topic_ids(self._admin, [name], _BROKER_SECONDS).get(name)
        if found is None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        # Not of the consumer: this is called within its `poll`, and a call that serves callbacks itself would abort the process.
        every = partitions_of(self._admin, name, _BROKER_SECONDS)
        if not set(assigned) <= set(every):  # another broker answered, which has not heard of the topic yet
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        asked = [TopicPartition(name, partition) for partition in every]
        committed = retried(lambda: self._consumer.committed(asked, _BROKER_SECONDS), _BROKER_SECONDS)
        without = [at.partition for at in committed if at.offset < 0]
        former = [at.partition for at in committed if at.partition in assigned and _is_of_another(at, found)]
        is_anew = self._topic_id not in (None, found)
        is_new = len(without) == len(every) and not is_anew
        # Of all, for whoever gets the others must know that they are not new.
        chosen = without if is_new else [each for each in without if each in assigned]
        offsets = []
        for partition in former + chosen:
            low, high = watermarks(self._consumer, name, partition, _BROKER_SECONDS)
            first = high if is_new and self._start == "latest" else low
            offsets.append(TopicPartition(name, partition, first, _metadata(found)))
        made_anew = f"{name} was deleted and made anew, and the group {self._group} read the one before it"
        if (former or is_anew) and self._on_data_loss == "fail":
            raise ConsumeError(
                f'{made_anew}. Subscribe with on_data_loss="continue" to begin the new one, or set the group\'s offsets by kafka-consumer-groups'
            )
        due = {at.partition: at.offset for at in committed if at.offset >= 0 and at.partition not in former}
        if offsets:
            # Another member, which had the same to do, may have read on meanwhile.
            begun = {
                at.partition: at.offset
                for at in self._consumer.committed(offsets, _BROKER_SECONDS)
                if at.offset >= 0 and not _is_of_another(at, found)
            }
            due |= {each.partition: each.offset for each in offsets} | begun
            offsets = [each for each in offsets if each.partition not in begun]
        if offsets:
            done = retried(lambda: self._consumer.commit(offsets=offsets, asynchronous=False), _BROKER_SECONDS)
            for failure in (each.error for each in done if each.error is not None):
                raise KafkaException(failure)
            where = ", ".join(f"{each.partition} at {each.offset}" for each in offsets)
            _log.info("%s: the group %s begins with partition %s", name, self._group, where)
        if former or is_anew:
            # Coordinates and ids that are made of them name other records now.
            self._handled.clear()
            _log.error("%s. Begins the new one", made_anew)
        self._due = {partition: due[partition] for partition in assigned}
        self._topic_id, self._is_begun = found, True

    def _look(self) -> None:
        """Join the group anew if there is no place to begin at, or the topic is not the one it was; asked every few seconds."""
        pause = _LOOK_SECONDS if self._is_begun else _AGAIN_SECONDS
        if self._active_at is None or time.monotonic() - self._looked_at < pause:
            return
        try:
            if self._is_begun and not self._is_another():
                return
        except KafkaException as error:
            _log.warning("%s: can't see whether it is the topic that it was: %s", self._topic.name, error)
            return
        finally:
            self._looked_at = time.monotonic()
        # Which commits what is stored. `unsubscribe` before it would leave a subscription that the client carries out after it was closed: it would abort
        # the process.
        self._subscribe()
        self._active_at = None

    def _is_another(self) -> bool:
        """Whether the topic was made anew since the group began. Raises KafkaException."""
        return self._found() not in (None, self._topic_id)

    def _found(self) -> str | None:
        """The identity of the topic that is there, or None. Raises KafkaException."""
        return topic_ids(self._admin, [self._topic.name], _REGISTRY_SECONDS).get(self._topic.name)

    def _find_place(self, partition: int) -> None:
        try:
            if self._is_another():
                # The group begins it anew, which says so: before other partitions' records are given at places that were the old one's.
                self._is_begun, self._looked_at = False, -math.inf
            else:
                self._go_on_behind_loss(partition)
        except KafkaException as error:
            _log.warning("%s/%s: where to go on is not known yet: %s", self._topic.name, partition, error)
            self._is_begun = False

    def _go_on_behind_loss(self, partition: int) -> None:
        place = TopicPartition(self._topic.name, partition)
        own = self._consumer.position([place])[0].offset
        position = self._due.get(partition, own)
        if own < 0:
            position = self._consumer.committed([place], _BROKER_SECONDS)[0].offset
        if position < 0:
            self._is_begun = False
            return
        low, high = watermarks(self._consumer, self._topic.name, partition, _BROKER_SECONDS)
        if position != own and low <= position <= high:
            # It was committed after the client had asked, or the partition's end was there already.
            self._go_on_at(partition, position)
            return
        lost = max(0, low - position)
        what = (
            f"{lost} offsets from {position} up to {low} are gone, and the group {self._group} has not had them"
            if lost
            else f"it had ended before offset {position} of the group {self._group}, and ends at {high} now: it was made anew or cut"
        )
        what = f"{self._topic.name}/{partition}: {what}"
        if self._on_data_loss == "fail":
            raise ConsumeError(
                f'{what}. Subscribe with on_data_loss="continue" to go on at {low}, or set the group\'s offset by kafka-consumer-groups'
            )
        _log.error("%s. Goes on at %s", what, low)
        self.lost += lost
        self._go_on_at(partition, low)

    def _go_on_at(self, partition: int, offset: int) -> None:
        self._due[partition] = offset
        # A partition without a place to reset to is at rest, and a seek would not wake it.
        # What is assigned with an offset is committed with it when it goes elsewhere, so it says which topic's it is.
        assigned = self._consumer.position(self._consumer.assignment())
        self._consumer.assign(
            [
                TopicPartition(
                    each.topic,
                    each.partition,
                    self._due.get(each.partition, each.offset),
                    _metadata(self._topic_id),
                )
                for each in assigned
            ]
        )

    def _may_be_there(self) -> bool:
        try:
            return self._found() is not None
        except KafkaException:
            return True

    def _judge(self, error: KafkaError) -> None:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART and self._may_be_there():
            _log.warning("%s: %s; it may have been made anew just now", self._topic.name, error.str())
            self._is_begun = False
            return
        if error.fatal() or error.code() in _HOPELESS:
            raise ConsumeError(f"{self._topic.name}: {error.name()}: {error.str()}")
        _log.warning("the kafka client goes on after: %s", error.str())


def _identity(record: Record[E]) -> bytes:
    """A digest of what repeats have in common: source and id, which together name an event (CloudEvents 1.0), and revision.

    So many are remembered, and both headers may be as long as a record.
    """
    what = repr((record.source, record.event_id, getattr(record.event, "revision", None)))
    return blake2b(what.encode(), digest_size=_IDENTITY_BYTES).digest()


def _place(message: Message) -> tuple[str, int, int]:
    return message.topic() or "", message.partition() or 0, message.offset() or 0


def _metadata(topic_id: str | None) -> str:
    return "" if topic_id is None else f"{_TOPIC_ID}{topic_id}"


def _is_of_another(committed: TopicPartition, topic_id: str) -> bool:
    """Whether an offset is that of a topic of this name which there is no more."""
    told = committed.metadata or ""
    return committed.offset >= 0 and told.startswith(_TOPIC_ID) and told != _metadata(topic_id)


def _forgive_lost_partition(error: KafkaException) -> None:
    # The partition went to another member of the group meanwhile, which begins at the last committed offset.
    if error.args[0].code() not in _LOST:
        raise error
