"""Commands that need Spark: they run in a process of their own, with Java and the jars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from deploy.errors import DeployError
from deploy.local.client import client_environment
from deploy.local.downloads.spark_env import spark_env


def run(name: str, options: Sequence[str], directory: Path) -> int:
    """`python -m spark NAME OPTIONS` for the brokers that the environment or the stack in `directory` names; its status.

    Raises DeployError when there is neither.
    """
    with subprocess.Popen(_command(name, options), env=_environment(client_environment(directory))) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The terminal has told it, too; what it has open must be ended first.
                continue


def lines(name: str, options: Sequence[str], directory: Path) -> Iterator[str]:
    """The lines that the same command prints, as they come. Raises DeployError too if it fails: it has said why by then, on stderr."""
    env = _environment(client_environment(directory))
    with subprocess.Popen(_command(name, options), env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield from process.stdout
    if process.returncode:
        raise DeployError(f"python -m spark {name} failed (status {process.returncode}): why stands above")


def output(name: str, options: Sequence[str], directory: Path) -> str:
    """All of them."""
    return "".join(lines(name, options, directory))


def _command(name: str, options: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "spark", name, *options]


def _environment(stack: Mapping[str, str]) -> dict[str, str]:
    """Of Spark's warnings and ours a person gets only what is wrong."""
    said = {"HEADRACE_LOG_FORMAT": "console", "HEADRACE_LOG_LEVEL": "ERROR"}
    # Ours is last: the JAVA_HOME of a machine may be of any version.
    return {**said, **stack, **os.environ, **spark_env()}
