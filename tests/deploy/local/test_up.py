"""`headrace up` as a user runs it, with its processes killed and itself too."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from contracts.definitions.catalog import load_catalog
from deploy.local.processes.deployable import deployables
from deploy.local.processes.process import running
from deploy.local.servers.ports import Ports
from tests.deploy.producers import PRODUCERS

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]
HEADRACE = [str(Path(sys.executable).parent / "headrace")]
INFRASTRUCTURE = {"kafka", "registry", "s3"}
DEPLOYABLES = {each.name for each in deployables().deployables}


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.3)


class Up:
    """A `headrace up` in a folder of its own, ended whatever happens."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.offset = Ports.free_offset()
        self.output = directory.parent / "output"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        with self.output.open("ab") as output:
            self._run(output.fileno(), arguments)

    def start_on(self, terminal: int, *arguments: str) -> None:
        self._run(terminal, arguments)

    def _run(self, output: int, arguments: Sequence[str]) -> None:
        command = [*HEADRACE, "up", "--dir", str(self.directory), "--port-offset", str(self.offset), *arguments]
        self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return self.output.read_text()

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(200)

    def state(self, name: str) -> dict[str, Any]:
        try:
            processes = json.loads((self.directory / "state.json").read_text())["processes"]
        except FileNotFoundError:
            return {"state": "not there"}
        return next((each for each in processes if each["name"] == name), {"state": "not there"})

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*HEADRACE, *arguments, "--dir", str(self.directory)]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path / "the stack")
    yield started
    if started.process is not None and started.process.poll() is None:
        started.end(signal.SIGTERM)
    started.command("down")


@pytest.mark.long
def test_up_runs_the_replay_restarts_what_dies_and_stops_in_order(up: Up) -> None:
    up.start("--limit", "20", "--speed", "20000")
    wait_until(lambda: all(up.state(name)["state"] == "finished" for name in PRODUCERS), "the producers' end")
    wait_until(lambda: up.state("alerting")["state"] == "running", "alerting")

    killed = up.state("alerting")["pid"]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: up.state("alerting").get("restarts") == 1, "alerting to be started again")
    assert "alerting died with signal SIGKILL" in up.said()

    status = json.loads(up.command("status", "--json").stdout)
    events = {topic["name"]: topic["events"] for topic in status["topics"]}
    assert status["running"] and status["unavailable"] == []
    topics = load_catalog().topics.values()
    published = {name: sum(events[each.name] for each in topics if each.producers == (name,)) for name in PRODUCERS}
    assert published == dict.fromkeys(PRODUCERS, 20)
    assert {process["name"] for process in status["processes"]} == INFRASTRUCTURE | DEPLOYABLES
    printed = up.command("status").stdout
    assert [name for name in events if name not in printed] == []

    second = up.command("up")
    assert (second.returncode, second.stderr) == (
        1,
        f"headrace: A stack runs in {up.directory} already: stop it by ./headrace down, or take another folder by --dir.\n",
    )

    assert up.end(signal.SIGINT) == 0
    assert running(up.directory) == {}
    said = up.said()
    assert "was killed" not in said
    order = [
        f"stopping {', '.join(PRODUCERS)}",
        "stopping live",
        "stopping lake",
        "stopping S3",
        "stopped; the next up goes on",
    ]
    assert sorted(order, key=said.index) == order
    assert up.command("status").returncode == 1


@pytest.mark.long
def test_a_full_disk_does_not_end_it(up: Up) -> None:
    up.directory.mkdir()
    # Of all that it writes while it runs, this is what it writes by itself.
    (up.directory / "state.json.partial").symlink_to("/dev/full")
    up.start("--no-producers")
    wait_until(lambda: "can't write state.json for headrace status" in up.said(), "word of the full disk")
    lines = up.said().count("; memory ")
    wait_until(lambda: up.said().count("; memory ") > lines + 1, "two more lines of its view")
    assert up.process is not None and up.process.poll() is None
    assert up.end(signal.SIGINT) == 0
    assert up.said().count("can't write state.json") == 1
    assert running(up.directory) == {}


def test_a_disk_that_is_full_from_the_beginning_is_a_sentence(up: Up) -> None:
    up.directory.mkdir()
    (up.directory / "owner").touch()  # a stack's folder
    (up.directory / "env").symlink_to("/dev/full")
    up.start()
    assert up.process is not None and up.process.wait(120) == 1
    assert "headrace: The stack can't be started: [Errno 28] No space left on device: mend that" in up.said()
    assert "Traceback" not in up.said()
    assert running(up.directory) == {}


@pytest.mark.long
def test_a_closed_terminal_stops_everything(up: Up) -> None:
    """The view is on a pseudo-terminal whose other end is closed."""
    master, terminal = pty.openpty()
    up.start_on(terminal, "--no-producers")
    os.close(terminal)
    drain = threading.Thread(target=_read_all, args=(master,), daemon=True)
    drain.start()
    wait_until(lambda: up.state("alerting")["state"] in ("running", "starting"), "the first state")
    assert up.process is not None
    up.process.send_signal(signal.SIGHUP)
    os.close(master)
    assert up.process.wait(200) == 0
    assert running(up.directory) == {}


@pytest.mark.long
def test_a_terminal_that_takes_nothing_and_a_key_that_is_held_do_not_keep_it_from_stopping(up: Up) -> None:
    """As after Ctrl-S, and then Ctrl-C held down, and the window closed."""
    master, terminal = pty.openpty()
    up.start_on(terminal, "--no-producers")
    os.close(terminal)
    threading.Thread(target=_read_all, args=(master, READ_BYTES), daemon=True).start()
    wait_until(lambda: up.state("alerting")["state"] in ("running", "starting"), "the first state")
    assert up.process is not None
    killed = up.state("alerting")["pid"]
    # Its terminal is full long before that, and it goes on all the same.
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: up.state("alerting").get("restarts") == 1, "alerting to be started again")
    for number in (signal.SIGINT, *[signal.SIGINT, signal.SIGHUP] * 20):
        up.process.send_signal(number)
        time.sleep(0.005)
    assert up.process.wait(200) == 0
    os.close(master)
    assert running(up.directory) == {}


READ_BYTES = 2_000


def _read_all(master: int, most: int | None = None) -> None:
    read = 0
    with suppress(OSError):
        while (most is None or read < most) and (some := os.read(master, 1_000)):
            read += len(some)


@pytest.mark.long
def test_what_a_killed_up_left_running_is_stopped_by_down(up: Up) -> None:
    up.start("--no-producers")
    wait_until(lambda: up.state("alerting")["state"] in ("running", "starting"), "the first state")
    assert up.end(signal.SIGKILL) == -signal.SIGKILL
    left = running(up.directory)
    assert set(left) == INFRASTRUCTURE | {"live", "lake", "alerting", "dimensions"}
    everything = {member for process in left.values() for member in (process, *process.children(recursive=True))}

    assert "left running" in up.command("status").stdout
    down = up.command("down")
    assert down.returncode == 0, down.stderr
    _, alive = psutil.wait_procs(everything, timeout=10)
    assert not alive
    assert up.command("down").stdout == f"nothing runs in {up.directory}\n"
