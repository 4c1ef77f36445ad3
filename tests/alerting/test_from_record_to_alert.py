"""The alerting service on the real stack: what becomes of records."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from datetime import timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Message

from contracts.dead_letters.letter import DeadLetter
from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.subscriber import Record as Received
from deploy.local.servers.stack import LocalStack
from services.alerting.rules.evaluate import evaluate
from services.alerting.rules.record import Record
from services.alerting.rules.rulebook import load_rulebook
from tests import sample
from tests.alerting.examples import AT
from tests.alerting.rules.test_rulebook import VALID
from tests.alerting.worker import (
    Worker,
    alerts_of,
    committed,
    producer,
    publish_readings,
    read_all,
    settings_of,
    tiny,
    wait_for,
)
from tests.contracts.gateway import a_gateway
from tests.contracts.wire import register_protobuf
from tests.raw_records import NO_TEXT, RawRecord, send_raw
from tests.sample import topics
from tests.sample.events import AlertRaised, DepotObserved

pytestmark = pytest.mark.system

READINGS = topics.DEPOTS_OBSERVED.name
DEAD_LETTERS = "alerts.raised.v1.dlq"


def a_reading(station: str, **changes: Any) -> DepotObserved:
    """A storm with blasts of 46 mph."""
    fields: dict[str, Any] = {
        "station": station,
        "observed_at": AT,
        "temperature_fahrenheit": 41.0,
        "dew_point_fahrenheit": 30.0,
        "relative_humidity_percent": 60.0,
        "wind_direction_degrees": 270,
        "wind_speed_mph": 30.0,
        "wind_peak_mph": 46.0,
        "precipitation_inches": Decimal("0.00"),
        "pressure_millibars": 1012.0,
        "visibility_miles": 10.0,
    }
    return DepotObserved.model_validate(fields | changes)


def a_station() -> str:
    """A station that no other test has."""
    return f"T{uuid4().hex[:8]}"


def oracle(placed: dict[str, DepotObserved]) -> dict[UUID, AlertRaised]:
    """The alerts of these readings by the shipped rules, by id."""
    rules = load_rulebook(sample.RULES, sample.catalog()).by_topic[READINGS]
    return {
        alert.alert_id: alert
        for coordinate, reading in placed.items()
        for alert in evaluate(rules, Record(READINGS, coordinate, reading.observed_at, vars(reading)))
    }


def of(found: list[Received[AlertRaised]], placed: dict[str, DepotObserved]) -> dict[UUID, AlertRaised]:
    """Those alerts that go back to these readings, by id."""
    return {record.event.alert_id: record.event for record in found if record.event.coordinate in placed}


def test_a_record_over_a_threshold_raises_its_alert(stack: LocalStack) -> None:
    traceparent = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    station = a_station()
    readings = [a_reading(station, wind_peak_mph=None), a_reading(station), a_reading(station, visibility_miles=0.25)]
    placed = publish_readings(stack, readings, {"traceparent": traceparent})
    with Worker(stack):
        found = alerts_of(stack, placed, count=3)
    assert of(found, placed) == oracle(placed)
    mine = [record for record in found if record.event.coordinate in placed]
    assert {dict(record.headers)["traceparent"] for record in mine} == {traceparent}
    assert all(record.event_id == str(record.event.alert_id) for record in mine)


def test_a_poison_record_becomes_a_dead_letter_and_the_next_goes_on(stack: LocalStack) -> None:
    settings, mark = settings_of(stack), uuid4().bytes
    with Registry(settings.registry) as registry:
        schema_id = registry.latest(f"{READINGS}-value").id
        good = Codec(registry.by_id).encode(schema_id, vars(a_reading(a_station())))
        foreign = json.loads(registry.by_id(schema_id)) | {"doc": mark.hex()}
        foreign_id = registry.register(f"trials.{mark.hex()}.v1-value", json.dumps(foreign))
    protobuf_id = register_protobuf(stack.registry.url, f"trials.protobuf.{mark.hex()}.v1-value")
    poison = {
        b"empty" + mark: (b"", "Truncated"),
        b"tombstone" + mark: (None, "Truncated"),
        b"one byte" + mark: (b"\x00", "Truncated"),
        b"cut" + mark: (good[:-4], "Truncated"),
        b"longer" + mark: (good + b"\x00", "TrailingBytes"),
        b"text" + mark: (b'{"station": "NTH"}', "ForeignBody"),
        b"magic" + mark: (b"\x07" + good[1:], "WrongMagic"),
        b"unknown id" + mark: (struct.pack(">bI", 0, 2**31 - 1) + good[5:], "UnknownSchemaId"),
        b"of another subject" + mark: (struct.pack(">bI", 0, foreign_id) + good[5:], "UnknownSchemaId"),
        b"protobuf" + mark: (struct.pack(">bI", 0, protobuf_id) + good[5:], "UnknownSchemaId"),
    }
    sender = producer(stack)
    for key, (value, _) in poison.items():
        sender.produce(READINGS, value, key, partition=0, headers=[("ce_id", b"theirs"), ("ce_id", b"twice")])
    sender.produce(READINGS, good, b"good" + mark, partition=0)
    assert sender.flush(30) == 0

    with Worker(stack) as worker:
        wait_for(lambda: _letters(stack, mark).keys() == poison.keys(), "the dead letters")
        letters = _letters(stack, mark)
        coordinate = f"{READINGS}/0/{max(int(letter['__connect.errors.offset']) for _, letter in letters.values()) + 1}"
        alerts_of(stack, [coordinate])
        wait_for(lambda: committed(stack, READINGS, 0) >= _offset(coordinate), "the position beyond")
        assert worker.metric(f'headrace_alerting_dead_letters_total{{reason="WrongMagic",topic="{READINGS}"}}') == 1

    for key, (value, reason) in poison.items():
        body, headers = letters[key]
        assert (body or None) == (value or None)
        assert headers["__connect.errors.exception.class.name"] == reason.encode()
        assert headers["__connect.errors.topic"] == READINGS.encode()
        assert headers["__connect.errors.connector.name"] == b"alerting"
        assert headers["ce_causationid"] == b"twice"


def test_a_registry_that_refuses_makes_it_unhealthy_and_no_record_is_given_up(stack: LocalStack) -> None:
    with a_gateway(stack.registry.url) as gateway, Worker(stack, HEADRACE_REGISTRY__URL=gateway.url) as worker:
        gateway.fail(403)
        placed = publish_readings(stack, [a_reading(a_station())])
        wait_for(lambda: worker.health() == 503, "the worker to be unhealthy")

        def is_told() -> bool:
            lines = worker.logged("waiting for the schema registry")
            return any("403: the credentials" in str(line["error"]) for line in lines)

        wait_for(is_told, "the reason")
        gateway.heal()
        alerts_of(stack, placed)
        assert worker.health() == 200


def test_a_header_name_that_is_no_text_stops_nothing(stack: LocalStack) -> None:
    settings, mark = settings_of(stack), uuid4().bytes
    with Registry(settings.registry) as registry:
        schema_id = registry.latest(f"{READINGS}-value").id
        good = Codec(registry.by_id).encode(schema_id, vars(a_reading(a_station())))
    headers = ((NO_TEXT, b"x"), (b"traceparent", b"00-1-2-01"))
    bare = [RawRecord(mark, value, headers) for value in (good, b"bad")]
    read, _ = send_raw(settings.kafka, READINGS, 0, bare)
    with Worker(stack):
        found = alerts_of(stack, [f"{READINGS}/0/{read}"])
        wait_for(lambda: _letters(stack, mark), "the dead letter")
    assert {
        dict(record.headers)["traceparent"] for record in found if record.event.coordinate.endswith(f"/{read}")
    } == {b"00-1-2-01"}
    assert _letters(stack, mark)[mark][1]["caf\N{REPLACEMENT CHARACTER}"] == b"x"


def test_a_record_of_any_size_raises_its_alerts_or_is_a_dead_letter_or_leaves_its_stump(stack: LocalStack) -> None:
    settings = settings_of(stack)
    with Registry(settings.registry) as registry:
        schema_id, codec = registry.latest(f"{READINGS}-value").id, Codec(registry.by_id, max_bytes=1 << 30)
        large, larger, largest, small = (
            codec.encode(schema_id, vars(a_reading(a_station() + "x" * size)))
            for size in (880_000, 920_000, 20_000_000, 0)
        )
    trace = ((b"traceparent", b"x" * 850_000),)
    records = [RawRecord(None, large), RawRecord(None, larger), RawRecord(None, largest), RawRecord(None, small, trace)]
    places = [
        f"{READINGS}/0/{offset}"
        for record in records
        for offset in send_raw(settings.kafka, READINGS, 0, [record], compression="lz4")
    ]
    with Worker(stack) as worker:
        found = alerts_of(stack, places[3:])
        wait_for(lambda: committed(stack, READINGS, 0) > _offset(places[3]), "the position beyond")
        assert worker.health() == 200
    assert {dict(record.headers).get("traceparent") for record in found if record.event.coordinate == places[3]} == {
        None
    }
    letters = {str(letter.origin): letter for letter in map(DeadLetter.of, read_all(stack, DEAD_LETTERS))}
    of_alert, of_record, stump = (letters[place] for place in places[:3])
    assert [letter.reason for letter in (of_alert, of_record, stump)] == ["TooLong"] * 3
    assert [letter.value for letter in (of_alert, of_record, stump)] == [large, larger, None]
    assert "the alert's texts have" in str(of_alert.error)
    assert (stump.stump_bytes, stump.value_sha256) == (len(largest), hashlib.sha256(largest).hexdigest())


def _letters(stack: LocalStack, mark: bytes) -> dict[bytes, tuple[bytes | None, dict[str, bytes]]]:
    """Body and headers of the dead letters whose key ends in `mark`, by key."""
    letters = {}
    for message in read_all(stack, DEAD_LETTERS):
        key, headers = message.key(), message.headers()
        if isinstance(key, bytes) and key.endswith(mark):
            letters[key] = (message.value(), dict(headers or []))
    return letters  # type: ignore[return-value]


def test_records_of_open_and_aborted_transactions_raise_nothing(stack: LocalStack) -> None:
    station = a_station()
    with Registry(settings_of(stack).registry) as registry:
        schema_id = registry.latest(f"{READINGS}-value").id
        body = Codec(registry.by_id).encode(schema_id, vars(a_reading(station)))
    places: dict[str, list[str]] = {"aborted": [], "committed": [], "open": []}
    sender = producer(stack, **{"transactional.id": f"test-{uuid4()}", "transaction.timeout.ms": "240000"})
    sender.init_transactions(30)
    for fate in ("aborted", "committed", "aborted", "committed", "open"):
        sender.begin_transaction()
        sender.produce(READINGS, body, partition=1, on_delivery=partial(_place, places[fate]))
        sender.flush(30)
        if fate == "aborted":
            sender.abort_transaction(30)
        elif fate == "committed":
            sender.commit_transaction(30)
    beside, plain, last = list[str](), producer(stack), _offset(places["committed"][-1])
    with Worker(stack):
        try:
            alerts_of(stack, places["committed"])
            # The markers between the records are offsets without a record: the position gets past them.
            wait_for(lambda: committed(stack, READINGS, 1) > last, "the position beyond the markers")
            plain.produce(READINGS, body, partition=0, on_delivery=partial(_place, beside))
            plain.flush(30)
            raised = {record.event.coordinate for record in alerts_of(stack, beside)}
            assert not raised & {*places["aborted"], *places["open"]}
        finally:
            sender.commit_transaction(30)
        alerts_of(stack, places["open"])


def _place(places: list[str], _: object, message: Message) -> None:
    places.append(f"{message.topic()}/{message.partition()}/{message.offset()}")


def _offset(coordinate: str) -> int:
    return int(coordinate.rpartition("/")[2])


def put(path: Path, text: str) -> None:
    """At once: the worker may look at any moment."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def test_changed_rules_are_in_force_without_a_restart_and_invalid_ones_are_refused(
    stack: LocalStack, tmp_path: Path
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(VALID.replace("threshold: 40", "threshold: 60"), encoding="utf-8")
    station = a_station()
    with Worker(stack, HEADRACE_RULES_FILE=path) as worker:
        below = publish_readings(stack, [a_reading(station)])
        above = publish_readings(stack, [a_reading(station, wind_peak_mph=61.0)])
        alerts_of(stack, above)

        put(path, VALID)
        wait_for(lambda: len(worker.logged("rules in force")) == 2, "the new rules")
        after = publish_readings(stack, [a_reading(station)])
        alerts_of(stack, after)

        put(path, VALID.replace("critical", "urgent"))
        refused = "rules file refused, the rules before it stay in force: mend it"
        wait_for(lambda: worker.logged(refused), "the refusal")
        still = publish_readings(stack, [a_reading(station)])
        found = alerts_of(stack, still)
        assert worker.metric("headrace_alerting_reload_failures_total") == 1
        [line] = worker.logged(refused)
        assert line["level"] == "error"
        assert "rules.yaml:10: rule strong_wind: severity" in line["problems"][0]
    assert of(found, below) == {}
    versions = {record.event.coordinate: record.event.rule_version for record in found}
    assert versions[next(iter(after))] == versions[next(iter(still))] != versions[next(iter(above))]


def test_killed_and_restarted_it_raises_the_same_set_of_alerts(stack: LocalStack) -> None:
    station = a_station()
    readings = (
        a_reading(station, observed_at=AT + timedelta(hours=hour), wind_peak_mph=30.0 + hour % 20)
        for hour in range(8_000)
    )
    placed = publish_readings(stack, readings)
    expected = oracle(placed)
    assert len(expected) == 4_000
    for count in (1, 1_500, 3_000):
        with Worker(stack) as worker:
            alerts_of(stack, placed, count)
            worker.kill()
    with Worker(stack):
        found = alerts_of(stack, placed, len(expected))
    assert of(found, placed) == expected


def test_a_dead_letter_that_cannot_be_delivered_stops_it_and_nothing_is_committed(stack: LocalStack) -> None:
    sender, places = producer(stack), list[str]()
    with Worker(stack) as worker, tiny(stack, DEAD_LETTERS):
        sender.produce(READINGS, b"\x07" + os.urandom(2_000), partition=0, on_delivery=partial(_place, places))
        sender.flush(30)
        assert worker.wait() == 1
        assert worker.logged("alerting stops: it can't go on")
    assert committed(stack, READINGS, 0) <= _offset(places[0])
    # With the dead letters writable again, the record is handled.
    with Worker(stack):
        wait_for(lambda: committed(stack, READINGS, 0) > _offset(places[0]), "the position beyond the record")
