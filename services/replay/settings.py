"""What the replaying services and the one-shot that sets their clock read from the environment."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, Field

from contracts.settings import Settings

Instant = Annotated[AwareDatetime, AfterValidator(lambda instant: instant.astimezone(UTC))]


class ReplayingSettings(Settings):
    """Settings of a replaying service. It ends after `limit` events; None is no limit."""

    limit: int | None = Field(default=None, ge=0, description="the service ends after so many events; none: no limit")


class ClockSettings(Settings):
    """How to set the clock: `speed` in seconds of event time per second, where to begin and to end (event time).

    `from_at` None goes on at the furthest event that was published; if there is none, it begins at `data_start_at`.
    """

    # A week in ten minutes.
    speed: float = Field(default=7 * 24 * 6, gt=0, allow_inf_nan=False, description="seconds of event time per second")
    from_at: Instant | None = Field(default=None, description="where to begin (event time); none: where it stopped")
    data_start_at: Instant | None = Field(default=None, description="where the data begin (event time)")
    until_at: Instant | None = Field(default=None, description="where to end (event time)")
