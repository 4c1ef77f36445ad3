"""What Spark keeps on the disk: in a folder of the process's own, which a killed one leaves to the next."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.runtime import session
from spark.runtime.errors import ScratchUnusable
from spark.runtime.scratch import Scratch
from spark.runtime.settings import Cluster, SparkSettings

_HOLDS = """
import sys, time
from spark.runtime.scratch import Scratch
scratch = Scratch()
(scratch.folders[0] / "block").write_text("of a killed process")
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
    assert "there\n" in iter(process.stdout.readline, "")
    return process


def test_it_is_where_spark_and_s3a_look_and_is_gone_with_the_process(base: Path) -> None:
    scratch = Scratch()
    with scratch.environment():
        assert os.environ["SPARK_LOCAL_DIRS"] == os.environ["LOCAL_DIRS"] == str(scratch.folders[0])
    assert os.environ["SPARK_LOCAL_DIRS"] == str(base)
    assert "LOCAL_DIRS" not in os.environ
    assert scratch.folders[0].parent == base
    assert scratch.temporary.parent == Path(tempfile.gettempdir())
    (scratch.folders[0] / "blockmgr" / "0c").mkdir(parents=True)
    temporary = scratch.temporary
    scratch.remove()
    assert list(base.iterdir()) == []
    assert not temporary.exists()


def test_what_a_killed_process_leaves_goes_and_what_others_use_stays(base: Path) -> None:
    killed, alive = another(dict(os.environ)), another(dict(os.environ))
    try:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait(10)
        assert len(list(base.glob("*/block"))) == 2
        own = Scratch()
        folders = {each for each in base.iterdir() if each.is_dir()}
        assert own.folders[0] in folders
        assert len(folders) == 2
        assert len(list(base.glob("*/block"))) == 1
        own.remove()
        assert len(list(base.glob("*/block"))) == 1
    finally:
        alive.kill()
        alive.wait(10)


def test_what_a_java_process_uses_still_stays(base: Path) -> None:
    """Its driver was killed, and it has not noticed yet."""
    killed = another(dict(os.environ))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(10)
    (lock,) = base.glob("*.lock")
    holds = f"import fcntl, time; f = open({str(lock)!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); time.sleep(600)"
    java = subprocess.Popen([sys.executable, "-c", holds], stdout=subprocess.PIPE)
    try:
        assert java.stdout is not None
        java.stdout.readline()
        Scratch().remove()
        assert len(list(base.glob("*/block"))) == 1
    finally:
        java.kill()
        java.wait(10)
    Scratch().remove()
    assert list(base.iterdir()) == []


def test_a_session_s_java_process_has_the_lock_however_often_it_is_asked_for(spark: SparkSession) -> None:
    session.start_session(SparkSettings(spark=Cluster(master="local[4]")), "the same")
    assert spark._jvm is not None
    for _ in range(3):
        gc.collect()
        spark._jvm.java.lang.System.gc()
        # What it closes, it closes in a thread of its own.
        time.sleep(0.5)
    held = session._scratch
    assert held is not None
    for name in held.locks:
        with name.open("r+") as file, pytest.raises((BlockingIOError, PermissionError)):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_child_removes_nothing(base: Path) -> None:
    scratch = Scratch()
    if (child := os.fork()) == 0:
        scratch.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert scratch.folders[0].is_dir()
    scratch.remove()


def test_a_file_stays_with_a_folder_that_could_not_be_removed(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch()
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        scratch.remove()
    assert len(list(base.iterdir())) == 2
    Scratch().remove()
    assert list(base.iterdir()) == []


def test_a_disk_without_locks_is_told(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", unknown)
    with pytest.raises(ScratchUnusable, match="No locks available"):
        Scratch()
    assert list(base.iterdir()) == []


def test_each_of_several_disks_has_a_folder_but_one_that_is_broken(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{base}, {tmp_path / 'other'},,{tmp_path / 'file'}")
    scratch = Scratch()
    assert [each.parent for each in scratch.folders] == [base, tmp_path / "other"]
    scratch.remove()


@pytest.mark.parametrize("given", [None, "", ","])
def test_without_a_setting_it_is_in_the_system_s_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    if given is None:
        monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    else:
        monkeypatch.setenv("SPARK_LOCAL_DIRS", given)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch = Scratch()
    assert [each.parent for each in scratch.folders] == [tmp_path]
    assert scratch.temporary == scratch.folders[0]
    scratch.remove()


def test_a_folder_that_cannot_be_made_is_told_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(file))
    with pytest.raises(ScratchUnusable, match=r"its files \(.*file: File exists\): free the disk, or name others by"):
        Scratch()
