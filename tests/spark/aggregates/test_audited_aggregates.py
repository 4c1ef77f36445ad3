"""The audit of what the real pipeline counts: clean whatever happened to it, and not where something is planted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.records.codec import Codec
from contracts.records.dead_letter_headers import dead_letter_headers
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from services.audit.audit import Audit
from services.audit.declared.aggregates import load_aggregates
from services.audit.errors import CouldNotAudit
from services.audit.followers import Followers
from services.audit.hops.hop import HOPS, Hop
from services.audit.sources.broker import Broker
from services.audit.sources.state_position import state_position
from services.audit.state import KEY
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.producers import ordered
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.final_delays_by_origin import final_delays_by_origin
from tests.spark.aggregates.test_stateful import DELAYS, FIRST, SECOND, Query, overlapping
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import DISPATCHED, LOST, Topics
from tests.spark.live_query import events

_A_CENTURY = 100 * 365 * 24 * 60
"""In minutes: such an event is from the future."""
_EXACT = "groups counted again"
_BOUNDS = "groups counted again within bounds, for records came meanwhile or may have been set aside"
_BEFORE = "groups with records of before, looked at for losses only"


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(
        settings, catalog, registry, names=(DISPATCHED, LOST, *load_aggregates(sample.AGGREGATES, catalog), *PLATFORM)
    ) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Query:
    return Query(spark, settings, registry, topics)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.AGGREGATES, aggregates_file=sample.AGGREGATES)


def test_whatever_happened_to_the_pipeline_it_is_clean(query: Query, auditor: Auditor) -> None:
    query.send(*FIRST)
    assert noted(auditor(), "not counted, for delays_by_origin has never run here") == len(FIRST)
    query.take_in()
    query.send(("NTH", 300, 1), ("STH", 290, 2))
    query.topics.send(b"junk", partition=1)
    query.send(("NTH", _A_CENTURY, 1), partition=1)
    query.take_in()
    query.send(("NTH", 3, 9), ("NTH", 179, 9), ("NTH", 180, 9), partition=1)
    with pytest.raises(CouldNotAudit, match="delays_by_origin has not reached the cut"):
        auditor()
    query.take_in()
    report = auditor()
    assert report.findings == []
    assert (noted(report, _EXACT), noted(report, "late"), noted(report, "dead letters")) == (7, 2, 2)
    broker = Broker(auditor.settings.kafka.client_config())
    raw, target = query.topics.dispatched.name, query.topics.catalog.topic(DELAYS).name
    position = state_position(broker, auditor.settings.s3, delays_by_origin.name, target)
    assert position is not None
    assert position.taken[raw] == query.taken_in() == {0: 7, 1: 5}

    query.forget_commit()
    query.take_in()
    assert auditor().findings == []
    query.remove(query.files())
    with pytest.raises(CouldNotAudit, match="the state of delays_by_origin has not reached the cut"):
        auditor()
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    again = auditor()
    assert again.findings == [], "in one batch nothing is late"
    assert noted(again, "that were late before a rebuild, which may have counted them") == 2


@pytest.mark.long
def test_windows_that_are_over_are_counted_again_beside_those_that_are_not(
    spark: SparkSession, settings: SparkSettings, registry: Registry, query: Query, auditor: Auditor
) -> None:
    final = Query(spark, settings, registry, query.topics, final_delays_by_origin)
    for dispatches in (FIRST, SECOND, [("NTH", 400, 1)], [("NTH", 0, 1), ("NTH", 600, 1)], [("STH", 601, 1)]):
        query.send(*dispatches)
        query.take_in()
        final.take_in()
    report = auditor()
    assert report.findings == []
    of_final = [
        tally for tally in report.tallies if tally.hop.endswith(final.topics.catalog.topic(final.pipeline.target).name)
    ]
    assert sum(tally.notes[_EXACT] for tally in of_final) == len(final.written()) == len(final.newest())
    assert sum(tally.notes["whose windows may not be over yet"] for tally in of_final) == 2
    assert noted(report, "late") == 2


@pytest.mark.long
def test_overlapping_windows_are_counted_again(query: Query, auditor: Auditor) -> None:
    query.pipeline = dataclasses.replace(delays_by_origin, function=overlapping)
    query.send(("NTH", 300, 1))
    query.take_in()
    # Late for both of its windows, for one, and for none.
    query.send(("NTH", 3, 1), ("NTH", 170, 1), ("NTH", 180, 1))
    query.take_in()
    report = auditor()
    assert report.findings == []
    assert (noted(report, _EXACT), noted(report, "late")) == (4, 2)


@pytest.mark.long
def test_groups_may_be_ahead_of_the_cut(query: Query, auditor: Auditor, monkeypatch: pytest.MonkeyPatch) -> None:
    query.send(*FIRST)
    query.take_in()
    wait = Followers.await_group

    def meanwhile(self: Followers, group: str, topic: str) -> None:
        query.send(*SECOND, partition=1)
        query.take_in()
        wait(self, group, topic)

    monkeypatch.setattr(Followers, "await_group", meanwhile)
    report = auditor()
    assert report.findings == []
    # Of NTH from ten on there is one more; the other two groups are new.
    assert (noted(report, _EXACT), noted(report, _BOUNDS)) == (3, 3)
    raw = [
        tally
        for tally in report.tallies
        if "→" in tally.hop and tally.partition.startswith(query.topics.dispatched.name)
    ]
    assert sum(tally.records for tally in raw) == len(FIRST), "and not more"


def test_an_audit_since_the_last_one_looks_at_what_came(
    query: Query, auditor: Auditor, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.send(*FIRST)
    query.take_in()
    # No lake has been filled.
    monkeypatch.setattr(Audit, "_landed", lambda self: [])
    try:
        first = auditor(*HOPS)
        assert (first.findings, noted(first, _EXACT)) == ([], 4)
        query.send(("NTH", 1, 5), ("NTH", 60, 5), ("EST", 61, 5))
        query.take_in()
        second = auditor(*HOPS, full=False)
        assert (second.findings, second.since) == ([], first.cut_at)
        assert (noted(second, _EXACT), noted(second, _BEFORE)) == (2, 1)
        assert noted(second, "groups with no records to be read, not looked at") == 3
        assert auditor().findings == []
    finally:
        s3_client(auditor.settings.s3).delete_object(Bucket=auditor.settings.s3.bucket, Key=KEY)


def test_what_is_planted_is_found(query: Query, auditor: Auditor, registry: Registry) -> None:
    query.send(*FIRST)
    query.topics.send(b"junk")
    query.take_in()
    raw, contract = query.topics.dispatched, query.topics.catalog.topic(DELAYS)
    newest = {event["window_id"]: (event, headers, message) for event, headers, message in events(query.topics, DELAYS)}
    codec, schema_id = Codec(registry.by_id), query.topics.schema_ids[DELAYS]
    producer = ordered(auditor.settings.kafka.client_config())

    def plant(group: str, *, ce_id: str = "", key: str = "", **fields: Any) -> str:
        """One more record of a group, behind the others."""
        event, headers, message = newest[group]
        value = codec.encode(schema_id, event | fields)
        own = [("ce_id", (ce_id or (headers["ce_id"] or b"").decode()).encode())]
        partition, key = message.partition() or 0, key or group
        sent: list[str] = []
        producer.produce(
            contract.name,
            value,
            key,
            partition=partition,
            headers=own,
            on_delivery=lambda _, made: sent.append(f"{contract.name}/{partition}/{made.offset()}"),
        )
        assert producer.flush(30) == 0
        return sent[0]

    run = (newest["NTH/2013-01-01T10:00:00Z"][1]["ce_id"] or b"").decode().split("/")[-2]
    lost = plant("NTH/2013-01-01T10:00:00Z", dispatches=1, ce_id=f"NTH/2013-01-01T10:00:00Z/{run}/7")
    doubled = plant("STH/2013-01-01T10:00:00Z", dispatches=2, ce_id=f"STH/2013-01-01T10:00:00Z/{run}/7")
    repeated = plant("EST/2013-01-01T10:15:00Z")
    made_up = plant(
        "EST/2013-01-01T10:15:00Z", origin="ORD", window_id="ORD/0", key="ORD/0", ce_id=f"ORD/0/{run}/7", dispatches=4
    )
    for coordinate in (f"{raw.name}/0/99", f"{raw.name}/0/2", None):
        headers: Any = [("ce_id", b"1")]
        if coordinate is not None:
            headers = dead_letter_headers(headers, raw.name, "delays_by_origin", "VALUE", "Late", "late", coordinate)
        producer.produce(str(contract.late_topic), query.topics.read(raw.name)[2].value(), b"key", 0, headers=headers)
    assert producer.flush(30) == 0
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    assert found == {
        ("lost", lost),
        ("doubled", doubled),
        ("doubled", repeated),
        ("phantom", made_up),
        ("phantom", f"{raw.name}/0/99"),
        ("phantom", f"{contract.late_topic}/0/2"),
        ("phantom", _at(newest["NTH/2013-01-01T10:15:00Z"][2])),
        ("set aside", f"{raw.name}/0/2"),
    }


def _at(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"
