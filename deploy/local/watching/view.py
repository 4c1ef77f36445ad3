"""How a snapshot looks: in colour on a terminal, in one line elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.dead_letter_text import printable
from deploy.local.watching.snapshot import Snapshot

_STATE_STYLE = {
    "running": "green",
    "finished": "cyan",
    "starting": "yellow",
    "restarting": "bold red",
    "unhealthy": "red",
}
_DEATH_CHARACTERS = 400
_SEVERITY_STYLE = {"info": "cyan", "warning": "yellow", "critical": "bold red"}


def render(snapshot: Snapshot, notices: Sequence[str] = ()) -> RenderableType:
    """Everything at once, what is wrong first: a low terminal shows the beginning."""
    parts: list[RenderableType] = []
    if snapshot.unavailable:
        parts.append(Text("no answer from " + "; ".join(snapshot.unavailable), style="red"))
    deaths = [
        f"{each.name} died with {printable(each.death[:_DEATH_CHARACTERS])} (logs/{each.name}.log)"
        for each in snapshot.processes
        if each.death
    ]
    if deaths:
        parts.append(Text("\n".join(deaths), style="red"))
    if snapshot.alarms:
        parts.append(Text("\n".join(snapshot.alarms), style="yellow"))
    parts += [
        Columns([_topics(snapshot), _numbers(snapshot)], padding=(0, 2)),
        _processes(snapshot),
        _alerts(snapshot),
    ]
    if notices:
        parts.append(Panel(Text("\n".join(notices)), title="what happened", title_align="left", box=box.SIMPLE))
    return Group(*parts)


def line(snapshot: Snapshot) -> str:
    """The gist, for a log."""
    topics = ", ".join(
        f"{each.name} {each.events} ({f'{each.per_second:.0f}/s' if each.counted else 'counting'})"
        for each in snapshot.topics
        if each.events
    )
    lag = sum(snapshot.lag.values()) if snapshot.lag else "not known yet"
    parts = [topics or "no events yet", f"lag {lag}"]
    if snapshot.latency_ms:
        parts.append("latency " + " / ".join(f"{name} {ms:.0f} ms" for name, ms in sorted(snapshot.latency_ms.items())))
    parts.append(f"lake {sum(snapshot.lake_rows.values())} rows")
    parts.append(f"dead letters {sum(each.dead_letters for each in snapshot.topics)}")
    parts.append(f"memory {snapshot.resident_mb} MB")
    ill = [f"{each.name} {each.state}" for each in snapshot.processes if each.state not in ("running", "finished")]
    return "; ".join(parts + ill + snapshot.alarms)


def _table(title: str, *columns: str) -> Table:
    """A plain table whose first column holds names and the others numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _topics(snapshot: Snapshot) -> Table:
    """Those that have records: on a low terminal the others would take the place of processes and alerts."""
    table = _table("topics", "topic", "events/s", "events", "dead letters")
    shown = [each for each in snapshot.topics if each.events or each.dead_letters or not each.counted]
    for each in shown:
        dead = Text(f"{each.dead_letters:,}", style="yellow" if each.dead_letters else "")
        table.add_row(each.name, f"{each.per_second:,.1f}" if each.counted else "counting", f"{each.events:,}", dead)
    if quiet := len(snapshot.topics) - len(shown):
        table.add_row(Text(f"{quiet} without records", style="dim"))
    return table


def _numbers(snapshot: Snapshot) -> Table:
    table = _table("flow", "", "")
    for reader, lag in sorted(snapshot.lag.items()):
        table.add_row(f"lag of {reader}", f"{lag:,}")
    for name, milliseconds in sorted(snapshot.latency_ms.items()):
        table.add_row(f"enrichment latency, {name}", f"{milliseconds:,.0f} ms")
    for name, rows in snapshot.lake_rows.items():
        table.add_row(f"lake rows in {name}", f"{rows:,}")
    return table


def _processes(snapshot: Snapshot) -> Table:
    table = _table(f"processes, {snapshot.resident_mb:,} MB together", "name", "state", "pid", "restarts", "MB", "")
    for each in snapshot.processes:
        table.add_row(
            each.name,
            Text(each.state, style=_STATE_STYLE.get(each.state, "")),
            str(each.pid or ""),
            str(each.restarts or ""),
            f"{each.resident_mb:,}" if each.resident_mb else "",
            Text(printable(each.note[:60])),
        )
    table.columns[1].justify = table.columns[5].justify = "left"
    return table


def _alerts(snapshot: Snapshot) -> Table:
    table = _table("latest alerts", "UTC", "severity", "rule", "message")
    for each in reversed(snapshot.alerts):
        severity = Text(each.severity, style=_SEVERITY_STYLE.get(each.severity, ""))
        message = Text(printable(each.message), no_wrap=True, overflow="ellipsis")
        table.add_row(f"{each.occurred_at:%m-%d %H:%M}", severity, Text(printable(each.rule)), message)
    for column in table.columns:
        column.justify = "left"
    table.columns[3].no_wrap = False  # so that it is the one that gives way on a narrow terminal
    return table
