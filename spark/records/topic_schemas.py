"""A topic's schemas, kept up to date."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import structlog
from pyspark.sql import DataFrame

from contracts.definitions.topic import TopicContract
from contracts.errors import RegistryMadeAnew, RegistryUnavailable
from contracts.servers.grace import Grace
from contracts.servers.registry import RegisteredSchema, Registry
from spark.records.decode import has_other_ids, unknown_id
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import StopRequested
from spark.runtime.metrics import REGISTRY_AWAY, REGISTRY_WAITING

_log = structlog.get_logger(__name__)
_T = TypeVar("_T")

_LOOK_SECONDS = 0.1
_PAUSE_SECONDS = 5.0
"""How long a registry that did not answer is left alone while it isn't needed."""
_ONE_BY_ONE = 100
"""So many ids that nobody knows cost a query in real-time mode a start each while the grace rests, before all others are foreign."""
_FOREIGN_AT_MOST, _FOREIGN_TOGETHER = 1000, 300
"""In all, and at once. More of them would be garbage, and each is part of the query's plan."""


class TopicSchemas:
    """Keeps `WriterSchemas` of a topic up to date with the registry, at one request for each `renew`."""

    def __init__(
        self, registry: Registry, topic: TopicContract, reader: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._clock = clock
        self.subject = topic.subject
        self._newest: RegisteredSchema | None = None
        self._ids: dict[int, int] = {}
        """By version."""
        self._ask_again_at = 0.0
        self._grace = Grace(registry.lag_seconds, clock)
        self._at_rest = 0
        self._foreign: frozenset[int] = frozenset()
        self.current = WriterSchemas(topic.subject, reader, {}, self._foreign, topic.most_record_bytes)

    def renew(self, *, all_versions: bool = False) -> bool:
        """Ask for versions that are new, or for all. False if the registry doesn't answer: `current` may lack some.

        Raises RegistryMadeAnew if an id means another schema than before.
        """
        if self.current.foreign is None and not self._grace.rests:
            self.current = replace(self.current, foreign=self._foreign)
        if self._clock() < self._ask_again_at:
            return False
        try:
            # A subject's versions only ever get more, so the newest one tells whether there is something to fetch.
            if all_versions or self._registry.latest(self.subject) != self._newest:
                versions = self._registry.versions(self.subject)
                self._compare(versions)
                self._newest = versions[-1]
                self._ids |= {version.version: version.id for version in versions}
                # One that a registry lost is still good for the records that have it.
                writers = {**self.current.writers, **{version.id: version.schema for version in versions}}
                if writers != self.current.writers:
                    self.current = replace(self.current, writers=writers)
                    _log.info("schemas renewed", subject=self.subject, ids=sorted(writers))
        except RegistryUnavailable:  # it is logged once, by the client
            REGISTRY_AWAY.labels(self.subject).set(1)
            self._ask_again_at = self._clock() + _PAUSE_SECONDS
            return False
        REGISTRY_AWAY.labels(self.subject).set(0)
        return True

    def renew_for_batch(self, stopping: threading.Event) -> None:
        """Renew, for a batch whose end is fixed by now. While every id that is not known counts as foreign, one of them may be new: wait for the
        registry then. Raises StopRequested.
        """
        while not self.renew() and self.current.foreign is None:
            if stopping.wait(_LOOK_SECONDS):
                raise StopRequested("asked to stop while the registry does not answer")

    def covering(self, batch: DataFrame, write: Callable[[WriterSchemas], _T], stopping: threading.Event) -> _T:
        """What `write` gives for schemas that are enough for every record of a `foreachBatch` frame.

        The batch's end is fixed by now, so the versions registered by now cover it; those that the registry doesn't tell of
        yet are looked up when they make `write` fail, which is then called again: what it wrote until then is either not
        committed or a repeat. While the registry is down, those known
        before do if no record names another id; else wait, until StopRequested.
        """
        while True:
            self._wait_for_registry(batch, stopping)
            try:
                return write(self.current)
            except Exception as error:
                unknown = unknown_id(str(error))
                if unknown is None:
                    raise
            self.look_up(unknown.schema_id, stopping)

    def look_up(self, schema_id: int, stopping: threading.Event, *, one_by_one: bool = False) -> None:
        """Wait for a version with this id, at which a task failed, for as long as the registry may lag behind.

        One that it doesn't have is foreign from then on. While the grace rests, all others are: right for who renews before each batch,
        so that each id is of a record from before the last look. A query that is not told while it runs has them looked up
        `one_by_one`, once each; only after a hundred of them are all others foreign until the rest is over. Raises StopRequested.
        """
        _log.info("a record names a schema id not known yet", of=self.subject, id=schema_id)

        def ask() -> bool | None:
            self._renew_for_sure(stopping)
            return schema_id in self.current.writers or None

        self._at_rest = self._at_rest + 1 if self._grace.rests else 0
        with self._waits():
            found = self._grace.found(schema_id, ask, functools.partial(_pause, stopping))
            # The look is newer than the record, which was read before.
            is_foreign = found is None and (
                self._grace.was_in_vain(schema_id) or (one_by_one and self._at_rest <= _ONE_BY_ONE and ask() is None)
            )
        if is_foreign:
            self._foreign = frozenset({schema_id, *(self._foreign if len(self._foreign) < _FOREIGN_AT_MOST else ())})
            self.current = replace(self.current, foreign=self._foreign)
        elif schema_id not in self.current.writers:
            self.current = replace(self.current, foreign=None)

    def look_up_together(self, schema_ids: Sequence[int], stopping: threading.Event) -> None:
        """Ids of records that a query is to read, which come from anybody, each once and in the records' order. Those that the registry doesn't have though it is asked twice, as far apart
        as it may lag behind, are foreign from then on: of many the first ones. Raises StopRequested.
        """

        def others() -> list[int]:
            known = self._foreign.union(self.current.writers)
            return [each for each in schema_ids if each not in known]

        room = min(_FOREIGN_TOGETHER, _FOREIGN_AT_MOST - len(self._foreign))
        for seconds in (0.0, self._registry.lag_seconds):
            # While all others are foreign there is nothing to find out: no record fails the query.
            if not room or self.current.foreign is None or not others():
                return
            with self._waits():
                _pause(stopping, seconds)
                self._renew_for_sure(stopping)
        if not (found := others()):
            return
        _log.info(
            "records name schema ids that the registry does not know",
            of=self.subject,
            foreign=min(len(found), room),
            others=max(len(found) - room, 0),
        )
        self._foreign = self._foreign.union(found[:room])
        self.current = replace(self.current, foreign=self._foreign)

    @contextmanager
    def _waits(self) -> Iterator[None]:
        """Tell by the gauge that the registry is waited for."""
        waiting = REGISTRY_WAITING.labels(self.subject)
        waiting.set(1)
        try:
            yield
        finally:
            waiting.set(0)

    def _renew_for_sure(self, stopping: threading.Event) -> None:
        """Raises StopRequested while the registry doesn't answer."""
        while not self.renew(all_versions=True):
            _pause(stopping, _LOOK_SECONDS)

    def _compare(self, versions: Sequence[RegisteredSchema]) -> None:
        """With those that were known before."""
        for version in versions:
            before = self._ids.get(version.version, version.id)
            if self.current.writers.get(version.id, version.schema) != version.schema:
                raise RegistryMadeAnew(
                    f"the registry says that id {version.id} is version {version.version} of {self.subject}, and before it "
                    "was another schema: the registry was made anew, and a record does not tell which of both it means. "
                    "Restore it from its backup, or restart when no record with an old id is to be read any more"
                )
            if before != version.id:
                _log.error(
                    "the registry was made anew: restore it from its backup, after a restart older records can't be read",
                    subject=self.subject,
                    version=version.version,
                    id=version.id,
                    id_before=before,
                )

    def _wait_for_registry(self, batch: DataFrame, stopping: threading.Event) -> None:
        waiting = REGISTRY_WAITING.labels(self.subject)
        told = False
        try:
            while not self.renew() and has_other_ids(batch, self.current):
                if not told:
                    told = True
                    waiting.set(1)
                    _log.warning("waiting for the registry: a record names a schema id not known yet", of=self.subject)
                if stopping.wait(_PAUSE_SECONDS):
                    raise StopRequested("asked to stop while waiting for the registry")
        finally:
            waiting.set(0)


def _pause(stopping: threading.Event, seconds: float) -> None:
    if stopping.wait(seconds):
        raise StopRequested("asked to stop while looking up a schema id")
