# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class ParcelDispatchedRounds(BaseModel):
    """Parcels of a van that were dispatched closely after each other: a round that is over."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    round_id: str
    """Identity of the round: van and end, which no other round of the van has, e.g. N14228/2013-01-01T10:47:00Z."""
    van_id: str
    """Registration of the van."""
    begins_at: AwareDatetime
    """First dispatched_at of the session, inclusive, instant in UTC, milliseconds since the epoch."""
    ends_at: AwareDatetime
    """End of the session, the latest dispatched_at with its gap behind it, exclusive, instant in UTC, milliseconds since the epoch."""
    parcels: int
    """Parcels of the round, without unit."""
    hours: float
    """From the first dispatch to the last, in hours; 0 of one parcel."""
    delay_first_minutes: int
    """How late the first parcel was, in minutes; negative when early. Of several at once the least."""
    delay_last_minutes: int
    """How late the last parcel was, in minutes; negative when early. Of several at once the greatest."""
    delay_max_minutes: int
    """How late the latest of them was, in minutes."""
    delay_sum_minutes: int
    """Sum of how late they were, in minutes; early ones count against it."""
    is_final: bool
    """Whether nothing can change the session any more; filled in by the platform."""
