"""What a replaying service goes on behind where its dead letters are deleted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from confluent_kafka.admin import AdminClient

from contracts.dead_letters.purge import plan_purge, purge
from contracts.records.dead_letter_headers import dead_letter_headers
from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.replay.position import HEADER, Position
from services.replay.progress import read_progress
from services.replay.tails import Tails
from services.replay.timeline import Entry
from services.replay.unfit import Unfit
from tests.administered import add_partitions
from tests.dead_letters.place import Place
from tests.producers import ordered
from tests.sample import topics

pytestmark = pytest.mark.system
SERVICE = "dispatches"


def test_a_letter_that_never_arrived_is_sent_and_one_that_was_purged_is_not(stack: LocalStack) -> None:
    settings = stack.settings()
    with Registry(settings.registry) as registry:
        place = Place(settings, registry).created()
        add_a_partition(place)
        purged, unsent, left = (unfit(place, row) for row in (5, 8, 9))
        send_letter(place, purged, partition=1)
        assert purge(place.letters, plan_purge(place.letters, lambda letter: True)) == 1
        send_letter(place, left, partition=0)
        # Sent after the letter on row 8, to partitions that were quicker.
        send_events(place, Position(1, 10), Position(1, 11))
        with Tails(settings.kafka) as tails:
            streams = [place.topic, place.dead_letter_topic]
            progress = read_progress(streams, tails, SERVICE, place.letters.settled_digests)
    assert [progress.has(each) for each in (purged, unsent, left)] == [True, False, True]


def add_a_partition(place: Place) -> None:
    """Of dead letters."""
    add_partitions(AdminClient({**place.settings.kafka.client_config()}), place.dead_letter_topic, 2)


def unfit(place: Place, row: int) -> Entry:
    """The row is no event."""
    at, topic = Position(1, row), topics.PARCELS_DISPATCHED
    why = Unfit("Planted", "planted", datetime(1970, 1, 1, tzinfo=UTC))
    return Entry(at, topic, place.dead_letter_topic, f"parcels-{row}", why, {"parcel": str(row)})


def send_letter(place: Place, entry: Entry, partition: int) -> None:
    own: list[tuple[str, bytes | None]] = [(HEADER, str(entry.position).encode()), ("ce_id", entry.id.encode())]
    headers = dead_letter_headers(own, place.topic, SERVICE, "TRANSFORMATION", "Planted", "planted", None)
    send(place, place.dead_letter_topic, [(partition, headers)], entry.letter)


def send_events(place: Place, *positions: Position) -> None:
    """One to each partition."""
    headers: list[list[tuple[str, str | bytes | None]]] = [
        [("ce_source", f"/services/{SERVICE}"), (HEADER, str(each))] for each in positions
    ]
    send(place, place.topic, list(enumerate(headers)), b"v")


def send(
    place: Place, topic: str, records: list[tuple[int, list[tuple[str, str | bytes | None]]]], value: bytes
) -> None:
    producer = ordered(place.settings.kafka.client_config())
    for partition, headers in records:
        producer.produce(topic, value, partition=partition, headers=list(headers))
    assert producer.flush(30) == 0
