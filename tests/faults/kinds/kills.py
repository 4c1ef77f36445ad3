"""Processes that die, or that others take the place of."""

from __future__ import annotations

import random
import re
import time

import httpx
import psutil

from deploy.local.ports import HOST
from deploy.local.process import Process
from tests.faults.fault import Shown, fault
from tests.faults.moments import (
    after_the_lake_commits,
    before_the_lake_commits,
    between_its_commits,
    in_a_transaction,
    strike_often,
    until_it_works,
)
from tests.faults.stage import Stage, is_dead, text_of

_TIMES_ALL_DIE = 5


@fault("kill -9 of live at moments of chance.")
def live_killed(stage: Stage, chance: random.Random) -> Shown:
    killed = 0
    for _ in range(stage.strikes):
        stage.forgive()
        until_it_works(stage, "live")
        time.sleep(chance.uniform(0, 2))
        killed += bool(stage.kill("live"))
    return Shown(killed, "kills")


@fault("kill -9 of live, its Python driver or its JVM, while it has a Kafka transaction open.")
def live_killed_in_a_transaction(stage: Stage, chance: random.Random) -> Shown:
    met = strike_often(stage, chance, "live", in_a_transaction)
    return Shown(met, "kills with a transaction open")


@fault("kill -9 of live, its Python driver or its JVM, between the transaction's commit and the checkpoint's.")
def live_killed_between_its_commits(stage: Stage, chance: random.Random) -> Shown:
    met = strike_often(stage, chance, "live", between_its_commits)
    return Shown(met, "kills after Kafka's commit and before the checkpoint's")


@fault("kill -9 of lake, its Python driver or its JVM, between writing files and committing them.")
def lake_killed_before_its_commit(stage: Stage, chance: random.Random) -> Shown:
    met = strike_often(stage, chance, "lake", before_the_lake_commits)
    return Shown(met, "kills with files written and not committed")


@fault("kill -9 of lake, its Python driver or its JVM, between the table's commit and the checkpoint's.")
def lake_killed_after_its_commit(stage: Stage, chance: random.Random) -> Shown:
    met = strike_often(stage, chance, "lake", after_the_lake_commits)
    return Shown(met, "kills after the table's commit and before the checkpoint's")


@fault("kill -9 of the Python workers of live in the middle of a task.")
def live_workers_killed(stage: Stage, chance: random.Random) -> Shown:
    killed = 0
    for _ in range(stage.strikes):
        stage.forgive()
        stage.wait("a transaction to be open", lambda: stage.positions.open_records() > 0)
        workers = _workers(stage.family("live"))
        for worker in workers:
            worker.kill()
        killed += len(workers)
        time.sleep(chance.uniform(0.5, 2))
    return Shown(killed, "workers killed, each time with a transaction open")


@fault("A second live is started on the same query, and runs beside the first for a while.")
def second_live(stage: Stage, chance: random.Random) -> Shown:
    other = stage.second("live")
    stage.wait("the second live to take records in, or to end", lambda: _rows(other) or other.exit_code() is not None)
    time.sleep(chance.uniform(8, 12))
    rows, ended = _rows(other), other.exit_code() is not None
    other.stop(grace_seconds=30)
    fenced = " and then ended, fenced by the first" if ended else ""
    return Shown(int(rows) + ended, f"records that the second one took{fenced}")


@fault("A second lake is started on the same tables.")
def second_lake(stage: Stage, chance: random.Random) -> Shown:
    other = stage.second("lake")
    stage.wait("the second lake to end", lambda: other.exit_code() is not None)
    refused = "is alive: stop it first" in text_of(other.log)
    other.stop(grace_seconds=10)
    return Shown(int(refused), "refusal")


@fault("lake is frozen (SIGSTOP) past its lease, another takes over, and the first wakes beside it.")
def lake_frozen(stage: Stage, chance: random.Random) -> Shown:
    before = stage.process("lake")
    with stage.frozen("lake"):
        other = stage.second("lake")
        stage.wait("the second lake to take over", lambda: '"started"' in text_of(other.log))
        time.sleep(chance.uniform(3, 6))
    stage.wait("the first lake to end", lambda: is_dead(before))
    other.stop(grace_seconds=60)
    taken = text_of(other.log).count('"lease taken"')
    return Shown(taken, "leases taken over; the first one found out when it woke, and ended")


@fault("Every process is killed at once (kill -9), five times in a row.", seconds=400)
def everything_killed(stage: Stage, chance: random.Random) -> Shown:
    names = ("kafka", "registry", "s3", "live", "lake", "alerting", "dimensions")
    killed = 0
    for _ in range(_TIMES_ALL_DIE):
        killed += len(stage.kill(*names))
        time.sleep(chance.uniform(5, 15))
    return Shown(killed, "processes killed")


def _workers(family: list[psutil.Process]) -> list[psutil.Process]:
    """Those that Spark's daemon has forked."""
    daemons = [each for each in family if "pyspark.daemon" in " ".join(each.cmdline())]
    return [each for each in daemons if each.parent() in daemons]


def _rows(other: Process) -> float:
    """How many records a second Spark deployable has taken into its batches; 0 while it can't be asked."""
    port = re.search(r'"port": (\d+)', text_of(other.log))
    if port is None:
        return 0.0
    try:
        found = re.search(
            r"^headrace_rows_total\S* (\S+)$", httpx.get(f"http://{HOST}:{port[1]}/metrics").text, re.MULTILINE
        )
    except httpx.HTTPError:
        return 0.0
    return float(found[1]) if found else 0.0
