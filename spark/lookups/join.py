"""Events joined with the dimensions that they name: `look_up`."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.definitions.lookup import Lookup
from spark.lookups.dimensions import Dimension

_WITHOUT_END = 253_402_300_800_000_000
"""The first instant of the year 10000, in microseconds since 1970: later than every one of an event."""


def dimensions_of(lookups: Sequence[Lookup]) -> list[str]:
    """The dimensions that are looked up in, each once."""
    return list(dict.fromkeys(lookup.dimension for lookup in lookups))


def sides(lookups: Sequence[Lookup], dimensions: Mapping[str, Dimension]) -> list[DataFrame]:
    """Of each lookup the dimension's key, called `keys`, when its rows hold, called `interval`, and the fields that it fills in; no column more."""
    return [_side(lookup, dimensions[lookup.dimension]) for lookup in lookups]


def look_up(events: DataFrame, lookups: Sequence[Lookup], looked_up: Sequence[DataFrame]) -> DataFrame:
    """Fill in what the `lookups` find in their sides; rows out = rows in, since a dimension's keys are unique, at each instant at least.

    Columns out: those of `events`, those of the sides but `keys`, nulls for fields that a side leaves out, and `unmatched`, the names
    of the lookups without a row. A null in a field that is looked up has none.
    """
    carried = [f"event.{name}" for name in events.columns]
    filled_in: list[str | Column] = []
    joined = events.alias("event")
    for lookup, side in zip(lookups, looked_up, strict=True):
        joined = joined.join(F.broadcast(side), _matches(lookup), how="left")
        there = side.columns
        filled_in += [name for name in there if name not in (*lookup.keys, *lookup.interval)]
        filled_in += [F.lit(None).alias(name) for name in lookup.fields if name not in there]
    return joined.select(*carried, *filled_in, _unmatched(tuple(lookups)))


def _side(lookup: Lookup, dimension: Dimension) -> DataFrame:
    filled_in = [F.col(column).alias(field) for field, column in lookup.fields.items()]
    key = [F.col(column).alias(name) for column, name in zip(dimension.key, lookup.keys, strict=True)]
    interval: list[Column] = []
    if dimension.valid is not None:
        begins, ends = (F.col(name).cast("timestamp") for name in (dimension.valid.begins, dimension.valid.ends))
        # Never null: Spark would filter the rows by it, and a kept broadcast bears no filter.
        interval = [begins, F.coalesce(ends, F.timestamp_micros(F.lit(_WITHOUT_END)))]
    return dimension.frame.select(
        *key, *[each.alias(name) for each, name in zip(interval, lookup.interval, strict=True)], *filled_in
    )


@functools.cache
def _matches(lookup: Lookup) -> Column:
    """Kept, like the names: parsing them would be a tenth of a small batch."""
    pairs = zip(lookup.by_fields, lookup.keys, strict=True)
    conditions = [f"event.{field} = {key}" for field, key in pairs]
    if lookup.as_of is not None:
        begins, ends = lookup.interval
        conditions += [f"{begins} <= event.{lookup.as_of}", f"event.{lookup.as_of} < {ends}"]
    return F.expr(" AND ".join(conditions))


@functools.cache
def _unmatched(lookups: tuple[Lookup, ...]) -> Column:
    if not lookups:
        return F.expr("CAST(array() AS array<string>) AS unmatched")
    # Not filter(): a lambda would take the whole stage out of Spark's code generation.
    missing = ", ".join(f"if({each.found} IS NULL, '{each.name}', '')" for each in lookups)
    return F.expr(f"array_remove(array({missing}), '') AS unmatched")
