"""`RulesFile`: the rules in force, read again when their file changes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import structlog

from contracts.definitions.catalog import Catalog
from contracts.definitions.contract_file import bytes_of
from services.alerting.metrics import RELOAD_FAILURES, RULES, RULES_REFUSED
from services.alerting.rules.rulebook import Rulebook, RulebookError, load_rulebook

_log = structlog.get_logger(__name__)


class RulesFile:
    """Holds the last valid rulebook of a file."""

    def __init__(self, path: Path, catalog: Catalog) -> None:
        """Raises RulebookError if the file can't be used now: there is nothing to fall back to."""
        self._path = path
        self._catalog = catalog
        self._seen = _digest(path)
        self._use(load_rulebook(path, catalog))

    @property
    def rulebook(self) -> Rulebook:
        """The rules in force."""
        return self._rulebook

    def refresh(self) -> bool:
        """Take the file's rules if its content changed and is valid; says whether they are new.

        An invalid content is reported once, as ERROR and in the metric, and the rules before it stay.
        """
        # Taken before the file is read, so a change in between is seen by the next call.
        digest = _digest(self._path)
        if digest == self._seen:
            return False
        self._seen = digest
        try:
            rulebook = load_rulebook(self._path, self._catalog)
        except RulebookError as error:
            RELOAD_FAILURES.inc()
            RULES_REFUSED.set(1)
            _log.error(
                "rules file refused, the rules before it stay in force: mend it",
                problems=str(error).splitlines(),
                version=self._rulebook.version,
            )
            return False
        self._use(rulebook)
        return True

    def _use(self, rulebook: Rulebook) -> None:
        self._rulebook = rulebook
        RULES_REFUSED.set(0)
        RULES.clear()
        RULES.labels(rulebook.version).set(len(rulebook.rules))
        _log.info(
            "rules in force",
            version=rulebook.version,
            rules={rule.name: rule.version for rule in rulebook.rules},
        )


def _digest(path: Path) -> bytes | None:
    """None when it can't be read: missing is a content too."""
    try:
        return hashlib.sha256(bytes_of(path)).digest()
    except OSError:
        return None
