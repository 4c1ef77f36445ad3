"""`python -m services.departures`: replays the departures of the table `flights`."""

from __future__ import annotations

import sys
from operator import attrgetter

from contracts import topics
from contracts.command_line import command_line
from services.departures.event import events_of
from services.nycflights.tables import read_table
from services.replay.service import run_service


def main() -> int:
    """Replay the departures of the table `flights`; the exit status."""
    command_line("services.departures", __doc__).parse_args()
    return run_service(
        "departures",
        lambda: read_table("flights"),
        events_of,
        attrgetter("flight_id"),
        (topics.FLIGHTS_DEPARTED, topics.FLIGHTS_CANCELLED, topics.GATES_ANNOUNCED),
    )


if __name__ == "__main__":
    sys.exit(main())
