"""The audit of groups of two topics: clean whatever happened to the pipeline, and not where something is planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.records.dead_letter_headers import dead_letter_headers
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from deploy.records.trace import Trace
from services.audit.audit import Audit
from services.audit.declared.aggregates import load_aggregates
from services.audit.errors import CouldNotAudit
from services.audit.hops.hop import HOPS, Hop
from services.audit.state import KEY
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.producers import ordered
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import DISPATCHED, LOST, Topics
from tests.spark.live_query import events
from tests.spark.unions.losses import LOSSES, Losses, Parcel

_A_CENTURY = 100 * 365 * 24 * 60
"""In minutes: such an event is from the future."""
_EXACT = "groups counted again"
_BEFORE = "groups with records of before, looked at for losses only"


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    names = (DISPATCHED, LOST, *load_aggregates(sample.AGGREGATES, catalog), *PLATFORM)
    with Topics(settings, catalog, registry, names=names) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Losses:
    return Losses(spark, settings, registry, topics)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.AGGREGATES, aggregates_file=sample.AGGREGATES)


def test_whatever_happened_to_the_pipeline_it_is_clean(query: Losses, auditor: Auditor) -> None:
    query.parcels(Parcel("NTH", 7, 5), Parcel("NTH", 8, None), Parcel("STH", 9, 1), Parcel("EST", 9, None))
    assert noted(auditor(), "not counted, for losses_by_origin has never run here") == 4
    query.take_in()
    query.parcels(Parcel("NTH", 600, 1))
    junk = {query.junk(DISPATCHED), query.junk(LOST, partition=1)}
    query.parcels(Parcel("NTH", _A_CENTURY, None), partition=1)
    query.take_in()
    # The watermark is 480 minutes: one of each topic is late for all its windows, one of each for some.
    query.parcels(*[Parcel(origin, at, delay) for origin, at in (("NTH", 20), ("STH", 450)) for delay in (3, None)])
    with pytest.raises(CouldNotAudit, match="losses_by_origin has not reached the cut"):
        auditor()
    query.take_in()
    report = auditor()
    assert report.findings == []
    assert (noted(report, "late"), noted(report, "dead letters")) == (4, 3)
    # Each group twice, once for each topic.
    assert noted(report, _EXACT) == 2 * len(query.newest())
    letters = [
        each
        for topic in (DISPATCHED, LOST)
        for each in query.set_aside(query.topics.catalog.topic(topic).dead_letter_topic)
    ]
    assert junk < {*letters}

    query.forget_commit()
    query.take_in()
    assert auditor().findings == []
    query.remove(query.files())
    with pytest.raises(CouldNotAudit, match="the state of losses_by_origin has not reached the cut"):
        auditor()
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    again = auditor()
    assert again.findings == [], "in one batch nothing is late"
    assert noted(again, "that were late before a rebuild, which may have counted them") == 4


def test_trace_tells_that_a_record_of_the_second_topic_came_too_late(
    query: Losses, settings: SparkSettings, registry: Registry
) -> None:
    query.parcels(Parcel("NTH", 600, 1))
    query.take_in()
    query.parcels(Parcel("NTH", 0, None))
    query.take_in()
    trace = Trace(settings, query.topics.catalog, registry, lambda _: None)
    (late,) = query.late_ones()
    coordinate = Coordinate.parse(late)
    assert coordinate is not None
    steps = trace.steps(coordinate)
    assert [step.hop for step in steps] == ["raw record", "late record"]
    assert "its windows that end from 2013-01-01T10:15:00Z to 2013-01-01T11:00:00Z are over" in steps[1].what


def test_an_audit_since_the_last_one_looks_at_what_came_of_either_topic(
    query: Losses, auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.parcels(Parcel("NTH", 0, 1), Parcel("NTH", 1, None), Parcel("STH", 2, None))
    query.take_in()
    # No lake has been filled.
    monkeypatch.setattr(Audit, "_landed", lambda self: [])
    try:
        first = auditor(*HOPS)
        assert (first.findings, noted(first, _EXACT)) == ([], 16)
        query.parcels(Parcel("NTH", 2, None), Parcel("EST", 130, None))
        query.take_in()
        second = auditor(*HOPS, full=False)
        assert (second.findings, second.since) == ([], first.cut_at)
        # Of EST all is known of either topic; of NTH's four windows one loss more.
        assert (noted(second, _EXACT), noted(second, _BEFORE)) == (8, 4)
    finally:
        s3_client(auditor.settings.s3).delete_object(Bucket=auditor.settings.s3.bucket, Key=KEY)


def test_what_is_planted_of_either_topic_is_found(query: Losses, auditor: Auditor, registry: Registry) -> None:
    query.parcels(*[Parcel(origin, 7, delay) for origin in ("NTH", "STH") for delay in (5, 6, None, None)])
    query.parcels(Parcel("EST", 7, None))
    # Of these there will be letters, though they are counted.
    query.parcels(Parcel("WST", 7, 5), Parcel("WST", 7, None))
    query.take_in()
    assert auditor().findings == []
    contract, begin = query.topics.catalog.topic(LOSSES), "2013-01-01T{}:00Z"
    newest = {event["window_id"]: (event, headers, message) for event, headers, message in events(query.topics, LOSSES)}
    codec, schema_id = Codec(registry.by_id), query.topics.schema_ids[LOSSES]
    producer = ordered(auditor.settings.kafka.client_config())
    run = (next(iter(newest.values()))[1]["ce_id"] or b"").decode().split("/")[-2]

    def plant(like: str, *, key: str = "", **fields: Any) -> str:
        """One more record of a group, behind the others."""
        event, _, message = newest[like]
        key, sent, partition = key or like, [], message.partition() or 0
        producer.produce(
            contract.name,
            codec.encode(schema_id, event | fields),
            key,
            partition=partition,
            headers=[("ce_id", f"{key}/{run}/7".encode())],
            on_delivery=lambda _, made: sent.append(f"{contract.name}/{partition}/{made.offset()}"),
        )
        assert producer.flush(30) == 0
        found: list[str] = sent
        return found[0]

    windows = [begin.format(at) for at in ("09:15", "09:30", "09:45", "10:00")]
    planted = {
        ("lost", plant(f"NTH/{windows[0]}", dispatches=1)),
        ("doubled", plant(f"NTH/{windows[1]}", dispatches=3)),
        ("lost", plant(f"NTH/{windows[2]}", losses=1)),
        ("doubled", plant(f"NTH/{windows[3]}", losses=3)),
        # One for the other, though together they are as many.
        *((kind, at) for at in [plant(f"STH/{windows[0]}", dispatches=1, losses=3)] for kind in ("lost", "doubled")),
        ("phantom", plant(f"EST/{windows[0]}", dispatches=1)),
        ("phantom", plant(f"EST/{windows[1]}", key="X/0", window_id="X/0", origin="X", dispatches=0, losses=0)),
    }
    for topic, offset in ((DISPATCHED, 4), (LOST, 5), (LOST, 99)):
        coordinate = f"{query.names[topic]}/0/{offset}"
        raw = query.topics.read(query.names[topic])[min(offset, 5)]
        headers: Any = dead_letter_headers(
            [("ce_id", b"1")], query.names[topic], query.pipeline.name, "VALUE", "Late", "late", coordinate
        )
        producer.produce(str(contract.late_topic), raw.value(), raw.key(), 0, headers=headers)
    producer.produce(str(contract.late_topic), b"junk", b"key", 0, headers=[("ce_id", b"1")])
    assert producer.flush(30) == 0
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    letters = {("set aside", f"{query.names[DISPATCHED]}/0/4"), ("set aside", f"{query.names[LOST]}/0/5")}
    letters |= {("phantom", f"{query.names[LOST]}/0/99"), ("phantom", f"{contract.late_topic}/0/3")}
    of_letters = {("phantom", _at(message)) for key, (_, _, message) in newest.items() if key.startswith("WST/")}
    assert found == planted | letters | of_letters


def _at(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


def test_a_group_that_is_lost_is_told_of_each_topic_that_has_records_in_it(query: Losses, auditor: Auditor) -> None:
    whole = query.pipeline.function
    query.with_function(lambda dispatches, losses: whole(dispatches, losses.where("origin != 'EST'")))
    query.parcels(Parcel("NTH", 7, 5), Parcel("EST", 7, None), Parcel("EST", 8, None))
    query.take_in()
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    assert found == {("lost", f"{query.names[LOST]}/0/0")}
    query.parcels(Parcel("EST", 9, 5))
    query.take_in()
    found = {(each.kind, each.coordinate.split("/")[0]) for each in auditor().findings}
    assert found == {("lost", query.topics.catalog.topic(LOSSES).name)}, "of the groups that count none of two"
