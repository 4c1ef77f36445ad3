"""Waiting for a server that speaks HTTP: `wait_for_http`."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from deploy.local.processes.process import NotYet, Process


def wait_for_http(
    process: Process, address: str, is_ready: Callable[[int], bool], *, what: str, timeout_seconds: float
) -> None:
    """Wait until the process answers at `address` with a status that `is_ready`; raises ProcessFailed."""

    def answers() -> bool:
        try:
            status = http.get(address).status_code
        except httpx.TransportError as error:
            raise NotYet(str(error)) from error
        if not is_ready(status):
            raise NotYet(f"it answered {status}")
        return True

    with httpx.Client(timeout=2, trust_env=False, verify=False) as http:
        process.wait_until(answers, what=what, timeout_seconds=timeout_seconds)
