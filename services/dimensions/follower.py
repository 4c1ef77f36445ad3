"""`Follower`: keeps a dimension as its topic says, as long as it runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from threading import Event

import structlog
from botocore.exceptions import BotoCoreError, ClientError
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from deltalake.exceptions import DeltaError
from prometheus_client import Counter, Gauge
from pydantic import BaseModel

from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from contracts.errors import (
    ConsumeError,
    DeliveryError,
    HeadraceError,
    RegistryError,
    RegistryMadeAnew,
    RegistryUnavailable,
    UnknownSchemaId,
)
from contracts.handle import Topic
from contracts.publisher import Publisher
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.headers import as_bytes, headers_of
from contracts.servers.brokers import list_offsets, partitions_of, passes, retried, topic_ids
from contracts.servers.registry import Registry
from services.dimensions.errors import AnotherContract, Overtaken, TopicMadeAnew
from services.dimensions.fold import Fold, Positions
from services.dimensions.publication import ANEW_SECONDS, PUBLISHED, ROWS, Publications
from services.dimensions.rejected import Rejected
from services.dimensions.settings import DimensionsSettings

_log = structlog.get_logger(__name__)
_client_log = logging.getLogger(__name__)

_SET_ASIDE = Counter(
    "headrace_dimensions_records_set_aside",
    "Records of a dimension's topic that are no row, sent to its dead letters.",
    ["dimension", "reason"],
)
_CONTRADICTIONS = Gauge(
    "headrace_dimensions_contradictions",
    "Rows of which records with several keys tell; the latest counts.",
    ["dimension"],
)
_BEHIND = Gauge(
    "headrace_dimensions_behind",
    "Records of the dimension's topic, by offsets, that were not read yet, those behind an open transaction too.",
    ["dimension"],
)
_TOPIC_LOST = Gauge(
    "headrace_dimensions_topic_lost",
    "1 while the dimension's topic is not the one that its version in force was made of.",
    ["dimension"],
)

_CONFIG = {
    "group.id": "headrace-dimensions",  # the client wants one; no group is joined, nothing is committed
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # Records that go while they are read would be missing from the fold.
    "auto.offset.reset": "error",
    "queued.max.messages.kbytes": 16_384,
}
_AT_ONCE = 1_000
_POLL_SECONDS = 0.2
_BROKER_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
_LOST_SECONDS = 30.0
"""How often a topic that was made anew is looked at again."""
_LOOK_SECONDS = 5.0
"""How often to look whether the topic is the one it was, and has the partitions it had."""
_CLEAN_SECONDS = 86_400.0
_FIRST_CLEAN_SECONDS = 60.0
"""So long after a start, which has other things to do."""
_FLUSH_SECONDS = 30.0

_PAUSE_SHARE = 0.5
"""Of the time for which a record without a value stays: who has not been at the end for longer reads the topic again."""

_STORE = (BotoCoreError, ClientError, DeltaError, OSError)


class _StartOver(HeadraceError):
    """What was read may not be what the topic has; it is read again from the beginning."""


class _NotYet(HeadraceError):
    """Dead letters still wait for the broker."""


class Follower:
    """Reads a topic from its beginning, and publishes what its keys have then, and whenever that changes.

    Nothing is published before all of the topic was read. `trouble` says why nothing is published, None if all is well.
    What goes wrong is tried again; a topic that is not the one that the last version was made of is told, and waited for.
    """

    def __init__(
        self,
        contract: DimensionContract,
        settings: DimensionsSettings,
        catalog: Catalog,
        registry: Registry,
        publications: Publications,
        publisher: Publisher,
    ) -> None:
        self._contract, self._settings, self._catalog = contract, settings, catalog
        self._topic = catalog.topic(contract.made_of)
        self._registry, self._publications, self._publisher = registry, publications, publisher
        self._admin = AdminClient({**settings.kafka.client_config(), "log_level": 0})
        self.trouble: str | None = None
        self._told: Positions | None = None
        """Bad records before these have been told by whoever published the version in force."""
        self._made_by = contract.digest(catalog.schema(self._topic.name))
        self._unknown_ids = self._unknown_before = self._known_unknown = 0
        """Of how many records the registry does not know the schema id; of how many that the version in force has read; and how many those were when it was made."""
        self._at_end = 0.0
        self._version: int | None = None
        self._publish_at = self._anew_at = 0.0
        self._clean_at = time.monotonic() + _FIRST_CLEAN_SECONDS

    def run(self, stop: Event) -> None:
        """Until `stop` is set."""
        while not stop.is_set():
            try:
                self._follow(stop)
            except _StartOver as why:
                _log.warning("reading the topic again from its beginning", dimension=self._contract.name, why=str(why))
            except (KafkaException, DeliveryError, ConsumeError, RegistryError, *_STORE) as error:
                self._warn(error)
                stop.wait(_AGAIN_SECONDS)
            except Exception as error:  # noqa: BLE001
                # Whatever it is, the other dimensions go on.
                self.trouble = f"{self._contract.name}: {error}"
                _log.exception("following failed and begins anew: find out why", dimension=self._contract.name)
                stop.wait(_AGAIN_SECONDS)

    def _follow(self, stop: Event) -> None:
        begin = self._ends()
        last, self._told = self._publications.last_fold(self._contract, self._made_by), None
        # The offsets of a topic of before, or from before it was cut, say nothing of this one's records.
        if last is not None and last[0].topic_id == begin.topic_id and not begin.is_behind(last[0]):
            self._told, self._known_unknown = last
        self._version, self._unknown_ids, self._unknown_before, self._at_end = None, 0, 0, time.time()
        codec = Codec(
            partial(self._registry.by_id_of, self._topic.subject), reader_schema=self._catalog.schema(self._topic.name)
        )
        fold = Fold(self._contract, codec)
        consumer = Consumer({**_CONFIG, **self._settings.kafka.client_config()}, logger=_client_log)
        try:
            consumer.assign([TopicPartition(begin.topic, each, OFFSET_BEGINNING) for each in begin.offsets])
            look_at, upto, is_whole = time.monotonic() + _LOOK_SECONDS, begin, False
            while not stop.is_set():
                self._take(fold, consumer.consume(_AT_ONCE, _POLL_SECONDS), stop)
                if time.monotonic() >= look_at:
                    self._look(fold, begin)
                    look_at = time.monotonic() + _LOOK_SECONDS
                if not is_whole and fold.has_reached(upto.offsets):
                    # A record that compaction removed while its partition was read has a newer one of its key, which may lie behind that end.
                    is_whole, upto = upto is not begin, self._ends()
                    is_whole = is_whole or fold.has_reached(upto.offsets)
                if is_whole and time.monotonic() >= self._publish_at:
                    self._renew(fold, begin.topic_id)
        finally:
            consumer.close()

    def _take(self, fold: Fold, messages: Iterable[Message], stop: Event) -> None:
        for message in messages:
            error = message.error()
            if error is None:
                self._take_record(fold, message, stop)
            elif error.code() == KafkaError._PARTITION_EOF:
                fold.reach(message.partition() or 0, message.offset() or 0)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise _StartOver("records are gone that were to be read next")
            elif error.fatal() or not (
                passes(error) or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
            ):
                raise KafkaException(error)
            else:
                _client_log.warning("the kafka client goes on after: %s", error.str())

    def _take_record(self, fold: Fold, message: Message, stop: Event) -> None:
        while not stop.is_set():
            try:
                rejected = fold.take(message)
            except RegistryUnavailable as outage:
                self._warn(outage)
                stop.wait(_AGAIN_SECONDS)
                continue
            if rejected is not None:
                self._set_aside(message, rejected)
            return

    def _set_aside(self, message: Message, rejected: Rejected) -> None:
        at, name = Coordinate.of(message), self._contract.name
        _SET_ASIDE.labels(name, rejected.reason).inc()
        is_unknown = rejected.reason == UnknownSchemaId.__name__
        self._unknown_ids += is_unknown
        if self._told is not None and at.offset < self._told.offsets.get(at.partition, 0):
            self._unknown_before += is_unknown
            # Compaction may have removed some since. More there are only if the registry has forgotten.
            if self._unknown_before > self._known_unknown:
                raise RegistryMadeAnew(
                    f"the registry does not know schema ids that it knew when the version in force of {name} was made, as of {at}: give it back its data"
                )
            return
        _log.error(
            "a record is no row: publish its key anew", dimension=name, coordinate=str(at), reason=rejected.reason
        )
        self._publisher.dead_letter(
            Topic(self._topic.name, BaseModel),
            key=as_bytes(message.key()),
            value=as_bytes(message.value()),
            headers=headers_of(message),
            reason=rejected.reason,
            error=rejected.explanation,
            coordinate=str(at),
            timestamp_ms=message.timestamp()[1],
        )

    def _look(self, fold: Fold, begin: Positions) -> None:
        try:
            committed, now = self._ends(), self._ends(IsolationLevel.READ_UNCOMMITTED)
        except (KafkaException, ConsumeError) as error:
            self._warn(error)
            return
        if now.topic_id != begin.topic_id:
            raise _StartOver("the topic was made anew")
        if now.offsets.keys() != begin.offsets.keys():
            raise _StartOver("the topic has other partitions")
        if fold.has_reached(committed.offsets):
            self._at_end = time.time()
        elif time.time() - self._at_end > _PAUSE_SHARE * self._topic.retention_days * 86_400:
            raise _StartOver("it was not read to its end for so long that deleted keys may be forgotten")
        behind = sum(max(0, end - fold.positions.get(each, 0)) for each, end in now.offsets.items())
        _BEHIND.labels(self._contract.name).set(behind)

    def _renew(self, fold: Fold, topic_id: str) -> None:
        """Publish what has changed, or what another process has published instead."""
        self._publish_at = time.monotonic() + _POLL_SECONDS
        name = self._contract.name
        try:
            if not fold.is_changed and time.monotonic() < self._anew_at and self._is_last():
                self.trouble = None
                self._clean()
                self._publish_at = time.monotonic() + self._contract.seconds_between_versions
                return
            rows, positions = fold.rows(), Positions(self._topic.name, topic_id, dict(fold.positions))
            self._flush()
            published = self._publications.publish_fold(
                self._contract,
                rows,
                positions,
                made_by=self._made_by,
                unknown_ids=self._unknown_ids,
                begins_anew=self._settings.on_topic_loss == "continue",
                ends=self._ends,
            )
        except (AnotherContract, _NotYet) as waiting:
            self._warn(waiting)
            self._publish_at = time.monotonic() + _AGAIN_SECONDS
            return
        except Overtaken as overtaken:
            _log.info("not published", dimension=name, why=str(overtaken))
            self._publish_at = time.monotonic() + _AGAIN_SECONDS
            return
        except TopicMadeAnew as lost:
            self._alarm(lost)
            self._publish_at = time.monotonic() + _LOST_SECONDS
            return
        except (KafkaException, ConsumeError, *_STORE) as error:
            self._warn(error)
            self._publish_at = time.monotonic() + _AGAIN_SECONDS
            return
        self.trouble = None
        _TOPIC_LOST.labels(name).set(0)
        _CONTRADICTIONS.labels(name).set(fold.contradictions)
        if published is None:
            self._publish_at = time.monotonic() + _AGAIN_SECONDS
            return
        fold.is_changed, self._version = False, published.version
        self._anew_at = time.monotonic() + ANEW_SECONDS
        ROWS.labels(name).set(published.rows)
        if published.is_new:
            PUBLISHED.labels(name).inc()
            _log.info("published", dimension=name, version=published.version, rows=published.rows)
            self._publish_at = time.monotonic() + self._contract.seconds_between_versions
            self._clean()

    def _flush(self) -> None:
        """Wait until every dead letter is there. Raises _NotYet if some still wait, and DeliveryError if one was refused."""
        try:
            self._publisher.flush(_FLUSH_SECONDS)
        except DeliveryError as error:
            if error.code != "_TIMED_OUT" or error.event_id is not None:
                raise
            raise _NotYet(str(error)) from error

    def _is_last(self) -> bool:
        return self._version is not None and self._publications.is_last(self._contract, self._version)

    def _clean(self) -> None:
        if time.monotonic() < self._clean_at:
            return
        self._clean_at = time.monotonic() + _CLEAN_SECONDS
        removed = self._publications.clean(self._contract, self._settings.history_days)
        _log.info("files of old versions removed", dimension=self._contract.name, files=removed)

    def _ends(self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> Positions:
        """The topic's ends by now, by default as readers of committed records have them. Raises KafkaException, and ConsumeError if there is no such topic."""
        name = self._topic.name
        found = topic_ids(self._admin, [name], _BROKER_SECONDS).get(name)
        if found is None:
            raise ConsumeError(f"there is no topic {name}: run `headrace topics create`")
        partitions = partitions_of(self._admin, name, _BROKER_SECONDS)
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]

        def asked() -> dict[int, int]:
            return list_offsets(self._admin, name, partitions, latest, isolation, _BROKER_SECONDS)

        return Positions(name, found, retried(asked, _BROKER_SECONDS))

    def _alarm(self, lost: TopicMadeAnew) -> None:
        _TOPIC_LOST.labels(self._contract.name).set(1)
        self.trouble = str(lost)
        _log.error(
            "the last version stays in force: let the topic be filled, then start this service with HEADRACE_ON_TOPIC_LOSS=continue once",
            dimension=self._contract.name,
            why=str(lost),
        )

    def _warn(self, error: Exception) -> None:
        self.trouble = f"{self._contract.name}: {error}"
        _log.warning("nothing is published, trying again", dimension=self._contract.name, error=str(error))
