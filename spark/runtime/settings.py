"""What the Spark deployables read from the environment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from contracts.settings import Settings
from spark.runtime.mode import Mode

ResumeFrom = Literal["both", "group", "checkpoint"]
OnDataLoss = Literal["stop", "continue"]
Trigger = Literal["interval", "available-now"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Cluster(_Part):
    """Where Spark runs.

    `jars` are folders, separated like PATH; empty where the jars lie beside Spark's own. `driver_memory` is the JVM's
    heap, in Spark's notation. A local master runs everything inside the driver. `class_archives` is a folder where the
    driver's JVM keeps its classes as it needs them, for the next start, which takes two thirds of the time; none if empty.
    """

    master: str = Field(default="local[2]", description="where Spark runs")
    jars: str = Field(
        default="", description="folders, separated as in PATH; none where the jars lie beside Spark's own"
    )
    driver_memory: str = Field(default="800m", description="the JVM's heap")
    class_archives: str = Field(
        default="", description="a folder for archives of the JVM's classes, which shorten the next start"
    )


_MOST_WITHOUT_POSITIONS = 120.0
"""In seconds: how long an interval lasts whose end alone tells positions."""


class LiveSettings(_Part):
    """The live enrichment: how long a batch lasts at least (seconds; 0: the next one begins when there are records), and how
    many records it takes at once. With the `trigger` `available-now` it takes the records that are there when it starts, and ends.

    `mode`: see `spark.runtime.mode`. In real-time mode records are not taken in batches. Positions are committed every `commit_seconds`, and
    those of a pipeline that leaves records out, or makes several of one, every `interval_seconds`, 120 at most; a pause ends each interval. `dead_letter_limit` is the share of bad records in a
    transaction, or in the last seconds in real-time mode, that stops the query in place of sending them to the dead letters; 1 never
    does. `resume_from` chooses when checkpoint and consumer group contradict each other, `on_data_loss` when records are
    gone from the topic unread, `on_state_loss` when the state of an aggregate is gone.
    One process runs the query, which holds a lease: after `lease_seconds` of silence another one may take over.
    `keep_broadcasts`, `encode_once`, `plan_once` and `read_once` make a pipeline fast. Without them it writes the same, by Spark's public ways alone.
    """

    trigger: Trigger = Field(
        default="interval", description="available-now: take the records that are there, and end, as a cron job does"
    )
    trigger_seconds: float = Field(
        default=0.0, ge=0, description="from the begin of one batch to that of the next, at least"
    )
    max_offsets_per_trigger: int = Field(default=1_048_576, gt=0, description="records in a batch at most")
    mode: Mode = Field(default=Mode.EXACTLY_ONCE, description="which guarantee, which delay")
    interval_seconds: float = Field(
        default=3600.0,
        ge=5,
        le=3600,
        description="real-time mode: how long one of Spark's intervals lasts; a pause ends each",
    )
    commit_seconds: float = Field(
        default=5.0,
        ge=1,
        le=60,
        description="real-time mode: between two commits of positions, where one record comes of each",
    )
    dead_letter_limit: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="the share of bad records, of more than 100, that stops a pipeline; 1 never does",
    )
    resume_from: ResumeFrom = Field(
        default="both", description="which one counts where group and checkpoint contradict each other"
    )
    on_data_loss: OnDataLoss = Field(default="stop", description="what to do where records are gone unread")
    on_state_loss: str = Field(
        default="stop",
        pattern=r"^(stop|(rebuild|begin-anew|keep):([0-9a-f]{8}|unknown_[0-9]+))$",
        description="what to do where the state of an aggregate, a join, a sequence, a list or distinct events is gone: stop, or rebuild:RUN, begin-anew:RUN, keep:RUN as the error says",
    )
    lease_seconds: float = Field(default=6.0, gt=0, description="a successor takes over after so much silence")
    keep_broadcasts: bool = Field(
        default=True, description="rows of a dimension go to the tasks once for each version; false: for each batch"
    )
    encode_once: bool = Field(
        default=True,
        description="what a lookup fills in is encoded once for each row of the dimension; false: for each record",
    )
    plan_once: bool = Field(
        default=True,
        description="a batch's query is planned once for each version of schemas and dimensions; false: each time",
    )
    read_once: bool = Field(
        default=True,
        description="an aggregate's records are read again for those set aside only where there are some; false: always",
    )

    def interval(self, *, one_of_each: bool) -> float:
        """How long an interval lasts, in seconds. A pipeline that makes one record of each tells its positions in between, too (`spark.sinks.kafka.follower`)."""
        return self.interval_seconds if one_of_each else min(self.interval_seconds, _MOST_WITHOUT_POSITIONS)

    @property
    def ends(self) -> bool:
        """Whether a pipeline ends by itself."""
        return self.trigger == "available-now"

    def spark_trigger(self) -> dict[str, Any]:
        """For `DataStreamWriter.trigger`."""
        if self.ends:
            return {"availableNow": True}
        return {"processingTime": f"{round(self.trigger_seconds * 1000)} milliseconds"}

    def fault(self) -> str | None:
        """Why these settings contradict each other; None if they don't."""
        if self.ends and self.mode == Mode.REAL_TIME:
            return "HEADRACE_LIVE__TRIGGER=available-now takes batches, and real-time mode has none: leave one of the two out"
        return None

    def fault_of_several(self) -> str | None:
        """Why a process can't run several pipelines with these settings; None if it can."""
        if self.resume_from != "both":
            return "HEADRACE_LIVE__RESUME_FROM is about one pipeline, and would begin others anew"
        if self.mode == Mode.REAL_TIME:
            return "in real-time mode a process runs one pipeline, whose tasks hold their slots"
        return None


class LakeSettings(_Part):
    """The lake writer: the longer between two commits (seconds), the larger the files.

    `topics` are those that this process lands; none named is all whose contract asks for a table. A table has one writer,
    which holds a lease: after `lease_seconds` of silence another one may take over. `on_data_loss` chooses when records are gone from a topic
    before its table had them.
    """

    topics: tuple[str, ...] = Field(default=(), description="those that this process lands; none: all with a table")
    trigger_seconds: float = Field(default=10.0, ge=0, description="between two commits")
    max_offsets_per_trigger: int = Field(default=500_000, gt=0, description="records in a batch at most")
    on_data_loss: OnDataLoss = Field(default="stop", description="what to do where records are gone unread")
    lease_seconds: float = Field(default=12.0, gt=0, description="a successor takes over after so much silence")


class SparkSettings(Settings):
    """Settings of `python -m spark`. `stalled_after_seconds` without any progress, a query counts as unhealthy."""

    spark: Cluster = Cluster()
    live: LiveSettings = LiveSettings()
    lake: LakeSettings = LakeSettings()
    stalled_after_seconds: float = Field(
        default=120.0, gt=0, description="without progress for so long, a query is unhealthy"
    )
