# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedWorstRoutes(BaseModel):
    """A place in the list of the routes with the highest mean departure delay."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    place: int
    """Place in the list, from 1 on; 1 is the worst. Filled in by the platform."""
    origin: str
    """FAA code of the departure airport."""
    destination: str
    """FAA code of the arrival airport."""
    departures: int
    """Flights that have left on the route, without unit. A route with fewer than twenty stands behind those that have more."""
    delay_mean_minutes: float
    """Mean of their departure delays, in minutes; negative when early."""
    last_departed_at: AwareDatetime
    """When the newest of them left the gate, instant in UTC, milliseconds since the epoch."""
