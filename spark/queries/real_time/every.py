"""What is done now and then in a loop that turns more often: `Every`."""

from __future__ import annotations

import time


class Every:
    """Tells once in so many seconds that it is time; for the first time at once, unless that `waits`, too."""

    def __init__(self, seconds: float, *, waits: bool = False) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + (seconds if waits else 0.0)

    def is_due(self) -> bool:
        """Whether it is time; then not again for so long."""
        if time.monotonic() < self._at:
            return False
        self._at = time.monotonic() + self._seconds
        return True
