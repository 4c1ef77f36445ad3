"""`Publications`: the dimensions' Delta tables."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from contracts.dimension import DimensionContract
from contracts.settings import S3Settings
from services.dimensions.rejected import Rejected

_FINGERPRINT = "headrace.fingerprint"


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a dimension's table, and whether this call made it."""

    version: int
    rows: int
    is_new: bool


class Publications:
    """Writes each dimension as a whole, one Delta version for each content; only one process may.

    deltalake's errors pass through: they say nothing about a file.
    """

    def __init__(self, s3: S3Settings) -> None:
        self._bucket = s3.bucket
        self._options = s3.delta_options()

    def publish(
        self, contract: DimensionContract, rows: pa.Table, *, body: bytes, source: str, etag: str
    ) -> Published | Rejected:
        """Make `rows`, which were read from `body`, the newest version, unless that is what the last publication was.

        `source` and `etag` go into the commit. Rejected as `Shrunk` when too many rows went missing since the version
        in force.
        """
        uri = f"s3://{self._bucket}/{contract.location}"
        # The contract is part of it: the same file under a new contract is a new table.
        fingerprint = hashlib.sha256(contract.model_dump_json().encode() + b"\n" + body).hexdigest()
        try:
            current = DeltaTable(uri, storage_options=self._options)
        except TableNotFoundError:
            current = None
        if current is not None:
            count = current.count()
            if _last_fingerprint(current) == fingerprint:
                return Published(current.version(), count, is_new=False)
            least = count * (1 - contract.max_shrink_percent / 100)
            if rows.num_rows < least:
                return Rejected(
                    "Shrunk",
                    f"{rows.num_rows} rows are more than {contract.max_shrink_percent:g} % fewer than the {count} "
                    f"of version {current.version()}",
                )
        write_deltalake(
            current or uri,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=self._options,
            commit_properties=CommitProperties(
                custom_metadata={
                    _FINGERPRINT: fingerprint,
                    "headrace.source": f"s3://{self._bucket}/{source}",
                    "headrace.source_etag": etag,
                    "headrace.source_sha256": hashlib.sha256(body).hexdigest(),
                }
            ),
        )
        return Published(DeltaTable(uri, storage_options=self._options).version(), rows.num_rows, is_new=True)


def _last_fingerprint(table: DeltaTable) -> str | None:
    """Of the last publication; commits of maintenance carry none."""
    return next((commit[_FINGERPRINT] for commit in table.history() if _FINGERPRINT in commit), None)
