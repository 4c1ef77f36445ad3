# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Severity(StrEnum):
    """How urgent an alert is, without unit."""

    info = "info"
    warning = "warning"
    critical = "critical"


class AlertRaised(BaseModel):
    """A record matched a threshold rule. The same record and rule version always raise the same alert."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    alert_id: UUID
    """Identity of the alert: a version 5 UUID of rule, rule version and coordinate."""
    rule: str
    """Name of the rule in rules.yaml."""
    rule_version: str
    """First 12 hexadecimal digits of the SHA-256 of the rule's canonical content."""
    severity: Severity
    """How urgent the alert is."""
    group_key: str
    """Values of the rule's group_by fields, joined by '/'; empty when the rule does not group."""
    message: str
    """The rule's message with the record's values filled in."""
    topic: str
    """Topic of the record that matched."""
    coordinate: str
    """topic/partition/offset of the raw record that the match goes back to."""
    occurred_at: AwareDatetime
    """Event time of the record, instant in UTC, milliseconds since the epoch."""
    field: str
    """Name of the record's field that crossed the threshold."""
    operator: str
    """Comparison that held: one of >, >=, <, <=, ==, !=."""
    threshold: float
    """Threshold of the rule, in the unit of the field."""
    value: float
    """Value of the field, in the unit of the field."""
    values: dict[str, str]
    """The record's other fields that the rule names (group_by, message), as text, by field name."""
    cooldown_seconds: int
    """Shortest time between two notifications of the same rule and group, in seconds of event time."""
