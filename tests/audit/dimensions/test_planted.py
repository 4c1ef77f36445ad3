"""A dimension that is made of a topic on a real stack: what the service publishes is clean, and a version that is planted is found."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from contracts.definitions.dimension import POSITIONS
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.audit.hops.hop import Hop
from services.audit.report import Report
from services.audit.values.finding import Kind
from services.dimensions.fold import Positions
from services.dimensions.parse import schema_of
from services.dimensions.publication import Publications
from tests.audit.way import DIMENSIONS, RAW, Way
from tests.services.following import Place, wait_for

NAME = str(DIMENSIONS["couriers"][0]["name"])


@pytest.fixture
def way(stack: LocalStack, tmp_path: Path) -> Iterator[Way]:
    with Registry(stack.settings().registry) as registry, Way(stack, registry, tmp_path) as made:
        yield made


@pytest.fixture
def place(way: Way, stack: LocalStack, tmp_path: Path) -> Place:
    """The couriers of the way, made of a topic from version 1 on."""
    made = Place(stack, tmp_path / "place", location=way.catalog.dimension("couriers").location, partitions=1)
    topics = {**way.catalog.topics, made.topic: made.catalog.topic(made.topic)}
    way.catalog = dataclasses.replace(
        way.catalog,
        topics=topics,
        dimensions={**way.catalog.dimensions, "couriers": made.contract},
        _schemas={**way.catalog._schemas, made.topic: tuple(made.catalog.schemas(made.topic))},
    )
    return made


def publish(place: Place, names: dict[str, str], offset: int) -> int:
    """A version of these names, by whose commit the topic was read up to this offset."""
    rows = pa.Table.from_pylist(
        [{"courier": courier, "name": name} for courier, name in names.items()], schema=schema_of(place.contract)
    )
    said = place.positions()
    assert said is not None
    positions = Positions(place.topic, said.topic_id, {0: offset})
    # Another process would be left alone for a minute where it says otherwise of the same records.
    made = Publications(place.settings.s3, clock=lambda: time.time() + 100).publish_fold(
        *(place.contract, rows, positions),
        made_by=place.contract.digest(place.catalog.schema(place.topic)),
        begins_anew=False,
        ends=lambda: replace(positions, offsets={0: 1_000}),
    )
    assert made is not None
    assert made.is_new
    return made.version


def derive(way: Way, version: int, name: str = NAME) -> None:
    """Records that name the version, with what was looked up in it."""
    parcels = way.dispatch(3)
    fields: dict[str, Any] = {"dimension_versions": {"couriers": version, "depots": 0, "vans": 0}, "courier_name": name}
    way.derive(replace(each, fields={**each.fields, **fields}) for each in way.enriched(parcels))
    way.taken_in("dispatches_enriched", RAW, *parcels)


def found(way: Way, place: Place) -> tuple[list[tuple[Kind, str, str]], dict[str, int]]:
    """What is found of the dimension, and its notes."""
    report: Report = way.audit(Hop.DERIVED)
    hop = f"{place.topic} → couriers"
    (tally,) = [each for each in report.tallies if each.hop == hop]
    of_hop = [(each.kind, each.coordinate, each.detail) for each in report.findings]
    assert {each.hop for each in report.findings} <= {hop}
    return of_hop, {text: count for text, count in tally.notes.items() if count}


def test_the_versions_that_the_service_publishes_say_what_the_topic_said(way: Way, place: Place) -> None:
    place.name("UA", NAME)
    place.name("ZZ", "gone soon")
    with place.following():
        wait_for("the first", lambda: place.version() == 1)
        derive(way, 1)
        place.name("UA", "another")
        place.send(b"ZZ", None)
        place.send(b"YY", b"no event")
        wait_for("what follows", lambda: place.names() == {"UA": "another"})
        version = place.version()
    derive(way, version, "another")
    # A record behind the newest version.
    place.name("XX", "later")
    assert found(way, place) == ([], {"versions compared": 2})
    assert found(way, place) == ([], {"versions compared": 2})

    # What compaction would leave of the topic.
    place.forget(0, 2)
    removed = "rows of records that compaction may have removed, not compared"
    assert found(way, place) == ([], {"versions compared": 2, removed: 2})


@pytest.mark.parametrize(
    ("names", "kind", "at"),
    [
        ({"UA": NAME, "AA": "other"}, "changed", 1),
        ({"UA": NAME}, "lost", 1),
        ({"UA": NAME, "AA": "American", "DL": "Delta"}, "phantom", None),
    ],
)
def test_a_wrong_fold_is_found_in_a_version_that_records_name(
    way: Way, place: Place, names: dict[str, str], kind: str, at: int | None
) -> None:
    place.name("UA", NAME)
    place.name("AA", "American")
    with place.following():
        wait_for("the first", lambda: place.version() == 1)
    version = publish(place, names, 2)
    derive(way, version)
    # The one in force is right again, and what records name is still compared.
    assert publish(place, {"UA": NAME, "AA": "American"}, 2) == version + 1
    (wrong, notes), coordinate = found(way, place), place.contract.location if at is None else f"{place.topic}/0/{at}"
    assert notes == {"versions compared": 2}
    assert [(each[0], each[1]) for each in wrong] == [(kind, coordinate)]


def test_a_wrong_version_in_force_is_found_and_the_service_mends_it(way: Way, place: Place) -> None:
    place.name("UA", NAME)
    with place.following():
        wait_for("the first", lambda: place.version() == 1)
    publish(place, {"UA": "wrong"}, 1)
    ((kind, coordinate, detail),), _ = found(way, place)
    assert (kind, coordinate) == ("changed", f"{place.topic}/0/0")
    assert detail == (
        "couriers: version 2: name is not what this record says up to offsets 0/1; the version has a row so: "
        "start dimensions anew, which reads the topic from its beginning and publishes what it says"
    )
    place.name("ZZ", "later")
    with place.following():
        wait_for("the cure", lambda: place.names() == {"UA": NAME, "ZZ": "later"})
    assert found(way, place)[0] == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_brokers_that_compact_the_topic_make_no_version_wrong_and_no_restart_another(way: Way, place: Place) -> None:
    quick = {
        "segment.ms": "50",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
        "min.compaction.lag.ms": "0",
    }
    place.configure(quick)
    versions = []

    def has(name: str) -> bool:
        return (place.names() or {}).get("AA") == name

    with place.following():
        for number in range(4):
            place.name("UA", f"UA {number}")
            place.name("AA", f"AA {number}")
            if number == 1:
                place.send(b"ZZ", b"no event")
                place.name("DL", "Delta")
            if number == 2:
                place.send(b"DL", None)
            wait_for("its version", partial(has, f"AA {number}"))
            versions.append(place.version())
            derive(way, versions[-1], f"UA {number}")
        names = place.names()
        wait_for("the cleaner", lambda: place.offsets()[0] > 0 and len(place.offsets()) < 8, 120)
    kept = place.offsets()
    assert kept[0] > 0
    assert found(way, place)[0] == []
    with place.following() as again:
        wait_for("its look", lambda: again._version is not None)
    # One for each number, the cleaning of the table apart.
    table = place.table()
    assert table is not None
    assert [commit["version"] for commit in table.history() if POSITIONS in commit] == versions[::-1]
    assert place.names() == names
    # A wrong row of which the record is there is found all the same.
    publish(place, {**(names or {}), "UA": "wrong"}, kept[-1] + 1)
    assert [each[:2] for each in found(way, place)[0]] == [("changed", f"{place.topic}/0/{kept[-2]}")]
