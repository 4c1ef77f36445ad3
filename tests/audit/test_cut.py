"""Up to which record an audit looks, on a real broker."""

from __future__ import annotations

import pytest

from deploy.local.servers.stack import LocalStack
from services.audit.cut import Cut
from services.audit.errors import CouldNotAudit
from services.audit.sources.broker import Broker
from services.audit.state import Audited, State
from tests.alerting.test_from_record_to_alert import READINGS, a_reading, a_station
from tests.alerting.worker import publish_readings, settings_of

pytestmark = pytest.mark.system


def test_a_topic_that_brokers_have_cut_since_the_last_clean_audit_is_not_called_audited(stack: LocalStack) -> None:
    """Other records may lie where the audited ones were: what ends before them now is as if its last records were gone."""
    publish_readings(stack, [a_reading(a_station())])
    broker = Broker(settings_of(stack).kafka.client_config())
    ends, topic_id = broker.ends(READINGS), broker.topic_id(READINGS)
    assert topic_id is not None

    def cut(more: int) -> Cut:
        before = Audited(topic_id=topic_id, ends={partition: end + more for partition, end in ends.items()})
        return Cut(broker, State(at="2013-01-01T00:00:00.000Z", topics={READINGS: before}), 1, lambda _: None)

    with pytest.raises(
        CouldNotAudit, match=rf"{READINGS}/0 ended at .* at the last clean audit, and ends at .*: run with --full"
    ):
        cut(1).window(READINGS)
    assert {p: span.end for p, span in cut(0).window(READINGS).spans.items()} == ends
