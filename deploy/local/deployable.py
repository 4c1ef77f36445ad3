"""What `up` starts beside the stack."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local.ports import Ports
from deploy.local.process import Process

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Deployable:
    """One `python -m` of ours. `ends`: exit code 0 means that its work is done, not that it died. `niceness` is the system's:
    who has more yields the processor to who has less.
    """

    name: str
    arguments: tuple[str, ...]
    ends: bool = False
    grace_seconds: float = 20
    niceness: int = 0

    def process(self, directory: Path, ports: Ports, settings: Mapping[str, str]) -> Process:
        """It as a process with the stack's settings, serving its health on its own port."""
        env = {
            **settings,
            "HEADRACE_HTTP__PORT": str(getattr(ports, self.name, 0)),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            # glibc otherwise keeps an arena of memory for each of a JVM's many threads.
            "MALLOC_ARENA_MAX": "2",
        }
        return Process(
            self.name, [sys.executable, "-m", *self.arguments], directory=directory, env=env, niceness=self.niceness
        )


PRODUCERS = (
    Deployable("departures", ("services.departures",), ends=True),
    Deployable("arrivals", ("services.arrivals",), ends=True),
    Deployable("weather", ("services.weather",), ends=True),
)
PIPELINES = ("departures_enriched",)
"""Those that run unless `--pipelines` names others."""


def live(pipelines: Sequence[str]) -> Deployable:
    """The process that runs these pipelines."""
    # Spark finishes the batch at hand, and the first one, while the JVM is cold, takes longest.
    return Deployable("live", ("spark", "run", *pipelines), grace_seconds=120)


LIVE = live(PIPELINES)
READERS = (
    # The lake is seconds behind anyway, so its start may take longer than that of the way to an alert.
    Deployable("lake", ("spark", "lake"), grace_seconds=120, niceness=5),
    Deployable("alerting", ("services.alerting",)),
    Deployable("dimensions", ("services.dimensions",)),
)
DEPLOYABLES = (*PRODUCERS, LIVE, *READERS)
"""All, in the order in which they are stopped: who sends before who receives."""
