"""All departures of 2013 through `aircraft_rotations`, killed three times on its way, against rotations in plain Python (`pytest -m long`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import pytest

from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.aircraft_rotations import aircraft_rotations
from tests.spark.year.events import Event, Sent
from tests.spark.year.passage import Batch, Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Of one aircraft."""

    begins_at: datetime
    ends_at: datetime
    legs: Sequence[Event]

    def record(self) -> dict[str, Any]:
        in_order = sorted((leg["departed_at"], leg["departure_delay_minutes"]) for leg in self.legs)
        delays, tail_number = [delay for _, delay in in_order], self.legs[0]["tail_number"]
        return {
            "rotation_id": f"{tail_number}/{self.ends_at:%Y-%m-%dT%H:%M:%SZ}",
            "tail_number": tail_number,
            "begins_at": in_order[0][0],
            "ends_at": self.ends_at,
            "legs": len(self.legs),
            "hours": (in_order[-1][0] - in_order[0][0]).total_seconds() / 3600,
            "delay_first_minutes": delays[0],
            "delay_last_minutes": delays[-1],
            "delay_max_minutes": max(delays),
            "delay_sum_minutes": sum(delays),
            "is_final": True,
        }


def _ends_at(flight: Event) -> datetime:
    """Of a rotation with this leg alone."""
    at: datetime = flight["departed_at"]
    return at + timedelta(hours=8 if flight["origin"] == "JFK" else 6)


def _joined(rotations: Iterable[Rotation]) -> Iterator[Rotation]:
    """Those that touch are one."""
    last: Rotation | None = None
    for each in sorted(rotations, key=attrgetter("begins_at")):
        if last is not None and each.begins_at <= last.ends_at:
            last = Rotation(last.begins_at, max(last.ends_at, each.ends_at), [*last.legs, *each.legs])
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _rotations(batches: Sequence[Batch]) -> tuple[list[Rotation], list[Rotation], list[Sent]]:
    """Those that are over, those that are not, and the late records: one that is over takes no more legs."""
    over: list[Rotation] = []
    late: list[Sent] = []
    going_on: dict[str, list[Rotation]] = defaultdict(list)
    for batch in batches:
        for each in batch.sent:
            flight, at, ends_at = each.event, each.event["departed_at"], _ends_at(each.event)
            if flight["tail_number"] is not None and ends_at <= batch.late:
                late.append(each)
            elif flight["tail_number"] is not None:
                going_on[flight["tail_number"]].append(Rotation(at, ends_at, [flight]))
        for tail_number, rotations in going_on.items():
            joined = list(_joined(rotations))
            over += [each for each in joined if each.ends_at <= batch.over]
            going_on[tail_number] = [each for each in joined if each.ends_at > batch.over]
    return over, [each for rotations in going_on.values() for each in rotations], late


def _counted(records: Iterable[Event]) -> Counter[tuple[tuple[str, Any], ...]]:
    return Counter(tuple(sorted(each.items())) for each in records)


def test_every_rotation_of_a_year_is_right_though_it_was_killed(passed: Callable[[Pipeline], Passage]) -> None:
    passage = passed(aircraft_rotations)
    over, going_on, late = _rotations(passage.batches)
    written = passage.written()
    assert _counted(written) == _counted(each.record() for each in over)
    # That of the last event, which made all others over.
    assert [len(each.legs) for each in going_on] == [1]
    passage.check_late(late)
    legs = sum(each["legs"] for each in written)
    assert legs + 1 + len(late) == sum(each.event["tail_number"] is not None for each in passage.sent)
    assert max(each["legs"] for each in written) > 2
    if passage.is_in_order:
        assert len({each["rotation_id"] for each in written}) == len(written)
    passage.audit(Hop.AGGREGATES)
