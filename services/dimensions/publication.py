"""`Publications`: the dimensions' Delta tables."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import structlog
from botocore.exceptions import ClientError
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from prometheus_client import Counter, Gauge

from contracts.definitions.dimension import CONTRACT, POSITIONS, UNKNOWN_IDS, DimensionContract
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from services.dimensions.errors import AnotherContract, Overtaken, TopicMadeAnew
from services.dimensions.fold import Positions, digest_of
from services.dimensions.rejected import Rejected

_log = structlog.get_logger(__name__)

PUBLISHED = Counter("headrace_dimensions_published", "Versions published.", ["dimension"])
ROWS = Gauge("headrace_dimensions_rows", "Rows in the version in force.", ["dimension"])

_FINGERPRINT = "headrace.fingerprint"
_SHA256 = "headrace.source_sha256"
_LOG_KEPT = "delta.logRetentionDuration"
_OF_A_TOPIC = {"delta.checkpointInterval": "10", _LOG_KEPT: "interval 7 days"}
"""Of a table that gets a version every few seconds: who opens it reads the entries since the last checkpoint. `clean` sets how long entries stay."""
ANEW_SECONDS = 43_200.0
"""So old a version of a topic is published anew, though it says the same: old entries leave the log, and then nobody would know up to where it was read."""
_ANOTHERS_SECONDS = 60.0
"""So long the same file, or what the same records say, by another contract stays in force: two processes that differ would take turns without a pause."""


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a dimension's table, and whether this call made it; `sha256` is that of the file's bytes, `fingerprint` of the contract's as well."""

    version: int
    rows: int
    is_new: bool
    sha256: str
    fingerprint: str


@dataclass(frozen=True, slots=True)
class InForce:
    """The newest version of a dimension's table, and the content that it was published with; `sha256` is that of the file's bytes, `fingerprint`
    of the contract's as well. Of a table whose log has no publication any more, or never had, the rest is None.
    """

    version: int
    rows: int
    published_at: datetime | None
    sha256: str | None
    fingerprint: str | None


class Publications:
    """Writes each dimension as a whole, one Delta version for each content.

    Of several processes the one with the newest file wins, or that has read its topic furthest, however long another one was frozen: it asks for
    the file, or compares the positions, between loading the table and the commit, which fails if anybody has made a version since the table was loaded.
    deltalake's errors pass through: they say nothing about a file.
    """

    def __init__(self, s3: S3Settings, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._bucket = s3.bucket
        self._options = s3.delta_options()
        self._client = s3_client(s3)

    def in_force(self, contract: DimensionContract) -> InForce | None:
        """What pipelines look up in; None if nothing was published. deltalake's errors pass through."""
        if (table := self._newest(contract)) is None:
            return None
        last = _last(table)
        at = datetime.fromtimestamp(int(last["timestamp"]) / 1000, UTC) if last else None
        return InForce(table.version(), table.count(), at, last.get(_SHA256), last.get(_FINGERPRINT))

    def publish(
        self,
        contract: DimensionContract,
        rows: pa.Table,
        *,
        body: bytes,
        source: str,
        etag: str,
        is_newest: Callable[[], bool],
    ) -> Published | Rejected:
        """Make `rows`, which were read from `body`, the newest version, unless that is what the last publication was, and it is whole.

        `source` and `etag` go into the commit. Rejected as `Shrunk` when too many rows went missing since the version
        in force. Raises Overtaken if the file `is_newest` no more, or somebody else makes a version at the same time.
        """
        sha256, fingerprint = hashlib.sha256(body).hexdigest(), fingerprint_of(contract, body)
        current = self._newest(contract)
        # Asked only now: who has published a newer file since then has made a version that the commit below runs into.
        if not is_newest():
            raise Overtaken(f"{source} was replaced or removed after it was read")
        version = -1 if current is None else current.version()
        if current is not None:
            count = current.count()
            if _last(current).get(_FINGERPRINT) == fingerprint and self._has_its_files(contract, current):
                return Published(version, count, is_new=False, sha256=sha256, fingerprint=fingerprint)
            least = count * (1 - (contract.max_shrink_percent or 0) / 100)
            if rows.num_rows < least:
                return Rejected(
                    "Shrunk",
                    f"{rows.num_rows} rows are more than {contract.max_shrink_percent or 0:g} % fewer than the {count} "
                    f"of version {version}",
                )
        metadata = {
            _FINGERPRINT: fingerprint,
            "headrace.source": f"s3://{self._bucket}/{source}",
            "headrace.source_etag": etag,
            _SHA256: sha256,
        }
        self._commit(contract, current, rows, metadata)
        return Published(version + 1, rows.num_rows, is_new=True, sha256=sha256, fingerprint=fingerprint)

    def publish_fold(
        self,
        contract: DimensionContract,
        rows: pa.Table,
        positions: Positions,
        *,
        made_by: str,
        unknown_ids: int = 0,
        begins_anew: bool,
        ends: Callable[[], Positions],
    ) -> Published | None:
        """Make `rows`, what the newest records of a topic up to `positions` say, the newest version, unless the last one says the same, is whole and not old.
        None if there are none and never were: whoever looks them up waits for the first.

        `made_by` is the contract's digest; `unknown_ids`: of how many records the registry did not know the schema. `ends` are those of the topic by now. Raises
        AnotherContract if somebody has published by another one just now; Overtaken if the last version was made by a process that has read further, or somebody else makes a
        version at the same time; TopicMadeAnew, if not `begins_anew`, where the last version is of another topic of this name, or of more
        than this one has.
        """
        digest = digest_of(rows)
        fingerprint = fingerprint_of(contract, digest.encode())
        current = self._newest(contract)
        # Asked only now: who has published since then has made a version that the commit below runs into.
        now = ends()
        if now.topic_id != positions.topic_id:
            raise Overtaken(f"{positions.topic} was made anew while it was read")
        if now.is_behind(positions):
            raise Overtaken(f"{positions.topic} ends before what was read of it")
        last = {} if current is None else _last(current)
        before = Positions.parse(last.get(POSITIONS))
        if before is None and not rows.num_rows:
            return None
        age = self._clock() - int(last["timestamp"]) / 1000 if last else math.inf
        if before is not None and before.topic == positions.topic:
            self._compare(positions, before, now, begins_anew=begins_anew)
        if age < _ANOTHERS_SECONDS and last.get(CONTRACT) != made_by:
            raise AnotherContract(
                f"another process has published {contract.name} by another contract, or another schema of its topic: run one of them"
            )
        version = -1 if current is None else current.version()
        is_same = last.get(_FINGERPRINT) == fingerprint and age < ANEW_SECONDS
        if current is not None and is_same and self._has_its_files(contract, current):
            return Published(version, rows.num_rows, is_new=False, sha256=digest, fingerprint=fingerprint)
        said = {
            _FINGERPRINT: fingerprint,
            POSITIONS: positions.json(),
            CONTRACT: made_by,
            UNKNOWN_IDS: str(unknown_ids),
        }
        self._commit(contract, current, rows, said)
        return Published(version + 1, rows.num_rows, is_new=True, sha256=digest, fingerprint=fingerprint)

    def _compare(self, positions: Positions, before: Positions, now: Positions, *, begins_anew: bool) -> None:
        """Raises Overtaken or TopicMadeAnew where these positions may not follow those before."""
        is_another = before.topic_id != positions.topic_id
        if is_another or now.is_behind(before):
            if begins_anew:
                return
            what = "was made anew" if is_another else "ends before what was read of it"
            raise TopicMadeAnew(
                f"{positions.topic} {what}: the version in force was made of records that it no longer has"
            )
        if positions.is_behind(before):
            raise Overtaken(f"another process has read {positions.topic} further")

    def last_fold(self, contract: DimensionContract, made_by: str) -> tuple[Positions, int] | None:
        """The positions of the last publication, and of how many records before them the registry did not know the schema; None if there is none that was
        made of a topic, by this contract.
        """
        current = self._newest(contract)
        last = {} if current is None else _last(current)
        positions = Positions.parse(last.get(POSITIONS))
        return (
            None if positions is None or last.get(CONTRACT) != made_by else (positions, int(last.get(UNKNOWN_IDS, 0)))
        )

    def is_last(self, contract: DimensionContract, version: int) -> bool:
        """Whether nobody has made another one; one or two small requests."""
        entries = f"{contract.location}/_delta_log"
        return self._is_there(f"{entries}/{version:020d}.json") and not self._is_there(
            f"{entries}/{version + 1:020d}.json"
        )

    def clean(self, contract: DimensionContract, days: int) -> int:
        """Remove the files of versions that were replaced so many days ago, and let their entries stay in the log as long; how many files.

        Checkpoints forget sooner which files there were, so those that lie there are looked at.
        """
        current = self._newest(contract)
        if current is None:
            return 0
        kept = f"interval {days} days"
        if current.metadata().configuration.get(_LOG_KEPT) != kept:
            current.alter.set_table_properties({_LOG_KEPT: kept})
        return len(
            current.vacuum(retention_hours=24 * days, dry_run=False, enforce_retention_duration=False, full=True)
        )

    def _newest(self, contract: DimensionContract) -> DeltaTable | None:
        try:
            return DeltaTable(self._uri(contract), storage_options=self._options)
        except TableNotFoundError:
            return None

    def _commit(
        self, contract: DimensionContract, current: DeltaTable | None, rows: pa.Table, metadata: dict[str, str]
    ) -> None:
        """The version behind `current`. Raises Overtaken if somebody else has made that."""
        uri, commit = self._uri(contract), CommitProperties(custom_metadata=metadata, max_commit_retries=0)
        version = -1 if current is None else current.version()
        try:
            if current is None:
                # Not by "overwrite", which would load what somebody else has made meanwhile.
                write_deltalake(
                    uri,
                    rows,
                    mode="error",
                    storage_options=self._options,
                    commit_properties=commit,
                    configuration=None if contract.topic is None else _OF_A_TOPIC,
                )
            else:
                write_deltalake(current, rows, mode="overwrite", schema_mode="overwrite", commit_properties=commit)
        except DeltaError as error:
            # A table that nobody else has written, but that takes no such commit, would be looked at again for ever.
            if not self._is_there(f"{contract.location}/_delta_log/{version + 1:020d}.json"):
                raise
            raise Overtaken(
                f"{uri} has a further version than {version}, which {contract.made_of} was to follow"
            ) from error

    def has(self, contract: DimensionContract, published: Published) -> bool:
        """Whether that content is still what the last publication was; two small requests if nothing happened.

        The same file that another process has published by another contract counts for a minute.
        """
        entries = f"{contract.location}/_delta_log"
        if not self._is_there(f"{entries}/{published.version:020d}.json"):
            return False
        if not self._is_there(f"{entries}/{published.version + 1:020d}.json"):
            return True
        last = _last(DeltaTable(self._uri(contract), storage_options=self._options))
        if last.get(_SHA256) != published.sha256:
            return False
        if last[_FINGERPRINT] == published.fingerprint:
            return True
        _log.warning(
            "another process publishes by another contract: run one dimensions service", dimension=contract.name
        )
        return self._clock() - int(last["timestamp"]) / 1000 < _ANOTHERS_SECONDS

    def _has_its_files(self, contract: DimensionContract, table: DeltaTable) -> bool:
        files = pa.table(table.get_add_actions(flatten=True)).select(["path", "size_bytes"]).to_pylist()
        sizes = {f"{contract.location}/{each['path']}": each["size_bytes"] for each in files}
        damaged = [key for key, size in sizes.items() if self._size(key) != size]
        if damaged:
            _log.error("a file of a table is gone or cut short, which is published again", file=damaged[0])
        return not damaged

    def _is_there(self, key: str) -> bool:
        return self._size(key) is not None

    def _size(self, key: str) -> int | None:
        """In bytes; None if there is no such object."""
        try:
            return int(self._client.head_object(Bucket=self._bucket, Key=key)["ContentLength"])
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise

    def _uri(self, contract: DimensionContract) -> str:
        return f"s3://{self._bucket}/{contract.location}"


def fingerprint_of(contract: DimensionContract, body: bytes) -> str:
    """Of a file and the contract that it is read by: the same file under a new contract is a new table."""
    shape = hashlib.sha256(contract.model_dump_json(exclude_none=True).encode() + b"\n")
    shape.update(body)
    return shape.hexdigest()


def _last(table: DeltaTable) -> dict[str, Any]:
    """The commit of the last publication; those of maintenance have no fingerprint."""
    for limit in (1, 10, None):
        # Each is a request: a table that follows a topic has tens of thousands.
        if found := next((commit for commit in table.history(limit) if _FINGERPRINT in commit), None):
            return found
    return {}
