"""Processes that die, or that others take the place of."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import psutil

from contracts.definitions.catalog import load_catalog
from contracts.servers.producer_config import close_producer
from deploy.local.processes.process import Process
from deploy.local.servers.ports import HOST
from spark.derivation.derivation import route
from spark.runtime.mode import Mode
from spark.sinks.kafka.transaction import transactional_producer
from tests.bench.load.dimension_version import upload_version
from tests.faults.fault import Shown, fault
from tests.faults.moments import (
    VICTIMS,
    Family,
    after_it_commits_an_interval,
    after_the_lake_commits,
    before_the_lake_commits,
    between_its_commits,
    in_a_long_batch,
    in_a_transaction,
    kill_of,
    strike_often,
    until_it_works,
)
from tests.faults.stage.cast import PIPELINE
from tests.faults.stage.positions import LIVE, SOURCE
from tests.faults.stage.proxy import Proxy
from tests.faults.stage.stage import Stage, is_dead, text_of

_TIMES_ALL_DIE = 5
_BUSY_PROCESSES = 6
_ROUTE = route(LIVE, load_catalog())


@fault("kill -9 of live at moments of chance.")
def live_killed(stage: Stage, chance: random.Random) -> Shown:
    killed = 0
    for _ in range(stage.strikes):
        stage.forgive()
        until_it_works(stage, "live")
        time.sleep(chance.uniform(0, 2))
        killed += bool(stage.kill("live"))
    return Shown(killed, "kills")


@fault("kill -9 of live, its Python driver or its JVM, while it has a Kafka transaction open.", only=Mode.EXACTLY_ONCE)
def live_killed_in_a_transaction(stage: Stage, chance: random.Random) -> Shown:
    return strike_often(stage, chance, "live", in_a_transaction, "kills with a transaction open")


@fault(
    "kill -9 of live, its Python driver or its JVM, between the transaction's commit and the checkpoint's.",
    only=Mode.EXACTLY_ONCE,
)
def live_killed_between_its_commits(stage: Stage, chance: random.Random) -> Shown:
    return strike_often(
        stage, chance, "live", between_its_commits, "kills after Kafka's commit and before the checkpoint's"
    )


@fault(
    "kill -9 of live, its Python driver or its JVM, when it has just committed its positions at an interval's end.",
    only=Mode.REAL_TIME,
)
def live_killed_at_an_intervals_end(stage: Stage, chance: random.Random) -> Shown:
    return strike_often(stage, chance, "live", after_it_commits_an_interval, "kills as positions were committed")


@fault(
    "kill -9 of live, its Python driver or its JVM, while a query takes over from the one before: a dimension has a new version.",
    only=Mode.REAL_TIME,
)
def live_killed_in_a_changeover(stage: Stage, chance: random.Random) -> Shown:
    met = 0
    for _ in range(stage.strikes):
        stage.forgive()
        until_it_works(stage, "live")
        before, logged = stage.process("live"), len(stage.log_of("live"))
        upload_version(stage.stack.settings().s3, chance.random())
        stage.wait("a query to take over", lambda logged=logged: "renewing the query" in stage.log_of("live")[logged:])  # type: ignore[misc]
        time.sleep(chance.uniform(0, 1.5))
        # A practice may have ended just before.
        met += "changed over" not in stage.log_of("live")[logged:].rpartition("renewing the query")[2]
        kill_of(stage.family("live"), chance.choice(("all", "driver", "jvm")))
        stage.wait_for_another("live", before)
    return Shown(met, "kills before the query had taken over")


@fault("kill -9 of lake, its Python driver or its JVM, between writing files and committing them.")
def lake_killed_before_its_commit(stage: Stage, chance: random.Random) -> Shown:
    return strike_often(stage, chance, "lake", before_the_lake_commits, "kills with files written and not committed")


@fault("kill -9 of lake, its Python driver or its JVM, between the table's commit and the checkpoint's.")
def lake_killed_after_its_commit(stage: Stage, chance: random.Random) -> Shown:
    return strike_often(
        stage, chance, "lake", after_the_lake_commits, "kills after the table's commit and before the checkpoint's"
    )


@fault("kill -9 of the Python workers of live, while one has a Kafka transaction open.", only=Mode.EXACTLY_ONCE)
def live_workers_killed(stage: Stage, chance: random.Random) -> Shown:
    return strike_often(
        stage, chance, "live", in_a_transaction, "kills of all workers with a transaction open", victims=("workers",)
    )


@fault(
    "kill -9 of live, its driver, its JVM or its workers, somewhere in a batch of tens of thousands.",
    only=Mode.EXACTLY_ONCE,
)
def live_killed_in_a_long_batch(stage: Stage, chance: random.Random) -> Shown:
    met = 0
    for of in chance.sample(VICTIMS, k=len(VICTIMS)):
        met += _ends_in_a_long_batch(stage, chance, lambda family: kill_of(family, of) > 0)  # noqa: B023  called at once
    return Shown(met, "kills with a long transaction open")


@fault(
    "One partition of live is fenced in the middle of a long batch: its task fails, and Spark cancels the others.",
    only=Mode.EXACTLY_ONCE,
)
def live_input_ends_early(stage: Stage, chance: random.Random) -> Shown:
    def fence(family: Family) -> bool:
        kafka, opened = stage.stack.settings().kafka.client_config(), stage.positions.open_in()
        close_producer(
            transactional_producer(kafka, _ROUTE, chance.choice([each for each, records in opened.items() if records]))
        )
        return True

    met = sum(_ends_in_a_long_batch(stage, chance, fence) for _ in range(stage.strikes))
    return Shown(met, "tasks that failed, fenced with a long transaction open")


@fault(
    "live runs where Spark tries a failed task again, as on a cluster, and its workers are killed in long batches.",
    only=Mode.EXACTLY_ONCE,
)
def live_tasks_retried(stage: Stage, chance: random.Random) -> Shown:
    before, tried_again = stage.process("live"), 0
    with stage.frozen("live"):
        other = stage.second("live", HEADRACE_SPARK__MASTER="local[2,16]")
        try:
            stage.wait("the second live to take over", lambda: stage.has_started(other, "live"))
            for _ in range(stage.strikes):
                tried_again += _tasks_tried_again(stage, chance, other)
        finally:
            other.stop(grace_seconds=60)
    stage.wait("the first live to end", lambda: is_dead(before))
    return Shown(tried_again, "tasks lost and tried again in the batch that was open")


@fault("Other work takes all cores while live and lake are killed at moments of chance, in long batches too.")
def cores_taken(stage: Stage, chance: random.Random) -> Shown:
    killed = 0
    with stage.busy(_BUSY_PROCESSES):
        for _ in range(stage.strikes):
            stage.forgive()
            stage.burst()
            until_it_works(stage, "live")
            time.sleep(chance.uniform(0, 3))
            name, of = chance.choice(("live", "lake")), chance.choice(VICTIMS)
            family = stage.family(name)
            # In real-time mode no Python worker has a part in it.
            killed += kill_of(family, of) or kill_of(family, "all")
    return Shown(killed, f"processes killed while {_BUSY_PROCESSES} others took what they could of the processors")


@fault("A second live is started on the same query.")
def second_live(stage: Stage, chance: random.Random) -> Shown:
    return _second(stage, "live")


@fault("A second lake is started on the same tables.")
def second_lake(stage: Stage, chance: random.Random) -> Shown:
    return _second(stage, "lake")


@fault("live is frozen (SIGSTOP) past its lease, another takes over, and the first wakes beside it.")
def live_frozen(stage: Stage, chance: random.Random) -> Shown:
    return _frozen(stage, chance, "live")


@fault(
    "live is cut off from S3, but not from Kafka, and another takes over: the first one finds it by the brokers, and ends.",
    only=Mode.REAL_TIME,
)
def live_cut_from_s3(stage: Stage, chance: random.Random) -> Shown:
    with Proxy(stage.stack.ports.s3) as own:
        # The one that is cut off has S3 behind a proxy of its own; what the supervisor starts meanwhile is its successor.
        with stage.frozen("live"):
            cut = stage.second("live", HEADRACE_S3__ENDPOINT=f"http://{HOST}:{own.port}")
            stage.wait("the second live to take over", lambda: stage.has_started(cut, "live"))
        with own.refusing():
            stage.wait("the second live to end", lambda: cut.exit_code() is not None)
    told = text_of(cut.log).count("by the offsets of its group")
    cut.stop(grace_seconds=10)
    return Shown(told, "processes that found their successor by the brokers")


@fault("lake is frozen (SIGSTOP) past its lease, another takes over, and the first wakes beside it.")
def lake_frozen(stage: Stage, chance: random.Random) -> Shown:
    return _frozen(stage, chance, "lake")


@fault("Every process is killed at once (kill -9), five times in a row.", seconds=400)
def everything_killed(stage: Stage, chance: random.Random) -> Shown:
    names = ("kafka", "registry", "s3", *stage.lives, "lake", "alerting", "dimensions")
    killed = 0
    for _ in range(_TIMES_ALL_DIE):
        killed += len(stage.kill(*names))
        time.sleep(chance.uniform(5, 15))
    return Shown(killed, "processes killed")


def _ends_in_a_long_batch(stage: Stage, chance: random.Random, act: Callable[[Family], bool]) -> bool:
    """Whether `act` met a long batch, of which the process that ran it has ended."""
    struck: list[psutil.Process] = []

    def strike(family: Family) -> bool:
        struck.append(family[-1])
        return act(family)

    if not in_a_long_batch(stage, chance, strike):
        return False
    stage.wait_for_another("live", struck[-1])
    return True


def _tasks_tried_again(stage: Stage, chance: random.Random, other: Process) -> int:
    """How many tasks `other` has lost with its workers; it has gone on with their batch. Raises TimeoutError if it has not."""

    def lost() -> int:
        return text_of(other.log).count("Lost task")

    before = lost()
    if not in_a_long_batch(
        stage, chance, lambda family: kill_of(family, "workers") > 0, other=psutil.Process(other.pid)
    ):
        return 0
    # In the log as soon as Spark reads from the worker that is gone, and no sooner.
    stage.wait("Spark to miss the workers", lambda: lost() > before, 60)
    ends = stage.positions.broker.ends(SOURCE)
    stage.wait("the tasks to be tried again", lambda: stage.positions.reached(ends, PIPELINE, SOURCE), 120)
    if other.exit_code() is not None:
        raise AssertionError("the second live has ended")
    return lost() - before


def _frozen(stage: Stage, chance: random.Random, name: str) -> Shown:
    stage.wait_until_healthy(name)
    before = stage.process(name)
    with stage.frozen(name):
        other = stage.second(name)
        stage.wait(f"the second {name} to take over", lambda: stage.has_started(other, name))
        time.sleep(chance.uniform(3, 6))
    stage.wait(f"the first {name} to end", lambda: is_dead(before))
    other.stop(grace_seconds=60)
    taken = text_of(other.log).count('"lease taken"')
    return Shown(taken, "leases taken over; the first one found out when it woke, and ended")


def _second(stage: Stage, name: str) -> Shown:
    stage.wait_until_healthy(name)
    other = stage.second(name)
    stage.wait(f"the second {name} to end", lambda: other.exit_code() is not None)
    other.stop(grace_seconds=10)
    # The second where the first one was just started anew.
    told = [text_of(other.log).count(each) for each in ("is alive: stop it first", "was taken a moment ago by")]
    return Shown(sum(told), "times that it was refused, and ended")
