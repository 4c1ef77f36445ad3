"""Whether the texts of a decoded event are texts: Spark takes over the bytes of an Avro string as they are."""

from __future__ import annotations

import functools
import operator
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F


def is_text(value: Column, kind: Any) -> Column | None:
    """Whether every string in `value`, of the Avro type `kind` (parsed JSON, with each named type written out wherever it
    is used), is UTF-8; None if it can hold no string.

    Others could not read such a string: neither fastavro nor Parquet's readers take it. Null counts as text.
    """
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        # Of several types Spark makes a struct with a field for each.
        fields = [value] if len(branches) == 1 else [value[f"member{at}"] for at in range(len(branches))]
        return _all([is_text(field, branch) for field, branch in zip(fields, branches, strict=True)])
    if kind == "string":
        return F.coalesce(F.is_valid_utf8(value), F.lit(True))
    if not isinstance(kind, dict):
        return None
    if kind["type"] == "record":
        return _all([is_text(value[field["name"]], field["type"]) for field in kind["fields"]])
    if kind["type"] == "array":
        return _every(value, kind["items"])
    if kind["type"] == "map":
        return _all([_every(F.map_keys(value), "string"), _every(F.map_values(value), kind["values"])])
    return is_text(value, kind["type"]) if kind["type"] == "string" else None


def _every(values: Column, kind: Any) -> Column | None:
    if kind in ("string", ["null", "string"], ["string", "null"]):
        # Together, since a lambda for each would keep Spark from compiling the whole. The comma keeps half a letter at the
        # end of one from being made whole by the next.
        return is_text(F.array_join(values, ","), "string")
    if is_text(F.lit(None), kind) is None:
        return None
    return F.coalesce(F.forall(values, lambda each: _known(is_text(each, kind))), F.lit(True))


def _known(found: Column | None) -> Column:
    return F.lit(True) if found is None else found


def _all(found: list[Column | None]) -> Column | None:
    there = [each for each in found if each is not None]
    return functools.reduce(operator.and_, there) if there else None
