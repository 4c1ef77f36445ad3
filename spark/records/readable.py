"""Whether others can read the values of a decoded event: Spark takes more for a text or an instant than they do."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F

_Check: TypeAlias = Callable[[Column, Any], Column | None]
"""Whether a value of an Avro type is as it should be, as null is; None if there is nothing to ask of the type itself."""

_EPOCH = datetime(1970, 1, 1)
_MICROSECONDS = [(at - _EPOCH) // timedelta(microseconds=1) for at in (datetime.min, datetime.max)]
_DAYS = [(day - _EPOCH.date()).days for day in (date.min, date.max)]


def is_text(value: Column, kind: Any) -> Column | None:
    """Whether every string in `value`, of the Avro type `kind` (parsed JSON, with each named type written out wherever it
    is used), is UTF-8; None if it can hold no string.

    Others could not read such a string: neither fastavro nor Parquet's readers take it. Null counts as text.
    """
    return _throughout(value, kind, _text)


def is_in_calendar(value: Column, kind: Any) -> Column | None:
    """The same of instants and dates: whether they lie in the years 1 to 9999, beyond which neither Python nor Delta's
    statistics have any.
    """
    return _throughout(value, kind, _in_calendar)


def _text(value: Column, kind: Any) -> Column | None:
    if kind == "string":
        return F.coalesce(F.is_valid_utf8(value), F.lit(True))
    if isinstance(kind, dict) and kind.get("items") in ("string", ["null", "string"], ["string", "null"]):
        # Together, since a lambda for each would keep Spark from compiling the whole. The comma keeps half a letter at the
        # end of one from being made whole by the next.
        return _text(F.array_join(value, ","), "string")
    return None


def _in_calendar(value: Column, kind: Any) -> Column | None:
    match kind.get("logicalType") if isinstance(kind, dict) else None:
        case "timestamp-millis" | "timestamp-micros":
            found = F.unix_micros(value).between(*_MICROSECONDS)
        case "local-timestamp-millis" | "local-timestamp-micros":
            found = F.unix_micros(value.cast("timestamp")).between(*_MICROSECONDS)
        case "date":
            found = F.unix_date(value).between(*_DAYS)
        case _:
            return None
    return F.coalesce(found, F.lit(True))


def _throughout(value: Column, kind: Any, check: _Check) -> Column | None:
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        # Of several types Spark makes a struct with a field for each.
        fields = [value] if len(branches) == 1 else [value[f"member{at}"] for at in range(len(branches))]
        return _all([_throughout(field, branch, check) for field, branch in zip(fields, branches, strict=True)])
    found = check(value, kind)
    if found is not None or not isinstance(kind, dict):
        return found
    match kind["type"]:
        case "record":
            return _all([_throughout(value[field["name"]], field["type"], check) for field in kind["fields"]])
        case "array":
            return _every(value, kind["items"], check)
        case "map":
            keys = _throughout(F.map_keys(value), {"type": "array", "items": "string"}, check)
            values = {"type": "array", "items": kind["values"]}
            return _all([keys, _throughout(F.map_values(value), values, check)])
        case plain:
            return check(value, plain)


def _every(values: Column, kind: Any, check: _Check) -> Column | None:
    if _throughout(F.lit(None), kind, check) is None:
        return None
    return F.coalesce(F.forall(values, lambda each: _known(_throughout(each, kind, check))), F.lit(True))


def _known(found: Column | None) -> Column:
    return F.lit(True) if found is None else found


def _all(found: list[Column | None]) -> Column | None:
    there = [each for each in found if each is not None]
    return functools.reduce(operator.and_, there) if there else None
