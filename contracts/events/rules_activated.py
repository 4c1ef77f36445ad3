# ruff: noqa
"""Generated from the contracts by `headrace contracts generate`; do not edit."""

from __future__ import annotations

from pydantic import AwareDatetime, BaseModel, ConfigDict


class RulesActivated(BaseModel):
    """From an offset of a partition on, its records are evaluated with these rules, until the next such event of the partition."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
    )
    topic: str
    """Topic whose records are evaluated."""
    partition: int
    """Partition of the topic, counted from 0, without unit."""
    from_offset: int
    """Offset of the first record that is evaluated with these rules, without unit. A later event with the same or a smaller one replaces this event from there on, unless it is of a worker that had lost the partition: see generation."""
    activated_at: AwareDatetime
    """When the alerting service began to take the rules into use, instant in UTC, milliseconds since the epoch."""
    rules_version: str
    """First 12 hexadecimal digits of the SHA-256 of the rules file."""
    rules: dict[str, str]
    """The topic's rules in full, as JSON, by rule version: the first 12 hexadecimal digits of the SHA-256 of this JSON without the description."""
    generation: int | None = None
    """Generation of the consumer group in which the worker was given the partition, without unit; null in events of before this field. An event of a smaller generation and an earlier activated_at than one before it, of the same partition, is of a worker that had lost the partition, and counts for nothing."""
