"""What a snapshot looks like."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from deploy.local.watching.snapshot import Snapshot
from deploy.local.watching.view import line, render


def test_alarms_are_on_the_screen_and_in_the_log() -> None:
    alarm = "1 source files of dimensions set aside since its start, as Shrunk: landing/rejected/ says why"
    snapshot = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), alarms=[alarm])
    console = Console(width=120, record=True)
    console.print(render(snapshot))
    assert alarm in console.export_text()
    assert alarm in line(snapshot)
