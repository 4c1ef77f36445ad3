"""Brokers that take in slowly what Spark's producers send."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from deploy.local.downloads.jars import ensure_jars, say_on_stderr
from deploy.local.downloads.java import java_command

_DEFAULT = ("--entity-default",)
_OF_LIBRDKAFKA = ("--entity-name", "rdkafka")


@contextmanager
def throttled(bootstrap_servers: str, bytes_per_second: int) -> Iterator[None]:
    """A quota for every client that names itself otherwise than librdkafka does."""

    def alter(entity: tuple[str, ...], *change: str) -> None:
        classpath = f"{ensure_jars(say=say_on_stderr)['broker']}/*"
        java = [java_command(), "-XX:TieredStopAtLevel=1", "-cp", classpath, "kafka.admin.ConfigCommand"]
        where = ["--bootstrap-server", bootstrap_servers, "--entity-type", "clients", *entity]
        subprocess.run([*java, *where, "--alter", *change], check=True, capture_output=True)

    quota = "producer_byte_rate"
    try:
        alter(_OF_LIBRDKAFKA, "--add-config", f"{quota}={1 << 40}")
        alter(_DEFAULT, "--add-config", f"{quota}={bytes_per_second}")
        yield
    finally:
        alter(_DEFAULT, "--delete-config", quota)
        alter(_OF_LIBRDKAFKA, "--delete-config", quota)
