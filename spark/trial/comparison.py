"""What a pipeline makes now, beside what is there: `compared`."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.checks.retained import Outcome, What

_ENTRIES = "array<struct<what: string, name: string, before: string, after: string>>"


def compared(
    made: DataFrame, was: DataFrame, letters: DataFrame, names: Sequence[str], handled: Mapping[int, int | None]
) -> list[Outcome]:
    """How often there is what, each with its first coordinate: of all that is `made` now or `was` there; in one job.

    * `made`: the raw record's coordinate, `record`, and that of what is made of it, `coordinate`, which may have the number of a part;
      partition, offset, reason, error, the struct `now`, `is_made`
    * `was`: coordinate, the struct `was`, `is_there`
    * `letters`: record, `is_letter`
    * `names` are the fields that are compared, `handled` the offsets by partition up to which the pipeline that runs has come
    """
    both = made.join(was, on="coordinate", how="full_outer").join(letters, on="record", how="left")
    differences = F.array_compact(F.array(*[_difference(both, name) for name in names]))
    both = both.withColumn("differences", differences.cast(_ENTRIES))
    told = F.struct(
        _what(handled).alias("what"),
        F.coalesce("reason", F.lit("")).alias("name"),
        F.lit(None).cast("string").alias("before"),
        _as_json(F.col("error")).alias("after"),
    )
    is_compared = F.col("was").isNotNull() & F.col("now").isNotNull()
    details = F.when(is_compared, F.col("differences")).otherwise(F.array().cast(_ENTRIES))
    entries = F.explode(F.concat(F.array(told).cast(_ENTRIES), details)).alias("entry")
    first = F.min(F.struct("coordinate", "entry.before", "entry.after")).alias("first")
    rows = both.select("coordinate", entries).groupBy("entry.what", "entry.name")
    # Not `collect`: a result that is cut short would be taken for the whole.
    return [_outcome(row) for row in rows.agg(F.count("*").alias("count"), first).toArrow().to_pylist()]


def _what(handled: Mapping[int, int | None]) -> Column:
    """A value of `What`."""
    is_good, is_there, is_letter = (
        F.col("reason").isNull(),
        F.col("is_there").isNotNull(),
        F.col("is_letter").isNotNull(),
    )
    is_handled = functools.reduce(
        operator.or_,
        [(F.col("partition") == each) & (F.col("offset") < end) for each, end in handled.items() if end is not None],
        F.lit(False),
    )
    cases: list[tuple[Column, What]] = [
        (F.col("is_made").isNull(), "vanishes"),
        (~is_good & is_letter, "still a dead letter"),
        (~is_good, "dead letter"),
        (is_there & F.col("was").isNull(), "not compared"),
        (is_there & (F.size("differences") == 0), "same"),
        (is_there, "changed"),
        (is_letter | is_handled, "appears"),
    ]
    (condition, what), *others = cases
    found = F.when(condition, what)
    for condition, what in others:
        found = found.when(condition, what)
    last: What = "not handled yet"
    return found.otherwise(last)


def _difference(both: DataFrame, name: str) -> Column:
    """An entry where a field is another one now; else null."""
    was, now = F.col(f"was.{name}"), F.col(f"now.{name}")
    # Spark compares no maps.
    is_map = "map<" in both.select(now).schema[0].dataType.simpleString()
    is_same = _as_json(was).eqNullSafe(_as_json(now)) if is_map else was.eqNullSafe(now)
    entry = F.struct(
        F.lit("field").alias("what"),
        F.lit(name).alias("name"),
        _as_json(was).alias("before"),
        _as_json(now).alias("after"),
    )
    return F.when(~is_same, entry)


def _as_json(value: Column) -> Column:
    return F.to_json(F.struct(value.alias("value")))


def _outcome(row: Mapping[str, Any]) -> Outcome:
    place, before, after = (row["first"][each] for each in ("coordinate", "before", "after"))
    values = [None if each is None else json.loads(each).get("value") for each in (before, after)]
    return Outcome(
        what=row["what"], name=row["name"], count=row["count"], coordinate=place, before=values[0], after=values[1]
    )
