# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class FlightDepartedRotations(BaseModel):
    """Departures of an aircraft from New York that follow each other closely: a rotation that is over."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    rotation_id: str
    """Identity of the rotation: tail number and end, which no other rotation of the aircraft has, e.g. N14228/2013-01-01T16:17:00Z."""
    tail_number: str
    """Tail number of the aircraft."""
    begins_at: AwareDatetime
    """First departed_at of the session, inclusive, instant in UTC, milliseconds since the epoch."""
    ends_at: AwareDatetime
    """End of the session, the latest departed_at with its gap behind it, exclusive, instant in UTC, milliseconds since the epoch."""
    legs: int
    """Departures in the rotation, without unit."""
    hours: float
    """From the first departure to the last, in hours; 0 of one departure."""
    delay_first_minutes: int
    """Departure delay of the first leg, in minutes; negative when early. Of several at once the least."""
    delay_last_minutes: int
    """Departure delay of the last leg, in minutes; negative when early. Of several at once the greatest."""
    delay_max_minutes: int
    """The greatest departure delay of its legs, in minutes; negative if all were early."""
    delay_sum_minutes: int
    """Sum of the departure delays of its legs, in minutes; early ones count against it."""
    is_final: bool
    """Whether nothing can change the session any more; filled in by the platform."""
