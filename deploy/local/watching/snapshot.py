"""What the stack looks like at one moment: `up` shows it live, `status` once."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class TopicState:
    """`events` and `dead_letters` are records on the topic, `per_second` those that came since the last snapshot.

    Where `counted` is false a long topic is still being counted: `events` and `dead_letters` are offsets, with markers of transactions, and
    `per_second` is 0.
    """

    name: str
    events: int
    per_second: float
    dead_letters: int
    counted: bool = True


@dataclass(frozen=True)
class ProcessState:
    """`state` is `running`, `starting`, `unhealthy`, `restarting`, `finished` or `stopped`; `note` says why. `death` says how it died last, until it has
    run for a minute again.

    Memory is resident, with all children, in megabytes.
    """

    name: str
    state: str
    pid: int | None
    restarts: int
    resident_mb: int
    note: str = ""
    death: str = ""


@dataclass(frozen=True)
class AlertState:
    """One alert; `occurred_at` is event time."""

    occurred_at: datetime
    severity: str
    rule: str
    message: str


@dataclass(frozen=True)
class Snapshot:
    """`lag` is records not yet handled, by reader; `latency_ms` is from a raw record's sending until its batch was written,
    `mean` and `max` of the newest batch, those of the slowest pipeline; `lake_rows` by table. `unavailable` names what couldn't be asked; `alarms` are
    sentences about what somebody must look at.
    """

    at: datetime
    topics: list[TopicState] = field(default_factory=list)
    lag: dict[str, int] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)
    lake_rows: dict[str, int] = field(default_factory=dict)
    alerts: list[AlertState] = field(default_factory=list)
    processes: list[ProcessState] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    @property
    def resident_mb(self) -> int:
        """Memory of all processes together, in megabytes."""
        return sum(process.resident_mb for process in self.processes)

    def json(self) -> dict[str, Any]:
        """It as `status --json` prints it."""
        return {
            **asdict(self),
            "at": self.at.isoformat(),
            "alerts": [{**asdict(each), "occurred_at": each.occurred_at.isoformat()} for each in self.alerts],
        }
