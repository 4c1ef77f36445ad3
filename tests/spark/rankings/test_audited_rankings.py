"""The audit of what the real pipeline ranks: clean whatever happened to it, and not where something is planted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.records.codec import Codec
from contracts.records.dead_letter_headers import REDRIVEN_FROM
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from services.audit.audit import Audit
from services.audit.errors import CouldNotAudit
from services.audit.hops.hop import HOPS, Hop
from services.audit.state import KEY
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.sample.pipelines.slowest_lines import slowest_lines
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import DISPATCHED, Topics
from tests.spark.live_query import events
from tests.spark.rankings.test_rankings import FIRST, SECOND, Lines

_AGAIN = "places ranked again"
_NOT_AGAIN = "places not ranked again, for their totals can't be known: raw records are gone, or the run or the rankings file is another one"


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, slowest_lines.target, *PLATFORM)) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Lines:
    return Lines(spark, settings, registry, topics, slowest_lines)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.RANKINGS, rankings_file=sample.RANKINGS)


def test_whatever_happened_to_the_pipeline_it_is_clean(query: Lines, auditor: Auditor) -> None:
    query.send(*FIRST)
    assert noted(auditor(), "not ranked, for slowest_lines has never run here") == len(FIRST)
    query.take_in()
    query.topics.send(b"junk", partition=1)
    query.send(*SECOND, partition=1)
    with pytest.raises(CouldNotAudit, match="slowest_lines has not reached the cut"):
        auditor()
    query.take_in()
    report = auditor()
    assert report.findings == []
    assert (noted(report, _AGAIN), noted(report, "dead letters")) == (3, 1)
    query.forget_commit()
    query.take_in()
    assert auditor().findings == []
    query.remove(query.files())
    with pytest.raises(CouldNotAudit, match="the state of slowest_lines has not reached the cut"):
        auditor()
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    again = auditor()
    assert again.findings == []
    assert noted(again, _AGAIN) == 3


def test_an_audit_since_the_last_one_counts_on_from_there(
    query: Lines, settings: SparkSettings, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rankings.yaml"
    path.write_text(sample.RANKINGS.read_text())
    auditor = Auditor(settings, topics, tmp_path, Hop.RANKINGS, rankings_file=path)
    # No lake has been filled.
    monkeypatch.setattr(Audit, "_landed", lambda self: [])
    try:
        query.send(*FIRST)
        query.take_in()
        first = auditor(*HOPS)
        assert (first.findings, noted(first, _AGAIN)) == ([], 3)
        query.send(*SECOND, partition=1)
        query.take_in()
        second = auditor(*HOPS, full=False)
        assert (second.findings, second.since, noted(second, _AGAIN)) == ([], first.cut_at, 3)
        query.remove(query.files())
        query.take_in(on_state_loss=query.told("is gone", "begin-anew"))
        query.send(*FIRST)
        query.take_in()
        third = auditor(*HOPS, full=False)
        assert (third.findings, noted(third, _AGAIN)) == ([], 3), "the checkpoint tells with which records it has begun"
        query.send(*SECOND)
        query.take_in()
        fourth = auditor(*HOPS, full=False)
        assert (fourth.findings, fourth.since, noted(fourth, _AGAIN)) == ([], third.cut_at, 3)
        _otherwise("where: late_minutes != 3", path)
        fifth = auditor(*HOPS, full=False)
        assert (fifth.since, noted(fifth, _NOT_AGAIN)) == (None, 0), (
            "totals of before are of other records, so all are counted"
        )
        assert "phantom" in {each.kind for each in fifth.findings}
        _otherwise("where: late_minutes < 1000", path)
        query.remove(query.files())
        query.take_in(on_state_loss=query.told("is gone", "rebuild"))
        sixth = auditor(*HOPS, full=False)
        assert (sixth.findings, sixth.since, noted(sixth, _AGAIN)) == ([], None, 3)
        seventh = auditor(*HOPS, full=False)
        assert (seventh.findings, seventh.since, noted(seventh, _AGAIN)) == ([], sixth.cut_at, 3)
    finally:
        s3_client(auditor.settings.s3).delete_object(Bucket=auditor.settings.s3.bucket, Key=KEY)


def _otherwise(told: str, path: Path) -> None:
    """A file that tells of the list like that of the sample, but for this."""
    entry = yaml.safe_load(sample.RANKINGS.read_text())
    entry[slowest_lines.target] |= yaml.safe_load(told)
    path.write_text(yaml.safe_dump(entry))


def _plant(query: Lines, registry: Registry, place: int, ce_id: str, *more: tuple[str, bytes]) -> str:
    """One more record of a place, as it is, under this id and with `more` headers."""
    topics, name = query.topics, slowest_lines.target
    (event, _, _), *_ = [each for each in events(topics, name) if each[0]["place"] == place]
    value = Codec(registry.by_id).encode(topics.schema_ids[name], event)
    topics.send(value, topic=name, key=str(place).encode(), headers=[("ce_id", ce_id.encode()), *more])
    _, _, message = events(topics, name)[-1]
    return f"{topics.catalog.topic(name).name}/0/{message.offset()}"


def test_records_that_the_pipeline_has_not_written_are_found(
    query: Lines, registry: Registry, auditor: Auditor
) -> None:
    query.send(*FIRST)
    query.take_in()
    _, run, batch = query.ids()[0].decode().split("/")
    again = _plant(query, registry, 2, f"2/{run}/{batch}")
    found = {(each.kind, each.coordinate) for each in auditor().findings}
    assert found == {("doubled", again)}
    later = _plant(query, registry, 2, f"2/{run}/{int(batch) + 1}")
    assert ("phantom", later) in {(each.kind, each.coordinate) for each in auditor().findings}
    strange = _plant(query, registry, 2, f"2/0123abcd/{batch}")
    assert ("phantom", strange) in {(each.kind, each.coordinate) for each in auditor().findings}
    nothing = _plant(query, registry, 2, "2")
    assert ("phantom", nothing) in {(each.kind, each.coordinate) for each in auditor().findings}


def test_a_record_that_a_redrive_sent_again_is_found_only_if_it_is_of_an_older_list(
    query: Lines, registry: Registry, auditor: Auditor
) -> None:
    redriven = (REDRIVEN_FROM, b"slowest.dlq/0/0")
    query.send(*FIRST)
    query.take_in()
    first = query.ids()[0].decode().split("/", 1)[1]
    _plant(query, registry, 2, f"2/{first}", redriven)
    assert auditor().findings == []
    query.send(*SECOND, partition=1)
    query.take_in()
    assert auditor().findings == []
    older = _plant(query, registry, 2, f"2/{first}", redriven)
    (finding,) = auditor().findings
    assert (finding.kind, finding.coordinate) == ("out of order", older)
    assert finding.detail.endswith("a redrive has sent it again: the next list puts it right")
    query.send(("NTH", "STH", 8))
    query.take_in()
    assert auditor().findings == []


def test_raw_records_that_were_left_out_are_lost_and_others_are_doubled(query: Lines, auditor: Auditor) -> None:
    pipeline = query.pipeline
    query.with_function(lambda given: pipeline.function(given.where("late_minutes <> 5")))
    query.send(*FIRST, ("NTH", "STH", 8))
    query.take_in()
    (lost,) = auditor().findings
    assert (lost.kind, "dispatches is 2, and 3 raw records belong there" in lost.detail) == ("lost", True)


def test_a_list_that_is_ranked_otherwise_than_it_is_told_is_found(
    query: Lines, settings: SparkSettings, tmp_path: Path
) -> None:
    query.send(*FIRST)
    query.take_in()
    path = tmp_path / "otherwise.yaml"
    auditor = Auditor(settings, query.topics, tmp_path, Hop.RANKINGS, rankings_file=path)
    for told, kind in (
        ("at_least: 1", "out of order"),
        ("first: lowest", "out of order"),
        ("where: late_minutes != 3", "phantom"),
        ("where: late_minutes != 5", "doubled"),
        ("mean: {of: weight_grams, as: late_mean_minutes}", "changed"),
    ):
        _otherwise(told, path)
        assert kind in {each.kind for each in auditor().findings}, told


def test_a_place_that_can_not_be_a_record_stops_the_list(query: Lines) -> None:
    pipeline = query.pipeline
    query.with_function(
        lambda given: pipeline.function(given).withColumn(
            "late_mean_minutes", F.when(F.col("origin") != "EST", F.col("late_mean_minutes"))
        )
    )
    query.send(*FIRST)
    with pytest.raises(
        StreamingQueryException, match="can't be a record: the schema has no null for late_mean_minutes"
    ):
        query.take_in()
    assert query.ids() == []
