"""Strikes a process at a chosen moment, found by watching from outside: no stop point stands in the code that is struck."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from contracts.errors import HeadraceError
from tests.faults.fault import Shown
from tests.faults.stage.load import TABLE
from tests.faults.stage.positions import Positions
from tests.faults.stage.stage import Stage

_TRIES_SECONDS = 120.0
_LOOK_SECONDS = 0.002
_COMMIT_SECONDS = 0.2
"""Longer than a broker takes to end a transaction, also on a busy machine."""

VICTIMS = ("all", "driver", "jvm", "workers")
"""What of a Spark deployable is killed: all that it has started, the Python process, the JVM or Spark's Python workers alone."""

_LONG = 1_000
"""Records of an open transaction: more than one message from Spark to a worker holds."""

Sign = Callable[[], object]
"""A state that is asked for again and again; the moment may have come when it changes."""


def strike(stage: Stage, name: str, sign: Sign, holds: Callable[[], bool], victims: str) -> bool:
    """Freeze a process each time that `sign` changes; if `holds` then, kill it, else let it go on and wait again.

    `victims`: one of `VICTIMS`. The others go on, as on a host where one process of several was killed. False if the moment did not come.
    """
    # Looking this often takes half the machine: not while it starts.
    stage.wait(f"{name} to be healthy", lambda: stage.healthy(name))
    until = time.monotonic() + _TRIES_SECONDS
    family, before = stage.family(name), sign()
    while time.monotonic() < until:
        if (now := sign()) == before:
            time.sleep(_LOOK_SECONDS)
            continue
        before = now
        with stage.frozen(name, family) as family:
            if _chosen(family, victims) and holds():
                return kill_of(family, victims) > 0
    return False


def kill_of(family: Sequence[psutil.Process], victims: str) -> int:
    """kill -9 of the `victims` in a family as `Stage.family` gives it; how many these were."""
    chosen = _chosen(family, victims)
    for each in chosen:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    return len(chosen)


def in_a_long_batch(
    stage: Stage, chance: random.Random, act: Callable[[], object], *, sleepers: Sequence[psutil.Process] = ()
) -> bool:
    """`act` somewhere in a batch of tens of thousands; whether a transaction of more than one Arrow message was open then.

    The backlog comes while `live` starts anew, or while the `sleepers`, if there are any, are stopped (SIGSTOP).
    """
    if not sleepers:
        stage.forgive()
        stage.kill("live")
    for each in sleepers:
        each.suspend()
    stage.burst()
    for each in sleepers:
        with suppress(psutil.NoSuchProcess):
            each.resume()
    until = time.monotonic() + _TRIES_SECONDS
    while stage.positions.open_records() < _LONG and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    time.sleep(chance.uniform(0, 1))
    was_open = stage.positions.open_records() >= _LONG
    act()
    return was_open


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

    def is_open() -> bool:
        return stage.positions.open_records() > 0

    def stays_open() -> bool:
        """A commit that was sent before the freeze comes to its end meanwhile."""
        time.sleep(_COMMIT_SECONDS)
        return is_open()

    return strike(stage, "live", is_open, stays_open, victims)


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


def _chosen(family: Sequence[psutil.Process], victims: str) -> list[psutil.Process]:
    return [each for each in family if victims == "all" or _is(each, victims, family[-1])]


def _is(process: psutil.Process, victims: str, driver: psutil.Process) -> bool:
    if victims == "driver":
        return process == driver
    with suppress(psutil.NoSuchProcess):
        if victims == "jvm":
            return process.name() == "java"
        # Spark's daemon forks its workers.
        parent = process.parent()
        return parent is not None and all("spark.runtime.python_daemon" in each.cmdline() for each in (process, parent))
    return False
