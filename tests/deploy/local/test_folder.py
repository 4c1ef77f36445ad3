"""What the folder of a stack leaves for others to read."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_settings import BaseSettings, SettingsConfigDict

from deploy.errors import DeployError
from deploy.local.folder import Folder
from deploy.local.once import status


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


def test_a_folder_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "env").write_text("MINE=1")
    with pytest.raises(DeployError, match="is no stack's folder, and has env, which"), Folder(tmp_path).owned(print):
        pass
    assert [each.name for each in tmp_path.iterdir()] == ["env"]


def test_a_stacks_folder_is_emptied_of_its_data_and_not_of_what_they_point_to(tmp_path: Path) -> None:
    folder, elsewhere = Folder(tmp_path / "stack"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    with folder.owned(print):
        (folder.path / "s3").mkdir()
        (folder.path / "kafka").symlink_to(elsewhere)
        (folder.path / "mine").touch()
        folder.empty()
    assert sorted(each.name for each in folder.path.iterdir()) == ["mine", "owner"]
    assert (elsewhere / "file").exists()


@pytest.mark.parametrize("name", ["a,b", "a;b"])
def test_a_path_that_the_servers_would_cut_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DeployError, match=f"its path has '{name[1]}'"), Folder(tmp_path / name).owned(print):
        pass


def test_secrets_are_nobody_elses_though_the_file_was_there(tmp_path: Path) -> None:
    (tmp_path / "env").touch(0o644)
    Folder(tmp_path).write_env({"KEY": "secret"})
    assert (tmp_path / "env").stat().st_mode & 0o077 == 0


def test_one_that_starts_is_not_called_absent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Folder(tmp_path).owned(lambda _: None):
        assert not status(tmp_path, as_json=False)
        assert not status(tmp_path, as_json=True)
    told = capsys.readouterr().out.splitlines()
    assert told == [
        f"the stack in {tmp_path} is starting, or ending: its `up` says how far it is",
        '{"running": false, "starting": true}',
    ]
    assert not status(tmp_path, as_json=True)
    assert capsys.readouterr().out == '{"running": false}\n'


def test_one_that_is_stopped_by_ctrl_z_is_asked_too(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from deploy.local.folder import Folder\n"
        "with Folder(Path(sys.argv[1])).owned(print):\n    print('up', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        owner.send_signal(signal.SIGSTOP)
        said: list[str] = []
        assert Folder(tmp_path).stop(said.append)
        assert owner.wait(30) == -signal.SIGTERM
    assert said == [f"asking headrace up (pid {owner.pid}) to stop"]
