"""Records that nobody can read, and more of them than there should be."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence

from confluent_kafka import KafkaError, KafkaException, Message

from contracts.definitions.catalog import load_catalog
from contracts.records.codec import Codec
from contracts.records.dead_letter_headers import ERRORS
from contracts.servers.registry import Registry
from tests.faults.fault import Shown, fault
from tests.faults.stage.beside import events
from tests.faults.stage.cast import PIPELINE
from tests.faults.stage.load import CLAIMED, ODD_SHARES, TABLE
from tests.faults.stage.load import RAW as _RAW
from tests.faults.stage.positions import TARGET
from tests.faults.stage.stage import Stage
from tests.fuzz.records import DIFFERENT, ids, odd_records
from tests.raw_records import RawRecord, Refusal, send_raw
from tests.system.verify import header, records

IDS = ids(*CLAIMED)
"""Of records that the odd ones claim to come of."""
_NOBODYS_ID = 2_000_000_000
_MAX_BYTES = 1_000_000
"""A little less than Kafka lets a record be by default."""

_A_STRIKE = 25_000
MORE_MEMORY = 1.5
"""Than under ordinary load, at most."""
_LARGEST_BATCH = 1_048_588
"""Bytes that Kafka lets a batch have by default."""


@fault(
    "Records of every kind that a client can send: bodies, keys, headers, timestamps and sizes by chance.", seconds=600
)
def poison_records(stage: Stage, chance: random.Random) -> Shown:
    stage.burst()
    ends = stage.positions.broker.ends(_RAW)
    stage.wait("live to have taken in what is usual", lambda: stage.positions.reached(ends, PIPELINE, _RAW))
    # One that another fault has just ended takes little until it works.
    written = stage.positions.broker.ends(TARGET)
    stage.wait("lake to have taken it in, too", lambda: stage.positions.has_landed(TABLE, TARGET, written))
    usual, supervised = dict(stage.peaks), len(stage.supervised)
    sent = Counter[str]()
    before = _dead_letters(stage)
    kinds = _kinds(stage, chance)
    for value in kinds.values():
        _send(stage, [value], headers=[])
    for topic, share in ODD_SHARES.items():
        sent.update(send_odd(stage, topic, round(share * stage.strikes * _A_STRIKE), chance)[1])
    ends = stage.positions.broker.ends(_RAW)
    stage.wait("live to have taken them in", lambda: stage.positions.reached(ends, PIPELINE, _RAW), 600)
    stage.wait("a dead letter of each kind", lambda: _dead_letters(stage) >= before + len(kinds), 60)
    if stage.supervised[supervised:]:
        raise AssertionError(f"a process has ended: {'; '.join(stage.supervised[supervised:])}")
    for name in ("lake", "alerting"):
        if stage.peaks[name] > MORE_MEMORY * usual[name]:
            raise AssertionError(f"{name} took {stage.peaks[name]:,} bytes, where {usual[name]:,} are usual")
    taken = sent.pop("", 0)
    refused = ", ".join(f"{count} {name}" for name, count in sent.most_common())
    return Shown(
        taken,
        f"odd records, {_dead_letters(stage) - before} of them dead letters of live; the broker refused {refused}",
    )


@fault("Records with a schema id that the registry has never given.")
def unknown_schema_id(stage: Stage, chance: random.Random) -> Shown:
    return Shown(send_unknown_schema_id(stage, count=20), "records sent")


def send_unknown_schema_id(stage: Stage, *, count: int) -> int:
    """Send records of a schema id that nobody knows; returns how many the brokers have."""
    return _send(stage, [_NOBODYS_ID.to_bytes(5, "big") + b"\x02x"] * count, headers=[])


def send_odd(stage: Stage, topic: str, count: int, chance: random.Random) -> tuple[set[str], Counter[str]]:
    """Send so many odd records. The coordinates of those that the brokers took, and how many they refused, by reason, "" for none."""
    settings, catalog = stage.stack.settings(), load_catalog()
    with Registry(settings.registry) as registry:
        own = {each.id: each.schema for each in registry.versions(catalog.topic(topic).subject)}
        others = [registry.latest(other.subject).id for other in catalog.topics.values() if other.name != topic]
    records = odd_records(
        own, others, _LARGEST_BATCH, chance.getrandbits(32), (IDS, PIPELINE.encode()), min(count, DIFFERENT)
    )
    by_partition: dict[int, list[RawRecord]] = {}
    for record in itertools.islice(records, count):
        by_partition.setdefault(chance.randrange(catalog.topic(topic).partitions), []).append(record)
    outcomes = {partition: send_raw(settings.kafka, topic, partition, some) for partition, some in by_partition.items()}
    each = [(partition, outcome) for partition, some in outcomes.items() for outcome in some]
    return (
        {f"{topic}/{partition}/{outcome}" for partition, outcome in each if not isinstance(outcome, Refusal)},
        Counter(outcome if isinstance(outcome, Refusal) else "" for _, outcome in each),
    )


def _dead_letters(stage: Stage) -> int:
    letters = records(stage.stack.settings(), f"{_RAW}.dlq")
    return sum(header(letter, f"{ERRORS}connector.name") == PIPELINE for letter in letters)


def _kinds(stage: Stage, chance: random.Random) -> dict[str, bytes | None]:
    """Bad values of every kind."""
    with Registry(stage.stack.settings().registry) as registry:
        schema_id = registry.latest(f"{_RAW}-value").id
        nested = registry.register("nested-value", _nested_schema(100))
        codec = Codec({schema_id: load_catalog().schema(_RAW)}.__getitem__)
    prefix = schema_id.to_bytes(5, "big")
    whole = codec.encode(schema_id, vars(next(events())))
    return {
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
        "text": b'{"parcel_id": "not Avro"}',
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
