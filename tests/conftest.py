"""What tests of every area share: one real local stack for each process of a run, on free ports."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from deploy.local.servers.stack import LocalStack
from tests.sample.stack import new_stack

_LONGEST = (
    "tests/spark/queries/real_time/test_changeover.py",
    "tests/spark/aggregates/test_stateful.py",
    "tests/spark/queries/real_time/test_real_time.py",
    "tests/system/",
    "tests/spark/unions/test_audited_losses.py",
    "tests/spark/unions/test_losses.py",
    "tests/contracts/test_subscriber.py",
    "tests/spark/queries/test_lake.py",
    "tests/services/test_replay.py",
    "tests/spark/queries/test_repair.py",
    "tests/spark/sinks/kafka/test_early_end.py",
    "tests/spark/sinks/delta/test_newest_rows.py",
    # Of the quick part, and of the long one.
    "tests/spark/runtime/test_session.py",
    "tests/deploy/local/test_up.py",
    "tests/second_domain/test_way.py",
)
"""These begin first, so that files side by side end at about the same time."""


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Broker, registry and S3 server with the tree's contracts and the sample's; tests use names of their own."""
    with new_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running


def pytest_configure(config: pytest.Config) -> None:
    """SIGTERM and SIGHUP end a run as Ctrl-C does, and stop its stacks. How long an example takes says more of the machine than of us."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as by nohup
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("many", settings.get_profile("headrace"), max_examples=5_000)
    settings.load_profile(config.getoption("--hypothesis-profile") or "headrace")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the stack is a system test; the longest come first."""
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker("system")
    items.sort(
        key=lambda item: next((at for at, file in enumerate(_LONGEST) if item.nodeid.startswith(file)), len(_LONGEST))
    )
