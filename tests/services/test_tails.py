"""Where a producer goes on is told by the newest record that it sent, not by one that was sent back since."""

from __future__ import annotations

import pytest

from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from services.replay.position import HEADER, START, Position
from services.replay.tails import Tails
from tests.dead_letters.place import Place
from tests.producers import ordered
from tests.raw_records import NO_TEXT, RawRecord, send_raw

pytestmark = pytest.mark.system


def test_a_redriven_record_and_the_marker_behind_it_do_not_take_a_producer_back(stack: LocalStack) -> None:
    settings = stack.settings()
    positions = [Position(1, 0), Position(2, 0), Position(3, 0)]
    with Registry(settings.registry) as registry:
        place = Place(settings, registry).created()
        producer = ordered(settings.kafka.client_config())
        for each in positions:
            producer.produce(place.topic, b"v", partition=1, headers=list(_headers(each)))
        assert producer.flush(30) == 0
        place.send_letters(b"v", original=_headers(positions[0]))
        place.redrive()
        send_raw(settings.kafka, place.topic, 1, [RawRecord(b"key", b"v", ((NO_TEXT, b"x"),))])
    with Tails(settings.kafka) as tails:
        assert list(tails.positions(place.topic, 1, "dispatches")) == [*positions[::-1], START]


def _headers(position: Position) -> list[tuple[str, bytes | None]]:
    return [("ce_source", b"/services/dispatches"), (HEADER, str(position).encode())]
