"""More load than usual, and producers that die."""

from __future__ import annotations

import random
import time

from tests.faults.fault import Shown, fault
from tests.faults.stage.stage import RATE, Stage

_SPIKE_SECONDS = 120.0
_MOST_MB = {"live": 2_500, "lake": 2_500, "alerting": 400, "kafka": 900, "s3": 700}
"""What each may take with its children at its worst; in real-time mode each pipeline has a `live-NAME` of its own."""


@fault("Ten times the load for two minutes; memory stays bounded.")
def load_spike(stage: Stage, chance: random.Random) -> Shown:
    attempted = stage.acknowledged()
    extra = stage.load(rate=9 * RATE)
    time.sleep(_SPIKE_SECONDS)
    extra.stop(grace_seconds=60)
    sent = stage.acknowledged() - attempted
    peaks = {name: peak // 1_000_000 for name, peak in sorted(stage.peaks.items())}
    if over := {name: peak for name, peak in peaks.items() if peak > _MOST_MB.get(name.partition("-")[0], 500)}:
        raise AssertionError(f"more memory than {_MOST_MB} MB: {over}")
    usual = RATE * _SPIKE_SECONDS
    memory = ", ".join(f"{name} {peaks.get(name, 0):,} MB" for name in ("live", "lake", "alerting"))
    return Shown(int(sent > 8 * usual) * sent, f"events, where {usual:,.0f} are usual; at most {memory}")


@fault("A producer is killed (kill -9) with a full queue, while the broker hangs.")
def producer_killed(stage: Stage, chance: random.Random) -> Shown:
    producer = stage.load(rate=5 * RATE)
    time.sleep(6)
    stage.ledger.renew()
    doubtful = stage.ledger.in_doubt()
    with stage.frozen("kafka"):
        time.sleep(chance.uniform(4, 8))
        producer.stop(grace_seconds=0)
    stage.ledger.renew()
    return Shown(max(0, stage.ledger.in_doubt() - doubtful), "events were in the queue, attempted and not acknowledged")
