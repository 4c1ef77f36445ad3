"""The audit of what the real pipeline lets through once: clean whatever happened to it, and not where something is planted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from services.audit.audit import Audit
from services.audit.errors import CouldNotAudit
from services.audit.hops.hop import HOPS, Hop
from services.audit.state import KEY
from spark.runtime.settings import SparkSettings
from tests.sample.pipelines.dispatches_once import dispatches_once
from tests.spark.auditor import PLATFORM, Auditor, looked_at, noted, planter
from tests.spark.distinct.once import ONCE, TEN, Once
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed

_THROUGH = "let through"
_LEFT_OUT = "left out, for another record of the event is there"
_A_CENTURY = 100 * 365 * 24 * 60
"""In minutes: such an event is from the future."""


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, ONCE, *PLATFORM)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Once:
    return Once(spark, settings, registry, topics)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.DISTINCT)


def filtered(dispatches: DataFrame) -> DataFrame:
    return dispatches.where("weight_grams >= 1000").dropDuplicatesWithinWatermark(["parcel_id"])


def lossy(dispatches: DataFrame) -> DataFrame:
    """The pipeline, but it loses these parcels."""
    return dispatches_once.function(dispatches.where("parcel_id NOT IN ('LOST', 'OTHER')"))


@pytest.mark.long
def test_whatever_happened_to_the_pipeline_it_is_clean(query: Once, auditor: Auditor) -> None:
    query.dispatch(("A", 0), ("A", 0), ("B", 10))
    assert noted(auditor(), "not let through, for dispatches_once has never run here") == 3
    with query.running() as running:
        query.topics.send(b"junk")
        query.dispatch(("F", _A_CENTURY), ("A", 0), ("B", 10), partition=1)
        running.processAllAvailable()
        # The watermark is 180 minutes then.
        query.dispatch(("C", 300), partition=1)
        running.processAllAvailable()
        query.dispatch(("B", 180), ("A", 181), ("C", 300), ("C", 200))
        running.processAllAvailable()
    report = auditor()
    assert report.findings == []
    assert [noted(report, text) for text in (_THROUGH, _LEFT_OUT, "late", "dead letters")] == [4, 5, 1, 2]
    assert noted(report, "of them of a time further from the other's than the lateness") == 0

    query.forget_commit()
    query.take_in()
    assert auditor().findings == []
    sent = query.cut_off_between_partitions(250)
    with pytest.raises(CouldNotAudit, match="dispatches_once has not reached the cut"):
        auditor()
    query.take_in()
    whole = auditor()
    assert whole.findings == []
    assert noted(whole, _THROUGH) == 4 + len(sent)

    query.remove(query.files())
    with pytest.raises(CouldNotAudit, match="the state of dispatches_once has not reached the cut"):
        auditor()
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    again = auditor()
    assert again.findings == []
    # In one batch the first one of C is another, and A, of three hours later, is left out.
    assert noted(again, "written again, by a rebuild") == 2 + len(sent)


def test_a_record_that_a_filter_leaves_out_is_told_by_the_filters_file(
    query: Once, settings: SparkSettings, topics: Topics, tmp_path: Path
) -> None:
    query.with_function(filtered)
    light = framed(topics.schema_ids[DISPATCHED], body(a_dispatch(parcel_id="L", weight_grams=999)))
    query.topics.send(light)
    query.dispatch(("A", 17), ("A", 17))
    query.take_in()
    told = tmp_path / "filters.told.yaml"
    told.write_text(f"{ONCE}: weight_grams >= 1000\n")
    clean = Auditor(settings, topics, tmp_path, Hop.DISTINCT, filters_file=told)()
    assert clean.findings == []
    assert noted(clean, "left out before, by the condition") == 1
    without = Auditor(settings, topics, tmp_path, Hop.DISTINCT)()
    assert {(each.kind, each.coordinate) for each in without.findings} == {("lost", f"{query.source}/0/0")}
    told.write_text(f"{ONCE}: weight_grams < 1000\n")
    other = Auditor(settings, topics, tmp_path, Hop.DISTINCT, filters_file=told)()
    assert {each.kind for each in other.findings} == {"lost", "phantom"}


@pytest.mark.long
def test_an_audit_since_the_last_one_knows_what_is_remembered(
    query: Once, auditor: Auditor, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.dispatch(("A", 0), ("B", 0), ("B", 0), ("C", 239))
    query.take_in()
    # No lake has been filled.
    monkeypatch.setattr(Audit, "_landed", lambda self: [])
    try:
        first = auditor(*HOPS)
        assert first.findings == []
        assert ([noted(first, text) for text in (_THROUGH, _LEFT_OUT)], looked_at(first, query.source)) == ([3, 1], 4)
        # A is remembered until the watermark is 120 minutes; it is 119.
        query.dispatch(("A", 130), ("D", 240))
        query.take_in()
        second = auditor(*HOPS, full=False)
        assert (second.findings, second.since) == ([], first.cut_at)
        assert ([noted(second, text) for text in (_THROUGH, _LEFT_OUT)], looked_at(second, query.source)) == ([1, 1], 2)
        query.dispatch(("A", 140), ("D", 240))
        query.take_in()
        third = auditor(*HOPS, full=False)
        assert ([noted(third, text) for text in (_THROUGH, _LEFT_OUT)], third.findings) == ([1, 1], [])
        again = planter(query.topics, auditor, registry, ONCE)("D")
        found = auditor(*HOPS, full=False).findings
        assert {(each.kind, each.coordinate) for each in found} == {("doubled", again)}
    finally:
        s3_client(auditor.settings.s3).delete_object(Bucket=auditor.settings.s3.bucket, Key=KEY)


def test_what_is_planted_is_found(query: Once, auditor: Auditor, registry: Registry) -> None:
    query.with_function(lossy)
    out = query.source
    query.dispatch(("A", 0), ("B", 0), ("LOST", 0), ("LOST", 0), ("OTHER", 2), ("C", 3), ("C", 4))
    query.topics.send(b"junk", partition=1)
    query.take_in()
    lost = [("lost", f"{out}/0/{offset}") for offset in (2, 3, 4)]
    assert sorted((each.kind, each.coordinate) for each in auditor().findings) == lost

    plant = planter(query.topics, auditor, registry, ONCE)
    # One of those that were lost comes after all, with another courier.
    changed = plant("A", parcel_id="OTHER", ce_id=f"{out}/0/4", courier="XX", dispatched_at=TEN + timedelta(minutes=2))
    twice = plant("A")
    copy = plant("C", ce_id=f"{out}/0/6", dispatched_at=TEN + timedelta(minutes=4))
    other_key = plant("B", ce_id=f"{out}/0/99", key="Q")
    nothing = plant("A", ce_id="what the producer said")
    bad = plant("A", parcel_id="J", ce_id=f"{out}/1/0")
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    assert found == {
        *lost[:2],
        ("changed", changed),
        ("doubled", twice),
        ("doubled", copy),
        ("changed", other_key),
        *{("phantom", each) for each in (other_key, nothing, bad)},
    }
