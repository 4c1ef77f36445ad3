"""`headrace up`: the whole of Headrace on this machine, watched until it is told to stop."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType

import psutil
from rich.console import Console
from rich.live import Live as LiveDisplay

from contracts import topics
from contracts.definitions.catalog import load_catalog
from contracts.definitions.pipelines import pipeline_files
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

_TICK_SECONDS = 0.25
_SNAPSHOT_SECONDS = 1.0
_LINE_SECONDS = 5.0
_NOTICES = 6


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
    folder = Folder(options.directory)
    voice = _Voice()
    with folder.owned(voice.say):
        if options.fresh:
            folder.empty()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)
        run = _Run(folder, options, voice)
        try:
            try:
                run.start()
            except OSError as error:
                raise DeployError(f"The stack can't be started: {error}: mend that, such as a full disk.") from error
            run.watch()
        except KeyboardInterrupt:
            voice.say("stopping: what is on its way is finished first")
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda *_: voice.say("still stopping"))
            run.stop()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class _Voice:
    """Says what happens: below the live view while there is one, else as lines."""

    def __init__(self) -> None:
        self.notices: deque[str] = deque(maxlen=_NOTICES)
        self.silent = False
        self._started_at = time.monotonic()

    def say(self, text: str) -> None:
        stamped = f"{time.monotonic() - self._started_at:6.1f} s  {text}"
        self.notices.append(stamped)
        if not self.silent:
            with suppress(
                OSError
            ):  # the terminal may be gone, or the disk full, which must not keep us from stopping in order
                print(stamped, flush=True)


class _Run:
    """One run of `up`, from start to stop."""

    def __init__(self, folder: Folder, options: Options, voice: _Voice) -> None:
        self._folder = folder
        self._options = options
        self._voice = voice
        self._deployables = deployables()
        self._stack = LocalStack(folder.path, options.ports, say=voice.say)
        self._catalog = load_catalog()
        self._supervisor = Supervisor(voice.say)
        self._attempts = Attempts(voice.say)

    def start(self) -> None:
        """Bring up the stack and all deployables; raises DeployError."""
        settings = self._stack.settings_env()
        self._folder.write_env(settings)
        self._stack.start()
        for component in (self._stack.kafka, self._stack.registry, self._stack.s3):
            self._supervisor.watch(component.process, start=component.start)
        self._stack.bootstrap()
        self._voice.say("contracts registered, topics and bucket there")
        self._start(self._deployables.live(self._options.pipelines))
        self._voice.say(_which_run(self._options.pipelines))
        uploaded = upload_dimensions(self._stack.settings().s3, self._catalog)
        if uploaded:
            self._voice.say(f"uploaded the tables of {', '.join(uploaded)}")
        for deployable in self._deployables.of("reader"):
            self._start(deployable)
        if self._options.producers:
            if self._deployables.clock is not None:
                self._set_clock(self._deployables.clock, settings)
            for deployable in self._deployables.of("producer"):
                self._start(deployable)
        self._voice.say("everything is started")

    def watch(self) -> None:
        """Show the state until interrupted; dead processes are started again."""
        gauges = Gauges(self._stack.settings(), self._stack.ports, self._catalog)
        latest: list[Snapshot] = []
        ended = threading.Event()
        show = self._show_live if sys.stdout.isatty() else self._print_lines
        with ThreadPoolExecutor(1, "gauges") as pool:
            reading = pool.submit(self._read, gauges, latest.append, ended)
            try:
                show(latest, reading)
            finally:
                ended.set()
        gauges.close()

    def stop(self) -> None:
        """Stop senders before receivers; the stack last."""
        self._voice.silent = False
        supervisor = self._supervisor
        for role in ROLES:
            present = [each for each in self._deployables.of(role) if each.name in supervisor.processes]
            if present:
                self._voice.say(f"stopping {', '.join(each.name for each in present)}")
                supervisor.stop(
                    *(each.name for each in present), grace_seconds=max(each.grace_seconds for each in present)
                )
        self._voice.say("stopping S3, registry and broker")
        self._stack.stop()
        self._voice.say("stopped; the next up goes on from here")

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
        process.start()
        process.wait_until(lambda: process.exit_code() == 0, what="it had set the replay clock", timeout_seconds=60)
        process.stop(grace_seconds=0)

    def _show_live(self, latest: list[Snapshot], reading: Future[None]) -> None:
        with LiveDisplay(console=Console(), auto_refresh=False) as display:
            self._voice.silent = True
            while not reading.done():
                self._supervisor.check()
                if latest:
                    display.update(view.render(latest[-1], list(self._voice.notices)), refresh=True)
                    del latest[:-1]
                time.sleep(_TICK_SECONDS)
        reading.result()

    def _print_lines(self, latest: list[Snapshot], reading: Future[None]) -> None:
        printed_at = 0.0
        while not reading.done():
            self._supervisor.check()
            if latest and time.monotonic() - printed_at > _LINE_SECONDS:
                with suppress(OSError):  # as in _Voice
                    print(view.line(latest[-1]), flush=True)
                printed_at = time.monotonic()
                del latest[:-1]
            time.sleep(_TICK_SECONDS)
        reading.result()

    def _read(self, gauges: Gauges, put: Callable[[Snapshot], None], ended: threading.Event) -> None:
        alerts_before: int | None = None
        while not ended.wait(_SNAPSHOT_SECONDS):
            snapshot = replace(gauges.snapshot(), processes=self._process_states(gauges))
            alerts = sum(each.events for each in snapshot.topics if each.name == topics.ALERTS_RAISED.name)
            if alerts_before is None:
                alerts_before = alerts
            elif alerts > alerts_before >= 0:
                newest = f": {snapshot.alerts[-1].message}" if snapshot.alerts else ""
                self._voice.say(f"the first new alert is there{newest}")
                alerts_before = sys.maxsize
            states = [asdict(each) for each in snapshot.processes]
            self._attempts.make(
                "write state.json for headrace status", partial(self._folder.write_state, self._stack.ports, states)
            )
            put(snapshot)

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
        return ProcessState(name, supervised.state, None, supervised.restarts, 0)
    pid = supervised.process.pid
    assert pid is not None
    try:
        resident_mb = resident_bytes(psutil.Process(pid)) // 1_000_000
    except psutil.NoSuchProcess:
        resident_mb = 0
    state = {None: "running", NOT_LISTENING: "starting"}.get(trouble, "unhealthy")
    return ProcessState(name, state, pid, supervised.restarts, resident_mb, trouble or "")
