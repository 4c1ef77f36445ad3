"""All departures of 2013 through `worst_routes`, killed three times on its way, against a list in plain Python (`pytest -m long`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from services.audit.hops.hop import Hop
from spark.pipeline import Pipeline
from spark.pipelines.worst_routes import worst_routes
from tests.spark.auditor import noted
from tests.spark.year.events import Event, Sent
from tests.spark.year.passage import Passage

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_PLACES, _ENOUGH = 20, 20


def _list(sent: Sequence[Sent]) -> list[dict[str, Any]]:
    flights: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for each in sent:
        flights[each.event["origin"], each.event["destination"]].append(each.event)
    means = {route: sum(each["departure_delay_minutes"] for each in own) / len(own) for route, own in flights.items()}

    def order(route: tuple[str, str]) -> tuple[Any, ...]:
        has_enough = len(flights[route]) >= _ENOUGH
        return not has_enough, -means[route] if has_enough else 0.0, route

    return [
        {
            "place": place,
            "origin": route[0],
            "destination": route[1],
            "departures": len(flights[route]),
            "delay_mean_minutes": means[route],
            "last_departed_at": max(each["departed_at"] for each in flights[route]),
        }
        for place, route in enumerate(sorted(flights, key=order)[:_PLACES], 1)
    ]


def _lists(passage: Passage) -> Iterator[tuple[int, list[Event]]]:
    """Of each batch, by its number."""
    by_batch = defaultdict(list)
    for name, event in passage.by_id().items():
        place, _, batch = name.split("/")
        assert place == str(event["place"])
        by_batch[int(batch)].append(event)
    yield from sorted(by_batch.items())


def test_every_list_of_a_year_is_right_though_it_was_killed(passed: Callable[[Pipeline], Passage]) -> None:
    passage = passed(worst_routes)
    lists = list(_lists(passage))
    assert [number for number, _ in lists] == [*range(len(passage.batches))]
    sent: list[Sent] = []
    for number, found in lists:
        sent += passage.batches[number].sent
        # The one of each batch takes long; the last one counts.
        if number % 10 == 0 or number == len(lists) - 1:
            assert found == _list(sent)
    assert len(sent) == len(passage.sent) >= 328_521
    report = passage.audit(Hop.RANKINGS)
    assert noted(report, "places ranked again") == _PLACES
