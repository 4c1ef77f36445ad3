"""What the dimensions service reads from the environment."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from contracts.settings import Settings


class DimensionsSettings(Settings):
    """Settings of the service: it looks for files every `poll_seconds`, and takes none larger than `max_file_bytes`. Of a dimension that is made of
    a topic the versions of the last `history_days` can be read.
    """

    poll_seconds: float = Field(default=5.0, gt=0, description="how often to look for source files")
    # The worst file of this size, a duplicate key in each row, takes 440 MB of the container's 512; the largest table of the data set has 250 kB.
    max_file_bytes: int = Field(default=16 * 1024 * 1024, gt=0, description="a larger source file is set aside")
    history_days: int = Field(
        default=7, gt=0, description="how long the versions of a dimension that is made of a topic can be read"
    )
    on_topic_loss: Literal["fail", "continue"] = Field(
        default="fail",
        description="what becomes of a dimension whose topic was made anew: keep the last version, or go on with what the topic has now",
    )
