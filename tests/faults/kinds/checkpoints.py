"""Checkpoints that are damaged, lost or old. Each is touched while its process is frozen, which then is killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from spark.runtime.mode import Mode
from tests.faults.fault import Shown, fault
from tests.faults.moments import until_it_works
from tests.faults.stage.positions import Positions
from tests.faults.stage.stage import Stage

_LAKE = "checkpoints/lake"
_SECONDS = 120.0


@fault("The last commit file of live's checkpoint is deleted, and live killed.", only=Mode.EXACTLY_ONCE)
def live_checkpoint_commit_deleted(stage: Stage, chance: random.Random) -> Shown:
    def damage(positions: Positions) -> int:
        folder = f"{positions.live_checkpoint()}/commits/"
        positions.remove(f"{folder}{positions.newest(folder)}")
        return 1

    return _damaged(stage, chance, "live", damage, "commit file deleted")


@fault("live's checkpoint is wiped, and live killed.", only=Mode.EXACTLY_ONCE)
def live_checkpoint_wiped(stage: Stage, chance: random.Random) -> Shown:
    return _damaged(
        stage, chance, "live", lambda positions: wipe(positions, positions.live_checkpoint()), "files deleted"
    )


@fault("The newest files of live's checkpoint are cut to half, and live killed.", only=Mode.EXACTLY_ONCE)
def live_checkpoint_truncated(stage: Stage, chance: random.Random) -> Shown:
    def damage(positions: Positions) -> int:
        folders = [f"{positions.live_checkpoint()}/{each}" for each in ("commits", "offsets")]
        for folder in folders:
            _cut(positions, f"{folder}/{positions.newest(f'{folder}/')}")
        return len(folders)

    return _damaged(stage, chance, "live", damage, "files cut to half")


@fault("live's checkpoint is set back to what it was some batches ago, and live killed.", only=Mode.EXACTLY_ONCE)
def live_checkpoint_old(stage: Stage, chance: random.Random) -> Shown:
    def damage(positions: Positions) -> int:
        back, checkpoint = chance.randint(2, 8), positions.live_checkpoint()
        for folder in ("commits", "offsets"):
            newest = positions.newest(f"{checkpoint}/{folder}/")
            for number in range(newest - back + 1, newest + 1):
                positions.remove(f"{checkpoint}/{folder}/{number}")
        return back

    return _damaged(stage, chance, "live", damage, "batches forgotten")


@fault("live's checkpoint is wiped while live runs, and live goes on with it.", only=Mode.EXACTLY_ONCE)
def live_checkpoint_wiped_running(stage: Stage, chance: random.Random) -> Shown:
    until_it_works(stage, "live")
    wiped = wipe(stage.positions, stage.positions.live_checkpoint())
    time.sleep(chance.uniform(3, 6))
    return Shown(wiped, "files deleted")


@fault("The lake's checkpoints are wiped, and lake killed.")
def lake_checkpoints_wiped(stage: Stage, chance: random.Random) -> Shown:
    return _damaged(stage, chance, "lake", lambda positions: wipe(positions, _LAKE), "files deleted")


@fault("The newest files of the lake's checkpoints are cut to half, and lake killed.")
def lake_checkpoints_truncated(stage: Stage, chance: random.Random) -> Shown:
    def names() -> list[str]:
        return [name for name in stage.positions.names(f"{_LAKE}/") if name.rpartition("/")[2].isdigit()]

    def damage(positions: Positions) -> int:
        newest: dict[str, int] = {}
        for name in names():
            folder, _, number = name.rpartition("/")
            newest[folder] = max(newest.get(folder, 0), int(number))
        for folder, last in newest.items():
            _cut(positions, f"{_LAKE}/{folder}/{last}")
        return len(newest)

    # The fault before may have wiped them just now.
    stage.wait("lake to have a checkpoint", lambda: bool(names()), _SECONDS)
    return _damaged(stage, chance, "lake", damage, "files cut to half")


def _damaged(stage: Stage, chance: random.Random, name: str, damage: Callable[[Positions], int], what: str) -> Shown:
    until_it_works(stage, name)
    time.sleep(chance.uniform(0, 1))
    before = stage.process(name)
    with stage.frozen(name) as family:
        times = damage(stage.positions)
        for each in family:
            each.kill()
    stage.wait_for_another(name, before)
    return Shown(times, what)


def _cut(positions: Positions, key: str) -> None:
    content = positions.read(key)
    positions.write(key, content[: len(content) // 2])


def wipe(positions: Positions, checkpoint: str) -> int:
    """Delete a checkpoint; how many files that were."""
    names = positions.names(f"{checkpoint}/")
    for name in names:
        positions.remove(f"{checkpoint}/{name}")
    return len(names)
