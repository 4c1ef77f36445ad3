"""One process of the local stack: its log file, its pid file, its health, its end.

A process runs in a session of its own, so that a Ctrl-C at the terminal reaches only `headrace`, which stops everything
in order. Its pid file holds its pid. Its environment carries the stack's folder and its name: a pid that the system has given to somebody
else since is never signalled, and children that outlived it are found.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from deploy.errors import ProcessFailed

MARK = "HEADRACE_STACK"
"""The environment variable that names the folder of the stack to which a process belongs."""

_NAME = "HEADRACE_STACK_PROCESS"
"""The one that says which process of the stack it is. When it started would not tell: that moves when the clock is set."""
_LOG_LIMIT_BYTES = 20_000_000
_POLL_SECONDS = 0.1
_SEARCHED_LINES, _LAST_LINES = 200, 5
"""So much of a log's end is read for its last words, and so many lines are looked at for an error."""


class NotYet(Exception):
    """A condition does not hold yet; the text says what was seen instead."""


class Process:
    """A named process with its files below the stack's `directory`."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        directory: Path,
        env: Mapping[str, str] | None = None,
        niceness: int = 0,
    ) -> None:
        self.name = name
        self.argv = list(argv)
        self.directory = directory
        self.env = dict(env or {})
        self.niceness = niceness
        self.log = directory / "logs" / f"{name}.log"
        self._pid_file = directory / "run" / f"{name}.json"
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        """Start it; its output is appended to its log. Raises OSError, as of a full disk: then it doesn't run."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.bound_log()
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.env, MARK: str(self.directory), _NAME: self.name},
                start_new_session=True,
            )
        try:
            if self.niceness:
                os.setpriority(os.PRIO_PROCESS, self._child.pid, self.niceness)
            self._pid_file.write_text(json.dumps({"name": self.name, "pid": self._child.pid}))
        except BaseException:
            # Who starts it again must not have two of it, and one without a pid file is nobody's after a Ctrl-C.
            _kill_session(self._child.pid)
            self._child.wait()
            raise

    @property
    def pid(self) -> int | None:
        """Its pid, None before it was started."""
        return self._child.pid if self._child else None

    def exit_code(self) -> int | None:
        """None while it runs (or before it was started). What one that has ended leaves of its session is killed."""
        if self._child is None:
            return None
        if self._child.returncode is None and self._child.poll() is not None:
            # At once: later the pid may be somebody else's.
            _kill_session(self._child.pid)
        return self._child.returncode

    def wait_until(self, condition: Callable[[], bool], *, what: str, timeout_seconds: float) -> None:
        """Wait until `condition()`, which may raise NotYet; raises ProcessFailed with what it said last, and the last log lines."""
        deadline = time.monotonic() + timeout_seconds
        instead = ""
        while True:
            try:
                if condition():
                    return
            except NotYet as seen:
                instead = f" (at last: {seen})"
            code = self.exit_code()
            if code is not None:
                raise ProcessFailed(f"{self.name} ended with {describe_exit(code)} before {what}; {self._log_tail()}")
            if time.monotonic() > deadline:
                waited = f"waited {timeout_seconds:.0f} s until {what}{instead}"
                raise ProcessFailed(f"{self.name}: {waited}; {self._log_tail()}")
            time.sleep(_POLL_SECONDS)

    def check_running(self) -> None:
        """Raise ProcessFailed with its last log lines if it has ended."""
        code = self.exit_code()
        if code is not None:
            raise ProcessFailed(f"{self.name} ended with {describe_exit(code)}; {self._log_tail()}")

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process itself; it stops its own children."""
        if self._child and self.exit_code() is None:
            self._child.terminate()

    def stop(self, *, grace_seconds: float) -> bool:
        """Stop it: SIGTERM, then SIGKILL after `grace_seconds` for it and what is left of its session.

        Returns whether it ended by itself within the grace.
        """
        if self._child is None:
            return True
        self.ask_to_stop()
        graceful = True
        if self._child.returncode is None:
            try:
                self._child.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                graceful = False
            _kill_session(self._child.pid)
            self._child.wait()
        self._pid_file.unlink(missing_ok=True)
        return graceful

    def ends_within(self, seconds: float) -> bool:
        """Whether it has ended, or does so in this time. What is left of its session then is killed."""
        if self._child is None:
            return True
        is_known = self._child.returncode is not None
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        if not is_known:
            # At once: later the pid may be somebody else's.
            _kill_session(self._child.pid)
        return True

    def last_log_lines(self, count: int = 15) -> list[str]:
        """The end of its log, nothing from before its last start."""
        return tail(self.log, count, since=self._log_start)

    def last_words(self) -> str:
        """The error with which its log ends since its last start, in one line; without one the last line."""
        lines = [line for line in tail(self.log, _SEARCHED_LINES, since=self._log_start) if line.strip()]
        if not lines:
            return "its log is empty"
        if not lines[-1].startswith("{"):
            return lines[-1]
        # Behind it may stand that queries are stopping.
        errors = [found for line in lines[-_LAST_LINES:] if (found := _error_of(line))]
        return (errors or lines)[-1]

    def bound_log(self) -> None:
        """Keep one older log file when the log has grown beyond 20 MB; the process goes on writing at the new end."""
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT_BYTES:
            self.log.with_suffix(".log.1").write_bytes(self.log.read_bytes())
            os.truncate(self.log, 0)
            self._log_start = 0

    def _log_tail(self) -> str:
        lines = "\n".join(f"    {line}" for line in self.last_log_lines())
        return f"the end of {self.log}:\n{lines}" if lines else f"its log {self.log} is empty"


def tail(path: Path, count: int, *, since: int = 0) -> list[str]:
    """The last `count` lines of a text file, of those from byte `since` on; none when it doesn't exist."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(since, path.stat().st_size - 400 * count))
        return file.read().decode(errors="replace").splitlines()[-count:]


def _error_of(line: str) -> str:
    """What a line of a log says if it is an error as services write them; empty if it is none."""
    try:
        said = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(said, dict) or said.get("level") not in ("error", "critical"):
        return ""
    why = said.get("reason") or said.get("error") or str(said.get("exception", "")).rpartition("\n")[2]
    return f"{said.get('event', '')}: {why}" if why else str(said.get("event", ""))


def describe_exit(code: int) -> str:
    """`exit code 3`, or `signal SIGKILL` for a negative code as Popen gives it."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def running(directory: Path) -> dict[str, psutil.Process]:
    """The processes of the stack in `directory` that run now, by name, whoever started them."""
    found = {}
    for file in sorted((directory / "run").glob("*.json")):
        try:
            record = json.loads(file.read_text())
            process = psutil.Process(record["pid"])
            told = process.environ()
            if told.get(MARK) == str(directory) and told.get(_NAME) == record["name"]:
                found[record["name"]] = process
        except (psutil.NoSuchProcess, psutil.AccessDenied, ValueError, KeyError):
            continue
    return found


def stop_leftovers(directory: Path, *, order: Sequence[str], grace_seconds: float, say: Callable[[str], None]) -> int:
    """Stop what a `headrace` that no longer runs has left, in `order` (names not in it first); returns how many."""
    processes = running(directory)
    names = sorted(processes, key=lambda name: order.index(name) if name in order else -1)
    for name in names:
        say(f"stopping {name} (pid {processes[name].pid}), left running")
        with suppress(psutil.NoSuchProcess):
            processes[name].terminate()
        _, alive = psutil.wait_procs([processes[name]], timeout=grace_seconds)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
    orphans = list(_orphans(directory))
    for process in orphans:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(orphans, timeout=grace_seconds)
    for file in (directory / "run").glob("*.json"):
        file.unlink()
    return len(names) + len(orphans)


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory of a process and its children together; 0 when it is gone."""
    total = 0
    try:
        for member in [process, *process.children(recursive=True)]:
            try:
                total += int(member.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
    except psutil.NoSuchProcess:
        return 0
    return total


def _orphans(directory: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == str(directory):
                yield process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # nothing is left of it
