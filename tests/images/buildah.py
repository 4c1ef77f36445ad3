"""`Buildah`: a builder without a daemon and without an image registry, for root on a Debian-like machine.

The base image is bootstrapped from Debian's packages. Isolation is a chroot, so processes see the machine's network and
processes; what is tested is what lies in the image and how its command behaves.
"""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.images.builder import ROOT, ImageConfig

_BASE = "localhost/headrace/base:bookworm"
_PACKAGES = "python3,python3-venv,ca-certificates"


class Buildah:
    """Builds on a Debian bookworm of its own making, which stays in buildah's storage for the next time."""

    description = "buildah in chroot isolation, on a bootstrapped Debian bookworm"

    @classmethod
    def found(cls) -> Buildah | None:
        """A builder where buildah and debootstrap are installed and may work, which takes root."""
        return cls() if os.geteuid() == 0 and shutil.which("buildah") and shutil.which("debootstrap") else None

    def build(self, image: str, dockerfile: str, **args: str) -> None:
        """Build an image; raises CalledProcessError."""
        if not _exists(_BASE):
            _make_base()
        options = [f"--build-arg={name}={value}" for name, value in {"BASE": _BASE, **args}.items()]
        # Docker's format, because the other has no health checks; layers, so that the next build is quick.
        command = ["buildah", "build", "--isolation=chroot", "--format=docker", "--layers", f"--file={dockerfile}"]
        subprocess.run([*command, *options, f"--tag=localhost/{image}", "."], cwd=ROOT, check=True)

    def config(self, image: str) -> ImageConfig:
        """What the image says of itself."""
        return ImageConfig.of(json.loads(_output("inspect", "--type=image", f"localhost/{image}"))["Docker"]["config"])

    def start(
        self, image: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, user: str | None = None
    ) -> BuildahContainer:
        """Start a container with this whole command, as the image's own user unless one is named."""
        options = [f"--env={name}={value}" for name, value in environment.items()]
        if user is not None:
            options.append(f"--user={user}")
        return BuildahContainer(_output("from", f"localhost/{image}"), options, command, log)


class BuildahContainer:
    """A working container and the one command that runs in it."""

    def __init__(self, name: str, options: Sequence[str], command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            # A container's own host name resolves nowhere in a chroot, and Spark looks it up.
            self._process = subprocess.Popen(
                ["buildah", "run", "--isolation=chroot", "--hostname=localhost", *options, name, "--", *command],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def ended(self) -> int | None:
        """The exit status of its command, None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to its first process."""
        # buildah itself would answer a signal by killing what it runs.
        for process in psutil.Process(self._process.pid).children(recursive=True):
            parent = process.parent()
            if parent is not None and parent.cmdline()[:1] == ["buildah-chroot-exec"]:
                process.terminate()
                return
        raise ProcessLookupError(f"no process runs in {self.name}")

    def remove(self) -> None:
        """Kill what still runs of it, and delete it."""
        if self._process.poll() is None:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                process.kill()
            self._process.wait(30)
        _output("rm", self.name)


def _make_base() -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-base-") as folder:
        root = Path(folder) / "root"
        _run_text("debootstrap", "--variant=minbase", f"--include={_PACKAGES}", "bookworm", str(root))
        for downloads in ("var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / downloads)
        # As in the official Python image, so that one Dockerfile fits both.
        (root / "usr/local/bin/python").symlink_to("/usr/bin/python3.11")
        authorities = ssl.get_default_verify_paths().cafile
        if authorities:  # a company's own among them, without which nothing can be downloaded
            shutil.copy(authorities, root / "etc/ssl/certs/ca-certificates.crt")
        archive = Path(folder) / "root.tar"
        _run_text("tar", f"--directory={root}", "--exclude=./dev/*", "--create", f"--file={archive}", ".")
        container = _output("from", "scratch")
        _output("add", container, str(archive), "/")
        _output("commit", "--rm", container, _BASE)


def _exists(image: str) -> bool:
    return (
        subprocess.run(["buildah", "inspect", "--type=image", image], check=False, capture_output=True).returncode == 0
    )


def _output(*arguments: str) -> str:
    return _run_text("buildah", *arguments)


def _run_text(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
