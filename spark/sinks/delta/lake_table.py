"""A Delta table of the lake, as its one writer sees it: made and changed by deltalake, without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import structlog
from deltalake import DeltaTable, Field, QueryBuilder, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction
from pyspark.sql.types import StructType

from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError
from contracts.servers.delta_features import foreign_features
from contracts.settings import S3Settings
from spark.runtime.errors import PositionsDisagree, TakenOver
from spark.sinks.delta.merged_files import LiveFile, merged
from spark.sinks.delta.positions import Positions
from spark.sinks.delta.table_files import TableFile, partition_texts

_log = structlog.get_logger(__name__)

_CHECKPOINT_COMMITS = 20
"""After so many commits the log is written out as one file: a reader reads that one and what follows."""

_NEWEST_CHECKPOINT_COMMITS = 100
"""The same of a table of newest records, where that file names every file that a commit of `history_days` has removed."""

_EPOCH = "headrace.epoch"
"""The property of a table with the epoch of its writer's lease."""

_ROWS = "headrace.rows"
"""The property of a table that has the newest record of each key; others have none."""


def check_topics(table: DeltaTable, topic: TopicContract, topic_ids: Mapping[str, str]) -> None:
    """Raises PositionsDisagree if the `topic` of the table, or the one that it is derived from, is another one than the table's rows are of: it
    was deleted and made anew. `topic_ids` are what the brokers say.
    """
    assert topic.lake is not None
    kept, prefix = table.metadata().configuration, f"lake/{topic.lake.table}"
    for name, topic_id in topic_ids.items():
        before = kept.get(_id_property(topic, name))
        if before and before != topic_id:
            # Where records of both raw topics lie in a derived one, the newer of them would be left out as repeats.
            first = "" if name == topic.name else f"make {topic.name} anew, too, for it has records of both; then "
            raise PositionsDisagree(
                f"{name} was deleted and made anew: the table {table.table_uri} is of the topic with id {before}, the "
                f"brokers have one with id {topic_id}, whose records would be taken for those that the table has. To go on, {first}move the "
                f"folder {prefix} away and remove checkpoints/{prefix}, and the table is filled anew"
            )


def _id_property(topic: TopicContract, name: str) -> str:
    return "headrace.topic_id" if name == topic.name else "headrace.raw_topic_id"


class TableWriter:
    """Commits go where the writer thinks that the table is, by a put that fails if something is there.

    So whoever else has committed in between makes the commit fail, and nothing is written twice: what this writer knows
    of the table is all that there is. Each writer begins with a commit, its lease's epoch, which fences whoever was before it.
    """

    def __init__(
        self,
        s3: S3Settings,
        topic: TopicContract,
        schema: StructType,
        statistics: Sequence[str],
        epoch: int,
        topic_ids: Mapping[str, str],
    ) -> None:
        """Create the table if there is none, and add the columns that it lacks; `schema` is that of its rows, `topic_ids` are what
        the brokers say of the topic and of the one that it is derived from.

        Raises ContractError if a column has another type, or the table another partitioning, rows of other records or a feature or property that this can't write with, PositionsDisagree if the table is of topics with other ids.
        """
        assert topic.lake is not None
        self._contract, self._topic = topic, topic.name
        self._s3 = s3
        self._prefix = f"lake/{topic.lake.table}"
        self._statistics = list(statistics)
        self._partition_by = list(topic.lake.partition_by)
        self._epoch = str(epoch)
        history = f"interval {topic.lake.history_days} days"
        properties = {
            "delta.dataSkippingStatsColumns": ",".join(statistics),
            "delta.checkpointInterval": str(_NEWEST_CHECKPOINT_COMMITS if topic.lands_newest else _CHECKPOINT_COMMITS),
            "delta.logRetentionDuration": history,
            "delta.deletedFileRetentionDuration": history,
            _EPOCH: self._epoch,
            **{_id_property(topic, name): topic_id for name, topic_id in topic_ids.items()},
            **({_ROWS: topic.lake.rows} if topic.lands_newest else {}),
        }
        wanted = Schema.from_json(schema.json())
        self.table = DeltaTable.create(
            f"s3://{s3.bucket}/{self._prefix}",
            wanted,
            mode="ignore",
            partition_by=self._partition_by,
            description=topic.description,
            configuration=properties,
            raise_if_key_not_exists=False,
            storage_options=s3.delta_options(),
        )
        self._refuse_features()
        self._refuse_append_only()
        self._refuse_partitioning()
        self._refuse_rows(topic.lake.rows)
        self.check_topics(topic_ids)
        self._evolve(wanted)
        found = self.table.metadata().configuration
        if changed := {name: value for name, value in properties.items() if found.get(name) != value}:
            self.table.alter.set_table_properties(changed, raise_if_not_exists=False)

    @property
    def version(self) -> int:
        """The version of the table that this writer has made or found."""
        return self.table.version()

    def check_topics(self, topic_ids: Mapping[str, str]) -> None:
        """Raises PositionsDisagree as `check_topics` does."""
        check_topics(self.table, self._contract, topic_ids)

    def read_positions(self, partitions: Sequence[int]) -> Positions:
        """How far the table has taken in these partitions of its topic.

        Raises PositionsDisagree if somebody else has filled it.
        """
        positions = self._positions_of(partitions)
        if not positions.next_offsets and self.table.get_add_actions().num_rows:
            raise PositionsDisagree(
                f"the table {self.table.table_uri} has rows, but does not say how far it has taken in {self._topic}: another "
                "program has written it; move it away to fill it from the topic's beginning"
            )
        return positions

    def moved_ms(self) -> int | None:
        """When the newest commit was made that moved the positions, in milliseconds since 1970; None: the log has none any more."""
        # As `Positions.as_json` begins; the commit that begins a writer says nothing.
        told = f'{{"topic": {json.dumps(self._topic)}, '
        for limit in (_CHECKPOINT_COMMITS, None):
            for commit in self.table.history(limit):
                if (commit.get("userMetadata") or "").startswith(told):
                    return int(commit["timestamp"])
        return None

    def highest(self, raw: str) -> int:
        """The offset after the highest one of `raw` ("topic/partition") of which the table has a derived record."""
        return self.table.transaction_version(f"headrace/raw/{raw}") or 0

    def revisions(self, raw_offsets: Sequence[tuple[int, int]], *, repairs: bool = False) -> Iterator[tuple[str, int]]:
        """Coordinate and revision of every row whose `raw_offset` lies in one of these ranges, both ends included; of `repairs`
        only the rows of later revisions, which are few.

        Files that hold none are left alone, by their statistics.
        """
        within = " or ".join(f"raw_offset between {least} and {greatest}" for least, greatest in raw_offsets)
        there = any(field.name == "revision" for field in self.table.schema().fields)
        # Null in rows from before the field was added.
        revision = "coalesce(revision, 0)" if there else "0"
        where = f"({within}) and {revision} {'>' if repairs else '<='} 0"
        found = (
            QueryBuilder()
            .register("rows", self.table)
            .execute(f"select coordinate, {revision} from rows where {where}")
        )
        for batch in found:
            yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)

    def columns(self) -> pa.Schema:
        """Those of the table, as Arrow has them."""
        return pa.schema([(field.name, field.type) for field in pa.schema(self.table.schema())])

    def commit(
        self,
        files: Sequence[TableFile],
        positions: Positions,
        highest: Mapping[str, int],
        gone: Sequence[LiveFile] = (),
    ) -> None:
        """Add the files, take those away that are `gone`, and move the positions: all or nothing.

        Raises TakenOver, having written nothing, if anybody else has made a version since this writer's last.
        """
        marks = [Transaction(self._app(partition), offset) for partition, offset in positions.next_offsets.items()]
        marks += [Transaction(f"headrace/raw/{raw}", offset) for raw, offset in highest.items()]
        actions: list[AddAction | RemoveAction] = [
            *_removed(gone, data_change=True),
            *(_added(each, data_change=True) for each in files),
        ]
        self._commit(
            actions,
            CommitProperties({"userMetadata": positions.as_json()}, 0, marks),
            lambda: self._has_taken(positions),
        )
        self.confirm(positions)

    def merge(self, files: Sequence[LiveFile]) -> TableFile:
        """A file with the rows of these, all of one partition, in their order; it is not yet part of the table.

        Made here, since deltalake's own compaction writes a partition's value out as the folder's name, which may be too long.
        """
        return merged(self._s3, self._prefix, files, self.columns(), self._statistics)

    def replace(self, files: Sequence[LiveFile], by: Sequence[TableFile]) -> None:
        """Put files with the same rows in the place of these. Raises TakenOver as `commit` does."""
        self._commit(
            [*_removed(files, data_change=False), *(_added(each, data_change=False) for each in by)],
            CommitProperties(None, 0),
            lambda: {each.path for each in by} <= {each.path for each in self.files()},
        )

    def confirm(self, positions: Positions) -> None:
        """Raises TakenOver unless the table, as read last, has taken in just this, and no other writer has begun: a commit may follow it."""
        if not self._has_taken(positions) or not self._is_ours():
            raise self.taken()

    def catch_up(self) -> None:
        """Read what this writer itself may have committed before something failed. Raises TakenOver if the table has another one by now."""
        self.table.update_incremental()
        if not self._is_ours():
            raise self.taken()

    def files(self) -> list[LiveFile]:
        """Every file of the newest version, the oldest first."""
        actions = self.table.get_add_actions()
        names = ["modification_time", "path", "size_bytes", *(["partition"] if self._partition_by else [])]
        columns = [actions.column(name).to_pylist() for name in names]
        found = sorted(zip(*columns, strict=True), key=lambda each: each[:2])
        return [LiveFile(path, size, *(dict(each) for each in partition)) for _, path, size, *partition in found]

    def taken(self) -> TakenOver:
        """What to raise when somebody else turns out to have committed."""
        return TakenOver(f"another writer has committed to {self.table.table_uri}: this one stops; a table has one")

    def _commit(
        self, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties, is_done: Callable[[], bool]
    ) -> None:
        """`properties` allow no second attempt, which would be at another version. `is_done` says whether the table, as read last, has it."""
        try:
            self.table.create_write_transaction(
                list(actions), "append", self.table.schema(), self._partition_by, commit_properties=properties
            )
        except CommitFailedError as error:
            # Where the store's answer was lost, its client has sent the version again, and was told that it is there.
            self.catch_up()
            if not is_done():
                raise self.taken() from error
        else:
            self.table.update_incremental()

    def _has_taken(self, positions: Positions) -> bool:
        return self._positions_of(list(positions.next_offsets)) == positions

    def _is_ours(self) -> bool:
        return bool(self.table.metadata().configuration.get(_EPOCH) == self._epoch)

    def _positions_of(self, partitions: Sequence[int]) -> Positions:
        found = {each: self.table.transaction_version(self._app(each)) for each in partitions}
        return Positions(self._topic, {each: offset for each, offset in found.items() if offset is not None})

    def _app(self, partition: int) -> str:
        return f"headrace/{self._topic}/{partition}"

    def _refuse_features(self) -> None:
        """What another engine has turned on: deltalake would commit files that readers then take for something else."""
        protocol = self.table.protocol()
        if said := foreign_features(protocol.min_writer_version, protocol.writer_features):
            raise ContractError(
                f"the table {self.table.table_uri} has features of Delta that `lake` can't write ({said}): another engine has turned "
                "them on. Drop them there (ALTER TABLE … DROP FEATURE …), or restore the version before, or move the folder "
                f"{self._prefix} away and remove checkpoints/{self._prefix}, and the table is filled anew"
            )

    def _refuse_append_only(self) -> None:
        """A commit that takes the file before away would fail, each time, and be told as somebody else's."""
        if self._contract.lands_newest and self.table.metadata().configuration.get("delta.appendOnly") == "true":
            raise ContractError(
                f"the table {self.table.table_uri} has the property delta.appendOnly=true, and `lake` replaces the rows of a table with rows: newest: "
                "another engine has set it. Take it back there (ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly'))"
            )

    def _refuse_partitioning(self) -> None:
        """deltalake would commit files whose partition values are none of the table's columns, and readers would find nulls."""
        there = self.table.metadata().partition_columns
        if there != self._partition_by:
            raise ContractError(
                f"the table {self.table.table_uri} is partitioned by {_listed(there)}, and the contract of {self._topic} says "
                f"{_listed(self._partition_by)}, which can't be changed in a table: set partition_by back, or land the topic in a table of another name"
            )

    def _refuse_rows(self, wanted: str) -> None:
        """Rows of all records would be taken for the newest of their keys, and the other way round."""
        there = self.table.metadata().configuration.get(_ROWS, "each")
        if there != wanted:
            raise ContractError(
                f"the table {self.table.table_uri} was filled with rows: {there}, and the contract of {self._topic} says {wanted}: set it back, or "
                f"land the topic in a table of another name, or move the folder {self._prefix} away and remove checkpoints/{self._prefix}, and the "
                "table is filled anew with what the topic has"
            )

    def _evolve(self, wanted: Schema) -> None:
        """Add what the contract has added."""
        there = {field.name: field for field in self.table.schema().fields}
        for field in wanted.fields:
            if field.name in there and field.type != there[field.name].type:
                raise ContractError(
                    f"{self._topic}: {field.name} is {_type(field)} by its contract, but {_type(there[field.name])} in the "
                    f"table {self.table.table_uri}, which can't change it: land the topic in a table of another name"
                )
        if added := [field for field in wanted.fields if field.name not in there]:
            self.table.alter.add_columns(added)
            _log.info("columns added", table=self.table.table_uri, columns=[field.name for field in added])


def _added(file: TableFile, *, data_change: bool) -> AddAction:
    return AddAction(file.path, file.size, file.partition_values, file.modified_ms, data_change, file.stats)


def _removed(files: Sequence[LiveFile], *, data_change: bool) -> list[RemoveAction]:
    now_ms = round(time.time() * 1000)
    return [RemoveAction(each.path, data_change, now_ms, each.size, partition_texts(each.partition)) for each in files]


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


def _type(field: Field) -> str:
    return json.dumps(json.loads(field.to_json())["type"])
