"""The fork that the tests share."""

from __future__ import annotations

import pytest

from tests.deploy.clone import Clone
from tests.second_domain.fork import fork


@pytest.fixture(scope="package")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """With what is generated from its contracts."""
    made = fork(tmp_path_factory.mktemp("fork"))
    assert "wrote events/hires_started.py" in made.headrace("contracts", "generate")
    return made
