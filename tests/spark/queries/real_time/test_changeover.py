"""From one query to the next, as new schemas and dimension versions come, on the real stack."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.definitions.catalog import Catalog
from contracts.servers.brokers import watermarks
from contracts.servers.registry import Registry
from spark.derivation.derivation import route
from spark.queries.real_time import changeover, meter, queries, renewals, tending
from spark.queries.real_time.baton import Baton
from spark.queries.real_time.changeover import Changeover
from spark.queries.real_time.positions import RealTimePositions
from spark.queries.real_time.queries import Queries
from spark.queries.real_time.query import start
from spark.queries.real_time.tending import Tending
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka import follower
from spark.sinks.kafka.follower import Follower
from spark.sinks.kafka.offset_note import Mark
from tests.producers import ordered
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import Dimensions, events, parcels, wait_for
from tests.spark.quota import throttled
from tests.spark.real_time_query import LiveWith, counted, ends_without, gauge, is_away, positions, running, send_before
from tests.spark.takeover import Takeover

pytestmark = pytest.mark.usefixtures("no_practice")


def has_changed_over(logs: Iterable[Mapping[str, Any]], times: int = 1) -> bool:
    return len([line for line in logs if line["event"] == "changed over"]) >= times


def has_failed(logs: Iterable[Mapping[str, Any]], reason: str, of: str = "") -> bool:
    """Whether an attempt of a changeover has, for this reason."""
    failures = [line for line in logs if "could not take over" in line["event"]]
    return any(reason in line["reason"] and of in line["event"] for line in failures)


def send_until(done: Callable[[], bool], send: Callable[[], object]) -> None:
    """A partition without records has nothing to be given away with."""
    until = time.monotonic() + 240
    while not done():
        send()
        assert time.monotonic() < until, f"sent for 240 s, and {done} does not hold"


def send_to_both(topics: Topics) -> None:
    """A record to each partition, which have come out when this returns."""
    topics.send_dispatches("first")
    topics.send_dispatches("second", partition=1)
    wait_for("the first records", lambda: sorted(parcels(topics)) == ["first", "second"])


def forget(patch: pytest.MonkeyPatch, place: str, *, ends: bool = False) -> None:
    """Whoever follows what is written doesn't see what came of this record first; with `ends` no end of a partition either, which would put a mark behind it."""
    take = Follower._take
    forgotten: list[Message] = []

    def forgetful(follower: Follower, message: Message) -> None:
        is_end = message.error() is not None
        if not (is_end or forgotten) and dict(message.headers() or [])["ce_id"] == place.encode():
            forgotten.append(message)
        elif not (is_end and ends and forgotten):
            take(follower, message)

    patch.setattr(Follower, "_take", forgetful)


def tables(query: StreamingQuery) -> list[Any]:
    """What its joins were sent, by Java's names for it."""
    plans: Any = query._jsq.streamingQuery().lastExecution().executedPlan()
    found, left = [], [plans]
    while left:
        step = left.pop()
        left += [step.children().apply(i) for i in range(step.children().size())]
        if step.nodeName() == "BroadcastQueryStage":
            found.append(step.broadcast().relationFuture().get())
    return found


def is_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queries, "_MOST_READ_AGAIN", -1)


def never_starts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changeover, "_STARTED_SECONDS", 0.0)
    patch.setattr(changeover, "has_begun", lambda *_: False)
    patch.setattr(Baton, "second_at", lambda self: {})


def writes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changeover, "_WRITTEN_SECONDS", 0.5)
    patch.setattr(Follower, "has_written", lambda self, positions: False)


def writes_nothing_of_an_idle_partition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changeover, "_WRITTEN_SECONDS", 0.5)
    patch.setattr(Follower, "written_to_the_end", lambda self, partitions: {})


def ends(settings: SparkSettings, topics: Topics) -> dict[int, int | None]:
    """Of the source topic: the offset after the last record, or marker, of each partition."""
    with closing(Consumer({**settings.kafka.client_config(), "group.id": "tests"})) as consumer:
        return {p: watermarks(consumer, topics.dispatched.name, p, 30)[1] for p in (0, 1)}


class Transactions:
    """Sends each dispatch in a transaction of its own, whose marker has an offset, too."""

    def __init__(self, settings: SparkSettings, topics: Topics) -> None:
        self._topics = topics
        self._producer = ordered({**settings.kafka.client_config(), "transactional.id": topics.tag, "linger.ms": 0})
        self._producer.init_transactions(30)

    def send(self, parcel_id: str, partition: int, *, commit: bool) -> None:
        value = framed(self._topics.schema_ids[DISPATCHED], body(a_dispatch(parcel_id=parcel_id)))
        self._producer.begin_transaction()
        self._producer.produce(self._topics.dispatched.name, key=b"key", value=value, partition=partition)
        if commit:
            self._producer.commit_transaction(30)
        else:
            # Else it is never sent.
            self._producer.flush(30)
            self._producer.abort_transaction(30)


def test_a_schema_version_that_is_registered_ahead_is_taken_in_without_a_pause(
    live: threading.Thread, topics: Topics, registry: Registry
) -> None:
    topics.send_dispatches("old")
    wait_for("the first record", lambda: parcels(topics) == ["old"])
    restarts = counted("query_restarts")
    newer = schema_with({"name": "gate", "type": "string", "default": "?"})
    with structlog.testing.capture_logs() as logs:
        schema_id = registry.register(topics.dispatched.subject, newer)
        wait_for("the changeover", lambda: has_changed_over(logs))
        topics.send(framed(schema_id, body(a_dispatch(parcel_id="new", gate="C70"), newer)))
        wait_for("the record of the new schema", lambda: parcels(topics) == ["old", "new"])
    assert [line["event"] for line in logs].count("started") == 1
    assert counted("query_restarts") == restarts


def test_a_new_dimension_version_is_taken_in_without_a_pause(
    live: threading.Thread, topics: Topics, settings: SparkSettings, dimensions: Dimensions
) -> None:
    send_before(topics)
    with structlog.testing.capture_logs() as logs:
        # Not by Spark: the query has all of its slots.
        table = f"s3://{settings.s3.bucket}/{dimensions.contracts['couriers'].location}"
        rows = pa.table({"courier": ["UA"], "name": ["United of Tomorrow"]})
        write_deltalake(table, rows, mode="overwrite", storage_options=settings.s3.delta_options())
        wait_for("the changeover", lambda: has_changed_over(logs))
    topics.send_dispatches("after")
    wait_for("the second record", lambda: parcels(topics) == ["before", "after"])
    assert [event["courier_name"] for event, _, _ in events(topics)][1] == "United of Tomorrow"


def test_a_dimension_that_is_made_anew_at_its_version_is_taken_in_without_a_pause(
    live_with: LiveWith,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark.lookups.dimensions._CHECK_SECONDS", 1.0)
    with live_with():
        send_before(topics)
        with structlog.testing.capture_logs() as logs:
            dimensions.remove("couriers")
            dimensions.publish("couriers", ("UA", "United Anew"))
            wait_for("the changeover", lambda: has_changed_over(logs))
        topics.send_dispatches("after")
        wait_for("the second record", lambda: parcels(topics) == ["before", "after"])
    found = [(event["courier_name"], event["dimension_versions"]["couriers"]) for event, _, _ in events(topics)]
    assert found == [("Umber Couriers Ltd.", 0), ("United Anew", 0)]


@pytest.mark.parametrize("in_transactions", [False, True])
def test_a_changeover_loses_doubles_and_reorders_nothing_while_records_come(
    live_with: LiveWith,
    in_transactions: bool,
    settings: SparkSettings,
    topics: Topics,
    dimensions: Dimensions,
) -> None:
    numbers = itertools.count()
    sent: dict[int, list[str]] = {0: [], 1: []}
    transactions = Transactions(settings, topics) if in_transactions else None

    def send(partition: int) -> None:
        sent[partition].append(f"{partition}-{next(numbers)}")
        if transactions is None:
            topics.send_dispatches(sent[partition][-1], partition=partition)
        else:
            transactions.send("given up", partition, commit=False)
            transactions.send(sent[partition][-1], partition, commit=True)

    with (
        live_with(interval_seconds=3600.0, commit_seconds=1.0),
        structlog.testing.capture_logs() as logs,
    ):
        send(0)
        wait_for("the first record", lambda: len(parcels(topics)) == 1)
        for version in range(1, 4):
            dimensions.publish("couriers", ("UA", f"United {version}"))

            def send_both(version: int = version) -> None:
                send(0)
                # One that is idle meanwhile, and one with a record now and then.
                if version == 2 and len(sent[0]) % 50 == 0:
                    send(1)

            send_until(partial(has_changed_over, logs, version), send_both)
            for partition in (0, 1):
                send(partition)
        wait_for("all records", lambda: len(parcels(topics)) >= len(sent[0]) + len(sent[1]))
        assert [line for line in logs if line["log_level"] in ("warning", "error")] == []
        wait_for("the positions", lambda: positions(settings, topics) == ends(settings, topics))
    found = events(topics)
    for partition, ids in sent.items():
        of_partition = [event for event, _, _ in found if event["parcel_id"].startswith(f"{partition}-")]
        assert [event["parcel_id"] for event in of_partition] == ids
        versions = [event["dimension_versions"]["couriers"] for event in of_partition]
        assert versions == sorted(versions)
        assert {*versions} == ({0, 1, 2, 3} if partition == 0 else {1, 2, 3})
    assert len(found) == len(sent[0]) + len(sent[1])


def test_a_process_practises_one_changeover(
    live_with: LiveWith,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewals, "_PRACTICE_RECORDS", 50)
    sent = itertools.count()

    def send() -> None:
        topics.send_dispatches(str(next(sent)))

    with (
        structlog.testing.capture_logs() as logs,
        live_with(commit_seconds=1.0),
    ):
        send_until(lambda: has_changed_over(logs), send)
        until = time.monotonic() + 5
        send_until(lambda: time.monotonic() > until, send)
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        send_until(lambda: has_changed_over(logs, 2), send)
        send()
        count = next(sent)
        wait_for("all records", lambda: len(parcels(topics)) >= count)
    assert parcels(topics) == [str(number) for number in range(count)]
    begun = [line["event"] for line in logs if line["event"] in ("practising a changeover", "renewing the query")]
    assert begun[0] == "practising a changeover" and {*begun[1:]} == {"renewing the query"}


def test_a_practice_that_fails_is_not_tried_again_and_puts_off_no_new_version(
    live_with: LiveWith,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewals, "_PRACTICE_RECORDS", 1)
    monkeypatch.setattr(renewals, "_ATTEMPT_SECONDS", 1_000.0)
    with (
        structlog.testing.capture_logs() as logs,
        live_with(commit_seconds=1.0),
    ):
        with monkeypatch.context() as patch:
            never_starts(patch)
            topics.send_dispatches("before")
            wait_for("the practice to fail", lambda: has_failed(logs, "have not started", of="it was practice"))
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        wait_for("the changeover", lambda: has_changed_over(logs))
        topics.send_dispatches("after")
        wait_for("both records", lambda: parcels(topics) == ["before", "after"])
    assert [event["courier_name"] for event, _, _ in events(topics)][1] == "United of Tomorrow"
    begun = [line["event"] for line in logs if line["event"] in ("practising a changeover", "renewing the query")]
    assert begun == ["practising a changeover", "renewing the query"]


def test_a_changeover_in_a_backlog_leaves_out_what_was_written_ahead(
    live_with: LiveWith,
    spark: SparkSession,
    settings: SparkSettings,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(renewals, "_LOOK_SECONDS", 0.1)
    count, ahead = 90_000, range(89_000, 89_003)
    topics.send_many(count)
    takeover = Takeover(spark, settings, topics)
    takeover.route = route(dispatches_enriched, topics.catalog)
    takeover.commit(0)
    takeover.write(*ahead)
    with (
        structlog.testing.capture_logs() as logs,
        live_with(interval_seconds=3600.0, commit_seconds=1.0),
    ):
        wait_for("the query", lambda: any(line["event"] == "started" for line in logs), every=0.01)
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        wait_for("the changeover", lambda: has_changed_over(logs))
        wait_for("the positions", lambda: positions(settings, topics) == {0: count, 1: 0})
    second = [line["positions"] for line in logs if line["event"] == "started"][1]
    assert second[0] < ahead.start, "the second query began too late to show anything"
    assert takeover.written() == [*range(count)]


def test_a_query_that_takes_over_runs_code_that_is_compiled_already(
    live: threading.Thread, spark: SparkSession, topics: Topics, dimensions: Dimensions
) -> None:
    def compiled() -> int:
        assert spark._jvm is not None
        return int(spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount())

    send_before(topics)
    before = compiled()
    with structlog.testing.capture_logs() as logs:
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        wait_for("the changeover", lambda: has_changed_over(logs))
    topics.send_dispatches("after")
    wait_for("the second record", lambda: parcels(topics) == ["before", "after"])
    assert compiled() == before


@pytest.mark.parametrize(
    ("fails", "starts"),
    [
        (is_behind, 2),
        (never_starts, 3),
    ],
)
def test_a_changeover_that_fails_for_good_is_a_pause(
    live_with: LiveWith,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[[pytest.MonkeyPatch], object],
    starts: int,
) -> None:
    sent = itertools.count()
    with (
        live_with(interval_seconds=3600.0, commit_seconds=1.0),
        structlog.testing.capture_logs() as logs,
    ):
        topics.send_dispatches(str(next(sent)))
        wait_for("the first record", lambda: len(parcels(topics)) == 1)
        before = counted("query_restarts")
        monkeypatch.setattr(renewals, "_MOST_ATTEMPTS", 1)
        fails(monkeypatch)
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))

        # The first one, the one that was to take over, if it came so far, and the one that came instead.
        send_until(
            lambda: sum(line["event"] == "started" for line in logs) >= starts,
            lambda: topics.send_dispatches(str(next(sent))),
        )
        troubles = [line["event"] for line in logs if line["log_level"] in ("warning", "error")]
        topics.send_dispatches(last := str(next(sent)))
        wait_for("the last record", lambda: last in parcels(topics))
    assert parcels(topics) == [str(number) for number in range(next(sent))]
    assert troubles == ["the next query could not take over: a pause"]
    assert counted("query_restarts") == before
    assert events(topics)[-1][0]["courier_name"] == "United of Tomorrow"


@pytest.mark.parametrize("changes_over", [False, True])
def test_a_partition_whose_newest_record_was_never_written_starts_the_query_again(
    live_with: LiveWith,
    settings: SparkSettings,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
    changes_over: bool,
) -> None:
    """Its task would learn of a failed send at its next record, or at the interval's end. One of the query before would never."""
    forget(monkeypatch, f"{topics.dispatched.name}/0/1")
    monkeypatch.setattr(Changeover, "check_written", lambda self: None)
    with (
        structlog.testing.capture_logs() as logs,
        live_with(interval_seconds=3600.0, commit_seconds=1.0),
    ):
        sent = ["first", "never seen"]
        topics.send_dispatches(*sent)
        wait_for("the records", lambda: parcels(topics) == sent)
        if changes_over:
            dimensions.publish("couriers", ("UA", "United of Tomorrow"))

            def send() -> None:
                sent.append(f"{len(sent)}")
                topics.send_dispatches(sent[-1])

            send_until(lambda: has_changed_over(logs), send)
        monkeypatch.setattr(tending, "_STUCK_SECONDS", 3.0)
        wait_for("the position", lambda: positions(settings, topics)[0] == len(sent))
        monkeypatch.setattr(tending, "_STUCK_SECONDS", 600.0)
        topics.send_dispatches("after")
        # It may be written again: whoever never saw it committed a mark behind it.
        wait_for("the record after it", lambda: [*dict.fromkeys(parcels(topics))] == [*sent, "after"])
    (failure,) = (line for line in logs if line["event"] == "query failed, and is started again")
    assert "partitions [0]" in failure["reason"]


def test_a_changeover_needs_no_brokers_of_partitions_that_it_has_nothing_to_ask(
    live: threading.Thread, topics: Topics, dimensions: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of dead letters, while there are none."""

    send_before(topics)
    with structlog.testing.capture_logs() as logs:
        monkeypatch.setattr(meter, "mark", is_away)
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        wait_for("the changeover", lambda: has_changed_over(logs))
        topics.send_dispatches("after")
        wait_for("the second record", lambda: parcels(topics) == ["before", "after"])
    assert any(line["event"] == "brokers do not answer" for line in logs)


def test_positions_that_nobody_takes_at_an_intervals_end_hold_up_no_changeover(
    live_with: LiveWith,
    settings: SparkSettings,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[Mapping[int, int]] = []
    end_interval = Tending.end_interval

    def noted(tending: Tending, positions: Mapping[int, int], before: Mark) -> None:
        ended.append(positions)
        end_interval(tending, positions, before)

    with (
        structlog.testing.capture_logs() as logs,
        live_with(interval_seconds=5.0, commit_seconds=1.0),
    ):
        send_before(topics)
        with monkeypatch.context() as patch:
            patch.setattr(RealTimePositions, "commit", is_away)
            patch.setattr(Tending, "end_interval", noted)
            wait_for("the interval's end", lambda: bool(ended))
            dimensions.publish("couriers", ("UA", "United of Tomorrow"))
            send_until(lambda: has_changed_over(logs), lambda: topics.send_dispatches("meanwhile"))
        wait_for("the positions", lambda: positions(settings, topics)[0] == len(parcels(topics)))
    assert "query failed, and is started again" not in {line["event"] for line in logs}


def test_a_changeover_waits_for_a_source_partition_that_is_away(
    live: threading.Thread, topics: Topics, dimensions: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "_ATTEMPT_SECONDS", 3.0)
    send_to_both(topics)
    with structlog.testing.capture_logs() as logs:
        with monkeypatch.context() as patch:
            patch.setattr(follower, "ends_of", ends_without(1))
            topics.send_dispatches("third", partition=1)
            wait_for("the third record", lambda: len(parcels(topics)) == 3)
            dimensions.publish("couriers", ("UA", "United of Tomorrow"))
            # It may have begun before that was known.
            wait_for("an attempt", lambda: has_failed(logs, "partitions [1], is taken: brokers do not answer"))
        wait_for("the changeover", lambda: has_changed_over(logs))
    assert not has_failed(logs, "", of="a pause")


def test_a_changeover_waits_for_a_source_partition_that_goes_away_after_it_has_begun(
    live: threading.Thread, topics: Topics, dimensions: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "_ATTEMPT_SECONDS", 3.0)
    send_to_both(topics)
    check_written = Changeover.check_written
    with structlog.testing.capture_logs() as logs:
        with monkeypatch.context() as patch:

            def then_away(changing: Changeover) -> None:
                check_written(changing)
                patch.setattr(follower, "ends_of", ends_without(1))

            patch.setattr(Changeover, "check_written", then_away)
            dimensions.publish("couriers", ("UA", "United of Tomorrow"))
            wait_for("an attempt", lambda: has_failed(logs, "partitions [1] of the source topic are away"))
        wait_for("the changeover", lambda: has_changed_over(logs))
    assert not has_failed(logs, "", of="a pause")


def test_a_changeover_leaves_partitions_that_the_source_has_got_to_a_query_that_begins_anew(
    spark: SparkSession,
    settings: SparkSettings,
    catalog: Catalog,
    registry: Registry,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever follows what is written may know of them first."""
    with (
        # The tests' session has a slot for one more.
        Topics(settings, catalog, registry, partitions=1) as topics,
        structlog.testing.capture_logs() as logs,
        running(spark, settings, registry, topics, dimensions, interval_seconds=5.0, commit_seconds=1.0),
    ):
        send_before(topics)
        with monkeypatch.context() as patch:
            patch.setattr(RealTimePositions, "added", lambda self: [])
            topics.add_partitions(2)
            wait_for("the new partition's position", lambda: positions(settings, topics)[1] == 0)
            dimensions.publish("couriers", ("UA", "United of Tomorrow"))
            reason = f"{topics.dispatched.name} has got partitions, [1]: the query begins anew with them"
            wait_for("the changeover to fail", lambda: has_failed(logs, reason))
        topics.send_dispatches("after", partition=1)
        wait_for("the record of the new partition", lambda: parcels(topics) == ["before", "after"])
    assert not has_changed_over(logs)


def test_a_changeover_waits_for_brokers_that_answer_late(
    live: threading.Thread, topics: Topics, dimensions: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_to_the_end = Follower.written_to_the_end
    waits = iter([True])

    def late(follower: Follower, partitions: Iterable[int]) -> dict[int, int]:
        if next(waits, False):
            time.sleep(3.0)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return written_to_the_end(follower, partitions)

    monkeypatch.setattr(Changeover, "check_written", lambda self: None)
    monkeypatch.setattr(changeover, "_GIVEN_SECONDS", 2.0)
    # There is one more look after that. On a busy machine the end of a partition is not read in half a second.
    monkeypatch.setattr(follower, "_GAP_SECONDS", 10.0)
    monkeypatch.setattr(follower, "_MOST_GAP_SECONDS", 10.0)
    monkeypatch.setattr(Follower, "written_to_the_end", late)
    send_before(topics)
    with structlog.testing.capture_logs() as logs:
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        wait_for("the changeover", lambda: has_changed_over(logs))
    assert not [line for line in logs if line["log_level"] in ("warning", "error")]


def test_the_tables_of_a_query_that_was_replaced_leave_the_memory(
    live: threading.Thread, topics: Topics, dimensions: Dimensions, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[StreamingQuery] = []
    begin = Queries._begin

    def noted(*arguments: Any) -> Any:
        found = begin(*arguments)
        planned.append(found.query)
        return found

    def are_there(query: StreamingQuery) -> list[bool]:
        return [each.isValid() for each in tables(query)]

    monkeypatch.setattr(Queries, "_begin", noted)
    send_before(topics)
    for number in range(3):
        with structlog.testing.capture_logs() as logs:
            dimensions.publish("couriers", ("UA", f"United {number}"))
            wait_for("the changeover", lambda: has_changed_over(logs))
    topics.send_dispatches("after")
    wait_for("the last record", lambda: parcels(topics) == ["before", "after"])
    # The one before the last may have had tasks until now.
    first, *_, last = map(are_there, planned)
    assert first and not any(first)
    assert last and all(last)
    monkeypatch.setattr(queries, "_RELEASE_SECONDS", 1.0)
    wait_for("the other tables to leave", lambda: not any(itertools.chain(*map(are_there, planned[:-1]))))
    assert all(are_there(planned[-1]))


def test_an_intervals_end_commits_nothing_that_the_query_before_owes(
    live_with: LiveWith,
    settings: SparkSettings,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark counts records as taken by a query that only left them out, for the one before had them."""
    started: list[StreamingQuery] = []

    def short_but_for_the_first(*arguments: Any, **options: Any) -> StreamingQuery:
        started.append(start(*arguments, **{**options, "interval_seconds": 5.0 if started else 3600.0}))
        return started[-1]

    def have_two_ended() -> bool:
        assert positions(settings, topics)[0] == 1
        progress = started[-1].lastProgress
        return progress is not None and progress.batchId >= 1

    forget(monkeypatch, f"{topics.dispatched.name}/0/1", ends=True)
    monkeypatch.setattr(Changeover, "check_written", lambda self: None)
    monkeypatch.setattr("spark.queries.real_time.queries.start", short_but_for_the_first)
    with (
        structlog.testing.capture_logs() as logs,
        live_with(commit_seconds=1.0),
    ):
        topics.send_dispatches("first", "never seen")
        wait_for("the records", lambda: len(parcels(topics)) == 2)
        dimensions.publish("couriers", ("UA", "United of Tomorrow"))
        send_until(lambda: has_changed_over(logs), lambda: topics.send_dispatches("another"))
        wait_for("two ends of the second query's intervals", have_two_ended, every=0.5)
        # Each was looked at since.
        time.sleep(2.0)
        assert positions(settings, topics)[0] == 1
    # At the end the topic itself is read.
    assert (positions(settings, topics)[0] or 0) > 2


def test_a_changeover_that_fails_before_the_query_was_asked_is_tried_again_while_that_goes_on(
    live_with: LiveWith,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two of these count, of three that may.
    monkeypatch.setattr(renewals, "_ATTEMPT_SECONDS", 3.0)
    sent = itertools.count()

    def counts() -> list[float]:
        labels = [{"query": "dispatches_enriched", "outcome": each} for each in ("failed", "done")]
        return [gauge("headrace_changeovers_total", **each) or 0 for each in labels]

    def have_failed(times: float) -> bool:
        return counts()[0] >= times

    def send() -> None:
        topics.send_dispatches(str(next(sent)))

    with (
        structlog.testing.capture_logs() as logs,
        live_with(interval_seconds=3600.0, commit_seconds=1.0),
    ):
        topics.send_dispatches(str(next(sent)))
        wait_for("the first record", lambda: len(parcels(topics)) == 1)
        before = counts()
        every_one = [is_behind, writes_nothing, writes_nothing_of_an_idle_partition, never_starts]
        for number, fails in enumerate(every_one):
            with monkeypatch.context() as patch:
                fails(patch)
                dimensions.publish("couriers", ("UA", f"United {number}"))
                send_until(partial(have_failed, counts()[0] + 1), send)
        send_until(lambda: counts()[1] > before[1], send)
        topics.send_dispatches(last := str(next(sent)))
        wait_for("the last record", lambda: last in parcels(topics))
    assert parcels(topics) == [str(number) for number in range(next(sent))]
    assert events(topics)[-1][0]["courier_name"] == "United 3"
    assert counts()[1] == before[1] + 1
    told = [line["event"] for line in logs if line["log_level"] in ("warning", "error")]
    assert {*told} == {"the next query could not take over: it is tried again"}
    assert len(told) == counts()[0] - before[0] >= 4


@pytest.mark.long
def test_without_slots_for_two_a_query_is_ended_and_the_next_one_waits_for_what_it_handed_to_its_producers(
    live_with: LiveWith,
    settings: SparkSettings,
    topics: Topics,
    dimensions: Dimensions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queries, "has_slots_for_two", lambda *_: False)
    many = [f"f{i}" for i in range(1500)]
    with (
        structlog.testing.capture_logs() as logs,
        live_with(),
    ):
        send_before(topics)
        with throttled(settings.kafka.bootstrap_servers, bytes_per_second=3_000):
            topics.send_dispatches(*many)
            wait_for("the first of many", lambda: len(parcels(topics)) > 1)
            dimensions.publish("couriers", ("UA", "United of Tomorrow"))
            wait_for("the renewal", lambda: any(line["event"] == "renewing the query" for line in logs))
            assert len(parcels(topics)) < len(many), "the producer was not slow enough to show anything"
        wait_for("all records", lambda: {*parcels(topics)} == {"before", *many})
        topics.send_dispatches("after")
        wait_for("the last record", lambda: "after" in parcels(topics))
    assert sorted(parcels(topics)) == sorted(["before", *many, "after"])
    assert not has_changed_over(logs)
