"""What can be wrong with what a pipeline computes: `Fault`, `faults`, `set_aside`."""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.records.limits import COMPUTED_TEXT_BYTES
from spark.lookups.enriched_value import STAMPED
from spark.pipeline import Pipeline
from spark.records.record_size import octets
from spark.records.schemas import never_null
from spark.runtime.internals.plans import ARRAY
from spark.sinks.kafka.sink import BRANCH

PLATFORM = (*STAMPED, "unmatched")
"""Fields that the platform fills in."""

_SHOWN = 100
"""Characters of a branch's name in a dead letter."""

_NOTHING: Mapping[str, str | None] = MappingProxyType({})


class Fault(NamedTuple):
    """A dead letter's reason, whether a row has it, and what is wrong in words."""

    reason: str
    is_so: Column
    error: Column


def faults(
    pipeline: Pipeline,
    catalog: Catalog,
    target: str,
    unchanged: Collection[str],
    exploded: Mapping[str, str | None] = _NOTHING,
) -> list[Fault]:
    """What can be wrong with that which the function has computed, and no record of the topic `target` may have. Of the fields that come
    of exploding an array, `exploded` says as which field of its elements; None: they are the elements.
    """
    schema = catalog.schema(target)
    found = []
    if required := sorted(set(never_null(schema)).difference(never_null(catalog.schema(pipeline.source)), PLATFORM)):
        lacking = F.concat_ws(", ", *[F.when(_is_null(name, exploded), name) for name in required])
        error = F.concat(F.lit("the schema has no null for what the pipeline makes of the record: "), lacking)
        found.append(Fault("NullField", lacking != "", error))
    if texts := [
        name for name, kind in kinds_of(schema).items() if kind == "string" and name not in {*unchanged, *PLATFORM}
    ]:
        size = _bytes_of(texts, exploded)
        error = F.concat(
            F.lit("the pipeline computes texts of "), size, F.lit(f" bytes, at most {COMPUTED_TEXT_BYTES} fit")
        )
        found.append(Fault("TooLong", size > COMPUTED_TEXT_BYTES, error))
    return found


def of_branches(faults: Mapping[str, Sequence[Fault]]) -> list[Fault]:
    """Those of a branch by the faults of each of its topics, by the branch's name: a record has to fit the topic that it goes to."""
    branch, names = F.col(BRANCH), list(faults)
    said = F.concat(F.lit("the pipeline writes the record to the branch "), F.substring(branch, 1, _SHOWN))
    unknown = Fault("UnknownBranch", ~branch.isin(names), F.concat(said, F.lit(f"; there are {', '.join(names)}")))
    own = [
        Fault(each.reason, (branch == name) & each.is_so, each.error)
        for name, found in faults.items()
        for each in found
    ]
    return [unknown, *own]


def _is_null(name: str, exploded: Mapping[str, str | None]) -> Column:
    if name not in exploded:
        return F.col(name).isNull()
    return F.exists(ARRAY, lambda element: _field(element, exploded[name]).isNull())


def _bytes_of(names: Sequence[str], exploded: Mapping[str, str | None]) -> Column:
    """Of these texts together; of an array's those of the element with the most."""

    def together(texts: Sequence[Column]) -> Column:
        return functools.reduce(operator.add, map(octets, texts), F.lit(0))

    size = together([F.col(name) for name in names if name not in exploded])
    if inner := [exploded[name] for name in names if name in exploded]:
        sizes = F.transform(ARRAY, lambda element: together([_field(element, each) for each in inner]))
        size = size + F.coalesce(F.array_max(sizes), F.lit(0))
    return size


def _field(element: Column, name: str | None) -> Column:
    return element if name is None else element[name]


def set_aside(made: DataFrame, faults: Sequence[Fault]) -> DataFrame:
    """`made`, where a good record with a fault is a bad one: to encode or to send it would fail, again and again."""
    if not faults:
        return made
    # In one step: where each is looked at in one of its own, Spark writes the steps before it out again, and the plan doubles.
    was_bad = F.col("__reason").isNotNull()
    reason, error = F.when(was_bad, F.col("__reason")), F.when(was_bad, F.col("__error"))
    for fault in faults:
        reason, error = reason.when(fault.is_so, fault.reason), error.when(fault.is_so, fault.error)
    return made.withColumns({"__reason": reason, "__error": error})


def kinds_of(schema: str) -> dict[str, str]:
    """The fields of an Avro schema, JSON text, and their types without null; of a logical type the one below."""
    found = {}
    for field in json.loads(schema)["fields"]:
        branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kinds = [branch["type"] if isinstance(branch, dict) else branch for branch in branches if branch != "null"]
        found[field["name"]] = str(kinds[0]) if len(kinds) == 1 else "union"
    return found


def narrow_texts(schema: str) -> dict[str, frozenset[str]]:
    """The fields of an Avro schema, JSON text, that are text to Spark and that not every text is: an enum's symbols, none of a UUID."""
    found, named, record = {}, dict[str, dict[str, Any]](), json.loads(schema)
    for field in record["fields"]:
        for branch in field["type"] if isinstance(field["type"], list) else [field["type"]]:
            kind = (
                named.get(branch) if isinstance(branch, str) else branch
            )  # an enum is written once, and named afterwards
            if kind is None:
                continue
            if kind["type"] == "enum":
                namespace = kind.get("namespace", record.get("namespace", ""))
                named |= {kind["name"]: kind, f"{namespace}.{kind['name']}": kind}
            if kind["type"] == "enum" or kind.get("logicalType") == "uuid":
                found[field["name"]] = frozenset(kind.get("symbols", ()))
    return found
