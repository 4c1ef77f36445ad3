"""How records are counted that are written in transactions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts.servers.producer_config import PRODUCER_CONFIG
from deploy.local.servers.stack import LocalStack
from deploy.local.watching.record_counts import RecordCounts

pytestmark = pytest.mark.system


@pytest.fixture
def topic(stack: LocalStack) -> Iterator[str]:
    name = f"counted-{uuid.uuid4().hex[:8]}.v1"
    make(stack, name)
    yield name


def make(stack: LocalStack, name: str) -> None:
    admin = AdminClient({**stack.settings().kafka.client_config()})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)


def write(stack: LocalStack, topic: str, *, transactions: int, records: int) -> None:
    producer = Producer({**PRODUCER_CONFIG, **stack.settings().kafka.client_config(), "transactional.id": topic})
    producer.init_transactions(30)
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, b"a record")
        producer.commit_transaction(30)


def test_markers_count_neither_as_records_nor_as_lag(stack: LocalStack, topic: str) -> None:
    write(stack, topic, transactions=3, records=2)
    ends = {TopicPartition(topic, 0): 9}
    with closing(RecordCounts(stack.settings().kafka, [topic])) as counts:
        counts.read(ends)
        assert counts.totals(ends) == {topic: 6}
        assert counts.without_markers(ends) == {TopicPartition(topic, 0): 8}


def test_a_long_backlog_is_no_total_until_it_is_counted(stack: LocalStack, topic: str) -> None:
    write(stack, topic, transactions=1, records=20_000)
    ends = {TopicPartition(topic, 0): 20_001}
    with closing(RecordCounts(stack.settings().kafka, [topic], budget_seconds=0)) as counts:
        counts.read(ends)
        assert counts.totals(ends) == {topic: None}
        # Where it had come to would be less than what a group has committed, and no lag at all.
        assert counts.without_markers(ends) == ends
    with closing(RecordCounts(stack.settings().kafka, [topic])) as counts:
        counts.read(ends)
        assert counts.totals(ends) == {topic: 20_000}


def test_records_of_a_topic_made_anew_are_not_added_to_those_of_the_one_before(stack: LocalStack, topic: str) -> None:
    at = TopicPartition(topic, 0)
    write(stack, topic, transactions=2, records=5)
    with closing(RecordCounts(stack.settings().kafka, [topic])) as counts:
        counts.read({at: 12})
        assert counts.totals({at: 12}) == {topic: 10}
        admin = AdminClient({**stack.settings().kafka.client_config()})
        admin.delete_topics([topic])[topic].result(30)
        make(stack, topic)
        # As far as the last record of the one before, but not as its marker.
        write(stack, topic, transactions=1, records=10)
        counts.read({at: 11})
        assert counts.totals({at: 11}) == {topic: 10}
        write(stack, topic, transactions=1, records=1)
        counts.read({at: 13})
        assert counts.totals({at: 13}) == {topic: 11}
