"""A pipeline with a state, which the seed draws: its process dies in the middle of a batch, or its checkpoint is damaged or lost."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from contracts.definitions.catalog import load_catalog
from contracts.errors import HeadraceError
from contracts.servers.producer_config import close_producer
from spark.derivation.derivation import route
from spark.pipelines import load
from spark.runtime.mode import Mode
from spark.sinks.kafka.transaction import transactional_producer
from spark.sinks.stateful.state_transaction import state_route
from tests.faults.fault import Shown, fault
from tests.faults.kinds.checkpoints import wipe
from tests.faults.moments import Family, kill_of, meet, stays_open, strike, strike_often
from tests.faults.stage.cast import RANKING, STRUCK, WRITING
from tests.faults.stage.stage import Stage

_CHOICE = re.compile("HEADRACE_LIVE__ON_STATE_LOSS=(rebuild:[0-9a-f]{8})")


@fault(
    "kill -9 of live, its Python driver or its JVM, between the transactions of two state partitions of one batch.",
    only=Mode.EXACTLY_ONCE,
)
def state_killed_between_partitions(stage: Stage, chance: random.Random) -> Shown:
    # A list has one partition.
    name = _struck(stage, chance, [each for each in STRUCK if each != RANKING])
    return strike_often(
        stage,
        chance,
        "live",
        partial(_between_partitions, name),
        f"kills with a batch of {name} written by one state partition alone",
    )


@fault(
    "kill -9 of live, its Python driver or its JVM, between the state partitions' transactions and Spark's commit file.",
    only=Mode.EXACTLY_ONCE,
)
def state_killed_before_its_commit(stage: Stage, chance: random.Random) -> Shown:
    name = _struck(stage, chance)
    return strike_often(
        stage,
        chance,
        "live",
        partial(_before_its_commit, name),
        f"kills with a batch of {name} written that its checkpoint does not know",
    )


@fault(
    "kill -9 of the Python workers of live, while a state partition has its transaction open.", only=Mode.EXACTLY_ONCE
)
def state_workers_killed(stage: Stage, chance: random.Random) -> Shown:
    name = _struck(stage, chance, WRITING)
    return strike_often(
        stage,
        chance,
        "live",
        partial(_in_a_transaction, name),
        f"kills of all workers with a transaction of {name} open",
        victims=("workers",),
    )


@fault(
    "A state partition is fenced in the middle of its transaction: its task fails, and Spark cancels the others.",
    only=Mode.EXACTLY_ONCE,
)
def state_input_ends_early(stage: Stage, chance: random.Random) -> Shown:
    name, positions = _struck(stage, chance, WRITING), stage.positions
    target = load(name).target

    def fenced(stage: Stage, victims: str) -> bool:
        return meet(
            stage,
            "live",
            lambda: positions.open_records(target) > 0,
            lambda _: stays_open(positions, target),
            lambda _: _fence(stage, name),
        )

    return strike_often(stage, chance, "live", fenced, f"tasks of {name} fenced with their transaction open")


@fault("The last commit file of a checkpoint with state is deleted, and live killed.", only=Mode.EXACTLY_ONCE)
def state_commit_deleted(stage: Stage, chance: random.Random) -> Shown:
    name = _struck(stage, chance)

    def deleted(stage: Stage, victims: str) -> bool:
        positions = stage.positions
        commits = f"{positions.state_checkpoint(name)}/commits/"

        def delete(family: Family) -> None:
            positions.remove(f"{commits}{positions.newest(commits)}")
            kill_of(family, "all")

        # Where the next batch is planned, that one would run, and not the last one again.
        return _between_batches(stage, name, delete)

    return strike_often(stage, chance, "live", deleted, f"commit files of written batches of {name} deleted")


@fault(
    "A checkpoint with state is lost, and live killed. It refuses to start, and is told to compute everything again.",
    only=Mode.EXACTLY_ONCE,
    seconds=400,
)
def state_lost(stage: Stage, chance: random.Random) -> Shown:
    name = _struck(stage, chance)

    def lose() -> bool:
        with stage.frozen("live") as family:
            wipe(stage.positions, stage.positions.state_checkpoint(name))
            kill_of(family, "all")
        return True

    return Shown(_refused_and_rebuilt(stage, lose), f"checkpoint of {name} lost, refused, and built again")


@fault(
    "The plan of the last batch of a query with state is replaced by a shorter one, as a predecessor does that wakes, and live killed. It refuses to "
    "start, and is told to compute everything again.",
    only=Mode.EXACTLY_ONCE,
    seconds=400,
)
def state_plan_replaced(stage: Stage, chance: random.Random) -> Shown:
    name, positions = _struck(stage, chance), stage.positions

    def shorten(family: Family) -> None:
        offsets = f"{positions.state_checkpoint(name)}/offsets/"
        plan = f"{offsets}{positions.newest(offsets)}"
        # A version, the batch's metadata, and a line for each source.
        version, batch, *sources = positions.read(plan).decode().splitlines()
        shorter = [
            {
                topic: {partition: max(0, end - 1) for partition, end in partitions.items()}
                for topic, partitions in json.loads(ends).items()
            }
            for ends in sources
        ]
        positions.write(plan, "\n".join([version, batch, *map(json.dumps, shorter)]).encode())
        kill_of(family, "all")

    replaced = _refused_and_rebuilt(stage, lambda: _between_batches(stage, name, shorten))
    return Shown(replaced, f"plan of {name} replaced, refused, and built again")


def _struck(stage: Stage, chance: random.Random, of: Sequence[str] = STRUCK) -> str:
    """One of these pipelines that runs."""
    return chance.choice([each for each in of if each in stage.pipelines])


def _refused_and_rebuilt(stage: Stage, damage: Callable[[], bool]) -> int:
    """How often `live` began anew, which dies in the `damage`, refuses to start, and is told to compute everything again; 0 if it was not damaged."""

    def refused() -> list[str]:
        return _CHOICE.findall(stage.log_of("live"))

    def rebuilt() -> int:
        return stage.log_of("live").count('"state lost"')

    told, before = len(refused()), rebuilt()
    if not damage():
        return 0
    stage.wait("live to refuse to start", lambda: len(refused()) > told)
    stage.give("live", HEADRACE_LIVE__ON_STATE_LOSS=refused()[-1])
    stage.forgive()
    stage.wait("live to begin anew", lambda: rebuilt() > before)
    stage.wait("live to be healthy", lambda: stage.healthy("live"))
    return rebuilt() - before


def _between_batches(stage: Stage, name: str, act: Callable[[Family], object]) -> bool:
    """Freeze live where the last batch of a pipeline was committed and the next one is not planned, and `act`. False if the moment did not come."""
    positions = stage.positions
    checkpoint = positions.state_checkpoint(name)
    commits, offsets = f"{checkpoint}/commits/", f"{checkpoint}/offsets/"

    def is_whole(family: Family) -> bool:
        last = positions.newest(commits)
        return last == positions.newest(offsets) and {*positions.states(name).values()} == {last + 1}

    return meet(stage, "live", lambda: positions.newest(commits), is_whole, act)


def _between_partitions(name: str, stage: Stage, victims: str) -> bool:
    def states() -> list[int]:
        return [*stage.positions.states(name).values()]

    return strike(stage, "live", states, lambda: len({*states()}) > 1, victims)


def _before_its_commit(name: str, stage: Stage, victims: str) -> bool:
    positions = stage.positions
    commits = f"{positions.state_checkpoint(name)}/commits/"

    def states() -> set[int]:
        return {*positions.states(name).values()}

    def is_behind() -> bool:
        with suppress(HeadraceError):
            return states() == {positions.newest(commits) + 2}
        return False

    return strike(stage, "live", states, is_behind, victims)


def _in_a_transaction(name: str, stage: Stage, victims: str) -> bool:
    positions, target = stage.positions, load(name).target
    return strike(
        stage, "live", lambda: positions.open_records(target) > 0, lambda: stays_open(positions, target), victims
    )


def _fence(stage: Stage, name: str) -> None:
    """Another producer of the same name, for the first of a pipeline's state partitions that have a transaction open."""
    kafka, pipeline = stage.stack.settings().kafka.client_config(), load(name)
    state = state_route(route(pipeline, load_catalog()))
    for partition, records in stage.positions.open_in(pipeline.target).items():
        if records:
            close_producer(transactional_producer(kafka, state, partition))
            return
