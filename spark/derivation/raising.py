"""Expressions that fail for some values, and with them the query, at the same record again and again: `raises_for`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.types import DayTimeIntervalType, YearMonthIntervalType

from spark.runtime.internals.plans import items, kind_of, type_of


class _Rule(NamedTuple):
    """Of these kinds of expressions, which inputs must be constants, and what to write instead."""

    kinds: str
    inputs: slice
    cure: str


_ALL, _FIRST, _SECOND, _THIRD = slice(None), slice(0, 1), slice(1, 2), slice(2, 3)
_BEHIND_THE_FIRST = slice(1, None)
_KEYS = slice(0, None, 2)
_ZONE = "give a constant time zone, or add an offset that the event has"
_PATTERN = "give a constant pattern"
_INDEX = "give a constant index; of an array get(array, index) is null beyond the end"
_NUMBER = "compute with numbers, or cast the seconds to timestamp"
_SKETCH = "compute sketches behind the topic"
_MAP = "a key may be null, or there twice: look up in a dimension, or use CASE"

_RULES = (
    _Rule("FromUTCTimestamp ToUTCTimestamp", _SECOND, _ZONE),
    _Rule("ConvertTimezone", slice(0, 2), _ZONE),
    _Rule("MakeTimestamp", slice(6, None), _ZONE),
    _Rule("Like ILike RLike StringSplit", _BEHIND_THE_FIRST, _PATTERN),
    _Rule("RegExpCount RegExpExtract RegExpExtractAll", _BEHIND_THE_FIRST, _PATTERN),
    _Rule("RegExpInStr RegExpReplace RegExpSubStr", _BEHIND_THE_FIRST, _PATTERN),
    _Rule("DateFormatClass FromUnixTime ParseToDate ParseToTimestamp", _SECOND, _PATTERN),
    _Rule("ToUnixTimestamp UnixTimestamp FormatNumber", _SECOND, _PATTERN),
    _Rule("FormatString", _FIRST, _PATTERN),
    _Rule("BitwiseGet", _SECOND, _INDEX),
    _Rule("SplitPart SubstringIndex", _THIRD, _INDEX),
    _Rule("Slice", _BEHIND_THE_FIRST, _INDEX),
    _Rule("SecondsToTimestamp MillisToTimestamp", _ALL, _NUMBER),
    _Rule("MakeInterval TryMakeInterval MakeDTInterval MakeYMInterval", _ALL, _NUMBER),
    _Rule("MultiplyInterval MultiplyDTInterval MultiplyYMInterval", _ALL, _NUMBER),
    _Rule("DivideInterval DivideDTInterval DivideYMInterval", _SECOND, _NUMBER),
    _Rule("TimestampAdd", _FIRST, _NUMBER),
    _Rule("AddMonths", _SECOND, _NUMBER),
    _Rule("CreateMap", _KEYS, _MAP),
    _Rule("MapConcat MapFromArrays MapFromEntries StringToMap TransformKeys", _ALL, _MAP),
    _Rule("ToNumber", _ALL, "use try_to_number"),
    _Rule("ToBinary", _ALL, "use try_to_binary"),
    _Rule("UnBase64", _ALL, "use try_to_binary(…, 'base64')"),
    _Rule("ValidateUTF8", _ALL, "use try_validate_utf8 or make_valid_utf8"),
    _Rule("Encode", _ALL, "use CAST(… AS BINARY)"),
    _Rule("StringDecode", _ALL, "use try_validate_utf8(CAST(… AS STRING))"),
    _Rule("AesEncrypt", _SECOND, "give a constant key"),
    _Rule("AesDecrypt", _ALL, "use try_aes_decrypt"),
    _Rule("HllSketchEstimate HllUnion", _ALL, _SKETCH),
    _Rule("ThetaSketchEstimate ThetaUnion ThetaIntersection ThetaDifference", _ALL, _SKETCH),
    _Rule("KllSketchGetNBigint KllSketchGetNDouble KllSketchGetNFloat", _ALL, _SKETCH),
    _Rule("KllSketchGetQuantileBigint KllSketchGetQuantileDouble KllSketchGetQuantileFloat", _ALL, _SKETCH),
    _Rule("KllSketchGetRankBigint KllSketchGetRankDouble KllSketchGetRankFloat", _ALL, _SKETCH),
    _Rule("KllSketchToStringBigint KllSketchToStringDouble KllSketchToStringFloat", _ALL, _SKETCH),
    _Rule("ParseUrl", slice(2, None), _PATTERN),
    _Rule("FromAvro AvroDataToCatalyst", _ALL, "have the field in the event"),
    _Rule("XPathBoolean XPathShort XPathInt XPathLong", _ALL, "have the field in the event"),
    _Rule("XPathFloat XPathDouble XPathString XPathList", _ALL, "have the field in the event"),
)
_BY_KIND: Mapping[str, _Rule] = {kind: rule for rule in _RULES for kind in rule.kinds.split()}
_TRYING = {"ParseJson": "use try_parse_json", "VariantGet": "use try_variant_get", "UrlDecode": "use try_url_decode"}
"""Expressions that say by a flag whether they fail."""
_INTERVALS = (DayTimeIntervalType, YearMonthIntervalType)
_READERS = ("JsonToStructs", "CsvToStructs")
_JUDGED = {*_BY_KIND, *_TRYING, *_READERS, "ElementAt", "Cast"}
"""Of all others no more is asked: each question is a call to the JVM, at each start."""


def raises_for(each: Any) -> str | None:
    """What to write in place of an expression of a plan that fails for some values of its fields; None if it has a value, or null, for each."""
    kind = kind_of(each)
    if kind not in _JUDGED:
        return None
    children = items(each.children())
    if kind in _TRYING:
        return _TRYING[kind] if each.failOnError() and not children[0].foldable() else None
    if kind == "ElementAt" and type_of(children[0]).typeName() == "array":
        return None if children[1].foldable() else _INDEX
    if kind == "Cast" and str(each.evalMode()) != "TRY" and not children[0].foldable():
        if type_of(children[0]).typeName() == "variant":
            return "use try_variant_get"
        # Of the third kind of interval, that of session windows, Spark makes null.
        return "write a constant interval" if isinstance(type_of(each), _INTERVALS) else None
    if kind in _READERS:
        mode = each.options().get("mode")
        return "leave the mode out" if mode.isDefined() and str(mode.get()).upper() == "FAILFAST" else None
    rule = _BY_KIND.get(kind)
    return None if rule is None or all(child.foldable() for child in children[rule.inputs]) else rule.cure
