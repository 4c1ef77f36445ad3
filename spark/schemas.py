"""The schemas that a topic's records were written with, by the id that they carry."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from contracts.errors import RegistryUnavailable
from contracts.registry import Registry
from contracts.topic import TopicContract

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 5.0
"""How long a registry that did not answer is left alone while it isn't needed."""


@dataclass(frozen=True, slots=True)
class WriterSchemas:
    """What `decode` needs of a topic: Avro schemas as JSON text.

    `reader` is the schema that the events come out in, `writers` those that they were written in, by schema id.
    """

    subject: str
    reader: str
    writers: Mapping[int, str]


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
                writers = {version.id: version.schema for version in versions}
                self.current = WriterSchemas(self._subject, self.current.reader, writers)
                _log.info("schemas renewed", subject=self._subject, ids=sorted(writers))
        except RegistryUnavailable as error:
            _log.warning("registry unavailable", subject=self._subject, error=str(error))
            self._ask_again_at = time.monotonic() + _PAUSE_SECONDS
            return False
        return True

    def wait(self, stopping: threading.Event) -> bool:
        """Renew until the registry answers; False if `stopping` was set before."""
        while not self.renew():
            if stopping.wait(_PAUSE_SECONDS):
                return False
        return True
