"""`python -m services.arrivals`: replays the arrivals of the table `flights`."""

from __future__ import annotations

import sys
from functools import partial
from operator import attrgetter

from contracts import topics
from contracts.command_line import command_line
from services.arrivals.event import event_of, timezones
from services.nycflights.tables import read_table
from services.replay.service import run_service


def main() -> int:
    """Replay the arrivals of the table `flights`; the exit status."""
    command_line("services.arrivals", __doc__).parse_args()
    return run_service(
        "arrivals",
        lambda: read_table("flights"),
        partial(event_of, zones=timezones(read_table("airports"))),
        attrgetter("flight_id"),
        (topics.FLIGHTS_ARRIVED,),
    )


if __name__ == "__main__":
    sys.exit(main())
