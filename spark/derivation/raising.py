"""Expressions that fail for some values, and with them the query, at the same record again and again: `raises_for`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from spark.runtime.internals.plans import items, kind_of, type_of


class _Rule(NamedTuple):
    """Which inputs must be constants, all of them where there is none to name, and what to write instead."""

    inputs: slice
    cure: str


_ALL = slice(None)
_SECOND, _THIRD = slice(1, 2), slice(2, 3)
_ZONE = "give a constant time zone, or have the offset in minutes in the event or the dimension, and add it"
_PATTERN = "give a constant pattern"
_PLACE = "give a constant place, or use get, which is null beyond the end"
_NUMBER = "compute with numbers, or cast the seconds to timestamp"
_MAP = "a key may be null, or there twice: look up in a dimension, or use CASE"
_UTF8 = "use try_validate_utf8(CAST(… AS STRING))"
_KEY = "give a constant key"
_SKETCH = "compute sketches behind the topic"
_XML = "have the field in the event"

_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("FromUTCTimestamp", "ToUTCTimestamp"), _Rule(_SECOND, _ZONE)),
    "ConvertTimezone": _Rule(slice(0, 2), _ZONE),
    "MakeTimestamp": _Rule(slice(6, None), _ZONE),
    **dict.fromkeys(
        (
            *(
                "Like",
                "ILike",
                "RLike",
                "RegExpExtract",
                "RegExpExtractAll",
                "RegExpReplace",
                "RegExpCount",
                "RegExpInStr",
            ),
            *("RegExpSubStr", "StringSplit"),
        ),
        _Rule(slice(1, None), _PATTERN),
    ),
    **dict.fromkeys(
        (
            *("DateFormatClass", "FromUnixTime", "ParseToTimestamp", "ParseToDate", "UnixTimestamp", "ToUnixTimestamp"),
            "FormatNumber",
        ),
        _Rule(_SECOND, _PATTERN),
    ),
    "FormatString": _Rule(slice(0, 1), _PATTERN),
    "BitwiseGet": _Rule(_SECOND, _PLACE),
    "SplitPart": _Rule(_THIRD, _PLACE),
    "SubstringIndex": _Rule(_THIRD, _PLACE),
    "Slice": _Rule(slice(1, None), _PLACE),
    **dict.fromkeys(
        ("SecondsToTimestamp", "MillisToTimestamp", "MakeDTInterval", "MakeYMInterval"), _Rule(_ALL, _NUMBER)
    ),
    "AddMonths": _Rule(_SECOND, _NUMBER),
    **dict.fromkeys(
        ("CreateMap", "MapFromArrays", "MapFromEntries", "MapConcat", "StringToMap", "TransformKeys"), _Rule(_ALL, _MAP)
    ),
    "ToNumber": _Rule(_ALL, "use try_to_number"),
    "ToBinary": _Rule(_ALL, "use try_to_binary"),
    "UnBase64": _Rule(_ALL, "use try_to_binary(…, 'base64')"),
    "ValidateUTF8": _Rule(_ALL, "use try_validate_utf8 or make_valid_utf8"),
    "Encode": _Rule(_ALL, "use CAST(… AS BINARY)"),
    "StringDecode": _Rule(_ALL, _UTF8),
    "AesEncrypt": _Rule(_SECOND, _KEY),
    "AesDecrypt": _Rule(_ALL, "use try_aes_decrypt"),
    **dict.fromkeys(("HllSketchEstimate", "ThetaSketchEstimate"), _Rule(_ALL, _SKETCH)),
    **dict.fromkeys(
        (
            *(
                "XPathBoolean",
                "XPathShort",
                "XPathInt",
                "XPathLong",
                "XPathFloat",
                "XPathDouble",
                "XPathString",
                "XPathList",
            ),
        ),
        _Rule(_ALL, _XML),
    ),
}
_TRYING = {"ParseJson": "use try_parse_json", "VariantGet": "use try_variant_get", "UrlDecode": "use try_url_decode"}
"""Expressions that say by a flag whether they fail."""


def raises_for(each: Any) -> str | None:
    """What to write in place of an expression of a plan that fails for some values of its fields; None if it has a value, or null, for each."""
    kind, children = kind_of(each), items(each.children())
    if kind in _TRYING:
        return _TRYING[kind] if each.failOnError() and not children[0].foldable() else None
    if kind == "ElementAt" and type_of(children[0]).typeName() == "array":
        return None if children[1].foldable() else _PLACE
    rule = _RULES.get(kind)
    if rule is None or all(child.foldable() for child in children[rule.inputs]):
        return None
    return rule.cure
