"""`new_pipeline`: a pipeline with the contract of the topic that it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from contracts.checks.schema_rules import NAMING_CURE, field_type, naming_fault, type_names
from contracts.definitions.catalog import Catalog
from contracts.definitions.example import example_files
from contracts.definitions.topic import Records, TopicContract, constant_of
from deploy.errors import DeployError
from deploy.new.event import record_name
from deploy.new.files import NewFiles, rendered

_CONSUMERS = re.compile(r"^consumers: \[(.*?)\](?=\s|$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Written:
    """The topic that is written: by default, events with the fields of those that are read."""

    schema: str
    examples: dict[str, str]
    key: str
    occurred_at: str
    key_is: str = "that of the source topic"
    personal_data: tuple[str, ...] = ()
    derivation: str = ""
    """What stands in `derived_from` behind the kind."""
    template: str | None = None
    """That of the pipeline; by default the one of its kind."""
    names: dict[str, str] = field(default_factory=dict)
    """What the pipeline's template asks for beside the names of topics and fields."""
    audited: tuple[str, str] | None = None
    """What the audit has to be told, and the file."""
    partitions: int | None = None
    """By default as many as those of the source."""


def new_pipeline(
    name: str,
    reads: str,
    writes: str,
    records: Records,
    owner: str,
    catalog: Catalog,
    *,
    joined_with: str | None = None,
    united_with: str | None = None,
    in_sql: bool = False,
) -> NewFiles:
    """The written events have the fields of those that are read, or are counts, until somebody changes schema and function.

    `joined_with`: the second topic of a join, `united_with`: of an aggregate. Raises DeployError.
    """
    if records == "distinct" and in_sql:
        raise DeployError("no SELECT lets an event through once as long as it is remembered; leave out --sql")
    if records == "sequence" and in_sql:
        raise DeployError("what is remembered is said by a function in Python; leave out --sql")
    if united_with is not None and in_sql:
        raise DeployError("no SELECT unites two topics; leave out --sql")
    for option, second in (("joined", joined_with), ("united", united_with)):
        if second == reads:
            raise DeployError(f"two topics are {option}, and --{option}-with is {reads}, too")
    sources = [_source(each, catalog) for each in (reads, joined_with, united_with) if each is not None]
    source, schema = sources[0], catalog.parsed_schema(reads)
    if len(type_names(schema)) > 1:
        raise DeployError(
            f"the schema of {reads} has records or enums inside, whose names are taken; write the files by hand"
        )
    written = _written(writes, records, sources, catalog)
    suffix = "sql" if in_sql else "py"
    files = NewFiles(
        {
            f"spark/pipelines/{name}.{suffix}": rendered(
                f"pipeline_{written.template or records}.{suffix}.txt",
                name=name,
                reads=reads,
                writes=writes,
                source=source.constant,
                target=constant_of(writes),
                key=source.key or source.occurred_at,
                occurred_at=source.occurred_at,
                **written.names,
            ),
            f"contracts/schemas/{writes}/1.avsc": written.schema,
            f"contracts/topics/{writes}.yaml": rendered(
                "derived.yaml",
                topic=writes,
                reads=reads,
                records=records,
                name=name,
                owner=owner,
                derivation=written.derivation,
                key=written.key,
                key_is=written.key_is,
                occurred_at=written.occurred_at,
                partitions=written.partitions or source.partitions,
                personal_data=", ".join(written.personal_data),
            ),
            **{f"contracts/examples/{writes}/{example}": text for example, text in written.examples.items()},
        }
    )
    for each in sources:
        _add_consumer(name, each.name, catalog, files)
    if written.audited is not None:
        files.append(*written.audited)
    return files


def _source(topic: str, catalog: Catalog) -> TopicContract:
    found = catalog.topic(topic)
    if found.derivation is not None:
        raise DeployError(f"{topic} is derived itself; a pipeline reads a topic whose events have ids of their own")
    return found


def _add_consumer(name: str, topic: str, catalog: Catalog, files: NewFiles) -> None:
    path = f"contracts/topics/{topic}.yaml"
    line = _CONSUMERS.search(catalog.topic_file(topic).read_text(encoding="utf-8"))
    if line is None:
        raise DeployError(f"{path}: 'consumers: […]' does not stand there in one line; write it so, and try again")
    files.replace(path, line[0], f"consumers: [{', '.join(filter(None, (line[1].strip(' ,'), name)))}]")


def _written(writes: str, records: Records, sources: list[TopicContract], catalog: Catalog) -> _Written:
    source, schema = sources[0], catalog.parsed_schema(sources[0].name)
    if records == "aggregate":
        counted = _aggregate(writes, source, schema)
        return counted if len(sources) == 1 else _with_others(counted, sources[1])
    examples = {path.name: path.read_text(encoding="utf-8") for path in example_files(catalog.root, source.name)}
    if records == "join":
        return _join(writes, source, sources[1], examples, catalog)
    if records == "sequence":
        return _sequence(writes, source, schema, examples)
    if records == "ranking":
        return _ranking(writes, source, schema, examples)
    derivation, names, audited = "", dict[str, str](), None
    if records == "distinct":
        named_by = _naming(source, schema)
        derivation, names = f", named_by: [{named_by}], late_after_minutes: 60", {"named_by": named_by}
    if records in ("some", "many"):
        condition = f"{source.key or source.occurred_at} != null" if records == "some" else '"true"'
        audited = ("services/audit/filters.yaml", f"{writes}: {condition}\n")
    return _Written(
        _text(schema | {"name": record_name(writes)}),
        examples,
        source.key_field,
        source.occurred_at,
        personal_data=tuple(source.personal_data),
        derivation=derivation,
        names=names,
        audited=audited,
    )


def _sequence(writes: str, source: TopicContract, schema: Any, examples: dict[str, str]) -> _Written:
    """By the key of the source, with the number of an event among those of its key as a field more."""
    name = "event_number"
    if source.key is None:
        raise DeployError(
            f"{source.name} has no key to remember events by; write the files by hand: docs/guides/sequence.md"
        )
    if name in (each["name"] for each in schema["fields"]):
        raise DeployError(f"{source.name} has a field {name} already; write the files by hand: docs/guides/sequence.md")
    doc = f"How many events of its {source.key} were remembered, this one included, without unit."
    added = {"name": name, "type": "long", "doc": doc}
    return _Written(
        _text(schema | {"name": record_name(writes), "fields": [*schema["fields"], added]}),
        {file: _text(json.loads(text) | {name: 1}) for file, text in examples.items()},
        source.key_field,
        source.occurred_at,
        key_is="the field that events are remembered by, or none",
        personal_data=tuple(source.personal_data),
        derivation=", late_after_minutes: 60",
        names={"of": source.key},
    )


def _aggregate(writes: str, source: TopicContract, schema: Any) -> _Written:
    window = f"{{of: {source.occurred_at}, begins: begins_at, ends: ends_at}}"
    return _Written(
        rendered("aggregate.avsc", record=record_name(writes), namespace=schema["namespace"]),
        {"first.json": rendered("aggregate.json")},
        "window_id",
        "ends_at",
        key_is="what names a group: its newest record counts",
        derivation=", late_after_minutes: 60",
        audited=("services/audit/aggregates.yaml", f"{writes}:\n  window: {window}\n  by: []\n  counts: events\n"),
    )


def _with_others(written: _Written, other: TopicContract) -> _Written:
    """An aggregate that counts the records of a second topic, too."""
    assert written.audited is not None
    file, told = written.audited
    made, example = json.loads(written.schema), json.loads(written.examples["first.json"])
    added = {"name": "others", "type": "long", "doc": f"Events of {other.name} in the window, without unit."}
    *fields, is_final = made["fields"]
    return replace(
        written,
        schema=_text(made | {"fields": [*fields, added, is_final]}),
        examples={"first.json": _text(example | {"others": 0})},
        derivation=f", united_with: {other.name}{written.derivation}",
        template="union",
        names={"other": other.name, "other_source": other.constant, "other_at": other.occurred_at},
        audited=(file, f"{told}  united: {{of: {other.occurred_at}, counts: others}}\n"),
    )


def _ranking(writes: str, source: TopicContract, schema: Any, examples: dict[str, str]) -> _Written:
    """Of the values of the source's key, those with the most events."""
    by = source.key
    if by is None:
        raise DeployError(
            f"{source.name} has no key whose values could be ranked; write the files by hand: docs/guides/ranking.md"
        )
    (key,) = [each for each in schema["fields"] if each["name"] == by]
    instant = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [
        {"name": "place", "type": "int", "doc": "Place in the list, from 1 on; filled in by the platform."},
        key,
        {"name": "events", "type": "long", "doc": f"Events of this {by}, without unit."},
        {"name": "last_event_at", "type": instant, "doc": "When the newest of them occurred, instant in UTC."},
    ]
    told = {"place": 1, "events": 1}
    return _Written(
        _text(schema | {"name": record_name(writes), "doc": "Say in a sentence what is ranked.", "fields": fields}),
        {
            file: _text(told | {by: json.loads(text)[by], "last_event_at": json.loads(text)[source.occurred_at]})
            for file, text in [*examples.items()][:1]
        },
        "place",
        "last_event_at",
        key_is="the place: its newest record counts",
        personal_data=tuple({by}.intersection(source.personal_data)),
        derivation=", places: 10",
        names={"by": by},
        partitions=1,
        audited=("services/audit/rankings.yaml", f"{writes}:\n  by: [{by}]\n  counts: events\n"),
    )


def _join(
    writes: str, source: TopicContract, other: TopicContract, examples: dict[str, str], catalog: Catalog
) -> _Written:
    """By a field of the same name in both, with the time of the other event as a field more."""
    schema, others = (catalog.parsed_schema(each.name) for each in (source, other))
    names = [each["name"] for each in schema["fields"]]
    by = next(
        (
            each
            for each in _naming_fields(source, schema)
            if each not in (source.occurred_at, other.occurred_at)
            and field_type(others, each) == field_type(schema, each)
        ),
        None,
    )
    if by is None:
        raise DeployError(
            f"{source.name} and {other.name} have no field in common to be joined by: a join needs one that is never null, has no default, and is "
            "of the same type in both. Write the files by hand: docs/guides/join.md"
        )
    joined_at, joined_by = f"joined_{other.occurred_at}", f"joined_{by}"
    if taken := {joined_at, joined_by} & set(names):
        raise DeployError(f"{source.name} has a field {min(taken)} already; write the files by hand")
    (time,) = [each["type"] for each in others["fields"] if each["name"] == other.occurred_at]
    added = {
        "name": joined_at,
        "type": ["null", time],
        "default": None,
        "doc": f"{other.occurred_at} of the event of {other.name}, instant in UTC; null if none came within an hour.",
    }
    audited = (
        f"{writes}:\n  how: left_outer\n  equal: {{{by}: {by}}}\n  apart: {{least_minutes: 0, most_minutes: 60}}\n"
        f"  first: {{fields: [{', '.join(names)}]}}\n  second: {{fields: {{{joined_at}: {other.occurred_at}}}}}\n"
    )
    return _Written(
        _text(schema | {"name": record_name(writes), "fields": [*schema["fields"], added]}),
        {name: _text(json.loads(text) | {joined_at: None}) for name, text in examples.items()},
        source.key_field,
        source.occurred_at,
        personal_data=tuple(source.personal_data),
        derivation=f", joined_with: {other.name}, late_after_minutes: 60",
        names={
            "other": other.name,
            "other_source": other.constant,
            "by": by,
            "joined_by": joined_by,
            "other_at": other.occurred_at,
            "joined_at": joined_at,
        },
        audited=("services/audit/joins.yaml", audited),
    )


def _text(parsed: Any) -> str:
    return json.dumps(parsed, indent=2) + "\n"


def _naming(source: TopicContract, schema: Any) -> str:
    """The field that names an event, until somebody says otherwise."""
    found = next(_naming_fields(source, schema), None)
    if found is None:
        raise DeployError(f"no field of {source.name} can name an event: {NAMING_CURE}")
    return found


def _naming_fields(source: TopicContract, schema: Any) -> Iterator[str]:
    """The fields that can name an event, the key first."""
    names = [*([source.key] if source.key else []), *(each["name"] for each in schema["fields"])]
    return (name for name in names if naming_fault(schema, name) is None)
