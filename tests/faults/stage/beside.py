"""`Beside`: events of other topics that go with the departures of the load, at their time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel

from contracts import topics
from contracts.events import FlightArrived, FlightCancelled, FlightDeparted, WeatherObserved
from contracts.handle import Topic
from services.arrivals.event import event_of as arrival_of
from services.arrivals.event import timezones
from services.departures.event import event_of
from services.departures.gate import gate_of
from services.nycflights.tables import read_table
from services.weather.event import event_of as reading_of

FLIGHTS = 20_000
"""How many rows of the data set are sent, again and again: some three weeks."""
_READINGS = 1_000
_ARRIVING_ONES, _CANCELLED_ONES, _ANNOUNCED_ONES = 20, 25, 10
"""One of so many departures arrives, a minute later. A flight is sent again within the time for which it is remembered, so each arrival has several.
With one of so many another flight is cancelled, half of them late ones, and the gate of a line is announced.
"""
_STATIONS = ("EWR", "JFK", "LGA")


def events() -> Iterator[FlightDeparted]:
    """Every departed flight among the first rows."""
    for row in itertools.islice(read_table("flights"), FLIGHTS):
        if isinstance(event := event_of(row), FlightDeparted):
            yield event


class Beside:
    """What goes with the departures of one producer."""

    def __init__(self) -> None:
        zones, rows = timezones(read_table("airports")), list(itertools.islice(read_table("flights"), FLIGHTS))
        arrivals = [event for row in rows if isinstance(event := arrival_of(row, zones), FlightArrived)]
        self._arrivals = {event.flight_id: event for event in arrivals}
        self._cancelled = itertools.cycle([each for row in rows if isinstance(each := event_of(row), FlightCancelled)])
        self._gates = itertools.cycle([gate_of(row) for row in rows])
        readings = map(reading_of, itertools.islice(read_table("weather"), _READINGS))
        self._readings = itertools.cycle([each for each in readings if isinstance(each, WeatherObserved)])
        self._hour: datetime | None = None

    def of(self, number: int, event_id: str, departure: FlightDeparted) -> Iterator[tuple[Topic[Any], BaseModel, str]]:
        """With their topics and ids, those beside the departure that the producer sends as its `number`th."""
        at = departure.departed_at
        if number % _ARRIVING_ONES == 1 and departure.flight_id in self._arrivals:
            arrival = self._arrivals[departure.flight_id]
            yield _moved(topics.FLIGHTS_ARRIVED, arrival, event_id, arrived_at=at + timedelta(minutes=1))
        if number % _CANCELLED_ONES == _CANCELLED_ONES - 1:
            yield _moved(topics.FLIGHTS_CANCELLED, next(self._cancelled), event_id, scheduled_departure_at=at)
        if number % _ANNOUNCED_ONES == 3:
            yield _moved(topics.GATES_ANNOUNCED, next(self._gates), event_id, announced_at=at)
        hour = at.replace(minute=0, second=0)
        if self._hour is None or self._hour < hour:
            self._hour = hour
            for station in _STATIONS:
                reading = next(self._readings)
                yield _moved(
                    topics.WEATHER_OBSERVED, reading, f"{event_id}/{station}", station=station, observed_at=hour
                )


def _moved(topic: Topic[Any], event: BaseModel, event_id: str, **changes: object) -> tuple[Topic[Any], BaseModel, str]:
    """An event of the data set at the load's time, with an id that no other has."""
    return topic, event.model_copy(update=changes), f"{event_id}/{topic.name}"
