"""`Builder`: what builds the images and runs containers of them on this machine's network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ImageConfig:
    """What an image says of itself; `health_command` is the command of its health check."""

    user: str
    entrypoint: tuple[str, ...]
    stop_signal: str
    health_command: tuple[str, ...]
    environment: tuple[str, ...]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """From the `Config` object of Docker's image format."""
        kind, *health = (config.get("Healthcheck") or {"Test": ["NONE"]})["Test"]
        assert kind == "CMD", f"the health check is {kind}, not a command in exec form"
        return cls(
            config["User"], tuple(config["Entrypoint"]), config["StopSignal"], tuple(health), tuple(config["Env"])
        )


class Container(Protocol):
    """A container that was started, with its own output in the file `log`."""

    name: str
    log: Path

    def ended(self) -> int | None:
        """The exit status of its command, None while it runs."""

    def ask_to_stop(self) -> None:
        """Send SIGTERM to its first process."""

    def remove(self) -> None:
        """Kill what still runs of it, and delete it."""


class Builder(Protocol):
    """Builds from this repository, runs containers on the host's network, and says how it does so."""

    description: str

    def build(self, image: str, dockerfile: str, **args: str) -> None:
        """Build an image; raises CalledProcessError."""

    def config(self, image: str) -> ImageConfig:
        """What the image says of itself."""

    def start(
        self, image: str, command: Sequence[str], environment: Mapping[str, str], log: Path, *, user: str | None = None
    ) -> Container:
        """Start a container with this whole command, as the image's own user unless one is named."""
