"""A lake table with the newest record of each key, against the real broker, registry and S3: it has what plain Python keeps of the topic."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import structlog
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from deltalake import DeltaTable, QueryBuilder, TableFeatures, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from contracts.dead_letters.letter import DeadLetter
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from deploy.local.servers.stack import LocalStack
from services.audit.errors import CouldNotAudit
from services.audit.followers import Followers
from services.audit.hops.hop import Hop
from services.audit.intake import Intake
from services.audit.plan import Source
from services.audit.records.records import Records
from services.audit.report import Report
from services.audit.sources.lake_table import LakeTable as AuditedTable
from spark.queries.lake import LakeTable
from spark.runtime.errors import PositionsDisagree, TakenOver
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LakeSettings, SparkSettings
from spark.sinks.delta.lake_table import TableWriter
from spark.sinks.delta.upkeep import Upkeep
from spark.sources.kafka import read_topic
from tests.jvm import SHORT_LIVED_ENV
from tests.producers import ordered
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import DISPATCHED, SCHEMA, Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import wait_for
from tests.spark.sinks.delta.newest_lake import with_newest


class Place:
    """A topic with few keys, and the table that has the newest record of each."""

    def __init__(self, spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> None:
        self._spark, self._settings, self._registry, self.topics = spark, settings, registry, topics
        self.topic = topics.catalog.topic(DISPATCHED)
        self.sent: list[tuple[str, int, int, int | None]] = []
        """Of each record key, partition, offset and `late_minutes`; None if it has no value, or none that can be read."""
        self._ends = {0: 0, 1: 0}

    def table(self, *, schema: str = SCHEMA, topic: TopicContract | None = None, batch: int = 500_000) -> LakeTable:
        """As a writer that has just been started."""
        lake = LakeSettings(trigger_seconds=0, max_offsets_per_trigger=batch)
        own = self._settings.model_copy(update={"lake": lake})
        return LakeTable(self._spark, own, topic or self.topic, schema, self._registry, Lifecycle())

    def send(self, key: str, late_minutes: int | None, *, raw: bytes | None = None, sent_ms: int = 0) -> None:
        """A record of a key; without minutes one without a value, or with this one. Sent now, or at this time."""
        partition = sum(key.encode()) % 2
        value = raw
        if late_minutes is not None and raw is None:
            event = a_dispatch(parcel_id=key, late_minutes=late_minutes)
            value = framed(self.topics.schema_ids[DISPATCHED], body(event))
        self.topics.send(value, partition=partition, key=key.encode(), sent_ms=sent_ms)
        self.sent.append((key, partition, self._ends[partition], late_minutes))
        self._ends[partition] += 1

    def send_many(self, records: Iterable[tuple[str, int]]) -> None:
        """A record of each key, with these minutes."""
        producer = ordered({**self._settings.kafka.client_config(), "linger.ms": 20})
        schema = fastavro.parse_schema(json.loads(SCHEMA))
        for key, minutes in records:
            partition, mixed = sum(key.encode()) % 2, zlib.crc32(key.encode())
            event = a_dispatch(parcel_id=key, late_minutes=minutes, van_id=f"N{mixed}", weight_grams=mixed % 30_000)
            avro = io.BytesIO()
            fastavro.schemaless_writer(avro, schema, event)
            value = framed(self.topics.schema_ids[DISPATCHED], avro.getvalue())
            producer.produce(self.topic.name, key=key, value=value, partition=partition)
            producer.poll(0)
            self.sent.append((key, partition, self._ends[partition], minutes))
            self._ends[partition] += 1
        assert producer.flush(60) == 0

    def send_without_key(self, partition: int = 0) -> None:
        event = framed(self.topics.schema_ids[DISPATCHED], body(a_dispatch(parcel_id="keyless")))
        self.topics.send(event, partition=partition, key=None)  # type: ignore[arg-type]
        self._ends[partition] += 1

    def expected(self) -> list[tuple[str, int, int, int]]:
        newest = {key: (key, partition, offset, minutes) for key, partition, offset, minutes in self.sent}
        return sorted(
            (key, partition, offset, minutes)
            for key, partition, offset, minutes in newest.values()
            if minutes is not None
        )

    def delta(self, version: int | None = None) -> DeltaTable:
        assert self.topic.lake is not None
        s3 = self._settings.s3
        uri = f"s3://{s3.bucket}/lake/{self.topic.lake.table}"
        return DeltaTable(uri, version=version, storage_options=s3.delta_options())

    def rows(self, version: int | None = None) -> list[tuple[str, int, int, int]]:
        """Every row of the table, and its own key beside the event's: both are one here."""
        chosen = "select record_key, parcel_id, record_partition, record_offset, late_minutes from rows"
        found = pa.table(QueryBuilder().register("rows", self.delta(version)).execute(chosen)).to_pylist()
        assert all(each["record_key"].decode() == each["parcel_id"] for each in found)
        names = ("parcel_id", "record_partition", "record_offset", "late_minutes")
        return sorted(tuple(each[name] for name in names) for each in found)

    def wipe(self) -> None:
        """The table and what tells of it are gone."""
        assert self.topic.lake is not None
        s3 = s3_client(self._settings.s3)
        for prefix in (f"lake/{self.topic.lake.table}/", f"checkpoints/lake/{self.topic.lake.table}/"):
            for found in s3.list_objects_v2(Bucket=self._settings.s3.bucket, Prefix=prefix).get("Contents", []):
                s3.delete_object(Bucket=self._settings.s3.bucket, Key=found["Key"])

    def age(self, days: int) -> None:
        """The commits of the table are so old."""
        assert self.topic.lake is not None
        s3, bucket = s3_client(self._settings.s3), self._settings.s3.bucket
        stamp = b'"timestamp":%d' % days_ago(days)
        found = s3.list_objects_v2(Bucket=bucket, Prefix=f"lake/{self.topic.lake.table}/_delta_log/")["Contents"]
        for key in (each["Key"] for each in found if each["Key"].endswith(".json")):
            text = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            s3.put_object(Bucket=bucket, Key=key, Body=re.sub(rb'"timestamp":\d+', stamp, text))

    def compact_soon(self) -> None:
        """The brokers remove what is not the newest of its key as soon as they can; a record has to come before they do."""
        told = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        told["delete.retention.ms"] = "0"
        entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in told.items()]
        resource = ConfigResource(ResourceType.TOPIC, self.topic.name, incremental_configs=entries)
        admin = AdminClient({**self._settings.kafka.client_config()})
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result()

    def replace_newest(self, key: str) -> None:
        """Send a newer record of a key, and wait until the brokers have removed the one before."""
        _, partition, before, _ = next(each for each in reversed(self.sent) if each[0] == key)
        self.send(key, 77)

        def is_gone() -> bool:
            # A pass begins when a segment is full.
            self.send("df"[partition == 0], 1)
            return before not in {
                each.offset() for each in self.topics.read(self.topic.name) if each.partition() == partition
            }

        wait_for("the broker to compact", is_gone)

    def letters(self) -> list[str]:
        """The reasons of the dead letters."""
        found = self.topics.read(self.topic.dead_letter_topic)
        return [str(DeadLetter.of(each).reason) for each in found]


def days_ago(days: int) -> int:
    """In milliseconds since 1970."""
    return round(time.time() - days * 86_400) * 1000


def catch_up(table: LakeTable) -> None:
    query = table.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
        table.close()


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, *PLATFORM)) as made:
        own = {**made.catalog.topics, DISPATCHED: with_newest(made.dispatched)}
        made.catalog = replace(made.catalog, topics=own)
        yield made


@pytest.fixture
def place(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Place:
    return Place(spark, settings, registry, topics)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.LAKE)


def found(report: Report) -> set[tuple[str, str]]:
    """Kind, and partition and offset, of every finding."""
    return {(each.kind, "/".join(each.coordinate.split("/")[1:])) for each in report.findings}


def test_many_batches_leave_the_newest_record_of_each_key(place: Place, auditor: Auditor) -> None:
    chance = random.Random(7)
    table = place.table(batch=7)
    query = table.start()
    try:
        for _ in range(6):
            for _ in range(15):
                minutes = None if chance.random() < 0.2 else chance.randrange(1000)
                place.send(chance.choice("abcdefgh"), minutes)
            query.processAllAvailable()
            assert place.rows() == place.expected()
    finally:
        query.stop()
        table.close()
    assert len(place.delta().get_add_actions()) == 1
    assert place.letters() == []
    assert auditor().findings == []
    # Filled anew from the topic's first record on, and by one batch, it is the same.
    place.wipe()
    catch_up(place.table())
    assert place.rows() == place.expected()
    assert auditor().findings == []


def test_a_record_without_value_or_that_cannot_be_read_takes_its_keys_row_away(place: Place, auditor: Auditor) -> None:
    for key in "abcd":
        place.send(key, 1)
    catch_up(place.table())
    place.send("a", None)
    place.send("b", None, raw=b"junk")
    place.send("c", None, raw=b"")
    place.send("never there", None)
    place.send_without_key()
    catch_up(place.table())
    assert [row[0] for row in place.rows()] == ["d"]
    assert sorted(place.letters()) == ["EmptyBody", "NoKey", "WrongMagic"]
    report = auditor()
    assert report.findings == []
    assert (noted(report, "without a value"), noted(report, "dead letters")) == (2, 3)
    # All at once: a table without rows, and without a file.
    place.send("d", None)
    catch_up(place.table())
    assert (place.rows(), len(place.delta().get_add_actions())) == ([], 0)
    assert auditor().findings == []
    for key in "ba":
        place.send(key, 2)
    catch_up(place.table())
    assert place.rows() == place.expected()
    assert auditor().findings == []


def test_a_batch_of_bad_records_without_a_key_leaves_the_file_and_moves_the_position(place: Place) -> None:
    place.send("a", 1)
    catch_up(place.table())
    files = place.delta().file_uris()
    place.send_without_key(1)
    table = place.table()
    catch_up(table)
    assert table.positions.next_offsets == {0: 0, 1: 2}
    assert place.delta().file_uris() == files
    assert place.rows() == place.expected()


@pytest.mark.parametrize("after", [False, True])
def test_a_batch_comes_again_whether_it_was_committed_or_not(
    after: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends between its files and the commit, or right behind it, and Spark's checkpoint knows nothing of the batch."""
    for key in "abc":
        place.send(key, 1)
    catch_up(place.table())
    for key in "cdc":
        place.send(key, 2)
    place.send("a", None)
    commit = TableWriter.commit

    def dying(self: TableWriter, *given: Any) -> None:
        if after:
            commit(self, *given)
        raise OSError("as if the process had died")

    with monkeypatch.context() as dead:
        dead.setattr(TableWriter, "commit", dying)
        with pytest.raises(StreamingQueryException, match="as if the process had died"):
            catch_up(place.table())
    assert (place.rows() == place.expected()) == after
    table = place.table()
    catch_up(table)
    assert place.rows() == place.expected()
    place.send("b", 3)
    catch_up(place.table(batch=1))
    assert place.rows() == place.expected()


@pytest.mark.long
def test_a_batch_with_other_bounds_takes_in_only_what_is_new(
    spark: SparkSession, settings: SparkSettings, place: Place
) -> None:
    for minutes, key in enumerate("acaeca"):
        place.send(key, minutes)
    table = place.table()
    query = table.start()
    query.processAllAvailable()
    query.stop()
    for minutes, key in enumerate("gce"):
        place.send(key, minutes)
    name = place.topic.name
    for start, size in ((5, 3), (0, 4), (7, 2)):
        raw = read_topic(
            spark,
            settings.kafka,
            name,
            starting_offsets=json.dumps({name: {"0": 0, "1": start}}),
            max_offsets_per_trigger=size,
        )
        checkpoint = f"s3a://{settings.s3.bucket}/checkpoints/{name}/{start}"
        again = raw.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert again.foreachBatch(table.write).start().awaitTermination(60)
    table.close()
    assert place.rows() == place.expected()


def test_a_writer_that_slept_changes_nothing_and_a_second_one_is_refused(place: Place) -> None:
    place.send("a", 1)
    slept = place.table()
    query = slept.start()
    query.processAllAvailable()
    with pytest.raises(TakenOver, match="is and is alive|and is alive"):
        place.table().start()
    query.stop()
    # Its lease is gone, and it does not know.
    slept.close()
    place.send("a", 2)
    catch_up(place.table())
    writer = slept._writer
    with pytest.raises(TakenOver, match="another writer has committed"):
        writer.commit([], slept.positions, {}, writer.files())
    assert place.rows() == place.expected()


def test_a_column_that_the_contract_adds_is_null_in_rows_of_before(
    place: Place, registry: Registry, auditor: Auditor
) -> None:
    for key in "ab":
        place.send(key, 1)
    catch_up(place.table())
    place.topics.add_field(registry)
    place.send("b", 2)
    catch_up(place.table(schema=place.topics.catalog.schema(DISPATCHED)))
    assert place.rows() == place.expected()
    assert "gate" in {field.name for field in place.delta().schema().fields}
    auditor.catalog = place.topics.catalog
    assert auditor().findings == []


@pytest.mark.long
def test_lists_maps_and_records_are_kept_when_the_file_is_written_again(
    place: Place, registry: Registry, auditor: Auditor, spark: SparkSession
) -> None:
    inner = {"type": "record", "name": "Door", "fields": [{"name": "code", "type": "string", "doc": "Its code."}]}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    nested: list[tuple[str, Any, Any, Any]] = [
        ("stops", {"type": "array", "items": ["null", "string"]}, [], ["x", None]),
        ("seals", {"type": "map", "values": "long"}, {}, {"a": 1, "b": 2}),
        ("door", ["null", inner], None, {"code": "7"}),
        ("price", ["null", price], None, Decimal("1.25")),
    ]
    added = [{"name": name, "type": kind, "default": default, "doc": "A value."} for name, kind, default, _ in nested]
    schema = schema_with(*added)
    values = {name: value for name, _, _, value in nested}
    schema_id = registry.register(place.topic.subject, schema)
    for key in "ab":
        event = a_dispatch(parcel_id=key, late_minutes=3) | values
        place.send(key, 3, raw=framed(schema_id, body(event, schema)))
        catch_up(place.table(schema=schema))
    assert place.rows() == place.expected()
    rows = spark.read.format("delta").load(place.table().path)
    told = [{**row.asDict(recursive=True)} for row in rows.select(*values).toLocalIterator()]
    assert told == [values, values]
    versions = {**place.topics.catalog._schemas, DISPATCHED: (schema,)}
    auditor.catalog = replace(place.topics.catalog, _schemas=versions)
    assert auditor().findings == []


def test_a_table_that_was_filled_with_other_rows_is_refused(place: Place) -> None:
    lake = place.topic.lake
    assert lake is not None
    each = place.topic.model_copy(update={"lake_section": lake.model_copy(update={"rows": "each"})})
    place.send("a", 1)
    catch_up(place.table())
    with pytest.raises(
        ContractError, match="was filled with rows: newest, and the contract of .* says each: set it back"
    ):
        place.table(topic=each).start()
    place.wipe()
    catch_up(place.table(topic=each))
    with pytest.raises(
        ContractError, match="was filled with rows: each, and the contract of .* says newest: set it back"
    ):
        place.table().start()


def test_a_table_that_has_not_moved_while_records_may_have_come_and_gone_is_refused(place: Place) -> None:
    """A record without value stays for 30 days."""
    for key in "ab":
        place.send(key, 1, sent_ms=days_ago(40))
    catch_up(place.table())
    place.age(20)
    # Nothing has come.
    catch_up(place.table())
    # What comes next has just come; b is of another partition.
    place.send("b", 2)
    catch_up(place.table())
    assert place.rows() == place.expected()
    place.age(10)
    place.send("c", 3, sent_ms=days_ago(19))
    catch_up(place.table())
    assert place.rows() == place.expected()
    place.age(20)
    place.send("a", None, sent_ms=days_ago(18))
    place.send("c", 4)
    # The commit that begins a writer is no move.
    for _ in range(2):
        with pytest.raises(PositionsDisagree, match=r"/1 up to offset 2, .* half of the 30 days .* Move the folder"):
            place.table().start()
    place.wipe()
    catch_up(place.table())
    assert place.rows() == place.expected()


def test_a_table_that_may_only_be_appended_to_is_refused(place: Place) -> None:
    place.send("a", 1)
    catch_up(place.table())
    place.delta().alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(ContractError, match=r"delta.appendOnly=true.*UNSET TBLPROPERTIES"):
        place.table().start()
    place.delta().alter.set_table_properties({"delta.appendOnly": "false"})
    place.send("a", 2)
    catch_up(place.table())
    assert place.rows() == place.expected()


def test_a_table_of_more_keys_than_are_good_for_it_is_told_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.queries.lake._MOST_KEYS", 2)
    table = place.table()
    query = table.start()
    told = []
    try:
        for keys in ("ab", "c", "d"):
            for key in keys:
                place.send(key, 1)
            with structlog.testing.capture_logs() as logs:
                query.processAllAvailable()
            told.append([each["rows"] for each in logs if "many keys" in each["event"]])
    finally:
        query.stop()
        table.close()
    assert told == [[], [3], []]


@pytest.mark.long
def test_older_versions_can_be_read_until_they_are_vacuumed(place: Place) -> None:
    for minutes in range(3):
        place.send("a", minutes)
        place.send("b", minutes)
        catch_up(place.table())
    versions = {row[3]: version for version in range(place.delta().version() + 1) for row in place.rows(version)}
    assert {*versions} == {0, 1, 2}
    table = place.table()
    query = table.start()
    query.processAllAvailable()
    query.stop()
    Upkeep(table._writer, "newest", 0).vacuum()
    table.close()
    assert place.rows() == place.expected()
    with pytest.raises(Exception, match="(?i)not found"):
        place.rows(versions[0])


def test_every_planted_fault_is_found(place: Place, auditor: Auditor, settings: SparkSettings) -> None:
    # a, c and e are of partition 1, b and d of partition 0.
    for minutes in (1, 2):
        for key in "abcde":
            place.send(key, minutes)
    place.send("e", None)
    catch_up(place.table())
    assert auditor().findings == []
    good, uri = place.delta().version(), place.delta().table_uri
    rows = pa.table(QueryBuilder().register("rows", place.delta()).execute("select * from rows order by parcel_id"))
    options = settings.s3.delta_options()

    def planted(*rows: pa.Table) -> set[tuple[str, str]]:
        write_deltalake(uri, pa.concat_tables(rows), mode="overwrite", storage_options=options)
        return found(auditor())

    def changed(row: int, **values: Any) -> pa.Table:
        told = rows.slice(row, 1).to_pylist()[0] | values
        return pa.Table.from_pylist([told], rows.schema)

    assert planted(rows) == set()
    assert planted(rows.slice(1)) == {("lost", "1/3")}
    assert planted(rows.slice(1), changed(0, record_offset=0, late_minutes=1)) == {("changed", "1/3")}
    assert planted(rows.slice(1), changed(0, late_minutes=7)) == {("changed", "1/3")}
    assert planted(rows.slice(1), changed(0, coordinate="x/0/0")) == {("changed", "1/3")}
    assert planted(rows, rows.slice(0, 1)) == {("doubled", "1/3")}
    assert planted(rows, changed(0, record_offset=0, late_minutes=1)) == {("doubled", "1/3")}
    assert planted(rows, changed(0, parcel_id="e", record_key=b"e", record_offset=5)) == {("phantom", "1/5")}
    assert planted(rows, changed(0, parcel_id="z", record_key=b"z", record_offset=99)) == {("phantom", "1/99")}
    assert planted(rows, changed(0, record_key=None, record_offset=None)) == {("phantom", "")}
    place.delta().restore(good)
    assert auditor().findings == []


def test_an_incremental_audit_compares_the_whole_table(place: Place, auditor: Auditor, settings: SparkSettings) -> None:
    for key in "abc":
        place.send(key, 1)
    catch_up(place.table())
    hops, newest = tuple(Hop), auditor.catalog
    # A clean audit of before the topic had such a table has not read it whole.
    without = place.topic.model_copy(update={"lake_section": "none"})
    auditor.catalog = replace(newest, topics={**newest.topics, DISPATCHED: without})
    assert auditor(*hops).findings == []
    auditor.catalog = newest
    first = auditor(*hops, full=False)
    assert (first.findings, first.since) == ([], None)
    place.send("a", 2)
    catch_up(place.table())
    second = auditor(*hops, full=False)
    assert (second.findings, second.since is not None) == ([], True)
    place.delta().delete("parcel_id = 'b'")
    # Of a record that the first audit has seen.
    third = auditor(*hops, full=False)
    assert (found(third), third.since is not None) == ({("lost", "0/0")}, True)
    place.wipe()
    # Nothing has come since: the table has to have all the same what it had.
    with pytest.raises(CouldNotAudit, match="the lake table .* has not reached the cut"):
        auditor(*hops, full=False)
    catch_up(place.table())
    fourth = auditor(*hops, full=False)
    assert (fourth.findings, fourth.since is not None) == ([], True)


def test_a_table_whose_files_have_rows_that_it_has_not_is_not_audited(place: Place, auditor: Auditor) -> None:
    place.send("a", 1)
    catch_up(place.table())
    place.delta().alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    with pytest.raises(
        CouldNotAudit, match=r"features of Delta that the audit can't read \(deletionVectors\): .* Drop"
    ):
        auditor()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_lake_that_is_killed_before_and_after_a_commit_loses_and_repeats_nothing(
    place: Place, auditor: Auditor, stack: LocalStack, tmp_path: Path
) -> None:
    env = {
        **os.environ,
        **stack.settings_env(),
        **SHORT_LIVED_ENV,
        "HEADRACE_LAKE__LEASE_SECONDS": "4",
        "HEADRACE_LAKE__TRIGGER_SECONDS": "0",
        "HEADRACE_LAKE__MAX_OFFSETS_PER_TRIGGER": "5",
        "HEADRACE_LAKE__TOPICS": json.dumps([DISPATCHED]),
        "HEADRACE_HTTP__PORT": "0",
    }
    chance = random.Random(3)
    command = [sys.executable, "-m", "tests.spark.sinks.delta.newest_lake", place.topics.tag]
    for when in ("files", "commit", "files", "never"):
        for _ in range(20):
            place.send(chance.choice("abcdef"), None if chance.random() < 0.2 else chance.randrange(1000))
        log = tmp_path / "log"
        with log.open("ab") as file:
            process = subprocess.Popen([*command, when, "2"], env=env, stdout=file, stderr=file, start_new_session=True)
        try:
            if when == "never":
                wait_for("the table to have everything", lambda: place.rows() == place.expected())
            else:
                assert process.wait(120) == -signal.SIGKILL, log.read_text()[-2000:]
                assert place.rows() != place.expected()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    assert auditor().findings == []
    assert place.letters() == []


@pytest.mark.long
def test_what_brokers_have_compacted_gives_the_same_table(place: Place, auditor: Auditor, topics: Topics) -> None:
    place.compact_soon()
    chance = random.Random(11)
    table = place.table(batch=9)
    query = table.start()
    try:
        for _ in range(4):
            for _ in range(15):
                place.send(chance.choice("abcdef"), None if chance.random() < 0.3 else chance.randrange(1000))
            query.processAllAvailable()
        # What a pass takes away is not the newest of a key, nor what has come since the last segment began.
        for key in "ab":
            place.send(key, 1)

        def left() -> int:
            return len(topics.read(place.topic.name))

        wait_for("the broker to compact", lambda: left() < len(place.sent) / 2)
        assert auditor(wait_seconds=60).findings == []
        query.processAllAvailable()
    finally:
        query.stop()
        table.close()
    assert place.rows() == place.expected()
    place.wipe()
    catch_up(place.table())
    assert place.rows() == place.expected()
    assert auditor().findings == []
    place.delta().delete("parcel_id = 'a'")
    assert {kind for kind, _ in found(auditor())} == {"lost"}


@pytest.mark.long
def test_compaction_beyond_what_the_audit_reads_is_no_fault(
    place: Place, auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has a record that came after the cut, and is gone before that is read; its successor comes behind the end that was asked for."""
    place.compact_soon()
    place.send("a", 1)
    catch_up(place.table())
    await_lake, read_behind, reads = Followers.await_lake, Intake.read_behind, 0

    def awaiting(self: Followers, source: Source) -> AuditedTable:
        place.send("b", 1)
        catch_up(place.table())
        return await_lake(self, source)

    def reading(self: Intake, source: Source, ends: Mapping[int, int]) -> list[Records]:
        nonlocal reads
        reads += 1
        if reads == 1:
            place.replace_newest("b")
        return read_behind(self, source, ends)

    monkeypatch.setattr(Followers, "await_lake", awaiting)
    monkeypatch.setattr(Intake, "read_behind", reading)
    assert auditor().findings == []
    assert reads == 2


@pytest.mark.long
def test_a_bad_record_that_compaction_removes_before_it_is_set_aside_is_no_miscount(
    place: Place, auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.compact_soon()
    place.send("a", 1)
    place.send("b", None, raw=b"junk")
    set_aside = LakeTable._set_aside

    def late(self: LakeTable, *given: Any) -> None:
        place.replace_newest("b")
        set_aside(self, *given)

    monkeypatch.setattr(LakeTable, "_set_aside", late)
    catch_up(place.table())
    assert place.rows() == place.expected()
    assert place.letters() == []
    assert auditor().findings == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_batch_into_a_table_of_a_hundred_thousand_keys_takes_seconds(place: Place, auditor: Auditor) -> None:
    """Says what it took: run with `-s`."""
    keys, updated = 100_000, 1_000
    place.send_many((f"parcel {number}", number) for number in range(keys))
    table = place.table()
    query = table.start()
    seconds = []
    try:
        query.processAllAvailable()
        for batch in range(5):
            place.send_many((f"parcel {batch + 7 * number}", 9_999_999) for number in range(updated))
            query.processAllAvailable()
        for progress in query.recentProgress:
            if records := progress.numInputRows:
                took = progress.durationMs
                seconds.append(took["triggerExecution"] / 1000)
                print(f"{records} records: {seconds[-1]:.2f} s, of these {took['addBatch'] / 1000:.2f} s for the batch")
    finally:
        query.stop()
        table.close()
    (size,) = pa.table(place.delta().get_add_actions()).column("size_bytes").to_pylist()
    began = time.monotonic()
    rows = place.rows()
    print(f"{len(rows)} rows in {size / 1e6:.2f} MB, read in {time.monotonic() - began:.2f} s")
    assert rows == place.expected()
    assert statistics.median(seconds) < 20
    began = time.monotonic()
    assert auditor().findings == []
    print(f"audited in {time.monotonic() - began:.2f} s")
