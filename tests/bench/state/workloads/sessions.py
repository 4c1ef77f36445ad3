"""The workload with sessions: rotations of each aircraft, departures that follow each other closely.

In Headrace's pipeline the gap that ends a session depends on the airport. Flink SQL's table function SESSION takes one gap ("Windowing
table-valued functions"), and its SQL has no other way to such sessions that gives each once, when it is over: MATCH_RECOGNIZE gives a session when
the next one of its key begins, and groupings over LAG give it again and again. So the backlog holds the departures of the airports whose gap is the same, and both
engines make the same sessions of them. Headrace runs the pipeline that is shipped.

Flink SQL lacks the value at the least and at the greatest time: `FIRST_VALUE` goes by the order of the records. So the least and the greatest
of a number are asked for that has the time in front and the delay behind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from contracts import topics
from services.replay.table import Row as FlightRow
from tests.bench.state.workloads.backlog import Backlog, Event
from tests.bench.state.workloads.departures import departures
from tests.bench.state.workloads.workload import Row, Source, Workload

_ORIGINS = ("EWR", "LGA")
_GAP = timedelta(hours=6)
_ROOM = 1 << 16
"""More than twice as many minutes as any delay has."""
_DEPARTED_COLUMNS = """
    tail_number STRING,
    departed_at TIMESTAMP(3) NOT NULL,
    departure_delay_minutes INT NOT NULL"""
_COLUMNS = """
    rotation_id STRING NOT NULL,
    tail_number STRING NOT NULL,
    begins_at TIMESTAMP(3) NOT NULL,
    ends_at TIMESTAMP(3) NOT NULL,
    legs BIGINT NOT NULL,
    hours DOUBLE NOT NULL,
    delay_first_minutes INT NOT NULL,
    delay_last_minutes INT NOT NULL,
    delay_max_minutes INT NOT NULL,
    delay_sum_minutes BIGINT NOT NULL,
    is_final BOOLEAN NOT NULL"""
_SELECT = f"""
SELECT
    CONCAT(tail_number, '/', DATE_FORMAT(window_end, 'yyyy-MM-dd''T''HH:mm:ss''Z''')),
    tail_number, window_start, window_end,
    COUNT(*),
    TIMESTAMPDIFF(SECOND, MIN(departed_at), MAX(departed_at)) / CAST(3600 AS DOUBLE),
    CAST(MOD(MIN(time_and_delay), {_ROOM}) - {_ROOM // 2} AS INT),
    CAST(MOD(MAX(time_and_delay), {_ROOM}) - {_ROOM // 2} AS INT),
    MAX(departure_delay_minutes),
    SUM(CAST(departure_delay_minutes AS BIGINT)),
    TRUE
FROM SESSION(
    (
        SELECT
            tail_number, departed_at, departure_delay_minutes,
            TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', departed_at) * CAST({_ROOM} AS BIGINT)
                + departure_delay_minutes + {_ROOM // 2} AS time_and_delay
        FROM departed WHERE tail_number IS NOT NULL
    ) PARTITION BY tail_number,
    DESCRIPTOR(departed_at),
    INTERVAL '{_GAP // timedelta(hours=1)}' HOURS
)
GROUP BY tail_number, window_start, window_end
"""


def departures_with_one_gap(row: FlightRow) -> Iterator[Event]:
    """Of a flight that left one of the airports whose gap is the same."""
    return (each for each in departures(row) if each.fields["origin"] in _ORIGINS)


def sessions(departed: Sequence[Event]) -> dict[str, Row]:
    """The sessions of these departures by their ids, with the fields that the contract names."""
    flown = defaultdict[str, list[tuple[datetime, int]]](list)
    for each in departed:
        if (tail_number := each.fields["tail_number"]) is not None:
            flown[tail_number].append((each.at, each.fields["departure_delay_minutes"]))
    rows: dict[str, Row] = {}
    for tail_number, legs in flown.items():
        for of_session in _cut(sorted(legs)):
            row = _row(tail_number, of_session)
            rows[str(row["rotation_id"])] = row
    return rows


def _cut(legs: Sequence[tuple[datetime, int]]) -> Iterator[Sequence[tuple[datetime, int]]]:
    """Where more than the gap lies between one and the next."""
    begin = 0
    for number in range(1, len(legs) + 1):
        if number == len(legs) or legs[number][0] - legs[number - 1][0] > _GAP:
            yield legs[begin:number]
            begin = number


def _row(tail_number: str, legs: Sequence[tuple[datetime, int]]) -> Row:
    begins_at, ends_at = legs[0][0], legs[-1][0] + _GAP
    delays = [delay for _, delay in legs]
    return {
        "rotation_id": f"{tail_number}/{ends_at:%Y-%m-%dT%H:%M:%SZ}",
        "tail_number": tail_number,
        "begins_at": begins_at,
        "ends_at": ends_at,
        "legs": len(legs),
        "hours": (legs[-1][0] - begins_at) / timedelta(hours=1),
        "delay_first_minutes": delays[0],
        "delay_last_minutes": delays[-1],
        "delay_max_minutes": max(delays),
        "delay_sum_minutes": sum(delays),
        "is_final": True,
    }


def _final(backlog: Backlog) -> dict[str, Row]:
    return sessions(backlog.events)


SESSIONS = Workload(
    name="sessions",
    pipeline="aircraft_rotations",
    load=departures_with_one_gap,
    sources=[Source(topics.FLIGHTS_DEPARTED.name, "departed", _DEPARTED_COLUMNS)],
    target=topics.FLIGHTS_DEPARTED_ROTATIONS.name,
    columns=_COLUMNS,
    select=_SELECT,
    updates=False,
    expected=_final,
    reached="begins_at",
)
