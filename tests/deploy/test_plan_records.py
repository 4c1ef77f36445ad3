"""`headrace plan --records` on a real stack: records that are there, read and made anew with contracts and a pipeline that changed."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from deploy.records.tail import Start, decoded, messages
from services.audit.sources.broker import Broker
from tests.deploy.clone import Clone
from tests.producers import ordered

AT = "2026-01-01T12:00:00Z"


def edited(path: Path, *, add: Mapping[str, Any] | None = None, **kinds: Any) -> None:
    """A schema with other types of its fields, and one more."""
    schema = json.loads(path.read_text())
    for field in schema["fields"]:
        if field["name"] in kinds:
            field["type"] = kinds[field["name"]]
            field.pop("default", None)
    schema["fields"] = [each for each in schema["fields"] if add is None or each["name"] != add["name"]]
    schema["fields"] += [] if add is None else [add]
    path.write_text(json.dumps(schema))


@pytest.mark.long
def test_what_a_change_makes_of_the_records_that_are_there(clone: Clone, stack: LocalStack, tmp_path: Path) -> None:
    domain = f"g{uuid.uuid4().hex[:8]}"
    raw, derived, pipeline = f"{domain}.assigned.v1", f"{domain}.assigned.rated.v1", f"{domain}_rated"
    schemas, topics = clone.root / "contracts" / "schemas", clone.root / "contracts" / "topics"
    code = clone.root / "spark" / "pipelines" / f"{pipeline}.py"
    env, settings = stack.settings_env(), stack.settings()
    kafka = settings.kafka.client_config()

    # The first version of the contracts, and records by it.
    clone.headrace("new", "event", raw)
    clone.headrace("new", "pipeline", pipeline, "--reads", raw, "--writes", derived)
    rating = {"name": "rating", "type": ["null", "double"], "default": None, "doc": "Twice the amount, without unit."}
    edited(schemas / derived / "1.avsc", add=rating)
    clone.headrace("contracts", "generate")
    clone.headrace("topics", "create", env=env)
    clone.headrace("contracts", "register", env=env)
    events = tmp_path / "events.jsonl"
    amounts = (1.5, 0.0, None, 7.0)
    events.write_text("\n".join(json.dumps({"id": "one-key", "occurred_at": AT, "amount": each}) for each in amounts))
    clone.headrace("send", raw, str(events), env=env)
    ends = Broker(kafka).ends(raw)
    (partition,) = (each for each, end in ends.items() if end)
    producer = ordered({**kafka, "linger.ms": 0})
    producer.produce(raw, key=b"one-key", value=b"junk", partition=partition)
    with Registry(settings.registry) as registry:
        codec, schema_id = Codec(registry.by_id), registry.latest(f"{derived}-value").id
        read = Codec(registry.by_id)
        values = [each.event for each in _records(settings, raw, read)]
        for offset, event in enumerate(values[:3]):  # the fourth is not handled yet
            rating_now = None if event["amount"] is None else event["amount"] * 2
            producer.produce(
                derived,
                key=b"one-key",
                value=codec.encode(schema_id, {**event, "rating": rating_now}),
                headers=[("ce_id", f"{raw}/{partition}/{offset}".encode())],
            )
        assert producer.flush(30) == 0
        producer.close()

        # The second version, which the branch begins with: a field with a default, and the computed one.
        gate = {"name": "gate", "type": "string", "default": "A1", "doc": "Where."}
        (schemas / raw / "2.avsc").write_text((schemas / raw / "1.avsc").read_text())
        edited(schemas / raw / "2.avsc", add=gate)
        topic = topics / f"{raw}.yaml"
        topic.write_text(topic.read_text().replace(f"{raw}/1.avsc", f"{raw}/2.avsc"))
        text = code.read_text().replace(
            "import DataFrame\n", "import DataFrame\nfrom pyspark.sql import functions as F\n"
        )
        code.write_text(text.replace("return events", 'return events.withColumn("rating", F.col("amount") * 2)'))
        git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
        for command in (["init", "-q"], ["add", "contracts", "spark"], ["commit", "-q", "-m", "before"]):
            subprocess.run([*git, *command], cwd=clone.root, check=True)
        said = clone.headrace("plan", "--records", env=env)
        assert "no topic and no pipeline has changed that is there already" in said

        # What is to be reviewed.
        edited(schemas / raw / "2.avsc", add={**gate, "default": "B2"}, amount="double")
        code.write_text(code.read_text().replace("* 2", "* 3"))
        groups_before, before = _state(settings, kafka, registry, raw, derived)
        told = json.loads(clone.headrace("plan", "--records", "--json", env=env))
        assert told["changes"][0]["weight"] == "breaking"
        decoded, made = told["retained"]
        assert (decoded["topic"], decoded["pipeline"], decoded["records"]) == (raw, None, 5)
        assert _outcomes(decoded) == {
            ("changed", ""): (3, None, None),
            ("field", "gate"): (3, "A1", "B2"),
            ("dead letter", "Unresolvable"): (1, None, decoded["outcomes"][2]["after"]),
            ("still a dead letter", "ForeignBody"): (1, None, "the body is text"),
        }
        assert decoded["outcomes"][2]["coordinate"] == f"{raw}/{partition}/2"
        assert (made["topic"], made["pipeline"], made["records"], made["problem"]) == (derived, pipeline, 5, None)
        assert {each: found[:2] for each, found in _outcomes(made).items()} == {
            ("same", ""): (1, None),
            ("changed", ""): (1, None),
            ("field", "rating"): (1, 3.0),
            ("dead letter", "Undecodable"): (1, None),
            ("dead letter", "WrongMagic"): (1, None),
            ("not handled yet", ""): (1, None),
        }
        assert _outcomes(made)["field", "rating"][2] == 4.5
        newest = clone.headrace("plan", "--records", "--most", "1", "--markdown", env=env)
        assert f"| `{raw}` | 1 records decoded with the new schema; 4 older offsets not looked at |" in newest
        assert f"| `{pipeline} → {derived}` | 1 records made anew; 4 older offsets not looked at |" in newest
        groups_after, after = _state(settings, kafka, registry, raw, derived)
        assert after == before
        # Brokers forget those of other tests meanwhile.
        assert groups_after <= groups_before


def _outcomes(found: Mapping[str, Any]) -> dict[tuple[str, str], tuple[int, Any, Any]]:
    return {(each["what"], each["name"]): (each["count"], each["before"], each["after"]) for each in found["outcomes"]}


def _records(settings: Any, topic: str, codec: Codec) -> list[Any]:
    return [line for each in messages(settings, topic, Start()) if (line := decoded(codec, each)).event is not None]


def _state(settings: Any, kafka: dict[str, str], registry: Registry, *topics: str) -> tuple[set[str], Any]:
    """All that a command could have written: groups; records and schemas."""
    admin = AdminClient({**kafka, "log_level": 0})
    names = sorted(admin.list_topics(timeout=30).topics)
    groups = {each.group_id for each in admin.list_consumer_groups().result().valid}
    ends = [Broker(kafka).ends(each) for topic in topics for each in (topic, f"{topic}.dlq")]
    return groups, (names, ends, [registry.versions(f"{topic}-value") for topic in topics])
