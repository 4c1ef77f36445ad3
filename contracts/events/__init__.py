"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from contracts.events.airports_served import AirportServed
from contracts.events.alerts_raised import AlertRaised, Severity
from contracts.events.deadletters_settled import DeadLetterSettled, Settlement
from contracts.events.flights_arrived import FlightArrived
from contracts.events.flights_arrived_enriched import FlightArrivedEnriched
from contracts.events.flights_cancelled import FlightCancelled
from contracts.events.flights_departed import FlightDeparted
from contracts.events.flights_departed_chronic import FlightDepartedChronic
from contracts.events.flights_departed_delays import FlightDepartedDelays
from contracts.events.flights_departed_enriched import FlightDepartedEnriched
from contracts.events.flights_departed_finaldelays import FlightDepartedFinalDelays
from contracts.events.flights_departed_gates import FlightDepartedGate
from contracts.events.flights_departed_legs import FlightLeg
from contracts.events.flights_departed_longhaul import LongHaulFlightDeparted
from contracts.events.flights_departed_once import FlightDepartedOnce
from contracts.events.flights_departed_punctuality import FlightDepartedPunctuality
from contracts.events.flights_departed_rotations import FlightDepartedRotations
from contracts.events.flights_departed_weather import DepartureWeather
from contracts.events.flights_departed_worstroutes import FlightDepartedWorstRoutes
from contracts.events.gates_announced import GateAnnounced
from contracts.events.replay_started import ReplayStarted
from contracts.events.rules_activated import RulesActivated
from contracts.events.weather_observed import WeatherObserved

__all__ = [
    "AirportServed",
    "AlertRaised",
    "DeadLetterSettled",
    "DepartureWeather",
    "FlightArrived",
    "FlightArrivedEnriched",
    "FlightCancelled",
    "FlightDeparted",
    "FlightDepartedChronic",
    "FlightDepartedDelays",
    "FlightDepartedEnriched",
    "FlightDepartedFinalDelays",
    "FlightDepartedGate",
    "FlightDepartedOnce",
    "FlightDepartedPunctuality",
    "FlightDepartedRotations",
    "FlightDepartedWorstRoutes",
    "FlightLeg",
    "GateAnnounced",
    "LongHaulFlightDeparted",
    "ReplayStarted",
    "RulesActivated",
    "Settlement",
    "Severity",
    "WeatherObserved",
]
