# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Settlement(StrEnum):
    """What was done about a dead letter."""

    redriven = "redriven"
    purged = "purged"


class DeadLetterSettled(BaseModel):
    """Somebody decided about a dead letter. Its first entry of each action counts; one that was redriven may be purged later."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    dead_letter: str
    """The dead letter's own place: dead-letter topic/partition/offset."""
    coordinate: str | None = None
    """topic/partition/offset of the record that became the dead letter. Null: it never was a record of a topic."""
    service: str | None = None
    """Who had set the record aside: the connector name of the dead letter. Null: it did not say, or the entry is of before this field."""
    action: Settlement
    """redriven: its record is in the topic of the coordinate once more, sent in the same transaction as this. purged: it was given up, and deleted from its topic after this was written."""
    reason: str | None = None
    """Why it had become a dead letter: the name of an error. Null: it did not say."""
    value_sha256: str | None = None
    """SHA-256 of the dead letter's value, hexadecimal. Null: it had no value."""
    settled_at: AwareDatetime
    """When it was decided, instant in UTC, milliseconds since the epoch."""
