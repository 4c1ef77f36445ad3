"""The live enrichment against the real broker, registry and S3: what it wrote is read back from Kafka."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from contracts.dead_letters.letter import DeadLetter
from contracts.errors import NotAProducer
from contracts.records.dead_letter_headers import TIMESTAMP
from contracts.records.limits import record_size
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from spark.derivation.derivation import route
from spark.queries.live import Live
from spark.queries.real_time.positions import RealTimePositions
from spark.runtime.errors import PositionsDisagree
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.at_least_once import AtLeastOnceSink
from spark.sources.checkpoint_offsets import CheckpointOffsets, checkpoint_folder
from spark.sources.source_topic import topic_id
from tests.raw_records import send_raw
from tests.sample.pipelines.dispatches_enriched import dispatches_enriched
from tests.spark.examples import DISPATCHED, ENRICHED, Topics, a_dispatch, body, framed
from tests.spark.large_records import large_records
from tests.spark.live_query import Dimensions, events, parcels, running


@pytest.fixture(params=["exactly-once", pytest.param("at-least-once", marks=pytest.mark.long)])
def live(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    settings: SparkSettings,
    registry: Registry,
    topics: Topics,
    dimensions: Dimensions,
) -> Iterator[StreamingQuery]:
    with running(spark, settings, registry, topics.catalog, dimensions, mode=request.param) as query:
        yield query


def test_a_dispatch_comes_out_enriched_with_its_coordinate_and_trace(topics: Topics, live: StreamingQuery) -> None:
    headers = [("ce_id", b"theirs"), ("ce_time", b"2013-01-01T10:17:00Z"), ("traceparent", b"00-1-2-01")]
    topics.send(framed(topics.schema_ids[DISPATCHED], body(a_dispatch())), partition=1, headers=headers)
    live.processAllAvailable()
    ((event, found, message),) = events(topics)
    assert {name: event[name] for name in a_dispatch()} == a_dispatch()
    assert (event["courier_name"], event["van_model"], event["unmatched"]) == ("Umber Couriers Ltd.", "F-824", [])
    assert event["dimension_versions"] == {"couriers": 0, "depots": 0, "vans": 0}
    assert message.key() == b"key"
    assert found == {
        "ce_id": f"{topics.dispatched.name}/1/0".encode(),
        "ce_type": topics.enriched.name.encode(),
        "ce_source": b"/spark/dispatches_enriched",
        "ce_specversion": b"1.0",
        "ce_time": b"2013-01-01T10:17:00Z",
        "ce_causationid": b"theirs",
        "content-type": b"application/avro",
        "traceparent": b"00-1-2-01",
    }


def test_bad_records_go_to_the_dead_letters_in_the_same_batch(topics: Topics, live: StreamingQuery) -> None:
    # The batch in which an id is met for the first time is begun again, and at-least-once repeats what it had written.
    topics.send(framed(99_999_999, b"x"))
    live.processAllAvailable()
    topics.send_dispatches("a")
    topics.send(b"", None, b"{}", framed(99_999_999, b"x"), headers=[("trace", b"t"), (TIMESTAMP, b"1")])
    topics.send_dispatches("b")
    live.processAllAvailable()
    assert [event["parcel_id"] for event, _, _ in events(topics)] == ["a", "b"]
    first, *letters = topics.read(topics.dispatched.dead_letter_topic)
    assert first.value() == framed(99_999_999, b"x")
    assert [letter.value() for letter in letters] == [b"", None, b"{}", framed(99_999_999, b"x")]
    assert [dict(letter.headers() or [])["__connect.errors.exception.class.name"] for letter in letters] == [
        b"EmptyBody",
        b"EmptyBody",
        b"WrongMagic",
        b"UnknownSchemaId",
    ]
    bad = [message for message in topics.read(topics.dispatched.name) if 2 <= (message.offset() or 0) <= 5]
    assert [DeadLetter.of(letter).timestamp_ms for letter in letters] == [raw.timestamp()[1] for raw in bad]
    headers = dict(letters[0].headers() or [])
    assert headers["trace"] == b"t"
    assert headers["ce_id"] == f"{topics.dispatched.name}/0/2".encode()
    assert headers["__connect.errors.topic"] == topics.dispatched.name.encode()
    assert headers["__connect.errors.offset"] == b"2"


def test_a_record_of_any_size_is_enriched_or_a_dead_letter_or_leaves_its_stump(
    topics: Topics, settings: SparkSettings, live: StreamingQuery
) -> None:
    sent = large_records(topics.schema_ids[DISPATCHED])
    for offset, (record, compression) in enumerate(sent):
        assert send_raw(settings.kafka, topics.dispatched.name, 0, [record], compression=compression) == [offset]
    topics.send_dispatches("after")
    live.processAllAvailable()
    assert [event["parcel_id"][:7] for event, _, _ in events(topics)][1:] == ["headers", "after"]
    assert next(len(event["parcel_id"]) for event, _, _ in events(topics)) > 890_000
    # A stump has no key, so it may lie in another partition than the others.
    found = [DeadLetter.of(message) for message in topics.read(topics.dispatched.dead_letter_topic)]
    letters = sorted(found, key=lambda letter: str(letter.origin))
    larger, largest, most_headers = (sent[at][0] for at in (1, 2, 4))
    assert [letter.reason for letter in letters] == ["TooLong", "TooLong", "EmptyBody"]
    assert [str(letter.origin) for letter in letters] == [f"{topics.dispatched.name}/0/{at}" for at in (1, 2, 4)]
    assert [letter.value for letter in letters] == [larger.value, None, most_headers.value]
    assert [letter.key for letter in letters] == [b"key", None, b"key"]
    assert [letter.stump_bytes for letter in letters] == [None, record_size(b"key", largest.value, []), None]
    assert letters[1].value_sha256 == hashlib.sha256(largest.value or b"").hexdigest()
    assert letters[2].original_headers() == [("ce_id", None)] * 90_000


def test_a_new_dimension_version_holds_from_the_next_batch_on(
    topics: Topics, live: StreamingQuery, dimensions: Dimensions
) -> None:
    topics.send_dispatches("before")
    live.processAllAvailable()
    dimensions.publish("couriers", ("UA", "United"))
    topics.send_dispatches("after")
    live.processAllAvailable()
    assert [(event["courier_name"], event["dimension_versions"]["couriers"]) for event, _, _ in events(topics)] == [
        ("Umber Couriers Ltd.", 0),
        ("United", 1),
    ]


def test_dimensions_that_are_removed_while_it_runs_stop_nothing(
    topics: Topics, live: StreamingQuery, dimensions: Dimensions
) -> None:
    topics.send_dispatches("before")
    live.processAllAvailable()
    dimensions.remove()
    topics.send_dispatches("after")
    live.processAllAvailable()
    assert [(event["parcel_id"], event["unmatched"]) for event, _, _ in events(topics)] == [
        ("before", []),
        ("after", []),
    ]


def test_what_is_left_of_a_checkpoint_that_was_wiped_while_it_ran_stops_no_start(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions
) -> None:
    left = f"{checkpoint_folder(dispatches_enriched.name)}/0/commits/7"
    s3_client(settings.s3).put_object(Bucket=settings.s3.bucket, Key=left, Body=b'v1\n{"nextBatchWatermarkMs":0}')
    topics.send_dispatches("a")
    with running(spark, settings, registry, topics.catalog, dimensions, mode="exactly-once") as query:
        query.processAllAvailable()
    assert [event["parcel_id"] for event, _, _ in events(topics)] == ["a"]


def test_at_least_once_goes_on_behind_its_last_batch_in_a_checkpoint_of_its_own(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions
) -> None:
    checkpoints = CheckpointOffsets(settings.s3, checkpoint_folder(dispatches_enriched.name))
    checkpoints.remove()
    seen = list[list[str]]()
    for parcel in ("a", "b", "c"):
        topics.send_dispatches(parcel)
        with running(spark, settings, registry, topics.catalog, dimensions, mode="at-least-once") as query:
            query.processAllAvailable()
        seen.append(checkpoints.folders())
    assert parcels(topics) == ["a", "b", "c"]
    # That of the process before stays until the own one has a batch.
    assert [len(folders) for folders in seen] == [1, 2, 2]
    assert len({folder for folders in seen for folder in folders}) == 3


def test_at_least_once_repeats_the_batch_under_way_with_the_same_coordinates(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions
) -> None:
    folder = checkpoint_folder(dispatches_enriched.name)
    checkpoints = CheckpointOffsets(settings.s3, folder)
    checkpoints.remove()
    with running(spark, settings, registry, topics.catalog, dimensions, mode="at-least-once") as query:
        for parcel in ("a", "b"):
            topics.send_dispatches(parcel)
            query.processAllAvailable()
    (run,) = checkpoints.runs()
    _, last = checkpoints.last(run)
    # As if it was killed before the last batch was committed.
    s3_client(settings.s3).delete_object(Bucket=settings.s3.bucket, Key=f"{folder}/{run}/commits/{last}")
    topics.send_dispatches("c")
    with running(spark, settings, registry, topics.catalog, dimensions, mode="at-least-once") as query:
        query.processAllAvailable()
    found = Counter((event["parcel_id"], headers["ce_id"].decode()) for event, headers, _ in events(topics))
    raw = topics.dispatched.name
    assert found == {("a", f"{raw}/0/0"): 1, ("b", f"{raw}/0/1"): 2, ("c", f"{raw}/0/2"): 1}


@pytest.mark.parametrize("mode", ["at-least-once", "exactly-once"])
def test_of_a_topic_made_anew_while_it_was_stopped_no_record_is_left_out(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, dimensions: Dimensions, mode: str
) -> None:
    CheckpointOffsets(settings.s3, checkpoint_folder(dispatches_enriched.name)).remove()
    topics.send_dispatches(*"abc")
    with running(spark, settings, registry, topics.catalog, dimensions, mode=mode) as query:
        query.processAllAvailable()
    before = topic_id(settings.kafka, topics.dispatched.name)
    topics.make_anew(topics.dispatched.name)
    topics.send_dispatches(*"ABCDE")
    with (
        pytest.raises(
            PositionsDisagree, match=f"made anew: what was taken in is of .* {re.escape(str(before))}, the one"
        ),
        running(spark, settings, registry, topics.catalog, dimensions, mode=mode),
    ):
        pass
    if mode == "exactly-once":
        # In real-time mode no checkpoint is gone on from, but it tells.
        own = route(dispatches_enriched, topics.catalog)
        checkpoint = CheckpointOffsets(settings.s3, checkpoint_folder(dispatches_enriched.name))
        with (
            closing(RealTimePositions(settings, own, checkpoint, 0)) as positions,
            pytest.raises(PositionsDisagree, match=f"made anew: .* {re.escape(str(before))}, the one"),
        ):
            positions.take_up(threading.Event())
    live = settings.live.model_copy(update={"on_data_loss": "continue"})
    goes_on = settings.model_copy(update={"live": live})
    for more in ("", "F"):
        topics.send_dispatches(*more)
        with running(spark, goes_on, registry, topics.catalog, dimensions, mode=mode) as query:
            query.processAllAvailable()
    assert sorted(parcels(topics)) == sorted("abcABCDEF")


def test_a_contract_that_does_not_list_live_is_refused(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> None:
    strangers = topics.enriched.model_copy(update={"producers": ("someone-else",)})
    catalog = dataclasses.replace(topics.catalog, topics=topics.catalog.topics | {ENRICHED: strangers})
    with pytest.raises(NotAProducer, match="someone-else"):
        sink = AtLeastOnceSink(settings.kafka, route(dispatches_enriched, catalog), settings.live)
        Live(spark, dispatches_enriched, settings, catalog, registry, sink, Lifecycle())
