"""`Reception`: takes in what lies in the landing, file by file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from botocore.exceptions import ClientError
from deltalake.exceptions import DeltaError
from prometheus_client import Counter, Gauge

from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import DimensionContract
from services.dimensions.errors import Overtaken
from services.dimensions.landing import Landing, SourceFile
from services.dimensions.parse import parse
from services.dimensions.publication import PUBLISHED, ROWS, Publications, Published
from services.dimensions.rejected import UNKNOWN_FILE, Rejected

_log = structlog.get_logger(__name__)

_REJECTED = Counter("headrace_dimensions_rejected", "Files set aside.", ["reason"])
_TO_BE_CORRECTED = Gauge(
    "headrace_dimensions_to_be_corrected", "1 while the last source file of the dimension was set aside.", ["dimension"]
)

_UNKNOWN_AFTER = timedelta(minutes=1)
"""So old is a file of an unknown name when it is set aside: clients and servers give one that is on its way a name of its own."""


@dataclass(frozen=True, slots=True)
class Look:
    """What one look into the landing came to, counts of files."""

    published: int
    rejected: int


class Reception:
    """Publishes the good files and sets the bad ones aside; a bad file leaves the last good version in force."""

    def __init__(
        self,
        catalog: Catalog,
        landing: Landing,
        publications: Publications,
        *,
        max_file_bytes: int,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._by_source = {
            contract.source: contract for contract in catalog.dimensions.values() if contract.source is not None
        }
        self._landing, self._publications, self._max_file_bytes = landing, publications, max_file_bytes
        self._clock = clock
        self._taken: dict[str, tuple[SourceFile, Published]] = {}

    def look(self, *, is_only: bool = False) -> Look:
        """Take in every file that is new since the last look, or whose table another process has gone back with. If it is the only look, a file of no
        dimension is set aside, however young.

        Raises Overtaken and what S3 raises; the next look goes on there. What S3 refuses for one file or table, a table that can't be read, and
        Overtaken stop no other one: that is raised when all have had their turn.
        """
        published = rejected = 0
        put_off: list[Exception] = []
        for file in list(self._landing.files()):
            try:
                if self._is_taken(file) or (not is_only and self._is_on_its_way(file)):
                    continue
                outcome = self._take(file)
                if isinstance(outcome, Rejected):
                    self._set_aside(file, outcome)
                    rejected += 1
                else:
                    self._taken[file.key] = (file, outcome)
                    published += outcome.is_new
            except (ClientError, DeltaError, OSError, Overtaken) as error:
                # deltalake's OSError may be an answer or none; waiting for none again, file by file, would take minutes.
                if isinstance(error, OSError) and not self._landing.answers():
                    raise
                _log.warning("source file left for the next look", file=file.key, error=str(error))
                put_off.append(error)
        if put_off:
            # That somebody was faster is no trouble.
            raise min(put_off, key=lambda error: isinstance(error, Overtaken))
        return Look(published, rejected)

    def _set_aside(self, file: SourceFile, rejected: Rejected) -> None:
        aside = self._landing.set_aside(file, rejected)
        _REJECTED.labels(rejected.reason).inc()
        if (contract := self._by_source.get(file.name)) is not None:
            _TO_BE_CORRECTED.labels(contract.name).set(1)
        _log.error(
            "source file set aside, upload a corrected one",
            file=file.key,
            reason=rejected.reason,
            explanation=rejected.explanation,
            aside=aside,
        )

    def _is_taken(self, file: SourceFile) -> bool:
        taken = self._taken.get(file.key)
        # One that was uploaded again is looked at again: somebody means to mend the table.
        if taken is None or taken[0] != file:
            return False
        # A file that was in force already made no version, which an older file's late commit would have run into.
        return self._publications.has(self._by_source[file.name], taken[1])

    def _is_on_its_way(self, file: SourceFile) -> bool:
        return file.name not in self._by_source and self._clock() - file.uploaded_at < _UNKNOWN_AFTER

    def _take(self, file: SourceFile) -> Published | Rejected:
        contract = self._by_source.get(file.name)
        if contract is None:
            return Rejected(UNKNOWN_FILE, f"no dimension has this source; there are: {', '.join(self._by_source)}")
        if file.size_bytes > self._max_file_bytes:
            return Rejected("TooLarge", f"{file.size_bytes} bytes are more than {self._max_file_bytes}")
        return self._publish(contract, file)

    def _publish(self, contract: DimensionContract, file: SourceFile) -> Published | Rejected:
        body = self._landing.read(file)
        rows = parse(contract, body)
        if isinstance(rows, Rejected):
            return rows
        outcome = self._publications.publish(
            contract, rows, body=body, source=file.key, etag=file.etag, is_newest=lambda: self._landing.has(file)
        )
        if isinstance(outcome, Published):
            ROWS.labels(contract.name).set(outcome.rows)
            _TO_BE_CORRECTED.labels(contract.name).set(0)
            if outcome.is_new:
                PUBLISHED.labels(contract.name).inc()
                _log.info("published", dimension=contract.name, version=outcome.version, rows=outcome.rows)
        return outcome
