"""Waiting for containers."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.images.builder import Container


def wait_until(
    condition: Callable[[], bool], what: str, *, seconds: float, watched: tuple[Container, ...] = ()
) -> None:
    """Wait for a condition; fails with what was waited for, at once when a watched container ends with an error."""
    deadline = time.monotonic() + seconds
    while not condition():
        for container in watched:
            assert not container.ended(), f"ended with {container.ended()} before {what}: {tail(container)}"
        ends = "".join(f"\n{container.log}: {tail(container)}" for container in watched)
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain until {what}{ends}"
        time.sleep(0.1)


def finished(container: Container, *, seconds: float) -> int:
    """The exit status of a container that ends by itself, or was asked to."""
    wait_until(lambda: container.ended() is not None, f"{container.log} ended", seconds=seconds)
    status = container.ended()
    assert status is not None
    return status


def tail(container: Container) -> str:
    """The last lines of its output."""
    return "\n".join(container.log.read_text(errors="replace").splitlines()[-20:])
