"""`headrace tail` and `headrace trace` on a real stack, over topics and tables that a test has filled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.errors import ConsumeError
from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from deploy.errors import DeployError
from deploy.local.servers.stack import LocalStack
from deploy.records.tail import Start, tail
from deploy.records.trace import Step, Trace, lines
from services.alerting.rules.condition import Condition
from tests.audit.way import ALERTS, DERIVED, HEAVY, RAW, Way

DELAYS = "parcels.dispatched.delays.v1"


@pytest.fixture(scope="module")
def registry(stack: LocalStack) -> Iterator[Registry]:
    with Registry(stack.settings().registry) as client:
        yield client


@pytest.fixture
def way(stack: LocalStack, registry: Registry, tmp_path: Path) -> Iterator[Way]:
    with Way(stack, registry, tmp_path, more=[HEAVY, DELAYS]) as made:
        yield made


@pytest.fixture
def trace(way: Way, registry: Registry) -> Trace:
    return Trace(way.settings, way.catalog, registry, lambda text: None)


def _offsets(way: Way, start: Start, where: str | None = None) -> list[int]:
    condition = None if where is None else Condition(where)
    found = tail(way.settings, way.name(RAW), start, condition, follow=False)
    return sorted(line.message.offset() or 0 for line in found)


def _steps(trace: Trace, coordinate: str) -> list[Step]:
    found = Coordinate.parse(coordinate)
    assert found is not None
    return trace.steps(found)


def _table(way: Way, topic: str) -> str:
    lake = way.catalog.topic(topic).lake
    assert lake is not None
    return f"lake/{lake.table}"


def test_a_tail_begins_where_it_is_told_to_and_ends_at_the_end(way: Way) -> None:
    parcels = way.dispatch(5)
    assert _offsets(way, Start()) == [0, 1, 2, 3, 4]
    assert _offsets(way, Start(before_end=2)) == [3, 4]
    assert _offsets(way, Start(before_end=0)) == []
    assert _offsets(way, Start(since=parcels[0].sent_at)) == [0, 1, 2, 3, 4]
    assert _offsets(way, Start(at=(0, 3))) == [3, 4]
    assert _offsets(way, Start(), "late_minutes >= 60") == [4]


def test_what_can_not_be_decoded_is_told_and_nothing_of_it_is_obeyed(way: Way) -> None:
    (parcel,) = way.dispatch(1)
    way.send(RAW, [type(parcel)(0, "\x1b[2J", {}, "id\u202e", body=b"\x1b]0;x\x07")])
    good, bad = tail(way.settings, way.name(RAW), Start(), None, follow=False)
    assert good.event is not None
    assert good.event["parcel_id"] == parcel.key
    assert good.text(headers=False).startswith(f"{parcel.sent_at:%Y-%m-%dT%H:%M}")
    said = bad.text(headers=True)
    assert "WrongMagic: the first byte is 0x1b" in said
    assert "\\x1b[2J" in said
    assert "    ce_id = id\\u202e" in said
    assert not any(character in said for character in "\x1b\x07\u202e")
    assert '"value_hex": "1b5d303b7807"' in bad.json()


def test_a_topic_that_is_not_there_is_told(way: Way) -> None:
    with pytest.raises(ConsumeError, match="there is no topic nobodys"):
        next(tail(way.settings, "nobodys", Start(), None, follow=False))


def test_an_event_is_followed_from_any_of_its_records_and_by_its_key(way: Way, trace: Trace) -> None:
    parcels = way.dispatch(5, weight_grams=2500)
    derived = way.run(parcels)
    way.derive(way.far(parcels), HEAVY)
    late = parcels[4]
    raw = way.at(0, late.offset)
    expected = [
        ("raw record", raw),
        ("row", _table(way, RAW)),
        ("derived record", way.at(0, derived[4].offset, DERIVED)),
        ("row", _table(way, DERIVED)),
        ("derived record", way.at(0, 4, HEAVY)),
        ("alert", way.at(0, 0, ALERTS)),
    ]
    for start in (raw, way.at(0, derived[4].offset, DERIVED)):
        assert sorted((step.hop, step.place) for step in _steps(trace, start)) == sorted(expected)
    assert trace.coordinates_of(late.key) == [Coordinate.parse(raw)]
    assert trace.coordinates_of("nobody") == []
    first, *others = lines(_steps(trace, raw), 120)
    assert first.startswith(f"raw record      {late.sent_at:%Y-%m-%dT%H:%M}")
    assert all(len(line) <= 120 for line in (first, *others))


def test_a_dead_letter_is_part_of_the_way(way: Way, trace: Trace) -> None:
    (parcel,) = way.dispatch(1)
    way.set_aside(parcel)
    letter = next(step for step in _steps(trace, way.at(0, 0)) if step.hop == "dead letter")
    assert letter.what == "by dispatches_enriched: planted"


def test_a_late_record_is_part_of_the_way(way: Way, trace: Trace) -> None:
    (parcel,) = way.dispatch(1)
    way.set_aside(parcel, by="delays_by_origin", on=DELAYS)
    late = next(step for step in _steps(trace, way.at(0, 0)) if step.hop == "late record")
    assert late.what == "by delays_by_origin: planted"


def test_a_record_that_is_not_there_is_told(way: Way, trace: Trace) -> None:
    way.dispatch(1)
    with pytest.raises(DeployError, match="There is no record .*/0/7: it was deleted, or never was"):
        _steps(trace, way.at(0, 7))
    with pytest.raises(DeployError, match="There is no contract of a topic nobodys"):
        _steps(trace, "nobodys/0/0")
