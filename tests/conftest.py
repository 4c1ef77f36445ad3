"""What tests of every area share: one real local stack per run, on free ports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.local.stack import LocalStack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """Broker, registry and S3 server with contracts registered, topics and bucket created; tests use names of their own."""
    with LocalStack(tmp_path_factory.mktemp("stack")) as running:
        running.bootstrap()
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the stack is a system test."""
    for item in items:
        if "stack" in getattr(item, "fixturenames", ()):
            item.add_marker("system")
