"""`Webhook`: posts one notification, until it arrives or is refused for good."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from enum import Enum
from threading import Event

import httpx
import structlog

from services.alerting import metrics
from services.alerting.notifying.receiver import Receiver

_log = structlog.get_logger(__name__)

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 60.0

# What the receiver says of this very notification; the next one may be fine. Every other answer but 2xx is about the
# receiver or the way to it, and is tried again.
_UNACCEPTABLE = frozenset({400, 413, 422})


class Outcome(Enum):
    """How a notification ended."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    STOPPED = "stopped"


class Webhook:
    """One receiver's endpoint. Follows no redirect, reads no proxy or netrc from the environment, logs no URL."""

    def __init__(self, receiver: Receiver, stop: Event, *, chance: Callable[[], float] = random.random) -> None:
        headers = {"User-Agent": "headrace-alerting", "Content-Type": "application/json"}
        if receiver.authorization is not None:
            headers["Authorization"] = receiver.authorization.get_secret_value()
        self._name = receiver.name
        self._url = receiver.url.get_secret_value()
        self._stop = stop
        self._chance = chance
        self._timeout_seconds = receiver.timeout_seconds
        # httpx itself limits the time of each read, and an answer may take any number of them. A task can be cancelled as a whole.
        self._loop = asyncio.new_event_loop()
        self._client = httpx.AsyncClient(headers=headers, timeout=None, follow_redirects=False, trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._loop.run_until_complete(self._client.aclose())
        self._loop.close()

    def post(self, body: bytes, *, idempotency_key: str) -> Outcome:
        """Post `body`, which is JSON, until the receiver takes it (2xx), calls it unacceptable (400, 413, 422), or `stop` is set."""
        attempt = 0
        while not self._stop.is_set():
            answer = self._loop.run_until_complete(self._try(body, idempotency_key))
            if answer is None:
                metrics.NOTIFICATIONS.labels(self._name, "delivered").inc()
                return Outcome.DELIVERED
            if answer in _UNACCEPTABLE:
                metrics.NOTIFICATIONS.labels(self._name, "refused").inc()
                return Outcome.REFUSED
            metrics.NOTIFICATIONS.labels(self._name, "failed").inc()
            # A redirect or 401, 403, 404 won't heal by itself.
            level = _log.error if isinstance(answer, int) and answer < 500 and answer != 429 else _log.warning
            pause = pause_seconds(attempt, self._chance())
            level("receiver does not take a notification", receiver=self._name, answer=answer, again_in_seconds=pause)
            self._stop.wait(pause)
            attempt += 1
        return Outcome.STOPPED

    async def _try(self, body: bytes, idempotency_key: str) -> int | str | None:
        """None when it was taken, else the status or the name of what went wrong."""
        try:
            # The answer's body is of no interest and may be endless: it is not read.
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream(
                    "POST", self._url, content=body, headers={"Idempotency-Key": idempotency_key}
                ) as response,
            ):
                return None if response.is_success else response.status_code
        except (httpx.HTTPError, TimeoutError) as error:
            return type(error).__name__


def pause_seconds(attempt: int, chance: float) -> float:
    """Before the next attempt: doubling from 0.5 s to 60 s, each between half of it and all of it by `chance` (0 to 1)."""
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 20))
    return longest * (0.5 + chance / 2)
