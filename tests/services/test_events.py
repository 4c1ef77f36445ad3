"""Every row of the data set, and the contracts' examples, through each service's pure middle."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel

from contracts import topics
from contracts.definitions.catalog import CONTRACTS, load_catalog
from contracts.definitions.example import example_files
from contracts.events import FlightArrived, GateAnnounced
from contracts.handle import Topic
from services.arrivals.event import event_of as arrival_of
from services.arrivals.event import timezones
from services.departures.event import event_of as departure_of
from services.departures.event import events_of
from services.departures.gate import GATES, PIERS, gate_of
from services.dimensions.parse import parse
from services.dimensions.rejected import Rejected
from services.nycflights.tables import data_folder, read_table
from services.replay.position import START
from services.replay.table import Row, Table
from services.replay.timeline import Timeline
from services.replay.unfit import Unfit
from services.weather.event import event_id as weather_id
from services.weather.event import event_of as weather_of

CATALOG = load_catalog()
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("name", "rows"), [("airlines", 16), ("airports", 1_458), ("planes", 3_322)])
def test_the_data_set_s_own_tables_fit_their_contracts(name: str, rows: int) -> None:
    contract = CATALOG.dimension(name)
    table = parse(contract, (data_folder() / contract.made_of).read_bytes())
    assert not isinstance(table, Rejected)
    assert table.num_rows == rows
    assert table.column_names == [column.name for column in contract.columns]


@dataclass
class Year:
    """What a whole year of a service came to."""

    streams: Counter[str] = field(default_factory=Counter)
    ids: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: list[BaseModel] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    minutes_not_in_the_air: Counter[int] = field(default_factory=Counter)
    other_arrival_clock: list[str] = field(default_factory=list)


def examples(topic: Topic[Any]) -> list[BaseModel]:
    return [topic.model.model_validate_json(path.read_text()) for path in example_files(CONTRACTS, topic.name)]


def year_of(timeline: Timeline, wanted: list[BaseModel]) -> Year:
    """One pass, so that no test holds 300,000 events."""
    year, last = Year(), START
    by_id = {str(example.model_dump(mode="json").get("flight_id") or weather_id(example)) for example in wanted}  # type: ignore[arg-type]
    for entry in timeline.entries():
        assert last < entry.position
        last = entry.position
        year.streams[entry.stream] += 1
        year.ids[entry.stream, entry.id] += 1
        if isinstance(entry.content, Unfit):
            year.reasons[entry.content.reason] += 1
        elif entry.id in by_id:
            year.examples.append(entry.content)
        if isinstance(entry.content, FlightArrived):
            _check_arrival(year, entry.content, entry.row)
    return year


def _check_arrival(year: Year, event: FlightArrived, row: Row) -> None:
    departed_at = event.scheduled_departure_at + timedelta(minutes=int(row["dep_delay"] or 0))
    elapsed_minutes = (event.arrived_at - departed_at) // MINUTE
    year.minutes_not_in_the_air[elapsed_minutes - (event.air_time_minutes or 0)] += 1
    local = event.arrived_at.astimezone(ZONES[event.destination])
    if local.hour * 100 + local.minute != int(row["arr_time"] or 0) % 2400:
        year.other_arrival_clock.append(event.flight_id)


ZONES: dict[str, ZoneInfo] = timezones(read_table("airports"))


@pytest.fixture(scope="module")
def flights() -> Table:
    return read_table("flights")


@pytest.fixture(scope="module")
def arrivals(flights: Table) -> Year:
    wanted = examples(topics.FLIGHTS_ARRIVED)
    convert = partial(arrival_of, zones=ZONES)
    return year_of(Timeline(flights, convert, attrgetter("flight_id"), (topics.FLIGHTS_ARRIVED,), CATALOG), wanted)


@pytest.mark.long
def test_every_flight_departed_or_was_cancelled_and_has_an_id_of_its_own(flights: Table) -> None:
    streams = (topics.FLIGHTS_DEPARTED, topics.FLIGHTS_CANCELLED)
    wanted = [*examples(topics.FLIGHTS_DEPARTED), *examples(topics.FLIGHTS_CANCELLED)]

    year = year_of(Timeline(flights, departure_of, attrgetter("flight_id"), streams, CATALOG), wanted)

    assert year.streams == {"flights.departed.v1": 328_521, "flights.cancelled.v1": 8_255}
    assert max(year.ids.values()) == 1
    assert _texts(year.examples) == _texts(wanted)


@pytest.mark.long
def test_the_gate_of_every_flight_is_announced_before_it_leaves_or_is_cancelled(flights: Table) -> None:
    streams = (topics.FLIGHTS_DEPARTED, topics.FLIGHTS_CANCELLED, topics.GATES_ANNOUNCED)

    year = year_of(
        Timeline(flights, events_of, attrgetter("flight_id"), streams, CATALOG), examples(topics.GATES_ANNOUNCED)
    )

    left = {"flights.departed.v1": 328_521, "flights.cancelled.v1": 8_255}
    assert year.streams == {**left, "gates.announced.v1": sum(left.values())}
    assert max(year.ids.values()) == 1
    (announced,) = [each for each in year.examples if isinstance(each, GateAnnounced)]
    assert _texts([announced]) == _texts(examples(topics.GATES_ANNOUNCED))


def test_a_line_keeps_its_pier_and_has_another_gate_on_the_next_day(flights: Table) -> None:
    first = gate_of(flights.row(0))
    next_day = {"day": "2", "time_hour": "2013-01-02T10:00:00Z"}
    second = gate_of({**flights.row(0), **next_day})
    assert (first.line_id, first.gate, second.gate) == (second.line_id, "A29", "A6")
    assert first.announced_at < second.announced_at
    gates = {(gate.origin, gate.gate) for gate in map(gate_of, (flights.row(number) for number in range(5_000)))}
    assert gates == {
        (at, f"{pier}{number}") for at, piers in PIERS.items() for pier in piers for number in range(1, GATES + 1)
    }


@pytest.mark.long
def test_every_departed_flight_arrived_or_is_unfit_because_it_was_diverted(arrivals: Year) -> None:
    assert arrivals.streams == {"flights.arrived.v1": 327_346, "flights.arrived.v1.dlq": 1_175}
    assert arrivals.reasons == {"Diverted": 1_175}
    assert max(arrivals.ids.values()) == 1
    assert _texts(arrivals.examples) == _texts(examples(topics.FLIGHTS_ARRIVED))


@pytest.mark.long
def test_gate_to_gate_takes_as_long_as_the_flight_and_some_taxiing(arrivals: Year) -> None:
    """The only check on time zones and dates that does not use them: air time was measured in the air."""
    minutes = arrivals.minutes_not_in_the_air
    assert min(minutes) > 0
    # Two rows are beyond: MSP on 22 July and LAX on 1 November, whose own clock times also say so: they landed
    # elsewhere on the way and their air time counts one leg.
    assert sorted(minute for minute in minutes.elements() if minute > 200) == [210, 235]


@pytest.mark.long
def test_the_arrival_shows_the_recorded_local_time_at_the_destination(arrivals: Year) -> None:
    # The one exception landed at 03:03 in the night in which summer time began; the row says 02:03, a time that the
    # clocks skipped.
    assert arrivals.other_arrival_clock == ["B635-JFK-20130310T0245Z"]


def test_every_weather_row_is_a_reading_with_an_id_of_its_own() -> None:
    wanted = examples(topics.WEATHER_OBSERVED)

    year = year_of(Timeline(read_table("weather"), weather_of, weather_id, (topics.WEATHER_OBSERVED,), CATALOG), wanted)

    assert year.streams == {"weather.observed.v1": 26_115}
    assert max(year.ids.values()) == 1
    assert _texts(year.examples) == _texts(wanted)


def _texts(events: list[BaseModel]) -> list[str]:
    return sorted(json.dumps(event.model_dump(mode="json"), sort_keys=True) for event in events)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("minute", "soon"),
        ("carrier", None),
        ("time_hour", "2013"),
        ("dep_delay", None),
        ("day", "32"),
        ("distance", ""),
    ],
)
def test_a_row_that_cannot_be_read_is_unfit(flights: Table, column: str, value: str | None) -> None:
    (outcome,) = events_of({**flights.row(0), column: value})
    assert outcome == departure_of({**flights.row(0), column: value})
    assert isinstance(outcome, Unfit)
    assert outcome.reason == "Unreadable"


def test_an_arrival_where_no_time_zone_is_known_is_unfit(flights: Table) -> None:
    outcome = arrival_of({**flights.row(0), "dest": "XXX"}, ZONES)
    assert isinstance(outcome, Unfit)
    assert outcome.reason == "UnknownTimezone"


def test_a_weather_row_that_cannot_be_read_is_unfit() -> None:
    row = read_table("weather").row(0)
    assert isinstance(weather_of({**row, "precip": "trace"}), Unfit)
    assert isinstance(weather_of({**row, "wind_dir": "N"}), Unfit)
