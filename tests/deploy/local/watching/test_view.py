"""What a snapshot looks like."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Console

from deploy.local.watching.snapshot import AlertState, ProcessState, Snapshot, TopicState
from deploy.local.watching.view import line, render


def test_what_an_alert_quotes_of_a_record_moves_no_cursor() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    snapshot = Snapshot(at, alerts=[AlertState(at, "info", "late", "XX1\x1b[2J is late")])
    console = Console(width=120, record=True)
    console.print(render(snapshot))
    assert "XX1\\x1b[2J is late" in console.export_text()


def test_what_a_note_says_is_no_markup() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    processes = [ProcessState("live", "unhealthy", 7, 0, 0, "no space in [/tmp/a]")]
    console = Console(width=120, record=True)
    console.print(render(Snapshot(at, processes=processes)))
    assert "no space in [/tmp/a]" in console.export_text()


def test_a_topic_that_is_still_being_counted_has_no_rate() -> None:
    topics = [TopicState("a.made.v1", 5_000, 0.0, 0, counted=False), TopicState("b.made.v1", 7, 2.0, 0)]
    snapshot = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), topics=topics)
    console = Console(width=120, record=True)
    console.print(render(snapshot))
    assert "counting" in next(said for said in console.export_text().splitlines() if "a.made.v1" in said)
    assert line(snapshot).startswith("a.made.v1 5000 (counting), b.made.v1 7 (2/s); ")


def test_alarms_are_on_the_screen_and_in_the_log() -> None:
    alarm = "1 source files of dimensions set aside since its start, as Shrunk: landing/rejected/ says why"
    snapshot = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), alarms=[alarm])
    console = Console(width=120, record=True)
    console.print(render(snapshot))
    # Above all else, for a low terminal shows the beginning.
    assert console.export_text().startswith(alarm)
    assert alarm in line(snapshot)


def shown(snapshot: Snapshot) -> list[str]:
    console = Console(width=120, record=True)
    console.print(render(snapshot))
    return console.export_text().splitlines()


def test_topics_without_records_take_one_line() -> None:
    topics = [TopicState(f"a.made.v{number}", 0, 0.0, 0) for number in range(1, 8)]
    topics += [TopicState("b.made.v1", 7, 2.0, 0), TopicState("c.made.v1", 0, 0.0, 3)]
    lines = shown(Snapshot(datetime(2026, 1, 1, tzinfo=UTC), topics=topics))
    assert [each for each in lines if ".made.v" in each or "without" in each] == [
        each for each in lines if each.strip().startswith(("b.made.v1", "c.made.v1", "7 without records"))
    ]
    assert len([each for each in lines if ".made.v" in each]) == 2


def test_why_a_process_died_stands_above_all_else() -> None:
    died = ProcessState("live", "restarting", None, 2, 0, death="exit code 1 at 20:31:05Z: failed: no zone [x]")
    lines = shown(Snapshot(datetime(2026, 1, 1, tzinfo=UTC), processes=[died]))
    assert lines[0] == "live died with exit code 1 at 20:31:05Z: failed: no zone [x] (logs/live.log)"
