from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from services.alerting.consuming.assigned import Assigned
from services.alerting.consuming.intake import Intake
from services.alerting.consuming.membership import Membership
from services.alerting.consuming.window import Window
from tests import sample
from tests.sample import topics


class Group:
    """A group that takes the next commits, or refuses them, and a clock that stands still in between."""

    def __init__(self, *answers: bool) -> None:
        self.now = 100.0
        self.asked = 0
        self._answers = list(answers)
        self.assigned = Assigned("t", 0, Window(10, lambda error: None), 1)
        self.membership = Membership(10.0, self._confirm, clock=lambda: self.now)

    async def _confirm(self) -> bool:
        self.asked += 1
        if not self._answers:
            self.assigned.revoked = True
            return False
        return self._answers.pop(0)

    def has(self) -> bool:
        return asyncio.run(self.membership.has(self.assigned))


def test_an_answer_counts_for_half_a_session() -> None:
    group = Group(True, True)
    assert group.has()
    assert group.asked == 1
    group.now += 4.9
    assert group.has()
    assert group.asked == 1
    group.now += 0.1
    assert group.has()
    assert group.asked == 2


def test_a_worker_that_woke_without_its_partition_has_none() -> None:
    group = Group(True)
    assert group.has()
    group.now += 60
    assert not group.has()


def test_a_refusal_that_passes_is_waited_for() -> None:
    group = Group(False, False, True)
    assert group.has()
    assert group.asked == 3


def test_with_the_first_record_of_a_partition_the_group_is_asked_by_where_it_begins() -> None:
    """It takes a commit of something from members only, and one of nothing from anybody."""
    group = Group()
    nothing: Any = None
    name = topics.DEPOTS_OBSERVED.name
    catalog = sample.catalog()
    contract, schema = catalog.topic(name), catalog.schema(name)
    intake = Intake(contract, schema, str, nothing, nothing, nothing, group.membership)
    asyncio.run(intake.take(group.assigned, [SimpleNamespace(offset=17)]))
    assert (group.asked, group.assigned.handled) == (1, 17)
