"""What keeps a lake table's files few and its past short; done by its one writer, between two batches."""

from __future__ import annotations

import time
from collections import Counter

import structlog
from deltalake import WriterProperties
from deltalake.exceptions import CommitFailedError, DeltaError
from prometheus_client import Counter as Metric

from spark.lake_table import TableWriter
from spark.positions import Positions

SMALL_BYTES = 16 << 20
"""A file of fewer bytes costs a reader more for opening it than for reading it."""

_SMALL_FILES = 5
"""As many small files a partition of the table may have, those of the next batch included."""

_TARGET_BYTES = 2 * SMALL_BYTES
"""Twice the limit: of small files, any two that are left would have fitted into one."""

_PROPERTIES = WriterProperties(compression="ZSTD", compression_level=1, max_row_group_size=100_000)
"""A row group is held in memory while it is written; the default of a million rows took 170 MB."""

_VACUUM_SECONDS = 24 * 3600.0

COMPACTED = Metric("headrace_lake_compacted_files", "Small files that became parts of larger ones.", ["table"])
VACUUMED = Metric("headrace_lake_vacuumed_files", "Files of versions past retention that were deleted.", ["table"])

_log = structlog.get_logger(__name__)


class Upkeep:
    """Compacts when a partition has too many small files, vacuums once a day.

    `files_per_commit` is how many a commit may add to a partition. Files that no version within `history_hours` needs are
    deleted, whatever left them there.
    """

    def __init__(
        self,
        writer: TableWriter,
        name: str,
        history_hours: int,
        *,
        files_per_commit: int = 1,
        small_bytes: int = SMALL_BYTES,
    ) -> None:
        self._writer = writer
        self._name = name
        self._history_hours = history_hours
        self._kept = max(1, _SMALL_FILES - files_per_commit)
        self._small_bytes = small_bytes
        self._vacuum_at = time.monotonic()

    def run(self, positions: Positions) -> None:
        """Do what is due. Raises TableTaken if somebody else has taken in more than these positions."""
        self.compact()
        if time.monotonic() >= self._vacuum_at:
            self.vacuum()
            self._vacuum_at = time.monotonic() + _VACUUM_SECONDS
        self._writer.confirm(positions)

    def compact(self) -> None:
        """Make larger files of small ones, in one commit that changes no row. Raises TableTaken if there is another writer by now."""
        small = Counter(
            str(file.get("partition")) for file in self._writer.files() if file["size_bytes"] < self._small_bytes
        )
        if max(small.values(), default=0) <= self._kept:
            return
        began = time.monotonic()
        try:
            done = self._writer.table.optimize.compact(
                target_size=_TARGET_BYTES * self._small_bytes // SMALL_BYTES,
                max_concurrent_tasks=1,
                writer_properties=_PROPERTIES,
            )
        except CommitFailedError as error:
            raise self._writer.taken() from error
        COMPACTED.labels(self._name).inc(done["numFilesRemoved"])
        _log.info(
            "compacted",
            table=self._name,
            files=done["numFilesRemoved"],
            into=done["numFilesAdded"],
            seconds=round(time.monotonic() - began, 2),
        )

    def vacuum(self) -> None:
        """Delete what is older than the retention and in no version since."""
        try:
            gone = self._writer.table.vacuum(
                self._history_hours, dry_run=False, enforce_retention_duration=False, full=True
            )
        except DeltaError as error:
            # Nothing depends on it, and the next one finds the same files.
            _log.warning("not vacuumed", table=self._name, error=str(error))
            return
        VACUUMED.labels(self._name).inc(len(gone))
        if gone:
            _log.info("vacuumed", table=self._name, files=len(gone))
