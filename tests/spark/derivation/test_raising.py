"""Expressions that fail for some values are refused: one record would stop the pipeline, for good."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.derivation.of_the_moment import of_the_moment
from spark.derivation.raising import raises_for
from spark.runtime.internals.plans import expressions, items, steps

_ODD = """
    ('', 0, 0D, timestamp'1970-01-01 00:00:00', X'', array(cast(null as string)), array(0), 0L),
    ('America/NewYork', -1, double('NaN'), timestamp'0001-01-01 00:00:00', X'ff', array('a', 'a', null), array(-1, null), -9223372036854775808L),
    ('[', 2147483647, double('Infinity'), timestamp'9999-12-31 23:59:59', X'0000', array('['), array(2147483647), 9223372036854775807L),
    ('%', -2147483648, -1.5D, null, null, null, null, 100000L),
    ('{"a":', 1000000, 1e308D, timestamp'2024-02-29 12:30:00', X'e28082', array('x'), array(1, 2, 3), null),
    ('12:30', 5, -1e308D, timestamp'2024-02-29 12:30:00', X'41', array('1'), array(5), 64L),
    ('é\\\\\\\\', 65, 0.5D, timestamp'2024-02-29 12:30:00', X'c328', array('1'), array(64), 65L)
"""
_COLUMNS = ("s", "i", "d", "t", "b", "texts", "numbers", "l")
_OF_SEVERAL_ROWS = ("agg_funcs", "window_funcs", "generator_funcs")
_ON_PURPOSE = ("raise_error", "assert_true", "java_method", "reflect", "try_reflect")
"""They fail on purpose, or call methods of Java."""
_AS_LONG_AS_SAID = ("sequence", "repeat", "space", "lpad", "rpad", "array_repeat", "array_insert")
"""They are refused by their length, and some values fill the memory."""
_NOT_DECODED = "EXPRESSION_DECODING_FAILED"
"""The value is there, and Python's reader of single rows has no place for it."""


@pytest.fixture(scope="module")
def odd(spark: SparkSession) -> DataFrame:
    return spark.sql(f"SELECT * FROM VALUES {_ODD} AS v({', '.join(_COLUMNS)})")


def _cures(odd: DataFrame, expression: str) -> list[str]:
    made = odd.select(F.expr(expression).alias("made"))
    return [
        found for step in steps(made, odd) for each in expressions(step, tried=False) if (found := raises_for(each))
    ]


@pytest.mark.parametrize(
    ("expression", "cure"),
    [
        ("from_utc_timestamp(t, coalesce(s, 'UTC'))", "a constant time zone"),
        ("convert_timezone('UTC', s, t)", "a constant time zone"),
        ("make_timestamp(i, i, i, i, i, d, s)", "a constant time zone"),
        ("s RLIKE s", "a constant pattern"),
        ("split(s, s)", "a constant pattern"),
        ("date_format(t, s)", "a constant pattern"),
        ("format_string(s, i)", "a constant pattern"),
        ("element_at(texts, i)", "a constant index"),
        ("split_part(s, ',', i)", "a constant index"),
        ("slice(numbers, i, 2)", "a constant index"),
        ("timestamp_millis(l)", "cast the seconds"),
        ("add_months(t, i)", "compute with numbers"),
        ("map(s, i)", "a key may be null"),
        ("parse_json(s)", "try_parse_json"),
        ("variant_get(try_parse_json(s), '$.a', 'int')", "try_variant_get"),
        ("url_decode(s)", "try_url_decode"),
        ("to_number(s, '999')", "try_to_number"),
        ("to_binary(s, 'hex')", "try_to_binary"),
        ("decode(b, 'UTF-8')", "try_validate_utf8"),
        ("encode(s, 'US-ASCII')", "AS BINARY"),
        ("aes_decrypt(b, '0000111122223333')", "try_aes_decrypt"),
        ("(t - timestamp'2020-01-01 00:00:00') / i", "compute with numbers"),
        ("t + i * INTERVAL 1 DAY", "compute with numbers"),
        ("t + make_interval(i)", "compute with numbers"),
        ("timestampadd(DAY, i, t)", "compute with numbers"),
        ("cast(s AS INTERVAL DAY TO SECOND)", "a constant interval"),
        ("cast(try_parse_json(s) AS INT)", "try_variant_get"),
        ("from_json(s, 'a INT', map('mode', 'FAILFAST'))", "leave the mode out"),
        ("parse_url(s, 'QUERY', s)", "a constant pattern"),
        ("hll_union(b, b)", "sketches behind"),
    ],
)
def test_what_fails_for_some_values_is_refused_with_what_to_write(odd: DataFrame, expression: str, cure: str) -> None:
    assert cure in _cures(odd, expression)[0]


@pytest.mark.parametrize(
    "expression",
    [
        "from_utc_timestamp(t, 'America/New_York')",
        "s RLIKE '^a'",
        "s LIKE '%a'",
        "split(s, ',')",
        "date_format(t, 'yyyy-MM-dd')",
        "to_timestamp(s, 'HH:mm')",
        "element_at(texts, 1)",
        "element_at(from_json(s, 'map<string,int>'), s)",
        "get(texts, i)",
        "texts[i]",
        "cast(l as timestamp)",
        "try_variant_get(try_parse_json(s), '$.a', 'int')",
        "try_url_decode(s)",
        "try_to_number(s, '999')",
        "try_to_binary(s, 'hex')",
        "try_aes_decrypt(b, '0000111122223333')",
        "try_validate_utf8(cast(b as string))",
        "cast(s as binary)",
        "t + INTERVAL 1 DAY",
        "try_cast(s AS INTERVAL DAY TO SECOND)",
        "from_json(s, 'a INT')",
        "try_divide(element_at(texts, i), 2)",
        "cast(CASE WHEN s = '' THEN '1 hour' ELSE s END AS INTERVAL) IS NULL",
        "parse_url(s, 'HOST')",
        "map('a', i, 'b', l)",
        "date_format(CAST(unix_timestamp(t) + 60 * i AS TIMESTAMP), 'yyyy-MM-dd')",
        "i / 0",
        "i * i",
        "cast(s as int)",
        "date_add(t, i)",
        "substring(s, i, i)",
    ],
)
def test_what_has_a_value_or_null_for_each_may_stay(odd: DataFrame, expression: str) -> None:
    assert _cures(odd, expression) == []
    odd.select(F.expr(expression).alias("made")).toArrow()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_each_of_sparks_functions_that_fails_for_odd_values_is_refused(
    spark: SparkSession, odd: DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PySpark's own, which tells of each error with all that is on the stack.
    monkeypatch.setattr(logging.getLogger("SQLQueryContextLogger"), "disabled", True)
    odd.createOrReplaceTempView("odd")
    tried, raised, missed = 0, 0, []
    for name in _functions(spark):
        for inputs in _inputs():
            expression = f"{name}({', '.join(inputs)})"
            try:
                plan = spark.sql(f"SELECT {expression} AS made FROM odd")
            except (PySparkException, Py4JError):
                continue  # not a function of such inputs
            tried += 1
            why = _failure(plan)
            if why is None:
                continue
            raised += 1
            if not _is_refused(plan):
                missed.append(f"{expression}: {why}")
                break
    assert tried > 3_000
    assert raised > 100
    assert missed == []


def _functions(spark: SparkSession) -> list[str]:
    """Those that make one value of one row."""
    jvm: Any = spark.sparkContext._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    found = {str(each.funcName()): registry.lookupFunction(each).get() for each in items(registry.listFunction())}
    return sorted(
        name
        for name, each in found.items()
        if name.isidentifier()
        and str(each.getGroup()) not in _OF_SEVERAL_ROWS
        and name not in (*_ON_PURPOSE, *_AS_LONG_AS_SAID)
    )


def _inputs() -> Iterator[Sequence[str]]:
    for count, columns in ((1, _COLUMNS), (2, _COLUMNS), (3, ("s", "i", "t", "numbers"))):
        yield from itertools.product(columns, repeat=count)
    yield from (("i", "i", "i", "i", "i", "d"), ("i", "i", "i", "i", "i", "d", "s"), ("s", "s", "s", "s"))


def _failure(plan: DataFrame) -> str | None:
    try:
        plan._jdf.collect()
    except (PySparkException, Py4JError) as error:
        said = str(error).splitlines()[0]
        return None if _NOT_DECODED in said else said[:200]
    return None


def _is_refused(plan: DataFrame) -> bool:
    """By whichever rule: one that reads the clock is refused, too."""
    found = list(expressions(plan._jdf.queryExecution().analyzed(), tried=False))
    return any(raises_for(each) or of_the_moment(each) for each in found)
