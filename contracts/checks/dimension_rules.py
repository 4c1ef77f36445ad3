"""What a dimension's contract must keep, by itself and beside the topic that it is made of: `dimension_faults`, `followed_topics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from contracts.checks.schema_rules import field_type
from contracts.definitions.catalog import Catalog, instead
from contracts.definitions.contract_file import Problem, problem_at
from contracts.definitions.dimension import DimensionContract, Validity
from contracts.definitions.topic import TopicContract
from contracts.errors import ContractError

FOLLOWER = "dimensions"
"""The service that makes dimensions of topics, as a consumer of theirs."""

FILLED_BY = {
    "string": ("string", "enum", "uuid"),
    "int": ("int",),
    "long": ("long", "int"),
    "double": ("double", "float"),
    "boolean": ("boolean",),
    "date": ("date",),
    "timestamp": ("timestamp-millis", "timestamp-micros"),
}
"""By type of a column, those of a field, as `kind` has them, whose values it holds unchanged."""

_TIMES = ("timestamp", "date")


def dimension_faults(catalog: Catalog, dimension: DimensionContract) -> Iterator[Problem]:
    """Of the key, the columns and the validity."""
    root, path = catalog.root, catalog.dimension_file(dimension.name)
    columns = {column.name: column for column in dimension.columns}
    for name, times in Counter(dimension.key).items():
        if times > 1:
            yield problem_at(root, path, ("key",), f"key column '{name}' stands {times} times", "keep one")
        if name not in columns:
            yield problem_at(root, path, ("key",), f"there is no column '{name}'", f"use one of: {', '.join(columns)}")
        elif columns[name].nullable:
            yield problem_at(root, path, ("key",), f"key column '{name}' is nullable", "set nullable: false")
        elif columns[name].type == "timestamp":
            what = f"key column '{name}' is of type timestamp, by which nothing can be looked up"
            yield problem_at(root, path, ("key",), what, "use a text, or let rows hold for a time (valid)")
    if dimension.valid is not None:
        yield from _validity(catalog, dimension, dimension.valid)
    for what in ("name", "source"):
        for value, times in Counter(getattr(column, what) for column in dimension.columns).items():
            if times > 1:
                yield problem_at(root, path, ("columns",), f"{what} '{value}' stands {times} times", "keep one")
    if dimension.topic is not None:
        yield from _topic(catalog, dimension, dimension.topic)


def followed_topics(catalog: Catalog) -> Iterator[Problem]:
    """Topics that name the dimensions service as a consumer though no dimension is made of them."""
    followed = {dimension.topic for dimension in catalog.dimensions.values()}
    if catalog.unread_dimensions:
        return
    for name, topic in catalog.topics.items():
        if FOLLOWER in topic.consumers and name not in followed:
            what, cure = f"no dimension has 'topic: {name}'", f"take {FOLLOWER} out, or add the dimension"
            yield problem_at(catalog.root, catalog.topic_file(name), ("consumers",), what, cure)


def _topic(catalog: Catalog, dimension: DimensionContract, name: str) -> Iterator[Problem]:
    root, path = catalog.root, catalog.dimension_file(dimension.name)
    topic = catalog.topics.get(name)
    if topic is None:
        if name not in catalog.unread_topics:
            yield problem_at(root, path, ("topic",), f"there is no topic {name}", instead(name, catalog.topics))
        return
    if not topic.is_compacted:
        what = f"{dimension.name} is made of it, and it is not compacted: a key without a new record for {topic.retention_days} days would be gone"
        yield problem_at(root, catalog.topic_file(name), (), what, "add 'compacted: true'")
    if FOLLOWER not in topic.consumers:
        what = f"{dimension.name} is made of it, and {FOLLOWER} is not among them"
        yield problem_at(root, catalog.topic_file(name), ("consumers",), what, f"add {FOLLOWER}")
    # A schema that is none is told elsewhere.
    with suppress(ContractError, IndexError):
        yield from _columns(catalog, dimension, topic)


def _columns(catalog: Catalog, dimension: DimensionContract, topic: TopicContract) -> Iterator[Problem]:
    root, path = catalog.root, catalog.dimension_file(dimension.name)
    schema = catalog.parsed_schema(topic.name)
    fields = {field["name"]: field for field in schema.get("fields", ())} if isinstance(schema, dict) else {}
    for number, column in enumerate(dimension.columns):
        at = ("columns", number, "source")
        found = field_type(schema, column.source)
        if found is None:
            what = f"{topic.name} has no field '{column.source}'"
            yield problem_at(root, path, at, what, instead(column.source, fields))
        elif found.removesuffix("?") not in FILLED_BY[column.type]:
            what = f"'{column.source}' of {topic.name} is of type {found}, and column '{column.name}' is {column.type}"
            yield problem_at(root, path, at, what, "give the column the field's type")
        elif found.endswith("?") and not column.nullable:
            what = f"'{column.source}' of {topic.name} may be null, and column '{column.name}' may not"
            yield problem_at(root, path, at, what, "set nullable: true, or name another field")


def _validity(catalog: Catalog, dimension: DimensionContract, valid: Validity) -> Iterator[Problem]:
    root, path = catalog.root, catalog.dimension_file(dimension.name)
    columns = {column.name: column for column in dimension.columns}
    for key, name in (("from", valid.begins), ("until", valid.ends)):
        if name not in columns:
            yield problem_at(root, path, ("valid", key), f"there is no column '{name}'", instead(name, columns))
        elif columns[name].type not in _TIMES:
            what = f"column '{name}' is of type {columns[name].type}"
            yield problem_at(root, path, ("valid", key), what, f"use a column of type {' or '.join(_TIMES)}")
        elif name in dimension.key:
            yield problem_at(root, path, ("valid", key), f"'{name}' is in the key, too", "take it out there")
    if valid.begins in columns and columns[valid.begins].nullable:
        what = f"column '{valid.begins}' is nullable, so a row would not say when it begins"
        yield problem_at(root, path, ("valid", "from"), what, "set nullable: false")
    if {columns[name].type for name in (valid.begins, valid.ends) if name in columns} == {*_TIMES}:
        yield problem_at(
            root, path, ("valid",), "one of from and until is a timestamp, the other a date", "use one type"
        )
    if valid.begins == valid.ends:
        yield problem_at(root, path, ("valid",), "from and until are the same column", "use one for each")
