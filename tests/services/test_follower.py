"""A dimension that is made of a compacted topic, against real brokers and a real object store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from prometheus_client import REGISTRY

from contracts.definitions.dimension import DimensionContract
from contracts.records.headers import header_of, headers_of
from contracts.servers.s3 import s3_client
from deploy.local.servers.stack import LocalStack
from services.dimensions import follower as module
from services.dimensions.errors import AnotherContract, Overtaken, TopicMadeAnew
from services.dimensions.fold import Positions
from services.dimensions.follower import Follower
from services.dimensions.parse import schema_of
from services.dimensions.publication import Publications, Published
from tests.producers import ordered
from tests.services.following import NAMED_AT, Place, wait_for

pytestmark = pytest.mark.system


@pytest.fixture
def place(stack: LocalStack, tmp_path: Path) -> Place:
    return Place(stack, tmp_path)


def wait_for_names(place: Place, names: Mapping[str, str]) -> None:
    wait_for(f"{names}", lambda: place.names() == names)


def letters(place: Place) -> list[tuple[str, bytes | None]]:
    """Reason and value of the topic's dead letters."""
    config: dict[str, Any] = {
        **place.settings.kafka.client_config(),
        "group.id": "letters",
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    consumer.assign([TopicPartition(f"{place.topic}.dlq", 0, OFFSET_BEGINNING)])
    found = []
    try:
        while (message := consumer.poll(10)) is not None and message.error() is None:
            reason = header_of(headers_of(message), "__connect.errors.exception.class.name")
            found.append(((reason or b"").decode(), message.value()))
    finally:
        consumer.close()
    return found


def test_the_newest_value_of_each_key_is_published_and_followed(place: Place) -> None:
    place.name("UA", "United")
    place.name("AA", "American")
    place.name("UA", "United Anew")
    with place.following():
        wait_for_names(place, {"AA": "American", "UA": "United Anew"})
        assert place.version() == 0
        place.name("DL", "Delta")
        wait_for_names(place, {"AA": "American", "DL": "Delta", "UA": "United Anew"})
        place.send(b"AA", None)
        wait_for_names(place, {"DL": "Delta", "UA": "United Anew"})
        place.send(b"DL", None)
        place.send(b"UA", None)
        wait_for_names(place, {})
    said = place.positions()
    assert said is not None
    assert (said.topic, sum(said.offsets.values())) == (place.topic, 7)
    assert place.publications.in_force(place.contract) is not None


def test_the_versions_follow_each_other_at_most_as_often_as_the_contract_says(place: Place) -> None:
    place.name("UA", "first")
    with place.following() as follower:
        wait_for("the first", lambda: place.version() == 0)
        begin, until = time.monotonic(), time.monotonic() + 60
        while place.version() < 3 and time.monotonic() < until:
            place.name("UA", f"{time.monotonic()}")
        place.name("UA", "last")
        wait_for_names(place, {"UA": "last"})
        seconds = time.monotonic() - begin
        assert follower.trouble is None
    # One when the first second is over, one for each second, and one for the last name.
    assert 3 <= place.version() <= seconds + 2


def test_a_start_publishes_nothing_again_and_one_with_another_contract_does(place: Place) -> None:
    place.name("UA", "United")
    with place.following():
        wait_for_names(place, {"UA": "United"})
    with place.following() as again:
        wait_for("its look", lambda: again._version is not None)
        assert (again._version, place.version()) == (0, 0)
        # What says the same is no new version either.
        place.name("UA", "United")
        place.name("AA", "American")
        wait_for_names(place, {"AA": "American", "UA": "United"})
        assert place.version() == 1


def test_nothing_is_published_as_long_as_the_topic_has_no_record(place: Place) -> None:
    with place.following() as follower:
        wait_for("a look at the topic's end", lambda: follower._publish_at > 0)
        assert place.version() == -1
        place.name("UA", "United")
        wait_for_names(place, {"UA": "United"})


def test_the_end_of_the_topic_at_the_start_is_reached_before_anything_is_published(place: Place) -> None:
    for number in range(20_000):
        place._producer.produce(
            place.topic, key=f"C{number % 500}".encode(), value=place.event(f"C{number % 500}", str(number))
        )
        place._producer.poll(0)
    assert place._producer.flush(60) == 0
    with place.following():
        wait_for("the first version", lambda: place.version() == 0)
        assert place.names() == {f"C{number % 500}": str(number) for number in range(19_500, 20_000)}


def test_a_record_that_is_no_row_is_a_dead_letter_once_and_takes_its_key_away(place: Place) -> None:
    place.name("UA", "United")
    place.name("DL", "Delta")
    place.send(b"UA", b"no event")
    place.name("LONG", "x" * 1_001)
    counted = ("headrace_dimensions_records_set_aside_total", {"dimension": "couriers", "reason": "TooLong"})
    before = REGISTRY.get_sample_value(*counted) or 0
    with place.following():
        wait_for_names(place, {"DL": "Delta"})
    told = letters(place)
    assert sorted(reason for reason, _ in told) == ["ForeignBody", "TooLong"]
    assert b"no event" in {value for _, value in told}
    assert REGISTRY.get_sample_value(*counted) == before + 1
    with place.following():
        place.name("UA", "United Anew")
        wait_for_names(place, {"DL": "Delta", "UA": "United Anew"})
        place.send(b"DL", b"no event")
        wait_for_names(place, {"UA": "United Anew"})
    assert len(letters(place)) == len(told) + 1


def test_the_same_positions_give_the_same_rows_though_compaction_has_removed_records_since(place: Place) -> None:
    for partition in (0, 1):
        place.name(f"C{partition}", "first", partition=partition)
        place.send(f"C{partition}".encode(), b"no event", partition=partition)
        place.name("AA", f"American {partition}", partition=partition)
    with place.following():
        wait_for("a version", lambda: place.version() == 0)
        names = place.names()
    place.forget(0, 1)
    with place.following() as again:
        wait_for("its look", lambda: again._version is not None)
        assert (again._version, place.names()) == (0, names)


def test_the_latest_of_records_with_several_keys_counts_though_it_says_what_its_key_said_before(place: Place) -> None:
    said = {name: place.event("UA", name) for name in ("one", "two")}
    place.send(b"key 1", said["one"], partition=0, timestamp=1_000)
    place.send(b"key 2", said["two"], partition=0, timestamp=2_000)
    with place.following():
        wait_for_names(place, {"UA": "two"})
        place.send(b"key 1", said["one"], partition=0, timestamp=3_000)
        wait_for_names(place, {"UA": "one"})


def test_of_records_with_several_keys_that_tell_of_one_row_the_latest_counts(place: Place) -> None:
    value = {number: place.event("UA", str(number)) for number in range(3)}
    for number, partition in ((2, 0), (1, 1), (0, 1)):
        place.send(f"key {number}".encode(), value[number], partition=partition, timestamp=1_000 + number)
    with place.following():
        wait_for_names(place, {"UA": "2"})
        gauge = ("headrace_dimensions_contradictions", {"dimension": "couriers"})
        wait_for("the gauge", lambda: REGISTRY.get_sample_value(*gauge) == 1)


def test_a_topic_that_was_made_anew_is_told_and_changes_nothing_until_somebody_says_so(place: Place) -> None:
    lost = ("headrace_dimensions_topic_lost", {"dimension": "couriers"})
    place.name("UA", "United")
    with place.following() as follower:
        wait_for_names(place, {"UA": "United"})
        place.make_anew()
        place.name("AA", "American")
        wait_for("the alarm", lambda: REGISTRY.get_sample_value(*lost) == 1)
        assert "was made anew" in str(follower.trouble)
        assert (place.version(), place.names()) == (0, {"UA": "United"})
    with place.following(on_topic_loss="continue"):
        wait_for_names(place, {"AA": "American"})
        wait_for("the end of the alarm", lambda: REGISTRY.get_sample_value(*lost) == 0)
    assert place.version() == 1
    with place.following():
        place.name("DL", "Delta")
        wait_for_names(place, {"AA": "American", "DL": "Delta"})


def test_a_bad_record_of_a_topic_that_was_made_anew_is_told_whatever_offset_it_has(place: Place) -> None:
    for name in ("first", "second", "third"):
        place.name("UA", name)
    with place.following():
        wait_for_names(place, {"UA": "third"})
    place.make_anew()
    place.send(b"UA", b"no event")
    place.name("AA", "American")
    with place.following(on_topic_loss="continue"):
        wait_for_names(place, {"AA": "American"})
    assert letters(place) == [("ForeignBody", b"no event")]


def test_nothing_is_published_before_the_end_that_the_topic_has_when_all_of_its_start_is_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a record that compaction removes while its partition is read, the newer one of its key may have come behind that end."""
    count = 20_000
    for number in range(count):
        place._producer.produce(place.topic, key=b"UA", value=place.event("UA", str(number)), partition=0)
        place._producer.poll(0)
    assert place._producer.flush(60) == 0
    asked, ends = [], Follower._ends

    def at_first_early(follower: Follower, *isolation: Any) -> Positions:
        asked.append(ends(follower, *isolation))
        return replace(asked[0], offsets={0: 10, 1: 0}) if len(asked) == 1 else asked[-1]

    monkeypatch.setattr(Follower, "_ends", at_first_early)
    with place.following():
        wait_for("the first version", lambda: place.version() == 0)
    said = place.positions()
    assert said is not None
    assert said.offsets[0] == count


def test_a_transaction_that_is_left_open_is_seen_by_what_is_behind_it(place: Place) -> None:
    behind = ("headrace_dimensions_behind", {"dimension": "couriers"})
    place.name("UA", "United", partition=0)
    producer = ordered({**place.settings.kafka.client_config(), "transactional.id": f"open-{place.topic}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(place.topic, key=b"AA", value=place.event("AA", "American"), partition=0)
    assert producer.flush(30) == 0
    place.name("DL", "Delta", partition=0)
    with place.following():
        wait_for_names(place, {"UA": "United"})
        wait_for("the gauge", lambda: REGISTRY.get_sample_value(*behind) == 2)
        producer.commit_transaction(30)
        wait_for_names(place, {"AA": "American", "DL": "Delta", "UA": "United"})
        wait_for("the gauge", lambda: REGISTRY.get_sample_value(*behind) == 0)


def published(
    place: Place,
    name: str,
    offset: int,
    *,
    topic: str | None = None,
    topic_id: str = "a",
    made_by: str = "",
    end: int = 100,
    later: float = 0,
    **ends: Any,
) -> Published | None:
    """A version that a process makes that has read the topic so far, so many seconds later."""
    rows = pa.Table.from_pylist([{"courier": "UA", "name": name}], schema=schema_of(place.contract))
    positions = Positions(topic or place.topic, topic_id, {0: offset, 1: 7})

    def asked() -> Positions:
        for meanwhile in ends.values():
            meanwhile()
        return Positions(positions.topic, topic_id, {0: end, 1: 100})

    publications = Publications(place.settings.s3, clock=lambda: time.time() + later)
    return publications.publish_fold(
        place.contract, rows, positions, made_by=made_by or positions.topic, begins_anew=False, ends=asked
    )


def test_of_two_processes_the_one_that_has_read_further_wins(place: Place) -> None:
    assert published(place, "newer", 12) is not None
    with pytest.raises(Overtaken, match="another process has read"):
        published(place, "older", 11)
    again = published(place, "newer", 12)
    assert again is not None
    assert (again.version, again.is_new) == (0, False)
    assert place.names() == {"UA": "newer"}


@pytest.mark.parametrize("versions", [0, 1])
def test_a_process_that_was_frozen_does_not_publish_over_one_that_has_read_further(place: Place, versions: int) -> None:
    for number in range(versions):
        published(place, "first", number)
    with pytest.raises(Overtaken, match="has a further version|has read"):
        published(place, "older", 11, meanwhile=lambda: published(place, "newer", 12))
    assert (place.version(), place.names()) == (versions, {"UA": "newer"})


def test_by_two_contracts_versions_do_not_take_turns_though_records_come(place: Place) -> None:
    published(place, "by one", 10, made_by="one")
    with pytest.raises(AnotherContract, match="by another contract, or another schema of its topic: run one of them"):
        published(place, "by another", 20, made_by="another")
    assert published(place, "by another", 20, made_by="another", later=61) is not None


def test_what_was_read_of_a_topic_that_was_cut_since_is_not_published(place: Place) -> None:
    with pytest.raises(Overtaken, match="ends before what was read of it"):
        published(place, "of records that are gone", 50, end=40)


def test_a_registry_that_has_forgotten_a_schema_empties_nothing(place: Place) -> None:
    place.name("UA", "United")
    place.send(
        b"AA",
        place.codec.encode(place.schema_id, {"courier": "AA", "named_at": NAMED_AT, "name": "x"})[:1] + b"\0\0\xff\xff",
    )
    with place.following():
        wait_for_names(place, {"UA": "United"})
    told = len(letters(place))
    subject = f"{place.settings.registry.url}/subjects/{place.catalog.topic(place.topic).subject}"
    for query in ("", "?permanent=true"):
        assert httpx.delete(subject + query, timeout=30).is_success
    with place.following() as follower:
        wait_for("the alarm", lambda: "schema ids that it knew" in str(follower.trouble))
        place.send(b"DL", None)
    assert (place.version(), place.names(), len(letters(place))) == (0, {"UA": "United"}, told)


def test_schema_ids_that_nobody_ever_knew_are_told_once_and_stop_nothing(place: Place) -> None:
    unknown = b"\0\0\0\xff\xff body"
    place.name("UA", "United", partition=0)
    for partition in (0, 1):
        place.send(b"AA", unknown, partition=partition)
    with place.following():
        wait_for_names(place, {"UA": "United"})
    for partition in (0, 1, 1, 0):
        place.send(b"AA", unknown, partition=partition)
    place.name("DL", "Delta")
    with place.following() as follower:
        wait_for_names(place, {"DL": "Delta", "UA": "United"})
        assert follower.trouble is None
    assert [reason for reason, _ in letters(place)] == ["UnknownSchemaId"] * 6


def test_old_files_are_looked_for_though_a_version_is_published_each_second(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = list[int]()

    def cleaned(publications: Publications, contract: DimensionContract, kept: int) -> int:
        days.append(kept)
        return 0

    monkeypatch.setattr(Publications, "clean", cleaned)
    monkeypatch.setattr(module, "_FIRST_CLEAN_SECONDS", 0)

    def have_more(versions: int) -> bool:
        place.name("UA", f"{time.monotonic()}")
        return place.version() >= versions

    with place.following():
        wait_for("the look", lambda: have_more(0) and len(days) > 0)
        versions = place.version() + 3
        wait_for("more versions", lambda: have_more(versions))
    assert days == [place.settings.history_days], "once a day is enough"


def test_a_file_of_which_no_checkpoint_knows_is_removed_too(place: Place) -> None:
    published(place, "first", 1)
    s3, bucket = s3_client(place.settings.s3), place.settings.s3.bucket
    s3.put_object(Bucket=bucket, Key=f"{place.contract.location}/part-of-a-process-that-was-killed.parquet", Body=b"x")
    assert place.publications.clean(place.contract, 0) == 1
    assert place.names() == {"UA": "first"}


def test_a_topic_of_another_identity_or_with_fewer_records_is_not_the_one_of_before(place: Place) -> None:
    published(place, "first", 50)
    with pytest.raises(TopicMadeAnew, match="was made anew"):
        published(place, "second", 60, topic_id="b")
    with pytest.raises(TopicMadeAnew, match="ends before what was read"):
        published(place, "second", 40, end=40)
    assert place.names() == {"UA": "first"}


def test_two_processes_that_follow_one_topic_make_one_line_of_versions(place: Place) -> None:
    place.name("UA", "0")
    with place.following() as one, place.following() as other:
        for number in range(1, 6):
            place.name("UA", str(number))
            wait_for_names(place, {"UA": str(number)})
        version = place.version()
        wait_for("both to know it", lambda: (one._version, other._version) == (version, version))
    table = place.table()
    assert table is not None
    offsets = []
    for commit in reversed(table.history()):
        said = Positions.parse(commit["headrace.positions"])
        assert said is not None
        offsets.append(sum(said.offsets.values()))
    assert offsets == sorted(offsets)


def test_files_of_versions_that_were_replaced_long_ago_are_removed(place: Place) -> None:
    for number in range(12):
        published(place, str(number), number)
    assert place.publications.clean(place.contract, 7) == 0
    assert place.publications.clean(place.contract, 0) == 11
    assert place.names() == {"UA": "11"}
    # What it writes into the table's log is no publication, and another one follows it.
    after = published(place, "12", 12)
    assert after is not None
    assert after.is_new


def test_a_version_is_published_anew_before_its_entry_can_leave_the_log(place: Place) -> None:
    published(place, "first", 10)
    hour = 3_600.0
    for hours in (1, 11):
        again = published(place, "first", 10, later=hours * hour)
        assert again is not None
        assert (again.version, again.is_new) == (0, False)
    anew = published(place, "first", 12, later=13 * hour)
    assert anew is not None
    assert (anew.version, anew.is_new) == (1, True)
    said = place.positions(made_by=place.topic)
    assert said is not None
    assert said.offsets[0] == 12


def test_entries_stay_in_the_log_as_long_as_files_do(place: Place) -> None:
    published(place, "first", 10)
    for days in (3, 30):
        place.publications.clean(place.contract, days)
        table = place.table()
        assert table is not None
        assert table.metadata().configuration["delta.logRetentionDuration"] == f"interval {days} days"
    # What that writes into the log hides no positions.
    with pytest.raises(Overtaken, match="another process has read"):
        published(place, "older", 9)


def test_two_processes_whose_contracts_name_different_topics_do_not_take_turns_without_a_pause(place: Place) -> None:
    published(place, "first", 10)
    with pytest.raises(Overtaken, match="by another contract"):
        published(place, "second", 10, topic="others.named.v1")
    later = published(place, "second", 10, topic="others.named.v1", later=61)
    assert later is not None
    assert later.is_new
