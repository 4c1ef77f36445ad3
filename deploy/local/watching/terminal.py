"""`Terminal`: the lines and the live view of `headrace up`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from rich.console import Console, RenderableType
from rich.live import Live

_NOTICES = 6


class Terminal:
    """Writes by a thread of its own: a terminal that is gone, or takes nothing, as after Ctrl-S, holds up nobody. All of it may be called by a
    signal handler.

    `notices` are the last lines that were said, for the view: while it is shown, they are not printed.
    """

    def __init__(self) -> None:
        self.notices: deque[str] = deque(maxlen=_NOTICES)
        self._started_at = time.monotonic()
        self._view: Live | None = None
        self._is_drawn = threading.Event()
        self._is_drawn.set()
        self._work: SimpleQueue[Callable[[], object]] = SimpleQueue()
        threading.Thread(target=self._write, name="terminal", daemon=True).start()

    def say(self, text: str) -> None:
        """Tell what happens, with the seconds since the start."""
        stamped = f"{time.monotonic() - self._started_at:6.1f} s  {text}"
        self.notices.append(stamped)
        self._work.put(partial(self._print, stamped))

    def print(self, text: str) -> None:
        """Print a line as it is."""
        self._work.put(partial(self._print, text))

    def show(self, view: RenderableType) -> None:
        """Show the view in the place of the one before. Left out while that one is not drawn yet."""
        if self._is_drawn.is_set():
            self._is_drawn.clear()
            self._work.put(partial(self._draw, view))

    def end_view(self) -> None:
        """Leave the last view where it is; lines are printed below."""
        self._work.put(self._end_view)

    def is_written(self, seconds: float) -> bool:
        """Wait, for so long at most, until everything is written; whether it is."""
        written = threading.Event()
        self._work.put(written.set)
        return written.wait(seconds)

    def _write(self) -> None:
        while True:
            work = self._work.get()
            # A closed terminal, a full disk behind a redirection, a character that the terminal's encoding lacks.
            with suppress(Exception):
                work()

    def _print(self, text: str) -> None:
        if self._view is None:
            print(text, flush=True)

    def _draw(self, view: RenderableType) -> None:
        try:
            if self._view is None:
                self._view = Live(console=Console(), auto_refresh=False)
                self._view.start()
            self._view.update(view, refresh=True)
        finally:
            self._is_drawn.set()

    def _end_view(self) -> None:
        ended, self._view = self._view, None
        if ended is not None:
            ended.stop()
