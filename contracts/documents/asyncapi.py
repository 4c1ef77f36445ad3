"""One AsyncAPI 3.0 document of all topics (www.asyncapi.com/docs/reference/specification/v3.0.0)."""

from __future__ import annotations

import json
from typing import Any

from contracts.definitions.catalog import Catalog
from contracts.definitions.example import example_files
from contracts.definitions.topic import TopicContract
from contracts.documents.servers import SERVERS

_TEXT = {"type": "string"}
_EVENT_HEADERS = {
    "type": "object",
    "required": ["ce_id", "ce_type", "ce_source", "ce_time", "ce_specversion", "content-type"],
    "properties": {
        "ce_id": {"type": "string", "description": "Identity of the event; a repeat has the same."},
        "ce_type": {"type": "string", "description": "The topic's name."},
        "ce_source": {"type": "string", "description": "The deployable that sent it, e.g. /services/alerting."},
        "ce_time": {"type": "string", "format": "date-time", "description": "Event time, UTC."},
        "ce_specversion": {"type": "string", "const": "1.0"},
        "content-type": {"type": "string", "const": "application/avro"},
        "ce_causationid": {"type": "string", "description": "On a derived event: ce_id of the event it derives from."},
        "ce_parts": {
            "type": "string",
            "description": "On one of several events that derive from one: how many these are. The last number in ce_id, from 0 on, tells which one it is.",
        },
        "ce_redrivenfrom": {
            "type": "string",
            "description": "On a record that was sent back after a fix: topic/partition/offset of its dead letter.",
        },
        "traceparent": {"type": "string", "description": "W3C trace context, passed through untouched."},
    },
}
_DEAD_LETTER_HEADERS = {
    "type": "object",
    "description": "The record's original headers, and these.",
    "properties": {
        "ce_id": {"type": "string", "description": "topic/partition/offset of the record."},
        **{
            f"__connect.errors.{name}": _TEXT
            for name in (
                "topic",
                "partition",
                "offset",
                "connector.name",
                "stage",
                "exception.class.name",
                "exception.message",
            )
        },
    },
}


def asyncapi(catalog: Catalog) -> dict[str, Any]:
    """The document, as plain data."""
    topics = sorted(catalog.topics.values(), key=lambda topic: topic.name)
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages: dict[str, Any] = {}
    for topic in topics:
        key = topic.constant.lower()
        channels[key] = _channel(topic, key)
        channels[f"{key}_dead_letters"] = _dead_letter_channel(topic)
        messages[key] = _message(catalog, topic)
        for action, names in (("send", topic.producers), ("receive", topic.consumers)):
            for name in names:
                operations[f"{name}_{action}_{key}"] = _operation(action, name, key)
    messages["dead_letter"] = {
        "name": "DeadLetter",
        "title": "A record that could not be handled",
        "summary": "The original bytes, with the reason in the headers.",
        "contentType": "application/octet-stream",
        "headers": _DEAD_LETTER_HEADERS,
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Headrace",
            # Demanded by the standard; what has versions here is each topic, in its name.
            "version": "1.0.0",
            "description": "Every topic, who sends to it and who receives from it. Generated from the contracts.",
        },
        "defaultContentType": "application/avro",
        "servers": {name: {"protocol": "kafka", **server} for name, server in SERVERS.items()},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages},
    }


def _channel(topic: TopicContract, key: str) -> dict[str, Any]:
    binding = _binding(topic.name, topic.partitions, topic.retention_days)
    if topic.compacted:
        binding["topicConfiguration"] = {"cleanup.policy": ["compact"]}
    return {
        "address": topic.name,
        "description": topic.description,
        "messages": {"event": {"$ref": f"#/components/messages/{key}"}},
        "tags": [{"name": f"owner:{topic.owner}"}],
        "bindings": {"kafka": binding},
    }


def _dead_letter_channel(topic: TopicContract) -> dict[str, Any]:
    return {
        "address": topic.dead_letter_topic,
        "description": f"Records of {topic.name} that could not be handled.",
        "messages": {"dead_letter": {"$ref": "#/components/messages/dead_letter"}},
        "tags": [{"name": f"owner:{topic.owner}"}],
        "bindings": {"kafka": _binding(topic.dead_letter_topic, 1, topic.dead_letters.retention_days)},
    }


def _binding(name: str, partitions: int, retention_days: int) -> dict[str, Any]:
    return {
        "topic": name,
        "partitions": partitions,
        "topicConfiguration": {"retention.ms": retention_days * 86_400_000},
        "bindingVersion": "0.5.0",
    }


def _operation(action: str, deployable: str, key: str) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{key}"},
        "messages": [{"$ref": f"#/channels/{key}/messages/event"}],
        "tags": [{"name": f"deployable:{deployable}"}],
    }


def _message(catalog: Catalog, topic: TopicContract) -> dict[str, Any]:
    schema = catalog.parsed_schema(topic.name)
    kafka: dict[str, Any] = {"schemaIdLocation": "payload", "schemaIdPayloadEncoding": "confluent"}
    if topic.key is not None:
        kafka["key"] = {"type": "string", "description": f"The text of the field {topic.key}."}
    return {
        "name": schema["name"],
        "title": schema["doc"],
        "contentType": "application/avro",
        "headers": _EVENT_HEADERS,
        "payload": {"schemaFormat": "application/vnd.apache.avro+json;version=1.9.0", "schema": schema},
        "bindings": {"kafka": kafka | {"bindingVersion": "0.5.0"}},
        "examples": [
            {"name": path.stem, "payload": json.loads(path.read_text(encoding="utf-8"))}
            for path in example_files(catalog.root, topic.name)
        ],
    }
