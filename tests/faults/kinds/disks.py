"""Disks that are full. They are small file systems of their own (see `tests/faults/stage/disk.py`)."""

from __future__ import annotations

import random
import time

from tests.faults.fault import Shown, fault
from tests.faults.stage.disk import filled
from tests.faults.stage.stage import Stage


@fault("The broker's disk is full for 20 s.")
def broker_disk_full(stage: Stage, chance: random.Random) -> Shown:
    def found() -> int:
        return stage.log_of("kafka").count("No space left on device")

    before, told = stage.restarts(), found()
    with filled(stage.directory / "kafka"):
        stage.wait("the broker to fail for want of space", lambda: stage.restarts() > before, 60)
        time.sleep(20)
    stage.forgive()
    return Shown(found() - told, "times that the broker found no space")


@fault("Spark's disk is full for 20 s, and live is started on it.")
def spark_disk_full(stage: Stage, chance: random.Random) -> Shown:
    def found() -> int:
        return sum(stage.log_of(name).count("No space left on device") for name in ("live", "lake"))

    before = found()
    with filled(stage.scratch) as fill:
        stage.kill("live")

        def has_failed() -> bool:
            fill()  # who is started makes room: it removes what the killed one had
            return found() > before

        stage.wait("Spark to fail for want of space", has_failed, 90)
        time.sleep(20)
    stage.forgive()
    return Shown(found() - before, "times that Spark found no space")
