from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.files import ContractFiles


@pytest.fixture
def files(tmp_path: Path) -> ContractFiles:
    return ContractFiles(tmp_path)
