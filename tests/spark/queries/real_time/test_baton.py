"""`Baton`, with batches in place of queries that run."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.queries.real_time import baton
from spark.queries.real_time.baton import Baton
from tests.spark.live_query import wait_for


@pytest.fixture
def passed(spark: SparkSession) -> Iterator[Baton]:
    made = Baton(spark, [0, 3, 4])
    yield made
    made.drop()


def records(spark: SparkSession, partition: int, count: int = 10) -> DataFrame:
    return spark.range(0, count, 1, 1).select(F.lit(partition).alias("partition"), F.col("id").alias("offset"))


def offsets(frame: DataFrame) -> list[int]:
    return [row["offset"] for row in frame.collect()]


def test_the_first_query_keeps_all_until_it_is_asked_and_then_gives_away_at_its_next_record(
    spark: SparkSession, passed: Baton
) -> None:
    kept = passed.of_first(records(spark, 3))
    assert offsets(kept) == list(range(10))
    assert passed.given() == {}
    passed.ask()
    assert offsets(kept.where(F.col("offset") >= 0)) == []
    assert passed.given() == {3: 0}
    assert offsets(passed.of_first(records(spark, 4).where(F.col("offset") > 6))) == []
    assert passed.given() == {3: 0, 4: 7}
    # The first place is the one, whatever comes.
    assert offsets(kept) == []
    assert passed.given() == {3: 0, 4: 7}


def test_the_second_query_waits_and_goes_on_where_the_partition_was_given_away(
    spark: SparkSession, passed: Baton
) -> None:
    found: list[list[int]] = []
    waiting = threading.Thread(target=lambda: found.append(offsets(passed.of_second(records(spark, 3)))))
    waiting.start()
    wait_for("its first record to wait", lambda: passed.second_at() == {3: 0})
    waiting.join(0.5)
    assert waiting.is_alive()
    passed.give({3: 7})
    waiting.join(30)
    assert found == [[7, 8, 9]]
    # Of each partition its own place.
    passed.give({4: 2})
    both = passed.of_second(records(spark, 3).union(records(spark, 4)))
    assert offsets(both) == [7, 8, 9, *range(2, 10)]


def test_the_second_query_waits_for_nothing_of_a_partition_that_was_added_since(
    spark: SparkSession, passed: Baton
) -> None:
    assert offsets(passed.of_second(records(spark, 7))) == list(range(10))
    passed.ask()
    assert offsets(passed.of_first(records(spark, 7).where(F.col("offset") > 4))) == []
    assert offsets(passed.of_second(records(spark, 7))) == list(range(5, 10))


def test_the_second_query_leaves_out_what_the_first_has_taken_and_waits_with_the_next_record(
    spark: SparkSession, passed: Baton
) -> None:
    passed.watch()
    assert offsets(passed.of_first(records(spark, 3, 6))) == list(range(6))
    assert offsets(passed.of_second(records(spark, 3, 6))) == []
    assert passed.second_at() == {3: 5}
    found: list[list[int]] = []
    waiting = threading.Thread(target=lambda: found.append(offsets(passed.of_second(records(spark, 3)))))
    waiting.start()
    wait_for("its first record to wait", lambda: passed.second_at() == {3: 6})
    assert passed.is_at_the_heels()
    assert offsets(passed.of_first(records(spark, 3, 8))) == list(range(8))
    passed.ask()
    assert offsets(passed.of_first(records(spark, 3).where(F.col("offset") >= 8))) == []
    waiting.join(30)
    assert found == [[8, 9]]


def test_where_the_first_query_gives_away_the_second_goes_on_with_nothing_between(
    spark: SparkSession, passed: Baton
) -> None:
    def ask_once_records_come() -> None:
        wait_for("records", lambda: passed.first_at() != {}, every=0.001)
        passed.ask()

    passed.watch()
    asked = threading.Thread(target=ask_once_records_come)
    asked.start()
    kept = offsets(passed.of_first(records(spark, 0, 5_000_000)).groupBy().agg(F.max("offset").alias("offset")))
    asked.join()
    assert passed.given() == {0: kept[0] + 1}
    taken = passed.of_second(records(spark, 0, 5_000_000)).agg(F.min("offset"), F.count("offset")).first()
    assert taken is not None
    assert tuple(taken) == (kept[0] + 1, 5_000_000 - kept[0] - 1)


def test_the_first_query_keeps_all_while_attempts_begin_and_are_given_up(spark: SparkSession, passed: Baton) -> None:
    has_ended = threading.Event()
    rounds = itertools.count()

    def begin_and_give_up() -> None:
        while not has_ended.is_set():
            passed.watch()
            passed.drop()
            next(rounds)

    attempts = threading.Thread(target=begin_and_give_up)
    attempts.start()
    try:
        counts = [passed.of_first(records(spark, 3, 1_000_000)).count() for _ in range(3)]
    finally:
        has_ended.set()
        attempts.join()
    assert counts == [1_000_000] * 3
    assert next(rounds) > 100
    assert passed.given() == {}


def test_a_query_that_is_told_nothing_fails(
    spark: SparkSession, passed: Baton, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baton, "_STEPS", 200)
    with pytest.raises(PySparkException, match="to give away partition 0, at offset 0"):
        passed.of_second(records(spark, 0)).collect()


def test_nothing_is_left_of_one_that_is_dropped(spark: SparkSession) -> None:
    of = Baton(spark, [0])
    of.watch()
    assert offsets(of.of_first(records(spark, 0, 1))) == [0]
    of.ask()
    of.give({0: 1})
    assert offsets(of.of_second(records(spark, 0))) == list(range(1, 10))
    of.drop()
    assert [name for name in java_properties(spark) if name.startswith(of._name)] == []


def java_properties(spark: SparkSession) -> list[str]:
    assert spark._jvm is not None
    return list(spark._jvm.java.lang.System.getProperties().stringPropertyNames())
