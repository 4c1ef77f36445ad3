"""Moments on the command line."""

from __future__ import annotations

from datetime import datetime

import typer


def moment(option: str, text: str | None) -> datetime | None:
    """An ISO 8601 time with its zone; None for None. Raises BadParameter, which says how to write it."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{option} is no time: write it as 2026-03-02T08:30Z") from None
    if at.tzinfo is None:
        raise typer.BadParameter(f"{option} has no zone: write {at:%Y-%m-%dT%H:%M}Z for UTC")
    return at
