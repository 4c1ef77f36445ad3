"""Makes `.venv` from the lock; run by the `headrace` script with the machine's own Python, so it imports nothing else.

The environment counts once it carries the stamp, which is written last: an interrupted installation is done anew, and
two runs at once do it once.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_NEEDED_MB = 2500
"""What the environment takes (PySpark alone a gigabyte while its wheel is built)."""

_NO_NEWS = ("Requirement already satisfied", "Ignoring ", "Looking in ")
_NO_NETWORK = (
    "name resolution",
    "dns error",
    "NewConnectionError",
    "timed out",
    "error sending request",
    "refused",
    "from versions: none",
)
_WRONG_CHECKSUM = ("DO NOT MATCH THE HASHES", "ash mismatch")


class InstallationFailed(Exception):
    """One sentence with the cure."""


def ensure_environment(root: Path, stamp: str) -> None:
    """Make or renew `root/.venv`; raises InstallationFailed, after removing a new one that is half-made."""
    environment = root / ".venv"
    stamp_file = environment / "headrace-stamp"
    folder = os.open(root, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another run that makes the same environment")
            fcntl.flock(folder, fcntl.LOCK_EX)
        if stamp_file.exists() and stamp_file.read_text() == stamp:
            return
        # While packages change, the stamp is put aside: it says that a whole environment is being renewed in place.
        renewed = stamp_file.with_suffix(".renewed")
        if stamp_file.exists():
            stamp_file.replace(renewed)
        anew = not renewed.exists()
        try:
            _install(root, environment, anew=anew)
        except InstallationFailed:
            if anew:
                shutil.rmtree(environment, ignore_errors=True)
            raise
        stamp_file.write_text(stamp)
        renewed.unlink(missing_ok=True)
    finally:
        os.close(folder)


def _install(root: Path, environment: Path, *, anew: bool) -> None:
    install = install_lock(environment, root / "deploy" / "locks" / "local.txt", anew=anew)
    # hatchling is in the lock, so building the project asks for nothing more.
    _run([*install, "--no-deps", "--no-build-isolation", "--editable", str(root)], root)


def install_lock(environment: Path, lock: Path, *, anew: bool) -> list[str]:
    """Make an environment what its lock says; returns the command that installs more into it. Raises InstallationFailed."""
    root = environment.parent
    python = environment / "bin" / "python"
    uv = shutil.which("uv")
    _say(f"making {environment} from {lock.name} with {'uv' if uv else 'pip'}; this takes minutes, once")
    free = shutil.disk_usage(root).free // 1_000_000
    if anew and free < _NEEDED_MB:
        raise InstallationFailed(
            f"Only {free} MB are free in {root} where {_NEEDED_MB} are needed: make room, and try again."
        )
    if anew:
        _make_venv(environment, with_pip=not uv)
    if uv:
        _run([uv, "pip", "sync", "--require-hashes", "--python", str(python), str(lock)], root)
        return [uv, "pip", "install", "--python", str(python)]
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
        _run([str(python), "-m", "ensurepip"], root)  # it was made by uv, which isn't on PATH now
    _run([*pip, "install", "--no-deps", "--require-hashes", "--progress-bar=off", "-r", str(lock)], root)
    return [*pip, "install"]


def _make_venv(environment: Path, *, with_pip: bool) -> None:
    try:
        import ensurepip  # noqa: F401  (Debian keeps it in a package of its own, and venv then fails half-way)
        import venv
    except ImportError as error:
        raise InstallationFailed(
            f"{sys.executable} has no venv module: install it (Debian and Ubuntu: the package python3-venv),"
            " or name another Python by HEADRACE_PYTHON."
        ) from error
    try:
        venv.create(environment, clear=True, with_pip=with_pip, symlinks=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallationFailed(
            f"{environment} couldn't be made ({error}): check the folder's rights and space."
        ) from error


def _run(command: Sequence[str], root: Path) -> None:
    """Run an installer, passing on what it says; raises InstallationFailed with the likeliest cause."""
    said = []
    # Without VIRTUAL_ENV and PYTHONPATH: neither another environment nor other packages may mix in.
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.lstrip().startswith(_NO_NEWS):
                print(f"  {line.rstrip()}", file=sys.stderr, flush=True)
            said.append(line)
    if process.returncode == 0:
        return
    output = "".join(said)
    if "No space left on device" in output:
        raise InstallationFailed(
            f"The disk that holds {root} or the temporary folder is full: make room, and try again."
        )
    if any(word in output for word in _WRONG_CHECKSUM):
        raise InstallationFailed(
            "A package has another checksum than the lock says: check your package index or mirror."
        )
    if any(word in output for word in _NO_NETWORK):
        raise InstallationFailed(
            "The package index can't be reached: check the network, proxy or mirror, and try again."
        )
    raise InstallationFailed(
        f"{Path(command[0]).name} failed with exit code {process.returncode}: what it said is above."
    )


def _say(line: str) -> None:
    print(f"headrace: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        ensure_environment(Path(sys.argv[1]), sys.argv[2])
    except InstallationFailed as failure:
        sys.exit(f"headrace: {failure}")
    except KeyboardInterrupt:
        sys.exit("headrace: interrupted; the next run does the installation anew.")
