"""The main job as a user runs it: `headrace up`, stopped, killed and taken up again, then compared with the oracle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contracts.definitions.catalog import CONTRACTS
from contracts.settings import Settings
from deploy.local.folder import Folder
from deploy.local.once import look
from deploy.local.servers.ports import Ports
from tests.system.oracle import enriched_flights
from tests.system.verify import verify

UNTIL = datetime(2013, 1, 2, 5, tzinfo=UTC)
"""The end of the replay (event time): a day and a night, on which 800 flights depart."""
NOON = datetime(2013, 1, 1, 17, tzinfo=UTC)
"""Of the same day, in New York: 300 have departed."""
_LOOK_SECONDS = 2.0


class Up:
    """One `headrace up` in a folder, in the background."""

    def __init__(self, directory: Path, offset: int) -> None:
        self.directory = directory
        self._offset = offset
        self._process: subprocess.Popen[bytes] | None = None
        self.log = directory.parent / "up.log"
        self.until = UNTIL

    def start(self) -> None:
        arguments = ["up", "--until", self.until.isoformat(), "--speed", "2500", "--port-offset", str(self._offset)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*_HEADRACE, *arguments, "--dir", str(self.directory)], stdout=log, stderr=subprocess.STDOUT
            )

    def status(self) -> dict[str, Any]:
        """What `headrace status --json` prints."""
        done = subprocess.run(
            [*_HEADRACE, "status", "--json", "--dir", str(self.directory)], capture_output=True, check=False
        )
        answer = json.loads(done.stdout)
        assert isinstance(answer, dict)
        return answer

    def wait(self, what: str, condition: Callable[[dict[str, Any]], bool], seconds: float = 600) -> dict[str, Any]:
        """Until the state is so; the command would take a process of its own for each look, and so from what is waited for."""
        deadline = time.monotonic() + seconds
        while True:
            assert self._process is not None
            assert self._process.poll() is None, f"up ended while waiting for {what}:\n{self.log.read_text()}"
            snapshot = look(Folder(self.directory))
            status = {} if snapshot is None else snapshot.json()
            if status and condition(status):
                return status
            assert time.monotonic() < deadline, f"waited {seconds} s for {what}:\n{status}\n{self.log.read_text()}"
            time.sleep(_LOOK_SECONDS)

    def end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(180)

    def audit(self, *options: str) -> dict[str, Any]:
        """`headrace audit` of the running stack, which must find nothing wrong."""
        done = subprocess.run(
            [*_HEADRACE, "audit", "--json", "--dir", str(self.directory), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert isinstance(report, dict)
        return report

    def run(self, *arguments: str) -> str:
        """What a command of `headrace` prints about the running stack."""
        command = [*_HEADRACE, *arguments, "--dir", str(self.directory)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def down(self) -> None:
        """Whatever state the test has left it in."""
        subprocess.run([*_HEADRACE, "down", "--dir", str(self.directory)], check=True, stdout=subprocess.DEVNULL)

    def settings(self) -> Settings:
        """The settings of the stack in the folder, as `up` wrote them for a user's own clients."""
        return Settings(_env_file=self.directory / "env")  # type: ignore[call-arg]  # of pydantic-settings


_HEADRACE = [str(Path(sys.executable).with_name("headrace"))]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "stack", Ports.free_offset())
    yield running
    running.down()


def _events(status: dict[str, Any], topic: str) -> int:
    return next((int(each["events"]) for each in status["topics"] if each["name"] == topic), 0)


def _pids(status: dict[str, Any]) -> set[int]:
    """Of what never ends by itself; of something that isn't there, the one that no process has."""
    pids = {each["name"]: each["pid"] for each in status["processes"]}
    return {pids.get(name) or 0 for name in ("kafka", "live", "lake", "alerting")}


def _process(status: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in status["processes"] if each["name"] == name)


def _finished(status: dict[str, Any]) -> bool:
    states = {each["name"]: each["state"] for each in status["processes"]}
    flights = _events(status, "flights.departed.v1")
    return (
        all(states.get(name) == "finished" for name in ("departures", "arrivals", "weather"))
        and 0 < flights == _events(status, "flights.departed.enriched.v1")
        and sum(status["lag"].values()) == 0
        and status["lake_rows"].get("flights_departed_enriched") == flights
    )


@pytest.mark.system
@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_flight_of_a_day_is_enriched_landed_and_watched_once_across_a_stop_and_kills(up: Up) -> None:
    up.start()
    up.wait("the first hundred enriched flights", lambda now: _events(now, "flights.departed.enriched.v1") > 100)
    assert up.end(signal.SIGINT) == 0
    assert up.status() == {"running": False}
    _kill_and_compare(up)


@pytest.mark.system
@pytest.mark.timeout(1800)
def test_every_flight_of_a_morning_is_enriched_landed_and_watched_once_across_kills(up: Up) -> None:
    up.until = NOON
    _kill_and_compare(up)


def _kill_and_compare(up: Up) -> None:
    up.start()
    killed = _pids(up.wait("the first rows in the lake", lambda now: sum(now["lake_rows"].values()) > 0))
    up.end(signal.SIGKILL)

    up.start()  # stops what the killed one left
    up.wait("others in the place of all that were killed", lambda now: _pids(now).isdisjoint({0, *killed}))
    flowing = up.audit("--wait", "180")
    os.kill(_process(up.status(), "alerting")["pid"], signal.SIGKILL)
    up.wait("alerting to be started again", lambda now: _process(now, "alerting")["restarts"] == 1)
    assert "alerting died with signal SIGKILL" in up.log.read_text()
    status = up.wait("the end of the replay", _finished)
    assert verify(up.settings(), up.until)["enriched"] == len(enriched_flights(up.until)) > 100
    assert up.audit()["since"] == flowing["cut_at"]
    assert up.audit("--full")["since"] is None
    assert {each["name"] for each in status["processes"] if each["restarts"]} == {"alerting"}
    assert _finished(up.status())
    _look_with_the_tools(up)
    assert up.end(signal.SIGINT) == 0


def _look_with_the_tools(up: Up) -> None:
    runs = {
        each["name"]: (each["holder"] is not None, each["lag"]) for each in json.loads(up.run("pipelines", "--json"))
    }
    assert runs["departures_enriched"] == (True, 0)
    assert not runs["arrivals_enriched"][0]
    event = json.loads((CONTRACTS / "examples" / "flights.departed.v1" / "left_late.json").read_text())
    file = up.directory / "event.json"
    file.write_text(json.dumps(event | {"flight_id": "sent-by-hand", "departure_delay_minutes": 600}))
    assert "1 events published to flights.departed.v1 as departures" in up.run("send", "flights.departed.v1", str(file))
    where = ("--where", "flight_id == 'sent-by-hand'")
    (line,) = up.run("tail", "flights.departed.enriched.v1", *where, "-n", "1", "--json").splitlines()
    assert json.loads(line)["event"]["airline_name"] == "United Air Lines Inc."
    up.run("tail", "alerts.raised.v1", "--where", "values['flight_id'] == 'sent-by-hand'", "-n", "1")
    hops = [each["hop"] for each in json.loads(up.run("trace", "sent-by-hand", "--json"))]
    assert {"raw record", "derived record", "alert"} <= set(hops)
