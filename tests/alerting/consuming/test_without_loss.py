"""Workers that are killed, frozen and joined by others: no alert is lost, none is one too many, and each is told."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.records.codec import Codec
from contracts.records.coordinates import Coordinate
from contracts.servers.registry import Registry
from contracts.subscriber import Record as Received
from contracts.subscriber import Subscriber
from deploy.local.servers.stack import LocalStack
from services.alerting.consuming.assigned import Assigned
from services.alerting.consuming.watchdog import Stalled, Watchdog
from services.alerting.consuming.window import Window
from services.alerting.settings import AlertingSettings
from tests import sample
from tests.alerting.consuming.oracle import activations, alerts_by_activations
from tests.alerting.endpoint import Endpoint
from tests.alerting.test_from_alert_to_webhook import receivers_file, tell_from_now_on
from tests.alerting.test_from_record_to_alert import a_reading, a_station
from tests.alerting.worker import Worker, committed, producer, publish_readings, settings_of, wait_for
from tests.sample import topics
from tests.sample.events import DepotObserved

pytestmark = pytest.mark.system

READINGS = topics.DEPOTS_OBSERVED.name


def some_readings(stack: LocalStack, station: str, count: int = 300) -> dict[str, DepotObserved]:
    """Blasts from 30 to 49 mph, published, by coordinate; readings of several stations spread over the partitions."""
    return publish_readings(
        stack, (a_reading(f"{station}{number % 7}", wind_peak_mph=30.0 + number % 20) for number in range(count))
    )


def offsets_by_partition(placed: Mapping[str, DepotObserved]) -> dict[int, list[int]]:
    """Those of the records, by partition."""
    found: dict[int, list[int]] = {}
    for coordinate in placed:
        _, partition, offset = coordinate.rsplit("/", 2)
        found.setdefault(int(partition), []).append(int(offset))
    return found


def wait_until_handled(stack: LocalStack, placed: Mapping[str, DepotObserved], what: str) -> None:
    last = {partition: max(of) for partition, of in offsets_by_partition(placed).items()}
    wait_for(lambda: all(committed(stack, READINGS, each) > offset for each, offset in last.items()), what)


def raised(stack: LocalStack, placed: Mapping[str, DepotObserved]) -> dict[UUID, str]:
    """The rule of each alert on the topic that goes back to the records, by id."""
    with Subscriber(topics.ALERTS_RAISED, f"test-{uuid4()}", settings_of(stack), idle_seconds=5) as alerts:
        events = [record.event for record in alerts if isinstance(record, Received)]
    return {event.alert_id: event.rule for event in events if event.coordinate in placed}


def told(endpoint: Endpoint) -> set[UUID]:
    """The ids of the alerts that the receiver got, taken or not."""
    return {UUID(post["alert"]["alert_id"]) for post in endpoint.posts}


def test_workers_killed_frozen_and_rebalanced_raise_what_the_oracle_says_and_each_alert_is_told(
    stack: LocalStack, tmp_path: Path
) -> None:
    rules, station = tmp_path / "rules.yaml", a_station()
    shipped = re.sub(r"cooldown: \w+", "cooldown: 0s", sample.RULES.read_text(encoding="utf-8"))
    rules.write_text(shipped, encoding="utf-8")
    tell_from_now_on(stack, "without-loss")
    with Endpoint(503, "drop", 503, 503, 200) as endpoint:
        settings: dict[str, Any] = {
            "HEADRACE_RULES_FILE": rules,
            "HEADRACE_RECEIVERS_FILE": receivers_file(tmp_path, {"without-loss": endpoint.url}),
            "HEADRACE_SESSION_TIMEOUT_SECONDS": "6",
        }
        with Worker(stack, **settings) as first:
            placed = some_readings(stack, station)
            wait_until_handled(stack, placed, "the only worker")
            with Worker(stack, **settings) as second, Worker(stack, **settings) as third:
                placed |= some_readings(stack, station)
                wait_until_handled(stack, placed, "three workers")
                first.freeze()
                placed |= some_readings(stack, station)
                wait_until_handled(stack, placed, "the others to take over from the frozen one")
                rules.write_text(shipped.replace("threshold: 40", "threshold: 45"), encoding="utf-8")
                wait_for(
                    lambda: all(len(worker.logged("rules in force")) == 2 for worker in (second, third)),
                    "the new rules",
                )
                placed |= some_readings(stack, station)
                first.thaw()
                second.kill()
                placed |= some_readings(stack, station)
                wait_until_handled(stack, placed, "those left to take over from the killed one")
            placed |= some_readings(stack, station)
            wait_until_handled(stack, placed, "the last one left")
            events = activations(stack)
            for partition, of in offsets_by_partition(placed).items():
                generations = {
                    each.generation
                    for each in events
                    if (each.topic, each.partition) == (READINGS, partition) and each.from_offset >= min(of)
                }
                assert len(generations) > 1, "each worker tells of the group's generation that it got the partition in"
                assert None not in generations
            expected = alerts_by_activations(events, placed)
            alerts = raised(stack, placed)
            assert alerts.keys() == expected.keys()
            # Both versions of the rule were in force, each for its part.
            assert len({alert.rule_version for alert in expected.values()}) == 2
            assert 600 < len(alerts) < 900
            wait_for(lambda: alerts.keys() <= told(endpoint), "each alert to be told")
        # A receiver that drops repeats by their key has each once.
        keys = {
            post["alert"]["alert_id"]: header["Idempotency-Key"]
            for post, header in zip(endpoint.posts, endpoint.headers, strict=True)
        }
        assert all(key == alert for alert, key in keys.items())


def test_a_consumer_that_stops_fetching_is_begun_anew(stack: LocalStack) -> None:
    with Worker(stack, module="tests.alerting.consuming.stalling", HEADRACE_STALL_SECONDS="1") as worker:
        wait_until_handled(stack, some_readings(stack, a_station(), 20), "the worker to work")
        worker.process.send_signal(signal.SIGUSR1)
        placed = some_readings(stack, a_station(), 20)
        wait_until_handled(stack, placed, "the consumer that was begun anew")
        assert worker.metric("headrace_alerting_restarts_total") >= 1
        [line, *_] = worker.logged("the consumer makes no progress and begins anew: find out why")
        assert READINGS in line["stall"]
    assert raised(stack, placed).keys() == alerts_by_activations(activations(stack), placed).keys()


def a_record_and_markers(stack: LocalStack) -> int:
    """The offset of a record of partition 0, behind which its transaction's marker lies, then an aborted record and that one's marker."""
    with Registry(settings_of(stack).registry) as registry:
        schema_id = registry.latest(f"{READINGS}-value").id
        body = Codec(registry.by_id).encode(schema_id, vars(a_reading(a_station(), wind_peak_mph=None)))
    places: list[int] = []
    sender = producer(stack, **{"transactional.id": f"test-{uuid4()}"})
    sender.init_transactions(30)
    for commit in (True, False):
        sender.begin_transaction()
        sender.produce(READINGS, body, partition=0, on_delivery=lambda _, message: places.append(message.offset() or 0))
        sender.flush(30)
        if commit:
            sender.commit_transaction(30)
        else:
            sender.abort_transaction(30)
    return places[0]


def test_the_watchdog_counts_records_and_no_markers_of_transactions(stack: LocalStack) -> None:
    place = a_record_and_markers(stack)
    watchdog = Watchdog(AlertingSettings.model_validate({"kafka": settings_of(stack).kafka}), list)
    assert watchdog.unread([(READINGS, 0, place)]) == Coordinate(READINGS, 0, place)
    assert watchdog.unread([(READINGS, 0, place + 1)]) is None


def test_a_record_that_waits_for_the_registry_holds_up_all_partitions_for_a_good_reason(stack: LocalStack) -> None:
    """They are taken one after the other."""
    place = a_record_and_markers(stack)

    async def look() -> None:
        waiting, behind = (
            Assigned(READINGS, number, Window(10, lambda error: None), 1, handled=place) for number in (1, 0)
        )
        settings = AlertingSettings.model_validate({"kafka": settings_of(stack).kafka, "stall_seconds": 1})
        watchdog = Watchdog(settings, lambda: [waiting, behind])

        async def wait() -> None:
            while True:
                waiting.waits += 1
                await asyncio.sleep(0.1)

        waits = asyncio.ensure_future(wait())
        try:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watchdog.watch(), 5)
            waits.cancel()
            with pytest.raises(Stalled, match=f"{READINGS}/./.* waits"):
                await asyncio.wait_for(watchdog.watch(), 30)
        finally:
            waits.cancel()
            watchdog.rest()

    asyncio.run(look())
