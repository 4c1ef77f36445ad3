"""What a soak makes of its looks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.bench.measuring.mentions import Mentions
from tests.bench.soak import Look, Soak, stored_files

_SOAK = Soak(1000, 90.0, 0.0, [], 0, 0)


def test_the_thirds_are_medians_and_the_first_one_is_left_out() -> None:
    looks = [(float(at), {"MB of live": float(at)}) for at in range(0, 90, 10)]
    assert replace(_SOAK, looks=looks).thirds("MB of live") == (40.0, 70.0)


def test_what_is_seen_in_one_third_only_is_nothing_in_the_other() -> None:
    looks: list[tuple[float, Look]] = [(40.0, {}), (70.0, {"stored files of uploads": 2.0})]
    assert replace(_SOAK, looks=looks).thirds("stored files of uploads") == (0.0, 2.0)


def test_stored_files_are_counted_by_what_they_are(tmp_path: Path) -> None:
    bucket = "s3/data/headrace"
    for name in (
        "kafka/data/depots.observed.v1-0/0.log",
        f"{bucket}/lake/alerts_raised/_delta_log/0.json",
        f"{bucket}/lake/alerts_raised/origin=EST/0.parquet",
        f"{bucket}/lake/alerts_raised/origin=NTH/0.parquet",
        f"{bucket}/checkpoints/live/offsets/0",
        f"{bucket}/.mpus-1/0",
        "env",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert {name: count for name, count in stored_files(tmp_path).items() if count} == {
        "kafka": 1,
        "lake/alerts_raised": 2,
        "lake/alerts_raised/log": 1,
        "checkpoints": 1,
        "uploads": 1,
        "folder": 1,
    }


def test_what_a_log_says_is_counted_once_though_it_grows_in_the_midst_of_a_line_and_is_cut(tmp_path: Path) -> None:
    log = tmp_path / "any.log"
    mentions = Mentions(log, "changed over")
    assert mentions.count() == 0
    log.write_text("begun\nchanged over\nchan")
    assert mentions.count() == mentions.count() == 1
    with log.open("a") as growing:
        growing.write("ged over\n")
    assert mentions.count() == 2
    with log.open("a") as growing:
        growing.write("changed over\n")
    log.rename(tmp_path / "any.log.1")
    log.write_text("changed over\n")
    assert mentions.count() == 4


@pytest.mark.system
def test_one_that_is_asked_to_stop_stops_what_it_has_started(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).parent / "headrace"), "bench", "soak", "--seconds", "90"]
    bench = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)
    started: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + 240
        while len([each for each in started if each.info["name"] == "java"]) < 3:
            assert time.monotonic() < deadline, "waited 240 s for broker, registry and S3"
            time.sleep(0.3)
            children = {each.pid for each in psutil.Process(bench.pid).children(recursive=True)}
            started = [each for each in psutil.process_iter(["name"]) if each.pid in children]
        bench.terminate()
        assert bench.wait(200) == 128 + signal.SIGTERM
        assert not [each for each in started if each.is_running()]
        assert not list(tmp_path.iterdir())
    finally:
        if bench.poll() is None:
            bench.terminate()
            bench.wait(200)
        for each in started:
            if each.is_running():
                each.kill()
        bench.kill()
