from __future__ import annotations

import time

from faust.types import TP

from services.alerting.consuming.broker import Consumer


def test_faust_does_not_look_for_streams_that_are_not_there() -> None:
    # With nothing of it started, faust's own look fails; what it logs comes after five minutes under load.
    consumer = Consumer.__new__(Consumer)
    consumer.verify_event_path(time.monotonic(), TP("t", 0))
