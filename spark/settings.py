"""What the Spark deployables read from the environment."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from contracts.settings import Settings


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cluster(_Part):
    """Where Spark runs.

    `jars` are folders, separated like PATH; empty where the jars lie beside Spark's own. `driver_memory` is the JVM's
    heap, in Spark's notation. A local master runs everything inside the driver.
    """

    master: str = "local[2]"
    jars: str = ""
    driver_memory: str = "700m"


class LiveSettings(_Part):
    """The live enrichment: how often it looks for records (seconds), and how many it takes at once."""

    trigger_seconds: float = Field(default=0.2, ge=0)
    max_offsets_per_trigger: int = Field(default=200_000, gt=0)


class LakeSettings(_Part):
    """The lake writer: the longer between two commits (seconds), the larger the files.

    `topics` are those that this process lands; none named is all whose contract asks for a table. A table has one writer.
    """

    topics: tuple[str, ...] = ()
    trigger_seconds: float = Field(default=10.0, ge=0)
    max_offsets_per_trigger: int = Field(default=500_000, gt=0)


class SparkSettings(Settings):
    """Settings of `python -m spark`. `stalled_after_seconds` without any progress, a query counts as unhealthy."""

    spark: Cluster = Cluster()
    live: LiveSettings = LiveSettings()
    lake: LakeSettings = LakeSettings()
    stalled_after_seconds: float = Field(default=120.0, gt=0)
