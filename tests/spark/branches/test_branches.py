"""A branch: what its function may make, and to which topic a row of it goes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog, read_catalog
from contracts.handle import Topic
from deploy.pipelines import PipelineState, lines
from spark.derivation.derivation import Derivation, route
from spark.derivation.fitness import check
from spark.lookups.dimensions import Dimension
from spark.pipeline import Pipeline, pipeline
from spark.queries.repair import refuse_branch
from spark.records.schemas import WriterSchemas
from spark.runtime.errors import PipelineUnfit
from spark.runtime.internals.plans import FILTER, expressions, items, kind_of
from spark.sinks.kafka.at_least_once import kafka_records
from spark.sql_pipeline import sql_pipeline
from tests.contracts.files import ContractFiles
from tests.sample import topics
from tests.sample.pipelines.dispatches_by_punctuality import dispatches_by_punctuality
from tests.sample.pipelines.dispatches_enriched import LOOKUPS
from tests.spark.examples import DISPATCHED, ENRICHED, SCHEMA, a_dispatch, body, framed, raw_frame
from tests.spark.lookups.test_enrich import held

HEAVY = topics.PARCELS_DISPATCHED_HEAVY.name
OVERDUE, PUNCTUAL = dispatches_by_punctuality.targets
IDS = {"overdue": 300, "punctual": 301}
Function = Callable[[DataFrame], DataFrame]


def made_by(function: Function) -> Pipeline:
    return replace(dispatches_by_punctuality, function=function)


def with_branch(branch: str) -> Function:
    """By an expression."""
    return lambda dispatches: dispatches_by_punctuality(dispatches).withColumn("branch", F.expr(branch))


def rows(
    spark: SparkSession,
    catalog: Catalog,
    pipeline: Pipeline,
    *values: bytes,
    dimensions: dict[str, Dimension] | None = None,
) -> DataFrame:
    derivation, of = Derivation(spark, pipeline, catalog, *IDS.values()), dimensions or {}
    schemas = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})
    return derivation.to_rows(schemas, derivation.sides(of), of)(raw_frame(spark, *values))


def values(**overrides: list[Any]) -> list[bytes]:
    """A record for each value of a field."""
    ((name, given),) = overrides.items()
    return [framed(7, body(a_dispatch(**{name: each}))) for each in given]


def told(rows: DataFrame) -> list[tuple[int, str | None, str | None]]:
    return [(row.offset, row.branch, row.reason) for row in rows.orderBy("offset").collect()]


def decoded(catalog: Catalog, topic: str, row: Row) -> dict[str, Any]:
    schema = fastavro.parse_schema(json.loads(catalog.schema(topic)))
    found = fastavro.schemaless_reader(io.BytesIO(row.value[5:]), schema, None)
    assert isinstance(found, dict)
    return found


def test_each_row_goes_to_one_topic_with_the_schema_of_that(spark: SparkSession, catalog: Catalog) -> None:
    found = rows(spark, catalog, dispatches_by_punctuality, *values(late_minutes=[30, 15]), b"no event")
    assert told(found) == [(0, "overdue", None), (1, "punctual", None), (2, None, "WrongMagic")]
    overdue, punctual, bad = found.orderBy("offset").collect()
    assert [row.value[:5] for row in (overdue, punctual)] == [framed(each, b"") for each in IDS.values()]
    event = a_dispatch()
    kept = {name: event[name] for name in ("parcel_id", "courier", "origin", "dispatched_at")}
    assert decoded(catalog, OVERDUE, overdue) == kept | {"late_minutes": 30, "late_hours": 0.5}
    kept = {name: event[name] for name in ("parcel_id", "origin", "destination", "dispatched_at")}
    assert decoded(catalog, PUNCTUAL, punctual) == kept
    assert bad.value == b"no event"


def test_a_row_without_a_branch_goes_nowhere_and_one_of_an_unknown_branch_is_a_dead_letter(
    spark: SparkSession, catalog: Catalog
) -> None:
    mine = made_by(with_branch("CASE late_minutes WHEN 1 THEN 'overdue' WHEN 2 THEN 'Overdue' WHEN 3 THEN '' END"))
    found = rows(spark, catalog, mine, *values(late_minutes=[0, 1, 2, 3]), b"no event")
    assert told(found) == [
        (1, "overdue", None),
        (2, None, "UnknownBranch"),
        (3, None, "UnknownBranch"),
        (4, None, "WrongMagic"),
    ]
    error = found.where("offset = 2").select("error").collect()[0].error
    assert error == "the pipeline writes the record to the branch Overdue; there are overdue, punctual"


def test_what_a_record_lacks_is_a_fault_where_its_own_topic_needs_it(spark: SparkSession, catalog: Catalog) -> None:
    def without_hours(dispatches: DataFrame) -> DataFrame:
        made = dispatches_by_punctuality(dispatches)
        return made.withColumn("late_hours", F.lit(None).cast("double"))

    found = rows(spark, catalog, made_by(without_hours), *values(late_minutes=[0, 30]))
    assert told(found) == [(0, "punctual", None), (1, None, "NullField")]


def test_a_branch_decodes_a_record_once(spark: SparkSession, catalog: Catalog) -> None:
    node = (
        rows(spark, catalog, dispatches_by_punctuality, *values(late_minutes=[0]))._jdf.queryExecution().optimizedPlan()
    )
    filters = []
    while children := items(node.children()):
        filters += [node] if node.nodeName() == FILTER else []
        (node,) = children
    assert filters
    assert not [each for found in filters for each in expressions(found) if kind_of(each) == "AvroDataToCatalyst"]


def test_what_is_looked_up_is_there_in_each_topic_that_has_it(spark: SparkSession, catalog: Catalog) -> None:
    def by_courier(dispatches: DataFrame) -> DataFrame:
        branch = F.when(F.col("courier_name").isNull(), "heavy").otherwise("enriched")
        return dispatches.withColumn("branch", branch)

    of = catalog.topic(ENRICHED)
    some = of.model_copy(update={"derivation_section": catalog.topic(HEAVY).derivation})
    own = replace(catalog, topics=catalog.topics | {ENRICHED: some})
    mine = Pipeline("mine", DISPATCHED, {"enriched": ENRICHED, "heavy": HEAVY}, LOOKUPS, by_courier)
    dimensions = held(spark, catalog)
    found = rows(spark, own, mine, *values(courier=["UA", "ZZ"]), dimensions=dimensions)
    assert told(found) == [(0, "enriched", None), (1, "heavy", None)]
    enriched, heavy = found.orderBy("offset").collect()
    assert decoded(own, HEAVY, heavy)["courier"] == "ZZ"
    alone = Derivation(spark, Pipeline("mine", DISPATCHED, ENRICHED, LOOKUPS, by_courier), catalog, 300)
    schemas = WriterSchemas(f"{DISPATCHED}-value", SCHEMA, {7: SCHEMA})
    raw = raw_frame(spark, *values(courier=["UA"]))
    (expected,) = alone.to_rows(schemas, alone.sides(dimensions), dimensions)(raw).collect()
    assert decoded(own, ENRICHED, enriched) == decoded(catalog, ENRICHED, expected)


def test_sparks_own_writer_is_told_the_topic_of_each_row(spark: SparkSession, catalog: Catalog) -> None:
    found = rows(spark, catalog, dispatches_by_punctuality, *values(late_minutes=[30, 0]), b"no event")
    sent = kafka_records(found, route(dispatches_by_punctuality, catalog)).collect()
    letters = catalog.topic(DISPATCHED).dead_letter_topic
    assert [(row.topic, row.value == b"no event") for row in sent] == [
        (OVERDUE, False),
        (PUNCTUAL, False),
        (letters, True),
    ]
    types = [bytes({each.key: each.value for each in row.headers}["ce_type"]).decode() for row in sent[:2]]
    assert types == [OVERDUE, PUNCTUAL]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda dispatches: dispatches_by_punctuality(dispatches).drop("branch"), "makes no branch: add a text column"),
        (with_branch("1"), "makes branch a int: add a text column branch, which is overdue or punctual, or null"),
        (with_branch("uuid()"), "is another value each time"),
        (
            lambda dispatches: dispatches_by_punctuality(dispatches).drop("late_hours"),
            "makes no late_hours, which parcels",
        ),
    ],
)
def test_a_function_that_does_not_say_where_rows_go_is_refused(
    spark: SparkSession, catalog: Catalog, function: Function, told: str
) -> None:
    with pytest.raises(PipelineUnfit, match=told):
        check(spark, made_by(function), catalog)


def test_a_topic_that_has_all_records_or_a_field_called_branch_is_none_of_a_branch(
    spark: SparkSession, catalog: Catalog, tmp_path: Path
) -> None:
    each = replace(dispatches_by_punctuality, writes={"overdue": OVERDUE, "enriched": ENRICHED})
    with pytest.raises(PipelineUnfit, match=f"the contract of {ENRICHED} does not say records: some: write it there"):
        check(spark, each, catalog)
    files = ContractFiles(tmp_path)
    schema = files.schema(PUNCTUAL)
    schema["fields"].append({"name": "branch", "type": ["null", "string"], "default": None})
    files.write_schema(PUNCTUAL, 1, schema)
    own, _ = read_catalog(files.root)
    with pytest.raises(PipelineUnfit, match=f"{PUNCTUAL} has a field branch, and .* name the field otherwise"):
        check(spark, dispatches_by_punctuality, own)


def test_a_select_is_a_branch_by_its_case(spark: SparkSession, catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "dispatches_by_punctuality.sql"
    file.write_text(f"""\
/*
reads: {{dispatches: {DISPATCHED}}}
writes: {{overdue: {OVERDUE}, punctual: {PUNCTUAL}}}
*/
SELECT *, late_minutes / 60D AS late_hours,
  CASE WHEN weight_grams <= 0 THEN NULL WHEN late_minutes > 15 THEN 'overdue' ELSE 'punctual' END AS branch
FROM dispatches
""")
    mine = sql_pipeline(file)
    assert mine.branches == dispatches_by_punctuality.branches
    given = [*values(late_minutes=[30, 15]), *values(weight_grams=[0])]
    found, expected = (
        rows(spark, catalog, each, *given).orderBy("offset") for each in (mine, dispatches_by_punctuality)
    )
    assert told(found) == [(0, "overdue", None), (1, "punctual", None)]
    assert found.collect() == expected.collect()


def test_a_branch_has_two_topics_by_names_of_their_own() -> None:
    def mine(dispatches: DataFrame) -> DataFrame:
        return dispatches

    heavy, lost = topics.PARCELS_DISPATCHED_HEAVY, topics.PARCELS_LOST
    wrong: list[tuple[dict[str, Topic[Any]], str]] = [
        ({"heavy": heavy}, "a branch writes two topics or more"),
        ({"a": heavy, "b": heavy}, "stands twice"),
        ({"": heavy, "b": lost}, "'' is no name of a branch"),
    ]
    for writes, said in wrong:
        with pytest.raises(TypeError, match=f"mine: .*{said}"):
            pipeline(dispatches=topics.PARCELS_DISPATCHED, writes=writes)(mine)
    with pytest.raises(TypeError, match="<lambda>: a branch reads one topic, and this one joins two"):
        pipeline(
            ours=topics.PARCELS_DISPATCHED, theirs=topics.PARCELS_DELIVERED, writes={"heavy": heavy, "lost": lost}
        )(lambda ours, theirs: ours.join(theirs))


def test_a_branch_is_not_repaired_and_a_filter_by_its_nature(catalog: Catalog) -> None:
    with pytest.raises(PipelineUnfit, match="dispatches_by_punctuality writes each record to one of .*: no repair"):
        refuse_branch(dispatches_by_punctuality)
    with pytest.raises(PipelineUnfit, match=f"writes {OVERDUE} and {PUNCTUAL}, where one topic is needed"):
        dispatches_by_punctuality.target  # noqa: B018
    of = route(dispatches_by_punctuality, catalog)
    assert (of.targets, of.filters) == ((OVERDUE, PUNCTUAL), True)
    state = PipelineState("dispatches_by_punctuality", DISPATCHED, (OVERDUE, PUNCTUAL), "some")
    assert list(lines([state], asked=False))[1].endswith(f"some     {OVERDUE} or {PUNCTUAL}")
