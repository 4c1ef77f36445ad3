"""`tell_loss`, `tell_made_anew`: records that are gone, and no rule has seen them."""

from __future__ import annotations

import structlog

from services.alerting import metrics

_log = structlog.get_logger(__name__)


def tell_loss(topic: str, partition: int, expected: int, first: int) -> None:
    """Count and log that the offset to be read next was `expected`, which isn't there, and that it is `first` now.

    Where `first` is the greater one, all between them is lost; an offset may be a transaction's marker and no record. Else
    the partition ended before `expected`, and nobody can say what it had held behind that.
    """
    lost = first - expected
    told = _log.bind(topic=topic, partition=partition, from_offset=expected, to_offset=first)
    if lost > 0:
        metrics.LOST.labels(topic).inc(lost)
        told.error(
            "records are gone unread and raise no alert: lengthen the topic's retention, or find out what held alerting up",
            cause="retention or a deletion took them before alerting came to them",
            lost=lost,
        )
    else:
        metrics.CUT.labels(topic).inc()
        told.error(
            "a partition ended before the next offset, alerting begins with its first record: let alerting catch up before a "
            "topic is made anew",
            cause="the topic was deleted and made anew, or brokers lost its last records",
            lost="unknown",
        )


def tell_made_anew(topic: str, partition: int) -> None:
    """Count and log that the partition is of another topic than it was, and that its first record is read next."""
    metrics.CUT.labels(topic).inc()
    _log.error(
        "a topic is another one of the same name, alerting begins with its first records: let alerting catch up before a topic "
        "is made anew",
        topic=topic,
        partition=partition,
        cause="the topic was deleted and made anew",
        lost="unknown",
    )
