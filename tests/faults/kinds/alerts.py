"""Alerting that dies or is scaled, and whoever it tells."""

from __future__ import annotations

import random
import time

from confluent_kafka.admin import AdminClient

from tests.faults.fault import Shown, fault
from tests.faults.stage.stage import Stage


@fault("kill -9 of alerting, again and again.")
def alerting_killed(stage: Stage, chance: random.Random) -> Shown:
    killed = 0
    for _ in range(stage.strikes):
        stage.forgive()
        killed += len(stage.kill("alerting"))
        time.sleep(chance.uniform(4, 8))
    return Shown(killed, "kills")


@fault("alerting is scaled from one worker to three, one of them is killed, and back to one.")
def alerting_scaled(stage: Stage, chance: random.Random) -> Shown:
    others = [stage.second("alerting"), stage.second("alerting")]
    try:
        stage.wait("three members in the group", lambda: _members(stage) == 3)
        most = _members(stage)
        time.sleep(chance.uniform(2, 5))
        stage.kill("alerting")
        time.sleep(chance.uniform(5, 10))
    finally:
        for other in others:
            other.stop(grace_seconds=20)
    stage.wait("one member in the group", lambda: _members(stage) == 1)
    return Shown(most, "members in the group at most")


@fault("The webhook is down for 40 s.")
def webhook_down(stage: Stage, chance: random.Random) -> Shown:
    with stage.webhook.refusing() as refused:
        time.sleep(40)
    return Shown(refused.count, "notifications refused")


def _members(stage: Stage) -> int:
    admin = AdminClient({"bootstrap.servers": stage.stack.kafka.bootstrap_servers})
    return len(admin.describe_consumer_groups(["alerting"])["alerting"].result().members)
