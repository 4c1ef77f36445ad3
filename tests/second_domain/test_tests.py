"""A fork keeps the machinery's own tests as they are."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from deploy.local.processes.deployable import ROOT
from tests.second_domain.domain import files_of_tests, is_domain
from tests.second_domain.fork import fork

_WITHOUT = ("tests/bench", "tests/faults", "tests/images")
"""What needs loads and containers of the fork's own, which the bicycles have none of."""


def test_all_but_those_of_the_domain_can_be_collected(tmp_path: Path) -> None:
    made = fork(tmp_path)
    made.headrace("contracts", "generate")
    # Links stay links: what the sample has of the platform's is the fork's.
    ignored = shutil.ignore_patterns("__pycache__", "tree")
    shutil.copytree(ROOT / "tests", made.root / "tests", symlinks=True, ignore=ignored)
    for path in filter(is_domain, files_of_tests(ROOT)):
        (made.root / path).unlink()
    options = [f"--ignore={path}" for path in _WITHOUT]
    done = made.run("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    (count,) = re.findall(r"^(\d+) tests collected", done.stdout, re.MULTILINE)
    assert int(count) > 1_500
