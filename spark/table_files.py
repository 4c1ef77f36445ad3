"""One task's share of a batch: rows of the lake written as Parquet files, not yet part of the table.

Runs in Spark's Python workers. The files become visible when the driver commits them all at once;
those of a task that runs again are never committed, and vacuumed later.
"""

from __future__ import annotations

import functools
import json
import re
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

from contracts.s3 import s3_client
from contracts.settings import S3Settings
from spark.arrow import mask, numbers, text

RESULT = "done string, identities binary"
"""What a task says of itself: a JSON object of `files` and `bad`, how many records it could not take; and an Arrow stream
of `IDENTITY`."""

IDENTITY = pa.schema(
    [
        ("raw", pa.string()),
        ("raw_offset", pa.int64()),
        ("revision", pa.int32()),
        ("record_partition", pa.int32()),
        ("record_offset", pa.int64()),
    ]
)
"""One row for each record that was derived from a raw one; `raw` is "topic/partition"."""

_DERIVED = r"^[a-z0-9.]+/[0-9]+/[0-9]+$"
_ROWS_AT_ONCE = 25_000
"""Rows that are gathered before they are cut by the partition columns: small row groups cost readers, large ones memory."""

_NOT_REPEATED = ("coordinate", "record_offset", "raw_offset")
"""Columns whose values are all different: a dictionary would be built in vain."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What every task of a batch needs to know. `prefix` is the table's folder in the bucket; `left_out` are, by
    partition of the topic, the sorted offsets of records that the table has already.
    """

    s3: S3Settings
    prefix: str
    topic: str
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
    identities = pa.BufferOutputStream()
    with pa.ipc.new_stream(identities, IDENTITY, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        for part in task.identities:
            stream.write_batch(part)
    done = {"files": [asdict(each) for each in files], "bad": task.bad}
    identified = text(identities.getvalue().to_pybytes(), pa.binary())
    yield pa.RecordBatch.from_arrays([text(json.dumps(done)), identified], names=["done", "identities"])


class _Task:
    """Gathers rows, and writes one file for each combination of the partition columns' values."""

    def __init__(self, plan: FilePlan) -> None:
        self.bad = 0
        self.identities: list[pa.RecordBatch] = []
        self._plan = plan
        self._rows: list[pa.RecordBatch] = []
        self._gathered = 0
        self._open: dict[tuple[Any, ...], _OpenFile] = {}

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
        if self._gathered >= _ROWS_AT_ONCE:
            self._write()

    def close(self) -> list[TableFile]:
        """Upload the files."""
        if self._rows:
            self._write()
        if not self._open:
            return []
        client = _client(self._plan.s3)
        files = []
        for each in self._open.values():
            body, file = each.close(self._plan.statistics)
            client.upload_fileobj(
                pa.BufferReader(body), Bucket=self._plan.s3.bucket, Key=f"{self._plan.prefix}/{file.path}"
            )
            files.append(file)
        return files

    def _is_left_out(self, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        partitions, offsets = batch.column("partition").to_numpy(), batch.column("offset").to_numpy()
        found = np.zeros(batch.num_rows, dtype=bool)
        for partition, left_out in self._plan.left_out.items():
            found |= (partitions == partition) & np.isin(offsets, left_out)
        return found

    def _write(self) -> None:
        table = pa.Table.from_batches(self._rows)
        self._rows, self._gathered = [], 0
        by = self._plan.partition_by
        for values, part in _parts(table, by):
            if values not in self._open:
                self._open[values] = _OpenFile(dict(zip(by, values, strict=True)), part.schema)
            self._open[values].write(part)


def _parts(rows: pa.Table, by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Each combination of these columns' values, and its rows without them."""
    if not by:
        yield (), rows
        return
    column, others = rows.column(by[0]), rows.drop_columns([by[0]])
    for value in pc.unique(column):
        chosen = others.filter(pc.equal(column, value) if value.is_valid else pc.is_null(column))
        for values, part in _parts(chosen, by[1:]):
            yield (value.as_py(), *values), part


class _OpenFile:
    def __init__(self, values: Mapping[str, Any], schema: pa.Schema) -> None:
        self._values = {name: None if value is None else str(value) for name, value in values.items()}
        self._sink = pa.BufferOutputStream()
        dictionaries = [name for name in schema.names if name not in _NOT_REPEATED]
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd", use_dictionary=dictionaries)

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)

    def close(self, statistics: Sequence[str]) -> tuple[pa.Buffer, TableFile]:
        self._writer.close()
        body = self._sink.getvalue()
        # The log has the values; in the path they only help whoever looks.
        folders = [f"{name}={re.sub('[^A-Za-z0-9_.-]', '_', str(value))}/" for name, value in self._values.items()]
        stats = file_statistics(pq.read_metadata(pa.BufferReader(body)), statistics)
        path = f"{''.join(folders)}{uuid.uuid4()}.parquet"
        return body, TableFile(path, body.size, self._values, json.dumps(stats), round(time.time() * 1000))


def rows_of(batch: pa.RecordBatch, plan: FilePlan) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The table's rows of good records, and the `IDENTITY` of those that were derived from raw ones."""
    partition, offset, event_id = (batch.column(name) for name in ("partition", "offset", "ce_id"))
    events = dict(zip(plan.event_fields, batch.column("event").flatten(), strict=True))
    slash = text("/")[0]
    place = pc.binary_join_element_wise(text(plan.topic)[0], partition.cast(pa.string()), slash)
    # The id of an event that was derived from a raw record is that record's coordinate.
    derived = pc.and_kleene(pc.is_valid(event_id), pc.match_substring_regex(event_id, _DERIVED))
    coordinate = pc.if_else(derived, event_id, pc.binary_join_element_wise(place, offset.cast(pa.string()), slash))
    parts = pc.split_pattern(coordinate, "/", max_splits=1, reverse=True).flatten()
    places = np.arange(batch.num_rows) * 2
    raw, raw_offset = parts.take(numbers(places)), parts.take(numbers(places + 1)).cast(pa.int64())
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
    identity = pa.RecordBatch.from_arrays([raw, raw_offset, revision, partition, offset], schema=IDENTITY)
    return rows, identity.filter(derived)


def file_statistics(parquet: pq.FileMetaData, columns: Sequence[str]) -> dict[str, Any]:
    """Number of rows, and least and greatest value and number of nulls of these columns: what Delta skips files by.

    Instants are in milliseconds, rounded outwards, as the protocol wants them.
    """
    least, greatest, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for group in map(parquet.row_group, range(parquet.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            name, found = column.path_in_schema, column.statistics
            if name not in columns or found is None or not found.has_null_count:
                continue
            nulls[name] = nulls.get(name, 0) + found.null_count
            if found.has_min_max:
                least[name] = min(least.get(name, found.min), found.min)
                greatest[name] = max(greatest.get(name, found.max), found.max)
    return {
        "numRecords": parquet.num_rows,
        "minValues": {name: _as_json(value, timedelta()) for name, value in least.items()},
        "maxValues": {name: _as_json(value, timedelta(microseconds=999)) for name, value in greatest.items()},
        "nullCount": nulls,
    }


def _as_json(value: Any, rounding: timedelta) -> Any:
    if isinstance(value, datetime):
        at = (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC) + rounding
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
