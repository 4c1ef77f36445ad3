"""The lease on the real S3 server, between threads and between processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from contracts.servers.s3 import s3_client
from contracts.settings import S3Settings
from deploy.local.servers.stack import LocalStack
from spark.runtime.errors import StoreUnfit, TakenOver
from spark.runtime.lease import Lease

SECONDS = 2.0


@pytest.fixture
def s3(stack: LocalStack) -> S3Settings:
    return stack.settings().s3


@pytest.fixture
def prefix() -> str:
    return f"test-leases/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def sleeper(stack: LocalStack, prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease."""
    command = [sys.executable, "-m", "tests.spark.runtime.lease_holder", prefix, str(SECONDS)]
    with subprocess.Popen(command, env=os.environ | stack.settings_env(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "holding\n" in iter(process.stdout.readline, "")
        yield process
        process.kill()


def test_a_second_holder_is_refused_with_the_name_of_the_first_until_that_gives_it_back(
    s3: S3Settings, prefix: str
) -> None:
    with Lease(s3, prefix, SECONDS, holder="first") as first:
        with pytest.raises(TakenOver, match="first holds .* and is alive"):
            Lease(s3, prefix, SECONDS, holder="second").acquire()
        first.check()
    with Lease(s3, prefix, 3600, holder="second") as second:
        second.check()
        assert (first.epoch, second.epoch) == (1, 2)


def test_a_store_that_overwrites_is_refused_and_what_was_taken_is_given_back(
    s3: S3Settings, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(s3, prefix, SECONDS)
    put = lease._put

    def overwriting(epoch: int, *, new: bool = False, **said: bool) -> bool:
        put(epoch, new=new, **said)
        return True

    monkeypatch.setattr(lease, "_put", overwriting)
    with pytest.raises(StoreUnfit, match="use a store that has conditional writes"):
        lease.acquire()
    lease.release()


def test_who_has_put_it_and_lost_the_answer_has_it(
    s3: S3Settings, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = Lease(s3, prefix, SECONDS, holder="first")
    put = lease._put

    def refused(epoch: int, *, new: bool = False, released: bool = False) -> bool:
        """As the client's second try is, which it makes by itself."""
        return put(epoch, new=new, released=released) and not new

    monkeypatch.setattr(lease, "_put", refused)
    with lease:
        lease.check()
        assert lease.epoch == 1
        with pytest.raises(TakenOver, match="first holds"):
            Lease(s3, prefix, SECONDS, holder="second").acquire()


def test_of_many_that_start_at_once_one_gets_it(s3: S3Settings, prefix: str) -> None:
    leases = [Lease(s3, prefix, SECONDS, holder=f"writer {number}") for number in range(6)]

    def got(lease: Lease) -> bool:
        try:
            lease.acquire()
        except TakenOver:
            return False
        return True

    with ThreadPoolExecutor(len(leases)) as pool:
        assert sum(pool.map(got, leases)) == 1
    for lease in leases:
        lease.release()


def test_a_holder_that_was_killed_is_followed_after_its_lease_has_ended(
    s3: S3Settings, prefix: str, sleeper: subprocess.Popen[str]
) -> None:
    sleeper.kill()
    sleeper.wait()
    with Lease(s3, prefix, SECONDS) as lease:
        assert lease.epoch == 2


def test_a_holder_that_slept_finds_out_who_has_taken_over_and_stops(
    s3: S3Settings, prefix: str, sleeper: subprocess.Popen[str]
) -> None:
    assert sleeper.stdout is not None
    sleeper.send_signal(signal.SIGSTOP)
    with Lease(s3, prefix, SECONDS, holder="successor") as successor:
        sleeper.send_signal(signal.SIGCONT)
        assert "successor has taken" in sleeper.stdout.read()
        assert sleeper.wait() == 3
        successor.check()


def test_a_holder_that_slept_past_its_lease_stops_though_nobody_has_taken_it(s3: S3Settings, prefix: str) -> None:
    now = 0.0
    lease = Lease(s3, prefix, 3600, holder="sleeper", clock=lambda: now)
    with lease:
        now = 3599
        lease.check()
        now = 3601
        with pytest.raises(TakenOver, match="sleeper has not renewed its lease .* for 3601 s"):
            lease.check()


def test_a_holder_that_resumes_goes_on_until_somebody_has_taken_over(s3: S3Settings, prefix: str) -> None:
    now = 0.0
    with Lease(s3, prefix, 3600, holder="sleeper", clock=lambda: now, resumes=True) as sleeper:
        now = 3601
        sleeper.check()
        assert sleeper.is_overdue
        s3_client(s3).put_object(Bucket=s3.bucket, Key=f"{prefix}/{2:020d}", Body=b'{"holder": "successor"}')
        with pytest.raises(TakenOver, match=r"successor has taken .* \(epoch 2\) from sleeper"):
            sleeper.check()


def test_a_renewal_under_way_disturbs_no_check(s3: S3Settings, prefix: str) -> None:
    """The server lists an object that is being put under a second name, too."""
    with Lease(s3, prefix, 0.004, holder="busy", clock=lambda: 0.0) as lease:
        for _ in range(300):
            lease.check()


def test_the_time_for_which_its_machine_was_suspended_counts_as_a_holders_silence(
    s3: S3Settings, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot = time.clock_gettime
    with Lease(s3, prefix, 3600, holder="sleeper") as lease:
        lease.check()
        monkeypatch.setattr(time, "clock_gettime", lambda clock: boot(clock) + 3601 * (clock == time.CLOCK_BOOTTIME))
        with pytest.raises(TakenOver, match="sleeper has not renewed its lease .* for 3601 s"):
            lease.check()


def test_an_observer_that_was_frozen_looks_once_more_and_finds_the_holder_alive(s3: S3Settings, prefix: str) -> None:
    def say(beat: int) -> None:
        said = json.dumps({"holder": "first", "seconds": 1.6, "beat": beat, "released": False})
        s3_client(s3).put_object(Bucket=s3.bucket, Key=f"{prefix}/{1:020d}", Body=said.encode())

    def while_it_was_frozen() -> Iterator[float]:
        yield 0.0
        say(1)
        yield 2.0

    watch = while_it_was_frozen()
    with Lease(s3, prefix, 3600, holder="first") as first:
        say(0)
        observer = Lease(s3, prefix, 0.04, holder="observer", watch=lambda: next(watch))
        with pytest.raises(TakenOver, match="first holds .* and is alive"):
            observer.acquire()
        first.check()


def test_a_lease_says_whether_its_last_holder_gave_it_back(
    s3: S3Settings, prefix: str, sleeper: subprocess.Popen[str]
) -> None:
    sleeper.kill()
    sleeper.wait()
    with Lease(s3, prefix, SECONDS) as forced:
        assert forced.was_forced
    with Lease(s3, prefix, SECONDS) as given:
        assert not given.was_forced


def test_a_lease_that_was_one_for_each_target_is_one_and_counts_on(s3: S3Settings, prefix: str) -> None:
    with Lease(s3, f"{prefix}/target", SECONDS, holder="before") as before:
        with pytest.raises(TakenOver, match="before holds .* and is alive"):
            Lease(s3, prefix, SECONDS, holder="now").acquire()
        before.check()
    with Lease(s3, prefix, SECONDS, holder="now") as now:
        assert (now.epoch, now.was_forced) == (2, False)
        now.check()
        with pytest.raises(TakenOver):
            before.check()
    # Neither is one whose name begins alike.
    with Lease(s3, f"{prefix}_b", SECONDS) as another:
        assert another.epoch == 1
