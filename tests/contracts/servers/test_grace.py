"""What a registry doesn't know is waited for, and garbage costs little, however much of it there is."""

from __future__ import annotations

from dataclasses import dataclass, field

from contracts.servers.grace import Grace

LAG = 3.0


@dataclass
class Node:
    """A node of a registry that knows some ids, and the clock that whoever asks it waits by."""

    knows: set[int] = field(default_factory=set)
    asked: int = 0
    now: float = 1000.0

    def ask(self, grace: Grace, schema_id: int) -> bool | None:
        def answer() -> bool | None:
            self.asked += 1
            return schema_id in self.knows or None

        return grace.found(schema_id, answer, self.wait)

    def wait(self, seconds: float) -> None:
        self.now += seconds


def a_grace(node: Node) -> Grace:
    return Grace(LAG, clock=lambda: node.now)


def test_in_a_rest_each_id_is_asked_for_once_however_many_records_name_it() -> None:
    node = Node()
    grace = a_grace(node)
    assert node.ask(grace, 0) is None
    asked = node.asked
    for _ in range(20):
        for schema_id in range(1000):
            assert node.ask(grace, schema_id) is None
    assert node.asked == asked + 999


def test_an_id_that_comes_in_a_rest_is_asked_for_again_after_the_lag_then_ever_more_seldom() -> None:
    node = Node()
    grace = a_grace(node)
    node.ask(grace, 0)
    node.ask(grace, 1)
    node.wait(LAG)
    node.knows.add(1)
    assert node.ask(grace, 1)
    node.ask(grace, 2)
    asked = node.asked
    for _ in range(25):
        node.wait(1)
        node.ask(grace, 2)
    assert grace.rests
    assert node.asked == asked + 3, "after 3, 6 and 12 seconds"


def test_once_a_rest_is_over_an_id_that_came_in_it_is_waited_for() -> None:
    node = Node()
    grace = a_grace(node)
    node.ask(grace, 0)
    node.wait(10 * LAG - 1)
    assert node.ask(grace, 1) is None
    assert not grace.was_in_vain(1)
    node.wait(1)
    assert node.ask(grace, 1) is None
    assert grace.was_in_vain(1)


def test_garbage_that_does_not_end_is_waited_for_ever_more_seldom() -> None:
    node = Node()
    grace = a_grace(node)
    began, waits, schema_id = node.now, [], 0
    while node.now < began + 3600:
        schema_id += 1
        before = node.now
        node.ask(grace, schema_id)
        if node.now > before:
            waits.append(round(before - began))
        node.wait(1)
    assert waits == [0, 33, 96, 219, 462, 945, 1548, 2151, 2754, 3357]


def test_an_id_that_is_found_makes_the_rests_short_again() -> None:
    node = Node(knows={7})
    grace = a_grace(node)
    for schema_id in (1, 2):
        node.ask(grace, schema_id)
        node.wait(600)
    assert node.ask(grace, 7)
    node.ask(grace, 3)
    node.wait(10 * LAG - 1)
    assert grace.rests
    node.wait(1)
    assert not grace.rests
