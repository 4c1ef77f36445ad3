"""The workload with a join of two streams: every departure with its arrival, or without, if none came within twenty hours.

Flink SQL is asked for the interval join of its documentation, "Joins", left outer. It lets go of a record when the watermark says so, as Headrace
does, and so gives each row once. Both times are cast, because a sink takes no two time attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import cache
from zoneinfo import ZoneInfo

from contracts import topics
from contracts.events import FlightArrived
from services.arrivals.event import event_of, timezones
from services.nycflights.tables import read_table
from services.replay.table import Row as FlightRow
from tests.bench.state.workloads.backlog import Backlog, Event
from tests.bench.state.workloads.departures import departures
from tests.bench.state.workloads.workload import Row, Source, Workload

_ARRIVED = topics.FLIGHTS_ARRIVED.name
_HOURS = 20
_CARRIED = ("carrier", "origin", "destination", "departure_delay_minutes")
"""What a leg has of its departure, besides id and time."""
_COLUMNS = """
    flight_id STRING NOT NULL,
    carrier STRING NOT NULL,
    origin STRING NOT NULL,
    destination STRING NOT NULL,
    departed_at TIMESTAMP(3) NOT NULL,
    arrived_at TIMESTAMP(3),
    departure_delay_minutes INT NOT NULL,
    arrival_delay_minutes INT,
    gate_to_gate_minutes DOUBLE"""
_DEPARTED_COLUMNS = """
    flight_id STRING NOT NULL,
    carrier STRING NOT NULL,
    origin STRING NOT NULL,
    destination STRING NOT NULL,
    departed_at TIMESTAMP(3) NOT NULL,
    departure_delay_minutes INT NOT NULL"""
_ARRIVED_COLUMNS = """
    flight_id STRING NOT NULL,
    arrived_at TIMESTAMP(3) NOT NULL,
    arrival_delay_minutes INT NOT NULL"""
_SELECT = f"""
SELECT
    departed.flight_id, carrier, origin, destination,
    CAST(departed_at AS TIMESTAMP(3)), CAST(arrived_at AS TIMESTAMP(3)),
    departure_delay_minutes, arrival_delay_minutes,
    TIMESTAMPDIFF(SECOND, departed_at, arrived_at) / CAST(60 AS DOUBLE)
FROM departed LEFT JOIN arrived
    ON departed.flight_id = arrived.flight_id
    AND arrived_at BETWEEN departed_at AND departed_at + INTERVAL '{_HOURS}' HOUR
"""


@cache
def _zones() -> dict[str, ZoneInfo]:
    return timezones(read_table("airports"))


def departures_and_arrivals(row: FlightRow) -> Iterator[Event]:
    """Of a flight that left, and of one that came to where it should."""
    yield from departures(row)
    event = event_of(row, _zones())
    if isinstance(event, FlightArrived):
        yield Event(_ARRIVED, event.flight_id, event.arrived_at, event.model_dump())


def legs(events: Sequence[Event]) -> dict[str, Row]:
    """What each departure makes, by its flight, with the fields that the contract names. No flight arrives twice."""
    arrivals = {each.flight_id: each for each in events if each.topic == _ARRIVED}
    found: dict[str, Row] = {}
    for each in events:
        if each.topic == _ARRIVED:
            continue
        arrival = arrivals.get(each.flight_id)
        if arrival is not None and not timedelta() <= arrival.at - each.at <= timedelta(hours=_HOURS):
            arrival = None
        found[each.flight_id] = {
            "flight_id": each.flight_id,
            "departed_at": each.at,
            **{name: each.fields[name] for name in _CARRIED},
            "arrived_at": arrival and arrival.at,
            "arrival_delay_minutes": arrival and arrival.fields["arrival_delay_minutes"],
            "gate_to_gate_minutes": arrival and (arrival.at - each.at) / timedelta(minutes=1),
        }
    return found


def _over(backlog: Backlog) -> dict[str, Row]:
    """The closing departures wait for arrivals for as long as no other event comes."""
    return legs(backlog.events)


JOIN = Workload(
    name="join",
    pipeline="flight_legs",
    load=departures_and_arrivals,
    sources=[
        Source(topics.FLIGHTS_DEPARTED.name, "departed", _DEPARTED_COLUMNS),
        Source(_ARRIVED, "arrived", _ARRIVED_COLUMNS),
    ],
    target=topics.FLIGHTS_DEPARTED_LEGS.name,
    columns=_COLUMNS,
    select=_SELECT,
    updates=False,
    expected=_over,
    reached="departed_at",
)
