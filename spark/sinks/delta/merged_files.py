"""Small files of a lake table written anew as one: what its upkeep puts in their place."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from spark.sinks.delta.table_files import OpenFile, TableFile, put_file

_GROUP_ROWS = 100_000
_GROUP_BYTES = 32 << 20
"""A row group is held in memory while it is written; one of a million rows took 170 MB."""

_client = functools.cache(s3_client)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the table has: path below it, bytes, values of the partition columns."""

    path: str
    size: int
    partition: Mapping[str, Any] = field(default_factory=dict)


def merged(
    s3: S3Settings, prefix: str, files: Sequence[LiveFile], schema: pa.Schema, statistics: Sequence[str]
) -> TableFile:
    """One file with the rows of these, all of one partition, in their order; `schema` is the table's, `prefix` its folder."""
    written = OpenFile(files[0].partition, schema)
    kept = [each for each in schema if each.name not in files[0].partition]
    for rows in _gathered(row_groups(s3, prefix, files, kept)):
        written.write(rows)
    return put_file(s3, prefix, written, statistics)


def row_groups(
    s3: S3Settings, prefix: str, files: Sequence[LiveFile], columns: Sequence[pa.Field]
) -> Iterator[pa.Table]:
    """The rows of these files, in their order, with these columns."""
    for file in files:
        body = _client(s3).get_object(Bucket=s3.bucket, Key=f"{prefix}/{file.path}")["Body"].read()
        content = pq.ParquetFile(pa.BufferReader(body))
        for group in range(content.num_row_groups):
            # A file lacks the columns that were added to the table after it.
            yield with_columns(content.read_row_group(group), columns)


def with_columns(rows: pa.Table, columns: Sequence[pa.Field]) -> pa.Table:
    """The rows with these columns; nulls where they lack one."""
    values = [
        rows.column(each.name).cast(each.type) if each.name in rows.schema.names else pa.nulls(rows.num_rows, each.type)
        for each in columns
    ]
    return pa.Table.from_arrays(values, names=[each.name for each in columns])


def _gathered(groups: Iterator[pa.Table]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    for rows in groups:
        held.append(rows)
        if sum(each.num_rows for each in held) >= _GROUP_ROWS or sum(each.nbytes for each in held) >= _GROUP_BYTES:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)
