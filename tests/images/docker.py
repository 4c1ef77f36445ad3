"""`Docker`: a builder with a daemon, or Podman, which takes the same commands."""

from __future__ import annotations

import json
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.images.builder import ROOT, ImageConfig


class Docker:
    """Builds on the base image that deploy/versions.env names."""

    def __init__(self, program: str, base: str) -> None:
        self.description = f"{program}, on {base}"
        self._program = program
        self._base = base

    @classmethod
    def found(cls, base: str) -> Docker | None:
        """Docker or Podman, whichever is installed and can work."""
        for program in ("docker", "podman"):
            works = shutil.which(program) and subprocess.run([program, "info"], check=False, capture_output=True)
            if works and works.returncode == 0:
                return cls(program, base)
        return None

    def build(self, image: str, dockerfile: str, **args: str) -> None:
        """Build an image; raises CalledProcessError."""
        options = [f"--build-arg={name}={value}" for name, value in {"BASE": self._base, **args}.items()]
        if self._program == "podman":
            options.append("--format=docker")  # the only one that has health checks
        subprocess.run(
            [self._program, "build", "--tag", image, "--file", dockerfile, *options, "."], cwd=ROOT, check=True
        )

    def config(self, image: str) -> ImageConfig:
        """What the image says of itself."""
        inspected = json.loads(self._output("image", "inspect", image))[0]
        # Podman keeps the health check beside the configuration.
        return ImageConfig.of({"Healthcheck": inspected.get("HealthCheck"), **inspected["Config"]})

    def start(
        self, image: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, user: str | None = None
    ) -> DockerContainer:
        """Start a container with this whole command, as the image's own user unless one is named."""
        program, *arguments = command
        options = [f"--env={name}={value}" for name, value in environment.items()]
        if user is not None:
            options.append(f"--user={user}")
        return DockerContainer(
            self._program, ["--network=host", f"--entrypoint={program}", *options, image, *arguments], log
        )

    def _output(self, *arguments: str) -> str:
        return subprocess.run([self._program, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


class DockerContainer:
    """A container in the foreground of `docker run`, whose exit status is its own."""

    def __init__(self, program: str, arguments: Sequence[str], log: Path) -> None:
        self.name = f"headrace-test-{uuid.uuid4().hex[:12]}"
        self.log = log
        self._program = program
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [program, "run", "--rm", f"--name={self.name}", *arguments], stdout=output, stderr=subprocess.STDOUT
            )

    def ended(self) -> int | None:
        """The exit status of its command, None while it runs."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to its first process."""
        subprocess.run([self._program, "kill", "--signal=TERM", self.name], check=True, stdout=subprocess.DEVNULL)

    def remove(self) -> None:
        """Kill what still runs of it, and delete it."""
        subprocess.run([self._program, "rm", "--force", self.name], check=False, capture_output=True)
        self._process.wait(30)
