"""Expressions whose value depends on when they are computed: `of_the_moment`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from spark.runtime.internals.plans import constant_text, items, kind_of, sql_of, type_of

_KINDS = (
    *("CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now", "CurrentBatchTimestamp"),
    *("CurrentUser", "CurrentDatabase", "CurrentCatalog"),
)
_MERGES = ("KllSketchMergeBigint", "KllSketchMergeFloat", "KllSketchMergeDouble")
"""They leave values out by chance, and Spark calls them deterministic."""
_PARSERS = ("ParseToTimestamp", "ParseToDate")
"""With a second input they have a pattern."""
_READERS = ("JsonToStructs", "CsvToStructs", "XmlToStructs")
_PATTERN = "timestampFormat"
_TEXTS = ("string", "variant")
_TIMES = ("date", "timestamp", "timestamp_ntz", "time")
_EMPTY = str(b"")
_YEAR = re.compile(r"\s*[+-]?\d{4}")
_EACH_TIME = "is another value each time"
_TODAY = f"takes today's date where the text is only a time of day, so it {_EACH_TIME}"


def of_the_moment(each: Any) -> tuple[str, str] | None:
    """What an expression of a plan does so, and what to do instead; None if its value depends on its inputs alone.

    Spark reads the texts `now` and `today` as instants wherever it makes one of a constant, and adds today's date to any text that is only a time of day.
    """
    kind = kind_of(each)
    if kind in _KINDS or not each.deterministic():
        return _EACH_TIME, "take it from the event"
    if kind == "Literal":
        said = sql_of(each) if type_of(each).typeName() in _TIMES else None
        return None if said is None or re.search(r"\d", said) else (_EACH_TIME, "take it from the event")
    if kind in (*_READERS, "VariantGet"):
        if "timestamp" not in {found.typeName() for found in _parts(type_of(each))}:
            return None
        if kind == "VariantGet":
            return _TODAY, "read it as a text, and use to_timestamp with a pattern"
        return None if each.options().contains(_PATTERN) else (_TODAY, f"give the option {_PATTERN}")
    children = items(each.children())
    if kind in _MERGES:
        return _EACH_TIME, "merge sketches behind the topic"
    if kind == "AesEncrypt":
        _, _, mode, _, vector, _ = children
        # The default is an empty one, and so chance; ECB has none.
        is_chance = constant_text(vector) == _EMPTY and constant_text(mode) != "ECB"
        return (_EACH_TIME, "give it an IV that is made from the event, or the mode ECB") if is_chance else None
    if kind != "Cast" and not (kind in _PARSERS and len(children) == 1):
        return None
    made = {to for of, to in _pairs(type_of(children[0]), type_of(each)) if of in _TEXTS}
    if not made & {*_TIMES}:
        return None
    if (constant := constant_text(children[0])) is not None:
        return None if _YEAR.match(constant) else (_EACH_TIME, "write the date, or take it from the event")
    return (_TODAY, "use to_timestamp with a pattern") if "timestamp" in made else None


def _parts(kind: DataType) -> Iterator[DataType]:
    yield kind
    for part in _below(kind):
        yield from _parts(part)


def _below(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return [kind.elementType] if isinstance(kind, ArrayType) else []


def _pairs(of: DataType, to: DataType) -> Iterator[tuple[str, str]]:
    """The names of the types that a cast takes, and of what it makes of them."""
    parts = list(zip(_below(of), _below(to), strict=False))
    if not parts:
        # A variant has no parts, and may become something that has.
        yield from ((of.typeName(), found.typeName()) for found in _parts(to))
    for below in parts:
        yield from _pairs(*below)
