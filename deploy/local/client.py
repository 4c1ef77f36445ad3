"""How the commands that need only clients find brokers and registry."""

from __future__ import annotations

import os
from pathlib import Path

from dotenv import dotenv_values

from contracts.settings import Settings, read_settings
from deploy.errors import DeployError
from deploy.local.folder import Folder
from deploy.local.processes.process import running

_BROKERS, _REGISTRY = "HEADRACE_KAFKA__BOOTSTRAP_SERVERS", "HEADRACE_REGISTRY__URL"


def client_settings(directory: Path) -> Settings:
    """Those of the environment if it names brokers or registry, else those of the stack that runs in `directory`.

    Raises DeployError when there is neither.
    """
    return read_settings(Settings, _env_file=env_file(directory))


def client_environment(directory: Path) -> dict[str, str]:
    """The same as variables, for a process: none if the environment names them. Raises DeployError, too."""
    file = env_file(directory)
    return {} if file is None else {name: value or "" for name, value in dotenv_values(file).items()}


def env_file(directory: Path) -> Path | None:
    """The running stack's file of variables; None if the environment names brokers or a registry. Raises DeployError, too."""
    if _BROKERS in os.environ or _REGISTRY in os.environ:
        return None
    folder = Folder(directory)
    if not running(folder.path):
        raise DeployError(
            f"no stack runs in {folder.path}: ./headrace up starts one; for brokers elsewhere set {_BROKERS} and "
            f"{_REGISTRY}"
        )
    return folder.path / "env"
