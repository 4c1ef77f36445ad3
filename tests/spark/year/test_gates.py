"""All departures of 2013 through `departure_gates`, killed three times on its way, while gates are announced on a topic that the dimension follows, against what was announced
up to the positions that each record's version names, in plain Python (`pytest -m long`)."""

from __future__ import annotations

import dataclasses
import io
import json
import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from threading import Event as Flag
from threading import Thread
from typing import Any

import fastavro
import pytest
from deltalake import DeltaTable

from contracts.definitions.catalog import load_catalog
from contracts.definitions.dimension import POSITIONS
from contracts.publisher import Publisher
from contracts.servers.registry import Registry
from services.audit.hops.hop import Hop
from services.departures.gate import gate_of
from services.dimensions.fold import Positions
from services.dimensions.follower import Follower
from services.dimensions.publication import Publications
from services.dimensions.settings import DimensionsSettings
from services.nycflights.tables import read_table
from spark.pipelines.departure_gates import departure_gates
from tests.producers import ordered
from tests.spark.auditor import looked_at, noted
from tests.spark.examples import framed
from tests.spark.live_query import wait_for
from tests.spark.pipelines.test_pipelines import a_departure
from tests.spark.year.events import Event
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_ANNOUNCED = "gates.announced.v1"
_AHEAD = timedelta(days=1)
_SEED = 20261129


class Announcements:
    """Gates are announced as far as the pipeline has come, and become the dimension as the service makes it."""

    def __init__(self, passage: Passage, place: str) -> None:
        """`place` is that of the dimensions."""
        settings, topics = passage.settings, passage.topics
        self._passage, self._kafka = passage, settings.kafka.client_config()
        self._topic, self._schema_id = topics.catalog.topic(_ANNOUNCED), topics.schema_ids[_ANNOUNCED]
        schema = topics.catalog.schema(_ANNOUNCED)
        self._schema = fastavro.parse_schema(json.loads(schema))
        # The dimension names its topic as the catalog does.
        others = {name: topic for name, topic in topics.catalog.topics.items() if name != _ANNOUNCED}
        gates = load_catalog().dimension("gates")
        location = f"{place}/{gates.name}"
        self._contract = gates.model_copy(update={"topic": self._topic.name, "location": location})
        topics.catalog = dataclasses.replace(
            topics.catalog,
            topics={**others, self._topic.name: self._topic},
            dimensions={gates.name: self._contract},
            _schemas={**topics.catalog._schemas, self._topic.name: (schema,)},
        )
        self._s3 = settings.s3
        self._settings = DimensionsSettings(kafka=settings.kafka, registry=settings.registry, s3=settings.s3)
        chance, found = random.Random(_SEED), [gate_of(row).model_dump() for row in read_table("flights")]
        moments = [(at, gate) for gate in found for at in passage.arranged(gate["announced_at"], chance)]
        self._coming = sorted(moments, key=itemgetter(0))
        self.sent: list[list[Event]] = [[], []]
        """Of each partition, in the order of their offsets."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Until the context ends; from a first version on."""
        stop = Flag()
        with (
            Registry(self._settings.registry) as registry,
            Publisher(
                self._settings, service="dimensions", topics=(), catalog=self._passage.topics.catalog, registry=registry
            ) as publisher,
        ):
            publications = Publications(self._s3)
            follower = Follower(
                self._contract, self._settings, self._passage.topics.catalog, registry, publications, publisher
            )
            self._announce(datetime(2013, 1, 2, tzinfo=UTC))
            threads = [Thread(target=each, args=(stop,)) for each in (follower.run, self._go_on)]
            for thread in threads:
                thread.start()
            try:
                wait_for("a version", lambda: publications.in_force(self._contract) is not None)
                yield
            finally:
                stop.set()
                for thread in threads:
                    thread.join(60)
                    assert not thread.is_alive()
        assert follower.trouble is None

    def _go_on(self, stop: Flag) -> None:
        upto, looked = datetime(2013, 1, 2, tzinfo=UTC), 0
        while not stop.wait(1.0):
            taken = self._passage.progress()
            for each in self._passage.sent[looked:taken]:
                upto = max(upto, each.event["departed_at"] + _AHEAD)
            looked = max(looked, taken)
            self._announce(upto)

    def _announce(self, upto: datetime) -> None:
        count = next((number for number, (at, _) in enumerate(self._coming) if at > upto), len(self._coming))
        producer = ordered(self._kafka)
        for _, gate in self._coming[:count]:
            key, body = gate["line_id"].encode(), io.BytesIO()
            fastavro.schemaless_writer(body, self._schema, gate)
            partition = zlib.crc32(key) % 2
            producer.produce(self._topic.name, framed(self._schema_id, body.getvalue()), key=key, partition=partition)
            self.sent[partition].append(gate)
            producer.poll(0)
        assert producer.flush(60) == 0
        del self._coming[:count]

    def positions(self) -> dict[int, Positions]:
        """Of each version, up to where the topic was read; one of maintenance has the rows of the one before."""
        uri = f"s3://{self._s3.bucket}/{self._contract.location}"
        commits = DeltaTable(uri, storage_options=self._s3.delta_options()).history()
        found: dict[int, Positions] = {}
        for each in sorted(commits, key=itemgetter("version")):
            told = Positions.parse(each.get(POSITIONS))
            found[each["version"]] = found[each["version"] - 1] if told is None else told
        return found


def _gates(announced: Announcements, versions: set[int]) -> dict[int, dict[tuple[Any, ...], Event]]:
    """By version what was last announced of each line, up to its positions."""
    positions, found = announced.positions(), dict[int, dict[tuple[Any, ...], Event]]()
    newest: dict[tuple[Any, ...], Event] = {}
    begin = [0, 0]
    for version in sorted(versions):
        for partition in (0, 1):
            end = positions[version].offsets[partition]
            for gate in announced.sent[partition][begin[partition] : end]:
                newest[gate["carrier"], gate["flight_number"], gate["origin"]] = gate
            begin[partition] = end
        found[version] = dict(newest)
    return found


def _with_gate(flight: Event, version: int, gates: Mapping[tuple[Any, ...], Event]) -> dict[str, Any]:
    gate = gates.get((flight["carrier"], flight["flight_number"], flight["origin"]))
    return {name: flight[name] for name in a_departure()} | {
        "gate": gate and gate["gate"],
        "gate_announced_for": gate and gate["flight_id"],
        "unmatched": [] if gate else ["gates"],
        "dimension_versions": {"gates": version},
        "revision": 0,
    }


def test_every_departure_of_a_year_has_the_gate_of_its_version_though_it_was_killed(
    passed: Callable[..., Passage],
) -> None:
    announcing: list[Announcements] = []

    def beside(passage: Passage, place: str) -> AbstractContextManager[None]:
        announcing.append(Announcements(passage, place))
        return announcing[0].running()

    passage = passed(departure_gates, _ANNOUNCED, beside=beside)
    written = passage.by_id()
    versions = {event["dimension_versions"]["gates"] for event in written.values()}
    gates = _gates(announcing[0], versions)
    # Each start finds another one.
    assert len(versions) >= 4
    sent = {passage.coordinate(each): each.event for each in passage.sent}
    assert written.keys() == sent.keys()
    for coordinate, flight in sent.items():
        version = written[coordinate]["dimension_versions"]["gates"]
        assert written[coordinate] == _with_gate(flight, version, gates[version])
    assert {event["gate_announced_for"] == event["flight_id"] for event in written.values()} == {True, False}
    report = passage.audit(Hop.DERIVED)
    assert looked_at(report, passage.topics.catalog.topic(departure_gates.source).name) == len(passage.sent)
    assert noted(report, "versions compared") >= len(versions)
