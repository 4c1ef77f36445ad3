"""What `headrace up` says, to a terminal that is there, takes nothing, or is gone."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from rich.text import Text

from deploy.local.watching.terminal import Terminal
from tests.alerting.worker import wait_for


class Screen:
    """The other end of a pseudo-terminal, which is this process's stdout."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.stdout = os.fdopen(slave, "w")
        self.shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def read(self) -> None:
        """From now on."""
        self._reader.start()

    def close(self) -> None:
        """As a window is closed."""
        with suppress(OSError):
            os.close(self.master)

    def _read(self) -> None:
        with suppress(OSError):
            while some := os.read(self.master, 65536):
                self.shown += some


@contextmanager
def a_screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    """In the test itself: pytest sets stdout anew when the fixtures are made."""
    there = Screen()
    with monkeypatch.context() as patched:
        patched.setenv("TERM", "xterm")
        patched.setattr(sys, "stdout", there.stdout)
        yield there
    there.close()
    with suppress(OSError):
        there.stdout.close()


def test_what_is_said_while_the_view_is_shown_is_for_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_screen(monkeypatch) as screen:
        screen.read()
        terminal = Terminal()
        terminal.say("before")
        terminal.show(Text("the view"))
        terminal.say("meanwhile")
        terminal.end_view()
        terminal.say("after")
        wait_for(lambda: b" s  after" in screen.shown, "the last line to be read")
    shown = screen.shown
    assert shown.index(b" s  before") < shown.index(b"the view") < shown.index(b" s  after")
    assert b"meanwhile" not in shown
    assert [line.split("  ")[-1] for line in terminal.notices] == ["before", "meanwhile", "after"]


def test_a_terminal_that_takes_nothing_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-S. What it was told comes when it takes something again."""
    with a_screen(monkeypatch) as screen:
        terminal = Terminal()
        for number in range(5_000):
            terminal.say(f"line {number}")
        terminal.show(Text("the view"))
        assert not terminal.is_written(0.2)
        screen.read()
        assert terminal.is_written(30)


def test_a_terminal_that_is_gone_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_screen(monkeypatch) as screen:
        screen.close()
        terminal = Terminal()
        for number in range(100):
            terminal.show(Text(f"view {number}"))
            terminal.say(f"line {number}")
        terminal.end_view()
        assert terminal.is_written(30)
