"""What the dimensions service reads from the environment."""

from __future__ import annotations

from pydantic import Field

from contracts.settings import Settings


class DimensionsSettings(Settings):
    """Settings of the service: it looks for files every `poll_seconds`, and takes none larger than `max_file_bytes`."""

    poll_seconds: float = Field(default=5.0, gt=0, description="how often to look for source files")
    # Rows are held in memory several times over; the largest table of the data set has 250 kB.
    max_file_bytes: int = Field(default=32 * 1024 * 1024, gt=0, description="a larger source file is set aside")
