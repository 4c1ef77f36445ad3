"""The script `headrace` on a machine that lacks something: one sentence, and nothing half-installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the script needs of a clone, in a folder with a space in its name."""
    root = tmp_path / "a clone"
    for name in ("headrace", "deploy/local/environment.py", "deploy/locks/local.txt", "pyproject.toml", "README.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    return root


def run(clone: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script with the system's basic tools on PATH, and no uv, pip settings or proxy of this machine."""
    tools = clone.parent / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("sh", "dirname", "cksum", "cat"):
        found = shutil.which(name)
        assert found is not None
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to(found)
    clean = {
        "PATH": str(tools),
        "HOME": str(clone.parent),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        **environment,
    }
    return subprocess.run(
        [clone / "headrace", "status"], env=clean, capture_output=True, text=True, timeout=200, check=False
    )


def test_no_python_is_one_sentence(clone: Path) -> None:
    finished = run(clone)
    assert finished.returncode == 1
    assert finished.stderr == (
        "headrace: no Python 3.11 or newer was found: install one, or name it by HEADRACE_PYTHON.\n"
    )
    assert not (clone / ".venv").exists()


def test_no_network_is_one_sentence_and_leaves_nothing(clone: Path) -> None:
    finished = run(clone, HEADRACE_PYTHON=sys.executable, PIP_INDEX_URL="http://127.0.0.1:9/simple")
    assert finished.returncode == 1
    assert finished.stderr.splitlines()[-1] == (
        "headrace: The package index can't be reached: check the network, proxy or mirror, and try again."
    )
    assert not (clone / ".venv").exists()


def test_an_environment_that_cannot_be_renewed_stays(clone: Path) -> None:
    environment = clone / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (environment / "headrace-stamp").write_text("of an older lock")
    for _ in range(2):
        finished = run(clone, HEADRACE_PYTHON=sys.executable, PIP_INDEX_URL="http://127.0.0.1:9/simple")
        assert "can't be reached" in finished.stderr
        assert (environment / "bin" / "python").exists()
        assert not (environment / "headrace-stamp").exists()


def test_an_environment_with_the_locks_stamp_is_used_as_it_is(clone: Path) -> None:
    command = clone / ".venv" / "bin" / "headrace"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\necho "in $PWD: $*"\n')
    command.chmod(0o755)
    lock = (clone / "deploy/locks/local.txt").read_bytes()
    checksum = subprocess.run(["cksum"], input=lock, capture_output=True, check=True).stdout.decode().strip()
    (clone / ".venv" / "headrace-stamp").write_text(f"{checksum} {clone}")
    finished = run(clone)
    assert (finished.returncode, finished.stdout) == (0, f"in {Path.cwd()}: status\n")
