"""`live` in Spark's Real-Time Mode, on the real stack."""

from __future__ import annotations

import threading
import time

import pytest
import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from contracts.definitions.catalog import Catalog
from contracts.servers.registry import Registry
from contracts.settings import RegistrySettings
from deploy.local.servers.stack import LocalStack
from spark.queries.real_time import ids_ahead, real_time
from spark.queries.real_time import meter as meter_module
from spark.queries.real_time.meter import Meter
from spark.queries.real_time.positions import RealTimePositions
from spark.runtime.errors import PositionsDisagree, SinkRefused, TooFewSlots
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sources import source_topic
from tests.contracts.gateway import HANG_UP, a_gateway
from tests.spark.examples import Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, events, parcels, wait_for
from tests.spark.live_query import running as running_exactly_once
from tests.spark.real_time_query import LiveWith, counted, ends_without, gauge, is_away, positions, running, send_before


def test_records_come_out_while_their_interval_lasts_and_bad_ones_as_dead_letters(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, published: Dimensions
) -> None:
    before = [counted(each) for each in ("rows", "dead_letters")]
    with running(spark, settings, registry, topics, published, interval_seconds=3600.0, commit_seconds=1.0):
        topics.send_dispatches("first")
        topics.send(b"\x01junk", partition=1, headers=[("ce_id", b"own")])
        wait_for("the first record", lambda: parcels(topics) == ["first"])
        wait_for("the dead letter", lambda: len(topics.read(topics.dispatched.dead_letter_topic)) == 1)
        topics.send_dispatches("second")
        # Had the first one come out with a batch, this one would be of the next.
        wait_for("the second record", lambda: parcels(topics) == ["first", "second"])
        # Far from the interval's end.
        wait_for("the positions", lambda: positions(settings, topics) == {0: 2, 1: 1})
        assert [counted(each) for each in ("rows", "dead_letters")] == [before[0] + 3, before[1] + 1]
    ((_, headers, record), *_) = events(topics)
    assert headers["ce_id"] == f"{topics.dispatched.name}/0/0".encode()
    assert record.key() == b"key"


def test_a_new_schema_version_is_taken_in_and_an_id_of_nobody_becomes_a_dead_letter(
    live: threading.Thread, topics: Topics, registry: Registry
) -> None:
    topics.send_dispatches("old")
    wait_for("the first record", lambda: parcels(topics) == ["old"])
    newer = schema_with({"name": "gate", "type": "string", "default": "?"})
    schema_id = registry.register(topics.dispatched.subject, newer)
    topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), newer)))
    wait_for("the record of a schema that is new", lambda: parcels(topics) == ["old", "new"])
    topics.send(framed(999_999, b"whatever"))
    topics.send_dispatches("after")
    wait_for("the record after it", lambda: parcels(topics) == ["old", "new", "after"])
    (letter,) = topics.read(topics.dispatched.dead_letter_topic)
    assert dict(letter.headers() or [])["__connect.errors.exception.class.name"] == b"UnknownSchemaId"


@pytest.mark.usefixtures("no_practice")
def test_unknown_ids_that_come_together_end_two_queries_at_most_and_make_no_new_version_foreign(
    live_with: LiveWith, topics: Topics, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids_ahead, "_SECONDS", 30.0)
    # More than are foreign at once.
    count = 350
    with structlog.testing.capture_logs() as logs, live_with(dead_letter_limit=1.0):
        send_before(topics)
        begun = len(logs)
        topics.send(*[framed(900_000 - number, b"whatever") for number in range(count)])
        topics.send_dispatches("after")
        wait_for("the record after them", lambda: parcels(topics) == ["before", "after"])
        assert [line["event"] for line in logs[begun:]].count("started") <= 2
        newer = schema_with({"name": "gate", "type": "string", "default": "?"})
        schema_id = registry.register(topics.dispatched.subject, newer)
        topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), newer)))
        wait_for("the record of a schema that is new", lambda: parcels(topics) == ["before", "after", "new"])
    assert len(topics.read(topics.dispatched.dead_letter_topic)) == count


def test_an_unknown_id_waits_while_the_registry_is_down(
    spark: SparkSession,
    settings: SparkSettings,
    stack: LocalStack,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
) -> None:
    lifecycle = Lifecycle()
    with (
        a_gateway(stack.registry.url) as gateway,
        Registry(RegistrySettings.model_validate({"url": gateway.url}), retry_seconds=0.1) as theirs,
        running(spark, settings, theirs, topics, published, lifecycle=lifecycle, commit_seconds=1.0),
    ):
        send_before(topics)
        gateway.fail(*(HANG_UP, ""))
        newer = schema_with({"name": "gate", "type": "string", "default": "?"})
        schema_id = registry.register(topics.dispatched.subject, newer)
        topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), newer)))
        wait_for("it to wait", lambda: gauge("headrace_registry_waiting", subject=topics.dispatched.subject) == 1)
        wait_for("it to count as silent", lambda: lifecycle.progress.silent_seconds() > 5)
        assert parcels(topics) == ["before"]
        gateway.heal()
        wait_for("the record that waited", lambda: parcels(topics) == ["before", "new"])
        assert topics.read(topics.dispatched.dead_letter_topic) == []


def test_brokers_that_do_not_answer_for_a_while_end_no_query_and_hold_up_no_positions_of_others(
    live: threading.Thread, settings: SparkSettings, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_before(topics)
    with structlog.testing.capture_logs() as logs:
        with monkeypatch.context() as patch:
            patch.setattr(Meter, "check_dead_letters", is_away)
            patch.setattr(Meter, "look", is_away)
            topics.send_dispatches("meanwhile")
            wait_for("the record", lambda: parcels(topics) == ["before", "meanwhile"])
            wait_for("the position", lambda: positions(settings, topics)[0] == 2)
        topics.send_dispatches("after")
        wait_for("the last record", lambda: parcels(topics) == ["before", "meanwhile", "after"])
    assert {line["event"] for line in logs} == {"brokers do not answer"}


def test_a_source_that_is_made_anew_is_noticed_though_not_all_brokers_answer(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        pytest.raises(PositionsDisagree, match="was made anew while it was read"),
        running(spark, settings, registry, topics, published) as thread,
    ):
        send_before(topics)
        monkeypatch.setattr(Meter, "look", is_away)
        monkeypatch.setattr(source_topic, "_id_of", lambda *_: "another")
        thread.join(240)
        assert not thread.is_alive()


def test_a_query_that_gets_on_is_heard_of_though_its_positions_are_not_taken(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lifecycle = Lifecycle()
    with (
        structlog.testing.capture_logs() as logs,
        running(spark, settings, registry, topics, published, lifecycle=lifecycle, commit_seconds=1.0),
    ):
        topics.send_dispatches("before")
        wait_for("the position", lambda: positions(settings, topics)[0] == 1)
        monkeypatch.setattr(RealTimePositions, "commit", is_away)
        wait_for("a commit that fails", lambda: any(line["event"] == "brokers do not answer" for line in logs))
        begun = time.monotonic()
        topics.send_dispatches("meanwhile")
        wait_for("the record", lambda: parcels(topics) == ["before", "meanwhile"])
        wait_for("a sign of life", lambda: lifecycle.progress.silent_seconds() < time.monotonic() - begun)
        assert positions(settings, topics)[0] == 1
        monkeypatch.undo()
        wait_for("the positions after all", lambda: positions(settings, topics)[0] == 2)


def test_a_query_is_heard_of_unless_all_source_partitions_are_away(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lifecycle = Lifecycle()
    progress = lifecycle.progress
    with (
        structlog.testing.capture_logs() as logs,
        running(spark, settings, registry, topics, published, lifecycle=lifecycle, commit_seconds=1.0),
    ):
        topics.send_dispatches("before", partition=1)
        wait_for("the position", lambda: positions(settings, topics)[1] == 1)
        monkeypatch.setattr(meter_module, "ends_of", ends_without(0))
        wait_for("a look that fails", lambda: any(line["event"] == "brokers do not answer" for line in logs))
        begun = time.monotonic()
        wait_for("a sign of life", lambda: progress.silent_seconds() < time.monotonic() - begun)
        monkeypatch.setattr(meter_module, "ends_of", ends_without(0, 1))
        wait_for("it to count as silent", lambda: progress.silent_seconds() > 5)
        monkeypatch.undo()
        wait_for("another sign of life", lambda: progress.silent_seconds() < 2)


def test_whoever_stops_waits_no_longer_for_the_last_positions_than_is_said(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(real_time, "_LEAVE_SECONDS", 0.5)
    monkeypatch.setattr(RealTimePositions, "leave", lambda *_: answer.wait())
    with structlog.testing.capture_logs() as logs:
        with running(spark, settings, registry, topics, published):
            send_before(topics)
        answer.set()
    assert [(line["event"], line["error"]) for line in logs if line["log_level"] == "warning"] == [
        ("positions not committed", "brokers do not answer")
    ]


def test_a_rehearsal_that_fails_ends_nothing(
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    published: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_: object) -> None:
        raise Py4JError("no such method")

    monkeypatch.setattr(real_time, "_REHEARSE_SECONDS", (1.0, 600.0))
    monkeypatch.setattr(real_time, "rehearse", fails)
    with structlog.testing.capture_logs() as logs, running(spark, settings, registry, topics, published):
        wait_for("a rehearsal", lambda: any("no rehearsal" in line["event"] for line in logs))
        topics.send_dispatches("after")
        wait_for("the record", lambda: parcels(topics) == ["after"])
    assert not any(line["event"] == "query failed, and is started again" for line in logs)


def test_a_clock_that_is_set_renews_the_query(
    live: threading.Thread, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks end their intervals by the clock."""
    send_before(topics)
    with structlog.testing.capture_logs() as logs:
        there = real_time._clock() + 3600
        monkeypatch.setattr(real_time, "_clock", lambda: there)
        wait_for("the renewal", lambda: any(line["event"] == "started" for line in logs))
        topics.send_dispatches("after")
        wait_for("the second record", lambda: parcels(topics) == ["before", "after"])
    assert [line["event"] for line in logs if "clock" in line["event"]] == [
        "renewing the query: the machine's clock was set"
    ]


def test_positions_are_committed_and_exactly_once_goes_on_from_them(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, published: Dimensions
) -> None:
    with running(spark, settings, registry, topics, published, interval_seconds=5.0):
        topics.send_dispatches("a", "b")
        topics.send_dispatches("c", partition=1)
        wait_for("the records", lambda: sorted(parcels(topics)) == ["a", "b", "c"])
        wait_for("an interval's end", lambda: positions(settings, topics) == {0: 2, 1: 1})
        lag = {"query": "dispatches_enriched", "topic": topics.dispatched.name, "partition": "0"}
        wait_for("the lag", lambda: gauge("headrace_lag_records", **lag) == 0)
        topics.send_dispatches("d")
        wait_for("another record", lambda: sorted(parcels(topics)) == ["a", "b", "c", "d"])
    with running_exactly_once(spark, settings, registry, topics.catalog, published) as query:
        topics.send_dispatches("e")
        query.processAllAvailable()
        assert sorted(parcels(topics)) == ["a", "b", "c", "d", "e"]
    with running(spark, settings, registry, topics, published):
        topics.send_dispatches("f")
        wait_for("the last record", lambda: sorted(parcels(topics)) == ["a", "b", "c", "d", "e", "f"])


def test_a_partition_that_the_source_gets_is_read_from_its_first_record(
    spark: SparkSession, settings: SparkSettings, catalog: Catalog, registry: Registry, published: Dimensions
) -> None:
    with (
        # The tests' session has a slot for one more.
        Topics(settings, catalog, registry, partitions=1) as topics,
        structlog.testing.capture_logs() as logs,
    ):
        with running(spark, settings, registry, topics, published, interval_seconds=3600.0, commit_seconds=1.0):
            send_before(topics)
            topics.add_partitions(2)
            topics.send_dispatches("a", "b", partition=1)
            wait_for("those of the new partition", lambda: {*parcels(topics)} == {"before", "a", "b"})
            topics.send_dispatches("after")
            wait_for("one of the old partition", lambda: "after" in parcels(topics))
        assert sorted(parcels(topics)) == ["a", "after", "b", "before"]
    assert [line["added_partitions"] for line in logs if line["event"] == "renewing the query"] == [[1]]


def test_a_partition_that_the_source_gets_is_not_left_until_the_intervals_end(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, published: Dimensions
) -> None:
    with (
        # The tests' session asks for two slots.
        pytest.raises(TooFewSlots, match="3 partitions"),
        running(spark, settings, registry, topics, published, interval_seconds=3600.0, commit_seconds=1.0) as thread,
    ):
        topics.send_dispatches("first")
        wait_for("the first record", lambda: parcels(topics) == ["first"])
        topics.add_partitions(3)
        thread.join(240)
        assert not thread.is_alive()


def test_too_many_dead_letters_stop_it(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, published: Dimensions
) -> None:
    with (
        pytest.raises(SinkRefused, match=r"are bad, more than the share of 0\.2"),
        running(spark, settings, registry, topics, published) as thread,
    ):
        topics.send(*[b"\x01junk"] * 150)
        thread.join(240)
        assert not thread.is_alive()
