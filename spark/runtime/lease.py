"""A lease in the object store: one holder at a time, and the others know whom to ask.

Each holder makes an object of its own, the next *epoch*, by a put that fails if the object is there, and renews it while it
lives. Nobody compares clocks: an observer watches by its own monotonic clock whether the holder's object changes. A holder's own silence
counts while its machine is suspended, too.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import structlog
from botocore.exceptions import BotoCoreError, ClientError

from contracts.servers.s3 import ANSWER_SECONDS, s3_client
from contracts.settings import S3Settings
from spark.runtime.errors import StoreUnfit, TakenOver

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_log = structlog.get_logger(__name__)

NOTICE_SECONDS = 3.0
"""By then a predecessor that reaches the brokers has looked whether it has a successor (`spark.sinks.kafka.succession`), and ended."""

_RENEWALS = 4
"""How often a holder renews within the time for which its lease lasts."""

_LOOKS = 4
"""How often an observer looks between two renewals."""

_REFUSED = (409, 412)
"""Of a put with If-None-Match: the object is there, or is being put by somebody else."""


def this_process() -> str:
    """A holder's name: where to find it."""
    return f"{socket.gethostname()}/{os.getpid()}"


def since_boot() -> float:
    """Seconds, those for which the machine was suspended among them, where the system counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """The lease on the objects under `prefix`; it lasts for `seconds` after each renewal. Those in folders below count: a lease may have been
    several before, each of a part.

    `check` before each step that only the holder may take; a holder that was stopped for longer than the lease lasts finds
    out there, by its own clock, and does not take it up again. Where something else keeps two of them from doing harm, one
    that `resumes` goes on as long as nobody has taken over. Each answer of the store is waited for `answer_seconds`, three times.
    """

    def __init__(
        self,
        s3: S3Settings,
        prefix: str,
        seconds: float,
        *,
        holder: str | None = None,
        clock: Callable[[], float] = since_boot,
        watch: Callable[[], float] = time.monotonic,
        resumes: bool = False,
        answer_seconds: int = ANSWER_SECONDS,
    ) -> None:
        self._s3: S3Client = s3_client(s3, answer_seconds=answer_seconds)
        self._bucket = s3.bucket
        self._prefix = prefix
        self._seconds = seconds
        self._clock = clock
        self._watch = watch
        self._resumes = resumes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {prefix}", daemon=True)
        self._beat, self._nonce = 0, uuid.uuid4().hex
        self._keys: dict[int, str] = {}
        self._renewed_at = 0.0
        self.holder = holder or this_process()
        self.epoch = 0
        self.was_forced = False
        """Whether its last holder did not give it back, and so may live on, cut off."""

    def acquire(self) -> None:
        """Take the lease, after watching for as long as it lasts if its last holder did not give it back.

        Raises TakenOver with the holder's name if it is alive, and StoreUnfit if the object store overwrites what it
        should not.
        """
        newest = self._newest()
        if newest:
            self._wait_for_end(newest)
        self._renewed_at = self._clock()
        if not self._put(newest + 1, new=True):
            there = self._said(newest + 1)
            # Its own, where the answer to the first try was lost and the client has tried again.
            if there.get("nonce") != self._nonce:
                raise TakenOver(f"{self._prefix} was taken a moment ago by {there.get('holder')}")
        self.epoch = newest + 1
        if self._put(self.epoch, new=True):
            raise StoreUnfit(
                f"the object store ignores If-None-Match ({self._key(self.epoch)} was overwritten): two writers could both "
                "make the same version of a table; use a store that has conditional writes, as Amazon S3 does"
            )
        self._remove_older()
        _log.info("lease taken", lease=self._prefix, epoch=self.epoch, holder=self.holder)
        self._thread.start()

    def check(self) -> None:
        """Raises TakenOver if the lease is lost: somebody else has it, or it has ended without a renewal."""
        silent = self._clock() - self._renewed_at
        newest = self._newest()
        if newest != self.epoch:
            raise TakenOver(
                f"{self._said(newest).get('holder')} has taken {self._prefix} over (epoch {newest}) from {self.holder} "
                f"(epoch {self.epoch}), which was silent for up to {silent:.0f} s: {self.holder} stops"
            )
        if silent > self._seconds and not self._resumes:
            raise TakenOver(
                f"{self.holder} has not renewed its lease on {self._prefix} for {silent:.0f} s, and it lasts "
                f"{self._seconds:g} s: it was stopped, or could not reach the object store; it stops, start it again"
            )

    @property
    def is_overdue(self) -> bool:
        """Whether it has not been renewed for longer than it lasts, so that somebody may have taken over."""
        return self._clock() - self._renewed_at > self._seconds

    def release(self) -> None:
        """Give it back, so that the next holder need not wait."""
        if not self.epoch or self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join()
        try:
            self._put(self.epoch, released=True)
        except (BotoCoreError, ClientError) as error:
            _log.warning("lease not given back; it ends by itself", lease=self._prefix, error=str(error))

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _keep(self) -> None:
        while not self._stopped.wait(self._seconds / _RENEWALS):
            began = self._clock()
            try:
                # Too late is too late: others may have taken it.
                if self.is_overdue and not (self._resumes and self._newest() == self.epoch):
                    _log.error("lease ended", lease=self._prefix, epoch=self.epoch)
                    return
                self._beat += 1
                self._put(self.epoch)
                # From before the put: an observer may have seen it at once.
                self._renewed_at = began
            except (BotoCoreError, ClientError) as error:
                _log.warning("lease not renewed", lease=self._prefix, error=str(error))

    def _wait_for_end(self, epoch: int) -> None:
        """Return when the holder has given the lease back, or has been silent for as long as it promised to renew it."""
        first = self._said(epoch)
        lasts = float(first.get("seconds", self._seconds))
        watched_from = self._watch()
        pause = lasts / _RENEWALS / _LOOKS
        if not first.get("released"):
            _log.info("watching the last holder", lease=self._prefix, holder=first.get("holder"), seconds=lasts)
            self.was_forced = True
        while self.was_forced:
            self._stopped.wait(pause)
            # Before the look, which is the last one: time may have passed while this process was frozen.
            is_over = self._watch() - watched_from > lasts
            said = self._said(epoch)
            if said.get("released"):
                self.was_forced = False
            elif said != first:
                raise TakenOver(f"{said.get('holder')} holds {self._prefix} and is alive: stop it first")
            elif is_over:
                return

    def _put(self, epoch: int, *, new: bool = False, released: bool = False) -> bool:
        """Whether it was put; False if `new` and it is there."""
        said = {
            "holder": self.holder,
            "nonce": self._nonce,
            "seconds": self._seconds,
            "beat": self._beat,
            "released": released,
        }
        body = json.dumps(said).encode()
        try:
            if new:
                self._s3.put_object(Bucket=self._bucket, Key=self._key(epoch), Body=body, IfNoneMatch="*")
            else:
                self._s3.put_object(Bucket=self._bucket, Key=self._key(epoch), Body=body)
        except ClientError as error:
            if new and error.response["ResponseMetadata"]["HTTPStatusCode"] in _REFUSED:
                return False
            raise
        return True

    def _said(self, epoch: int) -> dict[str, Any]:
        try:
            key = self._keys.get(epoch, self._key(epoch))
            body = self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        except self._s3.exceptions.NoSuchKey:
            return {}
        try:
            return dict(json.loads(body))
        except ValueError:
            # Cut off while it was written: its holder is not known, and watched like any other.
            return {}

    def _newest(self) -> int:
        found = self._s3.list_objects_v2(Bucket=self._bucket, Prefix=f"{self._prefix}/").get("Contents", [])
        keys = [each["Key"] for each in found]
        # A server on a file system may show a file with a name of its own while an object is being put.
        self._keys = {int(name): key for key in keys if (name := key.rpartition("/")[2]).isdigit()}
        return max(self._keys, default=0)

    def _remove_older(self) -> None:
        """All but the one before: a handful of objects, so listing them is one request. Of a folder below, whose holder looks there, all."""
        self._newest()
        for epoch, key in self._keys.items():
            if epoch < self.epoch - 1 or key != self._key(epoch):
                self._s3.delete_object(Bucket=self._bucket, Key=key)

    def _key(self, epoch: int) -> str:
        return f"{self._prefix}/{epoch:020d}"
