"""One task's share of a batch: rows of the lake written as Parquet files, not yet part of the table.

Runs in Spark's Python workers. The files become visible when the driver commits them all at once;
those of a task that runs again are never committed, and vacuumed later.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from contracts.records.coordinates import pattern
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from spark.runtime.workers.arrow import mask, numbers, text

RESULT = "done string, identities binary"
"""What a task says of itself: a JSON object of `files`, `bad`, how many records it could not take, and `same`, whether the table stays as it is;
and an Arrow stream of `IDENTITY`."""

IDENTITY = pa.schema(
    [
        ("raw", pa.string()),
        ("raw_offset", pa.int64()),
        ("part", pa.int32()),
        ("revision", pa.int32()),
        ("record_partition", pa.int32()),
        ("record_offset", pa.int64()),
    ]
)
"""One row for each record that was derived from a raw one; `raw` is "topic/partition", `part` -1 where one record becomes one."""

_ROWS_AT_ONCE = 25_000
_BYTES_AT_ONCE = 16 << 20
"""Rows that are gathered before they are cut by the partition columns: small row groups cost readers, large ones memory."""

_OPEN_FILES = 1_000
"""A file that is open takes some 40 kB; a batch with more values of the partition columns is gone through again."""
_OPEN_BYTES = 64 << 20
"""What is written is held until its file is uploaded."""

_FOLDER_CHARACTERS = 40
"""An S3 key has at most 1,024 bytes, a folder on disk 255."""

_NOT_REPEATED = ("coordinate", "record_offset", "raw_offset", "record_key")
"""Columns whose values are all different: a dictionary would be built in vain."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What every task of a batch needs to know. `prefix` is the table's folder in the bucket; `derived_from` is the topic of the
    raw records, if these are derived, of which one may have several `parts` here, and `raw_ends` its partitions, each with the offset after the last, None if there is no
    such topic by now; `left_out` are, by partition of the topic, the sorted offsets of records that the table has already.
    """

    s3: S3Settings
    prefix: str
    topic: str
    derived_from: str | None
    parts: bool
    raw_ends: Mapping[int, int] | None
    event_fields: Sequence[str]
    partition_by: Sequence[str]
    statistics: Sequence[str]
    left_out: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table: path below it, bytes, partition values as text, and statistics as Delta's log has them."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    stats: str
    modified_ms: int


_client = functools.cache(s3_client)
"""One for the life of this worker: making one takes longer than putting a small file."""


def write_files(plan: FilePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Columns `event`, `reason`, `ce_id`, `partition`, `offset`, `timestamp` in, one row of `RESULT` out."""
    task = _Task(plan)
    for batch in batches:
        task.take(batch)
    files = task.close()
    yield result(files, task.bad, task.identities)


def result(
    files: Sequence[TableFile], bad: int, identities: Sequence[pa.RecordBatch] = (), *, same: bool = False
) -> pa.RecordBatch:
    """One row of `RESULT`."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, IDENTITY, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for part in identities:
            stream.write_batch(part)
    done = {"files": [asdict(each) for each in files], "bad": bad, "same": same}
    identified = text(sink.getvalue().to_pybytes(), pa.binary())
    return pa.RecordBatch.from_arrays([text(json.dumps(done)), identified], names=["done", "identities"])


class _Task:
    """Gathers rows, and writes files for each combination of the partition columns' values.

    What it holds is bounded, whatever the records are: full files are uploaded at once, and rows that would need too many open
    ones wait on disk for another turn.
    """

    def __init__(self, plan: FilePlan) -> None:
        self.bad = 0
        self.identities: list[pa.RecordBatch] = []
        self._plan = plan
        self._rows: list[pa.RecordBatch] = []
        self._gathered = 0
        self._gathered_bytes = 0
        self._open: dict[tuple[Any, ...], OpenFile] = {}
        self._waiting: _Waiting | None = None
        self._files: list[TableFile] = []

    def take(self, batch: pa.RecordBatch) -> None:
        good = pc.is_null(batch.column("reason"))
        if (bad := batch.num_rows - good.true_count) > 0:
            self.bad += bad
            batch = batch.filter(good)
        if self._plan.left_out:
            batch = batch.filter(mask(~self._is_left_out(batch)))
        if batch.num_rows == 0:
            return
        rows, identity = rows_of(batch, self._plan)
        if identity.num_rows:
            self.identities.append(identity)
        self._rows.append(rows)
        self._gathered += rows.num_rows
        self._gathered_bytes += rows.nbytes
        if self._gathered >= _ROWS_AT_ONCE or self._gathered_bytes >= _BYTES_AT_ONCE:
            self._write_gathered()

    def close(self) -> list[TableFile]:
        """Upload the files."""
        if self._rows:
            self._write_gathered()
        self._upload(list(self._open))
        while self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            for rows in waiting.read():
                self._write(rows)
            self._upload(list(self._open))
        return self._files

    def _is_left_out(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        partitions, offsets = batch.column("partition").to_numpy(), batch.column("offset").to_numpy()
        found = np.zeros(batch.num_rows, dtype=bool)
        for partition, left_out in self._plan.left_out.items():
            found |= (partitions == partition) & np.isin(offsets, left_out)
        return found

    def _write_gathered(self) -> None:
        table = pa.Table.from_batches(self._rows)
        self._rows, self._gathered, self._gathered_bytes = [], 0, 0
        self._write(table)

    def _write(self, rows: pa.Table) -> None:
        by = self._plan.partition_by
        later = []
        for values, part in _parts(rows, by):
            if values not in self._open and len(self._open) >= _OPEN_FILES:
                later.append(part)
                continue
            if values not in self._open:
                self._open[values] = OpenFile(dict(zip(by, values, strict=True)), rows.schema)
            self._open[values].write(part)
        if later:
            self._waiting = self._waiting or _Waiting(rows.schema)
            self._waiting.write(pa.concat_tables(later))
        if sum(each.size for each in self._open.values()) > _OPEN_BYTES:
            by_size = sorted(self._open, key=lambda values: self._open[values].size)
            self._upload(by_size[len(by_size) // 2 :])

    def _upload(self, chosen: Sequence[tuple[Any, ...]]) -> None:
        plan = self._plan
        self._files += [put_file(plan.s3, plan.prefix, self._open.pop(values), plan.statistics) for values in chosen]


class _Waiting:
    """Rows on disk. Arrow's file format says where it ends, so none is missing unseen."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._writer = pa.ipc.new_file(self._file, schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.combine_chunks())

    def read(self) -> Iterator[pa.Table]:
        """All of them, once."""
        self._writer.close()
        with self._file:
            content = pa.ipc.open_file(self._file)
            for index in range(content.num_record_batches):
                yield pa.Table.from_batches([content.get_batch(index)])


def _parts(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Each combination of these columns' values, and its rows, in their order."""
    groups = np.zeros(rows.num_rows, np.int64)
    for name in by:
        encoded = rows.column(name).combine_chunks().dictionary_encode("encode")
        groups = groups * len(encoded.dictionary) + encoded.indices.to_numpy()
        groups = np.unique(groups, return_inverse=True)[1]
    rows = rows.take(numbers(np.argsort(groups, kind="stable"))) if groups.any() else rows
    ends = np.cumsum(np.bincount(groups)).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        part = rows.slice(start, end - start)
        yield tuple(part.column(name)[0].as_py() for name in by), part


class OpenFile:
    """A file of one partition while it is written, in memory; `values` are those of the partition columns, `schema` is that of all rows."""

    def __init__(self, values: Mapping[str, Any], schema: pa.Schema) -> None:
        self._values = partition_texts(values)
        self._names = [name for name in schema.names if name not in values]
        self._sink = pa.BufferOutputStream()
        kept = pa.schema([schema.field(name) for name in self._names])
        dictionaries = [name for name in self._names if name not in _NOT_REPEATED]
        self._writer = pq.ParquetWriter(self._sink, kept, compression="zstd", use_dictionary=dictionaries)

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows.select(self._names))

    def close(self, statistics: Sequence[str]) -> tuple[pa.Buffer, TableFile]:
        self._writer.close()
        body = self._sink.getvalue()
        # The log has the values; in the path they only help whoever looks.
        shown = {name: str(value)[:_FOLDER_CHARACTERS] for name, value in self._values.items()}
        folders = [f"{name}={re.sub('[^A-Za-z0-9_.-]', '_', value)}/" for name, value in shown.items()]
        stats = file_statistics(pq.read_metadata(pa.BufferReader(body)), statistics)
        path = f"{''.join(folders)}{uuid.uuid4()}.parquet"
        return body, TableFile(path, body.size, self._values, json.dumps(stats), round(time.time() * 1000))


def put_file(s3: S3Settings, prefix: str, written: OpenFile, statistics: Sequence[str]) -> TableFile:
    """End the file and upload it below the table's folder `prefix`."""
    body, file = written.close(statistics)
    _client(s3).upload_fileobj(pa.BufferReader(body), Bucket=s3.bucket, Key=f"{prefix}/{file.path}")
    return file


def rows_of(batch: pa.RecordBatch, plan: FilePlan) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The table's rows of good records, and the `IDENTITY` of those that were derived from raw ones."""
    partition, offset, event_id = (batch.column(name) for name in ("partition", "offset", "ce_id"))
    events = dict(zip(plan.event_fields, batch.column("event").flatten(), strict=True))
    slash = text("/")[0]
    place = pc.binary_join_element_wise(text(plan.topic)[0], partition.cast(pa.string()), slash)
    here = pc.binary_join_element_wise(place, offset.cast(pa.string()), slash)
    derived = _like_a_coordinate(event_id, plan)
    coordinate = pc.if_else(derived, event_id, here)
    raw, raw_offset, part = _split(coordinate, derived, plan)
    if not (exists := pc.and_(derived, _exists(raw, raw_offset, plan))).equals(derived):
        derived = exists
        coordinate = pc.if_else(derived, event_id, here)
        raw, raw_offset, part = _split(coordinate, derived, plan)
    own = {
        "coordinate": coordinate,
        "record_partition": partition,
        "record_offset": offset,
        "recorded_at": batch.column("timestamp"),
    }
    # An event that has a coordinate itself says where it comes from; its record's id is none.
    own |= {} if "coordinate" in events else {"raw_offset": raw_offset}
    columns = events | {name: values for name, values in own.items() if name not in events}
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    revision = events["revision"] if "revision" in events else numbers(np.zeros(batch.num_rows, np.int32))
    # Of a null, too, two are repeats of each other.
    revision = pc.fill_null(revision, 0)
    identity = pa.RecordBatch.from_arrays([raw, raw_offset, part, revision, partition, offset], schema=IDENTITY)
    return rows, identity.filter(derived)


def _split(coordinate: pa.Array, derived: pa.Array, plan: FilePlan) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Of coordinates "topic/partition", offset and part, -1 where there is none."""
    part = np.full(len(coordinate), -1, np.int32)
    if plan.parts and derived.true_count:
        there = derived.to_numpy(zero_copy_only=False)
        found = pc.replace_substring_regex(coordinate.filter(derived), "^.*/", "")
        part[there] = found.cast(pa.int32()).to_numpy()
        coordinate = pc.if_else(derived, pc.replace_substring_regex(coordinate, "/[^/]*$", ""), coordinate)
    texts = pc.split_pattern(coordinate, "/", max_splits=1, reverse=True).flatten()
    places = np.arange(len(coordinate)) * 2
    return texts.take(numbers(places)), texts.take(numbers(places + 1)).cast(pa.int64()), numbers(part)


def _like_a_coordinate(event_id: pa.Array, plan: FilePlan) -> pa.Array:
    """Whether each event's id looks like that of a raw record."""
    if plan.derived_from is None:
        return mask(np.zeros(len(event_id), np.bool_))
    return pc.fill_null(pc.match_substring_regex(event_id, pattern(plan.derived_from, parts=plan.parts)), False)


def _exists(raw: pa.Array, raw_offset: pa.Array, plan: FilePlan) -> pa.Array:
    """Whether there is such a raw record; an id of somebody else's may only look like one."""
    if plan.raw_ends is None:
        return mask(np.ones(len(raw), np.bool_))
    encoded = raw.dictionary_encode()
    partitions = [int(place.rpartition("/")[2]) for place in encoded.dictionary.to_pylist()]
    ends = np.array([plan.raw_ends.get(partition, 0) for partition in partitions], np.int64)
    return mask(raw_offset.to_numpy() < ends[encoded.indices.to_numpy()])


def file_statistics(parquet: pq.FileMetaData, columns: Sequence[str]) -> dict[str, Any]:
    """Number of rows, and least and greatest value and number of nulls of these columns: what Delta skips files by.

    Instants are in milliseconds, rounded outwards, as the protocol wants them. A bound that can't be told, of an instant outside
    the years 1 to 9999, is left out: then no reader skips the file.
    """
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    untold = set[str]()
    for group in map(parquet.row_group, range(parquet.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name not in columns or found is None or not found.has_null_count:
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if not found.has_min_max:
                continue
            try:
                low, high = _as_json(found.min, timedelta()), _as_json(found.max, timedelta(microseconds=999))
            except (ValueError, OverflowError):
                untold.add(name)
                continue
            least[name] = min(least.get(name, low), low)
            greatest[name] = max(greatest.get(name, high), high)
    return {
        "numRecords": parquet.num_rows,
        "minValues": {name: value for name, value in least.items() if name not in untold},
        "maxValues": {name: value for name, value in greatest.items() if name not in untold},
        "nullCount": nulls,
    }


def partition_texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Values of partition columns as Delta's log has them."""
    return {name: _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> str | None:
    """As Delta's protocol writes it, which takes an empty text for null."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _as_json(value: Any, rounding: timedelta) -> Any:
    if isinstance(value, datetime):
        at = (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC) + rounding
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
