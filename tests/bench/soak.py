"""`headrace bench soak`: all that `headrace up` starts, under evenly paced load for a long time: does anything grow?

Beside the replay of `up`, events are sent at a rate. Every half minute it is noted how far behind each reader is, how much memory
each process has, and how many files there are in each place. What these are in the last third of the time
stands beside the second one (the first is for caches to fill and code to be compiled); what is bounded is about the same in both, or
falls again in between. Files of the lake are those of its newest version, which grow with the rows, and all that are stored: what was
compacted stays for as long as a table's history. At the end the lake must have a row for each event, counted.

With `--version-every` a dimension gets new versions meanwhile. Each look notes the newest, and how often `live` has changed over to a query
with newer ones, and once for practice, as it does in real-time mode (`HEADRACE_LIVE__MODE=real-time`); else it takes them over from batch to batch, and this is 0.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from dotenv import dotenv_values

from deploy.local.folder import Folder
from deploy.local.processes.deployable import ROOT
from deploy.local.processes.process import Process
from deploy.local.servers.ports import Ports
from tests.bench.load import pace
from tests.bench.load.dimension_version import newest_version, upload_version
from tests.bench.load.filled import settings_of
from tests.bench.load.records import DIMENSION, ENRICHED, RAW, RAW_TABLE, SERVICE, TABLE
from tests.bench.measuring.hop import sent_to, table_size, taken_in
from tests.bench.measuring.mentions import Mentions
from tests.bench.measuring.results import as_line, conditions, save

EVERY_SECONDS = 30.0
_START_SECONDS = 600.0
_CATCH_UP_SECONDS = 180.0
_STOP_SECONDS = 180.0

_READERS = ("live", "lake", "alerting")

Look = dict[str, float]
"""What was seen at one moment, by name: `lag of live`, `MB of lake`, `stored files of kafka`."""


@dataclass(frozen=True, slots=True)
class Soak:
    """`version_every`: seconds from one new version of a dimension to the next; 0: none. `looks`: (seconds since the load began, what
    was seen). At the end: `sent` events, those of the replay with them, `landed` enriched rows in the lake.
    """

    rate: int
    seconds: float
    version_every: float
    looks: list[tuple[float, Look]]
    sent: int
    landed: int

    def thirds(self, name: str) -> tuple[float, float]:
        """Medians of the second and the last third; what was never seen in one of them is 0 there."""
        ends = (self.seconds / 3, self.seconds * 2 / 3, float("inf"))
        parts = [
            [look[name] for at, look in self.looks if begin <= at < end and name in look]
            for begin, end in itertools.pairwise(ends)
        ]
        second, last = (statistics.median(part) if part else 0.0 for part in parts)
        return second, last


def run(rate: int, seconds: float, say: Callable[[str], None], version_every: float = 0.0) -> Soak:
    """Start everything, load it, look at it, stop it. A dimension gets a new version every so many seconds; 0: none.

    Raises ProcessFailed if `up` or the load fails, TimeoutError if the lake doesn't catch up with the load's end.
    """
    with TemporaryDirectory(prefix="headrace-bench-") as name:
        directory, offset = Path(name), Ports.free_offset()
        up = Process(
            "up",
            [str(ROOT / "headrace"), "up", "--dir", str(directory), "--port-offset", str(offset)],
            directory=directory / "bench",
        )
        up.start()
        try:
            up.wait_until(
                lambda: "the first new alert is there" in up.log.read_text(),
                what="everything ran",
                timeout_seconds=_START_SECONDS,
            )
            return _loaded(rate, seconds, directory, up, say, version_every)
        finally:
            up.stop(grace_seconds=_STOP_SECONDS)


def report(soak: Soak, say: Callable[[str], None]) -> None:
    """Print the figures, and write them with every look to a file."""
    found = conditions("pyspark", "delta-spark", "deltalake", "faust-streaming", "confluent-kafka")
    say(as_line(found))
    say(f"{soak.rate:,} events/s for {soak.seconds:.0f} s; second third, last third, highest:")
    for name in sorted({name for _, look in soak.looks for name in look}):
        second, last = soak.thirds(name)
        highest = max(look.get(name, 0.0) for _, look in soak.looks)
        say(f"  {name:<52} {second:>10,.0f} {last:>10,.0f} {highest:>10,.0f}")
    say(f"events sent {soak.sent:,}, enriched rows in the lake {soak.landed:,}")
    save("soak", {"conditions": found, **asdict(soak)}, say)


def _loaded(
    rate: int, seconds: float, directory: Path, up: Process, say: Callable[[str], None], version_every: float
) -> Soak:
    # Not what this process has in its environment: its load is for this stack alone.
    env = {name: value or "" for name, value in dotenv_values(directory / "env").items()}
    watch = _Watch(Folder(directory), env)
    looks: list[tuple[float, Look]] = []
    say(f"{rate:,} events/s for {seconds:.0f} s beside the replay of up")
    began = version_at = time.monotonic()
    with pace.start(RAW, rate, seconds, env) as load:
        while not _ended(load, EVERY_SECONDS):
            up.check_running()
            looks.append((time.monotonic() - began, watch.look()))
            say(_line(*looks[-1]))
            if version_every and time.monotonic() >= version_at:
                version_at += version_every
                upload_version(settings_of(env).s3, version_at)
    deadline = time.monotonic() + _CATCH_UP_SECONDS
    while not watch.replay_ended() or (landed := watch.landed()) < (sent := watch.sent()):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the lake lacks rows {_CATCH_UP_SECONDS:.0f} s after the load; up said: {up.last_log_lines()}"
            )
        time.sleep(1)
    return Soak(rate, seconds, version_every, looks, sent, landed)


def _ended(process: subprocess.Popen[bytes], within_seconds: float) -> bool:
    try:
        process.wait(within_seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _line(at: float, look: Look) -> str:
    lag = ", ".join(f"{name} {look[f'lag of {name}']:,.0f}" for name in _READERS)
    megabytes, files = (
        sum(seen for name, seen in look.items() if name.startswith(kind)) for kind in ("MB of ", "stored files of ")
    )
    return f"{at:5.0f} s  lag in records: {lag}; {megabytes:,.0f} MB resident, {files:,.0f} files"


class _Watch:
    """Looks at a running `up` from outside."""

    def __init__(self, folder: Folder, env: dict[str, str]) -> None:
        self._folder = folder
        self._settings = settings_of(env)
        self._taken_by_live = taken_in(self._settings)
        self._taken_by_alerting = taken_in(self._settings, ENRICHED, "alerting")
        self._enriched = sent_to(self._settings, ENRICHED)
        self._changeovers = Mentions(folder.path / "logs" / "live.log", "changed over")
        self.sent = sent_to(self._settings)
        """How many events there are."""
        self.landed = table_size(self._settings.s3, TABLE)
        """How many enriched ones are in the lake."""

    def look(self) -> Look:
        """Lag in records, memory in MB, files, how often a process was started again, the dimension's version, and changeovers until now."""
        _, processes = self._folder.read_state() or (None, [])
        sent = self.sent()
        look: Look = {
            "lag of live": sent - self._taken_by_live(),
            "lag of lake": sent - self.landed(),
            "lag of alerting": self._enriched() - self._taken_by_alerting(),
        }
        look |= {f"MB of {each['name']}": each["resident_mb"] for each in processes}
        look |= {f"stored files of {name}": count for name, count in stored_files(self._folder.path).items()}
        look |= {f"newest version's files of {table}": count for table, count in self._in_use().items()}
        look["restarts"] = sum(each["restarts"] for each in processes)
        look[f"version of {DIMENSION}"] = newest_version(self._settings.s3)
        look["changeovers of live"] = self._changeovers.count()
        return look

    def replay_ended(self) -> bool:
        """Ask the replaying service of the same events to end; whether it has."""
        _, processes = self._folder.read_state() or (None, [])
        (service,) = (each for each in processes if each["name"] == SERVICE)
        if service["state"] == "running":
            with suppress(ProcessLookupError):  # it may have ended since
                os.kill(service["pid"], signal.SIGTERM)
        return bool(service["state"] == "finished")

    def _in_use(self) -> dict[str, int]:
        s3 = self._settings.s3
        return {
            table: len(DeltaTable(f"s3://{s3.bucket}/lake/{table}", storage_options=s3.delta_options()).file_uris())
            for table in (RAW_TABLE, TABLE, "alerts_raised")
        }


def stored_files(directory: Path) -> Counter[str]:
    """How many files there are in each place: the broker's, the bucket's by prefix, the lake's by table and log, the others."""
    found: Counter[str] = Counter()
    for folder, _, names in os.walk(directory):
        parts = Path(folder).relative_to(directory).parts
        if parts[:4] == ("s3", "data", "headrace", "lake"):
            place = "/".join(("lake", *parts[4:5], *(("log",) if "_delta_log" in parts else ())))
        elif parts[:3] == ("s3", "data", "headrace"):
            place = "/".join(parts[3:4]) or "bucket"
            place = "uploads" if place.startswith(".") else place
        else:
            place = "/".join(parts[:1]) or "folder"
        found[place] += len(names)
    return found
