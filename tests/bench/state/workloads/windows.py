"""The workloads with windows of time: as often as they change, and once when they are over.

What Flink SQL is asked for, and why so:

* Windows that are over: the window aggregation of Flink's documentation, "Window Aggregation", over its table function TUMBLE. It gives a
  window once, drops its state, and adds up before the shuffle by itself.
* Windows that change: a grouping by the begin of the window, with a sink by key ("Group Aggregation", "Upsert Kafka"). Flink's windows can't
  do that but by the experimental `table.exec.emit.early-fire`. Its state is never dropped, as no time to live is set, which is less work.
* `PERCENTILE` is Flink's own, exact and interpolated as Spark's is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from contracts import topics
from tests.bench.state.workloads.backlog import Backlog, Event
from tests.bench.state.workloads.departures import departures
from tests.bench.state.workloads.workload import Row, Source, Workload

_MINUTES = 15
_SHARE = 0.95
_DEPARTED = Source(
    topics.FLIGHTS_DEPARTED.name,
    "departed",
    """
    origin STRING NOT NULL,
    departed_at TIMESTAMP(3) NOT NULL,
    departure_delay_minutes INT NOT NULL""",
)
_COLUMNS = """
    window_id STRING NOT NULL,
    origin STRING NOT NULL,
    begins_at TIMESTAMP(3) NOT NULL,
    ends_at TIMESTAMP(3) NOT NULL,
    departures BIGINT NOT NULL,
    delay_mean_minutes DOUBLE NOT NULL,
    delay_p95_minutes DOUBLE NOT NULL,
    is_final BOOLEAN NOT NULL"""
_VALUES = """
    COUNT(*),
    AVG(CAST(departure_delay_minutes AS DOUBLE)),
    PERCENTILE(departure_delay_minutes, 0.95),"""


def _id(begin: str) -> str:
    return f"CONCAT(origin, '/', DATE_FORMAT({begin}, 'yyyy-MM-dd''T''HH:mm:ss''Z'''))"


_CHANGING = f"""
SELECT {_id("begins_at")}, origin, begins_at, TIMESTAMPADD(MINUTE, {_MINUTES}, begins_at), {_VALUES} FALSE
FROM (
    SELECT
        origin, departure_delay_minutes,
        TIMESTAMPADD(MINUTE, -MOD(EXTRACT(MINUTE FROM departed_at), {_MINUTES}), FLOOR(departed_at TO MINUTE)) AS begins_at
    FROM departed
)
GROUP BY origin, begins_at
"""
_OVER = f"""
SELECT {_id("window_start")}, origin, window_start, window_end, {_VALUES} TRUE
FROM TABLE(TUMBLE(TABLE departed, DESCRIPTOR(departed_at), INTERVAL '{_MINUTES}' MINUTES))
GROUP BY origin, window_start, window_end
"""


def windows(departed: Sequence[Event], *, is_final: bool) -> dict[str, Row]:
    """The windows of these departures by their ids, with the fields that the contract names."""
    found = defaultdict[tuple[str, datetime], list[int]](list)
    for each in departed:
        past = timedelta(minutes=each.at.minute % _MINUTES, seconds=each.at.second, microseconds=each.at.microsecond)
        found[each.fields["origin"], each.at - past].append(each.fields["departure_delay_minutes"])
    rows: dict[str, Row] = {}
    for (origin, begin), delays in found.items():
        window_id = f"{origin}/{begin:%Y-%m-%dT%H:%M:%SZ}"
        rows[window_id] = {
            "window_id": window_id,
            "origin": origin,
            "begins_at": begin,
            "ends_at": begin + timedelta(minutes=_MINUTES),
            "departures": len(delays),
            "delay_mean_minutes": sum(delays) / len(delays),
            "delay_p95_minutes": _percentile(sorted(delays)),
            "is_final": is_final,
        }
    return rows


def _percentile(ordered: Sequence[int]) -> float:
    """Interpolated between the two nearest, as the contract says."""
    position = (len(ordered) - 1) * _SHARE
    below, above = ordered[math.floor(position)], ordered[math.ceil(position)]
    return below + (above - below) * (position - math.floor(position))


def _changed(backlog: Backlog) -> dict[str, Row]:
    return windows([*backlog.events, *backlog.closing], is_final=False)


def _final(backlog: Backlog) -> dict[str, Row]:
    return windows(backlog.events, is_final=True)


WINDOWS = Workload(
    name="windows",
    pipeline="delays_by_origin",
    load=departures,
    sources=[_DEPARTED],
    target=topics.FLIGHTS_DEPARTED_DELAYS.name,
    columns=_COLUMNS,
    select=_CHANGING,
    updates=True,
    expected=_changed,
    reached="begins_at",
)
FINAL_WINDOWS = Workload(
    name="final-windows",
    pipeline="final_delays_by_origin",
    load=departures,
    sources=[_DEPARTED],
    target=topics.FLIGHTS_DEPARTED_FINALDELAYS.name,
    columns=_COLUMNS,
    select=_OVER,
    updates=False,
    expected=_final,
    reached="begins_at",
)
