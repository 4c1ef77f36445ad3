"""`AuditSettings`: what the audit needs to know beside the addresses."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from contracts.settings import Settings
from services.alerting.settings import AlertingSettings


class AuditSettings(Settings):
    """`HEADRACE_RULES_FILE` is alerting's own: its rules count where alerting has recorded none. `HEADRACE_LOOKUPS_FILE` says
    what the pipelines look up, `HEADRACE_FILTERS_FILE` which records those let through that have a filter,
    `HEADRACE_AGGREGATES_FILE` what those count that aggregate, `HEADRACE_JOINS_FILE` which pairs those make that join, `HEADRACE_RANKINGS_FILE` what
    those rank that make lists.
    """

    rules_file: Path = Field(
        default=AlertingSettings.model_fields["rules_file"].default,
        description="they count where alerting has recorded none",
    )
    lookups_file: Path = Field(default=Path(__file__).parent / "lookups.yaml", description="what the pipelines look up")
    filters_file: Path = Field(
        default=Path(__file__).parent / "filters.yaml", description="which records pipelines with a filter let through"
    )
    aggregates_file: Path = Field(
        default=Path(__file__).parent / "aggregates.yaml", description="what pipelines count that aggregate"
    )
    joins_file: Path = Field(
        default=Path(__file__).parent / "joins.yaml", description="which pairs pipelines make that join"
    )
    rankings_file: Path = Field(
        default=Path(__file__).parent / "rankings.yaml", description="what pipelines rank that make lists"
    )
