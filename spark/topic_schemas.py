"""A topic's schemas, kept up to date."""

from __future__ import annotations

import threading
import time

import structlog
from pyspark.sql import DataFrame

from contracts.errors import RegistryUnavailable
from contracts.registry import Registry
from contracts.topic import TopicContract
from spark.decode import has_other_ids
from spark.errors import StopRequested
from spark.metrics import REGISTRY_AWAY, REGISTRY_WAITING
from spark.schemas import WriterSchemas

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 5.0
"""How long a registry that did not answer is left alone while it isn't needed."""


class TopicSchemas:
    """Keeps `WriterSchemas` of a topic up to date with the registry, at one request for each `renew`."""

    def __init__(self, registry: Registry, topic: TopicContract, reader: str) -> None:
        self._registry = registry
        self._subject = topic.subject
        self._newest = 0
        self._ask_again_at = 0.0
        self.current = WriterSchemas(topic.subject, reader, {})

    def renew(self) -> bool:
        """Ask for versions that are new. False if the registry doesn't answer: `current` may lack some."""
        if time.monotonic() < self._ask_again_at:
            return False
        try:
            # A subject's versions only ever get more, so the newest one tells whether there is something to fetch.
            if self._registry.latest(self._subject).version != self._newest:
                versions = self._registry.versions(self._subject)
                self._newest = versions[-1].version
                # Ids never change their meaning: one that a registry lost is still good for the records that have it.
                writers = {**self.current.writers, **{version.id: version.schema for version in versions}}
                self.current = WriterSchemas(self._subject, self.current.reader, writers)
                _log.info("schemas renewed", subject=self._subject, ids=sorted(writers))
        except RegistryUnavailable:  # it is logged once, by the client
            REGISTRY_AWAY.labels(self._subject).set(1)
            self._ask_again_at = time.monotonic() + _PAUSE_SECONDS
            return False
        REGISTRY_AWAY.labels(self._subject).set(0)
        return True

    def covering(self, batch: DataFrame, stopping: threading.Event) -> WriterSchemas:
        """Schemas that are enough for every record of a `foreachBatch` frame.

        The batch's end is fixed by now, so the versions registered by now cover it. While the registry is down, those
        known before do if no record names another id; else wait, until StopRequested.
        """
        waiting = REGISTRY_WAITING.labels(self._subject)
        told = False
        try:
            while not self.renew() and has_other_ids(batch, self.current):
                if not told:
                    told = True
                    waiting.set(1)
                    _log.warning("waiting for the registry: a record names a schema id not known yet", of=self._subject)
                if stopping.wait(_PAUSE_SECONDS):
                    raise StopRequested("asked to stop while waiting for the registry")
        finally:
            waiting.set(0)
        return self.current
