"""`OwnSchema`: the schema that a producer writes with, as long as the registry agrees."""

from __future__ import annotations

import time

import structlog

from contracts.errors import RegistryMadeAnew, RegistryRefused, RegistryUnavailable
from contracts.servers.grace import Grace
from contracts.servers.registry import Registry

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 60.0


class OwnSchema:
    """Registers `schema` under `subject`: `id` is what records carry. Raises what `Registry.register` raises."""

    def __init__(self, registry: Registry, subject: str, schema: str) -> None:
        self._registry = registry
        self._subject = subject
        self.schema = schema
        self.id = registry.register(subject, schema)
        self._check_at = time.monotonic() + _CHECK_SECONDS

    def check(self) -> None:
        """Once a minute at most, raise RegistryMadeAnew if the registry has another id for the schema by now, or none.

        A registry that does not answer says nothing.
        """
        if time.monotonic() < self._check_at:
            return
        try:
            now = Grace(self._registry.lag_seconds).found(self._subject, self._now)
        except (RegistryUnavailable, RegistryRefused) as error:
            _log.warning("own schema not checked", subject=self._subject, error=str(error))
        else:
            if now != self.id:
                says = "no id" if now is None else f"id {now}"
                raise RegistryMadeAnew(
                    f"the registry says {says} for the schema of {self._subject} that this process writes with, it was "
                    f"{self.id}: the registry was made anew, and what carries the old id can't be read any more. Restore "
                    "it from its backup, or register the contracts and restart every producer and consumer"
                )
        self._check_at = time.monotonic() + _CHECK_SECONDS

    def _now(self) -> int | None:
        return self._registry.id_of(self._subject, self.schema)
