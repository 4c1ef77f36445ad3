"""Asked to end, alerting ends, also where brokers don't answer."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.servers.stack import LocalStack
from tests.alerting.worker import SECONDS, Worker, wait_for
from tests.frozen import frozen
from tests.sample.stack import new_stack

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """A stack that nobody else uses: a broker that is frozen for longer than its session leads no partition for a while."""
    with new_stack(tmp_path_factory.mktemp("frozen")) as running:
        yield running


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "rules.yaml"
    file.write_text("rules: []\n")
    return file


def heeds_sigterm(pid: int) -> bool:
    """Whether the process has a handler for it by now."""
    [caught] = re.findall(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_while_it_works(stack: LocalStack, rules: Path) -> None:
    with Worker(stack, HEADRACE_RULES_FILE=rules) as worker, frozen(stack.kafka.process):
        worker.process.send_signal(signal.SIGTERM)
        # Clients give up after more than that.
        assert worker.wait(SECONDS / 2) == 0


def test_before_it_has_begun(stack: LocalStack, rules: Path) -> None:
    worker = Worker(stack, HEADRACE_RULES_FILE=rules)
    wait_for(lambda: worker.logged("serving"), "the worker to serve its health")
    with frozen(stack.kafka.process):
        wait_for(lambda: heeds_sigterm(worker.process.pid), "the worker to heed SIGTERM")
        worker.process.send_signal(signal.SIGTERM)
        assert worker.wait() == 0
