"""What the view reads of a stack's processes."""

from __future__ import annotations

import dataclasses
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from contracts.observe import serve_health
from contracts.settings import HttpSettings
from deploy.local.servers.stack import LocalStack
from deploy.local.watching.gauges import Gauges
from services.alerting.consuming.loss import tell_loss
from spark.runtime.metrics import LAG
from tests import sample
from tests.contracts.gateway import a_gateway
from tests.producers import ordered
from tests.sample import topics


@pytest.mark.system
def test_the_lag_that_a_query_tells_takes_the_place_of_its_groups(stack: LocalStack) -> None:
    settings, query = stack.settings(), f"q-{uuid.uuid4().hex[:8]}"
    catalog = sample.catalog()
    topic = catalog.topic(topics.PARCELS_DISPATCHED.name)
    topic = topic.model_copy(update={"name": f"{query}.v1", "consumers": (query,)})
    catalog = dataclasses.replace(catalog, topics={**catalog.topics, topic.name: topic})
    config = settings.kafka.client_config()
    admin = AdminClient({**config})
    admin.create_topics([NewTopic(topic.name, 1)])[topic.name].result(30)
    with ordered(config) as producer:
        for _ in range(3):
            producer.produce(topic.name, b"a record")
    behind = Consumer({**config, "group.id": query})
    behind.commit(offsets=[TopicPartition(topic.name, 0, 1)], asynchronous=False)
    behind.close()
    with closing(Gauges(settings, stack.ports, catalog)) as gauges:
        assert gauges.snapshot().lag[query] == 2
    LAG.labels(query, topic.name, "0").set(1)
    with serve_health(HttpSettings(), service=query, healthy=lambda: None) as served:
        ports = dataclasses.replace(stack.ports, deployables={"live": served.port})
        with closing(Gauges(settings, ports, catalog)) as gauges:
            assert gauges.snapshot().lag[query] == 1


@pytest.mark.system
def test_another_server_at_the_port_of_a_process_is_no_failure_of_the_view(stack: LocalStack) -> None:
    with a_gateway(None, answers=[(404, "<html>Not found</html>")]) as other:
        ports = dataclasses.replace(stack.ports, deployables={"live": int(other.url.rpartition(":")[2])})
        with closing(Gauges(stack.settings(), ports, sample.catalog())) as gauges:
            assert gauges.snapshot().latency_ms == {}


@pytest.mark.system
def test_records_that_alerting_has_lost_are_an_alarm(stack: LocalStack) -> None:
    tell_loss("trials.gone.v1", 0, 5, 8)
    tell_loss("trials.cut.v1", 0, 5, 0)
    with serve_health(HttpSettings(), service="alerting", healthy=lambda: None) as served:
        ports = dataclasses.replace(stack.ports, deployables={"alerting": served.port})
        with closing(Gauges(stack.settings(), ports, sample.catalog())) as gauges:
            alarms = gauges.snapshot().alarms
    assert any(alarm.startswith("3 offsets of trials.gone.v1 deleted before alerting read them") for alarm in alarms)
    assert any(alarm.startswith("trials.cut.v1 ended before alerting's next record") for alarm in alarms)
