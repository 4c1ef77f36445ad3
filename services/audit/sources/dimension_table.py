"""A dimension's Delta table: the rows of a version, and what the commit that published them says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from contracts.definitions.dimension import CONTRACT, POSITIONS
from contracts.settings import S3Settings
from services.audit.sources.s3 import file_system

_FINGERPRINT = "headrace.fingerprint"
_MOST_BACK = 50
"""Commits of maintenance between a version and the publication that it has the rows of: each cleaning makes two."""


@dataclass(frozen=True, slots=True)
class Published:
    """By which contract a version was made, up to which offsets of which topic; None where the commit does not say it."""

    contract: str | None
    topic: str | None
    topic_id: str | None
    offsets: Mapping[int, int]


def newest_version(s3: S3Settings, location: str) -> int | None:
    """None if there is no table any more."""
    try:
        return int(DeltaTable(f"s3://{s3.bucket}/{location}", storage_options=s3.delta_options()).version())
    except TableNotFoundError:
        return None


def read_version(s3: S3Settings, location: str, version: int) -> pa.Table | None:
    """None if it can't be read any more."""
    root = f"s3://{s3.bucket}/"
    try:
        table = DeltaTable(f"{root}{location}", version=version, storage_options=s3.delta_options())
        files = [f"{s3.bucket}/{uri.removeprefix(root)}" for uri in table.file_uris()]
        if not files:  # one without rows
            return pa.schema(table.schema().to_arrow()).empty_table()
        return pa.concat_tables(pq.read_table(file, filesystem=file_system(s3)) for file in files)
    except (DeltaError, FileNotFoundError, pa.ArrowInvalid):
        return None


def published(s3: S3Settings, location: str, version: int) -> Published | None:
    """What the version's own commit says, or, if that is one of maintenance, the last one before it that published. None if that is gone."""
    for number in range(version, max(-1, version - _MOST_BACK), -1):
        said = _commit(s3, location, number)
        if said is None:
            return None
        if _FINGERPRINT in said:
            positions = json.loads(said.get(POSITIONS) or "{}")
            offsets = {int(partition): int(offset) for partition, offset in positions.get("offsets", {}).items()}
            return Published(said.get(CONTRACT), positions.get("topic"), positions.get("topic_id"), offsets)
    return None


def _commit(s3: S3Settings, location: str, version: int) -> dict[str, Any] | None:
    """From the log itself: deltalake's history may go on behind the version that it was opened at, under wrong numbers."""
    try:
        with file_system(s3).open_input_stream(f"{s3.bucket}/{location}/_delta_log/{version:020d}.json") as entry:
            lines = entry.read().decode().splitlines()
    except FileNotFoundError:
        return None
    found: dict[str, Any] = next((line["commitInfo"] for line in map(json.loads, lines) if "commitInfo" in line), {})
    return found
