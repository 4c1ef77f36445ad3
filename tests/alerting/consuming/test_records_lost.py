"""Records that are deleted before alerting has read them: it goes on behind them, and says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from contracts.records.codec import Codec
from contracts.servers.registry import Registry
from contracts.subscriber import Record, Subscriber
from deploy.local.servers.stack import LocalStack
from tests.alerting.consuming.test_without_loss import offsets_by_partition, wait_until_handled
from tests.alerting.endpoint import Endpoint
from tests.alerting.examples import AT
from tests.alerting.test_from_alert_to_webhook import receivers_file, told
from tests.alerting.test_from_record_to_alert import a_reading, a_station, of, oracle
from tests.alerting.worker import (
    SECONDS,
    Worker,
    alerts_of,
    committed,
    producer,
    publish,
    publish_readings,
    read_all,
    settings_of,
    wait_for,
)
from tests.sample import topics
from tests.sample.events import DepotObserved, ParcelLost
from tests.sample.stack import bring, new_stack

pytestmark = pytest.mark.system

READINGS = topics.DEPOTS_OBSERVED.name
ALERTS = topics.ALERTS_RAISED.name
GONE = "records are gone unread and raise no alert: lengthen the topic's retention, or find out what held alerting up"
CUT = (
    "a partition ended before the next offset, alerting begins with its first record: let alerting catch up before a topic "
    "is made anew"
)
MADE_ANEW = (
    "a topic is another one of the same name, alerting begins with its first records: let alerting catch up before a topic "
    "is made anew"
)
LOST_TOTAL = f'headrace_alerting_records_lost_total{{topic="{READINGS}"}}'
CUT_TOTAL = f'headrace_alerting_topics_cut_total{{topic="{READINGS}"}}'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack whose topics nobody else reads: they are deleted here."""
    with new_stack(tmp_path_factory.mktemp("lost")) as running:
        yield running


def storms(stack: LocalStack, station: str, count: int = 1) -> dict[str, DepotObserved]:
    """Readings that raise an alert each, published to the station's partition, by coordinate."""
    return publish_readings(stack, [a_reading(station) for _ in range(count)])


def place(placed: Mapping[str, DepotObserved]) -> tuple[int, int]:
    """The partition of the readings and the offset behind the last of them."""
    [(partition, of)] = offsets_by_partition(placed).items()
    return partition, max(of) + 1


def offsets(placed: Mapping[str, DepotObserved]) -> list[int]:
    return [int(coordinate.rpartition("/")[2]) for coordinate in placed]


@pytest.fixture(scope="module")
def admin(stack: LocalStack) -> AdminClient:
    return AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})


def delete(admin: AdminClient, partition: int, before: int, topic: str = READINGS) -> None:
    """Delete the partition's records before the offset."""
    for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result(SECONDS)


def forget_the_group(admin: AdminClient) -> None:
    """As if alerting had never run."""
    for future in admin.delete_consumer_groups(["alerting"]).values():
        future.result(SECONDS)


def nothing_told(worker: Worker) -> bool:
    return (
        not worker.logged(GONE) and not worker.logged(CUT) and not worker.metric(LOST_TOTAL) + worker.metric(CUT_TOTAL)
    )


def loss(worker: Worker, event: str) -> dict[str, Any]:
    """The one log line of that event, when it is there."""
    wait_for(lambda: worker.logged(event), "the loss to be told")
    [line] = worker.logged(event)
    assert line["level"] == "error"
    return line


def test_records_deleted_while_it_was_stopped_are_told_once_and_later_ones_alert(
    stack: LocalStack, admin: AdminClient
) -> None:
    station = a_station()
    with Worker(stack):
        wait_until_handled(stack, storms(stack, station), "the first reading")
    missed = storms(stack, station, 3)
    partition, end = place(missed)
    delete(admin, partition, end - 1)
    with Worker(stack) as worker:
        line = loss(worker, GONE)
        assert (line["topic"], line["partition"]) == (READINGS, partition)
        assert (line["from_offset"], line["to_offset"], line["lost"]) == (end - 3, end - 1, 2)
        later = storms(stack, station)
        found = alerts_of(stack, [list(missed)[-1], *later])
        assert worker.metric(LOST_TOTAL) == 2
        assert len(worker.logged(GONE)) == 1
    assert not of(found, dict(list(missed.items())[:-1]))


def test_a_loss_with_nothing_behind_it_is_not_told_again_by_the_next_worker(
    stack: LocalStack, admin: AdminClient
) -> None:
    station = a_station()
    with Worker(stack):
        wait_until_handled(stack, storms(stack, station), "the first reading")
    partition, end = place(storms(stack, station, 3))
    delete(admin, partition, end)
    with Worker(stack) as worker:
        assert loss(worker, GONE)["lost"] == 3
    assert committed(stack, READINGS, partition) == end
    with Worker(stack) as worker:
        alerts_of(stack, storms(stack, station))
        assert nothing_told(worker)


def test_records_deleted_before_a_slow_reader_are_told(stack: LocalStack, admin: AdminClient) -> None:
    station = a_station()
    with Worker(stack) as worker:
        wait_until_handled(stack, storms(stack, station), "the first reading")
        worker.freeze()
        # What answers the fetch that was open is read in spite of the deletion.
        fetched, missed = storms(stack, station), storms(stack, station, 100)
        partition, end = place(missed)
        delete(admin, partition, end)
        kept = storms(stack, station, 5)
        worker.thaw()
        line = loss(worker, GONE)
        wait_until_handled(stack, kept, "the readings behind the deleted ones")
        assert worker.metric(LOST_TOTAL) == line["lost"] == end - line["from_offset"] >= len(missed)
        found = alerts_of(stack, kept)
    published = fetched | missed | kept
    read = {
        coordinate: reading
        for offset, (coordinate, reading) in zip(offsets(published), published.items(), strict=True)
        if not line["from_offset"] <= offset < line["to_offset"]
    }
    assert of(found, published) == oracle(read)


def test_a_new_group_and_the_gaps_of_transactions_are_no_loss(stack: LocalStack, admin: AdminClient) -> None:
    station = a_station()
    with Worker(stack):
        wait_until_handled(stack, storms(stack, station), "the group to be there")
    partition, end = place(storms(stack, station, 3))
    delete(admin, partition, end)
    forget_the_group(admin)
    with Registry(settings_of(stack).registry) as registry:
        body = Codec(registry.by_id).encode(registry.latest(f"{READINGS}-value").id, vars(a_reading(station)))
    sender = producer(stack, **{"transactional.id": f"test-{uuid4()}"})
    sender.init_transactions(30)
    for commits in (False, True, False):
        sender.begin_transaction()
        sender.produce(READINGS, body, partition=partition)
        sender.flush(30)
        if commits:
            sender.commit_transaction(30)
        else:
            sender.abort_transaction(30)
    with Worker(stack) as worker:
        last = storms(stack, station)
        alerts_of(stack, [f"{READINGS}/{partition}/{end + 2}", *last])
        wait_until_handled(stack, last, "the position beyond the gaps")
        # A partition without a record has its position, too: what is deleted from it later is known to be lost.
        lost = topics.PARCELS_LOST.name
        wait_for(lambda: committed(stack, lost, 0) == 0, "the position in a partition without a record")
        assert nothing_told(worker)


def test_a_notifier_goes_on_behind_alerts_that_were_deleted(
    stack: LocalStack, admin: AdminClient, tmp_path: Path
) -> None:
    with Endpoint() as endpoint:
        receivers = receivers_file(tmp_path, {"lost": endpoint.url})
        with Worker(stack, HEADRACE_RECEIVERS_FILE=receivers):
            storms(stack, heard := a_station())
            wait_for(lambda: told(endpoint, heard), "the receiver to be told")
        with Worker(stack):
            alerts_of(stack, storms(stack, missed := a_station(), 2))
        end = len(read_all(stack, ALERTS))
        delete(admin, 0, end, ALERTS)
        with Worker(stack, HEADRACE_RECEIVERS_FILE=receivers) as worker:
            storms(stack, later := a_station())
            wait_for(lambda: told(endpoint, later), "the receiver to be told of what comes behind")
            assert worker.metric(f'headrace_alerting_records_lost_total{{topic="{ALERTS}"}}') == 2
            assert any(f"up to {end} are gone" in line for line in worker.log)
        assert not told(endpoint, missed)


def test_a_topic_made_anew_with_fewer_records_is_read_from_its_first(stack: LocalStack, admin: AdminClient) -> None:
    station, later = a_station(), AT + timedelta(days=1)
    with Worker(stack):
        wait_until_handled(stack, old := storms(stack, station, 5), "the old topic's readings")
    partition, end = place(old)
    make_anew(stack, admin)
    anew = publish_readings(stack, [a_reading(station, observed_at=later) for _ in range(2)])
    assert place(anew) == (partition, 2)
    # Brokers forget a group's offsets with the topic; a commit that was on its way may come behind that.
    group = Consumer({"bootstrap.servers": stack.kafka.bootstrap_servers, "group.id": "alerting"})
    group.commit(offsets=[TopicPartition(READINGS, partition, end)], asynchronous=False)
    group.close()
    with Worker(stack) as worker:
        line = loss(worker, CUT)
        assert (line["from_offset"], line["to_offset"]) == (end, 0)
        wait_until_handled(stack, anew, "the new topic's readings")
        assert (worker.metric(CUT_TOTAL), worker.metric(LOST_TOTAL)) == (1, 0)
    assert alerts_at(stack, later) == anew.keys()


def test_a_topic_made_anew_with_more_records_while_it_is_read_is_read_from_its_first(
    stack: LocalStack, admin: AdminClient
) -> None:
    station, later = a_station(), AT + timedelta(days=2)
    with Worker(stack, HEADRACE_SESSION_TIMEOUT_SECONDS="45") as worker:
        wait_until_handled(stack, storms(stack, station, 5), "the old topic's readings")
        # As if it took no time: what a reader notices meanwhile makes it begin anew by itself.
        worker.freeze()
        make_anew(stack, admin)
        anew = publish_readings(stack, [a_reading(station, observed_at=later) for _ in range(8)])
        worker.thaw()
        wait_for(lambda: worker.logged(MADE_ANEW), "the new topic to be told")
        assert {line["topic"] for line in worker.logged(MADE_ANEW)} == {READINGS}
        wait_for(lambda: alerts_at(stack, later) == anew.keys(), "the alerts of all that the new topic has")
        assert worker.metric(CUT_TOTAL) > 0


def test_a_topic_that_is_deleted_while_it_is_read_holds_up_no_other_one(stack: LocalStack, admin: AdminClient) -> None:
    station, later = a_station(), AT + timedelta(days=3)
    with Worker(stack) as worker:
        wait_until_handled(stack, storms(stack, station), "the first reading")
        # Some of them are handled and not committed when it goes.
        storms(stack, station, 3000)
        admin.delete_topics([READINGS])[READINGS].result(SECONDS)
        wait_for(lambda: READINGS not in admin.list_topics(timeout=SECONDS).topics, "the topic to be gone")
        alerts_of(stack, publish(stack, "dispatches", topics.PARCELS_LOST, [a_lost_parcel()]))
        assert worker.health() == 200
        # It comes back some seconds later, when the group has left it.
        bring(stack)
        anew = publish_readings(stack, [a_reading(a_station(), observed_at=later)])
        wait_for(lambda: alerts_at(stack, later) == anew.keys(), "the alert of what the new topic has")
        wait_for(lambda: worker.logged(MADE_ANEW), "the new topic to be told")
        assert {line["topic"] for line in worker.logged(MADE_ANEW)} == {READINGS}


def a_lost_parcel() -> ParcelLost:
    """One that raises an alert."""
    return ParcelLost(
        parcel_id=str(uuid4()),
        courier="UA",
        parcel_number=1,
        origin="NTH",
        destination="MIA",
        posted_on=AT.date(),
        due_at=AT,
        weight_grams=1_000,
    )


def make_anew(stack: LocalStack, admin: AdminClient) -> None:
    """The topic of readings, empty."""
    admin.delete_topics([READINGS])[READINGS].result(SECONDS)
    wait_for(lambda: READINGS not in admin.list_topics(timeout=SECONDS).topics, "the topic to be gone")
    bring(stack)


def alerts_at(stack: LocalStack, occurred_at: datetime) -> set[str]:
    """The coordinates of the alerts of that time; those of the topic before are of the same ones, so they have the same ids."""
    group, settings = f"test-{uuid4()}", settings_of(stack)
    with Subscriber(topics.ALERTS_RAISED, group, settings, idle_seconds=1, repeats_window=0) as alerts:
        raised = [record.event for record in alerts if isinstance(record, Record)]
    return {alert.coordinate for alert in raised if alert.occurred_at == occurred_at}
