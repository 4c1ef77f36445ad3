"""`Followers`: those that follow topics, each of which must have reached the cut."""

from __future__ import annotations

from contracts.settings import S3Settings
from services.audit.cut import Cut
from services.audit.intake import Intake
from services.audit.plan import Source
from services.audit.sources.broker import Broker
from services.audit.sources.lake_table import LakeTable
from services.audit.sources.state_position import StatePosition, state_position, told


def has_run(broker: Broker, source: Source) -> bool:
    """Whether the pipeline that makes this topic of others ever has, here."""
    taken = any(broker.taken_in(str(source.by), each.name) for each in source.origins)
    return taken or any(broker.ends(source.name).values())


class Followers:
    """Pipelines, alerting and the lake. Each wait raises CouldNotAudit if it takes too long."""

    def __init__(self, broker: Broker, s3: S3Settings, cut: Cut, intake: Intake) -> None:
        self._broker, self._s3, self._cut, self._intake = broker, s3, cut, intake

    def has_run(self, source: Source) -> bool:
        """Whether the pipeline that makes this topic of others ever has, here."""
        return has_run(self._broker, source)

    def await_group(self, group: str, topic: str) -> None:
        """Until a consumer group has taken in what a topic has before the cut."""
        needed = self._intake.needed(topic)
        self._cut.until_reached(
            f"the consumer group {group}", topic, needed, lambda: self._broker.taken_in(group, topic)
        )

    def state(self, source: Source) -> StatePosition | None:
        """How far the run has come that keeps the groups or pairs of a topic."""
        return state_position(self._broker, self._s3, str(source.by), source.name)

    def told_state(self, source: Source) -> StatePosition | None:
        """The same behind a wait. Raises CouldNotAudit if it can't be read."""
        return told(lambda: self.state(source), f"checkpoints/{source.by}/{source.name}")

    def await_stateful(self, source: Source) -> None:
        """Until the pipeline that keeps a state has taken in all of before the cut, and so have the groups or pairs themselves: see
        `state_position`.
        """
        for raw in (each.name for each in source.origins):
            self.await_group(str(source.by), raw)
            self._await_state(source, raw)

    def await_lake(self, source: Source) -> LakeTable:
        """The topic's table, as it is when it has all records before the cut."""
        name, partitions = str(source.lake_table), self._cut.window(source.name).spans
        self._cut.until_reached(
            f"the lake table {name}",
            source.name,
            # What an earlier audit has seen may be gone from a table whose every row may be replaced.
            self._intake.needed(source.name, audited=source.contract.lands_newest),
            lambda: LakeTable(self._s3, name).positions(source.name, partitions),
        )
        # Opened anew: what it says of itself may be newer than what was opened to ask.
        return LakeTable(self._s3, name)

    def _await_state(self, source: Source, raw: str) -> None:
        def taken() -> dict[int, int] | None:
            found = self.state(source)
            return None if found is None else dict(found.taken.get(raw, {}))

        if taken() is not None:
            needed = self._intake.needed(raw)
            self._cut.until_reached(f"the state of {source.by}", raw, needed, lambda: taken() or {})
