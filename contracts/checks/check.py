"""Every rule of the contract files, checked without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from fastavro.schema import UnknownType

from contracts.checks import schema_rules
from contracts.checks.compatibility import incompatibilities
from contracts.checks.dimension_rules import dimension_faults, followed_topics
from contracts.checks.pipeline_rules import check_lookups, check_pipelines
from contracts.checks.release import LIST, check_released, check_successors
from contracts.definitions.catalog import CONTRACTS, Catalog, read_catalog
from contracts.definitions.contract_file import Problem, named, problem_at
from contracts.definitions.dimension import DimensionContract
from contracts.definitions.example import example_files, fault
from contracts.definitions.pipelines import PIPELINES, declared_pipelines, pipeline_files
from contracts.definitions.topic import COMMANDS, LAKE, TopicContract
from contracts.errors import ContractError
from contracts.records.codec import NOT_AVRO

_SERVICES = CONTRACTS.parent / "services"
_ALERTS = "ALERTS_RAISED"
"""Alerting's dead letters lie with those of its alerts, of whatever topic the record is."""
_LEDGER = "DEADLETTERS_SETTLED"
_LAKE_COLUMNS = ("record_partition", "record_offset", "raw_offset")
_NEWEST_COLUMNS = (*_LAKE_COLUMNS, "record_key")
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "string", "bytes")
_PARTITION_TYPES = ("string", "enum", "uuid", "boolean", "int", "long", "date")
"""Types of which a table may be partitioned: their values have few texts, which every reader of Delta understands alike."""
# Almost every past participle ends so: ordered, sent, taken, sold. It catches `order`, `create` and `update`.
_PAST_TENSE = re.compile(r"[a-z0-9]*[dtn]|made|done|gone")


def check(
    root: Path = CONTRACTS, pipelines: Path = PIPELINES, services: Path = _SERVICES, *, for_release: bool = False
) -> list[Problem]:
    """Every broken rule of the contracts under `root`, by file; `for_release`: but for those that a release mends.

    Producers and consumers are the folders of `services`, the pipelines, `lake` and the commands of `headrace`.
    """
    catalog, problems = read_catalog(root)
    others = {LAKE, *COMMANDS, *(path.parent.name for path in services.glob("*/__init__.py"))}
    known = frozenset({*others, *pipeline_files(pipelines)})
    for topic in catalog.topics.values():
        problems += _Topic(catalog, topic, known).problems()
    faulty = catalog.unread_dimensions
    for dimension in catalog.dimensions.values():
        problems += _consumers_of(catalog, dimension, known)
        if found := list(dimension_faults(catalog, dimension)):
            faulty.add(dimension.name)
            problems += found
    declared, found = declared_pipelines(pipelines)
    problems += found
    problems += [
        Problem(each.file, 1, f"{each.name} is a service or a command already", "give file and function another name")
        for each in declared
        if each.name in others
    ]
    problems += check_pipelines(catalog, declared)
    problems += check_lookups(catalog, declared, faulty)
    problems += followed_topics(catalog)
    problems += _check_across(catalog)
    problems += _orphans(catalog)
    problems += check_released(catalog)
    if not for_release:
        problems += check_successors(catalog)
    return sorted(set(problems), key=lambda problem: (problem.file, problem.line or 0, problem.problem))


@dataclass(frozen=True, slots=True)
class _Topic:
    """One topic's own rules."""

    catalog: Catalog
    topic: TopicContract
    known: frozenset[str]

    def problems(self) -> Iterator[Problem]:
        yield from self._file_rules()
        texts = self.catalog.schemas(self.topic.name)
        schemas = []
        for version, text in enumerate(texts, 1):
            try:
                schemas.append(fastavro.parse_schema(json.loads(text)))
            except json.JSONDecodeError as error:
                yield Problem(self._schema_file(version), error.lineno, f"not readable as JSON: {error.msg}", "mend it")
            except UnknownType as error:
                name = str(error.name).rpartition(".")[2]
                lines = [number for number, said in enumerate(text.splitlines(), 1) if f'"{name}"' in said]
                line = lines[0] if len(lines) == 1 else None
                cure = f"write one of {', '.join(_PRIMITIVES)}, or a type that is written out above"
                yield Problem(self._schema_file(version), line, f"not an Avro schema: unknown type '{name}'", cure)
            except NOT_AVRO as error:
                yield Problem(self._schema_file(version), None, f"not an Avro schema: {error}", "mend it")
        if not schemas or len(schemas) < self.topic.schema_version:
            return
        yield from self._schema_rules(schemas[-1])
        yield from self._compatibility(texts)
        yield from self._examples(schemas[-1])

    def _file_rules(self) -> Iterator[Problem]:
        topic = self.topic
        if not _PAST_TENSE.fullmatch(topic.name.split(".")[1]):
            yield self._at("topic", f"'{topic.name.split('.')[1]}' is not in the past tense", "say what happened")
        if topic.schema_folder != topic.name:
            yield self._at("schema", f"'{topic.schema_file}' is not in the topic's own folder", f"use {topic.name}/")
        for key, names in (("producers", topic.producers), ("consumers", topic.consumers)):
            for name in names:
                if name not in self.known:
                    yield self._at(key, *_unknown(name, self.known))
        for raw in topic.sources:
            yield from self._derivation(raw)
        if (source := self.catalog.topics.get(str(topic.made_of))) is not None:
            if topic.is_distinct or topic.is_sequence:
                yield from self._time(source)
            if topic.is_distinct:
                yield from self._distinct(source)
        if (topic.lake is not None) != ("lake" in topic.consumers):
            cure = "name lake among the consumers just when the topic has a lake section"
            yield self._at("consumers", "consumers and lake section disagree", cure)
        yield from self._retention()
        if topic.compacted:
            yield from self._compaction()
        if topic.is_ranking:
            yield from self._ranking()
        if topic.lands_newest:
            yield from self._newest()

    def _compaction(self) -> Iterator[Problem]:
        topic = self.topic
        if topic.key is None:
            yield self._at(
                "compacted", "its records have no key of which the newest could be kept", "name a field as key"
            )
        if topic.derivation is not None:
            what = "what a pipeline makes of records is compared with them one by one, and brokers remove some"
            yield self._at(
                "compacted", what, "leave it out: of an aggregate the newest record of each key is kept anyway"
            )

    def _ranking(self) -> Iterator[Problem]:
        topic = self.topic
        if topic.key is None:
            what = "of a ranking the newest record of each place counts, and its records have no key"
            yield self._at("key", what, "name the field that has the place, which the platform fills in")
        if topic.partitions != 1:
            what = f"a ranking is one list, written in one transaction, and it has {topic.partitions} partitions"
            yield self._at("partitions", what, "set it to 1")

    def _newest(self) -> Iterator[Problem]:
        """What a table needs that has the newest record of each key."""
        topic, at, cure = self.topic, ("lake", "rows"), "or write rows: each"
        if topic.key is None:
            yield self._at(
                at, "its records have no key of which the table could have the newest", f"name a field as key, {cure}"
            )
        if not topic.is_compacted:
            what = f"brokers delete its records after {topic.retention_days} days, so a table that is filled anew would lack keys"
            yield self._at(at, what, f"add 'compacted: true', {cure}")
        if topic.lake is not None and topic.lake.partition_by:
            what = "a table with the newest record of each key is one file, and has no partitions"
            yield self._at(at, what, f"write partition_by: [], {cure}")

    def _retention(self) -> Iterator[Problem]:
        """Of dead letters and late records, each of which has its record's time; and of the ledger that tells what became of them."""
        topic, known = self.topic, self.catalog.topics
        sources = [known[raw] for raw in topic.sources if raw in known] if topic.is_stateful else []
        if topic.constant == _ALERTS:
            sources = [each for each in known.values() if set(topic.producers).intersection(each.consumers)]
        kept, longest = topic.dead_letters.retention_days, max(each.retention_days for each in (topic, *sources))
        if kept < longest:
            what = f"they are kept for {kept} days, and records for {longest}: that of an old record would be deleted at once"
            yield self._at(("dead_letters", "retention_days"), what, f"set it to {longest}")
        letters = max(each.dead_letters.retention_days for each in known.values())
        if topic.constant == _LEDGER and topic.retention_days < letters:
            what = f"entries are kept for {topic.retention_days} days, and dead letters for {letters}: one that was sent back could be sent back again"
            yield self._at("retention_days", what, f"set it to {letters}")

    def _derivation(self, raw: str) -> Iterator[Problem]:
        known = self.catalog.topics
        if raw not in known:
            yield self._at("derived_from", f"there is no topic '{raw}'", "name a topic that has a contract, or none")
        elif raw == self.topic.name or known[raw].made_of is not None:
            cure = "name the topic that the first of these records were published to"
            yield self._at("derived_from", f"'{raw}' is derived itself", cure)

    def _time(self, source: TopicContract) -> Iterator[Problem]:
        if self.topic.occurred_at != source.occurred_at:
            what = f"its events are of {self.topic.occurred_at}, and those of {source.name} of {source.occurred_at}"
            yield self._at("occurred_at", what, f"write {source.occurred_at}: an event keeps its time")

    def _distinct(self, source: TopicContract) -> Iterator[Problem]:
        """What a topic of distinct events says of them is what its source says."""
        topic, named = self.topic, ("derived_from", "named_by")
        if topic.key not in (None, source.key):
            what = (
                f"it has the key {topic.key}, and {source.name} has {source.key}: an event keeps its key, and its order"
            )
            yield self._at("key", what, f"write {source.key or 'none'}")
        try:
            schemas = [self.catalog.parsed_schema(each.name) for each in (source, topic)]
        except (ContractError, IndexError):
            # It is not readable, or not there, which is told elsewhere.
            return
        for name in topic.named_by:
            of_source, own = (schema_rules.field_type(schema, name) for schema in schemas)
            if (why := schema_rules.naming_fault(schemas[0], name)) is not None:
                yield self._at(named, f"'{name}' of {source.name} is {why}", schema_rules.NAMING_CURE)
            elif own != of_source:
                what = f"'{name}' is {'not in the schema' if own is None else f'of type {own}'}, in {source.name} it is of type {of_source}"
                yield self._at(
                    named, what, "carry it on as it is, so that whoever reads the topic can tell events apart"
                )

    def _schema_rules(self, schema: Any) -> Iterator[Problem]:
        topic = self.topic
        for what, cure in schema_rules.faults(schema):
            yield Problem(self._schema_file(topic.schema_version), None, what, cure)
        fields: list[tuple[tuple[str, ...], str]] = [(("occurred_at",), topic.occurred_at)]
        fields += [(("key",), topic.key)] if topic.key else []
        fields += [(("personal_data",), name) for name in topic.personal_data]
        fields += [(("lake", "partition_by"), name) for name in (topic.lake.partition_by if topic.lake else ())]
        for key, name in fields:
            if schema_rules.field_type(schema, name) is None:
                yield self._at(key, f"the schema has no field '{name}'", "name a field of the schema")
        yield from self._lake_names(schema) if topic.lake else ()
        for name in topic.lake.partition_by if topic.lake else ():
            found = schema_rules.field_type(schema, name)
            if found is not None and found.removesuffix("?") not in _PARTITION_TYPES:
                cure = f"use a field of type {', '.join(_PARTITION_TYPES)}"
                yield self._at(("lake", "partition_by"), f"'{name}' is of type {found}, which makes no folder", cure)
        keys, what = (("int",), "number") if topic.is_ranking else (("string", "uuid"), "text")
        if topic.key and schema_rules.field_type(schema, topic.key) not in (None, *keys):
            yield self._at("key", f"'{topic.key}' is not a required {what}", f"use a field of type {' or '.join(keys)}")
        if schema_rules.field_type(schema, topic.occurred_at) not in (None, "timestamp-millis"):
            yield self._at(
                "occurred_at", f"'{topic.occurred_at}' is no instant", "use a required timestamp-millis field"
            )

    def _lake_names(self, schema: Any) -> Iterator[Problem]:
        """Columns of the table that say where a row comes from, and which revision it is."""
        for name in _NEWEST_COLUMNS if self.topic.lands_newest else _LAKE_COLUMNS:
            if schema_rules.field_type(schema, name) is not None:
                yield self._at("lake", f"the table has a column '{name}' of its own", "give the field another name")
        own = schema_rules.field_type(schema, "coordinate")
        if own not in (None, "string", "string?") or (own is not None and self.topic.made_of is not None):
            what = "the table has a column 'coordinate' with the raw record's place"
            yield self._at("lake", what, "give the field another name")
        if schema_rules.field_type(schema, "revision") not in (None, "int", "int?"):
            yield self._at(
                "lake", "'revision' is not an int, by which the table counts corrections", "give the field another name"
            )

    def _compatibility(self, texts: list[str]) -> Iterator[Problem]:
        for version in range(2, len(texts) + 1):
            for found in incompatibilities(texts[:version], self.topic.compatibility):
                cure = f"make it {self.topic.compatibility}-compatible, or start a new major version of the topic"
                yield Problem(self._schema_file(version), None, str(found), cure)

    def _examples(self, schema: Any) -> Iterator[Problem]:
        files = list(example_files(self.catalog.root, self.topic.name))
        if not files:
            folder = named(self.catalog.root, self.catalog.root / "examples" / self.topic.name)
            yield Problem(folder, None, "there is no example", "add one event as a .json file")
        for path in files:
            text = fault(path, schema)
            if text is not None:
                yield Problem(named(self.catalog.root, path), None, text, "mend the example")

    def _at(self, key: str | tuple[str, ...], problem: str, cure: str) -> Problem:
        location = (key,) if isinstance(key, str) else key
        return problem_at(self.catalog.root, self.catalog.topic_file(self.topic.name), location, problem, cure)

    def _schema_file(self, version: int) -> str:
        folder = self.topic.schema_folder
        return named(self.catalog.root, self.catalog.root / "schemas" / folder / f"{version}.avsc")


def _unknown(name: str, known: frozenset[str]) -> tuple[str, str]:
    """Problem and cure."""
    return (
        f"there is no deployable '{name}'",
        f"use one of {', '.join(sorted(known))}, or make services/{name}/__init__.py or spark/pipelines/{name}.py",
    )


def _consumers_of(catalog: Catalog, dimension: DimensionContract, known: frozenset[str]) -> Iterator[Problem]:
    for name in dimension.consumers:
        if name not in known:
            path = catalog.dimension_file(dimension.name)
            yield problem_at(catalog.root, path, ("consumers",), *_unknown(name, known))


def _check_across(catalog: Catalog) -> Iterator[Problem]:
    """What must be unique among all contracts."""
    tables = [(topic.lake.table, topic.name) for topic in catalog.topics.values() if topic.lake]
    types = [(name, topic) for topic in catalog.topics for name in _type_names(catalog, topic)]
    sources = [(each.source, each.name) for each in catalog.dimensions.values() if each.source is not None]
    locations = [(each.location, each.name) for each in catalog.dimensions.values()]
    for folder, what, pairs in (
        ("topics", "lake table", tables),
        ("topics", "type name", types),
        ("dimensions", "source", sources),
        ("dimensions", "location", locations),
    ):
        owner: dict[str, str] = {}
        for name, contract in pairs:
            if owner.setdefault(name, contract) != contract:
                file = named(catalog.root, catalog.root / folder / f"{contract}.yaml")
                yield Problem(file, None, f"{what} '{name}' belongs to {owner[name]}", "choose another")


def _type_names(catalog: Catalog, topic: str) -> list[str]:
    if not catalog.schemas(topic):
        return []
    try:
        return schema_rules.type_names(json.loads(catalog.schema(topic)))
    except json.JSONDecodeError:
        return []


def _orphans(catalog: Catalog) -> Iterator[Problem]:
    """Schema and example files that belong to no topic."""
    root = catalog.root
    # What belongs to a topic file that cannot be read is no orphan.
    unread = catalog.unread_topics
    current = {topic.schema_folder: topic.schema_version for topic in catalog.topics.values()}
    orphans = []
    for path in (root / "schemas").glob("*/*"):
        versions = current.get(path.parent.name, 0)
        if path.name not in {LIST if versions else "", *(f"{number}.avsc" for number in range(1, versions + 1))}:
            orphans.append(path)
    for path in (root / "examples").glob("*/*"):
        if path.parent.name not in catalog.topics or path.suffix != ".json":
            orphans.append(path)
    for path in orphans:
        if path.parent.name not in unread:
            yield Problem(named(root, path), None, "no topic uses this file", "name it in a topic file, or remove it")
