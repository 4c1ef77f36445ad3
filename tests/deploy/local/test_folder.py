"""What the folder of a stack leaves for others to read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_settings import BaseSettings, SettingsConfigDict

from deploy.errors import DeployError
from deploy.local.folder import Folder


class Home(BaseSettings):
    model_config = SettingsConfigDict(extra="ignore")

    trial_home: str


def by_the_shell(file: Path) -> str:
    command = ["sh", "-c", '. "$1"; printf %s "$TRIAL_HOME"', "sh", str(file)]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()


def by_pydantic(file: Path) -> str:
    return Home(_env_file=file).trial_home  # type: ignore[call-arg]  # the file has it


@pytest.mark.parametrize("home", ["/home/ann", "/home/o'brien", "/home/ann lee", "/home/$ann`#", '/home/"ann"', ""])
def test_the_shell_and_pydantic_read_every_setting_alike(tmp_path: Path, home: str) -> None:
    Folder(tmp_path).write_env({"TRIAL_HOME": home, "TRIAL_AFTER": "x"})
    assert (by_the_shell(tmp_path / "env"), by_pydantic(tmp_path / "env")) == (home, home)


@pytest.mark.parametrize("home", ["/home/o'brien$", '/home/"o\'brien"', "/home/o'`", "/home/a\\b", "/home/${USER}"])
def test_a_setting_that_they_would_read_in_two_ways_is_refused_by_name(tmp_path: Path, home: str) -> None:
    with pytest.raises(DeployError, match=r"TRIAL_HOME is .*: take a folder"):
        Folder(tmp_path).write_env({"TRIAL_HOME": home})
    assert not (tmp_path / "env").exists()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.sampled_from("'\"$`\\{}#= \n\r!") | st.characters(exclude_characters="\0", codec="utf-8")))
def test_whatever_is_written_is_read_alike(tmp_path: Path, value: str) -> None:
    try:
        Folder(tmp_path).write_env({"TRIAL_HOME": value})
    except DeployError:
        return
    assert (by_the_shell(tmp_path / "env"), by_pydantic(tmp_path / "env")) == (value, value)
