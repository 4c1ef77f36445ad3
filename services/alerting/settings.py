"""`AlertingSettings`: what the alerting service needs to know."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from contracts.settings import Settings


class AlertingSettings(Settings):
    """`HEADRACE_RULES_FILE`, `HEADRACE_RECEIVERS_FILE` and what every deployable has.

    Without a receivers file nobody is notified; the alerts are on their topic all the same.
    """

    rules_file: Path = Path(__file__).parent / "rules.yaml"
    receivers_file: Path | None = None
    # Records that may wait for a delivery ahead of them before reading stops; a record is about 3 kB here.
    window_records: int = Field(default=5_000, ge=1)
