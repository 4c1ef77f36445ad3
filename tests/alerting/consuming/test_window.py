"""`Window`: acknowledged in order, and only after delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from services.alerting.consuming.window import Window


class Reading:
    """A record that remembers, in a list shared with its neighbours, that it was acknowledged."""

    def __init__(self, offset: int, acked: list[int]) -> None:
        self._offset = offset
        self._acked = acked

    def ack(self) -> bool:
        self._acked.append(self._offset)
        return True


Story = Callable[[Window, list[int], asyncio.AbstractEventLoop], Coroutine[None, None, None]]


def play(story: Story, *, limit: int = 100) -> None:
    async def run() -> None:
        await story(Window(limit, lambda error: None), [], asyncio.get_running_loop())

    asyncio.run(run())


def test_a_record_that_waits_for_nothing_is_acknowledged_at_once() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        await window.add(Reading(1, acked), [])
        assert acked == [1]

    play(story)


def test_records_are_acknowledged_in_order_whatever_arrives_first() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        first, second = loop.create_future(), loop.create_future()
        await window.add(Reading(1, acked), [first])
        await window.add(Reading(2, acked), [])
        await window.add(Reading(3, acked), [second])
        await window.add(Reading(4, acked), [])
        second.set_result(None)
        await asyncio.sleep(0.01)
        assert acked == []
        first.set_result(None)
        await asyncio.sleep(0.01)
        assert acked == [1, 2, 3, 4]
        assert len(window) == 0

    play(story)


def test_a_record_waits_for_every_one_of_its_deliveries() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        one, other = loop.create_future(), loop.create_future()
        await window.add(Reading(1, acked), [one, other])
        other.set_result(None)
        await asyncio.sleep(0.01)
        assert acked == []
        one.set_result(None)
        await asyncio.sleep(0.01)
        assert acked == [1]

    play(story)


def test_nothing_is_acknowledged_from_a_failed_delivery_on() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        good, bad = loop.create_future(), loop.create_future()
        await window.add(Reading(1, acked), [good])
        await window.add(Reading(2, acked), [bad])
        await window.add(Reading(3, acked), [])
        bad.set_exception(ConnectionError("the broker is gone"))
        good.set_result(None)
        await asyncio.sleep(0.01)
        await window.add(Reading(4, acked), [])
        assert acked == [1]

    play(story)


def test_a_delivery_that_has_already_failed_holds_the_records_after_it() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        bad = loop.create_future()
        bad.set_exception(ConnectionError("the queue is closed"))
        await window.add(Reading(1, acked), [bad])
        await window.add(Reading(2, acked), [])
        await asyncio.sleep(0.01)
        assert acked == []

    play(story)


def test_a_failed_delivery_is_told_of_before_those_in_front_of_it_have_arrived() -> None:
    async def run() -> None:
        failures: list[BaseException] = []
        window, loop = Window(100, failures.append), asyncio.get_running_loop()
        slow, bad, another = loop.create_future(), loop.create_future(), loop.create_future()
        for offset, delivery in enumerate((slow, bad, another)):
            await window.add(Reading(offset, []), [delivery])
        bad.set_exception(gone := ConnectionError("the broker is gone"))
        another.set_exception(gone)
        await asyncio.sleep(0.01)
        assert failures == [gone, gone]

    asyncio.run(run())


def test_a_full_window_holds_up_reading_until_its_first_delivery() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        slow = loop.create_future()
        await window.add(Reading(1, acked), [slow])
        await window.add(Reading(2, acked), [])
        adding = asyncio.ensure_future(window.add(Reading(3, acked), []))
        await asyncio.sleep(0.01)
        assert not adding.done()
        slow.set_result(None)
        await asyncio.wait_for(adding, timeout=1)
        assert acked == [1, 2, 3]

    play(story, limit=2)


def test_a_full_window_raises_what_its_first_delivery_failed_with() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        bad = loop.create_future()
        await window.add(Reading(1, acked), [bad])
        bad.set_exception(ConnectionError("the broker is gone"))
        with pytest.raises(ConnectionError):
            await window.add(Reading(2, acked), [])
        assert acked == []

    play(story, limit=1)


def test_it_is_settled_when_every_delivery_has_arrived() -> None:
    async def story(window: Window, acked: list[int], loop: asyncio.AbstractEventLoop) -> None:
        one, other = loop.create_future(), loop.create_future()
        await window.add(Reading(1, acked), [one])
        await window.add(Reading(2, acked), [other])
        settling = asyncio.ensure_future(window.settled())
        other.set_result(None)
        await asyncio.sleep(0.01)
        assert not settling.done()
        one.set_result(None)
        await asyncio.wait_for(settling, timeout=1)
        assert acked == [1, 2]

    play(story)
