"""`lake`: every topic whose contract asks for it, copied into its Delta table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import structlog
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from contracts.catalog import Catalog
from contracts.errors import ContractError
from contracts.registry import Registry
from contracts.topic import Lake, TopicContract
from spark.dead_letters import dead_letters
from spark.decode import decode
from spark.errors import PositionsDisagree
from spark.headers import header
from spark.kafka import read_topic, write_records
from spark.lifecycle import Lifecycle
from spark.metrics import DEAD_LETTERS
from spark.offsets import OffsetRange, offset_ranges
from spark.positions import Positions, read_positions
from spark.s3 import s3_client
from spark.settings import SparkSettings
from spark.topic_schemas import TopicSchemas

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 1.0
"""How often the query looks whether enough records for a batch, or the time for one, have come."""

_FEW_RECORDS = 50_000
"""A batch of fewer is written by one task: small files cost every reader more than a second core gains here."""

_UNDECODABLE = "a record of this batch can't be decoded"
_COORDINATE = r"^[a-z0-9.]+/[0-9]+/[0-9]+$"

OWN_COLUMNS = (
    StructField("coordinate", StringType(), metadata={"comment": "topic/partition/offset of the raw record."}),
    StructField("record_partition", IntegerType(), metadata={"comment": "Partition of the record in this topic."}),
    StructField("record_offset", LongType(), metadata={"comment": "Offset of the record in its partition."}),
    StructField("recorded_at", TimestampType(), metadata={"comment": "Timestamp of the record: when it was sent."}),
)
"""What a row has beside the event's fields. An event's own `coordinate` is the raw record's already."""

_STATISTICS = ("record_partition", "record_offset", "recorded_at")
"""The columns whose least and greatest value Delta keeps of each file, with the contract's `occurred_at`: those that grow."""


class LakeTable:
    """One topic → its Delta table, each record exactly once.

    Every commit carries, with the rows, how far the topic is consumed. What the table has is skipped, so neither a lost
    checkpoint nor an old one changes it. It must be the only writer of the table.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        topic: TopicContract,
        schema: str,
        registry: Registry,
        lifecycle: Lifecycle,
    ) -> None:
        """`schema` is the topic's current one. Raises ContractError if the contract asks for no Delta table."""
        if topic.lake is None or topic.lake.format != "delta":
            raise ContractError(f"the contract of {topic.name} asks for no Delta table")
        self._spark = spark
        self._settings = settings
        self._topic = topic
        self._lake: Lake = topic.lake
        self._schema = schema
        self._schemas = TopicSchemas(registry, topic, schema)
        self._lifecycle = lifecycle
        self._query_name = f"lake.{topic.lake.table}"
        self.path = f"s3a://{settings.s3.bucket}/lake/{topic.lake.table}"
        self._checkpoint = f"checkpoints/lake/{topic.lake.table}"
        self.positions = Positions(topic.name, {})

    def start(self) -> StreamingQuery:
        """Create the table if there is none, and go on from where it is.

        Raises PositionsDisagree if the checkpoint has taken in records, but the table none.
        """
        self.positions = read_positions(self._create_table(), self._topic.name)
        if not self.positions.next_offsets and self._checkpoint_has_records():
            raise PositionsDisagree(
                f"the table {self.path} has no records, but the checkpoint {self._checkpoint} says that there were some: "
                "remove the checkpoint to fill the table from the topic's beginning, or restore the table"
            )
        settings = self._settings.lake
        raw = read_topic(
            self._spark,
            self._settings.kafka,
            self._topic.name,
            starting_offsets=self.positions.starting_offsets(self._partitions()),
            max_offsets_per_trigger=settings.max_offsets_per_trigger,
            options={
                # A full batch need not wait for its time: the trigger alone would let a backlog wait between batches.
                "minOffsetsPerTrigger": str(settings.max_offsets_per_trigger),
                "maxTriggerDelay": f"{round(settings.trigger_seconds * 1000)}ms",
            },
        )
        return (
            raw.writeStream.queryName(self._query_name)
            .option("checkpointLocation", f"s3a://{self._settings.s3.bucket}/{self._checkpoint}")
            .trigger(processingTime=f"{round(min(_LOOK_SECONDS, settings.trigger_seconds) * 1000)} milliseconds")
            .foreachBatch(self._lifecycle.until_stopped(self.write))
            .start()
        )

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Append what the table has not taken in yet; records that can't be decoded go to the dead letters before."""
        ranges = offset_ranges(batch)
        positions = self.positions.after(ranges)
        if positions == self.positions:
            return
        schemas = self._schemas.covering(batch, self._lifecycle.stopping)
        # Only a batch that runs again is filtered: positions in the plan would make it another one for each batch.
        fresh = batch.where(self.positions.beyond()) if self.positions.overlap(ranges) else batch
        decoded = decode(fresh, schemas)
        try:
            self._append(decoded, ranges, positions)
        except (PySparkException, Py4JJavaError) as error:
            # Bad records are so rare that looking for them first, in each batch, would cost more than this second try.
            if _UNDECODABLE not in str(error):
                raise
            self._set_aside(decoded)
            self._append(decoded.where(F.col("reason").isNull()), ranges, positions)
        self.positions = positions

    def _append(self, decoded: DataFrame, ranges: Sequence[OffsetRange], positions: Positions) -> None:
        rows = decoded.select(*self._event_columns(), *self._own_columns())
        if sum(found.end - found.start for found in ranges) < _FEW_RECORDS:
            # One task, so one file for each value of the partition columns.
            rows = rows.coalesce(1)
        rows.write.format("delta").mode("append").options(userMetadata=positions.as_json(), mergeSchema="true").save(
            self.path
        )

    def _set_aside(self, decoded: DataFrame) -> None:
        seen = Observation()
        bad = dead_letters(decoded, self._topic.dead_letter_topic, "lake").observe(
            seen, F.count(F.lit(1)).alias("rows")
        )
        write_records(self._settings.kafka, bad)
        DEAD_LETTERS.labels(self._query_name).inc(seen.get["rows"])
        _log.warning("records set aside", topic=self._topic.dead_letter_topic, rows=seen.get["rows"])

    def _field_names(self) -> list[str]:
        return [field["name"] for field in json.loads(self._schema)["fields"]]

    def _event_columns(self) -> list[Column]:
        first, *others = self._field_names()
        checked = F.when(F.col("reason").isNull(), F.col(f"event.{first}")).otherwise(
            F.raise_error(F.lit(_UNDECODABLE))
        )
        return [checked.alias(first), *[F.col(f"event.{name}").alias(name) for name in others]]

    def _own_columns(self) -> list[Column]:
        record = F.col("record")
        event_id = header(record["headers"], "ce_id").cast("string")
        columns = {
            # The id of an event that was derived from a raw record is that record's coordinate.
            "coordinate": F.when(event_id.rlike(_COORDINATE), event_id).otherwise(record["coordinate"]),
            "record_partition": record["partition"],
            "record_offset": record["offset"],
            "recorded_at": record["timestamp"],
        }
        return [column.alias(name) for name, column in columns.items() if name not in self._field_names()]

    def _create_table(self) -> DeltaTable:
        fields = json.loads(self._schema)["fields"]
        events = (
            self._spark.range(0).select(from_avro(F.lit(b""), self._schema).alias("event")).schema["event"].dataType
        )
        assert isinstance(events, StructType)
        columns = [
            StructField(field["name"], events[field["name"]].dataType, metadata={"comment": field.get("doc", "")})
            for field in fields
        ]
        columns += [column for column in OWN_COLUMNS if column.name not in self._field_names()]
        return (
            DeltaTable.createIfNotExists(self._spark)
            .location(self.path)
            .comment(self._topic.description)
            .addColumns(StructType(columns))
            .partitionedBy(*self._lake.partition_by)
            .property("delta.dataSkippingStatsColumns", ",".join((self._topic.occurred_at, *_STATISTICS)))
            .execute()
        )

    def _checkpoint_has_records(self) -> bool:
        """Whether the newest batch of the checkpoint ends beyond where the query began: one on an empty topic doesn't."""
        client, bucket = s3_client(self._settings.s3), self._settings.s3.bucket
        commits = client.list_objects_v2(Bucket=bucket, Prefix=f"{self._checkpoint}/commits/").get("Contents", [])
        batches = [int(name) for each in commits if (name := each["Key"].rpartition("/")[2]).isdigit()]
        if not batches:
            return False

        def offsets(file: str) -> object:
            lines = client.get_object(Bucket=bucket, Key=f"{self._checkpoint}/{file}")["Body"].read().splitlines()
            return json.loads(lines[-1])

        return offsets(f"offsets/{max(batches)}") != offsets("sources/0/0")

    def _partitions(self) -> list[int]:
        topic = AdminClient({**self._settings.kafka.client_config()}).list_topics(self._topic.name, timeout=30)
        return sorted(topic.topics[self._topic.name].partitions)


def lake_tables(
    spark: SparkSession,
    settings: SparkSettings,
    catalog: Catalog,
    registry: Registry,
    lifecycle: Lifecycle,
) -> list[LakeTable]:
    """One for each topic whose contract asks for a table, or of those that the settings name. Raises ContractError."""
    chosen = settings.lake.topics or [topic.name for topic in catalog.topics.values() if topic.lake is not None]
    return [
        LakeTable(spark, settings, topic, catalog.schema(topic.name), registry, lifecycle)
        for topic in map(catalog.topic, chosen)
    ]
