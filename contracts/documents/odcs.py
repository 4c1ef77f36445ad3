"""One Open Data Contract Standard 3.1 document per topic (bitol-io.github.io/open-data-contract-standard)."""

from __future__ import annotations

from typing import Any

from contracts.checks.schema_rules import kind, non_null
from contracts.definitions.catalog import Catalog
from contracts.definitions.topic import TopicContract
from contracts.documents.servers import SERVERS

_LOGICAL = {
    "string": "string",
    "uuid": "string",
    "enum": "string",
    "bytes": "string",
    "fixed": "string",
    "int": "integer",
    "long": "integer",
    "float": "number",
    "double": "number",
    "decimal": "number",
    "boolean": "boolean",
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "time-millis": "time",
    "array": "array",
    "map": "object",
    "record": "object",
}
"""Avro's type -> ODCS's logical type."""


def odcs(catalog: Catalog, topic: TopicContract) -> dict[str, Any]:
    """The document of one topic, as plain data."""
    schema = catalog.parsed_schema(topic.name)
    return {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "id": topic.name,
        "name": schema["name"],
        "version": f"{topic.name.rpartition('.v')[2]}.{topic.schema_version}.0",
        "status": "active",
        "domain": topic.name.partition(".")[0],
        "description": {"purpose": topic.description},
        "team": {"name": topic.owner},
        "servers": [{"server": name, "type": "kafka", "format": "avro", **server} for name, server in SERVERS.items()],
        "schema": [
            {
                "name": schema["name"],
                "physicalName": topic.name,
                "physicalType": "topic",
                "logicalType": "object",
                "description": schema["doc"],
                "properties": [_property(topic, field) for field in schema["fields"]],
            }
        ],
        "slaProperties": [
            {
                "property": "latency",
                "value": topic.service_levels.latency_p99_ms,
                "unit": "ms",
                "driver": "operational",
            },
            {"property": "availability", "value": topic.service_levels.availability_percent, "unit": "percent"},
            *([] if topic.compacted else [{"property": "retention", "value": topic.retention_days, "unit": "d"}]),
        ],
        "customProperties": [{"property": name, "value": value} for name, value in _custom(topic).items()],
    }


def _property(topic: TopicContract, field: dict[str, Any]) -> dict[str, Any]:
    entry = {"name": field["name"], "description": field["doc"], **_type(field["type"])}
    entry["required"] = not kind(field["type"]).endswith("?")
    if topic.lake is not None and field["name"] in topic.lake.partition_by:
        entry |= {"partitioned": True, "partitionKeyPosition": topic.lake.partition_by.index(field["name"]) + 1}
    if field["name"] in topic.personal_data:
        entry |= {"classification": "personal", "tags": ["personal-data"]}
    return entry


def _type(schema: Any) -> dict[str, Any]:
    avro = non_null(schema)
    name = kind(avro)
    entry: dict[str, Any] = {"logicalType": _LOGICAL[name], "physicalType": _physical(avro)}
    if isinstance(avro, dict) and name == "enum":
        entry["logicalTypeOptions"] = {"pattern": f"^({'|'.join(avro['symbols'])})$"}
    elif isinstance(avro, dict) and name == "array":
        entry["items"] = {"name": "item", **_type(avro["items"])}
    elif isinstance(avro, dict) and name == "record":
        entry["properties"] = [
            {"name": field["name"], "description": field["doc"], **_type(field["type"])} for field in avro["fields"]
        ]
    return entry


def _physical(avro: Any) -> str:
    """Avro's own type, with what its logical type adds: `long (timestamp-millis)`, `bytes (decimal(6,2))`."""
    if not isinstance(avro, dict):
        return str(avro)
    match avro.get("logicalType"):
        case None:
            return f"map of {kind(avro['values'])}" if avro["type"] == "map" else str(avro["type"])
        case "decimal":
            return f"{avro['type']} (decimal({avro['precision']},{avro.get('scale', 0)}))"
        case logical:
            return f"{avro['type']} ({logical})"


def _custom(topic: TopicContract) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "kafkaTopic": topic.name,
        "kafkaPartitions": topic.partitions,
        "kafkaKey": topic.key or "none",
        "eventTime": topic.occurred_at,
        "registrySubject": topic.subject,
        "compatibility": topic.compatibility,
        "producers": list(topic.producers),
        "consumers": list(topic.consumers),
        "deadLetterTopic": topic.dead_letter_topic,
        "deadLetterRetentionDays": topic.dead_letters.retention_days,
    }
    if topic.compacted:
        properties |= {"compacted": True}
    if topic.lake is not None:
        properties |= {"lakeTable": topic.lake.table, "lakeFormat": topic.lake.format}
        properties |= {"lakeHistoryDays": topic.lake.history_days}
    if topic.lands_newest:
        properties |= {"lakeRows": "newest of each key"}
    return properties
