"""What Spark keeps on the disk: in a folder of the process's own, which a killed one leaves to the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from spark.runtime.errors import ScratchUnusable
from spark.runtime.scratch import Scratch

_HOLDS = """
import sys, time
from spark.runtime.scratch import Scratch
scratch = Scratch()
scratch.use()
(scratch.first / "block").write_text("of a killed process")
print("there", flush=True)
time.sleep(600)
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "scratch"))
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    return tmp_path / "scratch"


def another(env: dict[str, str]) -> subprocess.Popen[str]:
    """A process that has a folder."""
    process = subprocess.Popen([sys.executable, "-c", _HOLDS], env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    return process


def test_it_is_where_spark_and_s3a_look_and_is_gone_with_the_process(base: Path) -> None:
    scratch = Scratch()
    scratch.use()
    assert os.environ["SPARK_LOCAL_DIRS"] == os.environ["LOCAL_DIRS"] == str(scratch.first)
    assert scratch.first.parent == base
    (scratch.first / "blockmgr" / "0c").mkdir(parents=True)
    scratch.remove()
    assert list(base.iterdir()) == []
    assert os.environ["SPARK_LOCAL_DIRS"] == str(base)
    assert "LOCAL_DIRS" not in os.environ


def test_what_a_killed_process_leaves_goes_and_what_others_use_stays(base: Path) -> None:
    killed, alive = another(dict(os.environ)), another(dict(os.environ))
    try:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(10)
        assert len(list(base.glob("*/block"))) == 2
        own = Scratch()
        folders = {each for each in base.iterdir() if each.is_dir()}
        assert own.first in folders
        assert len(folders) == 2
        assert len(list(base.glob("*/block"))) == 1
        own.remove()
        assert len(list(base.glob("*/block"))) == 1
    finally:
        alive.kill()
        alive.wait(10)


def test_each_of_several_disks_has_a_folder(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{base},{tmp_path / 'other'}")
    scratch = Scratch()
    scratch.use()
    assert [Path(each).parent for each in os.environ["SPARK_LOCAL_DIRS"].split(",")] == [base, tmp_path / "other"]
    scratch.remove()


def test_without_a_setting_it_is_in_the_system_s_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = Scratch()
    assert scratch.first.parent == tmp_path
    scratch.remove()


def test_a_folder_that_cannot_be_made_is_told_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(file))
    with pytest.raises(
        ScratchUnusable, match=r"temporary files in .*file \(File exists\): free the disk, or name others by"
    ):
        Scratch()
