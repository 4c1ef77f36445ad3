"""`CASTS`: which pipelines run at a time, for all at once would be too much for two cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark.runtime.mode import Mode

PIPELINE = "departures_enriched"
AGGREGATE = "delays_by_origin"
AGGREGATES = (AGGREGATE, "final_delays_by_origin")
"""Those that count the raw records; the second writes a group when its window is over."""
FILTER, FOLLOWING = "long_haul_departures", "departure_gates"
"""Those without state that run beside it; the second looks up in a dimension that is made of a topic."""
JOIN, DISTINCT, SEQUENCE, RANKING = "flight_legs", "departures_once", "chronic_delays", "worst_routes"
SESSIONS, UNITED, INTERVALS = "aircraft_rotations", "punctuality_by_origin", "departure_weather"
STATEFUL = (*AGGREGATES, JOIN, DISTINCT, SEQUENCE, RANKING, SESSIONS, UNITED, INTERVALS)
"""Those with a state. Of all but `AGGREGATES` the audit alone compares the records."""
STRUCK = (AGGREGATE, JOIN, DISTINCT, SEQUENCE, RANKING, UNITED)
"""Those of them that faults strike."""
WRITING = (AGGREGATE, DISTINCT, RANKING, UNITED)
"""Those of them that write so much that a moment in a transaction comes."""
FIRST, SECOND = "first", "second"
CASTS: Mapping[Mode, Mapping[str, Sequence[str]]] = {
    Mode.EXACTLY_ONCE: {
        FIRST: (PIPELINE, FILTER, "airports_served", *AGGREGATES, JOIN, DISTINCT, SEQUENCE, RANKING),
        SECOND: (PIPELINE, FOLLOWING, SESSIONS, UNITED, INTERVALS, SEQUENCE, RANKING),
    },
    # Each in a process of its own.
    Mode.REAL_TIME: {FIRST: (PIPELINE, FILTER), SECOND: (PIPELINE, FOLLOWING)},
}
"""By mode and name; `FIRST` is the usual one."""
COMPUTES = {
    "airports_served": lambda event: max(len(name) + len(event[name].encode()) for name in ("origin", "destination"))
}
"""By pipeline, how many bytes the texts have that it computes of an event."""
