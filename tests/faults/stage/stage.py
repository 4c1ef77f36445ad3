"""`Stage`: the whole of Headrace as it runs, under load, where faults happen one after another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
from confluent_kafka import Producer

from contracts.definitions.catalog import load_catalog
from deploy.local.processes.deployable import ROOT, deployables
from deploy.local.processes.process import Process, resident_bytes
from deploy.local.processes.supervisor import Supervisor
from deploy.local.servers.landing import upload_dimensions
from deploy.local.servers.ports import HOST
from deploy.local.servers.stack import LocalStack
from services.alerting.settings import AlertingSettings
from spark.runtime.mode import Mode
from tests.alerting.endpoint import Endpoint
from tests.faults.stage.cast import PIPELINE
from tests.faults.stage.disk import mount, unmount
from tests.faults.stage.ledger import Ledger
from tests.faults.stage.positions import Positions
from tests.faults.stage.proxy import Proxy
from tests.jvm import SHORT_LIVED_ENV
from tests.producers import ordered

RATE = 100.0
"""Events per second of the steady load."""

_COMPRESSED = {
    # Whatever share of the records is bad.
    "HEADRACE_LIVE__DEAD_LETTER_LIMIT": "1",
    "HEADRACE_LIVE__TRIGGER_SECONDS": "1",
    # Commits come often, so that a fault finds one to strike at; leases and sessions end soon.
    "HEADRACE_LAKE__TRIGGER_SECONDS": "5",
    "HEADRACE_LAKE__LEASE_SECONDS": "6",
    "HEADRACE_SESSION_TIMEOUT_SECONDS": "6",
    "HEADRACE_STALL_SECONDS": "20",
}
_INTERVAL_SECONDS = 5.0
_BURST_SECONDS = 8.0
"""Half of it is the producer's start."""

_AS_FAST_AS_IT_CAN = 1e6
_KAFKA_MB = 3_000
_SCRATCH_MB = 300
_START_SECONDS = 300.0
_LOOK_SECONDS = 0.5


class Stage:
    """Broker, registry and S3, `live`, `lake`, alerting and dimensions, supervised as `headrace up` does; a load with a ledger;
    a proxy before the registry, S3 and a webhook.

    `mode` is that of `live`, `strikes` how often a fault that is about a moment strikes, `pipelines` those that run; the first one's intervals in real-time
    mode last `interval_seconds`, those of the others 5.
    """

    def __init__(
        self,
        directory: Path,
        *,
        strikes: int,
        say: Callable[[str], None],
        mode: Mode = Mode.EXACTLY_ONCE,
        pipelines: Sequence[str] = (PIPELINE,),
        interval_seconds: float = _INTERVAL_SECONDS,
    ) -> None:
        self._interval_seconds = interval_seconds
        self.directory, self.strikes, self.say, self.mode = directory.resolve(), strikes, say, mode
        self.pipelines = pipelines
        # In real-time mode one holds the slots of its process: each other one has a process of its own.
        alone = mode == Mode.REAL_TIME
        live = deployables().live(pipelines[:1] if alone else pipelines)
        others = [
            deployables().live([each]).model_copy(update={"name": f"live-{each}"})
            for each in (pipelines[1:] if alone else ())
        ]
        self._deployables = (live, *others, *deployables().of("reader"))
        self.lives = tuple(each.name for each in (live, *others))
        """The processes that run pipelines; the first is `live`."""
        self.stack = LocalStack(directory, say=say)
        self.ledger = Ledger(self.directory / "ledgers")
        self.peaks: dict[str, int] = {}
        """The most resident bytes of each process, with its children, since this was last emptied."""
        self._resident: dict[str, int] = {}
        self.supervised: list[str] = []
        """All that the supervisor has said: each death with its last words, and each start."""
        self._supervisor = Supervisor(self._log)
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._exits = ExitStack()
        self._started, self._since = 0, time.time()
        self._producer: Process | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; the data stay."""
        self._ended.set()
        self.end_load()
        with self._lock:
            others = [name for name in self._supervisor.processes if name not in ("kafka", "registry", "s3")]
            self._supervisor.stop(*others, grace_seconds=20)
            self.stack.stop()
        self._exits.close()

    @property
    def env(self) -> dict[str, str]:
        """The settings of every service: through the proxies."""
        return {
            **self.stack.settings_env(),
            **_COMPRESSED,
            **SHORT_LIVED_ENV,
            "HEADRACE_LIVE__MODE": self.mode,
            "HEADRACE_LIVE__INTERVAL_SECONDS": str(_INTERVAL_SECONDS),
            "HEADRACE_S3__ENDPOINT": f"http://{HOST}:{self.s3.port}",
            "HEADRACE_REGISTRY__URL": self.stack.registry.url.replace(
                str(self.stack.ports.registry), str(self.registry.port)
            ),
            "HEADRACE_RULES_FILE": str(self.rules_file),
            "HEADRACE_RECEIVERS_FILE": str(self._receivers_file),
            # Where Spark and S3A keep what they can't hold in memory.
            "SPARK_LOCAL_DIRS": str(self.scratch),
            "LOCAL_DIRS": str(self.scratch),
        }

    @property
    def scratch(self) -> Path:
        """Spark's folder for what it can't hold in memory."""
        return self.directory / "scratch"

    def process(self, name: str) -> psutil.Process:
        """A process that runs now; waits until the supervisor has started it again."""
        return self._alive(name)

    def family(self, name: str) -> list[psutil.Process]:
        """A process and all that it has started, the youngest first."""
        return family_of(self._alive(name))

    def kill(self, *names: str) -> list[int]:
        """kill -9 of these with all that they have started, at once; returns their pids."""
        victims = [each for name in names for each in self.family(name)]
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                victim.kill()
        # Not by psutil's wait: it would take the exit code away from the supervisor.
        self.wait("the killed to be dead", lambda: all(map(is_dead, victims)), 10)
        return [victim.pid for victim in victims]

    def frozen(self, name: str, family: Sequence[psutil.Process] = ()) -> AbstractContextManager[list[psutil.Process]]:
        """SIGSTOP to a process and all that it has started; SIGCONT at the end, to those that are left.

        `family`: what is known of them already; it is frozen at once, before the others are looked for.
        """
        return frozen(lambda: self.family(name), family)

    def restarts(self) -> int:
        """How often the supervisor has started something again."""
        return sum(each.restarts for each in self._supervisor.processes.values())

    def forgive(self) -> None:
        """Whoever dies next is taken for settled: its restart waits only the first pause."""
        with self._lock:
            for each in self._supervisor.processes.values():
                each.pause_seconds = 1.0

    def give(self, name: str, **settings: str) -> None:
        """Settings for a process, which heeds them when it is started next."""
        with self._lock:
            self._supervisor.processes[name].process.env.update(settings)

    def second(self, name: str, **settings: str) -> Process:
        """One more of a deployable, started, on a free port and not supervised; the caller stops it."""
        deployable = next(each for each in self._deployables if each.name == name)
        process = deployable.process(self.directory, 0, {**self.env, **settings})
        self._started += 1
        other = Process(f"{name}-{self._started}", process.argv, directory=self.directory, env=process.env)
        other.start()
        return other

    def has_started(self, process: Process, name: str) -> bool:
        """Whether such a second one has: every pipeline of `live` says so."""
        return text_of(process.log).count('"started"') >= (len(self.pipelines) if self.lives == (name,) else 1)

    def load(self, rate: float = RATE) -> Process:
        """One more producer with a ledger of its own, started; the caller stops it."""
        self._started += 1
        name = f"load{self._started}"
        ledger = self.ledger.folder / f"{name}.ledger"
        argv = [sys.executable, "-m", "tests.faults.stage.load", str(ledger)]
        argv += ["--rate", str(rate), "--since", str(self._since)]
        process = Process(name, argv, directory=self.directory, env=self.env | {"PYTHONPATH": str(ROOT)})
        process.start()
        return process

    def burst(self) -> None:
        """As many events as a producer can send in some seconds, beside the steady load: tens of thousands."""
        producer = self.load(rate=_AS_FAST_AS_IT_CAN)
        time.sleep(_BURST_SECONDS)
        producer.stop(grace_seconds=60)

    @contextmanager
    def busy(self, processes: int) -> Iterator[None]:
        """Other work that takes what it gets of the processors."""
        working = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
        try:
            yield
        finally:
            for each in working:
                each.kill()
                each.wait()

    def end_load(self) -> None:
        """Stop the steady load, if it was started; what it has queued is delivered first."""
        if self._producer is not None:
            self._producer.stop(grace_seconds=30)

    def producer(self) -> Producer:
        """A producer of any bytes, past every contract; the caller closes it."""
        return ordered({"bootstrap.servers": self.stack.kafka.bootstrap_servers, "message.max.bytes": 20 << 20})

    def log_of(self, name: str) -> str:
        """All that a process of that name has logged."""
        return text_of(self.directory / "logs" / f"{name}.log")

    def acknowledged(self) -> int:
        """How many events of the load the brokers have acknowledged until now."""
        self.ledger.renew()
        return len(self.ledger.acknowledged)

    def told(self) -> set[str]:
        """The ids of the alerts that the webhook was told of."""
        return {str(post["alert"]["alert_id"]) for post in self._webhook.posts}

    def healthy(self, name: str) -> bool:
        """Whether a deployable says so itself."""
        try:
            return httpx.get(f"http://{HOST}:{self.stack.ports.of(name)}/health", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def wait(self, what: str, condition: Callable[[], Any], seconds: float = _START_SECONDS) -> None:
        """Until `condition()`; raises TimeoutError that says what was waited for."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:.0f} s for {what}")
            time.sleep(_LOOK_SECONDS)

    def wait_until_healthy(self, name: str) -> None:
        """Until a deployable says so itself."""
        self.wait(f"{name} to be healthy", lambda: self.healthy(name))

    def wait_for_another(self, name: str, before: psutil.Process) -> None:
        """Until the supervisor has started a process in the place of `before`."""
        self.wait(f"{name} to be started again", lambda: self.process(name) != before)

    def audit(self, *options: str) -> subprocess.CompletedProcess[str]:
        """`headrace audit` of everything that runs."""
        command = [sys.executable, "-m", "services.audit", *options]
        env = {**os.environ, **self.env, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def _start(self) -> None:
        for folder in (self.ledger.folder, self.scratch):
            folder.mkdir(parents=True, exist_ok=True)
        for disk, megabytes in ((self.directory / "kafka", _KAFKA_MB), (self.scratch, _SCRATCH_MB)):
            self._exits.callback(unmount, disk)
            # Where that is not allowed, the faults that fill it say so.
            mount(disk, megabytes)
        self.stack.start()
        self.stack.bootstrap()
        self.positions = Positions(self.stack)
        self._exits.callback(self.positions.close)
        self.s3 = self._exits.enter_context(Proxy(self.stack.ports.s3))
        self.registry = self._exits.enter_context(Proxy(self.stack.ports.registry))
        self._webhook = self._exits.enter_context(Endpoint())
        self.webhook = self._exits.enter_context(Proxy(int(self._webhook.url.rsplit(":")[-1].split("/")[0])))
        self._write_files()
        upload_dimensions(self.stack.settings().s3, load_catalog())
        for component in (self.stack.kafka, self.stack.registry, self.stack.s3):
            self._supervisor.watch(component.process, start=component.start)
        for deployable in self._deployables:
            own = {"HEADRACE_LIVE__INTERVAL_SECONDS": str(self._interval_seconds)} if deployable.name == "live" else {}
            self._supervisor.start(deployable.process(self.directory, self._port(deployable.name), self.env | own))
        threading.Thread(target=self._supervise, name="supervisor", daemon=True).start()
        self._producer = self.load()
        self.say("everything is started; waiting until it flows")
        for name in ("live", "lake", "alerting"):
            self.wait_until_healthy(name)
        for name in self.lives[1:]:
            self.wait(f"{name} to start", lambda name=name: '"started"' in self.log_of(name))  # type: ignore[misc]

    def _port(self, name: str) -> int:
        return 0 if name in self.lives[1:] else self.stack.ports.of(name)

    def _write_files(self) -> None:
        """Rules without cooldowns, so that every alert is told; the one receiver."""
        self.rules_file = self.directory / "rules.yaml"
        shipped = AlertingSettings.model_fields["rules_file"].default.read_text(encoding="utf-8")
        self.rules_file.write_text(re.sub(r"cooldown: \w+", "cooldown: 0s", shipped), encoding="utf-8")
        self._receivers_file = self.directory / "receivers.yaml"
        receiver = f"receivers:\n  - name: webhook\n    url: http://{HOST}:{self.webhook.port}/hook\n"
        self._receivers_file.write_text(receiver, encoding="utf-8")

    def _supervise(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            with self._lock:
                if self._ended.is_set():
                    return
                self._supervisor.check()
            for name, each in self._supervisor.processes.items():
                if each.state == "running" and each.process.pid is not None:
                    with suppress(psutil.NoSuchProcess):
                        before, now = self._resident.get(name, 0), resident_bytes(psutil.Process(each.process.pid))
                        # By two looks: one that is about to start another can have, for a moment, a child as large as itself.
                        self.peaks[name] = max(self.peaks.get(name, 0), min(before, now))
                        self._resident[name] = now

    def _alive(self, name: str) -> psutil.Process:
        found: list[psutil.Process] = []

        def runs() -> bool:
            with self._lock:
                supervised = self._supervisor.processes[name]
                if supervised.state == "running" and supervised.process.exit_code() is None:
                    found.append(psutil.Process(supervised.process.pid))
            return bool(found)

        self.wait(f"{name} to run", runs)
        return found[-1]

    def _log(self, text: str) -> None:
        self.supervised.append(text)
        with (self.directory / "supervisor.log").open("a") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {text}\n")


@contextmanager
def frozen(
    look: Callable[[], Sequence[psutil.Process]], family: Sequence[psutil.Process] = ()
) -> Iterator[list[psutil.Process]]:
    """SIGSTOP to those of `family`, and then to those that `look` finds; SIGCONT at the end, to those that are left."""
    stopped: list[psutil.Process] = []
    try:
        for find in (lambda: [*reversed(family)], look):
            for each in find():
                stopped.append(each)
                with suppress(psutil.NoSuchProcess):
                    each.send_signal(signal.SIGSTOP)
        yield [*look()]
    finally:
        for each in stopped:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it has started, the youngest first."""
    return [*reversed(process.children(recursive=True)), process]


def is_dead(process: psutil.Process) -> bool:
    """Whether a process has ended, though its parent may not know yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def text_of(log: Path) -> str:
    """What is in a log; nothing if there is none yet."""
    return log.read_text(errors="replace") if log.exists() else ""
