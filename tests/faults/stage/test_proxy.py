"""The proxy, before a real HTTP server."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.alerting.endpoint import Endpoint
from tests.faults.stage.proxy import Proxy


@pytest.fixture
def behind() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def proxy(behind: Endpoint) -> Iterator[Proxy]:
    with Proxy(int(behind.url.split(":")[2].split("/")[0])) as proxy:
        yield proxy


def post(proxy: Proxy, method: str = "POST") -> int:
    return httpx.request(method, f"http://127.0.0.1:{proxy.port}/", json={"n": 1}, trust_env=False).status_code


def test_everything_passes_until_it_is_told_otherwise(proxy: Proxy, behind: Endpoint) -> None:
    assert post(proxy) == 200
    assert behind.posts == [{"n": 1}]


def test_it_refuses_until_it_is_healed_and_counts(proxy: Proxy, behind: Endpoint) -> None:
    with proxy.refusing() as refused:
        for _ in range(3):
            with pytest.raises(httpx.TransportError):
                post(proxy)
    assert refused.count == 3
    assert behind.posts == []
    assert post(proxy) == 200


def test_a_slow_one_holds_up_each_request(proxy: Proxy, behind: Endpoint) -> None:
    with proxy.slow(0.3) as delayed:
        began = time.monotonic()
        assert post(proxy) == 200
    assert time.monotonic() - began >= 0.3
    assert delayed.count >= 1


def test_a_put_is_cut_in_the_middle_and_a_post_is_not(proxy: Proxy, behind: Endpoint) -> None:
    class Always(random.Random):
        def random(self) -> float:
            return 0.0

    with proxy.cutting(Always()) as cut:
        with pytest.raises(httpx.TransportError):
            post(proxy, "PUT")
        assert post(proxy) == 200
    assert cut.count == 1
