"""The ways that make a pipeline fast: without each of them the same comes out, and what Spark lacks is told at the start."""

from __future__ import annotations

import itertools

import pytest
from pyspark.sql import DataFrame, SparkSession

from contracts.definitions.catalog import Catalog
from spark.derivation.derivation import Derivation
from spark.lookups.broadcasts import Broadcasts
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import SparkMoved
from spark.runtime.internals import private
from spark.runtime.internals.prepared import Prepared, Unprepared
from spark.runtime.internals.private import PRIVATE, moved
from spark.runtime.mode import Mode
from spark.runtime.settings import LiveSettings
from spark.runtime.shortcuts import SHORTCUTS, usable
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import DISPATCHED, SCHEMA, a_dispatch, body, framed, raw_frame
from tests.spark.lookups.test_broadcasts import keyed
from tests.spark.lookups.test_enrich import held
from tests.spark.runtime.internals.test_prepared import batch_of


def rows(
    spark: SparkSession, catalog: Catalog, *, keep_broadcasts: bool, encode_once: bool
) -> list[tuple[object, ...]]:
    dispatches = (a_dispatch(), a_dispatch(van_id=None), a_dispatch(courier="XX", origin="XXX"))
    raw = raw_frame(spark, *[framed(7, body(each)) for each in dispatches], b"no event")
    found = held(spark, catalog).items()
    dimensions = {name: type(each)(each.version, keyed(each.frame, name, catalog), each.key) for name, each in found}
    derivation = Derivation(spark, dispatches_enriched, catalog, 300, encode_once=encode_once)
    kept = Broadcasts(dispatches_enriched.lookups, derivation.sides).sides
    sides = (kept if keep_broadcasts else derivation.sides)(dimensions)
    schemas = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})
    made = derivation.to_rows(schemas, sides, dimensions)(raw)
    return [tuple(row) for row in made.orderBy("offset").collect()]


def test_the_same_rows_come_out_without_each_of_them(spark: SparkSession, catalog: Catalog) -> None:
    first, *others = [
        rows(spark, catalog, keep_broadcasts=kept, encode_once=once)
        for kept, once in itertools.product((True, False), repeat=2)
    ]
    assert len(first) == 4
    assert others == [first] * 3


def test_a_query_that_is_planned_each_time_says_the_same(spark: SparkSession) -> None:
    def query(batch: DataFrame) -> DataFrame:
        return batch.selectExpr("string(number * 2) AS told")

    prepared, plain = Prepared(query), Unprepared(query)
    for numbers in ([1, 2, 3], [4], []):
        batch = batch_of(spark, numbers, len(numbers) or 2)
        assert sorted(prepared.collect(batch)) == sorted(plain.collect(batch)) == [str(2 * each) for each in numbers]


def test_what_this_spark_has_is_used(spark: SparkSession) -> None:
    assert usable(spark, LiveSettings()) == LiveSettings()
    assert PRIVATE.keys() <= {"", "state", *SHORTCUTS, *Mode}
    assert [each for members in PRIVATE.values() for each in moved(spark, members)] == []


def test_what_it_lacks_is_told_and_left_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = [("rdd.MapPartitionsRDD", "g", 0), ("rdd.NoSuch", "", 7)]
    gone.append(("sql.catalyst.expressions.Or", "", 3))
    names = ["rdd.MapPartitionsRDD.g", "rdd.NoSuch"]
    names.append("sql.catalyst.expressions.Or")
    assert moved(spark, gone) == names
    monkeypatch.setitem(vars(private)["PRIVATE"], "plan_once", gone[:1])
    found = usable(spark, LiveSettings(keep_broadcasts=False))
    assert (found.keep_broadcasts, found.encode_once, found.plan_once) == (False, True, False)
    told = capsys.readouterr().out
    assert "the setting is false" in told
    assert "has no rdd.MapPartitionsRDD.g" in told
    monkeypatch.setitem(vars(private)["PRIVATE"], "", gone[2:])
    with pytest.raises(SparkMoved, match=r"has no sql\.catalyst\.expressions\.Or, which pipelines need"):
        usable(spark, LiveSettings())
