"""The lake table against the real broker, registry and S3: what it holds is read back from Delta."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from contracts.registry import Registry
from spark.errors import PositionsDisagree
from spark.lake import LakeTable
from spark.lifecycle import Lifecycle
from spark.s3 import s3_client
from spark.settings import LakeSettings, SparkSettings
from tests.spark.records import DEPARTED, Topics, framed


@pytest.fixture
def open_table(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> Callable[..., LakeTable]:
    """Opens the departed topic's table, as a writer that has just been started."""

    def opened(trigger_seconds: float = 0, max_offsets_per_trigger: int = 500_000) -> LakeTable:
        lake = LakeSettings(trigger_seconds=trigger_seconds, max_offsets_per_trigger=max_offsets_per_trigger)
        own = settings.model_copy(update={"lake": lake})
        schema = topics.catalog.schema(DEPARTED)
        return LakeTable(spark, own, topics.departed, schema, registry, Lifecycle())

    return opened


def catch_up(table: LakeTable) -> None:
    """Run until everything that is in the topic now is handled."""
    query = table.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def flights(spark: SparkSession, table: LakeTable) -> Counter[str]:
    return Counter(row.flight_id for row in spark.read.format("delta").load(table.path).collect())


def commits(spark: SparkSession, table: LakeTable) -> int:
    return spark.sql(f"describe history delta.`{table.path}`").where("operation = 'WRITE'").count()


def remove(settings: SparkSettings, prefix: str) -> None:
    s3 = s3_client(settings.s3)
    for found in s3.list_objects_v2(Bucket=settings.s3.bucket, Prefix=prefix).get("Contents", []):
        s3.delete_object(Bucket=settings.s3.bucket, Key=found["Key"])


def test_each_record_is_in_the_table_once_with_its_coordinates(
    spark: SparkSession, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_departures("a", "b")
    topics.send_departures("c", partition=1)
    table = open_table()
    catch_up(table)
    rows = spark.read.format("delta").load(table.path).collect()
    assert {(row.flight_id, row.coordinate, row.record_partition, row.record_offset) for row in rows} == {
        ("a", f"{topics.departed.name}/0/0", 0, 0),
        ("b", f"{topics.departed.name}/0/1", 0, 1),
        ("c", f"{topics.departed.name}/1/0", 1, 0),
    }
    assert spark.sql(f"describe detail delta.`{table.path}`").first()["partitionColumns"] == ["origin"]  # type: ignore[index]
    documented = spark.read.format("delta").load(table.path).schema["distance_miles"].metadata["comment"]
    assert documented.endswith("in statute miles.")


def test_a_record_derived_from_a_raw_one_keeps_the_raw_coordinate(
    spark: SparkSession, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_departures("flights.raw.v1/0/42")
    table = open_table()
    catch_up(table)
    (row,) = spark.read.format("delta").load(table.path).collect()
    assert (row.coordinate, row.record_offset) == ("flights.raw.v1/0/42", 0)


def test_a_backlog_is_taken_in_without_waiting_for_the_time_of_a_batch(
    spark: SparkSession, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_departures(*"abcdef")
    table = open_table(trigger_seconds=3600, max_offsets_per_trigger=2)
    catch_up(table)
    assert flights(spark, table) == Counter("abcdef")
    assert commits(spark, table) == 3


def test_a_wiped_checkpoint_costs_nothing_and_adds_nothing(
    spark: SparkSession, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_departures("a", "b")
    catch_up(open_table())
    remove(settings, f"checkpoints/lake/{topics.departed.lake.table}/")  # type: ignore[union-attr]
    topics.send_departures("c")
    table = open_table()
    catch_up(table)
    assert flights(spark, table) == Counter("abc")


def test_a_checkpoint_older_than_the_table_adds_nothing(
    spark: SparkSession, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    table = open_table()
    topics.send_departures("a")
    catch_up(table)
    topics.send_departures("b", "c")
    catch_up(table)
    before = commits(spark, table)
    # As if the process had died between the table's commit and the checkpoint's.
    remove(settings, f"checkpoints/lake/{topics.departed.lake.table}/commits/1")  # type: ignore[union-attr]
    topics.send_departures("d", partition=1)
    table = open_table()
    catch_up(table)
    assert flights(spark, table) == Counter("abcd")
    assert commits(spark, table) == before + 1


def test_a_checkpoint_ahead_of_the_table_is_refused_with_the_way_out(
    settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_departures("a")
    table = open_table()
    catch_up(table)
    remove(settings, table.path.removeprefix(f"s3a://{settings.s3.bucket}/"))
    with pytest.raises(PositionsDisagree, match="remove the checkpoint"):
        open_table().start()


def test_bad_records_go_to_the_dead_letters_and_the_rest_to_the_table(
    spark: SparkSession, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send_departures("a")
    topics.send(framed(topics.schema_ids[DEPARTED], b"\x02"), b"{}", headers=[("ce_id", b"theirs")])
    topics.send_departures("b")
    table = open_table()
    catch_up(table)
    assert flights(spark, table) == Counter("ab")
    letters = [
        (message.value(), dict(message.headers() or [])) for message in topics.read(topics.departed.dead_letter_topic)
    ]
    assert [value for value, _ in letters] == [framed(topics.schema_ids[DEPARTED], b"\x02"), b"{}"]
    assert [headers["__connect.errors.exception.class.name"] for _, headers in letters] == [
        b"Undecodable",
        b"WrongMagic",
    ]
    assert letters[0][1]["ce_id"] == f"{topics.departed.name}/0/1".encode()
    assert letters[0][1]["ce_causationid"] == b"theirs"


def test_a_batch_of_bad_records_alone_moves_the_position(
    spark: SparkSession, settings: SparkSettings, topics: Topics, open_table: Callable[..., LakeTable]
) -> None:
    topics.send(b"{}")
    catch_up(open_table())
    remove(settings, f"checkpoints/lake/{topics.departed.lake.table}/")  # type: ignore[union-attr]
    table = open_table()
    catch_up(table)
    assert table.positions.next_offsets == {0: 1}
    assert len(topics.read(topics.departed.dead_letter_topic)) == 1
