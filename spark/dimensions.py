"""The newest version of each dimension, kept between batches."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from botocore.exceptions import ClientError
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.dimension import DimensionContract
from contracts.s3 import s3_client
from contracts.settings import S3Settings

_log = structlog.get_logger(__name__)

_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Dimension:
    """One version of a dimension table; `frame` is in memory, with the columns of the contract."""

    version: int
    frame: DataFrame


class Dimensions:
    """Holds the newest published version of each dimension.

    A batch pays one small request for each, not the planning of a Delta table: the rows are in memory, and read again
    only when the table's log has a further entry.
    """

    def __init__(self, spark: SparkSession, s3: S3Settings, contracts: Sequence[DimensionContract]) -> None:
        self._spark = spark
        self._bucket = s3.bucket
        self._s3 = s3_client(s3)
        self._delta_options = s3.delta_options()
        self._contracts = contracts
        self._held: dict[str, Dimension] = {}

    def newest(self) -> Mapping[str, Dimension]:
        """Every dimension by name, newest version. Raises KeyError with the name of one that isn't published yet."""
        for contract in self._contracts:
            held = self._held.get(contract.name)
            if held is None or self._exists(contract, held.version + 1):
                self._held[contract.name] = self._read(contract)
        return self._held

    def wait(self, stopping: threading.Event) -> bool:
        """Wait until every dimension is published; False if `stopping` was set before."""
        for contract in self._contracts:
            if not self._exists(contract, 0) and not self._any_version(contract):
                _log.info("waiting for dimension", dimension=contract.name, location=contract.location)
                while not self._any_version(contract):
                    if stopping.wait(_PAUSE_SECONDS):
                        return False
        return True

    def _read(self, contract: DimensionContract) -> Dimension:
        # By deltalake: Spark's own Delta takes seconds to read its first table, and one more job for each batch.
        table = DeltaTable(f"s3://{self._bucket}/{contract.location}", storage_options=self._delta_options)
        rows = pa.concat_tables([self._rows(uri) for uri in table.file_uris()])
        columns = [F.col(column.name).cast(column.type) for column in contract.columns]
        frame = self._spark.createDataFrame(rows).select(columns)
        _log.info("dimension read", dimension=contract.name, version=table.version(), rows=rows.num_rows)
        return Dimension(table.version(), frame)

    def _rows(self, uri: str) -> pa.Table:
        key = uri.removeprefix(f"s3://{self._bucket}/")
        return pq.read_table(pa.BufferReader(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()))

    def _exists(self, contract: DimensionContract, version: int) -> bool:
        try:
            self._s3.head_object(Bucket=self._bucket, Key=f"{contract.location}/_delta_log/{version:020d}.json")
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return False
            raise
        return True

    def _any_version(self, contract: DimensionContract) -> bool:
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{contract.location}/_delta_log/", MaxKeys=1)
        return bool(found.get("KeyCount"))
