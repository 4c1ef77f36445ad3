"""The exactly-once sink against the real broker: what it wrote, and where the group stands, is read back from Kafka."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from structlog.testing import capture_logs

from contracts.servers.brokers import watermarks
from contracts.servers.ranges import OffsetRange
from spark.runtime.errors import PositionsDisagree, SinkRefused
from spark.runtime.lease import Lease
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import SparkSettings
from spark.sinks.kafka.exactly_once import ExactlyOnceSink
from spark.sinks.kafka.sink import Written
from spark.sinks.kafka.transaction import Plan, given, sending, transactional_producer
from spark.sources.checkpoint_offsets import CheckpointOffsets
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed
from tests.spark.sinks.kafka.hop import PARTITION, Hop


@pytest.fixture
def hop(spark: SparkSession, settings: SparkSettings, topics: Topics) -> Hop:
    return Hop.of(spark, settings, topics)


def test_rows_and_position_are_committed_together(hop: Hop) -> None:
    hop.topics.send_dispatches("a", "b", "c")
    hop.write(0, 2)
    assert (hop.written(), hop.position()) == ([0, 1], 2)


def test_what_was_written_is_counted_and_what_was_before_is_not(hop: Hop) -> None:
    hop.topics.send_dispatches("a", "b")
    hop.topics.send(b"no event")
    hop.write(0, 1)
    written = hop.write(0, 3)
    assert (written.dead_letters, written.unmatched) == (1, {"couriers": 1, "vans": 1})
    assert written.oldest_ms is not None and written.mean_ms is not None
    assert time.time() * 1000 - 300_000 < written.oldest_ms <= written.mean_ms < time.time() * 1000
    assert hop.write(0, 3) == Written(0, None, None, {})


def test_a_batch_that_is_run_again_is_skipped_also_with_other_boundaries(hop: Hop) -> None:
    hop.topics.send_dispatches(*"abcde")
    hop.write(0, 3)
    hop.write(0, 3)
    hop.write(1, 5)
    assert (hop.written(), hop.position()) == ([0, 1, 2, 3, 4], 5)


def test_a_range_cut_into_transactions_is_skipped_as_far_as_it_was_committed(hop: Hop) -> None:
    hop.topics.send(*[framed(hop.topics.schema_ids[DISPATCHED], body(a_dispatch()))] * 2500)
    hop.write(0, 1700)
    # Arrow batches hold 1,000 rows: the first of them is skipped whole, and must not take the position back.
    found = OffsetRange(hop.route.source, PARTITION, 0, 2500)
    plan = Plan(hop.settings.kafka.client_config(), hop.route, 0, 0.2, transaction_records=1)
    with given(hop.spark.sparkContext, [found], {}):
        (row,) = sending(hop.to_rows(hop.raw({PARTITION: (0, 2500)})), plan).collect()
    result = json.loads(row["result"])
    assert (result["sent"], result["skipped"], result["refused"]) == (800, 1700, None)
    assert (hop.written(), hop.position()) == (list(range(2500)), 2500)


def test_no_transaction_is_cut_between_two_parts_of_a_record(hop: Hop) -> None:
    # A bad record, of one row: from there on each Arrow batch, of 1,000 rows, ends between the two parts of a record.
    hop.topics.send(b"junk", *[framed(hop.topics.schema_ids[DISPATCHED], body(a_dispatch()))] * 1500)
    hop.route = replace(hop.route, filters=True, parts=True)
    plan = Plan(hop.settings.kafka.client_config(), hop.route, 0, 0.2, transaction_records=1)
    hop.parts = 2
    with given(hop.spark.sparkContext, [OffsetRange(hop.route.source, PARTITION, 0, 1501)], {}):
        (row,) = sending(hop.to_rows(hop.raw({PARTITION: (0, 1501)})), plan).collect()
    result = json.loads(row["result"])
    assert (result["sent"], result["dead_letters"], result["refused"]) == (3000, 1, None)
    ends = hop.transaction_ends()
    assert ends == [1000, 2000, 3000]
    headers = [dict(message.headers() or []) for message in hop.topics.read(hop.route.target)]
    assert [str(each["ce_id"]) for each in headers] == [
        str(f"{hop.route.source}/0/{offset}/{part}".encode()) for offset in range(1, 1501) for part in range(2)
    ]
    assert {each["ce_parts"] for each in headers} == {b"2"}


@pytest.mark.long
def test_no_transaction_is_open_while_a_filter_leaves_records_out(hop: Hop) -> None:
    passed, left_out, pause_ms = 5_500, 1_000, 12
    hop.topics.send_many(passed + left_out)
    hop.route = replace(hop.route, filters=True)
    hop.write(0, 1)  # coordinators of a new group take their time
    waited = F.expr(f"reflect('java.lang.Thread', 'sleep', {pause_ms}L)")
    raw = hop.raw({PARTITION: (1, passed + left_out)}).where((F.col("offset") < passed) | (waited == "let through"))
    rows = sending(hop.to_rows(raw), Plan(hop.settings.kafka.client_config(), hop.route, 0, 0.2))

    def write() -> None:
        with given(hop.spark.sparkContext, [OffsetRange(hop.route.source, PARTITION, 1, passed + left_out)], {}):
            rows.collect()

    with closing(OpenTransactions(hop)) as opened, ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        writing = pool.submit(write)
        while not writing.done():
            opened.look()
            time.sleep(0.05)
        writing.result()
        took = time.monotonic() - began
    assert took > left_out * pause_ms / 1000
    assert opened.longest_seconds < took / 3
    assert (hop.written(), hop.position()) == (list(range(passed)), passed + left_out)


class OpenTransactions:
    """How long a hop's target topic has had records that are not committed, as far as `look` saw."""

    def __init__(self, hop: Hop) -> None:
        kafka, self._topic = hop.settings.kafka.client_config(), hop.route.target
        self._readers = [
            Consumer(kafka | {"group.id": "tests", "isolation.level": level})
            for level in ("read_committed", "read_uncommitted")
        ]
        self._since: float | None = None
        self.longest_seconds = 0.0

    def look(self) -> None:
        # The end of what is committed first: it may move meanwhile.
        committed, all_records = ([watermarks(each, self._topic, p, 30)[1] for p in (0, 1)] for each in self._readers)
        if committed == all_records:
            self._since = None
            return
        self._since = self._since or time.monotonic()
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - self._since)

    def close(self) -> None:
        for each in self._readers:
            each.close()


def test_a_gap_stops_the_query_and_writes_nothing(hop: Hop) -> None:
    hop.topics.send_dispatches(*"abcde")
    hop.write(0, 2)
    with pytest.raises(SinkRefused, match=r"a gap: .* up to offset 2, and the batch begins at 4.*RESUME_FROM=group"):
        hop.write(4, 5)
    assert (hop.written(), hop.position()) == ([0, 1], 2)


def test_a_group_without_offset_takes_a_partition_from_its_first_record_only(hop: Hop) -> None:
    hop.topics.send_dispatches(*"abc")
    with pytest.raises(SinkRefused, match=r"has no offset .* begins at 1, beyond the first record, 0"):
        hop.write(1, 3)
    hop.write(0, 3)
    assert hop.position() == 3


def test_a_zombie_is_fenced_and_what_it_left_open_is_never_seen(hop: Hop) -> None:
    hop.topics.send_dispatches("a")
    zombie = transactional_producer(hop.settings.kafka.client_config(), hop.route, PARTITION)
    zombie.begin_transaction()
    zombie.produce(hop.route.target, b"zombie", headers=[("ce_id", b"x/0/666")])
    zombie.flush(10)
    hop.write(0, 1)
    with pytest.raises(KafkaException, match="fenced"):
        zombie.commit_transaction(10)
    assert (hop.written(), hop.position()) == ([0], 1)


def test_dead_letters_go_with_the_rows_as_they_were(hop: Hop) -> None:
    hop.topics.send_dispatches("a")
    hop.topics.send(b"\x01junk", headers=[("ce_id", b"own"), ("x", b"\xff"), ("none", None), ('ü"', b"")])
    hop.write(0, 2)
    (letter,) = hop.topics.read(hop.route.dead_letters)
    headers = dict(letter.headers() or [])
    assert (letter.value(), letter.key(), hop.written(), hop.position()) == (b"\x01junk", b"key", [0], 2)
    assert (headers["ce_causationid"], headers["x"], headers["none"], headers['ü"']) == (b"own", b"\xff", None, b"")
    assert headers["ce_id"] == f"{hop.route.source}/0/1".encode()
    assert headers["__connect.errors.exception.class.name"] == b"WrongMagic"
    (raw,) = [message for message in hop.topics.read(hop.route.source) if message.offset() == 1]
    assert letter.timestamp() == raw.timestamp()


def test_too_many_dead_letters_stop_the_query_before_they_are_written(hop: Hop) -> None:
    hop.topics.send(*[b"junk"] * 150)
    with pytest.raises(SinkRefused, match=r"150 of 150 records .*DEAD_LETTER_LIMIT"):
        hop.write(0, 150)
    assert (hop.topics.read(hop.route.dead_letters), hop.position()) == ([], None)
    hop.write(0, 150, dead_letter_limit=1.0)
    assert (len(hop.topics.read(hop.route.dead_letters)), hop.position()) == (150, 150)


def test_a_dead_letter_topic_that_cannot_be_written_stops_progress(hop: Hop) -> None:
    hop.topics.send_dispatches("a")
    hop.topics.send(b"junk")
    hop.route = replace(hop.route, dead_letters="not a topic's name")
    with pytest.raises(PythonException, match="failed delivery"):
        hop.write(0, 2)
    assert (hop.written(), hop.position()) == ([], None)


def test_renewing_the_offsets_moves_nothing(hop: Hop) -> None:
    hop.topics.send_dispatches("a", "b")
    hop.write(0, 1)
    hop.sink().renew_offsets()
    assert hop.position() == 1
    hop.write(1, 2)
    assert hop.written() == [0, 1]


def test_who_slept_through_a_take_over_does_not_renew_the_offsets(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    hop.topics.send_dispatches("a")
    place = f"leases/{uuid.uuid4().hex}"
    lifecycle = Lifecycle()
    lifecycle.lease = Lease(hop.settings.s3, place, 2.0, resumes=True)
    lifecycle.lease.acquire()
    lifecycle.lease.release()
    monkeypatch.setattr("spark.sinks.kafka.exactly_once._KEEP_SECONDS", 0)
    successor = transactional_producer(hop.settings.kafka.client_config(), hop.route, PARTITION)
    with Lease(hop.settings.s3, place, 2.0):
        successor.begin_transaction()
        hop.sink().keep_offsets(lifecycle)
        successor.produce(hop.route.target, b"not fenced")
        successor.commit_transaction(30)
    successor.close()


def test_an_outage_does_not_end_the_renewal_of_offsets(hop: Hop, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("_KEEP_SECONDS", 0), ("_KEEP_AGAIN_SECONDS", 0.1), ("_TIMEOUT_SECONDS", 0.3)):
        monkeypatch.setattr(f"spark.sinks.kafka.exactly_once.{name}", seconds)
    nobody = hop.settings.kafka.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    lifecycle = Lifecycle()
    with capture_logs() as logs, ThreadPoolExecutor(1) as pool:
        renewing = pool.submit(ExactlyOnceSink(nobody, hop.route, hop.settings.live).keep_offsets, lifecycle)
        while len(logs) < 2 and not renewing.done():
            time.sleep(0.05)
        lifecycle.stopping.set()
        renewing.result()
    assert {entry["event"] for entry in logs} == {"offsets not renewed"}


def test_without_checkpoint_the_query_starts_at_the_groups_offsets(hop: Hop) -> None:
    hop.topics.send_dispatches("a", "b")
    none = CheckpointOffsets(hop.settings.s3, f"none/{uuid.uuid4().hex}")
    assert f'"{PARTITION}": 0' in hop.sink().starting_offsets(none, threading.Event())
    hop.write(0, 2)
    assert f'"{PARTITION}": 2' in hop.sink().starting_offsets(none, threading.Event())


def test_records_trimmed_before_they_were_read_are_reported(hop: Hop, trim: Callable[[str, int], None]) -> None:
    hop.topics.send_dispatches(*"abcd")
    hop.write(0, 1)
    trim(hop.route.source, 3)
    none = CheckpointOffsets(hop.settings.s3, f"none/{uuid.uuid4().hex}")
    with pytest.raises(PositionsDisagree, match="2 records from offset 1 up to 3 are gone"):
        hop.sink().starting_offsets(none, threading.Event())
    assert f'"{PARTITION}": 3' in hop.sink(on_data_loss="continue").starting_offsets(none, threading.Event())
    hop.write(3, 4)
    assert (hop.written(), hop.position()) == ([0, 3], 4)


@pytest.fixture
def trim(settings: SparkSettings) -> Callable[[str, int], None]:
    """Delete a partition's records before an offset, as retention does."""
    from confluent_kafka.admin import AdminClient

    def before(topic: str, offset: int) -> None:
        admin = AdminClient(dict(settings.kafka.client_config()))
        for future in admin.delete_records([TopicPartition(topic, PARTITION, offset)]).values():
            future.result(30)

    return before


def test_a_bad_record_as_large_as_its_topic_takes_fits_into_the_dead_letters(hop: Hop, settings: SparkSettings) -> None:
    largest = b"\x01" + b"x" * 1_000_000
    hop.topics.send(largest)
    hop.write(0, 1)
    (letter,) = hop.topics.read(hop.route.dead_letters)
    assert letter.value() == largest
