"""The folder of a stack: who owns it, which ports it uses, how it is emptied."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from deploy.errors import DeployError, StackBusy
from deploy.local.processes.deployable import deployables
from deploy.local.processes.process import stop_leftovers
from deploy.local.servers.ports import Ports
from deploy.local.servers.stack import STOP_ORDER

_OURS = ("kafka", "registry", "s3", "logs", "run", "state.json", "env")
_IN_NO_PATH = ",;\n\r"
"""What Kafka takes for the end of a folder, the registry's database for that of an address, and both for that of a line."""
_GRACE_SECONDS = 120
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 10.0


class Folder:
    """`.headrace/`, or where `--dir` points."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock = self.path / "owner"

    @contextmanager
    def owned(self, say: Callable[[str], None]) -> Iterator[None]:
        """Hold the folder, after stopping what a killed owner left.

        Raises DeployError when it can't be made or is somebody else's, StackBusy when another `up` holds it.
        """
        if found := [each for each in _IN_NO_PATH if each in str(self.path)]:
            raise DeployError(
                f"{self.path} can't be the stack's folder: its path has {found[0]!r}. Take another by --dir."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeployError(
                f"{self.path} can't be the stack's folder ({error.strerror}): take another by --dir."
            ) from error
        if not self._lock.exists() and (foreign := [each for each in _OURS if (self.path / each).exists()]):
            raise DeployError(
                f"{self.path} is no stack's folder, and has {', '.join(foreign)}, which a stack would overwrite: take another by --dir."
            )
        with self._lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackBusy(
                    f"A stack runs in {self.path} already: stop it by ./headrace down, or take another folder by --dir."
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            self._stop_leftovers(say)
            try:
                yield
            finally:
                # A process that an interrupted start has begun is known to nobody.
                self._stop_leftovers(say)

    def is_owned(self) -> bool:
        """Whether an `up` runs on it."""
        return self._owner() is not None

    def stop(self, say: Callable[[str], None]) -> bool:
        """Ask the `up` that runs on it to stop and wait for its end; stop leftovers. False if there was nothing to stop.

        Raises DeployError if it is another user's.
        """
        try:
            file = self._lock.open("r+")
        except FileNotFoundError:
            return False
        with file:
            owner = None
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = self._owner()
                if owner is not None:
                    say(f"asking headrace up (pid {owner}) to stop")
                    _ask(owner)
                _wait_for(file, say)
            # The lock is held to the end, so that no `up` begins meanwhile, and the pid of one that is gone is nobody's.
            file.truncate(0)
            return self._stop_leftovers(say) > 0 or owner is not None

    def _stop_leftovers(self, say: Callable[[str], None]) -> int:
        order = (*(each.name for each in deployables().deployables), *STOP_ORDER)
        return stop_leftovers(self.path, order=order, grace_seconds=_GRACE_SECONDS, say=say)

    def empty(self) -> None:
        """Delete all data of the stack, and nothing that isn't the stack's."""
        for name in _OURS:
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def forget_state(self) -> None:
        """Before a new run: the state of the one before is none of its own."""
        (self.path / "state.json").unlink(missing_ok=True)

    def write_state(self, ports: Ports, processes: list[dict[str, Any]]) -> None:
        """Leave for `status` what only the owner knows."""
        partial = self.path / "state.json.partial"
        partial.write_text(json.dumps({"ports": asdict(ports), "processes": processes}))
        partial.replace(self.path / "state.json")

    def read_state(self) -> tuple[Ports, list[dict[str, Any]]] | None:
        """The ports and process states as last written, None if there never were any."""
        try:
            state = json.loads((self.path / "state.json").read_text())
        except FileNotFoundError:
            return None
        return Ports(**state["ports"]), state["processes"]

    def write_env(self, settings: Mapping[str, str]) -> None:
        """The settings as a file for `set -a; . FILE` and for pydantic, readable by its owner only: it holds the S3 keys.

        Raises DeployError when there is no way to write a value that both read alike.
        """
        lines = "".join(f"{name}={_quoted(name, value)}\n" for name, value in settings.items())
        with os.fdopen(os.open(self.path / "env", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                os.fchmod(file.fileno(), 0o600)  # one that was there keeps its mode
            file.write(lines)

    def _owner(self) -> int | None:
        """The pid of the `up` that holds the lock: a lock is let go when its holder ends, however it ends."""
        try:
            with self._lock.open() as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    # None: `down` has it, and asks nobody any more.
                    text = file.read()
                    return int(text) if text else None
        except FileNotFoundError:
            pass
        return None


def _ask(owner: int) -> None:
    """SIGTERM, and SIGCONT: one that Ctrl-Z has stopped hears of nothing."""
    try:
        for number in (signal.SIGTERM, signal.SIGCONT):
            os.kill(owner, number)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise DeployError(f"headrace up (pid {owner}) is another user's: stop it as that one.") from None


def _wait_for(lock: IO[str], say: Callable[[str], None]) -> None:
    """Until the lock is let go; says every ten seconds that it waits."""
    began = told = time.monotonic()
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (now := time.monotonic()) - told >= _TELL_SECONDS:
            told = now
            say(f"it has not ended yet, {now - began:.0f} s after it was asked to")
        time.sleep(_LOOK_SECONDS)


def _quoted(name: str, value: str) -> str:
    # Pydantic reads by python-dotenv, which heeds backslashes and ${…} within single quotes too, and ends lines as Python does.
    if not any(each in value for each in ("\\", "${", "\r")):
        if "'" not in value:
            return f"'{value}'"
        if not any(each in value for each in '"$`'):
            return f'"{value}"'
    raise DeployError(
        f"{name} is {value!r}, and no quotes make the shell and dotenv read that alike: take a folder whose path has fewer "
        "special characters."
    )
