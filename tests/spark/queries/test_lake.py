"""The lake table against the real broker, registry and S3: what it holds is read back from Delta."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contracts.dead_letters.letter import DeadLetter
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import Derivation, TopicContract
from contracts.errors import ContractError
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from spark.queries.lake import LakeTable, lake_tables
from spark.records.decode import decode
from spark.runtime.errors import PositionsDisagree, TakenOver
from spark.runtime.lease import this_process
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LakeSettings, OnDataLoss, SparkSettings
from spark.sinks.delta.positions import Positions
from spark.sources.kafka import read_topic
from tests.producers import ordered
from tests.raw_records import send_raw
from tests.spark.examples import DISPATCHED, SCHEMA, Topics, a_dispatch, body, framed, schema_with
from tests.spark.large_records import large_records

RAW = "parcels.raw.v1/0"


@pytest.fixture
def open_table(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> Callable[..., LakeTable]:
    """Opens the dispatched topic's table, as a writer that has just been started."""

    def opened(
        trigger_seconds: float = 0,
        max_offsets_per_trigger: int = 500_000,
        topic: TopicContract = topics.dispatched,
        schema: str = SCHEMA,
        derived_from: str = "parcels.raw.v1",
        records: str = "each",
        on_data_loss: OnDataLoss = "stop",
    ) -> LakeTable:
        lake = LakeSettings(
            trigger_seconds=trigger_seconds, max_offsets_per_trigger=max_offsets_per_trigger, on_data_loss=on_data_loss
        )
        own = settings.model_copy(update={"lake": lake})
        made_of = "none" if derived_from == "none" else Derivation.model_construct(topic=derived_from, records=records)
        derived = topic.model_copy(update={"derivation_section": made_of})
        return LakeTable(spark, own, derived, schema, registry, Lifecycle())

    return opened


def _naive() -> dict[str, Any]:
    """The instants as Spark hands them to Python: in the session's zone, UTC, without saying so."""
    return {name: value.replace(tzinfo=None) for name, value in a_dispatch().items() if isinstance(value, datetime)}


def catch_up(table: LakeTable) -> None:
    """Run until everything that is in the topic now is handled."""
    query = table.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
        table.close()


def delta(settings: SparkSettings, table: LakeTable, version: int | None = None) -> DeltaTable:
    uri = table.path.replace("s3a://", "s3://")
    return DeltaTable(uri, version=version, storage_options=settings.s3.delta_options())


def rows(settings: SparkSettings, table: LakeTable, version: int | None = None) -> list[dict[str, Any]]:
    found = QueryBuilder().register("rows", delta(settings, table, version)).execute("select * from rows")
    return list(pa.table(found).to_pylist())


def parcels(settings: SparkSettings, table: LakeTable, version: int | None = None) -> Counter[str]:
    return Counter(row["parcel_id"] for row in rows(settings, table, version))


def commits(settings: SparkSettings, table: LakeTable) -> int:
    return sum(entry["operation"] == "WRITE" for entry in delta(settings, table).history())


def remove(settings: SparkSettings, prefix: str) -> None:
    s3 = s3_client(settings.s3)
    there = s3.list_objects_v2(Bucket=settings.s3.bucket, Prefix=prefix).get("Contents", [])
    assert there, f"nothing to remove at {prefix}"
    for found in there:
        s3.delete_object(Bucket=settings.s3.bucket, Key=found["Key"])


def test_without_a_contract_that_asks_for_a_table_the_lake_says_so(
    spark: SparkSession, settings: SparkSettings, registry: Registry, catalog: Catalog
) -> None:
    none = {name: topic.model_copy(update={"lake_section": "none"}) for name, topic in catalog.topics.items()}
    with pytest.raises(ContractError, match="no contract asks for a table: write"):
        lake_tables(spark, settings, replace(catalog, topics=none), registry, Lifecycle())


def test_a_record_of_any_size_is_a_row_or_a_dead_letter_or_leaves_its_stump(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    for record, compression in large_records(topics.schema_ids[DISPATCHED]):
        send_raw(settings.kafka, topics.dispatched.name, 0, [record], compression=compression)
    table = open_table(derived_from="none")
    catch_up(table)
    assert sorted(row["record_offset"] for row in rows(settings, table)) == [0, 3]
    letters = [DeadLetter.of(message) for message in topics.read(topics.dispatched.dead_letter_topic)]
    found = [
        (letter.origin.offset if letter.origin else None, letter.reason, letter.stump_bytes is None)
        for letter in letters
    ]
    # Not in the order of their offsets: the topic has several partitions.
    assert sorted(found) == [(1, "TooLong", True), (2, "TooLong", False), (4, "EmptyBody", True)]


def test_each_record_is_in_the_table_once_with_its_coordinates(
    spark: SparkSession, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a", f"{RAW}/42")
    topics.send_dispatches("c", partition=1)
    table = open_table()
    catch_up(table)
    # As Spark reads it, whatever has written it.
    frame = spark.read.format("delta").load(table.path)
    own = ("coordinate", "record_partition", "record_offset", "raw_offset", "recorded_at")
    assert [{name: row[name] for name in (*a_dispatch(), *own)} for row in frame.orderBy("parcel_id").collect()] == [
        a_dispatch(parcel_id=parcel_id, **_naive())
        | dict(zip(own, (coordinate, partition, offset, raw_offset, recorded_at), strict=True))
        for parcel_id, coordinate, partition, offset, raw_offset, recorded_at in [
            ("a", f"{topics.dispatched.name}/0/0", 0, 0, 0, ANY),
            ("c", f"{topics.dispatched.name}/1/0", 1, 0, 0, ANY),
            (f"{RAW}/42", f"{RAW}/42", 0, 1, 42, ANY),
        ]
    ]
    assert spark.sql(f"describe detail delta.`{table.path}`").first()["partitionColumns"] == ["origin"]  # type: ignore[index]
    assert frame.schema["weight_grams"].metadata["comment"].endswith("in grams.")


@pytest.mark.long
def test_a_backlog_is_taken_in_without_waiting_for_the_time_of_a_batch(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches(*"abcdef")
    table = open_table(trigger_seconds=3600, max_offsets_per_trigger=2)
    catch_up(table)
    assert parcels(settings, table) == Counter("abcdef")
    assert commits(settings, table) == 3


def test_a_wiped_checkpoint_costs_nothing_and_adds_nothing(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a", "b")
    catch_up(open_table())
    remove(settings, f"checkpoints/lake/{topics.dispatched.lake.table}/")  # type: ignore[union-attr]
    topics.send_dispatches("c")
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter("abc")


@pytest.mark.parametrize(
    "damage", ["commits/1", *(pytest.param(each, marks=pytest.mark.long) for each in ("offsets/1", "sources/0/0"))]
)
def test_a_checkpoint_that_is_older_than_the_table_or_cut_short_adds_nothing(
    damage: str, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    table = open_table(max_offsets_per_trigger=1)
    topics.send_dispatches("a", "b")
    catch_up(table)
    before = commits(settings, table)
    # Without `commits/1`: as if the process had died between the table's commit and the checkpoint's.
    file = f"checkpoints/lake/{topics.dispatched.lake.table}/1/{damage}"  # type: ignore[union-attr]
    if damage == "offsets/1":
        s3_client(settings.s3).put_object(Bucket=settings.s3.bucket, Key=file, Body=b"v1\n{")
    else:
        remove(settings, file)
    topics.send_dispatches("c", partition=1)
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter("abc")
    assert commits(settings, table) == before + 1


def test_a_batch_that_comes_again_with_other_bounds_adds_only_what_is_new(
    spark: SparkSession, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches(*"abcdef")
    table = open_table()
    query = table.start()
    query.processAllAvailable()
    query.stop()
    topics.send_dispatches(*"ghi")
    name = topics.dispatched.name
    for start, size in ((5, 3), (0, 4), (7, 1)):
        raw = read_topic(
            spark,
            settings.kafka,
            name,
            starting_offsets=json.dumps({name: {"0": start, "1": 0}}),
            max_offsets_per_trigger=size,
        )
        checkpoint = f"s3a://{settings.s3.bucket}/checkpoints/{name}/{start}"
        again = raw.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        assert again.foreachBatch(table.write).start().awaitTermination(60)
    table.close()
    assert parcels(settings, table) == Counter("abcdefghi")
    with pytest.raises(PositionsDisagree, match="up to offset 9, but"):
        table.positions.after([OffsetRange(name, 0, 10, 11)])


def test_repeats_of_a_raw_record_are_left_out_wherever_they_come(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    # Out of order between the partitions, twice in one batch, and the same in both partitions.
    topics.send_dispatches(f"{RAW}/5", f"{RAW}/7", f"{RAW}/5")
    topics.send_dispatches(f"{RAW}/4", f"{RAW}/7", "parcels.raw.v1/1/5", partition=1)
    table = open_table()
    catch_up(table)
    kept = [f"{RAW}/4", f"{RAW}/5", f"{RAW}/7", "parcels.raw.v1/1/5"]
    assert parcels(settings, table) == Counter(kept)
    # In later batches, by a writer that has not seen them; below the highest, but new.
    topics.send_dispatches(f"{RAW}/7", f"{RAW}/6", f"{RAW}/8", partition=1)
    topics.send_dispatches(f"{RAW}/4", f"{RAW}/6", "parcels.raw.v1/1/4")
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter([*kept, f"{RAW}/6", f"{RAW}/8", "parcels.raw.v1/1/4"])
    # The first occurrence is the one that is kept.
    assert {row["coordinate"]: row["record_offset"] for row in rows(settings, table)}[f"{RAW}/5"] == 0


def test_parts_of_one_raw_record_are_rows_of_their_own_each_once(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches(f"{RAW}/5/0", f"{RAW}/5/1", f"{RAW}/5/0", f"{RAW}/6/0", f"{RAW}/7")
    table = open_table(records="many")
    catch_up(table)
    kept = [f"{RAW}/5/0", f"{RAW}/5/1", f"{RAW}/6/0", f"{RAW}/7"]
    assert parcels(settings, table) == Counter(kept)
    # In a later batch the other part of the highest one, and one of before.
    topics.send_dispatches(f"{RAW}/6/1", f"{RAW}/6/0", f"{RAW}/5/1", f"{RAW}/5/2")
    table = open_table(records="many")
    catch_up(table)
    assert parcels(settings, table) == Counter([*kept, f"{RAW}/6/1", f"{RAW}/5/2"])
    found = {(row["coordinate"], row["raw_offset"]) for row in rows(settings, table)}
    parts = [(5, 0), (5, 1), (5, 2), (6, 0), (6, 1)]
    # An id without a part is none here: the record goes by its own place.
    assert found == {(f"{RAW}/{offset}/{part}", offset) for offset, part in parts} | {
        (f"{topics.dispatched.name}/0/4", 4)
    }


def test_ids_that_producers_chose_are_no_coordinates(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    theirs = ["2024/11/23", f"{RAW}/5", "a/0/99999999999999999999", "", "\x00", "\U0001f6eb/0/1"]
    topics.send_dispatches(*theirs, *theirs)
    table = open_table(derived_from="none")
    catch_up(table)
    assert parcels(settings, table) == Counter(theirs * 2)
    assert {row["coordinate"] for row in rows(settings, table)} == {
        f"{topics.dispatched.name}/0/{offset}" for offset in range(2 * len(theirs))
    }


@pytest.mark.parametrize("other", ["parcels.other.v1/0/5", f"{RAW}/99999999999999999999", f"{RAW}/05", "2024/11/23"])
def test_an_id_that_is_no_coordinate_of_the_raw_topic_marks_no_repeat(
    other: str, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches(f"{RAW}/5", other, other, f"{RAW}/5")
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter([f"{RAW}/5", other, other])
    assert delta(settings, table).transaction_version(f"headrace/raw/{other.rpartition('/')[0]}") == (
        6 if other.startswith(RAW) else None
    )


@pytest.mark.long
def test_the_coordinate_of_a_record_that_does_not_exist_is_none(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    raw = topics.enriched.name
    producer = ordered(settings.kafka.client_config())
    producer.produce(raw, b"the only one", partition=1)
    assert producer.flush(30) == 0
    beyond = [f"{raw}/1/1", f"{raw}/0/0", f"{raw}/2/0", f"{raw}/99999/0", f"{raw}/1/9999999999999"]
    topics.send_dispatches(f"{raw}/1/0", *beyond, *beyond, f"{raw}/1/0")
    table = open_table(derived_from=raw)
    catch_up(table)
    assert parcels(settings, table) == Counter([f"{raw}/1/0", *beyond, *beyond])
    coordinates = {row["record_offset"]: row["coordinate"] for row in rows(settings, table)}
    assert coordinates == {0: f"{raw}/1/0"} | {at: f"{topics.dispatched.name}/0/{at}" for at in range(1, 11)}
    marks = [delta(settings, table).transaction_version(f"headrace/raw/{each.rpartition('/')[0]}") for each in beyond]
    assert marks == [1, None, None, None, 1]


def test_values_at_the_edges_of_their_types_are_rows_or_dead_letters(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    schema_id = topics.schema_ids[DISPATCHED]
    last, beyond = 253_402_300_799_999, 253_402_300_800_000
    for dispatched_at in (last, beyond, -62_135_596_800_000, -62_135_596_800_001, 2**63 - 1, -(2**63)):
        topics.send(framed(schema_id, body(a_dispatch(parcel_id=str(dispatched_at), dispatched_at=dispatched_at))))
    for origin in ("", "x" * 2000, "\x00", "../..", "\U0001f6eb" * 300, "__HIVE_DEFAULT_PARTITION__", "null", "%2F"):
        topics.send(framed(schema_id, body(a_dispatch(parcel_id="of", origin=origin))))
    topics.send_dispatches("after")
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter({str(last): 1, "-62135596800000": 1, "of": 8, "after": 1})
    origins = {row["origin"] for row in rows(settings, table) if row["parcel_id"] == "of"}
    # Delta has no empty text as a partition's value.
    assert origins == {
        None, "x" * 2000, "\x00", "../..", "\U0001f6eb" * 300, "__HIVE_DEFAULT_PARTITION__", "null", "%2F"
    }  # fmt: skip
    letters = [dict(message.headers() or []) for message in topics.read(topics.dispatched.dead_letter_topic)]
    assert [letter["__connect.errors.exception.class.name"] for letter in letters] == [b"Undecodable"] * 4


@pytest.mark.parametrize("running", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_topic_that_was_made_anew_and_is_longer_is_not_taken_for_the_old_one(
    running: bool, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a", "b")
    table = open_table()
    query = table.start()
    try:
        query.processAllAvailable()
        if not running:
            query.stop()
            table.close()
        topics.make_anew(topics.dispatched.name)
        topics.send_dispatches(*"cdef")
        with pytest.raises(
            (StreamingQueryException, PositionsDisagree), match=f"{topics.dispatched.name} was deleted and made anew"
        ):
            (query.processAllAvailable if running else open_table().start)()
    finally:
        query.stop()
        table.close()
    with pytest.raises(PositionsDisagree, match="move the folder lake/") as refused:
        open_table().start()
    assert len(set(re.findall("id ([A-Za-z0-9+/]{22})", str(refused.value)))) == 2
    assert parcels(settings, table) == Counter("ab")
    name = topics.dispatched.lake.table  # type: ignore[union-attr]
    remove(settings, f"lake/{name}/")
    remove(settings, f"checkpoints/lake/{name}/")
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter("cdef")


@pytest.mark.long
def test_a_raw_topic_that_was_made_anew_stops_the_table_of_what_is_derived_from_it(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    raw = topics.enriched.name
    topics.send_dispatches(f"{raw}/0/0")
    table = open_table(derived_from=raw)
    catch_up(table)
    topics.make_anew(raw)
    topics.send_dispatches(f"{raw}/0/0")
    with pytest.raises(PositionsDisagree, match=f"{raw} was deleted and made anew"):
        open_table(derived_from=raw).start()


@pytest.mark.long
def test_a_table_that_knows_no_topic_takes_the_one_that_there_is(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a")
    table = open_table()
    catch_up(table)
    before = delta(settings, table)
    known = before.metadata().configuration
    before.alter.set_table_properties({"headrace.topic_id": ""}, raise_if_not_exists=False)
    topics.send_dispatches("b")
    catch_up(open_table())
    assert delta(settings, table).metadata().configuration["headrace.topic_id"] == known["headrace.topic_id"]
    assert parcels(settings, table) == Counter("ab")


def test_a_later_revision_of_a_raw_record_is_a_row_of_its_own(
    settings: SparkSettings, topics: Topics, registry: Registry, open_table: Callable[..., LakeTable]
) -> None:
    schema = schema_with({"name": "revision", "type": "int", "default": 0})
    schema_id = registry.register(topics.dispatched.subject, schema)

    def send(*revisions: int) -> None:
        for revision in revisions:
            event = body(a_dispatch(revision=revision), schema)
            topics.send(framed(schema_id, event), headers=[("ce_id", f"{RAW}/3".encode())])

    send(0, 1, 1, -5)
    catch_up(open_table(schema=schema))
    # A negative one is nobody's, and no reason to have it twice.
    send(2, 0, 1, -5)
    table = open_table(schema=schema)
    catch_up(table)
    assert sorted(row["revision"] for row in rows(settings, table)) == [-5, 0, 1, 2]


def test_a_field_that_the_contract_adds_becomes_a_column_and_older_versions_can_be_read(
    spark: SparkSession,
    settings: SparkSettings,
    topics: Topics,
    registry: Registry,
    open_table: Callable[..., LakeTable],
) -> None:
    topics.send_dispatches("old")
    table = open_table()
    catch_up(table)
    before = delta(settings, table).version()
    schema = schema_with({"name": "gate", "type": ["null", "string"], "default": None, "doc": "Where it left."})
    schema_id = registry.register(topics.dispatched.subject, schema)
    topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), schema)))
    catch_up(open_table(schema=schema))
    frame = spark.read.format("delta").load(table.path)
    assert {(row.parcel_id, row.gate) for row in frame.collect()} == {("old", None), ("new", "C70")}
    assert frame.schema["gate"].metadata["comment"] == "Where it left."
    earlier = spark.read.format("delta").option("versionAsOf", before).load(table.path)
    assert ([row.parcel_id for row in earlier.collect()], "gate" in earlier.columns) == (["old"], False)


@pytest.mark.long
def test_a_field_whose_type_the_table_cannot_change_is_refused_by_name(
    topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a")
    catch_up(open_table())
    schema = schema_with({"name": "weight_grams", "type": "long"})
    with pytest.raises(ContractError, match='weight_grams is "long" by its contract, but "integer" in the table'):
        open_table(schema=schema).start()


@pytest.mark.long
@pytest.mark.parametrize(
    ("turned_on", "named"),
    [
        ("'delta.columnMapping.mode' = 'name'", "columnMapping"),
        ("'delta.enableDeletionVectors' = 'true'", "deletionVectors"),
        ("'delta.enableChangeDataFeed' = 'true'", "changeDataFeed|writer version 4"),
    ],
)
def test_a_feature_that_another_engine_has_turned_on_is_refused_by_name(
    turned_on: str,
    named: str,
    spark: SparkSession,
    settings: SparkSettings,
    topics: Topics,
    open_table: Callable[..., LakeTable],
) -> None:
    topics.send_dispatches("a")
    table = open_table()
    catch_up(table)
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ({turned_on})")
    before = delta(settings, table).version()
    with pytest.raises(
        ContractError, match=rf"features of Delta that `lake` can't write \(.*({named}).*Drop them there"
    ):
        open_table().start()
    assert delta(settings, table).version() == before


def test_a_second_writer_is_refused_with_the_name_of_the_first(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a")
    first = open_table()
    query = first.start()
    try:
        with pytest.raises(TakenOver, match=f"{this_process()} holds leases/lake/.* and is alive"):
            open_table().start()
        query.processAllAvailable()
    finally:
        query.stop()
        first.close()
    assert parcels(settings, first) == Counter("a")


@pytest.mark.long
def test_a_table_that_another_program_has_filled_is_refused(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    table = open_table()
    uri = table.path.replace("s3a://", "s3://")
    write_deltalake(uri, pa.table({"parcel_id": ["a"]}), storage_options=settings.s3.delta_options())
    with pytest.raises((PositionsDisagree, ContractError)):
        table.start()


def test_a_checkpoint_ahead_of_the_table_is_refused_with_the_way_out(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a")
    table = open_table()
    catch_up(table)
    remove(settings, table.path.removeprefix(f"s3a://{settings.s3.bucket}/"))
    with pytest.raises(PositionsDisagree, match="remove the checkpoint"):
        open_table().start()


def test_bad_records_go_to_the_dead_letters_and_the_rest_to_the_table(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches("a")
    topics.send(framed(topics.schema_ids[DISPATCHED], b"\x02"), b"{}", headers=[("ce_id", b"theirs")])
    topics.send_dispatches("b")
    table = open_table()
    catch_up(table)
    assert parcels(settings, table) == Counter("ab")
    letters = [
        (message.value(), dict(message.headers() or [])) for message in topics.read(topics.dispatched.dead_letter_topic)
    ]
    assert [value for value, _ in letters] == [framed(topics.schema_ids[DISPATCHED], b"\x02"), b"{}"]
    assert [headers["__connect.errors.exception.class.name"] for _, headers in letters] == [
        b"Undecodable",
        b"WrongMagic",
    ]
    assert letters[0][1]["ce_id"] == f"{topics.dispatched.name}/0/1".encode()
    assert letters[0][1]["ce_causationid"] == b"theirs"


def test_a_bad_record_that_is_gone_when_it_is_to_be_set_aside_stops_the_batch(
    settings: SparkSettings,
    topics: Topics,
    open_table: Callable[..., LakeTable],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics.send_dispatches("a")
    topics.send(b"{}", b"[]")
    # The property's value of before: the text "null" when the record is read first.
    before = F.expr(f"reflect('java.lang.System', 'setProperty', '{topics.tag}', 'read')")
    gone = (F.col("offset") == 2) & (before == "read")
    with monkeypatch.context() as compacted:
        compacted.setattr("spark.queries.lake.decode", lambda raw, schemas: decode(raw.where(~gone), schemas))
        table = open_table()
        with pytest.raises(StreamingQueryException, match=r"had 2 bad records .* but\s+1 when they went to"):
            catch_up(table)
    assert rows(settings, table) == []
    catch_up(open_table())
    assert parcels(settings, table) == Counter("a")
    letters = Counter(message.value() for message in topics.read(topics.dispatched.dead_letter_topic))
    # The first one twice: dead letters are at-least-once.
    assert letters == Counter({b"{}": 2, b"[]": 1})


def test_records_that_are_gone_before_the_table_had_them_need_a_choice(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_dispatches(*"ab")
    catch_up(open_table())
    topics.send_dispatches(*"cdef")
    admin = AdminClient({**settings.kafka.client_config()})
    for deleted in admin.delete_records([TopicPartition(topics.dispatched.name, 0, 4)]).values():
        deleted.result()
    with pytest.raises(
        PositionsDisagree, match="/0, and the table lacks them. Set HEADRACE_LAKE__ON_DATA_LOSS=continue"
    ):
        open_table().start()
    table = open_table(on_data_loss="continue")
    catch_up(table)
    assert parcels(settings, table) == Counter("abef")
    catch_up(open_table())


def test_a_topic_that_ends_before_the_tables_position_is_refused() -> None:
    with pytest.raises(PositionsDisagree, match=r"t/1 ends at offset 3, and the table has its records up to 5"):
        Positions("t", {0: 1, 1: 5}).within({0: (0, 1), 1: (0, 3)}, "continue")


def test_records_that_were_deleted_before_the_table_had_any_of_their_partition_are_lost_ones() -> None:
    ends = {0: (0, 1), 1: (3, 5)}
    # One that begins now has what is there; its marks tell of all partitions, idle ones too.
    assert Positions("t", {}).within(ends, "stop").next_offsets == {0: 0, 1: 3}
    # To one that has others, the partition was empty or has come since.
    with pytest.raises(PositionsDisagree, match="3 records from offset 0 up to 3 are gone from t/1"):
        Positions("t", {0: 1}).within(ends, "stop")
    assert Positions("t", {0: 1}).within(ends, "continue").next_offsets == {0: 1, 1: 3}


@pytest.mark.long
def test_a_batch_of_bad_records_alone_moves_the_position(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send(b"{}")
    catch_up(open_table())
    remove(settings, f"checkpoints/lake/{topics.dispatched.lake.table}/")  # type: ignore[union-attr]
    table = open_table()
    catch_up(table)
    assert table.positions.next_offsets == {0: 1, 1: 0}
    assert len(topics.read(topics.dispatched.dead_letter_topic)) == 1
