"""A delivery can be awaited, whichever thread the broker's answer comes to."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from contracts.delivery import Delivered, Delivery, Outcomes
from contracts.errors import DeliveryError

HERE = Delivered("t", 0, 7)
REFUSED = DeliveryError("t", "one", "MSG_SIZE_TOO_LARGE", "too large")


def play(story: Callable[[Outcomes], Awaitable[None]]) -> list[dict[str, Any]]:
    """What the loop had to complain of."""
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        await story(Outcomes(loop))
        gc.collect()

    asyncio.run(run())
    return complaints


def test_an_outcome_from_another_thread_is_awaited() -> None:
    async def story(outcomes: Outcomes) -> None:
        delivery = Delivery(outcomes)
        thread = threading.Thread(target=delivery, args=(HERE,))
        thread.start()
        assert await asyncio.wait_for(delivery, 10) == HERE
        thread.join()

    assert play(story) == []


def test_a_failure_is_raised_where_it_is_awaited() -> None:
    async def story(outcomes: Outcomes) -> None:
        delivery = Delivery(outcomes)
        await asyncio.to_thread(delivery, REFUSED)
        with pytest.raises(DeliveryError) as raised:
            await delivery
        assert raised.value is REFUSED

    assert play(story) == []


def test_outcomes_come_in_their_order_from_threads_that_do_not_wait_for_each_other() -> None:
    async def story(outcomes: Outcomes) -> None:
        settled: list[int] = []
        deliveries = []
        for number in range(2_000):
            delivery = Delivery(outcomes)
            delivery.add_done_callback(lambda each: settled.append(each.result().offset))
            deliveries.append(delivery)

        def report(numbers: range) -> None:
            for number in numbers:
                deliveries[number](Delivered("t", 0, number))

        halves = [range(1_000), range(1_000, 2_000)]
        threads = [threading.Thread(target=report, args=(half,)) for half in halves]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(asyncio.gather(*deliveries), 30)
        assert [[each for each in settled if each in half] for half in halves] == [list(half) for half in halves]
        for thread in threads:
            thread.join()

    assert play(story) == []


def test_the_loop_is_woken_once_for_all_that_came() -> None:
    async def story(outcomes: Outcomes) -> None:
        loop, wakes = outcomes.loop, list[object]()
        call = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *what: wakes.append(what) or call(*what)  # type: ignore[method-assign, func-returns-value]
        for _ in range(2):
            deliveries = [Delivery(outcomes) for _ in range(10)]
            for delivery in deliveries:
                delivery(HERE)
            assert await asyncio.gather(*deliveries) == [HERE] * 10
        assert len(wakes) == 2

    assert play(story) == []


@pytest.mark.parametrize("outcome", [HERE, REFUSED])
def test_one_that_was_cancelled_hears_no_more(outcome: Delivered | DeliveryError) -> None:
    async def story(outcomes: Outcomes) -> None:
        delivery, other = Delivery(outcomes), Delivery(outcomes)
        waiting = asyncio.ensure_future(asyncio.wait_for(delivery, 0.001))
        with pytest.raises(TimeoutError):
            await waiting
        delivery(outcome)
        other(HERE)
        assert await other == HERE
        assert delivery.cancelled()

    assert play(story) == []


def test_a_failure_that_nobody_awaits_is_heard_of() -> None:
    async def story(outcomes: Outcomes) -> None:
        Delivery(outcomes)(REFUSED)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    assert [each["exception"] for each in play(story)] == [REFUSED]


def test_a_loop_that_has_ended_is_left_alone() -> None:
    loop = asyncio.new_event_loop()
    delivery = Delivery(Outcomes(loop))
    loop.close()
    delivery(HERE)
    assert not delivery.done()
