"""`Writers`: the schemas that a topic's records are written with."""

from __future__ import annotations

import time

from contracts.errors import UnknownSubject
from contracts.servers.registry import Registry


class Writers:
    """The versions of a subject by id: asked for once, and a second time for the sake of an id that is not among them."""

    def __init__(self, registry: Registry, subject: str, known_by: float) -> None:
        """`known_by`: when, by `time.monotonic`, which is the same in all processes, the registry's last node knows every version
        that counts.
        """
        self._registry, self._subject, self._known_by = registry, subject, known_by
        self._schemas: dict[int, str] = {}
        self._asked_at: float | None = None

    def get(self, schema_id: int) -> str | None:
        """The schema as text; None if no version has the id. Raises RegistryUnavailable, RegistryRefused."""
        if self._asked_at is None:
            self._ask()
        if schema_id not in self._schemas and (self._asked_at or 0.0) < self._known_by:
            time.sleep(max(0.0, self._known_by - time.monotonic()))
            self._ask()
        return self._schemas.get(schema_id)

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        try:
            self._schemas = {version.id: version.schema for version in self._registry.versions(self._subject)}
        except UnknownSubject:
            self._schemas = {}
