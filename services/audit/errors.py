"""What keeps an audit from a verdict."""

from __future__ import annotations

from contracts.errors import HeadraceError


class CouldNotAudit(HeadraceError):
    """There is no verdict: something could not be read, or lags behind the cut. The text says what, and the cure."""
