"""The local stack's own life, on real processes."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from contracts.definitions.catalog import load_catalog
from contracts.servers.s3 import s3_client
from deploy.errors import PortInUse, ProcessFailed
from deploy.local.processes.process import MARK, NotYet, Process, running, stop_leftovers, tail
from deploy.local.servers.java_properties import property_value
from deploy.local.servers.ports import HOST, Ports
from deploy.local.servers.stack import BUCKET, LocalStack


def a_sleeper(directory: Path, name: str = "sleeper", *, code: str = "import time; time.sleep(600)") -> Process:
    return Process(name, [sys.executable, "-c", code], directory=directory)


@pytest.mark.system
def test_a_bootstrapped_stack_has_topics_bucket_and_three_processes(stack: LocalStack) -> None:
    topics = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers}).list_topics(timeout=10).topics
    declared = load_catalog().topics.values()
    assert {name for each in declared for name in (each.name, each.dead_letter_topic)} <= set(topics)
    assert BUCKET in {bucket["Name"] for bucket in s3_client(stack.settings().s3).list_buckets()["Buckets"]}
    assert set(running(stack.directory)) == {"kafka", "registry", "s3"}


@pytest.mark.system
def test_bootstrapping_twice_changes_nothing(stack: LocalStack) -> None:
    stack.bootstrap()
    assert stack.bootstrap() == []


@pytest.mark.system
def test_secrets_are_readable_by_their_owner_only(stack: LocalStack) -> None:
    for name in ("secret-key", "s3proxy.properties"):
        assert (stack.directory / "s3" / name).stat().st_mode & 0o077 == 0


@pytest.mark.system
def test_a_stack_stops_leaving_nothing_and_keeps_its_data(tmp_path: Path) -> None:
    """Also: in a folder with a space in its name."""
    directory = tmp_path / "a stack"
    with LocalStack(directory) as stack:
        stack.bootstrap()
        processes = list(running(stack.directory).values())
        assert len(processes) == 3
    assert not any(process.is_running() for process in processes)
    with LocalStack(directory) as stack:
        admin = AdminClient({"bootstrap.servers": stack.kafka.bootstrap_servers})
        assert load_catalog().topics.keys() <= admin.list_topics(timeout=10).topics.keys()


def test_a_path_in_a_servers_properties_is_read_back_as_it_is() -> None:
    assert property_value("/home/Jörg B/a\\b/𝄞") == r"/home/J\u00f6rg\u0020B/a\\b/\ud834\udd1e"


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"^Port {port}, which s3 needs, is in use: .*--port-offset"):
            LocalStack(tmp_path, dataclasses.replace(Ports.free(), s3=port)).start()
    assert running(tmp_path) == {}


def test_a_process_that_ends_early_is_named_with_its_last_words(tmp_path: Path) -> None:
    process = a_sleeper(tmp_path, code="print('no such luck'); raise SystemExit(3)")
    process.start()
    with pytest.raises(ProcessFailed, match=r"(?s)^sleeper ended with exit code 3 before it was up.*no such luck"):
        process.wait_until(lambda: False, what="it was up", timeout_seconds=30)


def test_one_that_takes_too_long_is_named_with_what_was_seen_of_it_at_last(tmp_path: Path) -> None:
    seen = iter(["nothing", "it answered 503"])

    def answers() -> bool:
        raise NotYet(next(seen, "it answered 404"))

    process = a_sleeper(tmp_path)
    process.start()
    with pytest.raises(ProcessFailed, match=r"^sleeper: waited 1 s until it was up \(at last: it answered 404\); "):
        process.wait_until(answers, what="it was up", timeout_seconds=1)
    process.stop(grace_seconds=0)


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    process = a_sleeper(tmp_path, code=code)
    process.start()
    process.wait_until(lambda: tail(process.log, 1) == ["up"], what="it ran", timeout_seconds=30)
    assert not process.stop(grace_seconds=0.2)
    assert process.exit_code() == -signal.SIGKILL
    assert running(tmp_path) == {}


def test_a_stale_pid_is_not_killed(tmp_path: Path) -> None:
    """The pid file names a process of somebody else, who got the pid after ours had ended."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        (tmp_path / "run").mkdir()
        record = {"name": "kafka", "pid": stranger.pid}
        (tmp_path / "run" / "kafka.json").write_text(json.dumps(record))
        assert stop_leftovers(tmp_path, order=(), grace_seconds=5, say=print) == 0
        assert stranger.poll() is None
        stranger.kill()
    assert not list((tmp_path / "run").iterdir())


def test_a_pid_that_another_process_of_the_stack_has_now_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    process = a_sleeper(tmp_path, code="import time; time.sleep(600)")
    process.start()
    record = tmp_path / "run" / "kafka.json"
    record.write_text(json.dumps({"name": "kafka", "pid": running(tmp_path)[process.name].pid}))
    assert list(running(tmp_path)) == [process.name]
    process.stop(grace_seconds=5)


def test_what_a_killed_owner_left_is_stopped_with_its_children(tmp_path: Path) -> None:
    owner = (
        "import sys; from pathlib import Path; from deploy.local.processes.process import Process\n"
        'child = \'import subprocess, sys, time; subprocess.Popen([sys.executable, "-c",'
        ' "import time; time.sleep(600)"]); print("up", flush=True); time.sleep(600)\'\n'
        "process = Process('kafka', [sys.executable, '-c', child], directory=Path(sys.argv[1]))\n"
        "process.start(); process.wait_until(lambda: process.last_log_lines(), what='up', timeout_seconds=30)\n"
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run([sys.executable, "-c", owner, str(tmp_path)], env=environment, timeout=60, check=False)
    assert finished.returncode == -signal.SIGKILL
    left = running(tmp_path)["kafka"]
    children = left.children()
    assert left.environ()[MARK] == str(tmp_path) and len(children) == 1
    assert stop_leftovers(tmp_path, order=("kafka",), grace_seconds=5, say=print) == 2
    assert not left.is_running() and not children[0].is_running()
