"""Aggregates on the real stack, against an oracle in plain Python."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client import REGISTRY
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from structlog.testing import capture_logs

from contracts.definitions.catalog import Catalog
from contracts.records.headers import headers_of
from contracts.records.missed_windows import MissedWindows
from contracts.servers.ranges import OffsetRange
from contracts.servers.registry import Registry
from contracts.servers.s3 import s3_client
from contracts.settings import KafkaSettings
from spark.derivation.derivation import route
from spark.derivation.stateful.aggregation import Aggregation
from spark.pipeline import Pipeline
from spark.queries import stateful
from spark.queries.stateful import Stateful
from spark.runtime.errors import PositionsDisagree, StateLost, StopRequested
from spark.runtime.lifecycle import Lifecycle
from spark.runtime.settings import LiveSettings, SparkSettings
from spark.sinks.kafka.sink import Route
from spark.sinks.kafka.transaction import committed_positions, position_reader
from spark.sinks.stateful import sink
from spark.sinks.stateful.run import Fault, fault_of
from spark.sinks.stateful.state_note import StateNote
from spark.sinks.stateful.state_transaction import commit_note, fenced_states, state_route
from spark.sources.checkpoint_offsets import CheckpointOffsets
from spark.sources.kafka import read_ranges
from tests.sample.pipelines.delays_by_origin import delays_by_origin
from tests.sample.pipelines.final_delays_by_origin import final_delays_by_origin
from tests.spark.aggregates.percentile import percentile
from tests.spark.derivation.test_sql_pipelines import DELAYS as IN_SQL
from tests.spark.derivation.test_sql_pipelines import written
from tests.spark.examples import DISPATCHED, Topics, a_dispatch, body, framed, schema_with
from tests.spark.live_query import events, wait_for

DELAYS = delays_by_origin.target
_TEN = datetime(2013, 1, 1, 10, 0, tzinfo=UTC)
_LATE_AFTER = timedelta(hours=2)
_WINDOW = timedelta(minutes=15)

Dispatch = tuple[str, int, int]
"""Origin, minutes after ten, minutes of delay."""


@pytest.fixture
def topics(settings: SparkSettings, catalog: Catalog, registry: Registry) -> Iterator[Topics]:
    with Topics(settings, catalog, registry, names=(DISPATCHED, DELAYS, final_delays_by_origin.target)) as made:
        yield made


class Query:
    """The pipeline over the topics of a test; each start is a process of its own would be."""

    def __init__(
        self,
        spark: SparkSession,
        settings: SparkSettings,
        registry: Registry,
        topics: Topics,
        pipeline: Pipeline = delays_by_origin,
    ) -> None:
        self._made = (spark, settings, registry)
        self.topics, self.pipeline = topics, pipeline
        self.prefix = f"checkpoints/{pipeline.name}/{topics.catalog.topic(pipeline.target).name}"
        self._s3, self._bucket = s3_client(settings.s3), settings.s3.bucket

    @contextmanager
    def running(self, **live: object) -> Iterator[Any]:
        spark, settings, registry = self._made
        chosen = settings.model_copy(update={"live": settings.live.model_copy(update=live)})
        lifecycle = Lifecycle()
        query = Stateful(spark, self.pipeline, chosen, self.topics.catalog, registry, lifecycle).start()
        try:
            yield query
        finally:
            lifecycle.stopping.set()
            query.stop()

    @contextmanager
    def whole(self, **live: object) -> Iterator[threading.Thread]:
        """As a process runs it, which starts the query anew by itself."""
        spark, settings, registry = self._made
        chosen = settings.model_copy(update={"live": settings.live.model_copy(update=live)})
        lifecycle = Lifecycle()
        stateful = Stateful(spark, self.pipeline, chosen, self.topics.catalog, registry, lifecycle)
        thread = threading.Thread(target=stateful.run)
        thread.start()
        try:
            yield thread
        finally:
            lifecycle.stopping.set()
            thread.join(120)

    def told(self, fault: str, then: str, **live: object) -> str:
        """What to set, by the error with which it does not start."""
        with pytest.raises(StateLost, match=fault) as error, self.running(**live):
            pass
        found = re.search(rf"={then}:\w+", str(error.value))
        assert found is not None
        said = found[0][1:]
        assert LiveSettings(on_state_loss=said).on_state_loss == said
        return said

    def runs(self) -> list[str]:
        """Those of which the checkpoint has a state."""
        return sorted(CheckpointOffsets(self._made[1].s3, self.prefix).runs())

    def state(self) -> Route:
        return state_route(route(self.pipeline, self.topics.catalog))

    def cut_off_while(self, send: Callable[[], None]) -> int:
        """Send, again if need be, until a batch has ended between two partitions' transactions; how many times.

        What is sent may move no watermark: the batch that follows for the watermark alone sends nothing, and would be the one.
        """
        stop, kafka, times = threading.Event(), self._made[1].kafka.client_config(), 0

        def fence() -> None:
            while not stop.is_set():
                # The task fences, too.
                with suppress(KafkaException), fenced_states(kafka, self.state(), [1]):
                    pass

        thread = threading.Thread(target=fence)
        with self.running() as running:
            thread.start()
            try:
                with pytest.raises(StreamingQueryException):
                    while times < 50:
                        send()
                        times += 1
                        # It may get between two fences.
                        running.processAllAvailable()
            finally:
                stop.set()
                thread.join()
        return times

    def plan_otherwise(self, batch: int, topic: str, more: int) -> None:
        """As a predecessor does that wakes: its own plan of the batch, which reads so many records more of partition 0, over the successor's."""
        (key,) = [key for key in self.files("/offsets/") if key.endswith(f"/{batch}")]
        lines = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read().decode().splitlines()
        for at, line in enumerate(lines):
            told = json.loads(line) if line.startswith("{") else {}
            if topic in told:
                told[topic]["0"] += more
                lines[at] = json.dumps(told)
        self._s3.put_object(Bucket=self._bucket, Key=key, Body="\n".join(lines).encode())

    def last(self, folder: str) -> int:
        """The highest number of a batch in this folder of the checkpoint."""
        return max(int(key.rpartition("/")[2]) for key in self.files(folder))

    def forget_commit(self) -> None:
        """As if it was killed before the last batch was committed."""
        self.remove([key for key in self.files("/commits/") if key.endswith(f"/{self.last('/commits/')}")])

    def plan(self) -> str:
        spark, _, _ = self._made
        return Aggregation(spark, self.pipeline, self.topics.catalog, 1).plan

    def forget_positions(self) -> None:
        """As brokers do of groups that commit nothing for a week."""
        admin = AdminClient({**self._made[1].kafka.client_config()})
        for future in admin.delete_consumer_groups([self.pipeline.name, f"{self.pipeline.name}.state"]).values():
            future.result()

    def take_in(self, **live: object) -> None:
        with self.running(**live) as query:
            query.processAllAvailable()

    def take_in_without_one(self, fault: str) -> None:
        """Of what is made, one can't be a record: the log has the fault, and a metric counts it."""

        def counted() -> float:
            return REGISTRY.get_sample_value("headrace_unfit_groups_total", {"query": self.pipeline.name}) or 0

        before = counted()
        with capture_logs() as logs:
            self.take_in()
        assert counted() - before == 1
        (line,) = [line for line in logs if line["log_level"] == "error"]
        assert line["records"] == 1
        assert fault in line["first"]

    def files(self, folder: str = "") -> list[str]:
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{self.prefix}/")
        keys = [each["Key"] for each in found.get("Contents", [])]
        return [key for key in keys if folder in key and not key.endswith("/")]

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._s3.delete_object(Bucket=self._bucket, Key=key)

    def taken_in(self) -> dict[int, int]:
        """The offsets of the pipeline's group, of the partitions that it has one for."""
        return self.positions()[self.pipeline.source]

    def send(self, *dispatches: Dispatch, partition: int = 0) -> None:
        values = [framed(self.topics.schema_ids[DISPATCHED], body(_dispatch(each))) for each in dispatches]
        self.topics.send(*values, partition=partition)

    def newest(self) -> dict[str, dict[str, Any]]:
        return {event["window_id"]: event for event in self.written()}

    def written(self) -> list[dict[str, Any]]:
        return [event for event, _, _ in events(self.topics, self.pipeline.target)]

    def ids(self) -> list[bytes]:
        return [headers["ce_id"] for _, headers, _ in events(self.topics, self.pipeline.target)]

    def set_aside(self, topic: str) -> list[str]:
        """The coordinates in a topic of dead letters, or of late records."""
        return sorted(str(dict(headers_of(each))["ce_id"], "ascii") for each in self.topics.read(topic))  # type: ignore[arg-type]

    def late_ones(self) -> list[str]:
        return self.set_aside(str(self.topics.catalog.topic(self.pipeline.target).late_topic))

    def positions(self) -> dict[str, dict[int, int]]:
        """The offsets of the pipeline's group, by topic and partition."""
        found = {}
        for source in self.pipeline.sources:
            of = route(self.pipeline, self.topics.catalog, source)
            with closing(position_reader(self._made[1].kafka.client_config(), of)) as reader:
                taken = committed_positions(reader, of.source, [0, 1])
            found[source] = {partition: at.offset for partition, at in taken.items() if at.offset}
        return found

    def with_function(self, function: Any) -> None:
        self.pipeline = dataclasses.replace(self.pipeline, function=function)

    def ids_of(self) -> list[str]:
        return sorted(headers["ce_id"].decode() for _, headers, _ in events(self.topics, self.pipeline.target))

    def late(self) -> list[dict[str, bytes | None]]:
        name = self.topics.catalog.topic(self.pipeline.target).late_topic
        assert name is not None
        return [dict(headers_of(message)) for message in self.topics.read(name)]


@pytest.fixture
def query(spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics) -> Query:
    return Query(spark, settings, registry, topics)


def _dispatch(of: Dispatch) -> dict[str, Any]:
    origin, minutes, delay = of
    return a_dispatch(origin=origin, dispatched_at=_TEN + timedelta(minutes=minutes), late_minutes=delay)


def groups_of(dispatches: Sequence[Dispatch]) -> dict[str, dict[str, Any]]:
    """What `update` writes of each, by its key."""
    groups = defaultdict(list)
    for origin, minutes, delay in dispatches:
        begins_at = _TEN + timedelta(minutes=minutes // 15 * 15)
        groups[origin, begins_at].append(delay)
    return {
        (window_id := f"{origin}/{begins_at:%Y-%m-%dT%H:%M:%SZ}"): {
            "window_id": window_id,
            "origin": origin,
            "begins_at": begins_at,
            "ends_at": begins_at + _WINDOW,
            "dispatches": len(delays),
            "delay_mean_minutes": statistics.fmean(delays),
            "delay_p95_minutes": percentile(sorted(delays), 0.95),
            "is_final": False,
        }
        for (origin, begins_at), delays in groups.items()
    }


FIRST: list[Dispatch] = [("NTH", 0, 5), ("NTH", 14, 7), ("NTH", 15, 60), ("STH", 3, -4), ("EST", 29, 0)]
SECOND: list[Dispatch] = [("NTH", 1, 300), ("STH", 44, 12), ("STH", 45, 13)]


def test_each_window_holds_what_its_events_say(query: Query) -> None:
    query.send(*FIRST)
    query.send(*SECOND, partition=1)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])
    query.send(*SECOND, partition=1)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND, *SECOND])
    assert len(set(query.ids())) == len(query.ids())


@pytest.mark.long
def test_with_the_trigger_available_now_it_takes_what_is_there_and_ends(query: Query) -> None:
    for dispatches in (FIRST, SECOND):
        query.send(*dispatches)
        with query.whole(trigger="available-now") as thread:
            thread.join(120)
            assert not thread.is_alive()
    assert query.newest() == groups_of([*FIRST, *SECOND])


@pytest.mark.long
def test_a_select_counts_what_the_function_counts(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics, tmp_path: Path
) -> None:
    pipeline = written(tmp_path, delays_by_origin.name, IN_SQL.replace("output: append", "output: update"))
    query = Query(spark, settings, registry, topics, pipeline)
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND, partition=1)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])


def test_a_bad_record_and_a_late_one_are_set_aside_and_the_others_counted(query: Query) -> None:
    later = [("NTH", 300, 1), ("STH", 290, 2)]
    query.send(*FIRST)
    query.take_in()
    query.send(*later)
    query.topics.send(b"junk", partition=1)
    query.take_in()
    # The newest is of 15:00, so windows that end by 13:00 are over.
    query.send(("NTH", 3, 9), ("NTH", 179, 9), ("NTH", 180, 9), partition=1)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *later, ("NTH", 180, 9)])
    raw = query.topics.dispatched.name
    assert [headers["ce_id"] for headers in query.late()] == [f"{raw}/1/{offset}".encode() for offset in (1, 2)]
    assert [message.value() for message in query.topics.read(query.topics.dispatched.dead_letter_topic)] == [b"junk"]


def test_an_event_from_the_future_is_a_dead_letter_and_makes_no_other_one_late(query: Query) -> None:
    value = body(a_dispatch(dispatched_at=datetime(9999, 1, 1, tzinfo=UTC)))
    query.topics.send(framed(query.topics.schema_ids[DISPATCHED], value))
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])
    (letter,) = query.topics.read(query.topics.dispatched.dead_letter_topic)
    told = dict(headers_of(letter))
    assert told["__connect.errors.exception.class.name"] == b"FromTheFuture"
    assert b"dispatched_at is 9999-01-01T00:00:00Z, more than 60 minutes after" in (
        told["__connect.errors.exception.message"] or b""
    )
    assert query.late() == []


def read_again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many records is noted each time that they are read again."""
    found: list[int] = []

    def counted(
        spark: SparkSession, kafka: KafkaSettings, ranges: Sequence[OffsetRange], *, fail_on_data_loss: bool
    ) -> DataFrame:
        found.append(sum(each.end - each.start for each in ranges))
        return read_ranges(spark, kafka, ranges, fail_on_data_loss=fail_on_data_loss)

    monkeypatch.setattr(stateful, "read_ranges", counted)
    return found


@pytest.mark.long
def test_records_are_read_again_only_where_one_was_set_aside(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    again = read_again(monkeypatch)
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND)
    with query.running() as running:
        running.processAllAvailable()
        assert again == []
        query.topics.send(b"junk")
        running.processAllAvailable()
        assert again == [1]
        query.send(*SECOND)
        running.processAllAvailable()
    assert again == [1]
    query.send(*FIRST)
    query.take_in(read_once=False)
    assert again == [1, len(FIRST)]
    assert query.taken_in() == {0: 2 * len(FIRST) + 2 * len(SECOND) + 1}


def test_a_batch_whose_commit_is_gone_runs_again_and_writes_nothing(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    before = query.ids()
    query.forget_commit()
    query.take_in()
    assert query.ids() == before
    query.send(*SECOND)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])


def test_a_batch_that_was_cut_off_between_two_partitions_is_finished(query: Query) -> None:
    many = [(origin, 16 + number, number) for origin in ("NTH", "STH", "EST") for number in range(40)]
    first = [*FIRST, many[-1]]
    query.send(*first)
    query.take_in()
    times = query.cut_off_while(lambda: query.send(*many))
    cut_off = query.ids()
    query.take_in()
    assert query.newest() == groups_of([*first, *many * times])
    assert len(set(query.ids())) == len(query.ids()) > len(cut_off)


@pytest.mark.long
def test_what_a_predecessor_commits_during_a_takeover_is_not_stamped_over(
    query: Query, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND)
    kafka, state = settings.kafka.client_config(), query.state()
    refused: list[KafkaException] = []
    with closing(position_reader(kafka, state)) as reader, fenced_states(kafka, state, [0]) as producers:
        before = StateNote.of(committed_positions(reader, state.target, [0])[0].metadata)
        assert before is not None
        coming = before.model_copy(update={"batch": before.batch + 1})

        def meanwhile(*arguments: Any) -> Fault | None:
            with pytest.raises(KafkaException) as error:
                commit_note(producers[0], reader, state, 0, coming)
            refused.append(error.value)
            return fault_of(*arguments)

        monkeypatch.setattr(sink, "fault_of", meanwhile)
        query.take_in()
    assert [error.args[0].fatal() for error in refused] == [True]
    assert query.newest() == groups_of([*FIRST, *SECOND])
    assert len(set(query.ids())) == len(query.ids())


@pytest.mark.long
@pytest.mark.parametrize("more", [-2, 2])
def test_a_plan_that_a_predecessor_wrote_over_its_successors_is_refused(query: Query, more: int) -> None:
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND, *SECOND)
    query.take_in()
    planned = query.last("/offsets/")
    query.send(*FIRST)
    query.take_in()
    query.plan_otherwise(planned, query.topics.dispatched.name, more)
    query.forget_commit()
    query.take_in(on_state_loss=query.told("reads other records by its checkpoint", "rebuild"))
    assert query.newest() == groups_of([*FIRST, *SECOND, *SECOND, *FIRST])


@pytest.mark.long
def test_a_batch_whose_plan_is_written_over_before_it_is_written_sends_nothing(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    query.send(*FIRST)
    query.take_in()
    before = query.ids()
    planned = CheckpointOffsets.planned

    def written_over(self: CheckpointOffsets, run: str, batch: int, topics: Sequence[str]) -> Any:
        query.plan_otherwise(batch, query.topics.dispatched.name, -1)
        return planned(self, run, batch, topics)

    with query.running() as running:
        monkeypatch.setattr(CheckpointOffsets, "planned", written_over)
        query.send(*SECOND)
        with pytest.raises(StreamingQueryException, match="reads other records than its checkpoint tells"):
            running.processAllAvailable()
    monkeypatch.undo()
    assert query.ids() == before
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])
    assert len(set(query.ids())) == len(query.ids())


def test_without_its_state_it_does_not_start_until_told_how(query: Query) -> None:
    query.send(*FIRST)
    query.topics.send(b"junk")
    query.take_in()
    query.remove(query.files())
    query.send(*SECOND)
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    assert query.newest() == groups_of([*FIRST, *SECOND])
    letters = query.topics.read(query.topics.dispatched.dead_letter_topic)
    assert [message.value() for message in letters] == [b"junk"], "a rebuild writes no dead letter again"
    query.remove(query.files())
    query.send(*SECOND)
    query.take_in(on_state_loss=query.told("is gone", "begin-anew"))
    assert query.newest() == groups_of([*FIRST, *SECOND]) | groups_of(SECOND)


def test_a_run_that_the_settings_name_is_computed_again_once_though_nothing_is_missing(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    before = query.ids()
    (run,) = query.runs()
    for _ in range(2):
        query.take_in(on_state_loss=f"rebuild:{run}")
        assert query.newest() == groups_of(FIRST)
        assert len(query.ids()) == 2 * len(before)
    assert run not in query.runs()


@pytest.mark.long
def test_a_checkpoint_that_lacks_a_partitions_state_is_a_lost_one(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    query.remove(query.files("/state/0/1/"))
    query.send(*SECOND)
    with structlog.testing.capture_logs() as logs:
        said = query.told("is gone", "rebuild")
    last = query.last("/commits/")
    assert f"the state of partition 1 after batch {last} is gone" in {log.get("error") for log in logs}
    query.take_in(on_state_loss=said)
    assert query.newest() == groups_of([*FIRST, *SECOND])


@pytest.mark.long
def test_too_many_dead_letters_stop_it_until_the_limit_lets_them_through(query: Query) -> None:
    query.topics.send(*[b"junk"] * 150)
    query.send(*FIRST)
    for _ in range(2):
        with pytest.raises(
            StreamingQueryException, match="150 of 155 .* the good ones are taken in already, so only this"
        ):
            query.take_in()
    assert query.newest() == groups_of(FIRST)
    query.take_in(dead_letter_limit=1.0)
    query.send(*SECOND)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])
    assert len(query.topics.read(query.topics.dispatched.dead_letter_topic)) == 150


@pytest.mark.long
def test_a_source_topic_made_anew_is_not_gone_on_with_by_the_state_of_the_other_one(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    query.topics.make_anew(query.topics.dispatched.name)
    query.send(*FIRST, *SECOND)
    with pytest.raises(StateLost, match="was made anew: its id was") as error, query.running():
        pass
    assert "keep" not in str(error.value)
    query.take_in(on_state_loss=query.told("was made anew", "rebuild"))
    assert query.newest() == groups_of([*FIRST, *SECOND])


@pytest.mark.long
def test_a_rebuild_with_fewer_state_partitions_goes_on(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    query.send(*FIRST)
    query.take_in()
    own = query.topics.catalog.topics
    fewer = {DELAYS: own[DELAYS].model_copy(update={"partitions": 1})}
    monkeypatch.setattr(query.topics, "catalog", dataclasses.replace(query.topics.catalog, topics={**own, **fewer}))
    query.remove(query.files())
    query.take_in(on_state_loss=query.told("is gone", "rebuild"))
    query.send(*SECOND)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])


@pytest.mark.long
def test_a_rebuild_that_takes_several_batches_goes_on_after_a_restart(query: Query) -> None:
    query.send(*FIRST)
    query.send(*SECOND)
    query.take_in()
    query.remove(query.files())
    said = query.told("is gone", "rebuild")
    with query.running(on_state_loss=said, max_offsets_per_trigger=3) as running:
        wait_for("a first batch", lambda: query.files("/commits/") != [])
        running.stop()
    assert query.taken_in() == {0: len(FIRST) + len(SECOND)}
    query.take_in(on_state_loss=said)
    assert query.newest() == groups_of([*FIRST, *SECOND])
    query.take_in()


def test_one_that_was_cut_off_before_its_first_batch_begins_with_the_first_record_there_is(
    query: Query, settings: SparkSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> None:
        raise StopRequested("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(Stateful, "write", cut_off)
        with query.running() as running:
            wait_for("it to know where it begins", lambda: query.files("/sources/0/0") != [])
            running.stop()
    # It may have come as far as to plan its first batch, of no records.
    query.remove(query.files("/offsets/"))
    query.send(*FIRST)
    admin = AdminClient({**settings.kafka.client_config()})
    for future in admin.delete_records([TopicPartition(query.topics.dispatched.name, 0, 2)]).values():
        future.result()
    query.take_in(on_data_loss="continue")
    assert query.newest() == groups_of(FIRST[2:])


@pytest.mark.long
def test_of_raw_records_that_are_gone_unread_no_checkpoint_is_offered(query: Query, settings: SparkSettings) -> None:
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND)
    admin = AdminClient({**settings.kafka.client_config()})
    gone = TopicPartition(query.topics.dispatched.name, 0, len(FIRST) + 1)
    for future in admin.delete_records([gone]).values():
        future.result()
    with pytest.raises(PositionsDisagree, match="1 records from offset 5 up to 6 are gone"), query.running():
        pass
    said = query.told("from offset 5 up to 6 are gone, which the state of the run", "rebuild", on_data_loss="continue")
    with pytest.raises(StateLost) as error, query.running(on_data_loss="continue"):
        pass
    assert "keep:" not in str(error.value)
    query.take_in(on_data_loss="continue", on_state_loss=said)
    assert query.newest() == groups_of(FIRST) | groups_of(SECOND[1:])
    query.take_in()


@pytest.mark.long
def test_what_was_said_of_one_loss_does_not_count_for_the_next(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    query.remove(query.files())
    said = query.told("is gone", "rebuild")
    query.take_in(on_state_loss=said)
    query.take_in(on_state_loss=said)
    assert len(query.ids()) == 2 * len(groups_of(FIRST))
    query.remove(query.files())
    assert query.told("is gone", "rebuild", on_state_loss=said) != said


@pytest.mark.long
def test_of_a_run_of_which_nothing_is_left_each_loss_asks_for_a_choice_of_its_own(
    query: Query, settings: SparkSettings
) -> None:
    query.send(*FIRST)
    query.take_in()
    query.forget_positions()
    CheckpointOffsets(settings.s3, query.prefix).remove()
    said = query.told("its topic has had records, but its state has neither positions nor a checkpoint", "rebuild")
    query.take_in(on_state_loss=said)
    assert len(query.ids()) == 2 * len(groups_of(FIRST))
    query.forget_positions()
    CheckpointOffsets(settings.s3, query.prefix).remove()
    assert query.told("its topic has had records", "rebuild", on_state_loss=said) != said


@pytest.mark.long
def test_positions_that_the_brokers_forgot_can_be_taken_from_the_checkpoint(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    query.forget_positions()
    query.send(*SECOND)
    said = query.told("the brokers have no positions of its state, but there is the checkpoint", "keep")
    query.take_in(on_state_loss=said)
    assert query.newest() == groups_of([*FIRST, *SECOND])
    assert len(set(query.ids())) == len(query.ids())
    assert query.taken_in() == {0: len(FIRST) + len(SECOND)}
    query.take_in()


@pytest.mark.long
def test_a_start_that_was_cut_off_between_two_positions_is_made_good(query: Query, settings: SparkSettings) -> None:
    query.send(*FIRST)
    query.take_in()
    query.forget_positions()
    query.remove(query.files())
    state, kafka = query.state(), settings.kafka.client_config()
    note = StateNote(epoch=0, run="0123abcd", batch=-1, partitions=2, begins="first", plan=query.plan())
    with closing(position_reader(kafka, state)) as reader, fenced_states(kafka, state, [0]) as producers:
        commit_note(producers[0], reader, state, 0, note)
    query.take_in()
    assert query.newest() == groups_of(FIRST)
    assert {each.split(b"/")[-2] for each in query.ids()} > {b"0123abcd"}


@pytest.mark.long
def test_more_partitions_than_the_contract_says_do_no_harm(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    query.topics.add_partitions(3, DELAYS)
    query.send(*SECOND)
    query.take_in()
    query.send(*SECOND, partition=1)
    query.take_in()
    # A key may have moved to the partition that was added: only the batch tells which record is the newer one.
    of_batch = [
        (int(headers["ce_id"].rpartition(b"/")[2]), event) for event, headers, _ in events(query.topics, DELAYS)
    ]
    newest = {event["window_id"]: event for _, event in sorted(of_batch, key=itemgetter(0))}
    assert newest == groups_of([*FIRST, *SECOND, *SECOND])


def test_partitions_that_its_source_gets_are_counted_from_their_first_record(query: Query) -> None:
    with query.running() as running:
        query.send(*FIRST)
        running.processAllAvailable()
        query.topics.add_partitions(3)
        query.send(*SECOND, partition=2)
        running.processAllAvailable()
    assert query.newest() == groups_of([*FIRST, *SECOND])
    # One that is added while nobody reads.
    query.topics.add_partitions(4)
    query.send(*SECOND, partition=3)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND, *SECOND])
    assert len(set(query.ids())) == len(query.ids())


def _without_a_mean(is_it: Column, groups: DataFrame) -> DataFrame:
    return groups.withColumn("delay_mean_minutes", F.when(~is_it, F.col("delay_mean_minutes")))


def _of_a_megabyte(is_it: Column, groups: DataFrame) -> DataFrame:
    return groups.withColumn(
        "window_id", F.when(is_it, F.repeat(F.lit("x"), F.lit(400_000))).otherwise(F.col("window_id"))
    )


@pytest.mark.parametrize(
    ("spoilt", "fault"),
    [
        (_without_a_mean, "the schema has no null for delay_mean_minutes"),
        (_of_a_megabyte, "key, id and value have 120"),
    ],
)
def test_a_group_that_cannot_be_a_record_is_left_out_named_and_counted(
    query: Query, spoilt: Callable[[Column, DataFrame], DataFrame], fault: str
) -> None:
    def function(dispatches: DataFrame) -> DataFrame:
        return spoilt(F.col("origin") == "STH", delays_by_origin.function(dispatches))

    query.pipeline = dataclasses.replace(delays_by_origin, function=function)
    query.send(*FIRST)
    query.take_in_without_one(fault)
    assert query.newest() == groups_of([each for each in FIRST if each[0] != "STH"])


def test_two_groups_of_a_state_partition_with_one_key_stop_it(query: Query) -> None:
    def function(dispatches: DataFrame) -> DataFrame:
        return delays_by_origin.function(dispatches).withColumn("window_id", F.when(F.col("window_id") != "", "one"))

    query.pipeline = dataclasses.replace(delays_by_origin, function=function)
    # Three groups and more, in two state partitions.
    query.send(*FIRST)
    with pytest.raises(StreamingQueryException, match="two groups of a batch have the key b'one'"):
        query.take_in()
    # Of the state partitions that two groups share nothing is written.
    assert len(query.written()) <= 1


def test_another_grouping_does_not_go_on_with_the_state_and_another_selection_does(query: Query) -> None:
    def by_hour(dispatches: DataFrame) -> DataFrame:
        return delays_by_origin.function(dispatches.where("late_minutes > 0"))

    def negated(dispatches: DataFrame) -> DataFrame:
        return delays_by_origin.function(dispatches).withColumn("dispatches", -F.col("dispatches"))

    query.send(*FIRST)
    query.take_in()
    query.pipeline = dataclasses.replace(delays_by_origin, function=by_hour)
    query.told("groups, joins or tells events apart otherwise than the run", "rebuild")
    query.pipeline = dataclasses.replace(delays_by_origin, function=negated)
    query.send(("NTH", 2, 9), ("STH", 61, 1))
    query.take_in()
    changed = groups_of([*FIRST[:2], ("NTH", 2, 9)]) | groups_of([("STH", 61, 1)])
    changed = {name: group for name, group in changed.items() if name.startswith("STH") or group["dispatches"] == 3}
    assert query.newest() == groups_of(FIRST) | {
        name: group | {"dispatches": -group["dispatches"]} for name, group in changed.items()
    }


def test_the_state_outlives_a_new_version_of_the_sources_schema(query: Query, registry: Registry) -> None:
    query.send(*FIRST)
    query.take_in()
    query.topics.add_field(registry)
    query.send(*SECOND, partition=1)
    query.take_in()
    assert query.newest() == groups_of([*FIRST, *SECOND])


@pytest.mark.long
def test_a_version_that_is_registered_while_it_runs_is_read(query: Query, registry: Registry) -> None:
    newer = schema_with({"name": "gate", "type": ["null", "string"], "default": None, "doc": "Gate."})
    with query.whole() as thread:
        query.send(*FIRST)
        wait_for("the first windows", lambda: query.newest() == groups_of(FIRST))
        number = registry.register(query.topics.dispatched.subject, newer)
        values = [framed(number, body(_dispatch(each) | {"gate": "B1"}, newer)) for each in SECOND]
        query.topics.send(*values)
        wait_for("the windows of the new version", lambda: query.newest() == groups_of([*FIRST, *SECOND]))
        assert thread.is_alive()
    assert query.topics.read(query.topics.dispatched.dead_letter_topic) == []


@pytest.mark.long
def test_ids_that_nobody_knows_make_dead_letters_and_hold_nothing_up(query: Query) -> None:
    with structlog.testing.capture_logs() as logs, query.whole() as thread:
        query.topics.send(*[framed(number, b"body") for number in range(90_001, 90_031)])
        query.send(*FIRST)
        letters = query.topics.dispatched.dead_letter_topic
        wait_for("the dead letters", lambda: len(query.topics.read(letters)) == 30)
        assert query.newest() == groups_of(FIRST)
        assert thread.is_alive()
    # One for the id that is waited for, and one for all others.
    assert [log["event"] for log in logs].count("the query begins anew") <= 3


def test_an_older_checkpoint_is_refused(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    query.send(*SECOND)
    query.take_in()
    query.remove([key for key in query.files() if key.rpartition("/")[2] not in ("0", "metadata")])
    query.told("goes on with batch", "rebuild")


def test_a_window_that_is_over_is_written_once_and_is_final(
    spark: SparkSession, settings: SparkSettings, registry: Registry, topics: Topics
) -> None:
    query = Query(spark, settings, registry, topics, final_delays_by_origin)
    over = {name: window | {"is_final": True} for name, window in groups_of([*FIRST, *SECOND]).items()}
    query.send(*FIRST)
    query.take_in()
    assert query.written() == []
    query.send(*SECOND)
    query.send(("NTH", 400, 1), partition=1)
    query.take_in()
    assert query.newest() == over
    query.send(("NTH", 0, 1), ("NTH", 401, 1))
    query.take_in()
    assert len(query.written()) == len(over)
    assert len(query.late()) == 1


def overlapping(dispatches: DataFrame) -> DataFrame:
    """Of half an hour, each quarter."""
    windows = dispatches.groupBy(F.window("dispatched_at", "30 minutes", "15 minutes"), "origin").agg(
        F.count("*").alias("dispatches")
    )
    begin = F.date_format("window.start", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    return windows.select(
        "*",
        F.concat_ws("/", "origin", begin).alias("window_id"),
        F.col("window.start").alias("begins_at"),
        F.col("window.end").alias("ends_at"),
        F.lit(0.0).alias("delay_mean_minutes"),
        F.lit(0.0).alias("delay_p95_minutes"),
    )


@pytest.mark.long
def test_of_overlapping_windows_an_event_is_late_for_those_that_are_over(query: Query) -> None:
    query.pipeline = dataclasses.replace(delays_by_origin, function=overlapping)
    query.send(("NTH", 300, 1))
    query.take_in()
    query.topics.send(b"junk")
    # Windows that end by 13:00 are over: all of 10:03, one of two of 12:50, none of 13:00.
    query.send(("NTH", 3, 1), ("NTH", 170, 1), ("NTH", 180, 1))
    query.take_in()
    counts = {name.removeprefix("NTH/2013-01-01T"): each["dispatches"] for name, each in query.newest().items()}
    assert counts == {"14:45:00Z": 1, "15:00:00Z": 1, "12:45:00Z": 2, "13:00:00Z": 1}
    told = [each["__connect.errors.exception.message"] for each in query.late()]
    assert told == [
        b"its windows that end from 2013-01-01T10:15:00Z to 2013-01-01T10:30:00Z are over: the watermark was 2013-01-01T13:00:00Z",
        b"its windows that end from 2013-01-01T13:00:00Z to 2013-01-01T13:00:00Z are over: the watermark was 2013-01-01T13:00:00Z",
    ]
    missed = [MissedWindows.of([*each.items()]) for each in query.late()]
    assert missed == [
        tuple(_TEN + timedelta(minutes=m) for m in minutes) for minutes in ((15, 30, 180), (180, 180, 180))
    ]
    (junk,) = query.topics.read(query.topics.dispatched.dead_letter_topic)
    assert MissedWindows.of(headers_of(junk)) is None


def test_headers_say_who_made_it(query: Query) -> None:
    query.send(*FIRST)
    query.take_in()
    _, headers, message = events(query.topics, DELAYS)[0]
    assert headers["ce_source"] == b"/spark/delays_by_origin"
    assert headers["ce_id"].startswith(bytes(message.key() or b"") + b"/")
    assert json.loads(json.dumps(headers["ce_time"].decode())).endswith("Z")
