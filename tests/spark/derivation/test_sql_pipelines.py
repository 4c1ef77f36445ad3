"""A pipeline that is a SQL file: it makes what the function makes, and reads and calls nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from deploy.new.files import rendered
from spark.derivation.derivation import derived
from spark.derivation.fitness import check
from spark.derivation.stateful.aggregation import Aggregation
from spark.derivation.stateful.joining import Joining
from spark.lookups.join import look_up, sides
from spark.pipeline import Pipeline
from spark.records.decode import events
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.sql_pipeline import sql_pipeline
from tests.sample.pipelines import load
from tests.spark.examples import DELIVERED, DISPATCHED, SCHEMA, a_dispatch, body, framed, raw_frame

HEAVY = """\
/*
reads: {dispatches: parcels.dispatched.v1}
writes: parcels.dispatched.heavy.v1
*/
SELECT *
FROM dispatches
WHERE weight_grams >= 2000
"""
ENRICHED = """\
/*
reads: {parcels: parcels.dispatched.v1}
writes: parcels.dispatched.enriched.v1
lookups:
  - {name: couriers, dimension: couriers, by: courier, fields: {courier_name: name}}
  - {name: depots.origin, dimension: depots, by: origin, fields: {origin_name: name, origin_timezone: timezone}}
  - name: depots.destination
    dimension: depots
    by: [destination]
    fields:
      destination_name: name
      destination_timezone: timezone
      destination_latitude_degrees: latitude_degrees
      destination_longitude_degrees: longitude_degrees
      destination_altitude_feet: altitude_feet
  - name: vans
    dimension: vans
    by: van_id
    fields:
      {van_built_year: built_year, van_manufacturer: manufacturer, van_model: model, van_engines: engines,
       van_seats: seats, van_engine_type: engine_type}
*/
WITH named AS (SELECT p.* FROM parcels AS p)
SELECT * FROM named
"""
SERVED = """\
/*
reads: {deliveries: parcels.delivered.v1}
writes: depots.served.v1
*/
SELECT *, inline(array(
  named_struct('served_as', 'origin', 'depot', origin),
  named_struct('served_as', 'destination', 'depot', destination)))
FROM deliveries
"""
DELAYS = """\
/*
reads: {dispatches: parcels.dispatched.v1}
writes: parcels.dispatched.delays.v1
output: append
*/
SELECT
  origin,
  concat_ws('/', origin, date_format(window.start, "yyyy-MM-dd'T'HH:mm:ss'Z'")) AS window_id,
  window.start AS begins_at,
  window.end AS ends_at,
  count(*) AS dispatches,
  avg(late_minutes) AS delay_mean_minutes,
  percentile(late_minutes, 0.95) AS delay_p95_minutes
FROM dispatches
GROUP BY window(dispatched_at, '15 minutes'), origin
"""
TRIPS = """\
/*
reads: {dispatches: parcels.dispatched.v1, deliveries: parcels.delivered.v1}
writes: parcels.dispatched.trips.v1
*/
SELECT sent.*, theirs.delivered_at, theirs.delivered_late_minutes
FROM dispatches AS sent
LEFT JOIN deliveries AS theirs
  ON theirs.parcel_id = sent.parcel_id
  AND theirs.delivered_at BETWEEN sent.dispatched_at AND sent.dispatched_at + INTERVAL 20 HOURS
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "spark" / "pipelines"
    found.mkdir(parents=True)
    return found


def written(folder: Path, name: str, text: str) -> Pipeline:
    (folder / f"{name}.sql").write_text(text)
    return sql_pipeline(folder / f"{name}.sql")


@pytest.mark.parametrize(
    ("name", "text"), [("heavy_parcels", HEAVY), ("dispatches_enriched", ENRICHED), ("depots_served", SERVED)]
)
def test_a_select_is_the_pipeline_that_the_function_is(
    spark: SparkSession, catalog: Catalog, folder: Path, name: str, text: str
) -> None:
    mine, theirs = written(folder, name, text), load(name)
    assert (mine.name, mine.source, mine.target, mine.output) == (name, theirs.source, theirs.target, "update")
    assert [(each.name, each.by_fields, dict(each.fields)) for each in mine.lookups] == [
        (each.name, each.by_fields, dict(each.fields)) for each in theirs.lookups
    ]
    found, expected = check(spark, mine, catalog), check(spark, theirs, catalog)
    assert found.made.schema == expected.made.schema
    assert (found.unchanged, found.used) == (expected.unchanged, expected.used)


def test_a_select_is_called_with_a_frame_of_a_few_rows(spark: SparkSession, folder: Path) -> None:
    dispatches = spark.createDataFrame([("a", 1999), ("b", 2000)], "parcel_id string, weight_grams int")
    assert [row.parcel_id for row in written(folder, "heavy_parcels", HEAVY)(dispatches).collect()] == ["b"]
    # Nothing is left of it: two pipelines may call their tables alike.
    assert spark.catalog.listTables() == []


def test_a_bad_record_passes_what_a_select_leaves_out(spark: SparkSession, catalog: Catalog, folder: Path) -> None:
    mine = written(folder, "heavy_parcels", HEAVY)
    raw = raw_frame(spark, *[framed(7, body(a_dispatch(weight_grams=grams))) for grams in (1999, 2000)], b"no event")
    decoded = look_up(events(raw, WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})), (), sides((), {}))
    found = derived(mine, decoded).orderBy("__record.offset").collect()
    assert [(row["__record"].offset, row["__reason"]) for row in found] == [(1, None), (2, "WrongMagic")]


def test_an_aggregate_counts_what_the_function_counts(spark: SparkSession, catalog: Catalog, folder: Path) -> None:
    mine, theirs = written(folder, "delays_by_origin", DELAYS), load("delays_by_origin")
    assert mine.output == "append"
    Aggregation(spark, mine, catalog, 300)
    dispatches = spark.range(100).select(
        F.timestamp_seconds(F.col("id") * 60).alias("dispatched_at"),
        F.when(F.col("id") % 3 == 0, "A").otherwise("B").alias("origin"),
        F.col("id").cast("int").alias("late_minutes"),
    )

    def rows(made: DataFrame) -> list[Row]:
        return made.select(sorted(set(made.columns) - {"window"})).orderBy("window_id").collect()

    assert rows(mine(dispatches)) == rows(theirs(dispatches))
    assert len(rows(mine(dispatches))) == 14


def test_a_join_pairs_what_the_function_pairs(spark: SparkSession, catalog: Catalog, folder: Path) -> None:
    mine, theirs = written(folder, "parcel_trips", TRIPS), load("parcel_trips")
    assert (mine.sources, mine.target) == (theirs.sources, theirs.target)
    Joining(spark, mine, catalog, 300)
    dispatches = spark.sql(
        "SELECT parcel, timestamp'2026-01-01 00:00' AS at FROM VALUES ('a'), ('b'), ('c') AS t(parcel)"
    )
    deliveries = spark.sql(
        "SELECT * FROM VALUES ('a', timestamp'2026-01-01 20:00', 3), ('b', timestamp'2026-01-01 20:01', 4) AS t(parcel, at, late)"
    )
    frames = [
        dispatches.toDF("parcel_id", "dispatched_at"),
        deliveries.toDF("parcel_id", "delivered_at", "delivered_late_minutes"),
    ]
    columns = ("parcel_id", "delivered_at", "delivered_late_minutes")
    rows = [mine(*frames).select(*columns).orderBy("parcel_id").collect() for mine in (mine, theirs)]
    assert rows[0] == rows[1]
    assert [row.delivered_late_minutes for row in rows[0]] == [3, None, None]


@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (
            "LEFT JOIN deliveries AS d ON d.parcel_id = s.parcel_id",
            "does not say how far apart the times of two records may be",
        ),
        (
            "CROSS JOIN deliveries AS d",
            "joins Cross, and a record that is made must name that of parcels.dispatched.v1",
        ),
    ],
)
def test_a_join_whose_state_would_not_end_is_refused(
    spark: SparkSession, catalog: Catalog, folder: Path, condition: str, why: str
) -> None:
    begin, _, _ = TRIPS.partition("SELECT")
    statement = f"SELECT s.*, d.delivered_at, d.delivered_late_minutes FROM dispatches AS s {condition}"
    with pytest.raises(PipelineUnfit, match=why):
        Joining(spark, written(folder, "parcel_trips", begin + statement), catalog, 300)


@pytest.mark.parametrize(
    ("statement", "line", "why"),
    [
        ("SELECT *\nFROM parquet.`/etc/passwd`", 6, "the header names no table parquet./etc/passwd"),
        ("SELECT * FROM spark_catalog.default.dispatches", 5, "the header names no table spark_catalog"),
        ("SELECT * FROM range(5)", 5, "a step TableValuedFunction"),
        ("SELECT * FROM IDENTIFIER('dispatches')", 5, "a step PlanWithUnresolvedIdentifier"),
        ("SELECT * FROM dispatches VERSION AS OF 1", 5, "a step RelationTimeTravel"),
        ("SELECT * FROM STREAM dispatches", 5, "STREAM or options"),
        ("SELECT * FROM dispatches WITH ('path' = '/etc/passwd')", 5, "STREAM or options"),
        ("SELECT TRANSFORM (parcel_id) USING 'sh' FROM dispatches", 5, "a step ScriptTransformation"),
        ("SELECT 1", 5, "a step OneRowRelation"),
        ("SELECT * FROM dispatches UNION ALL SELECT * FROM dispatches", 5, "a step Union"),
        ("SELECT *\nFROM dispatches ORDER BY 1", 6, "a step Sort"),
        ("SELECT (SELECT max(name)\nFROM parquet.`/etc/passwd`) FROM dispatches", 5, "a SELECT inside an expression"),
        ("SELECT * FROM dispatches WHERE courier IN (SELECT name FROM couriers)", 5, "a SELECT inside an expression"),
        ("SELECT * FROM dispatches WHERE EXISTS (SELECT * FROM couriers)", 5, "a SELECT inside an expression"),
        ("SELECT java_method('java.lang.System', 'getenv') FROM dispatches", 5, "the function java_method is not"),
        ("SELECT *,\n1 + length(REFLECT('a', 'b')) AS x FROM dispatches", 6, "the function REFLECT is not"),
        ("SELECT try_reflect('a', 'b') FROM dispatches", 5, "the function try_reflect is not"),
        ("SELECT transform(array(1), x -> reflect('a', 'b')) FROM dispatches", 5, "the function reflect is not"),
        ("SELECT system.builtin.reflect('a', 'b') FROM dispatches", 5, "the function system.builtin.reflect"),
        ("SELECT count(*) FILTER (WHERE reflect('a', 'b') = '') FROM dispatches", 5, "the function reflect"),
        ("SELECT * FROM dispatches LATERAL VIEW reflect('a', 'b') AS x", 5, "the function reflect is not"),
        ("SELECT from_avro(courier, '', map('avroSchemaUrl', 'file:/x')) FROM dispatches", 5, "function from_avro"),
        ("SELECT from_protobuf(courier, 'A', '/x') FROM dispatches", 5, "the function from_protobuf"),
        ("SELECT from_xml(courier, '') FROM dispatches", 5, "the function from_xml is not"),
        ("SELECT input_file_name() FROM dispatches", 5, "the function input_file_name is not"),
        ("SELECT mine(courier) FROM dispatches", 5, "the function mine is not"),
        ("SELECT IDENTIFIER('reflect')('a', 'b') FROM dispatches", 5, "a parameter, or IDENTIFIER"),
        ("SELECT :secret FROM dispatches", 5, "a parameter, or IDENTIFIER"),
        ("SELECT ${env:HOME} FROM dispatches", 5, "Syntax error at or near '$'"),
        ("WITH RECURSIVE d AS (SELECT * FROM dispatches) SELECT * FROM d", 5, "WITH RECURSIVE"),
        ("SELECT *\nFROM dispatches\nWHERE wait > 1", 7, "with name `wait` cannot be resolved"),
        ("SELECT *\nFROM dispatches WHRE weight_grams", 6, "Syntax error at or near 'weight_grams'"),
    ],
)
def test_a_statement_that_reads_or_runs_anything_else_is_refused_with_its_line(
    spark: SparkSession, catalog: Catalog, folder: Path, statement: str, line: int, why: str
) -> None:
    mine = written(folder, "mine", HEAVY.replace(HEAVY.partition("*/\n")[2], statement))
    with pytest.raises(PipelineUnfit) as refused:
        check(spark, mine, catalog)
    assert str(refused.value).startswith(f"spark/pipelines/mine.sql:{line}: ")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("current_user", "is another value each time"),
        ("now()", "is another value each time"),
        ("uuid()", "the function uuid is not"),
        ("rand()", "is another value each time"),
        ("raise_error('')", "stops the pipeline at a record"),
        ("repeat(courier, weight_grams)", "is as long as a field says"),
        ("max(weight_grams) OVER (PARTITION BY courier)", "needs more than one row"),
    ],
)
def test_what_a_function_may_not_compute_a_select_may_not_either(
    spark: SparkSession, catalog: Catalog, folder: Path, column: str, why: str
) -> None:
    with pytest.raises(PipelineUnfit, match=why):
        check(spark, written(folder, "mine", HEAVY.replace("SELECT *", f"SELECT *, {column} AS x")), catalog)


def test_a_text_with_a_dollar_is_that_text(spark: SparkSession, folder: Path) -> None:
    mine = written(folder, "mine", HEAVY.replace("SELECT *", "SELECT '${env:HOME} ${spark.app.name}' AS x"))
    assert mine(spark.createDataFrame([(2000,)], "weight_grams int")).collect()[0].x == "${env:HOME} ${spark.app.name}"


def test_a_file_that_cannot_be_read_is_no_pipeline(folder: Path) -> None:
    with pytest.raises(PipelineUnfit, match=r"spark/pipelines/mine\.sql:1: the file has no header .*: begin with"):
        written(folder, "mine", "SELECT * FROM dispatches")
    with pytest.raises(PipelineUnfit, match=r"spark/pipelines/mine\.sql:5: DROP is no SELECT: write one SELECT"):
        written(folder, "mine", HEAVY.replace("SELECT *\nFROM dispatches", "DROP TABLE dispatches"))


def test_a_join_that_is_written_for_a_new_one_runs(spark: SparkSession, folder: Path) -> None:
    names = {"reads": DISPATCHED, "other": DELIVERED, "writes": "parcels.dispatched.mine.v1", "by": "parcel_id"}
    times = {"occurred_at": "dispatched_at", "other_at": "delivered_at", "joined_at": "joined_delivered_at"}
    mine = written(folder, "mine", rendered("pipeline_join.sql.txt", **names, **times))
    dispatches = spark.sql("SELECT 'a' AS parcel_id, timestamp'2026-01-01 00:00' AS dispatched_at")
    deliveries = spark.sql("SELECT 'a' AS parcel_id, timestamp'2026-01-01 00:59' AS delivered_at")
    assert [row.joined_delivered_at.minute for row in mine(dispatches, deliveries).collect()] == [59]


@pytest.mark.parametrize("records", ["each", "some", "many", "aggregate"])
def test_what_is_written_for_a_new_one_runs(spark: SparkSession, folder: Path, records: str) -> None:
    names = {"reads": DISPATCHED, "writes": "parcels.dispatched.mine.v1", "key": "courier"}
    mine = written(folder, "mine", rendered(f"pipeline_{records}.sql.txt", occurred_at="dispatched_at", **names))
    dispatches = spark.sql("SELECT 'a' AS courier, timestamp'2026-01-01' AS dispatched_at UNION ALL SELECT null, null")
    assert mine(dispatches).count() == {"each": 2, "some": 1, "many": 4, "aggregate": 1}[records]
