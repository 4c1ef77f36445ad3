"""The folders for what Spark can't hold in memory: each process has its own, and removes what killed ones have left."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog

from spark.runtime.errors import ScratchUnusable

_log = structlog.get_logger(__name__)

_DIRECTORIES = "SPARK_LOCAL_DIRS"
"""Spark's own variable: folders with commas between."""
_S3A = "LOCAL_DIRS"
"""Hadoop's, for blocks on their way to S3."""
_PREFIX, _LOCK = "headrace-scratch-", ".lock"


class Scratch:
    """A folder of this process's own in each of those that `SPARK_LOCAL_DIRS` names (default: the system's for temporary files).

    Beside it lies a file that is locked as long as the process lives, however it ends. One that is not locked any more belongs to a folder that nobody
    uses. Spark removes its files as it ends, but not those of a process that was killed: each left some ten megabytes, until the disk was full.
    """

    def __init__(self) -> None:
        """It is removed with the process at the latest. Raises ScratchUnusable if a folder can't be made there."""
        self._given = {name: os.environ.get(name) for name in (_DIRECTORIES, _S3A)}
        bases = [Path(each) for each in (self._given[_DIRECTORIES] or tempfile.gettempdir()).split(",") if each]
        self._owned: list[tuple[Path, int]] = []
        for base in bases:
            try:
                base.mkdir(parents=True, exist_ok=True)
                _remove_leftovers(base)
                self._owned.append(_own(base))
            except OSError as error:
                self.remove()
                raise ScratchUnusable(
                    f"Spark can't have a folder for temporary files in {base} ({error.strerror}): free the disk, or name others by {_DIRECTORIES}"
                ) from error
        atexit.register(self.remove)

    @property
    def first(self) -> Path:
        """The one for temporary files that are in one place only."""
        return self._owned[0][0]

    def use(self) -> None:
        """Let a JVM that is started from now on have its files there."""
        os.environ[_DIRECTORIES] = ",".join(str(folder) for folder, _ in self._owned)
        os.environ[_S3A] = str(self.first)

    def remove(self) -> None:
        """With all that is in it; the JVM has ended."""
        for name, value in self._given.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        atexit.unregister(self.remove)
        while self._owned:
            folder, lock = self._owned.pop()
            _remove(folder)
            os.close(lock)


def _own(base: Path) -> tuple[Path, int]:
    """A new folder, and its lock."""
    while True:
        lock, name = tempfile.mkstemp(_LOCK, _PREFIX, base)
        if _take(lock, Path(name)):
            break
        # Another process has taken it for a leftover in the moment before it was locked.
        os.close(lock)
    folder = Path(name).with_suffix("")
    folder.mkdir(mode=0o700)
    return folder, lock


def _remove_leftovers(base: Path) -> None:
    for name in _locks(base):
        try:
            lock = os.open(name, os.O_RDWR)
        except OSError:
            continue  # somebody else's, or gone
        if _take(lock, name):
            _log.info("removing what a killed process has left", folder=str(name.with_suffix("")))
            _remove(name.with_suffix(""))
        os.close(lock)


def _locks(base: Path) -> Iterator[Path]:
    yield from sorted(base.glob(f"{_PREFIX}*{_LOCK}"))


def _take(lock: int, name: Path) -> bool:
    """Whether it could be locked, and still is the file of that name."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_ino == name.stat().st_ino
    except OSError:
        return False


def _remove(folder: Path) -> None:
    """Its lock last: who has it open still holds it."""
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        folder.with_suffix(_LOCK).unlink()
