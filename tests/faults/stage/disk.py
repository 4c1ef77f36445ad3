"""Small disks in memory, which a fault can fill.

Mounting needs rights. `python -m tests.faults` begins itself anew in a mount namespace of its own, where it has them, and
where what it mounts is gone with its last process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_MARK = "HEADRACE_FAULTS_NAMESPACE"


class NotADisk(Exception):
    """The folder is no file system of its own, so filling it would fill the machine's."""


def enter_own_namespace(arguments: list[str]) -> None:
    """Begin this command anew in this process where it may mount; does nothing if it is there already, or can't be."""
    unshare = shutil.which("unshare")
    if _MARK in os.environ or unshare is None:
        return
    enter = [unshare, "--mount", "--map-root-user"]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode == 0:
        os.execve(unshare, [*enter, sys.executable, *arguments], os.environ | {_MARK: "1"})


def mount(folder: Path, megabytes: int) -> bool:
    """Make the folder a disk of this size; False if that is not allowed here."""
    if _MARK not in os.environ:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "headrace-fault", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    """Undo `mount`, where there is one."""
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def filled(folder: Path) -> Iterator[Callable[[], None]]:
    """Fill the disk to its last byte; make room again at the end. What it gives fills it again. Raises NotADisk."""
    if not folder.is_mount():
        raise NotADisk(f"{folder} is no disk of its own: unshare (util-linux) and user namespaces are needed for that")
    filler = folder / "filler"

    def fill() -> None:
        with filler.open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while file.write(b"\0" * size) == size:
                        pass
                except OSError:
                    continue  # full

    try:
        fill()
        yield fill
    finally:
        filler.unlink()
