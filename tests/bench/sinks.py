"""`headrace bench sinks`: the exactly-once sink beside Spark's own Kafka writer, over the same backlog in one run.

The same raw records, the same enrichment, each in a process of its own; only `HEADRACE_LIVE__MODE` differs. What came
out is counted in the enriched topic: committed records, none of the other's.
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from contracts import topics
from contracts.settings import Settings
from spark.resume import CheckpointOffsets
from tests.bench.filled import filled_stack
from tests.bench.hop import Hop, measure

MODES = ("exactly-once", "at-least-once")


def run(events: int, say: Callable[[str], None]) -> list[Hop]:
    """One hop for each mode, over `events` departures."""
    hops = []
    with filled_stack(events, say) as (stack, env, settings):
        for mode in MODES:
            ours = env | {"HEADRACE_LIVE__MODE": mode}
            hops.append(measure(mode, "live", stack, ours, events, _end(settings), say))
            CheckpointOffsets(settings.s3, f"checkpoints/live/{topics.FLIGHTS_DEPARTED_ENRICHED.name}").remove()
    return hops


def _end(settings: Settings) -> Callable[[], int]:
    """How much further the enriched topic's committed records go than now; markers of transactions are a handful."""
    topic = topics.FLIGHTS_DEPARTED_ENRICHED.name
    consumer = Consumer(settings.kafka.client_config() | {"group.id": "bench", "isolation.level": "read_committed"})
    partitions = [TopicPartition(topic, each) for each in consumer.list_topics(topic, 10).topics[topic].partitions]

    def end() -> int:
        return sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions)

    before = end()
    return lambda: end() - before
