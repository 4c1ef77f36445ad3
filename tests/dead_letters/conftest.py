"""A topic of each test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contracts.servers.registry import Registry
from deploy.local.servers.stack import LocalStack
from tests.dead_letters.place import Place


@pytest.fixture
def place(stack: LocalStack) -> Iterator[Place]:
    settings = stack.settings()
    with Registry(settings.registry) as registry:
        yield Place(settings, registry).created()
