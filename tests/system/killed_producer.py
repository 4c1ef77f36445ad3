"""`python -m tests.system.killed_producer SERVERS TOPIC`: reads headers as JSON, and sends each partition a record with its own.

Says that it is ready, then, when the requests are on their way, that they are; and sleeps until it is killed.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from confluent_kafka import Producer


def main() -> None:
    servers, topic = sys.argv[1:]
    seen: dict[str, Any] = {}
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "statistics.interval.ms": 50,
            "stats_cb": lambda statistics: seen.update(json.loads(statistics)),
        }
    )
    producer.list_topics(topic, timeout=30)
    while "eos" not in seen or seen["eos"]["idemp_state"] != "Assigned":
        producer.poll(0.1)
    print("ready", flush=True)
    each_headers: list[dict[str, str]] = json.loads(sys.stdin.readline())
    for partition, headers in enumerate(each_headers):
        producer.produce(topic, b"sent", partition=partition, headers=list(headers.items()))
    while sum(broker["req"].get("Produce", 0) for broker in seen["brokers"].values()) < len(each_headers):
        producer.poll(0.1)
    print("on their way", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
