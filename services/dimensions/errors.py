"""What keeps the service from publishing a file, or setting it aside."""

from __future__ import annotations

from contracts.errors import HeadraceError


class Overtaken(HeadraceError):
    """The file that was read is not the newest any more, or somebody else has published; the next look takes what is there then."""
