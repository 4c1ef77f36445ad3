"""The newest version of each dimension, kept between batches."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog
from botocore.exceptions import BotoCoreError, ClientError
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from contracts.definitions.dimension import DimensionContract, Validity
from contracts.servers.s3 import LOOK_SECONDS, s3_client
from contracts.settings import S3Settings
from spark.runtime.errors import DimensionUnreadable
from spark.runtime.metrics import DIMENSION_UNREADABLE

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 1.0
_AGAIN_SECONDS = 5.0
"""How long a version that can't be read is left alone: trying costs each batch as much as a new one."""

_CHECK_SECONDS = 30.0
"""How often to look whether a table is still the one that was read: it can be removed, and made anew from version 0 on."""

_UNFIT = (DeltaError, BotoCoreError, ClientError, OSError, pa.ArrowException, ValueError, AnalysisException)
"""What comes of a table whose files are missing, cut short, of another contract, or lack a key; and of an object store that is away."""

KINDS: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestampType(),
}
"""Types of a dimension's columns. `DataType.fromDDL` knows them as well, at 30 ms each."""

_WIDER_THAN_INT = ("long", "double")
"""Each int is one of these, too."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One version of a dimension table; `frame` is in memory, with the columns of the contract, `key` those that tell its rows apart, where
    they hold at the same time; `valid` are those that say when.
    """

    version: int
    frame: DataFrame
    key: tuple[str, ...]
    valid: Validity | None = None


@dataclass(slots=True)
class _Look:
    """What was seen of a table last: the tag of its newest entry, and when to look for what."""

    tag: str | None
    check_at: float
    read_at: float = 0.0


def stamped_versions(dimensions: Mapping[str, Dimension]) -> Column:
    """The version of each, by name, as an enriched record carries them."""
    return _stamp(tuple((name, each.version) for name, each in dimensions.items()))


@functools.lru_cache(maxsize=8)
def _stamp(versions: tuple[tuple[str, int], ...]) -> Column:
    parts = [part for name, version in versions for part in (F.lit(name), F.lit(version).cast("long"))]
    return F.create_map(*parts)


class Dimensions:
    """Holds the newest published version of each dimension.

    A batch pays one small request for each, not the planning of a Delta table: the rows are in memory, and read again
    only when the table's log has a further entry. What is in memory stays in force while the table is gone or can't be
    read; a metric and one log line say so.
    """

    def __init__(
        self,
        spark: SparkSession,
        s3: S3Settings,
        contracts: Sequence[DimensionContract],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._bucket = s3.bucket
        self._s3 = s3_client(s3, answer_seconds=LOOK_SECONDS)
        # By itself deltalake tries for three minutes, and a batch waits for it.
        self._delta_options = s3.delta_options() | {
            "timeout": f"{LOOK_SECONDS}s",
            "max_retries": "2",
            "retry_timeout": f"{3 * LOOK_SECONDS}s",
        }
        self._contracts = contracts
        self._clock = clock
        self._held: dict[str, Dimension] = {}
        self._looks: dict[str, _Look] = {}
        self._unreadable: set[str] = set()

    def newest(self) -> Mapping[str, Dimension]:
        """Every dimension by name, in its newest version by now. Raises DimensionUnreadable if none could be read yet."""
        is_away = False
        for contract in self._contracts:
            if contract.name not in self._held:
                self._renew(contract)
                continue
            if is_away:
                # A look at each of the others would wait for an answer, too.
                self._looks[contract.name].read_at = self._clock() + _AGAIN_SECONDS
                continue
            try:
                if self._is_outdated(contract):
                    self._renew(contract)
            except DimensionUnreadable as error:
                self._looks[contract.name].read_at = self._clock() + _AGAIN_SECONDS
                self._alarm(contract, error)
                is_away = isinstance(error.__cause__, BotoCoreError)
        return dict(self._held)

    def wait(self, stopping: threading.Event) -> bool:
        """Wait until every dimension can be read; False if `stopping` was set before."""
        for contract in self._contracts:
            while contract.name not in self._held:
                try:
                    self._renew(contract)
                except DimensionUnreadable as error:
                    self._alarm(contract, error)
                    if stopping.wait(_PAUSE_SECONDS):
                        return False
        return True

    def _is_outdated(self, contract: DimensionContract) -> bool:
        version, look, now = self._held[contract.name].version, self._looks[contract.name], self._clock()
        if now < look.read_at:
            return False
        if self._tag(contract, version + 1) is not None:
            return True
        if now < look.check_at:
            return False
        look.check_at = now + _CHECK_SECONDS
        if self._tag(contract, version) != look.tag:
            return True
        self._calm(contract)
        return False

    def _renew(self, contract: DimensionContract) -> None:
        now = self._clock()
        if contract.name in self._looks:
            self._looks[contract.name].read_at = now + _AGAIN_SECONDS
        try:
            found, tag = self._read(contract)
        except _UNFIT as error:
            raise DimensionUnreadable(
                f"the dimension {contract.name} can't be read from s3://{self._bucket}/{contract.location}: "
                f"{(str(error).splitlines() or [''])[0][:300]}"
            ) from error
        self._held[contract.name] = found
        self._looks[contract.name] = _Look(tag, now + _CHECK_SECONDS)
        self._calm(contract)

    def _calm(self, contract: DimensionContract) -> None:
        self._unreadable.discard(contract.name)
        DIMENSION_UNREADABLE.labels(contract.name).set(0)

    def _alarm(self, contract: DimensionContract, error: DimensionUnreadable) -> None:
        """Say it once, until the table can be read again."""
        DIMENSION_UNREADABLE.labels(contract.name).set(1)
        if contract.name in self._unreadable:
            return
        self._unreadable.add(contract.name)
        held = self._held.get(contract.name)
        if held is None:
            cure = "upload its source file to landing/dimensions/"
            if contract.topic is not None:
                cure = "it comes of the first records of its topic, when the service dimensions runs"
            _log.warning(
                f"waiting for a first version of a dimension: {cure}",
                dimension=contract.name,
                made_of=contract.made_of,
                reason=str(error),
            )
        else:
            _log.error(
                "dimension can't be used, see the reason: if its table is damaged, publish it again",
                dimension=contract.name,
                in_force=held.version,
                reason=str(error),
            )

    def _read(self, contract: DimensionContract) -> tuple[Dimension, str | None]:
        """The newest version, and the tag of its entry in the table's log."""
        version = self._table(contract).version()
        tag = self._tag(contract, version)
        # Once more: the first may be of a table that was made anew before the tag was read.
        table = self._table(contract, version)
        # Without rows it has no files.
        none = pa.schema(table.schema().to_arrow()).empty_table()
        rows = pa.concat_tables([self._rows(uri) for uri in table.file_uris()] or [none])
        never = contract.key if contract.valid is None else (*contract.key, contract.valid.begins)
        frame = self._spark.createDataFrame(rows.cast(_never_null(rows.schema, never)))
        _check_fit(contract, version, frame.schema, rows)
        if not rows.num_rows:
            # Spark plans no broadcast of what it knows to be empty, and so none that could be kept.
            frame = self._spark.createDataFrame(self._spark.sparkContext.emptyRDD(), frame.schema)
        if tag != self._tag(contract, version):
            raise ValueError(f"version {version} was made anew while it was read")
        _log.info("dimension read", dimension=contract.name, version=version, rows=rows.num_rows)
        columns = frame.select([F.col(column.name).cast(column.type) for column in contract.columns])
        return Dimension(version, columns, contract.key, contract.valid), tag

    def _table(self, contract: DimensionContract, version: int | None = None) -> DeltaTable:
        # By deltalake: Spark's own Delta takes seconds to read its first table, and one more job for each batch.
        uri = f"s3://{self._bucket}/{contract.location}"
        return DeltaTable(uri, version=version, storage_options=self._delta_options)

    def _rows(self, uri: str) -> pa.Table:
        key = uri.removeprefix(f"s3://{self._bucket}/")
        return pq.read_table(pa.BufferReader(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()))

    def _tag(self, contract: DimensionContract, version: int) -> str | None:
        """The content tag of this entry of the table's log; None if there is no such entry. Raises DimensionUnreadable."""
        try:
            key = f"{contract.location}/_delta_log/{version:020d}.json"
            return self._s3.head_object(Bucket=self._bucket, Key=key)["ETag"]
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise DimensionUnreadable(
                f"the object store refuses a look at the dimension {contract.name}: {error}"
            ) from error
        except BotoCoreError as error:
            raise DimensionUnreadable(f"no look at the dimension {contract.name}: {error}") from error


def _never_null(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """A table's key never is, but its files don't say so."""
    return pa.schema([field.with_nullable(field.nullable and field.name not in names) for field in schema])


def _check_fit(contract: DimensionContract, version: int, there: StructType, rows: pa.Table) -> None:
    """Raises ValueError unless the version has the contract's columns, of its types, and no key twice.

    Another contract may have made it. A key that stands twice would double records, and a cast would change values unseen.
    """
    cure = "run the pipelines and the dimensions service with the same contracts"
    kinds = {field.name: field.dataType for field in there}
    for column in contract.columns:
        kind = kinds.get(column.name)
        if kind != KINDS[column.type] and not (kind == IntegerType() and column.type in _WIDER_THAN_INT):
            found = f"column {column.name} as {kind.simpleString()}" if kind else f"no column {column.name}"
            raise ValueError(f"version {version} has {found}, and the contract says {column.type}: {cure}")
    if contract.valid is not None:
        if _overlaps(contract.key, contract.valid, rows):
            raise ValueError(f"version {version} has two rows of a key that hold at the same time: {cure}")
        return
    if (distinct := rows.group_by(list(contract.key)).aggregate([]).num_rows) != rows.num_rows:
        raise ValueError(
            f"version {version} has {rows.num_rows} rows and {distinct} keys by {', '.join(contract.key)}, and the contract has one row for each "
            f"key: {cure}"
        )


def _overlaps(key: Sequence[str], valid: Validity, rows: pa.Table) -> bool:
    """Whether two rows with the same key hold at the same time."""
    ordered = rows.sort_by([(name, "ascending") for name in (*key, valid.begins)]).combine_chunks()
    before, behind = ordered.slice(0, max(rows.num_rows - 1, 0)), ordered.slice(1)
    overlap = pc.fill_null(pc.greater(before[valid.ends], behind[valid.begins]), True)
    for name in key:
        overlap = pc.and_(overlap, pc.equal(before[name], behind[name]))
    return bool(pc.any(overlap).as_py())
