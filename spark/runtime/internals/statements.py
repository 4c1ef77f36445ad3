"""A SELECT over given frames, and nothing else: `selected`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from spark.runtime.internals.java import java_class
from spark.runtime.internals.plans import catalyst, expressions, frame_of, items, kind_of, seq

_STEPS = {
    "Project": "SELECT",
    "Filter": "WHERE",
    "Aggregate": "GROUP BY",
    "UnresolvedHaving": "HAVING",
    "Generate": "LATERAL VIEW",
    "Join": "JOIN",
    "SubqueryAlias": "AS",
    "UnresolvedSubqueryColumnAliases": "AS",
}
"""Steps that a statement may have, as SQL calls them. Among those that it may not have are commands and SELECT TRANSFORM, which runs a program."""

_GROUPS = frozenset(
    f"{kind}_funcs"
    for kind in (
        *("agg", "array", "bitwise", "collection", "conditional", "conversion", "csv", "datetime", "generator", "hash"),
        *("json", "lambda", "map", "math", "predicate", "string", "struct", "url", "variant", "window"),
    )
)
"""Groups of Spark's own functions that make values of values alone. Of the others `misc` has java_method, reflect and from_avro, which reads
a schema from a file if an option says so, and `xml` has from_xml, which does too.
"""
_MORE = frozenset({"typeof", "raise_error", "assert_true"})
"""Of the other groups. The last two are refused later, with their own reason."""


_PLACE = re.compile(r"line (\d+),? pos \d+")


class NotASelect(Exception):
    """What a statement has that it may not have: on which line, from 1, and what to do."""

    def __init__(self, line: int, problem: str, cure: str) -> None:
        super().__init__(f"{problem}: {cure}")
        self.line = line


def selected(spark: SparkSession, text: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """What a statement makes of these frames. It is parsed without the substitution of `${…}`, which would read settings and environment.

    No name in it gets to Spark's catalog: tables are these frames, and those that it defines by WITH; functions are Spark's own.
    Raises NotASelect.
    """
    jvm: Any = spark.sparkContext._jvm
    plans = {name.lower(): frame._jdf.queryExecution().analyzed() for name, frame in tables.items()}
    try:
        parsed = catalyst(jvm, "parser.CatalystSqlParser")().parsePlan(text)
        return frame_of(spark, _Statement(jvm, plans).over_tables(parsed))
    except AnalysisException as error:
        # Also what the parser says.
        said, place = str(error), _PLACE.search(str(error))
        first = next(line for line in said.splitlines() if line.strip()).partition(" SQLSTATE")[0]
        raise NotASelect(int(place[1]) if place else 1, first.rstrip("."), "mend it") from None


class _Statement:
    """A parsed plan, step by step from its end on; `tables` are the names that stand for something, in lower case, and their plans."""

    def __init__(self, jvm: Any, tables: Mapping[str, Any]) -> None:
        self._jvm, self._tables = jvm, tables
        self._functions = catalyst(jvm, "analysis.FunctionRegistry").builtin()
        self._subquery = java_class(jvm, "java.lang.Class").forName(
            "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
        )

    def over_tables(self, node: Any) -> Any:
        """The same plan with the tables' plans in place of their names."""
        kind = str(node.nodeName())
        if kind_of(node) == "UnresolvedWith":
            return self._with(node)
        if kind_of(node) == "UnresolvedRelation":
            return self._table(node)
        if kind not in _STEPS:
            allowed = ", ".join(dict.fromkeys(_STEPS.values()))
            cure = f"it can have {allowed}, over tables of the header"
            raise NotASelect(_line(node), f"the statement has a step {kind.removeprefix('Unresolved')}", cure)
        for each in expressions(node):
            self._check(each)
        children = [self.over_tables(child) for child in items(node.children())]
        return node.withNewChildren(seq(self._jvm, children))

    def _with(self, node: Any) -> Any:
        if node.allowRecursion():
            raise NotASelect(_line(node), "WITH RECURSIVE", "write WITH, and no table in terms of itself")
        inner = self
        for each in items(node.cteRelations()):
            # A later one may be of an earlier one.
            inner = _Statement(self._jvm, {**inner._tables, str(each._1()).lower(): inner.over_tables(each._2())})
        (child,) = items(node.children())
        return inner.over_tables(child)

    def _table(self, node: Any) -> Any:
        name = ".".join(str(each) for each in items(node.multipartIdentifier()))
        plan = self._tables.get(name.lower())
        if plan is None:
            known = ", ".join(self._tables)
            raise NotASelect(_line(node), f"the header names no table {name}", f"read one that is there: {known}")
        if node.isStreaming() or not node.options().isEmpty():
            raise NotASelect(_line(node), f"STREAM or options at {name}", "write its name alone")
        return catalyst(self._jvm, "plans.logical.SubqueryAlias")(catalyst(self._jvm, "AliasIdentifier")(name), plan)

    def _check(self, each: Any) -> None:
        kind = kind_of(each)
        if self._subquery.isInstance(each):
            raise NotASelect(_line(each), "a SELECT inside an expression", "use a lookup")
        if kind in ("NamedParameter", "PosParameter") or "UnresolvedIdentifier" in kind:
            raise NotASelect(_line(each), "a parameter, or IDENTIFIER", "write out what it stands for")
        for name in _function_names(each, kind):
            if not self._is_allowed(name):
                cure = "use functions that make values of values: of texts, numbers, times, arrays and maps"
                raise NotASelect(_line(each), f"the function {name} is not Spark's own, or does more than that", cure)

    def _is_allowed(self, name: str) -> bool:
        identifier = catalyst(self._jvm, "FunctionIdentifier")(name.lower())
        found = self._functions.lookupFunction(identifier)
        return bool(found.isDefined()) and (str(found.get().getGroup()) in _GROUPS or name.lower() in _MORE)


def _function_names(each: Any, kind: str) -> Iterator[str]:
    if kind == "UnresolvedFunction":
        yield ".".join(str(part) for part in items(each.nameParts()))
    elif kind == "UnresolvedGenerator":
        yield str(each.name().unquotedString())


def _line(node: Any) -> int:
    found = node.origin().line()
    return int(found.get()) if found.isDefined() else 1
