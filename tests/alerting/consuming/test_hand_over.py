from __future__ import annotations

import asyncio

from services.alerting.consuming.hand_over import hand_over


def test_an_outcome_arrives_in_the_loop() -> None:
    async def arrived() -> str:
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await asyncio.to_thread(hand_over, asyncio.get_running_loop(), found.set_result, "delivered")
        return await found

    assert asyncio.run(arrived()) == "delivered"


def test_a_loop_that_has_ended_is_left_alone() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    settled: list[str] = []
    hand_over(loop, settled.append, "delivered")
    assert settled == []
