"""`new_pipeline`: a pipeline with the contract of the topic that it writes."""

from __future__ import annotations

import json
import re
from typing import Any

from contracts.checks.schema_rules import NAMING_CURE, naming_fault, type_names
from contracts.definitions.catalog import Catalog
from contracts.definitions.example import example_files
from contracts.definitions.topic import OfOneTopic, constant_of
from deploy.errors import DeployError
from deploy.new.event import record_name
from deploy.new.files import NewFiles, rendered

_CONSUMERS = re.compile(r"^consumers: \[(.*?)\](?=\s|$)", re.MULTILINE)


def new_pipeline(
    name: str, reads: str, writes: str, records: OfOneTopic, owner: str, catalog: Catalog, *, in_sql: bool = False
) -> NewFiles:
    """The written events have the fields of those that are read, or are counts by windows, until somebody changes schema and function."""
    source = catalog.topic(reads)
    if source.derivation is not None:
        raise DeployError(f"{reads} is derived itself; a pipeline reads a topic whose events have ids of their own")
    schema = catalog.parsed_schema(reads)
    if len(type_names(schema)) > 1:
        raise DeployError(
            f"the schema of {reads} has records or enums inside, whose names are taken; write the files by hand"
        )
    key = source.key or source.occurred_at
    is_aggregate, named_by = records == "aggregate", ""
    if records == "distinct":
        named_by = _naming(reads, source.key, schema, in_sql=in_sql)
    state = {"aggregate": ", late_after_minutes: 60", "distinct": f", named_by: [{named_by}], late_after_minutes: 60"}
    own = json.dumps(schema | {"name": record_name(writes)}, indent=2) + "\n"
    if is_aggregate:
        own = rendered("aggregate.avsc", record=record_name(writes), namespace=schema["namespace"])
    suffix = "sql" if in_sql else "py"
    texts = {
        f"spark/pipelines/{name}.{suffix}": rendered(
            f"pipeline_{records}.{suffix}.txt",
            name=name,
            reads=reads,
            writes=writes,
            source=source.constant,
            target=constant_of(writes),
            key=key,
            occurred_at=source.occurred_at,
            named_by=named_by,
        ),
        f"contracts/schemas/{writes}/1.avsc": own,
        f"contracts/topics/{writes}.yaml": rendered(
            "derived.yaml",
            topic=writes,
            reads=reads,
            records=records,
            name=name,
            owner=owner,
            state=state.get(records, ""),
            key="window_id" if is_aggregate else source.key_field,
            key_is="what names a group: its newest record counts" if is_aggregate else "that of the source topic",
            occurred_at="ends_at" if is_aggregate else source.occurred_at,
            partitions=source.partitions,
            personal_data="" if is_aggregate else ", ".join(source.personal_data),
        ),
    }
    if is_aggregate:
        texts[f"contracts/examples/{writes}/first.json"] = rendered("aggregate.json")
    for example in () if is_aggregate else example_files(catalog.root, reads):
        texts[f"contracts/examples/{writes}/{example.name}"] = example.read_text(encoding="utf-8")
    files = NewFiles(texts)
    path = f"contracts/topics/{reads}.yaml"
    line = _CONSUMERS.search((catalog.root / "topics" / f"{reads}.yaml").read_text(encoding="utf-8"))
    if line is None:
        raise DeployError(f"{path}: 'consumers: […]' does not stand there in one line; write it so, and try again")
    files.replace(path, line[0], f"consumers: [{', '.join(filter(None, (line[1].strip(' ,'), name)))}]")
    if records in ("some", "many"):
        condition = f"{key} != null" if records == "some" else '"true"'
        files.append("services/audit/filters.yaml", f"{writes}: {condition}\n")
    if is_aggregate:
        window = f"{{of: {source.occurred_at}, begins: begins_at, ends: ends_at}}"
        files.append("services/audit/aggregates.yaml", f"{writes}:\n  window: {window}\n  by: []\n  counts: events\n")
    return files


def _naming(reads: str, key: str | None, schema: Any, *, in_sql: bool) -> str:
    """The field that names an event, until somebody says otherwise: its key, or else the first one that can."""
    if in_sql:
        raise DeployError("no SELECT lets an event through once as long as it is remembered; leave out --sql")
    names = [*([key] if key else []), *(field["name"] for field in schema["fields"])]
    found = next((name for name in names if naming_fault(schema, name) is None), None)
    if found is None:
        raise DeployError(f"no field of {reads} can name an event: {NAMING_CURE}")
    return str(found)
