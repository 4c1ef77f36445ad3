"""Keeps processes running: one that dies is named with its last words and started again, later each time."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from deploy.local.processes.attempts import Attempts
from deploy.local.processes.process import Process, describe_exit

State = Literal["running", "restarting", "finished", "stopped"]

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_SETTLED_SECONDS = 60.0
"""Who has run this long is taken for recovered: its next death waits only the first pause."""
_SAY_SECONDS = 5.0
"""So long it may take to stop without a word."""
_LAST_LINES = 8
_KILLS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass
class Supervised:
    """A process with what has become of it. `start` starts it, with whatever it needs done before."""

    process: Process
    start: Callable[[], None]
    ends: bool
    state: State = "running"
    restarts: int = 0
    started_at: float = 0.0
    pause_seconds: float = _FIRST_PAUSE_SECONDS
    last_death: str = ""

    @property
    def death(self) -> str:
        """How it died last, until it has run for a minute again."""
        is_settled = self.state == "running" and time.monotonic() - self.started_at > _SETTLED_SECONDS
        return "" if is_settled or self.state in ("finished", "stopped") else self.last_death


class Supervisor:
    """`say` hears of every death, restart and end. A full disk ends nothing: it is said, and what it hinders is tried again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._attempts = Attempts(say)
        self.processes: dict[str, Supervised] = {}

    def watch(self, process: Process, *, start: Callable[[], None] | None = None, ends: bool = False) -> None:
        """Take over a process that runs."""
        self.processes[process.name] = Supervised(process, start or process.start, ends, started_at=time.monotonic())

    def start(self, process: Process, *, ends: bool = False) -> None:
        """Start a process and watch it."""
        # First, for a Ctrl-C may come as soon as it runs.
        self.watch(process, ends=ends)
        process.start()

    def check(self) -> None:
        """Look at every process once, and start again those whose pause is over."""
        for name, each in self.processes.items():
            self._attempts.make(f"cut {each.process.log}", each.process.bound_log)
            if each.state == "running":
                code = each.process.exit_code()
                if code == 0 and each.ends:
                    each.state = "finished"
                    self._say(f"{name} has finished")
                elif code is not None:
                    self._mourn(name, each, code)
            elif (
                each.state == "restarting"
                and time.monotonic() >= each.started_at
                and self._attempts.make(f"start {name} again", each.start)
            ):
                each.state, each.started_at = "running", time.monotonic()
                each.restarts += 1
                self._say(f"{name} was started again")

    def stop(self, *names: str, grace_seconds: float) -> None:
        """Stop these side by side."""
        chosen = [self.processes[name] for name in names if name in self.processes]
        for each in chosen:
            each.process.ask_to_stop()
        for each in chosen:
            if not each.process.ends_within(_SAY_SECONDS):
                self._say(f"{each.process.name} finishes what it has at hand, which may take {grace_seconds:.0f} s")
            if not each.process.stop(grace_seconds=grace_seconds):
                self._say(f"{each.process.name} didn't stop within {grace_seconds:.0f} s and was killed")
            if each.state != "finished":
                each.state = "stopped"

    def _mourn(self, name: str, each: Supervised, code: int) -> None:
        if time.monotonic() - each.started_at > _SETTLED_SECONDS:
            each.pause_seconds = _FIRST_PAUSE_SECONDS
        lines = "".join(f"\n    {line}" for line in each.process.last_log_lines(_LAST_LINES))
        # One that was killed did not expect it, so its log does not say why.
        words = "" if -code in _KILLS else f": {each.process.last_words()}"
        each.last_death = f"{describe_exit(code)} at {datetime.now(UTC):%H:%M:%SZ}{words}"
        self._say(f"{name} died with {describe_exit(code)}; starting it again in {each.pause_seconds:.0f} s; {lines}")
        each.state, each.started_at = "restarting", time.monotonic() + each.pause_seconds
        each.pause_seconds = min(2 * each.pause_seconds, _LONGEST_PAUSE_SECONDS)
