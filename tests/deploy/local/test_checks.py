"""`headrace test`: it fails when pytest is killed; and the wheel, as somebody installs it who has no clone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel brings."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


# The benchmark has a wrong option, so that it never begins.
@pytest.mark.parametrize("arguments", [["test", "--unit"], ["bench", "enrich", "--events", "1"]])
def test_a_command_that_needs_the_tests_says_that_it_needs_a_clone(installed: Path, arguments: list[str]) -> None:
    code = "from deploy.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        f"headrace: There are no tests and benchmarks in {installed}, for the installed package leaves them out: "
        "run ./headrace in a clone of the repository.\n"
    )


def test_tests_that_are_killed_have_failed_and_no_further_part_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    (tmp_path / "killed.py").write_text(
        "import os, signal\n"
        "def pytest_sessionstart():\n"
        f"    open({str(runs)!r}, 'a').write('.')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code = "from deploy.cli import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "test", "--", "-p", "killed", "-n", "0"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, runs.read_text()) == (128 + signal.SIGKILL, ".")


def test_the_wheel_brings_the_licence_that_it_names(installed: Path) -> None:
    (licence,) = installed.glob("*.dist-info/licenses/LICENSE")
    assert "Apache License" in licence.read_text()
    (metadata,) = installed.glob("*.dist-info/METADATA")
    assert "License-Expression: Apache-2.0" in metadata.read_text()
