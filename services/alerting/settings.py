"""`AlertingSettings`: what the alerting service needs to know."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from contracts.settings import Settings


class AlertingSettings(Settings):
    """`HEADRACE_RULES_FILE`, `HEADRACE_RECEIVERS_FILE` and what every deployable has.

    Without a receivers file nobody is notified; the alerts are on their topic all the same.
    """

    rules_file: Path = Field(
        default=Path(__file__).parent / "rules.yaml", description="the rules, read again when they change"
    )
    receivers_file: Path | None = Field(default=None, description="who is notified; none: nobody")
    window_records: int = Field(
        default=5_000, ge=1, description="records of a partition that may wait for the delivery of their alerts"
    )
    stall_seconds: float = Field(
        default=60.0, ge=1.0, description="a consumer that does nothing for so long while records wait is begun anew"
    )
    # Brokers take 6 seconds at least.
    session_timeout_seconds: float = Field(
        default=10.0, ge=6.0, description="how long a killed worker's partitions lie idle"
    )
