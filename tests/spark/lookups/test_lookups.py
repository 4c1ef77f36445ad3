"""Lookups by one field and by several: what is found, and that what is kept between batches is used."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, _parse_datatype_string

from contracts.definitions.catalog import Catalog
from contracts.definitions.dimension import Column, Validity
from contracts.definitions.lookup import Lookup
from contracts.servers.registry import Registry
from spark.derivation.fitness import check
from spark.lookups.broadcasts import Broadcasts
from spark.lookups.dimensions import Dimension
from spark.lookups.dimensions import Dimensions as Held
from spark.lookups.join import look_up, sides
from spark.pipeline import Pipeline
from spark.queries.repair import fields_again
from spark.runtime.errors import DimensionUnreadable, PipelineUnfit
from spark.runtime.internals.prepared import Prepared
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.dispatches_enriched import LOOKUPS, dispatches_enriched
from tests.spark import real_time_query
from tests.spark.derivation.test_derivation import every_field
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.live_query import Dimensions, events, running, wait_for
from tests.spark.lookups.test_enrich import ROWS
from tests.spark.runtime.internals.test_prepared import told

READINGS = Lookup("readings", "readings", ("origin", "hour"), {"wind": "wind", "rain": "rain"})
"""By the key (depot, hour) of a dimension."""

KINDS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "string": (pa.string(), ("", "a", "b")),
    "int": (pa.int32(), (-1, 0, 1)),
    "long": (pa.int64(), (-1, 0, 1 << 32)),
    "double": (pa.float64(), (-0.5, 0.0, 2.0)),
    "boolean": (pa.bool_(), (False, True)),
    "date": (pa.date32(), (date(1969, 12, 31), date(2013, 1, 1))),
}
"""What a dimension's column can be, with a few values."""


def a_dimension(spark: SparkSession, kinds: Mapping[str, str], key: Sequence[str], *rows: Sequence[Any]) -> Dimension:
    """As it is read from its table: a column of the key never is null."""
    fields = [pa.field(name, KINDS[kind][0], name not in key) for name, kind in kinds.items()]
    columns = [pa.array(values, field.type) for field, values in zip(fields, _turned(rows, len(fields)), strict=True)]
    frame = spark.createDataFrame(pa.Table.from_arrays(columns, schema=pa.schema(fields)))
    return Dimension(0, frame, tuple(key))


def some_events(spark: SparkSession, kinds: Mapping[str, str], *rows: Sequence[Any], partitions: int = 1) -> DataFrame:
    """As `foreachBatch` gets them: rows of an RDD."""
    schema = StructType([StructField(name, _parse_datatype_string(kind)) for name, kind in kinds.items()])
    return spark.createDataFrame(spark.sparkContext.parallelize(list(rows), partitions), schema)


def readings(spark: SparkSession) -> Mapping[str, Dimension]:
    rows = ("EST", 5, 12.0, True), ("EST", 6, None, None), ("NTH", 5, 3.5, False)
    kinds = {"depot": "string", "hour": "int", "wind": "double", "rain": "boolean"}
    return {"readings": a_dimension(spark, kinds, ("depot", "hour"), *rows)}


DISPATCHES = ("EST", 5), ("EST", 6), ("NTH", 5), ("NTH", 6), ("STH", 5), ("EST", None), (None, 5), (None, None)
FOUND = [
    (12.0, True, []),
    (None, None, []),  # found, and what it fills in is null there
    (3.5, False, []),
    *[(None, None, ["readings"])] * 5,
]


def found(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [(row.wind, row.rain, row.unmatched) for row in frame.collect()]


def test_a_row_is_found_by_all_fields_and_by_no_null(spark: SparkSession) -> None:
    dispatches = some_events(spark, {"origin": "string", "hour": "int"}, *DISPATCHES)
    joined = look_up(dispatches, [READINGS], sides([READINGS], readings(spark)))
    assert joined.columns == ["origin", "hour", "wind", "rain", "unmatched"]
    assert found(joined) == FOUND


def test_a_kept_side_is_used_again_in_a_plan_that_is_made_once(spark: SparkSession) -> None:
    dimensions = readings(spark)
    broadcasts = Broadcasts([READINGS], partial(sides, [READINGS]))
    planned: list[DataFrame] = []

    def query(batch: DataFrame) -> DataFrame:
        joined = look_up(batch, [READINGS], broadcasts.sides(dimensions)).select("wind", "rain", "unmatched")
        planned.append(joined)
        return joined.mapInArrow(told, "told STRING")

    prepared = Prepared(query)
    for some in (slice(4), slice(4, None), slice(1)):
        batch = some_events(spark, {"origin": "string", "hour": "int"}, *DISPATCHES[some], partitions=2)
        rows = [row for text in prepared.collect(batch) for row in json.loads(text)]
        assert sorted(map(repr, rows)) == sorted(
            repr(dict(zip(("wind", "rain", "unmatched"), each, strict=True))) for each in FOUND[some]
        )
    (joined,) = planned
    plan = str(joined._jdf.queryExecution().executedPlan())
    assert (plan.count("BroadcastQueryStage"), plan.count("BroadcastHashJoin")) == (1, 1)


def test_by_one_field_the_plan_is_as_it_was(spark: SparkSession) -> None:
    one, same = (Lookup("mine", "it", by, {"name": "name"}) for by in ("code", ("code",)))
    dimensions = {"it": a_dimension(spark, {"id": "string", "name": "string"}, ["id"], ("a", "A"))}
    codes = some_events(spark, {"code": "string"}, ("a",), ("b",))
    plans = []
    for lookup in (one, same):
        kept = Broadcasts([lookup], partial(sides, [lookup])).sides(dimensions)
        joined = look_up(codes, [lookup], kept)
        assert [tuple(row) for row in joined.collect()] == [("a", "A", []), ("b", None, ["mine"])]
        plans.append(re.sub(r"#\d+|plan_id=\d+", "", str(joined._jdf.queryExecution().executedPlan())))
    assert plans[0] == plans[1]
    lines = [line.lstrip(" *:+-(1)") for line in plans[0].splitlines()]
    assert lines == [
        "Project [code, name, array_remove(array(if (isnull(__mine_key)) mine else ), ) AS unmatched]",
        "BroadcastHashJoin [code], [__mine_key], LeftOuter, BuildRight, false",
        "Scan ExistingRDD[code]",
        "BroadcastQueryStage 0",
        "BroadcastExchange HashedRelationBroadcastMode(List(input[0, string, false]),false), []",
        "LocalTableScan [__mine_key, name]",
    ]


@st.composite
def tables_and_events(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """The types of a key's columns, keys of rows, and what events look up."""
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3))
    values = [st.sampled_from(KINDS[kind][1]) for kind in kinds]
    keys = draw(st.lists(st.tuples(*values), min_size=1, max_size=12, unique=True))
    looked_up = draw(st.lists(st.tuples(*[st.none() | each for each in values]), min_size=1, max_size=20))
    return kinds, keys, looked_up


@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables_and_events())
def test_what_is_found_is_what_a_dictionary_has(
    spark: SparkSession, case: tuple[list[str], list[tuple[Any, ...]], list[tuple[Any, ...]]]
) -> None:
    kinds, keys, looked_up = case
    columns, fields = ({f"{name}{at}": kind for at, kind in enumerate(kinds)} for name in ("column", "field"))
    rows = [(*key, at) for at, key in enumerate(keys)]
    dimensions = {"it": a_dimension(spark, columns | {"at": "int"}, list(columns), *rows)}
    lookup = Lookup("mine", "it", tuple(fields), {"place": "at"})
    expected = [(keys.index(key), []) if key in keys else (None, ["mine"]) for key in looked_up]
    of_events = some_events(spark, fields, *looked_up)
    for chosen in (sides([lookup], dimensions), Broadcasts([lookup], partial(sides, [lookup])).sides(dimensions)):
        assert [(row.place, row.unmatched) for row in look_up(of_events, [lookup], chosen).collect()] == expected


RATES = Lookup("rates", "rates", "courier", {"cents": "cents"}, as_of="dispatched_at")
VALID = Validity.model_validate({"from": "since", "until": "until"})


def at(day: int, milliseconds: int = 0) -> datetime:
    return datetime(2013, 1, day, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def rates(spark: SparkSession, kind: pa.DataType, *rows: tuple[str, Any, Any, int]) -> Mapping[str, Dimension]:
    schema = pa.schema(
        [
            pa.field("courier", pa.string(), nullable=False),
            pa.field("since", kind, nullable=False),
            pa.field("until", kind),
            pa.field("cents", pa.int32()),
        ]
    )
    columns = [pa.array(values, field.type) for field, values in zip(schema, _turned(rows, 4), strict=True)]
    frame = spark.createDataFrame(pa.Table.from_arrays(columns, schema=schema))
    return {"rates": Dimension(0, frame, ("courier",), VALID)}


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_the_row_is_found_that_holds_at_the_event_s_own_time(spark: SparkSession, kind: pa.DataType) -> None:
    day = date if kind == pa.date32() else lambda year, month, day: datetime(year, month, day, tzinfo=UTC)
    rows = (
        ("UA", day(2013, 1, 5), None, 30),
        ("UA", day(2013, 1, 2), day(2013, 1, 4), 20),
        ("B6", day(2013, 1, 1), None, 10),
    )
    dimensions = rates(spark, kind, *rows)
    asked: list[tuple[str | None, datetime | None]] = [
        ("UA", at(2, -1)),
        ("UA", at(2)),
        ("UA", at(4, -1)),
        ("UA", at(4)),
        ("UA", at(5)),
        ("UA", datetime(9999, 12, 31, 23, tzinfo=UTC)),
    ]
    asked += [("B6", at(1)), ("AA", at(3)), ("UA", None), (None, at(3))]
    expected = [None, 20, 20, None, 30, 30, 10, None, None, None]
    dispatches = some_events(spark, {"courier": "string", "dispatched_at": "timestamp"}, *asked, partitions=2)
    for chosen in (sides([RATES], dimensions), Broadcasts([RATES], partial(sides, [RATES])).sides(dimensions)):
        joined = look_up(dispatches, [RATES], chosen)
        assert joined.columns == ["courier", "dispatched_at", "cents", "unmatched"]
        assert [(row.cents, row.unmatched) for row in joined.collect()] == [
            (cents, ["rates"] if cents is None else []) for cents in expected
        ]


def test_a_kept_side_in_time_is_joined_as_it_is(spark: SparkSession) -> None:
    """No filter and no projection lies between, which a kept broadcast does not bear."""
    dimensions = rates(spark, pa.timestamp("us", "UTC"), ("UA", at(2), None, 20))
    dispatches = some_events(spark, {"courier": "string", "dispatched_at": "timestamp"}, ("UA", at(3)))
    joined = look_up(dispatches, [RATES], Broadcasts([RATES], partial(sides, [RATES])).sides(dimensions))
    lines = [each.strip(" *:+-()0123456789") for each in str(joined._jdf.queryExecution().executedPlan()).splitlines()]
    steps = [each.split()[0] for each in lines]
    assert steps == ["Project", "BroadcastHashJoin", "Scan", "BroadcastQueryStage", "BroadcastExchange", *steps[5:]]
    assert "Filter" not in steps


FLEET = dataclasses.replace(LOOKUPS[-1], dimension="fleet", by=("courier", "van_id"))
"""The vans, by courier and van id: the same fields come of it."""
BY_FLEET = Pipeline(
    "dispatches_enriched", dispatches_enriched.source, dispatches_enriched.target, (*LOOKUPS[:-1], FLEET), every_field
)


@pytest.fixture(scope="module")
def with_fleet(catalog: Catalog) -> Catalog:
    """With a dimension that has a key of two columns."""
    vans = catalog.dimension("vans")
    courier = Column(name="courier", source="courier", type="string", nullable=False, description="The courier.")
    changed = {
        "name": "fleet",
        "source": "fleet.csv",
        "location": "dimensions/fleet",
        "key": ("courier", *vans.key),
        "columns": (courier, *vans.columns),
    }
    return dataclasses.replace(catalog, dimensions={**catalog.dimensions, "fleet": vans.model_copy(update=changed)})


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("courier", "fleet has the key courier, van_id, it looks up by courier: name one field for each"),
        (("courier", "van_id", "origin"), "it looks up by courier, van_id, origin: name one field for each"),
        (("courier", "courier"), "it looks up by courier, courier: name each field once"),
        (("courier", "tail"), r"parcels\.dispatched\.v1 has no field tail"),
        (("courier", "weight_grams"), "weight_grams is int, the key column van_id of fleet is string"),
        (("dispatched_at", "courier"), "dispatched_at is timestamp-millis, the key column courier of fleet is string"),
        ((), "it looks up by : name one field for each"),
    ],
    ids=str,
)
def test_fields_that_are_not_those_of_the_key_are_refused(
    spark: SparkSession, with_fleet: Catalog, by: str | tuple[str, ...], why: str
) -> None:
    lookups = (*LOOKUPS[:-1], dataclasses.replace(FLEET, by=by))
    with pytest.raises(PipelineUnfit, match=f"lookup vans: .*{why}"):
        check(spark, dataclasses.replace(BY_FLEET, lookups=lookups), with_fleet)


def test_a_repair_needs_every_field_that_is_looked_up(spark: SparkSession, with_fleet: Catalog) -> None:
    given = check(spark, BY_FLEET, with_fleet).given
    fields_again(BY_FLEET, with_fleet, given, [])
    lookup = dataclasses.replace(FLEET, by=("courier", "dispatched_at"))
    other = Pipeline("mine", DISPATCHED, "parcels.lost.v1", (lookup,), every_field)
    with pytest.raises(PipelineUnfit, match=r"mine needs dispatched_at, which parcels\.lost\.v1 does not have"):
        fields_again(other, with_fleet, given, [])


@pytest.mark.parametrize("mode", ["exactly-once", "real-time"])
def test_every_mode_looks_up_by_two_fields(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    with_fleet: Catalog,
    mode: str,
) -> None:
    published = Dimensions(settings, with_fleet)
    published.publish("fleet", a_row("UA", "N14228", seats=149), a_row("B6", "N14228", seats=1))

    def send(*dispatches: Mapping[str, Any]) -> None:
        for each in dispatches:
            topics.send(framed(topics.schema_ids[DISPATCHED], body(a_dispatch(**each))))

    def came() -> list[tuple[Any, list[str], int]]:
        return [
            (event["van_seats"], event["unmatched"], event["dimension_versions"]["fleet"])
            for event, *_ in events(topics)
        ]

    first: list[dict[str, Any]] = [{}, {"courier": "AA"}, {"van_id": None}, {"courier": "B6"}]
    seats = [(149, [], 0), (None, ["couriers", "vans"], 0), (None, ["vans"], 0), (1, ["couriers"], 0)]
    if mode == "real-time":
        with real_time_query.running(spark, settings, registry, topics, published, BY_FLEET, interval_seconds=5.0):
            send(*first)
            wait_for("every record", lambda: came() == seats)
    else:
        with running(spark, settings, registry, topics.catalog, published, BY_FLEET, mode=mode) as query:
            for _ in range(3):  # the first batch makes the plan, and the others use it again
                send(*first)
                query.processAllAvailable()
            published.publish("fleet", a_row("UA", "N14228", seats=150))
            send(*first[:1], *first[3:])
            query.processAllAvailable()
        assert came() == [*seats * 3, (150, [], 1), (None, ["couriers", "vans"], 1)]


IN_TIME = dataclasses.replace(LOOKUPS[0], as_of="dispatched_at")
BY_TIME = dataclasses.replace(BY_FLEET, lookups=(IN_TIME, *LOOKUPS[1:]))
"""The couriers' names, as of the dispatch."""


@pytest.fixture(scope="module")
def with_couriers_in_time(catalog: Catalog) -> Catalog:
    couriers = catalog.dimension("couriers")
    columns = [
        Column(name=name, source=name, type="timestamp", nullable=name == "until", description="When it holds.")
        for name in ("since", "until")
    ]
    changed = couriers.model_copy(update={"valid": VALID, "columns": (*couriers.columns, *columns)})
    return dataclasses.replace(catalog, dimensions={**catalog.dimensions, "couriers": changed})


@pytest.mark.parametrize(
    ("rows", "is_used"),
    [
        ([("UA", "New", at(10), None), ("UA", "Old", at(2), at(10)), ("B6", "Other", at(2), None)], True),
        ([("UA", "New", at(10), None), ("UA", "Old", at(2), at(10, 1))], False),
        ([("UA", "New", at(10), None), ("UA", "Old", at(2), None)], False),
        ([("UA", "New", at(10), None), ("UA", "New", at(10), None)], False),
    ],
    ids=str,
)
def test_rows_of_a_key_that_hold_at_the_same_time_are_not_used(
    spark: SparkSession, settings: SparkSettings, with_couriers_in_time: Catalog, rows: list[Any], is_used: bool
) -> None:
    published = Dimensions(settings, with_couriers_in_time, {"couriers": rows})
    held = Held(spark, settings.s3, [published.contracts["couriers"]])
    if is_used:
        assert held.newest()["couriers"].frame.count() == len(rows)
    else:
        with pytest.raises(DimensionUnreadable, match="has two rows of a key that hold at the same time"):
            held.newest()


@pytest.mark.parametrize("mode", ["exactly-once", "real-time"])
def test_every_mode_looks_up_as_of_the_event_s_time(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    with_couriers_in_time: Catalog,
    mode: str,
) -> None:
    rows = {name: of_one for name, of_one in ROWS.items() if name != "couriers"}
    published = Dimensions(settings, with_couriers_in_time, rows)
    published.publish("couriers", ("UA", "New", at(10), None), ("UA", "Old", at(2), at(9)))
    given = check(spark, BY_TIME, with_couriers_in_time).given
    fields_again(BY_TIME, with_couriers_in_time, given, [])
    days = [1, 2, 8, 9, 10, 20]
    names = [None, "Old", "Old", None, "New", "New"]

    def send() -> None:
        for day in days:
            topics.send(framed(topics.schema_ids[DISPATCHED], body(a_dispatch(dispatched_at=at(day)))))

    def came() -> list[tuple[str | None, list[str]]]:
        return [(event["courier_name"], event["unmatched"]) for event, *_ in events(topics)]

    expected = [(name, ["couriers"] if name is None else []) for name in names]
    if mode == "real-time":
        with real_time_query.running(spark, settings, registry, topics, published, BY_TIME, interval_seconds=5.0):
            send()
            wait_for("every record", lambda: came() == expected)
    else:
        with running(spark, settings, registry, topics.catalog, published, BY_TIME, mode=mode) as query:
            for _ in range(3):  # the first batch makes the plan, and the others use it again
                send()
                query.processAllAvailable()
        assert came() == expected * 3


def a_row(courier: str, van_id: str, *, seats: int) -> tuple[Any, ...]:
    """Of the fleet."""
    return (courier, van_id, 1999, "Panel van", "FERROL", "F-824", 2, seats, "diesel")


def _turned(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as columns."""
    return [[row[at] for row in rows] for at in range(width)]
