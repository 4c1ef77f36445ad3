"""A lake table and its upkeep on the real S3 server, without Spark: commits, writers that overlap, files, versions."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError
from prometheus_client import REGISTRY
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType, TimestampType

from contracts.errors import ContractError
from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.local.servers.stack import LocalStack
from spark.runtime.errors import TakenOver
from spark.sinks.delta import table_files
from spark.sinks.delta.lake_table import TableWriter
from spark.sinks.delta.positions import Positions
from spark.sinks.delta.table_files import FilePlan, TableFile, write_files
from spark.sinks.delta.upkeep import Upkeep
from tests import sample
from tests.spark.examples import DISPATCHED

STATISTICS = ("at", "raw_offset")
SCHEMA = StructType(
    [
        StructField("origin", StringType()),
        StructField("at", TimestampType()),
        StructField("coordinate", StringType()),
        StructField("record_offset", LongType()),
        StructField("raw_offset", LongType()),
    ]
)
COMMITS = 120
AT = datetime(2013, 1, 1, 10, 17, 0, 123456, tzinfo=UTC)


class Table:
    """A table of this test's own, and files for it."""

    def __init__(self, s3: S3Settings, partition_by: tuple[str, ...] = ("origin",)) -> None:
        contract = sample.catalog().topic(DISPATCHED)
        assert contract.lake is not None
        lake = contract.lake.model_copy(
            update={"table": f"t{uuid.uuid4().hex[:8]}_parcels", "partition_by": list(partition_by)}
        )
        self.contract = contract.model_copy(update={"lake_section": lake})
        self.s3 = s3
        self.partition_by = partition_by
        self.epoch = 0
        self.prefix = f"lake/{lake.table}"

    def writer(self, *more: StructField) -> TableWriter:
        """The next one, with an epoch of its own, and with `more` columns."""
        self.epoch += 1
        return TableWriter(self.s3, self.contract, StructType([*SCHEMA.fields, *more]), STATISTICS, self.epoch, {})

    def partitioned_by(self, columns: tuple[str, ...]) -> Self:
        """The same, as another contract says."""
        other = copy(self)
        assert self.contract.lake is not None
        lake = self.contract.lake.model_copy(update={"partition_by": list(columns)})
        other.contract, other.partition_by = self.contract.model_copy(update={"lake_section": lake}), columns
        return other

    def files(self, *offsets: int, origins: tuple[str | None, ...] = ("EST",)) -> list[TableFile]:
        """Files with a row for each of these offsets and origins, made as a task of Spark's makes them."""
        events = [{"origin": origin, "at": AT} for origin in origins for _ in offsets]
        return self.write(events, [*offsets] * len(origins))

    def write(
        self, events: Sequence[Mapping[str, Any]], offsets: Sequence[int], at_once: int = 1_000
    ) -> list[TableFile]:
        """Files with these events, which come in batches of `at_once`."""
        kind = pa.struct([("origin", pa.string()), ("at", pa.timestamp("us", "UTC"))])
        batch = pa.RecordBatch.from_pydict(
            {
                "event": pa.array(events, kind),
                "reason": pa.nulls(len(events), pa.string()),
                "ce_id": [f"parcels.raw.v1/0/{offset}" for offset in offsets],
                "partition": pa.array([0] * len(events), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "timestamp": pa.array([AT] * len(events), pa.timestamp("us", "UTC")),
            }
        )
        batches = [batch.slice(start, at_once) for start in range(0, len(events), at_once)]
        plan = FilePlan(
            self.s3,
            self.prefix,
            DISPATCHED,
            "parcels.raw.v1",
            False,
            None,
            ["origin", "at"],
            self.partition_by,
            STATISTICS,
        )
        (result,) = write_files(plan, iter(batches))
        return [TableFile(**file) for file in json.loads(result.column("done")[0].as_py())["files"]]

    def read(self, version: int | None = None) -> Counter[tuple[str | None, int]]:
        table = DeltaTable(f"s3://{self.s3.bucket}/{self.prefix}", version, self.s3.delta_options())
        found = QueryBuilder().register("rows", table).execute("select origin, raw_offset from rows")
        return Counter((row["origin"], row["raw_offset"]) for row in pa.table(found).to_pylist())

    def objects(self) -> set[str]:
        found = s3_client(self.s3).list_objects_v2(Bucket=self.s3.bucket, Prefix=f"{self.prefix}/").get("Contents", [])
        return {key for each in found if (key := each["Key"].removeprefix(f"{self.prefix}/")).endswith(".parquet")}


def taken(offset: int) -> Positions:
    return Positions(DISPATCHED, {0: offset})


@pytest.fixture
def table(stack: LocalStack) -> Table:
    return Table(stack.settings().s3)


def test_rows_and_positions_come_in_one_commit_and_any_writer_reads_them(table: Table) -> None:
    writer = table.writer()
    assert writer.read_positions([0]).next_offsets == {}
    writer.commit(table.files(3, 5), taken(6), {"parcels.raw.v1/0": 6})
    again = table.writer()
    assert (again.read_positions([0, 1]), again.highest("parcels.raw.v1/0")) == (taken(6), 6)
    assert table.read() == Counter({("EST", 3): 1, ("EST", 5): 1})
    assert sorted(again.revisions([(4, 9)])) == [("parcels.raw.v1/0/5", 0)]


def test_rows_are_looked_for_within_ranges_that_lie_far_apart(table: Table) -> None:
    writer = table.writer()
    writer.commit(table.files(3, 5, 900_000), taken(900_001), {})
    found = sorted(writer.revisions([(0, 4), (900_000, 900_001)]))
    assert found == [("parcels.raw.v1/0/3", 0), ("parcels.raw.v1/0/900000", 0)]


def test_more_partition_values_than_files_may_be_open_are_written_in_turns(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "_OPEN_FILES", 3)
    monkeypatch.setattr(table_files, "_ROWS_AT_ONCE", 10)
    origins = [None, "", *map(str, range(9))]
    events = [{"origin": origins[index % 11], "at": AT} for index in range(220)]
    files = table.write(events, range(220), at_once=7)
    assert Counter(file.partition_values["origin"] for file in files) == Counter([None, None, *map(str, range(9))])
    writer = table.writer()
    writer.commit(files, taken(220), {})
    assert table.read() == Counter((origins[index % 11] or None, index) for index in range(220))


def test_files_that_are_full_are_uploaded_before_the_others(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_OPEN_BYTES", 10_000)
    monkeypatch.setattr(table_files, "_BYTES_AT_ONCE", 1_000)
    events = [{"origin": "EST" if index % 50 else "NTH", "at": AT + timedelta(index)} for index in range(2_000)]
    files = table.write(events, range(2_000), at_once=100)
    found = Counter(file.partition_values["origin"] for file in files)
    assert found["EST"] > found["NTH"] > 0
    assert found["EST"] > 3
    writer = table.writer()
    writer.commit(files, taken(2_000), {})
    assert table.read() == Counter((event["origin"], index) for index, event in enumerate(events))


def test_a_bound_that_no_reader_could_read_is_left_out() -> None:
    at = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"at": at, "raw_offset": pa.array([3, 4])}), sink)
    found = table_files.file_statistics(pq.read_metadata(pa.BufferReader(sink.getvalue())), ["at", "raw_offset"])
    assert (found["minValues"], found["maxValues"]) == ({"raw_offset": 3}, {"raw_offset": 4})
    assert found["nullCount"] == {"at": 0, "raw_offset": 0}


def test_a_table_without_partition_columns_is_compacted_as_well(stack: LocalStack) -> None:
    table = Table(stack.settings().s3, partition_by=())
    writer = table.writer()
    upkeep = Upkeep(writer, "parcels", 1, files_per_commit=2)
    for offset in range(4):
        writer.commit(table.files(offset), taken(offset + 1), {})
        upkeep.run(taken(offset + 1))
    assert len(writer.files()) < 4
    assert table.read() == Counter(("EST", offset) for offset in range(4))


def test_partitions_of_any_value_are_compacted(table: Table) -> None:
    writer = table.writer()
    upkeep = Upkeep(writer, "parcels", 1, files_per_commit=2)
    values = (
        "x" * 2_000,
        "\U0001f6eb" * 300,
        "a/b",
        "..",
        "%2F",
        "\x00",
        "null",
        "__HIVE_DEFAULT_PARTITION__",
        "",
        None,
    )
    for offset in range(6):
        writer.commit(table.files(offset, origins=values), taken(offset + 1), {})
        upkeep.run(taken(offset + 1))
    files = Counter(str(file.partition) for file in writer.files())
    assert len(files) == len(values) - 1, "the empty text is null to Delta"
    assert max(files.values()) <= 4
    assert table.read() == Counter((value or None, offset) for value in values for offset in range(6))
    # Any partition can be chosen by its value.
    assert sorted(row for row in writer.revisions([(5, 5)])) == [("parcels.raw.v1/0/5", 0)] * len(values)


def test_a_file_from_before_a_column_was_added_is_compacted_with_later_ones(table: Table) -> None:
    old = table.writer()
    for offset in range(2):
        old.commit(table.files(offset), taken(offset + 1), {})
    writer = table.writer(StructField("gate", StringType()), StructField("codes", ArrayType(StringType())))
    for offset in range(2, 4):
        writer.commit(table.files(offset), taken(offset + 1), {})
    Upkeep(writer, "parcels", 1, files_per_commit=2).run(taken(4))
    assert len(writer.files()) == 1
    assert table.read() == Counter(("EST", offset) for offset in range(4))


def test_a_compaction_that_fails_stops_no_commit_and_is_tried_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = table.writer()
    upkeep = Upkeep(writer, "parcels", 1, files_per_commit=2)
    for offset in range(4):
        writer.commit(table.files(offset, origins=("EST", "NTH")), taken(offset + 1), {})
    lost = next(file.path for file in writer.files() if file.partition["origin"] == "EST")
    s3, bucket, key = s3_client(table.s3), table.s3.bucket, f"{table.prefix}/{lost}"
    body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    failed = _failed_compactions()
    s3.delete_object(Bucket=bucket, Key=key)
    upkeep.compact()
    for damaged in (body[:-9], b""):
        s3.put_object(Bucket=bucket, Key=key, Body=damaged)
        upkeep.compact()
    assert _failed_compactions() == failed + 3
    assert Counter(file.partition["origin"] for file in writer.files()) == {"EST": 4, "NTH": 1}
    s3.put_object(Bucket=bucket, Key=key, Body=body)
    upkeep.run(taken(4))
    assert len(writer.files()) == 5, "not before its time"
    monkeypatch.setattr(upkeep, "_compact_at", 0.0)
    upkeep.run(taken(4))
    assert len(writer.files()) == 2
    assert table.read() == Counter((origin, offset) for origin in ("EST", "NTH") for offset in range(4))


def test_a_commit_whose_answer_was_lost_is_found_in_the_table(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's client sends the version again, and is told that it is there."""
    writer, whole = table.writer(), DeltaTable.create_write_transaction

    def lost(*given: Any, **named: Any) -> None:
        whole(*given, **named)
        raise CommitFailedError("Transaction failed: the version is there")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    for offset in range(4):
        writer.commit(table.files(offset), taken(offset + 1), {})
    Upkeep(writer, "parcels", 1, files_per_commit=2).run(taken(4))
    assert len(writer.files()) == 1
    assert table.read() == Counter(("EST", offset) for offset in range(4))
    # What was not committed is not taken for it.
    monkeypatch.setattr(DeltaTable, "create_write_transaction", _refused)
    with pytest.raises(TakenOver, match="another writer has committed"):
        writer.commit(table.files(4), taken(5), {})


def _refused(*given: Any, **named: Any) -> None:
    raise CommitFailedError("Transaction failed: the version is there")


def _failed_compactions() -> float:
    return REGISTRY.get_sample_value("headrace_lake_failed_compactions_total", {"table": "parcels"}) or 0.0


@pytest.mark.parametrize(("there", "wanted"), [(("origin",), ()), ((), ("origin",)), (("origin",), ("coordinate",))])
def test_a_table_is_not_partitioned_otherwise(
    stack: LocalStack, there: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    table = Table(stack.settings().s3, there)
    table.writer().commit(table.files(0), taken(1), {})
    with pytest.raises(ContractError, match=f"is partitioned by {there[0] if there else 'nothing'}, and the contract"):
        table.partitioned_by(wanted).writer()
    table.writer().commit(table.files(1), taken(2), {})
    assert table.read() == Counter([("EST", 0), ("EST", 1)])


def test_what_was_committed_before_upkeep_failed_is_this_writers_own(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = table.writer()
    upkeep = Upkeep(writer, "parcels", 1, files_per_commit=2)
    for offset in range(5):
        writer.commit(table.files(offset), taken(offset + 1), {})
    replace = writer.replace

    def committed_and_failed(*arguments: Any) -> None:
        another = DeltaTable(writer.table.table_uri, storage_options=table.s3.delta_options())
        monkeypatch.setattr(writer, "table", another)
        monkeypatch.setattr(writer.table, "update_incremental", lambda: None)
        replace(*arguments)
        monkeypatch.undo()
        raise OSError("the log's checkpoint could not be written")

    monkeypatch.setattr(writer, "replace", committed_and_failed)
    upkeep.compact()
    writer.commit(table.files(5), taken(6), {})
    assert table.read() == Counter(("EST", offset) for offset in range(6))
    table.writer()
    with pytest.raises(TakenOver):
        writer.catch_up()


def test_a_writer_that_did_not_see_another_ones_commit_cannot_commit(table: Table) -> None:
    slept = table.writer()
    slept.commit(table.files(0), taken(1), {})
    table.writer().commit(table.files(1), taken(2), {})
    with pytest.raises(TakenOver, match="another writer has committed"):
        slept.commit(table.files(1), taken(2), {})
    assert table.read() == Counter({("EST", 0): 1, ("EST", 1): 1})


def test_a_writer_that_slept_after_its_commit_does_not_take_the_other_ones_for_its_own(table: Table) -> None:
    slept = table.writer()
    slept.commit(table.files(0), taken(1), {})
    table.writer().commit(table.files(1), taken(2), {})
    # Its upkeep reads the table anew, the other's commit included.
    slept.table.update_incremental()
    with pytest.raises(TakenOver, match="another writer has committed"):
        Upkeep(slept, "parcels", 1).run(taken(1))


@pytest.mark.parametrize("compacted", [False, True])
def test_a_compaction_in_which_a_writer_slept_is_not_committed(table: Table, compacted: bool) -> None:
    slept = table.writer()
    for offset in range(4):
        slept.commit(table.files(offset), taken(offset + 1), {})
    successor = table.writer()
    if compacted:
        Upkeep(successor, "parcels", 1, files_per_commit=2).compact()
    with pytest.raises(TakenOver, match="another writer has committed"):
        Upkeep(slept, "parcels", 1, files_per_commit=2).compact()
    assert table.read() == Counter(("EST", offset) for offset in range(4))
    successor.commit(table.files(4), taken(5), {})
    assert table.read() == Counter(("EST", offset) for offset in range(5))


def test_the_log_says_what_a_file_holds(table: Table) -> None:
    writer = table.writer()
    writer.commit(table.files(7, 9, origins=("EST", None, "a b/ü")), taken(10), {})
    found = pa.table(writer.table.get_add_actions(flatten=True)).to_pydict()
    assert sorted(map(str, found["partition.origin"])) == ["EST", "None", "a b/ü"]
    assert (found["num_records"], found["min.raw_offset"], found["max.raw_offset"]) == ([2] * 3, [7] * 3, [9] * 3)
    # Milliseconds, rounded outwards.
    assert found["min.at"] == [AT.replace(microsecond=123000)] * 3
    assert found["max.at"] == [AT.replace(microsecond=124000)] * 3
    assert table.read() == Counter({(origin, at): 1 for origin in ("EST", None, "a b/ü") for at in (7, 9)})


@pytest.mark.long
def test_an_hour_of_commits_leaves_at_most_five_small_files_in_any_version(table: Table) -> None:
    """An hour at a commit every half minute, two files of a partition each; sizes at a thousandth."""
    small = 16_000
    writer = table.writer()
    upkeep = Upkeep(writer, "parcels", 1, files_per_commit=2, small_bytes=small)
    most, sizes = 0, list[int]()
    per_commit = 90
    for commit in range(COMMITS):
        first = commit * 2 * per_commit
        files = table.files(*range(first, first + per_commit))
        files += table.files(*range(first + per_commit, first + 2 * per_commit))
        writer.commit(files, taken(first + 2 * per_commit), {})
        sizes = [file.size for file in writer.files()]
        most = max(most, sum(size < small for size in sizes))
        upkeep.run(taken(first + 2 * per_commit))
    assert 3 < most <= 5
    assert len(sizes) < COMMITS / 4
    assert table.read() == Counter(("EST", offset) for offset in range(COMMITS * 2 * per_commit))


def test_compaction_changes_no_row_and_older_versions_stay_until_they_are_vacuumed(table: Table) -> None:
    writer = table.writer()
    for offset in range(4):
        writer.commit(table.files(offset), taken(offset + 1), {})
    writer.table.update_incremental()
    before = writer.version
    table.files(99)  # of a batch that was never committed
    Upkeep(writer, "parcels", 1, files_per_commit=2).run(taken(4))
    assert table.read() == table.read(before) == Counter(("EST", offset) for offset in range(4))
    assert len(table.objects() - _checkpoints(table)) == 6
    Upkeep(writer, "parcels", 0).run(taken(4))
    assert len(table.objects() - _checkpoints(table)) == 1
    assert table.read() == Counter(("EST", offset) for offset in range(4))
    # The statistics by which readers leave files alone are still there.
    assert list(writer.revisions([(2, 2)])) == [("parcels.raw.v1/0/2", 0)]
    assert "max.raw_offset" in writer.table.get_add_actions(flatten=True).schema.names


def _checkpoints(table: Table) -> set[str]:
    return {name for name in table.objects() if name.startswith("_delta_log/")}
