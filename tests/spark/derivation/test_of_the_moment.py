"""Expressions whose value depends on when they are computed are refused, also those that Spark makes constants of before anybody sees them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.derivation.of_the_moment import of_the_moment
from spark.runtime.internals.plans import analyzed, expressions, items, steps

_TEXT = "concat('{\"t\":\"', s, '\"}')"

_ENCRYPTED = "aes_encrypt(s, '0000111122223333')"
_EXAMPLE = re.compile(r"> SELECT (.*?);\n", re.DOTALL)
_AGGREGATED = ("agg_funcs", "window_funcs", "generator_funcs")


@pytest.fixture(scope="module")
def texts(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("12:30", "2013-01-01 12:30:00")], "s string, t string").withColumn(
        "at", F.to_timestamp("t", "yyyy-MM-dd HH:mm:ss")
    )


def _found(texts: DataFrame, expression: str) -> list[tuple[str, str]]:
    made = texts.select(F.expr(expression).alias("made"))
    return [found for step in steps(made, texts) for each in expressions(step) if (found := of_the_moment(each))]


@pytest.mark.parametrize(
    "expression",
    [
        "now()",
        "localtimestamp()",
        "rand(5)",
        "timestamp'now'",
        "TIMESTAMP_NTZ 'today UTC'",
        "date 'yesterday'",
        "cast('now' as timestamp)",
        "to_timestamp('now')",
        "to_timestamp(concat('no', 'w'))",
        "try_to_date(' Tomorrow')",
        "to_date('12:30')",
        "at < 'now'",
        "date_add('now', 1)",
        f"base64({_ENCRYPTED})",
        f"{_ENCRYPTED[:-1]}, 'CBC')",
        f"{_ENCRYPTED[:-1]}, s)",
        f"{_ENCRYPTED[:-1]}, 'GCM', 'DEFAULT', '', s)",
        "kll_sketch_merge_bigint(unhex(s), unhex(t))",
    ],
)
def test_what_is_another_value_each_time_is_found_also_as_a_text(texts: DataFrame, expression: str) -> None:
    assert "is another value each time" in _found(texts, expression)[0][0]


@pytest.mark.parametrize(
    "expression",
    [
        "cast(s as timestamp)",
        "try_cast(s as timestamp)",
        "to_timestamp(s)",
        "at < s",
        "hour(s)",
        "from_utc_timestamp(s, 'UTC')",
        "cast(array(s) as array<timestamp>)",
        "cast(named_struct('a', 1, 'b', s) as struct<a int, b timestamp>)",
        f"from_json({_TEXT}, 't timestamp')",
        "from_csv(s, 't timestamp')",
        f"try_variant_get(parse_json({_TEXT}), '$.t', 'timestamp')",
        f"cast(parse_json({_TEXT}) as struct<t timestamp>)",
    ],
)
def test_a_text_that_may_be_a_time_of_day_is_no_instant(texts: DataFrame, expression: str) -> None:
    assert "takes today's date" in _found(texts, expression)[0][0]


@pytest.mark.parametrize(
    "expression",
    [
        "timestamp '2013-01-01 10:00:00'",
        "date'2013-01-01'",
        "cast('2013-01-01' as date)",
        "to_timestamp('2013')",
        "at < '2013-01-01'",
        "to_timestamp(s, 'HH:mm')",
        "cast(s as timestamp_ntz)",
        "to_date(s)",
        "cast(at as string)",
        "cast(at as date)",
        "cast(named_struct('a', s, 'b', at) as struct<a string, b timestamp>)",
        f"from_json({_TEXT}, 't timestamp', map('timestampFormat', 'HH:mm'))",
        f"from_json({_TEXT}, 't string')",
        "interval 1 day",
        "unix_timestamp(s)",
        f"{_ENCRYPTED[:-1]}, concat('EC', 'B'))",
        f"{_ENCRYPTED[:-1]}, 'GCM', 'DEFAULT', unhex(substr(md5(s), 1, 24)))",
        f"{_ENCRYPTED[:-1]}, 'CBC', 'DEFAULT', unhex('000102030405060708090a0b0c0d0e0f'))",
    ],
)
def test_what_depends_on_the_record_alone_may_stay(texts: DataFrame, expression: str) -> None:
    assert _found(texts, expression) == []


def test_spark_makes_what_the_rule_says_of_a_time_of_day(texts: DataFrame) -> None:
    today, epoch = (
        texts.select(F.expr("cast(s as timestamp)"), F.expr("to_timestamp(s, 'HH:mm')"))
        .toArrow()
        .to_pylist()[0]
        .values()
    )
    assert today.year > 2013
    assert epoch.year == 1970


@pytest.mark.long
def test_each_of_sparks_functions_that_gives_another_value_for_its_examples_is_found(spark: SparkSession) -> None:
    one = spark.range(1)
    plans = {each: found for each in _examples(spark) if (found := _analyzed(one, each)) is not None}
    changed = [each for each, plan in plans.items() if _value(spark, plan) != _value(spark, plan)]
    assert len(plans) > 700
    assert [each for each in changed if not _found(one, each)] == []
    assert any("aes_encrypt" in each for each in changed)


def _examples(spark: SparkSession) -> list[str]:
    """Those of Spark's documentation that are of no table."""
    jvm: Any = spark.sparkContext._jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    functions = [registry.lookupFunction(each).get() for each in items(registry.listFunction())]
    texts = [str(each.getExamples()) for each in functions if str(each.getGroup()) not in _AGGREGATED]
    return sorted({each for text in texts for each in _EXAMPLE.findall(text) if " FROM " not in each})


def _analyzed(frame: DataFrame, example: str) -> Any:
    try:
        return analyzed(frame.select(F.expr(example)))
    except PySparkException:
        return None


def _value(spark: SparkSession, plan: Any) -> str:
    """As Spark's optimiser computes it, which takes no job."""
    session: Any = spark._jsparkSession
    try:
        made = items(session.sessionState().optimizer().execute(plan).expressions())
    except (PySparkException, Py4JError) as error:
        return type(error).__name__
    return str([str(each.sql()) for each in made])
