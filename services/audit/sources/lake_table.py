"""`LakeTable`: a Delta table's rows, as the audit keeps them. Read by deltalake and pyarrow: no Spark, no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from contracts.servers.delta_features import foreign_features
from contracts.settings import S3Settings
from services.audit.errors import CouldNotAudit
from services.audit.sources.progress import advance
from services.audit.sources.s3 import file_system
from services.audit.values.digest import Digests, digests
from services.audit.values.place import NOWHERE, Codes, Parts, codes, parsed_parts, together
from services.audit.values.shape import Shape, row_digests

_BATCH_ROWS = 32_768
_KEY = "record_key"
OWN = ("coordinate", "record_partition", "record_offset", "recorded_at", _KEY)
"""Columns that the lake writer adds, each only where the event has no field of that name."""


@dataclass(frozen=True, slots=True)
class File:
    """A data file of a table: its key in the bucket, the values of the partition columns, how many rows it has."""

    key: str
    partition: Mapping[str, str | None]
    rows: int


@dataclass(frozen=True, slots=True)
class Rows:
    """One entry of each array for each row: as in `Records`, `at` is the record's place in its topic, `source` that of
    the raw record, `part` which part of that it is. `key` is the digest of the record's key, in a table of the newest records; else empty.
    """

    at: Codes
    source: Codes
    part: Parts
    revision: np.ndarray[Any, np.dtype[np.int64]]
    row: Digests
    key: Digests = field(default_factory=lambda: np.zeros(0, np.uint64))

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True, slots=True)
class TableReading:
    """Which files to read, and how. `source` is the topic that `coordinate` is of, with `parts` where one of its records may have several."""

    s3: S3Settings
    files: tuple[File, ...]
    schema: str
    source: str
    parts: bool = False


class LakeTable:
    """One version of a table: the newest when this was made."""

    def __init__(self, s3: S3Settings, name: str) -> None:
        """Raises CouldNotAudit if it can't be read as its files are; a table that doesn't exist has no files."""
        self._prefix = f"lake/{name}"
        uri = f"s3://{s3.bucket}/{self._prefix}"
        try:
            self._table: DeltaTable | None = DeltaTable(uri, storage_options=s3.delta_options())
        except TableNotFoundError:
            self._table = None
            return
        protocol = self._table.protocol()
        if said := foreign_features(protocol.min_writer_version, protocol.writer_features):
            # With deletion vectors, for one, files have rows that the table has not.
            raise CouldNotAudit(
                f"the table {uri} has features of Delta that the audit can't read ({said}): another engine has turned them on. Drop them there "
                "(ALTER TABLE … DROP FEATURE …), or restore the version before; --hop leaves the lake out"
            )

    def positions(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """For each partition of the topic the offset up to which the table says that it has taken records in.

        It may already say so of a version after this one, which deltalake's history goes on to, under wrong numbers.
        """
        if self._table is None:
            return {}
        marks = {each: self._table.transaction_version(f"headrace/{topic}/{each}") for each in partitions}
        if any(mark is not None for mark in marks.values()):
            return {each: mark for each, mark in marks.items() if mark is not None}
        for limit in (20, None):
            for commit in self._table.history(limit):
                said = json.loads(commit.get("userMetadata") or "{}")
                if said.get("topic") == topic:
                    return {int(partition): int(offset) for partition, offset in said["positions"].items()}
        return {}

    def files(self, starts: Mapping[int, int]) -> list[File]:
        """Those that may have rows at or after these offsets, by the statistics that Delta keeps of them."""
        if self._table is None:
            return []
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [self._file(action) for action in actions if not _is_before(action, starts)]

    def rows(self) -> int:
        """How many rows the table has."""
        if self._table is None:
            return 0
        return int(sum(pa.table(self._table.get_add_actions(flatten=True)).column("num_records").to_pylist()))

    def _file(self, action: Mapping[str, Any]) -> File:
        partition = {
            name.removeprefix("partition."): None if value is None else str(value)
            for name, value in action.items()
            if name.startswith("partition.")
        }
        return File(f"{self._prefix}/{action['path']}", partition, int(action["num_records"]))


def _is_before(action: Mapping[str, Any], starts: Mapping[int, int]) -> bool:
    """Whether every row of a file lies before the offsets; without statistics nobody knows."""
    low, high = action.get("min.record_partition"), action.get("max.record_partition")
    last = action.get("max.record_offset")
    if low is None or high is None or last is None:
        return False
    return all(last < starts.get(partition, 0) for partition in range(low, high + 1))


def read_files(reading: TableReading) -> Rows:
    """The rows of the files. Raises CouldNotAudit if one can't be read."""
    shape = Shape(reading.schema)
    system = file_system(reading.s3)
    parts = []
    for file in reading.files:
        try:
            with pq.ParquetFile(system.open_input_file(f"{reading.s3.bucket}/{file.key}")) as content:
                for batch in _batches(content, shape, file):
                    parts.append(_rows(batch, shape, reading))
                    advance(len(parts[-1]))
        except OSError as error:
            raise CouldNotAudit(f"{file.key} can't be read: {error}") from error
    places = dict.fromkeys(("at", "source", "part", "revision"), np.int64)
    return Rows(**together(parts, places | {"row": np.uint64, "key": np.uint64}))


def _batches(content: Any, shape: Shape, file: File) -> Iterator[dict[str, pa.Array]]:
    wanted = [name for name in content.schema_arrow.names if name in shape.columns or name in OWN]
    for batch in content.iter_batches(batch_size=_BATCH_ROWS, columns=wanted):
        columns = dict(zip(batch.schema.names, map(without_views, batch.columns), strict=True))
        for name, value in file.partition.items():
            if name in shape.columns:
                columns[name] = (
                    pa.array([value], pa.string()).cast(shape.columns[name]).take(pa.array([0] * len(batch)))
                )
        yield columns


def without_views(column: pa.Array) -> pa.Array:
    """As it is; texts that are views, as deltalake writes them where it changes a file, as texts, inside lists, maps and records, too."""
    plain = _plain(column.type)
    return column if plain == column.type else column.cast(plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_plain(each.type)) for each in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def _rows(columns: Mapping[str, pa.Array], shape: Shape, reading: TableReading) -> Rows:
    partition, offset = columns["record_partition"], columns["record_offset"]
    rows = len(offset)
    at = codes(pc.fill_null(partition, 0).to_numpy(), pc.fill_null(offset, 0).to_numpy())
    at[pc.or_(partition.is_null(), offset.is_null()).to_numpy(zero_copy_only=False)] = NOWHERE
    fields = shape.field_digests(columns, rows)
    if "recorded_at" not in shape.columns:
        fields["recorded_at"] = digests(columns["recorded_at"])
    revision = columns.get("revision")
    source, part = parsed_parts(reading.source, columns["coordinate"], parts=reading.parts)
    return Rows(
        at,
        source,
        part,
        np.zeros(rows, np.int64) if revision is None else pc.fill_null(revision, 0).to_numpy().astype(np.int64),
        row_digests(fields, rows),
        digests(columns[_KEY]) if _KEY in columns and _KEY not in shape.columns else np.zeros(0, np.uint64),
    )


def split(files: Sequence[File], parts: int) -> list[tuple[File, ...]]:
    """The files in so many groups of about as many rows, for as many processes."""
    groups: list[list[File]] = [[] for _ in range(parts)]
    sizes = [0] * parts
    for file in sorted(files, key=lambda each: -each.rows):
        least = sizes.index(min(sizes))
        groups[least].append(file)
        sizes[least] += file.rows
    return [tuple(group) for group in groups if group]
