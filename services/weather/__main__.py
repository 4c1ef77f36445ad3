"""`python -m services.weather`: replays the table `weather`."""

from __future__ import annotations

import sys

from contracts import topics
from contracts.command_line import command_line
from services.nycflights.tables import read_table
from services.replay.service import run_service
from services.weather.event import event_id, event_of


def main() -> int:
    """Replay the table `weather`; the exit status."""
    command_line("services.weather", __doc__).parse_args()
    return run_service("weather", lambda: read_table("weather"), event_of, event_id, (topics.WEATHER_OBSERVED,))


if __name__ == "__main__":
    sys.exit(main())
