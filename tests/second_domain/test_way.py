"""The fork on a real stack: `headrace up`, until both pipelines have written and a rule has raised alerts, then `audit`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local.servers.ports import Ports
from tests.deploy.clone import Clone

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

ENRICHED, ELECTRIC, ALERTS = "hires.ended.enriched.v1", "hires.started.electric.v1", "alerts.raised.v1"
_HEADRACE = "from deploy.cli import main; main()"
_SECONDS = 300.0


class Up:
    """`headrace up` of the fork, in a folder of its own."""

    def __init__(self, forked: Clone, folder: Path) -> None:
        self._forked, self._folder, self._log = forked, folder / "stack", folder / "up.log"
        command = [sys.executable, "-c", _HEADRACE, "up", *self._dir, "--port-offset", str(Ports.free_offset())]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, cwd=forked.root, env=forked.env(None), stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def _dir(self) -> list[str]:
        return ["--dir", str(self._folder)]

    def stop(self) -> None:
        self._process.terminate()
        try:
            assert self._process.wait(240) == 0, self._log.read_text()
        finally:
            self._forked.headrace("down", *self._dir)

    def wait_for_records_of(self, *topics: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while min(self._events().get(topic, 0) for topic in topics) < 20:
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"waited {_SECONDS} s for 20 records of each of {', '.join(topics)}"
            # Each look is a process of its own, and takes from what is waited for.
            time.sleep(5)

    def _events(self) -> dict[str, int]:
        done = self._forked.run("-c", _HEADRACE, "status", "--json", *self._dir)
        return {topic["name"]: topic["events"] for topic in json.loads(done.stdout or "{}").get("topics", ())}

    def audit(self) -> dict[str, int]:
        """How many records were compared at each hop. `headrace` raises AssertionError unless the audit is clean."""
        report = json.loads(self._forked.headrace("audit", "--json", *self._dir))
        records = dict.fromkeys((each["hop"] for each in report["partitions"]), 0)
        for each in report["partitions"]:
            records[each["hop"]] += each["records"]
        return records

    def events(self, topic: str) -> list[dict[str, Any]]:
        """The first hundred of a topic, or fewer."""
        options = ("--from", "earliest", "--no-follow", "--json", "-n", "100", *self._dir)
        return [json.loads(line)["event"] for line in self._forked.headrace("tail", topic, *options).splitlines()]


@pytest.fixture
def up(forked: Clone, tmp_path: Path) -> Iterator[Up]:
    started = Up(forked, tmp_path)
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.long
def test_hires_are_enriched_filtered_stored_and_alerted_about(up: Up) -> None:
    up.wait_for_records_of(ENRICHED, ELECTRIC, ALERTS)

    audited = up.audit()

    hops = {
        f"hires.ended.v1 → {ENRICHED}",
        f"hires.started.v1 → {ELECTRIC}",
        f"{ENRICHED} → lake",
        f"{ENRICHED} → alerts",
    }
    assert {hop for hop in hops if audited[hop] >= 20} == hops
    hires = up.events(ENRICHED)
    names = {"S-0": "Old Harbour", "S-1": "Station Square", "S-2": "Mill Lane", "S-3": None}
    assert {hire["station_id"] for hire in hires} == names.keys()
    for hire in hires:
        assert hire["station_name"] == names[hire["station_id"]]
        assert hire["charge_cents"] == -(-hire["duration_minutes"] // 30) * 20
    assert {(alert["rule"], alert["topic"]) for alert in up.events(ALERTS)} == {("hire_very_long", ENRICHED)}
