"""Broker, registry and S3 that die, hang, refuse or are slow."""

from __future__ import annotations

import random
import time

from tests.faults.fault import Shown, fault
from tests.faults.kinds.records import send_unknown_schema_id
from tests.faults.stage.stage import Stage


@fault("The broker is killed (kill -9) under load and started again.")
def broker_killed(stage: Stage, chance: random.Random) -> Shown:
    killed = 0
    for _ in range(stage.strikes):
        stage.forgive()
        killed += len(stage.kill("kafka"))
        time.sleep(chance.uniform(8, 12))
    return Shown(killed, "kills of the broker")


@fault("The broker hangs (SIGSTOP) for 30 s under load.")
def broker_paused(stage: Stage, chance: random.Random) -> Shown:
    return _paused(stage, 25)


@fault("The broker hangs (SIGSTOP) for 150 s under load: longer than clients try by default to deliver a record.")
def broker_paused_for_long(stage: Stage, chance: random.Random) -> Shown:
    return _paused(stage, 145)


def _paused(stage: Stage, seconds: int) -> Shown:
    """For so long, and five seconds before, in which what was on its way may still be acknowledged."""
    with stage.frozen("kafka"):
        time.sleep(5)
        acknowledged, attempted = stage.acknowledged(), len(stage.ledger.attempted)
        time.sleep(seconds)
        more = stage.acknowledged() - acknowledged
        waiting = len(stage.ledger.attempted) - attempted
    return Shown(waiting if not more else 0, f"events attempted in {seconds} s, none acknowledged")


@fault("The registry refuses connections, while a record names a schema id that only it could know.")
def registry_down(stage: Stage, chance: random.Random) -> Shown:
    with stage.registry.refusing() as refused:
        send_unknown_schema_id(stage, count=1)
        time.sleep(20)
    return Shown(refused.count, "connections refused")


@fault("The registry takes 10 s for each request, while a record names a schema id that only it could know.")
def registry_slow(stage: Stage, chance: random.Random) -> Shown:
    with stage.registry.slow(10) as delayed:
        send_unknown_schema_id(stage, count=1)
        time.sleep(25)
    return Shown(delayed.count, "requests held up")


@fault("S3 refuses connections for 20 s.")
def s3_refusing(stage: Stage, chance: random.Random) -> Shown:
    with stage.s3.refusing() as refused:
        time.sleep(20)
    return Shown(refused.count, "connections refused")


@fault("S3 takes 2 s more for each request, for 30 s.")
def s3_slow(stage: Stage, chance: random.Random) -> Shown:
    with stage.s3.slow(2) as delayed:
        time.sleep(30)
    return Shown(delayed.count, "requests held up")


@fault("Every other put to S3 is cut in the middle, for 15 s.")
def s3_cut(stage: Stage, chance: random.Random) -> Shown:
    with stage.s3.cutting(chance) as cut:
        time.sleep(15)
    return Shown(cut.count, "puts cut in the middle")


@fault("The S3 server is killed (kill -9) under load and started again.")
def s3_killed(stage: Stage, chance: random.Random) -> Shown:
    time.sleep(chance.uniform(0, 2))
    return Shown(len(stage.kill("s3")), "kill of the S3 server")
