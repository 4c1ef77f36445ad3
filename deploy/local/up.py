"""`headrace up`: the whole of Headrace on this machine, watched until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

import psutil

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import pipeline_files
from deploy.dead_letter_text import printable
from deploy.errors import DeployError
from deploy.local.folder import Folder
from deploy.local.processes.attempts import Attempts
from deploy.local.processes.deployable import ROLES, Deployable, deployables
from deploy.local.processes.process import resident_bytes
from deploy.local.processes.supervisor import Supervised, Supervisor
from deploy.local.servers.landing import upload_dimensions
from deploy.local.servers.ports import Ports
from deploy.local.servers.stack import LocalStack
from deploy.local.watching import view
from deploy.local.watching.gauges import NOT_LISTENING, Gauges
from deploy.local.watching.snapshot import ProcessState, Snapshot
from deploy.local.watching.terminal import Terminal

_TICK_SECONDS = 0.25
_SNAPSHOT_SECONDS = 1.0
_LINE_SECONDS = 5.0
_LAST_SNAPSHOT_SECONDS = 5.0
_WRITTEN_SECONDS = 1.0
"""How long a terminal that takes nothing may hold up the end."""


@dataclass(frozen=True)
class Options:
    """`speed` is seconds of event time per second; `until` ends the replay (event time), `limit` after so many events of
    each producer; without `producers` only a user's own events come in. `pipelines` are the names of those that run.
    """

    directory: Path
    ports: Ports
    fresh: bool
    speed: float | None
    until: str | None
    limit: int | None
    producers: bool
    pipelines: tuple[str, ...]


def up(options: Options) -> None:
    """Start everything, show it, and stop it in order on SIGINT, SIGTERM or SIGHUP. Raises DeployError."""
    if deployables().clock is None and (options.speed is not None or options.until is not None):
        raise DeployError(
            "--speed and --until set the replay clock, and deploy/deployables.yaml has none: leave them out."
        )
    terminal = Terminal()
    try:
        _up(options, terminal)
    finally:
        is_written = terminal.is_written(_WRITTEN_SECONDS)
    if not is_written:
        # Python would wait for the thread that writes.
        os._exit(0)


def _up(options: Options, terminal: Terminal) -> None:
    folder = Folder(options.directory)
    with folder.owned(terminal.say):
        if options.fresh:
            folder.empty()
        folder.forget_state()
        asked = _Asked(terminal.say)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Who starts it by nohup means it to outlive the terminal.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, asked)
        run = _Run(folder, options, terminal, asked)
        try:
            try:
                run.start()
            except OSError as error:
                raise DeployError(f"The stack can't be started: {error}: mend that, such as a full disk.") from error
            run.watch()
        except KeyboardInterrupt:
            pass
        finally:
            asked.to_stop = True
            run.stop()


class _Asked:
    """What a signal does: the first one asks `up` to stop, and each further one is told that it does."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.to_stop = False
        self._say = say

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.to_stop:
            self._say("still stopping")
            return
        self.to_stop = True
        raise KeyboardInterrupt


class _Run:
    """One run of `up`, from start to stop."""

    def __init__(self, folder: Folder, options: Options, terminal: Terminal, asked: _Asked) -> None:
        self._folder = folder
        self._options = options
        self._terminal = terminal
        self._asked = asked
        self._deployables = deployables()
        self._stack = LocalStack(folder.path, options.ports, say=terminal.say)
        self._catalog = load_catalog()
        self._supervisor = Supervisor(terminal.say)
        self._attempts = Attempts(terminal.say)
        self._printed_at = 0.0
        self._alerts_before: int | None = None

    def start(self) -> None:
        """Bring up the stack and all deployables; raises DeployError."""
        settings = self._stack.settings_env()
        self._folder.write_env(settings)
        self._stack.start()
        for component in (self._stack.kafka, self._stack.registry, self._stack.s3):
            self._supervisor.watch(component.process, start=component.start)
        self._stack.bootstrap()
        self._terminal.say("contracts registered, topics and bucket there")
        self._start(self._deployables.live(self._options.pipelines))
        self._terminal.say(_which_run(self._options.pipelines))
        uploaded, lacking = upload_dimensions(self._stack.settings().s3, self._catalog)
        if uploaded:
            self._terminal.say(f"uploaded the tables of {', '.join(uploaded)}")
        for name in lacking:
            put = f"./headrace dimensions put {self._catalog.dimensions[name].made_of}"
            self._terminal.say(f"{name} has no rows yet, and pipelines that look up in it wait: {put} uploads them")
        for deployable in self._deployables.of("reader"):
            self._start(deployable)
        if self._options.producers:
            if self._deployables.clock is not None:
                self._set_clock(self._deployables.clock, settings)
            for deployable in self._deployables.of("producer"):
                self._start(deployable)
        self._terminal.say("everything is started")

    def watch(self) -> None:
        """Show the state until interrupted; dead processes are started again."""
        gauges = Gauges(self._stack.settings(), self._stack.ports, self._catalog)
        latest: list[Snapshot] = []
        ended = threading.Event()
        show = self._show_live if sys.stdout.isatty() else self._print_lines
        # As a daemon: what answers late holds up no end.
        reading = threading.Thread(target=self._read, args=(gauges, latest.append, ended), name="gauges", daemon=True)
        try:
            reading.start()
            while not self._asked.to_stop:
                self._supervisor.check()
                if latest:
                    show(latest[-1])
                    del latest[:-1]
                time.sleep(_TICK_SECONDS)
        finally:
            ended.set()
            reading.join(_LAST_SNAPSHOT_SECONDS)
            if not reading.is_alive():
                gauges.close()

    def stop(self) -> None:
        """Stop senders before receivers; the stack last."""
        self._terminal.end_view()
        self._terminal.say("stopping: what is on its way is finished first")
        supervisor = self._supervisor
        for role in ROLES:
            present = [each for each in self._deployables.of(role) if each.name in supervisor.processes]
            if present:
                self._terminal.say(f"stopping {', '.join(each.name for each in present)}")
                supervisor.stop(
                    *(each.name for each in present), grace_seconds=max(each.grace_seconds for each in present)
                )
        self._terminal.say("stopping S3, registry and broker")
        self._stack.stop()
        self._terminal.say("stopped; the next up goes on from here")

    def _start(self, deployable: Deployable) -> None:
        settings = self._stack.settings_env()
        if deployable.ends and self._options.limit is not None:
            settings["HEADRACE_LIMIT"] = str(self._options.limit)
        process = deployable.process(self._folder.path, self._stack.ports.of(deployable.name), settings)
        self._supervisor.start(process, ends=deployable.ends)

    def _set_clock(self, clock: Deployable, settings: dict[str, str]) -> None:
        if self._options.speed is not None:
            clock = clock.with_arguments("--speed", str(self._options.speed))
        if self._options.until is not None:
            clock = clock.with_arguments("--until", self._options.until)
        process = clock.process(self._folder.path, 0, settings)
        try:
            process.start()
            process.wait_until(lambda: process.exit_code() == 0, what="it had set the replay clock", timeout_seconds=60)
        finally:
            process.stop(grace_seconds=0)

    def _show_live(self, snapshot: Snapshot) -> None:
        self._terminal.show(view.render(snapshot, list(self._terminal.notices)))

    def _print_lines(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self._printed_at > _LINE_SECONDS:
            self._terminal.print(view.line(snapshot))
            self._printed_at = time.monotonic()

    def _read(self, gauges: Gauges, put: Callable[[Snapshot], None], ended: threading.Event) -> None:
        failure = ""
        while not ended.wait(_SNAPSHOT_SECONDS):
            try:
                put(self._snapshot(gauges))
            except Exception as error:  # noqa: BLE001
                # Whatever it is, it is the view's, and what runs goes on.
                if repr(error) != failure:
                    failure = repr(error)
                    self._terminal.say(f"can't see how things are, and looks again: {failure}")

    def _snapshot(self, gauges: Gauges) -> Snapshot:
        snapshot = replace(gauges.snapshot(), processes=self._process_states(gauges))
        alerts = sum(each.events for each in snapshot.topics if each.name == topics.ALERTS_RAISED.name)
        if self._alerts_before is None:
            self._alerts_before = alerts
        elif alerts > self._alerts_before >= 0:
            newest = f": {printable(snapshot.alerts[-1].message)}" if snapshot.alerts else ""
            self._terminal.say(f"the first new alert is there{newest}")
            self._alerts_before = sys.maxsize
        states = [asdict(each) for each in snapshot.processes]
        self._attempts.make(
            "write state.json for headrace status", partial(self._folder.write_state, self._stack.ports, states)
        )
        return snapshot

    def _process_states(self, gauges: Gauges) -> list[ProcessState]:
        supervised = dict(self._supervisor.processes)
        asked = [
            each.name
            for each in self._deployables.deployables
            if each.name in supervised and supervised[each.name].state == "running"
        ]
        health = gauges.health(asked)
        return [_process_state(name, each, health.get(name)) for name, each in supervised.items()]


def _which_run(pipelines: Sequence[str]) -> str:
    others = [name for name in pipeline_files() if name not in pipelines]
    left_out = f"; not {', '.join(others)} (--pipelines all)" if others else ""
    return f"live runs {', '.join(pipelines)}{left_out}"


def _process_state(name: str, supervised: Supervised, trouble: str | None) -> ProcessState:
    if supervised.state != "running":
        return ProcessState(name, supervised.state, None, supervised.restarts, 0, death=supervised.death)
    pid = supervised.process.pid
    assert pid is not None
    try:
        resident_mb = resident_bytes(psutil.Process(pid)) // 1_000_000
    except psutil.NoSuchProcess:
        resident_mb = 0
    state = {None: "running", NOT_LISTENING: "starting"}.get(trouble, "unhealthy")
    return ProcessState(name, state, pid, supervised.restarts, resident_mb, trouble or "", supervised.death)
