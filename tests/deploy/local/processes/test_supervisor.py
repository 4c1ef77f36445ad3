"""What becomes of a process that ends while it is watched."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from deploy.local.processes.process import Process, running
from deploy.local.processes.supervisor import Supervisor


def a_process(directory: Path, code: str) -> Process:
    return Process("worker", [sys.executable, "-c", code], directory=directory)


def check_until(supervisor: Supervisor, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        supervisor.check()
        time.sleep(0.02)


def test_a_killed_process_is_named_with_its_last_words_and_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    process = a_process(tmp_path, "import time; print('at work', flush=True); time.sleep(600)")
    supervisor.start(process)
    process.wait_until(lambda: bool(process.last_log_lines()), what="its first line", timeout_seconds=30)
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    check_until(supervisor, lambda: supervisor.processes["worker"].restarts == 1, "the restart")
    assert said == [
        "worker died with signal SIGKILL; starting it again in 1 s; \n    at work",
        "worker was started again",
    ]
    # Its log does not say why it was killed.
    assert supervisor.processes["worker"].death.startswith("signal SIGKILL at ")
    assert supervisor.processes["worker"].death.endswith("Z")
    assert process.pid != first and process.exit_code() is None
    supervisor.stop("worker", grace_seconds=10)
    assert supervisor.processes["worker"].state == "stopped"


def test_each_death_in_a_row_is_followed_by_a_longer_pause(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    supervisor.start(a_process(tmp_path, "raise SystemExit(7)"))
    check_until(supervisor, lambda: supervisor.processes["worker"].restarts == 2, "two restarts")
    deaths = [line for line in said if "died" in line]
    assert deaths[0].startswith("worker died with exit code 7; starting it again in 1 s")
    assert deaths[1].startswith("worker died with exit code 7; starting it again in 2 s")
    supervisor.stop("worker", grace_seconds=10)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('at work')", "at work"),
        ("pass", "its log is empty"),
        ("""print('{"level": "error", "event": "query failed", "reason": "no zone"}\\n{"level": "info", "event": "end"}')""", "query failed: no zone"),
        ("""print('{"level": "error", "event": "failed", "exception": "Traceback:\\\\n  line\\\\nOSError: full"}')""", "failed: OSError: full"),
        ("""print('{"level": "error", "event": "set aside"}\\n' + '{"event": "at work", "level": "info"}\\n' * 5)""", '{"event": "at work", "level": "info"}'),
        ("""print('{"level": "error", "event": "set aside"}', flush=True); raise MemoryError("all of it")""", "MemoryError: all of it"),
        ("""print('[1]\\n{"level": "error", "event": "at an end"}')""", "at an end"),
    ],
)  # fmt: skip
def test_why_it_died_is_its_last_error_until_it_has_run_for_a_while(tmp_path: Path, code: str, words: str) -> None:
    supervisor = Supervisor(lambda _: None)
    code = code if "raise" in code else f"{code}; raise SystemExit(7)"
    supervisor.start(a_process(tmp_path, code))
    worker = supervisor.processes["worker"]
    assert worker.death == ""
    check_until(supervisor, lambda: worker.restarts == 1, "a restart")
    assert worker.death.startswith(("exit code 7 at ", "exit code 1 at "))
    assert worker.death.endswith(f"Z: {words}")
    worker.started_at -= 61
    worker.state = "running"
    assert worker.death == ""
    supervisor.stop("worker", grace_seconds=10)


def test_a_process_whose_work_is_done_has_finished(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    supervisor.start(a_process(tmp_path, "pass"), ends=True)
    check_until(supervisor, lambda: supervisor.processes["worker"].state == "finished", "its end")
    assert said == ["worker has finished"]


def test_what_a_process_that_ends_in_time_leaves_of_its_session_is_killed(tmp_path: Path) -> None:
    supervisor = Supervisor(lambda _: None)
    script = "sleep 600 & echo $!; trap 'exit 0' TERM; wait"
    process = Process("worker", ["/bin/sh", "-c", script], directory=tmp_path)
    supervisor.start(process)
    process.wait_until(lambda: bool(process.last_log_lines()), what="its child's pid", timeout_seconds=30)
    child = psutil.Process(int(process.last_log_lines(1)[0]))
    supervisor.stop("worker", grace_seconds=10)
    assert process.exit_code() == 0
    assert not psutil.wait_procs([child], timeout=10)[1]


def test_an_interrupted_start_leaves_nothing_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C when it runs and has no pid file yet."""
    supervisor, found = Supervisor(lambda _: None), []

    def interrupted(record: dict[str, Any]) -> None:
        found.append(record["pid"])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("deploy.local.processes.process.json.dumps", interrupted)
        supervisor.start(a_process(tmp_path, "import time; time.sleep(600)"))
    supervisor.stop("worker", grace_seconds=10)
    assert not psutil.pid_exists(found[0])
    assert supervisor.processes["worker"].state == "stopped"


def test_a_log_is_bounded_while_it_is_written(tmp_path: Path) -> None:
    code = "import sys, time\nfor _ in range(25): print('x' * 1_000_000, flush=True)\nprint('end', flush=True)\ntime.sleep(600)"
    process = a_process(tmp_path, code)
    process.start()
    process.wait_until(lambda: process.last_log_lines(1) == ["end"], what="the last line", timeout_seconds=30)
    process.bound_log()
    assert process.log.stat().st_size == 0
    assert process.log.with_suffix(".log.1").stat().st_size > 25_000_000
    process.stop(grace_seconds=10)


def test_a_full_disk_ends_no_supervisor_and_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    supervisor = Supervisor(said.append)
    process = a_process(tmp_path, "import time; print('x' * 21_000_000, flush=True); time.sleep(600)")
    (tmp_path / "logs").mkdir()
    # As of a disk that has no room for another file.
    process.log.with_suffix(".log.1").symlink_to("/dev/full")
    supervisor.start(process)
    check_until(supervisor, lambda: bool(said), "word of the full disk")
    for _ in range(10):
        supervisor.check()
    assert len(said) == 1 and said[0].startswith(f"can't cut {process.log}: [Errno 28] No space left on device; make")
    assert process.exit_code() is None
    supervisor.stop("worker", grace_seconds=10)


@pytest.mark.long
def test_a_process_that_a_full_disk_keeps_from_starting_does_not_run_twice_when_it_has_room_again(
    tmp_path: Path,
) -> None:
    said: list[str] = []
    process = a_process(tmp_path, "import time; print('at work', flush=True); time.sleep(600)")
    supervisor = Supervisor(said.append)
    supervisor.start(process)
    first = process.pid
    assert first is not None
    pid_file = tmp_path / "run" / "worker.json"
    pid_file.unlink()
    pid_file.symlink_to("/dev/full")
    os.kill(first, signal.SIGKILL)
    check_until(supervisor, lambda: any("can't" in line for line in said), "word of the full disk")
    assert said[-1].startswith("can't start worker again: [Errno 28] No space left on device; make room")
    assert process.pid not in (None, first) and process.exit_code() is not None, "it doesn't run unseen"

    pid_file.unlink()
    check_until(supervisor, lambda: supervisor.processes["worker"].restarts == 1, "the restart")
    assert process.exit_code() is None and running(tmp_path).keys() == {"worker"}
    supervisor.stop("worker", grace_seconds=10)
