"""`Groups`: what the groups of an aggregate count, compared with the raw records of the load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from spark.pipeline import Pipeline
from tests.faults.stage.positions import Offsets

_COUNT = "departures"


class Groups:
    """The newest record of each group and the late records of one aggregate, as far as they were read."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline, self.topic = pipeline.name, pipeline.target
        self.late = f"{pipeline.target}.late"
        self._is_final = pipeline.output == "append"
        self._counts: dict[str, int] = {}
        self._written: Counter[str] = Counter()
        self._ids: set[str] = set()
        self._runs: set[str] = set()
        self._late: set[str] = set()
        self._newest = ""
        """The begin of the newest window that was there at the last look."""

    def take(self, record_id: str, body: Mapping[str, Any]) -> list[str]:
        """Take a record of the aggregate in, by its id KEY/RUN/BATCH; what is wrong with it alone."""
        key = str(body["window_id"])
        is_again = record_id in self._ids
        self._ids.add(record_id)
        self._runs.add(record_id.split("/")[-2])
        self._counts[key] = int(body[_COUNT])
        self._written[key] += 1
        if is_again:
            return [f"the group {record_id} is there again"]
        if self._is_final and self._written[key] > len(self._runs):
            return [f"the group {key} is there {self._written[key]} times, of {len(self._runs)} runs"]
        return []

    def take_late(self, at: str) -> list[str]:
        """Take a late record in; what is wrong with it."""
        if at in self._late and len(self._runs) < 2:
            return [f"{at} is late twice"]
        self._late.add(at)
        return []

    def compared(
        self, members: Mapping[str, Sequence[str]], odd: Mapping[str, int], ends: Offsets
    ) -> tuple[list[str], list[str]]:
        """What is lost, and what counted twice. `members` are the coordinates of raw records by group, `odd` how many others a group may have.

        Up to `ends` all is counted, or late. A rebuild cuts its batches otherwise, so it may find one in time that was late before.
        """
        lost, doubled = list[str](), list[str]()
        over, is_rebuilt = self._newest, len(self._runs) > 1
        for key, coordinates in members.items():
            in_time = [at for at in coordinates if at not in self._late]
            least = sum(is_before(at, ends) for at in in_time)
            most = (len(coordinates) if is_rebuilt else len(in_time)) + odd.get(key, 0)
            # A window that is over is written once a later event has come.
            is_due = not self._is_final or key in self._counts or _begin(key) < over
            count = self._counts.get(key, 0)
            if is_due and count < least:
                lost.append(f"{self.topic}: the group {key} counts {count} of {least}")
            if count > most:
                doubled.append(f"{self.topic}: the group {key} counts {count}, and {most} belong to it")
        self._newest = max([self._newest, *(_begin(key) for key in self._counts if key in members)])
        return lost, doubled


def _begin(key: str) -> str:
    return key.partition("/")[2]


def is_before(at: str, ends: Offsets) -> bool:
    """Whether a coordinate lies before these ends of its topic."""
    _, partition, offset = at.rsplit("/", 2)
    return int(offset) < ends.get(int(partition), 0)
