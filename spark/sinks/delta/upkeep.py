"""What keeps a lake table's files few and its past short; done by its one writer, between two batches."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import prometheus_client
import pyarrow as pa
import structlog
from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError
from deltalake.exceptions import DeltaError

from spark.sinks.delta.lake_table import TableWriter
from spark.sinks.delta.merged_files import LiveFile
from spark.sinks.delta.positions import Positions
from spark.sinks.delta.table_files import TableFile

SMALL_BYTES = 16 << 20
"""A file of fewer bytes costs a reader more for opening it than for reading it."""

_SMALL_FILES = 5
"""As many small files of about the same size a partition of the table may have, those of the next batch included."""

_TARGET_BYTES = 2 * SMALL_BYTES
"""Twice the limit: any two small files fit into one."""

_PARTITIONS_AT_ONCE = 100
"""Some seconds of requests; the others come after the next batch."""

_VACUUM_SECONDS = 24 * 3600.0
_RETRY_SECONDS = 600.0

_FAILURES = (DeltaError, OSError, pa.ArrowException, Boto3Error, BotoCoreError, ClientError)
"""What the store says, or a damaged file: nothing that a batch depends on."""

COMPACTED = prometheus_client.Counter(
    "headrace_lake_compacted_files", "Small files that became parts of larger ones.", ["table"]
)
FAILED = prometheus_client.Counter(
    "headrace_lake_failed_compactions", "Small files that could not be made one; tried again later.", ["table"]
)
VACUUMED = prometheus_client.Counter(
    "headrace_lake_vacuumed_files", "Files of versions past retention that were deleted.", ["table"]
)

_log = structlog.get_logger(__name__)


class Upkeep:
    """Compacts when a partition has too many small files of about the same size, vacuums once a day.

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
        self._compact_at = self._vacuum_at = time.monotonic()

    def run(self, positions: Positions) -> None:
        """Do what is due. Raises TakenOver if somebody else has taken in more than these positions."""
        if time.monotonic() >= self._compact_at:
            self.compact()
        if time.monotonic() >= self._vacuum_at:
            self.vacuum()
            self._vacuum_at = time.monotonic() + _VACUUM_SECONDS
        self._writer.confirm(positions)

    def compact(self) -> None:
        """Make larger files of small ones, in one commit that changes no row; what fails is tried again later.

        Raises TakenOver if there is another writer by now.
        """
        small = defaultdict[str, list[LiveFile]](list)
        for file in self._writer.files():
            if file.size < self._small_bytes:
                small[str(file.partition)].append(file)
        alike = [mergeable(files, self._kept) for files in small.values()]
        due = sorted(filter(None, alike), key=len, reverse=True)
        if not due:
            return
        began = time.monotonic()
        old, new = list[LiveFile](), list[TableFile]()
        bins = list(self._bins(due[:_PARTITIONS_AT_ONCE]))
        # Two at once: the next batch waits, and one keeps a core busy. More would take more memory.
        with ThreadPoolExecutor(2) as pool:
            merges = [pool.submit(self._writer.merge, together) for together in bins]
        for together, merge in zip(bins, merges, strict=True):
            try:
                new.append(merge.result())
            except _FAILURES as error:
                self._failed(error, first=together[0].path)
            else:
                old += together
        try:
            if old:
                self._writer.replace(old, new)
        except _FAILURES as error:
            self._failed(error, first=old[0].path)
            # It may have been committed before it failed.
            self._writer.catch_up()
            return
        COMPACTED.labels(self._name).inc(len(old))
        seconds = round(time.monotonic() - began, 2)
        _log.info("compacted", table=self._name, files=len(old), into=len(new), seconds=seconds)

    def _bins(self, partitions: Sequence[Sequence[LiveFile]]) -> Iterator[list[LiveFile]]:
        """Files of one partition that make one together."""
        target = _TARGET_BYTES * self._small_bytes // SMALL_BYTES
        for files in partitions:
            held: list[LiveFile] = []
            for file in files:
                if held and sum(each.size for each in held) + file.size > target:
                    yield held
                    held = []
                held.append(file)
            if len(held) > 1:
                yield held

    def _failed(self, error: Exception, first: str) -> None:
        FAILED.labels(self._name).inc()
        _log.error(
            "not compacted: readers are slower until it is; see to the cause, it is tried again",
            table=self._name,
            first_file=first,
            error=str(error),
            again_in_seconds=_RETRY_SECONDS,
        )
        self._compact_at = time.monotonic() + _RETRY_SECONDS

    def vacuum(self) -> None:
        """Delete what is older than the retention and in no version since."""
        try:
            gone = self._writer.table.vacuum(
                self._history_hours, dry_run=False, enforce_retention_duration=False, full=True
            )
        except (DeltaError, OSError) as error:
            # Nothing depends on it, and the next one finds the same files. Its beginning is a commit.
            _log.warning("not vacuumed", table=self._name, error=str(error))
            self._writer.catch_up()
            return
        VACUUMED.labels(self._name).inc(len(gone))
        if gone:
            _log.info("vacuumed", table=self._name, files=len(gone))


def mergeable(files: Sequence[LiveFile], kept: int) -> list[LiveFile]:
    """Those of a partition's small files, in their order, that are to be made one: none, or more than `kept`.

    None of them is larger than twice all smaller ones together. So a row is written again when its file has grown by half, and not with every
    few commits.
    """
    by_size = sorted(range(len(files)), key=lambda number: files[number].size)
    count, smaller = 0, 0
    for place, number in enumerate(by_size):
        if files[number].size <= 2 * smaller:
            count = place + 1
        smaller += files[number].size
    return [files[number] for number in sorted(by_size[:count])] if count > kept else []
