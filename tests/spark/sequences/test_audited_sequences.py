"""The audit of events with what was remembered: clean whatever happened to the pipeline, and not where something is planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from services.audit.audit import Audit
from services.audit.hops.hop import HOPS, Hop
from services.audit.state import KEY
from spark.runtime.settings import SparkSettings
from tests.spark.auditor import PLATFORM, Auditor, looked_at, noted, planter
from tests.spark.examples import DISPATCHED, Topics
from tests.spark.sequences.counted import COUNTED, Counted

_MADE = "of which a record was made"
_WAITS = "that the watermark has not passed"
_LEFT_OUT = "left out by the pipeline, not proven"


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, COUNTED, *PLATFORM)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Counted:
    return Counted(spark, settings, registry, topics)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.SEQUENCES)


@pytest.mark.long
def test_since_the_last_audit_what_waited_may_have_come(
    query: Counted, auditor: Auditor, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.dispatch(("V", 0, 1), ("V", 1, -1), ("V", 200, 1), ("W", 200, 1))
    assert noted(auditor(), "not looked at, for late_parcels_of_vans has never run here") == 4
    query.take_in()
    # No lake has been filled.
    monkeypatch.setattr(Audit, "_landed", lambda self: [])
    try:
        first = auditor(*HOPS)
        assert first.findings == []
        assert [noted(first, text) for text in (_MADE, _LEFT_OUT, _WAITS)] == [1, 1, 2]
        with query.running() as running:
            query.topics.send(b"junk")
            query.dispatch(("V", 60, 1), ("W", 500, 0), partition=1)
            running.processAllAvailable()
        second = auditor(*HOPS, full=False)
        assert (second.findings, second.since) == ([], first.cut_at)
        assert [noted(second, text) for text in (_MADE, "late", "dead letters", _WAITS)] == [2, 1, 1, 1]
        assert looked_at(second, query.source) == 5
        again = planter(query.topics, auditor, registry, COUNTED)("W", key="W")
        found = auditor(*HOPS, full=False).findings
        assert {(each.kind, each.coordinate) for each in found} == {("doubled", again)}
    finally:
        s3_client(auditor.settings.s3).delete_object(Bucket=auditor.settings.s3.bucket, Key=KEY)


def test_what_is_planted_is_found(query: Counted, auditor: Auditor, registry: Registry) -> None:
    out = query.source
    query.dispatch(("V", 0, 1), ("V", 2, -1), ("V", 3, 1), ("W", 0, 1), ("Z", 500, 0))
    query.topics.send(b"junk", partition=1)
    query.take_in()
    assert auditor().findings == []
    plant = planter(query.topics, auditor, registry, COUNTED)
    changed = plant("W", key="W", ce_id=f"{out}/0/4", courier="XX")
    twice = plant("W", key="W")
    behind = plant("V", key="V", ce_id=f"{out}/0/1")
    other_key = plant("W", ce_id=f"{out}/0/99", key="Q")
    nothing = plant("W", key="W", ce_id="what the producer said")
    bad = plant("W", key="W", ce_id=f"{out}/1/0")
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    assert found == {
        ("changed", changed),
        ("doubled", twice),
        ("out of order", behind),
        ("changed", behind),
        ("changed", other_key),
        *{("phantom", each) for each in (other_key, nothing, bad)},
    }
