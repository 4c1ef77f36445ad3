"""What tests of every area share: one real local stack for each of the two processes of a run, on free ports."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from deploy.local.servers.stack import LocalStack
from tests.sample.stack import bring

_LONGEST = (
    "tests/system/",
    "tests/services/test_replay.py",
    "tests/deploy/local/test_up.py",
    "tests/spark/runtime/test_session.py",
    "tests/spark/aggregates/test_stateful.py",
    "tests/spark/queries/test_lake.py",
    "tests/audit/test_planted.py",
    "tests/spark/joins/",
    "tests/spark/aggregates/test_audited_aggregates.py",
    "tests/alerting/test_from_record_to_alert.py",
    "tests/second_domain/test_way.py",
)
"""These begin first, so that files side by side end at about the same time."""
_SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Broker, registry and S3 server with the tree's contracts and the sample's; tests use names of their own."""
    with LocalStack(tmp_path_factory.mktemp("stack")) as running:
        running.bootstrap()
        bring(running)
        yield running


def pytest_configure() -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does, and stop its stacks. How long an example takes says more of the machine than of us."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as by nohup
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("headrace")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the stack is a system test. Side by side the longest come first, and the other files in an order of chance, always the same:
    those that wait for a stack and those that compute stand beside each other.
    """
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker("system")
    if _SIDE_BY_SIDE:
        items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, str]:
    file = item.nodeid.split("::")[0]
    longest = next((at for at, each in enumerate(_LONGEST) if file.startswith(each)), len(_LONGEST))
    return longest, hashlib.sha256(file.encode()).hexdigest()
