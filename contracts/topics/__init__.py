"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from typing import Final

from contracts import events
from contracts.handle import Topic

AIRPORTS_SERVED: Final[Topic[events.AirportServed]] = Topic("airports.served.v1", events.AirportServed)
"""Airports that arrived flights have served, each flight's origin and destination."""
ALERTS_RAISED: Final[Topic[events.AlertRaised]] = Topic("alerts.raised.v1", events.AlertRaised)
"""Every match of a threshold rule, once for each rule version and record."""
DEADLETTERS_SETTLED: Final[Topic[events.DeadLetterSettled]] = Topic("deadletters.settled.v1", events.DeadLetterSettled)
"""What became of each dead letter that `headrace dlq` redrove or purged; the ledger that makes a redrive happen once."""
FLIGHTS_ARRIVED: Final[Topic[events.FlightArrived]] = Topic("flights.arrived.v1", events.FlightArrived)
"""Every flight that reached the gate of its scheduled destination."""
FLIGHTS_ARRIVED_ENRICHED: Final[Topic[events.FlightArrivedEnriched]] = Topic(
    "flights.arrived.enriched.v1", events.FlightArrivedEnriched
)
"""Arrived flights with airline, airport and plane filled in from the dimensions, and their speed."""
FLIGHTS_CANCELLED: Final[Topic[events.FlightCancelled]] = Topic("flights.cancelled.v1", events.FlightCancelled)
"""Every scheduled flight that never left."""
FLIGHTS_DEPARTED: Final[Topic[events.FlightDeparted]] = Topic("flights.departed.v1", events.FlightDeparted)
"""Every flight that left its gate at one of New York's three airports."""
FLIGHTS_DEPARTED_CHRONIC: Final[Topic[events.FlightDepartedChronic]] = Topic(
    "flights.departed.chronic.v1", events.FlightDepartedChronic
)
"""Departures that were late as the two before them of the same aircraft were."""
FLIGHTS_DEPARTED_DELAYS: Final[Topic[events.FlightDepartedDelays]] = Topic(
    "flights.departed.delays.v1", events.FlightDepartedDelays
)
"""Departures of each airport in windows of fifteen minutes, and how late they were; the newest record of a window counts."""
FLIGHTS_DEPARTED_ENRICHED: Final[Topic[events.FlightDepartedEnriched]] = Topic(
    "flights.departed.enriched.v1", events.FlightDepartedEnriched
)
"""Departed flights with airline, airports and plane filled in from the dimensions."""
FLIGHTS_DEPARTED_FINALDELAYS: Final[Topic[events.FlightDepartedFinalDelays]] = Topic(
    "flights.departed.finaldelays.v1", events.FlightDepartedFinalDelays
)
"""Departures of each airport in windows of fifteen minutes, and how late they were, each once, when nothing can change it any more."""
FLIGHTS_DEPARTED_GATES: Final[Topic[events.FlightDepartedGate]] = Topic(
    "flights.departed.gates.v1", events.FlightDepartedGate
)
"""Departed flights with the gate that was last announced for their line."""
FLIGHTS_DEPARTED_LEGS: Final[Topic[events.FlightLeg]] = Topic("flights.departed.legs.v1", events.FlightLeg)
"""Every flight that left its gate, with its arrival; without, if it did not reach its scheduled destination within twenty hours."""
FLIGHTS_DEPARTED_LONGHAUL: Final[Topic[events.LongHaulFlightDeparted]] = Topic(
    "flights.departed.longhaul.v1", events.LongHaulFlightDeparted
)
"""Departed flights of 2,000 miles or more."""
FLIGHTS_DEPARTED_ONCE: Final[Topic[events.FlightDepartedOnce]] = Topic(
    "flights.departed.once.v1", events.FlightDepartedOnce
)
"""Every flight that left its gate, once, though its departure may have been sent again."""
FLIGHTS_DEPARTED_PUNCTUALITY: Final[Topic[events.FlightDepartedPunctuality]] = Topic(
    "flights.departed.punctuality.v1", events.FlightDepartedPunctuality
)
"""Flights of each airport in windows of an hour that begin every five minutes, how many were cancelled, and how late the others left; the newest record of a window counts."""
FLIGHTS_DEPARTED_ROTATIONS: Final[Topic[events.FlightDepartedRotations]] = Topic(
    "flights.departed.rotations.v1", events.FlightDepartedRotations
)
"""Rotations of each aircraft, departures from New York's airports that follow each other closely, and how their delay went on, each once, when it is over."""
FLIGHTS_DEPARTED_WEATHER: Final[Topic[events.DepartureWeather]] = Topic(
    "flights.departed.weather.v1", events.DepartureWeather
)
"""Every flight that left its gate, with the weather at its origin in the hour in which it left; without, if nobody observed that hour."""
FLIGHTS_DEPARTED_WORSTROUTES: Final[Topic[events.FlightDepartedWorstRoutes]] = Topic(
    "flights.departed.worstroutes.v1", events.FlightDepartedWorstRoutes
)
"""The twenty routes with the highest mean delay of all their departures; the newest record of a place counts."""
GATES_ANNOUNCED: Final[Topic[events.GateAnnounced]] = Topic("gates.announced.v1", events.GateAnnounced)
"""From which gate the next flight of each line leaves, two hours before it is to leave; of each line the newest record is kept."""
REPLAY_STARTED: Final[Topic[events.ReplayStarted]] = Topic("replay.started.v1", events.ReplayStarted)
"""The replay clock that the replaying services share; the newest record is in force."""
RULES_ACTIVATED: Final[Topic[events.RulesActivated]] = Topic("rules.activated.v1", events.RulesActivated)
"""Which alert rules apply from which record of a partition on; with it the alerts can be recomputed from the records."""
WEATHER_OBSERVED: Final[Topic[events.WeatherObserved]] = Topic("weather.observed.v1", events.WeatherObserved)
"""Hourly weather at New York's three airports."""
