"""`hand_over`: from the publisher's thread into the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def hand_over(loop: asyncio.AbstractEventLoop, settle: Callable[[T], None], outcome: T) -> None:
    """Call `settle` in the loop. One that has ended waits for nothing: what it had sent stays uncommitted, and is sent again."""
    try:
        loop.call_soon_threadsafe(settle, outcome)
    except RuntimeError:
        if not loop.is_closed():
            raise
