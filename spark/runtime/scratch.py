"""The folders for what Spark keeps on the disk: each process has its own, and removes what killed ones have left."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from spark.runtime.errors import ScratchUnusable

_log = structlog.get_logger(__name__)

_DIRECTORIES = "SPARK_LOCAL_DIRS"
"""Spark's own variable: folders with commas between."""
_S3A = "LOCAL_DIRS"
"""Hadoop's, for blocks on their way to S3."""
_PREFIX, _LOCK = "headrace-scratch-", ".lock"


class _Owned(NamedTuple):
    """A folder of this process, the file beside it, and that as it is open and locked."""

    folder: Path
    name: Path
    lock: int


class Scratch:
    """A folder of this process's own in each of those that `SPARK_LOCAL_DIRS` names, and in the system's for temporary files.

    Beside each lies a file that this process has locked by `flock`, and its Java process by `fcntl`: the system frees both, however they end. A file that
    nobody has locked belongs to a folder that nobody uses. Spark removes its files as it ends, but not those of a process that was killed: each left some
    ten megabytes, until the disk was full.
    """

    def __init__(self) -> None:
        """It is removed with the process at the latest. Raises ScratchUnusable if no folder can be made."""
        self._pid = os.getpid()
        self._java_locks: list[Any] = []
        temporary = Path(tempfile.gettempdir())
        named = [Path(each.strip()) for each in os.environ.get(_DIRECTORIES, "").split(",") if each.strip()]
        bases = named or [temporary]
        self._owned: dict[Path, _Owned] = {}
        failures: dict[Path, OSError] = {}
        for base in dict.fromkeys([*bases, temporary]):
            try:
                base.mkdir(parents=True, exist_ok=True)
                _remove_leftovers(base)
                self._owned[base] = _own(base)
            except OSError as error:
                failures[base] = error
        self.folders = [self._owned[base].folder for base in bases if base in self._owned]
        """For blocks and states; of several disks those that take a folder, as Spark does it."""
        if not self.folders or temporary not in self._owned:
            self.remove()
            why = "; ".join(f"{base}: {error.strerror}" for base, error in failures.items())
            raise ScratchUnusable(
                f"Spark can't have a folder for its files ({why}): free the disk, or name others by {_DIRECTORIES}"
            )
        self.temporary = self._owned[temporary].folder
        """For other temporary files, such as libraries, which not every disk may run."""
        atexit.register(self.remove)

    @property
    def locks(self) -> list[Path]:
        """The files that a Java process is to lock, too."""
        return [each.name for each in self._owned.values()]

    def hold(self, locks: Sequence[Any]) -> None:
        """Keep the Java process's locks: they last as long as these are known to somebody."""
        self._java_locks = [*locks]

    @property
    def is_held(self) -> bool:
        """Whether the Java process has them."""
        return bool(self._java_locks)

    @contextmanager
    def environment(self) -> Iterator[None]:
        """A Java process that is started in it has its files here."""
        before = {name: os.environ.get(name) for name in (_DIRECTORIES, _S3A)}
        os.environ[_DIRECTORIES] = ",".join(map(str, self.folders))
        os.environ[_S3A] = str(self.folders[0])
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def remove(self) -> None:
        """With all that is in it. What a Java process uses still is left to whoever starts next."""
        if os.getpid() != self._pid:
            return  # a child, which has no folder of its own
        atexit.unregister(self.remove)
        while self._owned:
            _, owned = self._owned.popitem()
            if _is_free(owned.lock):
                _remove(owned.name)
            os.close(owned.lock)


def _own(base: Path) -> _Owned:
    while True:
        lock, text = tempfile.mkstemp(_LOCK, _PREFIX, base)
        name = Path(text)
        try:
            if _take(lock, name):
                folder = name.with_suffix("")
                folder.mkdir(mode=0o700)
                return _Owned(folder, name, lock)
        except OSError:
            os.close(lock)
            name.unlink(missing_ok=True)
            raise
        # Another process has taken it for a leftover in the moment before it was locked.
        os.close(lock)


def _remove_leftovers(base: Path) -> None:
    for name in sorted(base.glob(f"{_PREFIX}*{_LOCK}")):
        # Somebody else's, or gone, or on a disk without locks.
        with suppress(OSError):
            lock = os.open(name, os.O_RDWR)
            try:
                if _take(lock, name) and _is_free(lock):
                    _log.info("removing what a killed process has left", folder=str(name.with_suffix("")))
                    _remove(name)
            finally:
                os.close(lock)


def _take(lock: int, name: Path) -> bool:
    """Whether no process has locked the file, which is locked now, and it still has that name. Raises OSError where locks are not known."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(lock).st_ino == name.stat().st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _is_free(lock: int) -> bool:
    """Whether no Java process has locked the file."""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _remove(name: Path) -> None:
    """The folder, and the file beside it; that stays with a folder of which something is left."""
    folder = name.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        name.unlink(missing_ok=True)
