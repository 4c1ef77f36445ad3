"""The audit of what the real pipeline joins: clean whatever happened to it, and not where something is planted."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.records.dead_letter_headers import dead_letter_headers
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from services.audit.audit import Audit
from services.audit.errors import CouldNotAudit
from services.audit.followers import Followers
from services.audit.hops.hop import HOPS, Hop
from services.audit.report import Report
from services.audit.sources.broker import Broker
from services.audit.sources.state_position import state_position
from services.audit.state import KEY
from spark.derivation.stateful.kinds import stateful
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.producers import ordered
from tests.sample.pipelines.parcel_trips import parcel_trips
from tests.spark.auditor import PLATFORM, Auditor, looked_at, noted, planter
from tests.spark.examples import DELIVERED, DISPATCHED, Topics
from tests.spark.joins.trips import TEN, TRIPS, Trips, trip
from tests.spark.live_query import events

_A_CENTURY = 100 * 365 * 24
"""In hours: such an event is from the future."""
_PAIRED = "with pairs"
_ALONE = "without a pair that must be there"
_WAITING = "without a pair as yet, for one may still come"


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, DELIVERED, TRIPS, *PLATFORM)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Trips:
    return Trips(spark, settings, registry, topics)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.JOINS, joins_file=sample.JOINS)


def lossy(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
    """The pipeline, but it loses what becomes of these parcels."""
    trips: DataFrame = parcel_trips.function(dispatches, deliveries)
    return trips.where("parcel_id NOT IN ('LOST', 'ALONE', 'OTHER')")


def by_day(dispatches: DataFrame, deliveries: DataFrame) -> DataFrame:
    """The deliveries of the day on which a parcel was dispatched, before and behind that."""
    theirs = deliveries.select(F.col("parcel_id").alias("of"), "delivered_at", "delivered_late_minutes")
    is_of_its_day = (
        (F.col("parcel_id") == F.col("of"))
        & (F.date_trunc("DAY", "dispatched_at") == F.date_trunc("DAY", "delivered_at"))
        & (F.col("delivered_at") >= F.col("dispatched_at") - F.expr("INTERVAL 24 HOURS"))
        & (F.col("delivered_at") <= F.col("dispatched_at") + F.expr("INTERVAL 24 HOURS"))
    )
    return dispatches.join(theirs, is_of_its_day, how="left_outer")


def test_by_the_faster_topic_an_idle_one_holds_up_nothing(
    spark: SparkSession, settings: SparkSettings, catalog: Catalog, registry: Registry, tmp_path: Path
) -> None:
    made = catalog.topic(TRIPS)
    assert made.derivation is not None
    faster = made.model_copy(
        update={"derivation_section": made.derivation.model_copy(update={"watermark_of": "faster"})}
    )
    changed = dataclasses.replace(catalog, topics={**catalog.topics, TRIPS: faster})
    plans = {stateful(spark, parcel_trips, each, 1).plan for each in (catalog, changed)}
    assert len(plans) == 2  # so the state of the one is not gone on with by the other
    with Topics(settings, changed, registry, names=(DISPATCHED, DELIVERED, TRIPS, *PLATFORM)) as topics:
        query = Trips(spark, settings, registry, topics)
        auditor = Auditor(settings, topics, tmp_path, Hop.JOINS, joins_file=sample.JOINS)
        with query.running() as running:
            query.dispatch(("A", 0), ("B", 0))
            query.deliver(("A", 5))
            running.processAllAvailable()
            query.dispatch(("C", 30))
            running.processAllAvailable()
            # The watermark is 28 hours, that of the dispatches: nothing has come of the deliveries.
            query.dispatch(("D", 31))
            running.processAllAvailable()
            assert query.trips() == Counter([trip("A", 0, 5), trip("B", 0, None)])
            query.deliver(("B", 10), ("C", 31))
            running.processAllAvailable()
        assert query.trips() == Counter([trip("A", 0, 5), trip("B", 0, None), trip("C", 30, 31)])
        assert query.late_ones() == [f"{query.names[DELIVERED]}/0/1"]
        report = auditor()
        assert report.findings == []
        assert [noted(report, text) for text in (_PAIRED, _ALONE, _WAITING, "late")] == [2, 1, 1, 1]


@pytest.mark.long
def test_whatever_happened_to_the_pipeline_it_is_clean(query: Trips, auditor: Auditor) -> None:
    query.dispatch(("A", 0), ("B", 0), ("C", 50))
    query.deliver(("A", 5), partition=1)
    assert noted(auditor(), "not joined, for parcel_trips has never run here") == 4
    with query.running() as running:
        query.topics.send(b"junk")
        query.topics.send(b"junk", topic=DELIVERED, partition=1)
        query.dispatch(("F", _A_CENTURY), partition=1)
        query.deliver(("C", 51))
        running.processAllAvailable()
        # The watermark is 48 hours, that of the dispatches.
        query.dispatch(("D", 48), ("E", 49), ("G", 49), partition=1)
        query.deliver(("B", 10), ("C", 48), ("E", 50), ("X", 50))
        running.processAllAvailable()
    report = auditor()
    assert report.findings == []
    assert [noted(report, text) for text in (_PAIRED, _ALONE, _WAITING)] == [3, 1, 1]
    assert [noted(report, text) for text in ("late", "dead letters")] == [3, 3]
    contract = query.topics.catalog.topic(TRIPS)
    broker = Broker(auditor.settings.kafka.client_config())
    position = state_position(broker, auditor.settings.s3, parcel_trips.name, contract.name)
    assert position is not None
    taken = {DISPATCHED: {0: 4, 1: 4}, DELIVERED: {0: 5, 1: 2}}
    assert query.positions() == taken
    assert position.taken == {query.names[topic]: offsets for topic, offsets in taken.items()}
    assert position.watermark_ms == (TEN + timedelta(hours=48)).timestamp() * 1000

    query.forget_commit()
    query.take_in()
    assert auditor().findings == []
    sent = query.cut_off_between_partitions(49, 50)
    with pytest.raises(CouldNotAudit, match="parcel_trips has not reached the cut"):
        auditor()
    query.take_in()
    whole = auditor()
    assert whole.findings == []
    assert noted(whole, _PAIRED) == 3 + len(sent)

    query.remove(query.files())
    with pytest.raises(CouldNotAudit, match="the state of parcel_trips has not reached the cut"):
        auditor()
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    again = auditor()
    assert again.findings == []
    assert noted(again, "written again, by a rebuild") == 3 + len(sent)
    # In one batch nothing is late: B has its delivery now, and C both.
    assert noted(again, "of late records, which a rebuild may have found in time") > 0


@pytest.mark.long
def test_pairs_may_be_ahead_of_the_cut(query: Trips, auditor: Auditor, monkeypatch: pytest.MonkeyPatch) -> None:
    query.dispatch(("A", 0), ("B", 0), ("C", 30))
    query.deliver(("A", 1))
    query.take_in()
    wait = Followers.await_stateful

    def meanwhile(self: Followers, *of: Any) -> None:
        query.dispatch(("D", 40), partition=1)
        query.deliver(("C", 31), ("D", 41), partition=1)
        query.take_in()
        wait(self, *of)

    monkeypatch.setattr(Followers, "await_stateful", meanwhile)
    report = auditor()
    assert report.findings == []
    # Of C the delivery is behind the cut. B is over, by a watermark that came after it, too.
    assert [noted(report, text) for text in (_PAIRED, _ALONE, _WAITING)] == [1, 2, 0]
    assert looked_at(report, query.names[DISPATCHED]) == 3, "and not more"


@pytest.mark.long
def test_an_audit_since_the_last_one_reads_what_may_have_pairs_to_come(
    query: Trips, auditor: Auditor, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.dispatch(("A", 0), ("B", 0), ("C", 40))
    query.deliver(("A", 1), ("C", 41))
    query.take_in()
    # No lake has been filled.
    monkeypatch.setattr(Audit, "_landed", lambda self: [])
    try:
        first = auditor(*HOPS)
        assert first.findings == []
        assert ([noted(first, text) for text in (_PAIRED, _ALONE)], looked_at(first, query.names[DISPATCHED])) == (
            [2, 1],
            3,
        )
        query.dispatch(("D", 42))
        query.deliver(("C", 45))
        query.take_in()
        second = auditor(*HOPS, full=False)
        assert (second.findings, second.since) == ([], first.cut_at)
        # The watermark was 38 hours: A and B are over.
        assert ([noted(second, text) for text in (_PAIRED, _WAITING)], looked_at(second, query.names[DISPATCHED])) == (
            [1, 1],
            2,
        )
        query.remove(query.files())
        query.take_in(on_state_loss=query.told("is gone", "rebuild"))
        rebuilt = auditor(*HOPS, full=False)
        assert (rebuilt.findings, rebuilt.since) == ([], second.cut_at)
        assert looked_at(rebuilt, query.names[DISPATCHED]) == 4, "the new run has written all of them again"
        plant = planter(query.topics, auditor, registry, TRIPS)
        again = {plant("A"), plant("C")}
        found = auditor(*HOPS, full=False).findings
        assert {(each.kind, each.coordinate) for each in found} == {("doubled", each) for each in again}
    finally:
        s3_client(auditor.settings.s3).delete_object(Bucket=auditor.settings.s3.bucket, Key=KEY)


def test_what_is_planted_is_found(query: Trips, auditor: Auditor, registry: Registry) -> None:
    query.with_function(lossy)
    out, back = query.names[DISPATCHED], query.names[DELIVERED]
    query.dispatch(("A", 0), ("B", 0), ("LOST", 0), ("ALONE", 1), ("OTHER", 2), ("C", 0), ("N", 60))
    query.deliver(("A", 5), ("B", 6), ("LOST", 7), ("OTHER", 8), ("C", 9), ("A", 25), ("N", 61))
    query.topics.send(b"junk", topic=DELIVERED, partition=1)
    with query.running() as running:
        running.processAllAvailable()
        # The watermark is 58 hours.
        query.dispatch(("LATE", 10), partition=1)
        running.processAllAvailable()
    lost = [("lost", f"{out}/0/{offset}") for offset in (2, 3, 4)]
    assert sorted((each.kind, each.coordinate) for each in auditor().findings) == lost

    plant = planter(query.topics, auditor, registry, TRIPS)
    # One of those that were lost comes after all, an hour too early.
    times = {"dispatched_at": TEN + timedelta(hours=2), "delivered_at": TEN + timedelta(hours=7)}
    changed = plant("A", parcel_id="OTHER", ce_id=f"{out}/0/4+{back}/0/3", **times)
    twice = plant("A")
    beside = plant("B", ce_id=f"{out}/0/1", delivered_at=None, delivered_late_minutes=None)
    beyond = plant("A", ce_id=f"{out}/0/0+{back}/0/5", delivered_at=TEN + timedelta(hours=25))
    unequal = plant("A", ce_id=f"{out}/0/0+{back}/0/1")
    nowhere = plant("A", ce_id=f"{out}/0/99+{back}/0/0")
    nothing = plant("A", ce_id="what the producer said")
    contract = query.topics.catalog.topic(TRIPS)
    producer = ordered(auditor.settings.kafka.client_config())
    for topic, offset in ((out, 6), (back, 4)):
        headers = dead_letter_headers(
            [("ce_id", b"1")], topic, parcel_trips.name, "VALUE", "Late", "late", f"{topic}/0/{offset}"
        )
        (raw,) = [each for each in query.topics.read(topic) if (each.partition(), each.offset()) == (0, offset)]
        producer.produce(str(contract.late_topic), raw.value(), raw.key(), 0, headers=headers)
    assert producer.flush(30) == 0
    pairs = {event["parcel_id"]: message for event, _, message in events(query.topics, TRIPS)}
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    assert found == {
        *lost[:2],
        ("changed", changed),
        ("doubled", twice),
        ("doubled", beside),
        *{("phantom", each) for each in (beyond, unequal, nowhere, nothing)},
        # A record that is late has no pairs; and of these times none is late.
        ("doubled", _at(pairs["N"])),
        ("set aside", f"{out}/0/6"),
        ("doubled", _at(pairs["C"])),
        ("lost", f"{out}/0/5"),
    }

    letters = (str(contract.late_topic), query.topics.catalog.topic(DELIVERED).dead_letter_topic)
    admin = AdminClient({**auditor.settings.kafka.client_config()})
    all_of_them = [TopicPartition(name, partition, -1) for name in letters for partition in (0, 1)]
    for future in admin.delete_records(all_of_them).values():
        future.result()
    without = {(each.kind, each.coordinate) for each in auditor().findings}
    letters_gone = {("lost", f"{out}/1/0"), ("lost", f"{back}/1/0")}
    assert without == letters_gone | {each for each in found if each[0] != "set aside"} - {
        ("doubled", _at(pairs["N"])),
        ("doubled", _at(pairs["C"])),
        ("lost", f"{out}/0/5"),
    }


def _at(message: Any) -> str:
    return f"{message.topic()}/{message.partition()}/{message.offset()}"


@pytest.mark.long
def test_pairs_are_of_one_slot_and_a_slot_is_not_forgotten_when_it_has_begun(
    query: Trips, settings: SparkSettings, topics: Topics, tmp_path: Path
) -> None:
    query.with_function(by_day)
    with query.running() as running:
        # Midnight is at 14 hours.
        query.deliver(("A", 14), ("B", 13), ("X", 19))
        query.dispatch(("X", 19), ("B", 15))
        running.processAllAvailable()
        query.deliver(("Y", 20))
        query.dispatch(("Y", 20))
        running.processAllAvailable()
        # The watermark is 18 hours, and A was delivered before.
        query.dispatch(("A", 20))
        running.processAllAvailable()
        query.deliver(("Z", 90))
        query.dispatch(("Z", 90))
        running.processAllAvailable()
    pairs = [trip("A", 20, 14), trip("X", 19, 19), trip("Y", 20, 20), trip("Z", 90, 90)]
    assert query.trips() == Counter([*pairs, trip("B", 15, None)])

    def audited(name: str, **told: int) -> Report:
        (entry,) = yaml.safe_load(sample.JOINS.read_text()).values()
        path = tmp_path / name
        apart = {"least_minutes": -1440, "most_minutes": 1440}
        path.write_text(yaml.safe_dump({parcel_trips.target: entry | {"apart": apart} | told}))
        return Auditor(settings, topics, tmp_path, Hop.JOINS, joins_file=path)()

    clean = audited("by-day.yaml", slot_minutes=1440)
    assert clean.findings == []
    assert [noted(clean, text) for text in (_PAIRED, _ALONE)] == [4, 1]
    # B was dispatched two hours after its delivery, on the next day.
    assert {each.kind for each in audited("by-hours.yaml").findings} == {"lost", "phantom"}
