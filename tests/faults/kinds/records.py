"""Records that nobody can read, and more of them than there should be."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message

from contracts import topics
from contracts.catalog import load_catalog
from contracts.codec import Codec
from contracts.dead_letters.headers import ERRORS
from contracts.registry import Registry
from tests.bare_headers import NAME, send_bare
from tests.faults.fault import Shown, fault
from tests.faults.load import departures
from tests.faults.stage import Stage
from tests.system.verify import header, records

_RAW = topics.FLIGHTS_DEPARTED.name
_NOBODYS_ID = 2_000_000_000
_MAX_BYTES = 1_000_000
"""A little less than Kafka lets a record be by default."""


@fault("Records that can't be read, of every kind, among the good ones.")
def poison_records(stage: Stage, chance: random.Random) -> Shown:
    whole, kinds = _kinds(stage, chance)
    before = _dead_letters(stage)
    for value in kinds.values():
        _send(stage, [value], headers=[])
    # Their values are good: neither headers that hold no UTF-8 nor bytes after the end are a reason to set them aside.
    _send(stage, [whole], headers=[("ce_id", b"\xff\xfe"), ("traceparent", b"\xc3\x28"), ("ce_source", None)])
    _send(stage, [whole + b"\x00" * 7], headers=[])
    # Nor is a header's name.
    kafka = stage.stack.settings().kafka
    send_bare(kafka, _RAW, 0, b"bare", whole, [(NAME, b"x"), (b"ce_time", b"\xff")])
    send_bare(kafka, _RAW, 0, b"bare", b"neither", [(NAME, None)])
    refused = _refused(stage, chance.randbytes(10 << 20))
    stage.wait("a dead letter of each", lambda: _dead_letters(stage) >= before + len(kinds) + 1, 60)
    return Shown(
        _dead_letters(stage) - before, f"dead letters of live; the broker refused a record of 10 MB: {refused}"
    )


@fault("Records with a schema id that the registry has never given.")
def unknown_schema_id(stage: Stage, chance: random.Random) -> Shown:
    return Shown(send_unknown_schema_id(stage, count=20), "records sent")


def send_unknown_schema_id(stage: Stage, *, count: int) -> int:
    """Send records of a schema id that nobody knows; returns how many the brokers have."""
    return _send(stage, [_NOBODYS_ID.to_bytes(5, "big") + b"\x02x"] * count, headers=[])


def _dead_letters(stage: Stage) -> int:
    letters = records(stage.stack.settings(), f"{_RAW}.dlq")
    return sum(header(letter, f"{ERRORS}connector.name") == "live" for letter in letters)


def _kinds(stage: Stage, chance: random.Random) -> tuple[bytes, dict[str, bytes | None]]:
    """A good value, and bad ones of every kind."""
    with Registry(stage.stack.settings().registry) as registry:
        schema_id = registry.latest(f"{_RAW}-value").id
        nested = registry.register("nested-value", _nested_schema(100))
        codec = Codec({schema_id: load_catalog().schema(_RAW)}.__getitem__)
    prefix = schema_id.to_bytes(5, "big")
    whole = codec.encode(schema_id, vars(next(departures())))
    return whole, {
        "tombstone": None,
        "empty": b"",
        "one byte": b"\x00",
        "header alone": prefix,
        "wrong magic": b"\x01" + whole[1:],
        "truncated": whole[: chance.randint(6, len(whole) - 1)],
        "random": chance.randbytes(chance.randint(6, 400)),
        "random behind a header": prefix + chance.randbytes(200),
        "as large as may be": prefix + chance.randbytes(_MAX_BYTES),
        "a string of 2 GiB, it says": prefix + b"\xfe\xff\xff\xff\x0f" + b"x" * 20,
        "a string that is no UTF-8": whole[:6] + b"\xff\xfe" + whole[8:],
        "nested a hundred deep": nested.to_bytes(5, "big") + b"\x02x",
        "text": b'{"flight_id": "not Avro"}',
    }


def _nested_schema(depth: int) -> str:
    kind: object = "string"
    for level in range(depth):
        kind = {"type": "record", "name": f"Level{level}", "fields": [{"name": "inner", "type": kind}]}
    return json.dumps(kind)


def _send(stage: Stage, values: Sequence[bytes | None], headers: list[tuple[str, str | bytes | None]]) -> int:
    """To the brokers directly, past the contract; raises what they refuse."""
    failures: list[KafkaError] = []

    def delivered(failure: KafkaError | None, message: Message) -> None:
        if failure is not None:
            failures.append(failure)

    producer = stage.producer()
    for number, value in enumerate(values):
        producer.produce(_RAW, value, f"poison{number}", headers=headers, on_delivery=delivered)
    left = producer.flush(60)
    producer.close()
    if failures:
        raise KafkaException(failures[0])
    return len(values) - left


def _refused(stage: Stage, value: bytes) -> str:
    try:
        _send(stage, [value], headers=[])
    except KafkaException as refusal:
        return str(refusal.args[0].name())
    raise AssertionError("the broker took a record of 10 MB")
