"""Sessions on the real stack, against an oracle in plain Python, and the audit of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from contracts.definitions.catalog import Catalog
from contracts.records.codec import Codec
from contracts.records.missed_windows import MissedWindows
from contracts.servers.registry import Registry
from services.audit.declared.aggregates import load_aggregates
from services.audit.hops.hop import Hop
from spark.derivation.stateful.aggregation import Aggregation
from spark.pipeline import Pipeline
from spark.runtime.errors import PipelineUnfit
from spark.runtime.settings import SparkSettings
from tests import sample
from tests.producers import ordered
from tests.sample.pipelines.rounds_of_vans import rounds_of_vans
from tests.spark.aggregates.test_stateful import Query
from tests.spark.auditor import PLATFORM, Auditor, noted
from tests.spark.examples import DISPATCHED, LOST, Topics, a_dispatch, body, framed
from tests.spark.live_query import events

ROUNDS = rounds_of_vans.target
_TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
_LATE_AFTER = 120
_SEED = 20261126

Parcel = tuple[str | None, str, int, int]
"""Van, origin, minutes after ten, minutes late."""


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(
        settings, catalog, registry, names=(DISPATCHED, LOST, *load_aggregates(sample.AGGREGATES, catalog), *PLATFORM)
    ) as made:
        yield made


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Query:
    return Query(spark, settings, registry, topics, rounds_of_vans)


@pytest.fixture
def auditor(settings: SparkSettings, topics: Topics, tmp_path: Path) -> Auditor:
    return Auditor(settings, topics, tmp_path, Hop.AGGREGATES, aggregates_file=sample.AGGREGATES)


def send_parcels(query: Query, *parcels: Parcel, partition: int = 0) -> None:
    values = [
        a_dispatch(van_id=van, origin=origin, dispatched_at=_TEN + timedelta(minutes=minute), late_minutes=delay)
        for van, origin, minute, delay in parcels
    ]
    query.topics.send(
        *[framed(query.topics.schema_ids[DISPATCHED], body(each)) for each in values], partition=partition
    )


def _end(parcel: Parcel) -> int:
    """Of the session that the parcel alone would be."""
    _, origin, minute, _ = parcel
    return minute + (60 if origin == "STH" else 30)


@dataclasses.dataclass
class Session:
    """Of the parcels of one van; minutes after ten."""

    parcels: list[Parcel]

    @property
    def begins(self) -> int:
        return min(parcel[2] for parcel in self.parcels)

    @property
    def ends(self) -> int:
        return max(map(_end, self.parcels))

    def event(self) -> dict[str, Any]:
        """As it is written."""
        in_order = sorted((minute, delay) for _, _, minute, delay in self.parcels)
        delays, ends_at = [delay for _, delay in in_order], _TEN + timedelta(minutes=self.ends)
        van = str(self.parcels[0][0])
        return {
            "round_id": f"{van}/{ends_at:%Y-%m-%dT%H:%M:%SZ}",
            "van_id": van,
            "begins_at": _TEN + timedelta(minutes=self.begins),
            "ends_at": ends_at,
            "parcels": len(delays),
            "hours": (in_order[-1][0] - in_order[0][0]) / 60,
            "delay_first_minutes": delays[0],
            "delay_last_minutes": delays[-1],
            "delay_max_minutes": max(delays),
            "delay_sum_minutes": sum(delays),
            "is_final": True,
        }


class Oracle:
    """The rounds of batches: what each one drops as late, and what is over behind it."""

    def __init__(self) -> None:
        self.open: dict[str, list[Session]] = defaultdict(list)
        self.written: list[Session] = []
        self.late: list[Parcel] = []
        self.watermark = self.newest = -(10**6)

    def take(self, batch: Sequence[Parcel]) -> list[Parcel]:
        """Those of one batch that are late."""
        late = []
        for parcel in batch:
            self.newest = max(self.newest, parcel[2])
            if parcel[0] is None:
                continue
            if _end(parcel) <= self.watermark:
                late.append(parcel)
            else:
                self.open[parcel[0]].append(Session([parcel]))
        self.watermark = max(self.watermark, self.newest - _LATE_AFTER)
        for van, sessions in self.open.items():
            merged: list[Session] = []
            for each in sorted(sessions, key=lambda session: session.begins):
                if merged and each.begins <= merged[-1].ends:
                    merged[-1] = Session([*merged[-1].parcels, *each.parcels])
                else:
                    merged.append(each)
            self.written += [each for each in merged if each.ends <= self.watermark]
            self.open[van] = [each for each in merged if each.ends > self.watermark]
        self.late += late
        return late


def _arranged(count: int) -> list[list[Parcel]]:
    """Batches that go on in time, with stragglers of all ages."""
    chance = random.Random(_SEED)
    batches = []
    for number in range(count):
        batch: list[Parcel] = []
        for _ in range(30):
            minute = number * 60 + chance.randrange(60) - chance.choice((0, 0, 0, 90, 130, 160, 240))
            van = chance.choice(("A", "B", "C", "D", None))
            batch.append((van, chance.choice(("EST", "NTH", "STH")), minute, chance.randrange(-10, 90)))
        batches.append(batch)
    # On the dot: a session that ends by the watermark is over, and one that begins where another ends goes on with it.
    return [
        *batches,
        [("Z", "EST", count * 60, 1)],
        [
            ("Z", "EST", count * 60 - 30, 2),
            ("Z", "EST", count * 60 + 30, 2),
            ("Y", "EST", count * 60 - 150, 1),
            ("Y", "EST", count * 60 - 150, 5),
            ("Y", "EST", count * 60 - 149, 1),
        ],
        [("W", "EST", count * 60 + 2_000, 0)],
    ]


def test_whatever_comes_when_sessions_and_late_records_are_those_of_the_oracle(query: Query, auditor: Auditor) -> None:
    oracle = Oracle()
    sent = 0
    dropped, rows = [], []
    with query.running() as running:
        for batch in _arranged(4):
            send_parcels(query, *batch)
            sent += len(batch)
            running.processAllAvailable()
            late = oracle.take(batch)
            # Records of one session each are one row to the operator: they are added up before.
            rows.append(len({(van, _end(each), each[2]) for each in late for van in each[:1]}))
            progress = [json.loads(each.json) for each in running.recentProgress if each.numInputRows]
            dropped.append(sum(each["numRowsDroppedByWatermark"] for each in progress[-1]["stateOperators"]))
    assert dropped == rows
    assert 5 < sum(rows) < len(oracle.late)
    written = {event["round_id"]: event for event in query.written()}
    assert len(written) == len(query.written())
    assert list(written.values()) != [] and written == {
        event["round_id"]: event for event in (each.event() for each in oracle.written)
    }
    spans = sorted((each.parcels[0][0], each.begins, each.ends) for each in oracle.written)
    assert any(one[0] == two[0] and two[1] <= one[2] for one, two in itertools.pairwise(spans)), (
        "one joins none that is written"
    )
    missed = [MissedWindows.of([*each.items()]) for each in query.late()]
    assert [each and each.last for each in missed] == [_TEN + timedelta(minutes=_end(each)) for each in oracle.late]
    assert query.taken_in() == {0: sent}
    report = auditor()
    assert report.findings == []
    assert noted(report, "late") == len(oracle.late)
    assert noted(report, "groups counted again") == len(oracle.written)
    assert noted(report, "whose windows may not be over yet") == 1


@pytest.mark.long
def test_what_is_planted_among_sessions_is_found(query: Query, auditor: Auditor, registry: Registry) -> None:
    send_parcels(
        query, ("A", "EST", 0, 1), ("A", "EST", 20, 2), ("B", "STH", 0, 1), ("B", "EST", 60, 9), ("C", "EST", 0, 5)
    )
    query.take_in()
    send_parcels(query, ("A", "EST", 400, 1))
    query.take_in()
    send_parcels(query, ("A", "EST", 700, 1), ("B", "EST", 1, 1))
    query.take_in()
    assert auditor().findings == []
    contract = query.topics.catalog.topic(ROUNDS)
    newest = {
        event["round_id"][:16]: (event, headers, message) for event, headers, message in events(query.topics, ROUNDS)
    }
    codec, producer = Codec(registry.by_id), ordered(auditor.settings.kafka.client_config())

    def plant(group: str, **fields: Any) -> str:
        event, headers, message = newest[group]
        event, of = event | fields, (headers["ce_id"] or b"").decode().rsplit("/", 1)[0].rpartition("/")[2]
        partition, sent = message.partition() or 0, list[str]()
        producer.produce(
            contract.name, codec.encode(query.topics.schema_ids[ROUNDS], event), event["round_id"], partition=partition,
            headers=[("ce_id", f"{event['round_id']}/{of}/90".encode())],
            on_delivery=lambda _, made: sent.append(f"{contract.name}/{partition}/{made.offset()}"),
        )  # fmt: skip
        assert producer.flush(30) == 0
        return sent[0]

    a, b, c = sorted(name for name in newest if "T10" in name or "T11" in name)
    assert (newest[a][0]["parcels"], newest[b][0]["parcels"], newest[c][0]["parcels"]) == (2, 2, 1)
    expected = {
        ("lost", plant(a, parcels=1)),
        ("changed", plant(b, begins_at=_TEN - timedelta(minutes=1))),
        ("phantom", plant(c, van_id="X", round_id="X/1")),
        ("doubled", plant(c, parcels=2)),
    }
    assert {(each.kind, each.coordinate) for each in auditor().findings} == expected


def test_sessions_are_written_when_they_are_over_only(spark: SparkSession, catalog: Catalog) -> None:
    with pytest.raises(PipelineUnfit, match='output is update: .* writes them when they are over: output="append"'):
        Aggregation(spark, dataclasses.replace(rounds_of_vans, output="update"), catalog, 300)


def test_sessions_of_another_time_are_refused(spark: SparkSession, catalog: Catalog) -> None:
    def moved(dispatches: DataFrame) -> DataFrame:
        return rounds_of_vans.function(dispatches.withColumn("dispatched_at", F.col("due_at")))

    with pytest.raises(PipelineUnfit, match="groups by sessions that are not over the time of its events"):
        Aggregation(spark, _with(moved), catalog, 300)


def test_another_gap_is_another_state(spark: SparkSession, catalog: Catalog) -> None:
    def longer(dispatches: DataFrame) -> DataFrame:
        return rounds_of_vans.function(dispatches.withColumn("origin", F.lit("STH")))

    plans = {Aggregation(spark, each, catalog, 300).plan for each in (rounds_of_vans, rounds_of_vans, _with(longer))}
    assert len(plans) == 2


def _with(function: Any) -> Pipeline:
    return dataclasses.replace(rounds_of_vans, function=function)
