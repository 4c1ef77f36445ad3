"""Strikes a process at a chosen moment, found by watching from outside: no stop point stands in the code that is struck."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from contracts.errors import HeadraceError
from tests.faults.fault import Shown
from tests.faults.stage.cast import PIPELINE
from tests.faults.stage.load import TABLE
from tests.faults.stage.positions import SOURCE, TARGET, Positions
from tests.faults.stage.stage import Stage, family_of, frozen

_TRIES_SECONDS = 180.0
_BACKLOG_SECONDS = 300.0
_LOOK_SECONDS, _LOOK_IDLY_SECONDS = 0.002, 0.05
_COMMIT_SECONDS = 0.2
"""Longer than a broker takes to end a transaction, also on a busy machine."""

VICTIMS = ("all", "driver", "jvm", "workers")
"""What of a Spark deployable is killed: all that it has started, the Python process, the JVM or Spark's Python workers alone."""

_LONG, _LONGEST = 1_000, 5_000
"""Records of an open transaction: more than one message from Spark to a worker holds, and what a backlog surely brings."""

Family = Sequence[psutil.Process]
"""A process and all that it has started, the youngest first."""
Sign = Callable[[], object]
"""A state that is asked for again and again; the moment may have come when it changes."""


def meet(stage: Stage, name: str, sign: Sign, holds: Callable[[Family], bool], act: Callable[[Family], object]) -> bool:
    """Freeze a process each time that `sign` changes; if `holds` then, `act`, else let it go on and wait again. False if the moment did not come."""
    # Looking this often takes half the machine: not while it starts.
    stage.wait_until_healthy(name)
    until = time.monotonic() + _TRIES_SECONDS
    family, before = stage.family(name), sign()
    while time.monotonic() < until:
        if (now := sign()) == before:
            time.sleep(_LOOK_SECONDS)
            continue
        before = now
        with stage.frozen(name, family) as family:
            if holds(family):
                act(family)
                return True
    return False


def strike(stage: Stage, name: str, sign: Sign, holds: Callable[[], bool], victims: str) -> bool:
    """Kill a process when `holds`, as `meet` finds it.

    `victims`: one of `VICTIMS`. The others go on, as on a host where one process of several was killed.
    """
    return meet(
        stage,
        name,
        sign,
        lambda family: bool(_chosen(family, victims)) and holds(),
        lambda family: kill_of(family, victims),
    )


def kill_of(family: Family, victims: str) -> int:
    """kill -9 of the `victims` in a family as `Stage.family` gives it; how many these were."""
    chosen = _chosen(family, victims)
    for each in chosen:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    return len(chosen)


def in_a_long_batch(
    stage: Stage,
    chance: random.Random,
    act: Callable[[Family], bool],
    *,
    other: psutil.Process | None = None,
) -> bool:
    """`act` on `live`, or on the `other` that runs in its place, somewhere in a batch of tens of thousands; False if no long batch was met, or only
    such in which `act` found nothing to act on, and said False.

    The backlog comes while `live` starts anew, or while the other one is stopped (SIGSTOP). `act` gets the process with all that it has
    started, stopped with a transaction of more than one Arrow message open; they go on afterwards.
    """

    def look() -> Family:
        return stage.family("live") if other is None else family_of(other)

    positions = stage.positions
    if other is None:
        stage.forgive()
        stage.kill("live")
        stage.burst()
    else:
        with frozen(look):
            stage.burst()
    backlog, until = positions.broker.ends(SOURCE), time.monotonic() + _BACKLOG_SECONDS
    wanted, family = chance.randint(_LONG, _LONGEST), look()
    # The transaction of one that was killed before stays open until its successor fences it.
    is_its_own = False
    while time.monotonic() < until:
        opened = positions.open_records()
        is_its_own |= opened < _LONG
        if opened < wanted or not is_its_own:
            if not opened and positions.reached(backlog, PIPELINE, SOURCE):
                return False
            # Looking often takes half the machine: not while it starts.
            time.sleep(_LOOK_SECONDS if opened and is_its_own else _LOOK_IDLY_SECONDS)
            continue
        with frozen(look, family) as family:
            # A commit that was sent before comes to its end meanwhile.
            time.sleep(_COMMIT_SECONDS)
            if positions.open_records() >= _LONG and act(family):
                return True
    return False


def until_it_works(stage: Stage, name: str) -> None:
    """Until `live` or `lake` commits something, after it was started again perhaps."""
    positions = stage.positions
    looks: dict[str, Sign] = {"live": positions.taken, "lake": positions.version}
    look = looks[name]
    before = look()
    stage.wait(f"{name} to commit something", lambda: look() != before)


def strike_often(
    stage: Stage,
    chance: random.Random,
    name: str,
    once: Callable[[Stage, str], bool],
    what: str,
    victims: Sequence[str] = ("all", "driver", "jvm"),
) -> Shown:
    """`once`, as often as the stage's faults strike, each time with other victims; shown by how often the moment was met."""
    met = 0
    for _ in range(stage.strikes):
        stage.forgive()
        before = stage.process(name)
        if once(stage, chance.choice(victims)):
            met += 1
            stage.wait_for_another(name, before)
    return Shown(met, what)


def in_a_transaction(stage: Stage, victims: str) -> bool:
    """`live`, while a Kafka transaction of it is open."""
    positions = stage.positions
    return strike(stage, "live", lambda: positions.open_records() > 0, lambda: stays_open(positions, TARGET), victims)


def stays_open(positions: Positions, topic: str) -> bool:
    """Whether a transaction is open of a process that is frozen: a commit that was sent before comes to its end meanwhile."""
    time.sleep(_COMMIT_SECONDS)
    return positions.open_records(topic) > 0


def between_its_commits(stage: Stage, victims: str) -> bool:
    """`live`, when a transaction has moved the group's offset and Spark's checkpoint does not know yet."""
    positions = stage.positions
    return strike(stage, "live", positions.taken, lambda: _is_behind(positions, positions.live_checkpoint()), victims)


def after_it_commits_an_interval(stage: Stage, victims: str) -> bool:
    """`live` in real-time mode, when it has moved the group's offsets."""
    return strike(stage, "live", stage.positions.taken, lambda: True, victims)


def before_the_lake_commits(stage: Stage, victims: str) -> bool:
    """`lake`, when it has written files and not committed them."""
    positions = stage.positions
    version = [positions.version()]

    def files() -> int:
        # Of before the listing: a commit that comes while it runs is seen by `holds`.
        version[0] = positions.version()
        return len(positions.data_files())

    return strike(stage, "lake", files, lambda: positions.version() == version[0], victims)


def after_the_lake_commits(stage: Stage, victims: str) -> bool:
    """`lake`, when it has committed a version and its checkpoint does not know yet."""
    positions = stage.positions
    folder = f"checkpoints/lake/{TABLE}"
    return strike(
        stage, "lake", positions.version, lambda: _is_behind(positions, positions.checkpoint(folder)), victims
    )


def _is_behind(positions: Positions, checkpoint: str) -> bool:
    """Whether a batch is planned that is not done."""
    with suppress(HeadraceError):
        return positions.newest(f"{checkpoint}/offsets/") > positions.newest(f"{checkpoint}/commits/")
    return False


def _chosen(family: Family, victims: str) -> list[psutil.Process]:
    return [each for each in family if victims == "all" or _is(each, victims, family[-1])]


def _is(process: psutil.Process, victims: str, driver: psutil.Process) -> bool:
    if victims == "driver":
        return process == driver
    with suppress(psutil.NoSuchProcess):
        if victims == "jvm":
            return process.name() == "java"
        # Spark's daemon forks its workers.
        parent = process.parent()
        return parent is not None and all(
            "spark.runtime.workers.python_daemon" in each.cmdline() for each in (process, parent)
        )
    return False
